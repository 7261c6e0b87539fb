"""Graphs of operators: the matches of one are the events of others, each in its own process.

- `graph`: the value, its checks, and what operators are when columns are known;
- `backup`: what an operator tells its predecessors, so that they trim and it can be rebuilt;
- `message`: what goes over a link, as bytes;
- `outlet`: the output queues of a node, one for each successor, and the socket that serves them;
- `inlet`: the sockets to the predecessors of a node;
- `intake`: the events of all predecessors in one order, numbered, and which of them are needed;
- `operator`, `sink`: the bodies of processes;
- `monitor`: starts processes, hears their hearts beat, and starts lost ones again;
- `folder`: the savepoints on disk, from which a run goes on that was lost as a whole;
- `run`: the sources, the sinks and the loop of a run; `metrics`: what is counted.

Paper: Lima et al., Skipping Unused Events to Speed Up Rollback-Recovery, sections II and III.
"""
