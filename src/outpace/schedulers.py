"""Who matches a window: schedulers for `Query.instances`.

The result is the same with each of them. `Batches` sends few events twice, `RoundRobin` spreads
single windows, `LeastLoaded` follows the load, `ByKey` keeps a key at one instance; a subclass of
`Scheduler` decides by itself.

Examples
--------
>>> import outpace as op
>>> query = op.Query().pattern("A B").instances(4, schedule=op.schedulers.Batches(size=100))
>>> query.scheduler
Batches(size=100)
"""

from outpace.pattern.schedulers import (
    Batches,
    ByKey,
    Candidate,
    LeastLoaded,
    RoundRobin,
    Scheduler,
)

__all__ = ["Batches", "ByKey", "Candidate", "LeastLoaded", "RoundRobin", "Scheduler"]
