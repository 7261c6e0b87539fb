"""Instances as processes: the data-parallel operator on the cores of one machine.

`coordinator` decides what every instance gets and puts together what comes back; `instance` is what
runs in each of them. Neither does any I/O, so tests drive both in one process. `ring` holds events
in shared memory, `worker` is the process of an instance, `host` the loop around all of it.
"""
