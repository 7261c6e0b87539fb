"""Graphs of operators: the matches of one are the events of others, each in its own process.

- `graph`: the value, its checks, and what operators are when columns are known;
- `placement`: which operator runs on which machine, and where it listens; `keys`: who may connect;
- `backup`: what an operator tells its predecessors, so that they trim and it can be rebuilt;
- `links`: the sockets of a process; `message`: what goes over a link, as bytes;
- `outlet`: the output queues of a node, one for each successor, and the socket that serves them;
- `inlet`: the ends of links at who reads;
- `intake`: the events of all predecessors in one order, numbered, and which of them are needed;
- `operator_process`, `sink`: the bodies of processes; `member`: what the monitor sees of them;
- `machine`: starts the processes of a machine; `served_machine`: a machine beside the first;
- `monitor`: has processes started, hears their hearts beat, and has lost ones started again;
- `folder`: the savepoints on disk, from which a run goes on that was lost as a whole;
- `graph_run`: the sources, the sinks and the loop of a run; `metrics`: what is counted.

Paper: Lima et al., Skipping Unused Events to Speed Up Rollback-Recovery, sections II and III.
"""
