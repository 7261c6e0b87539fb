"""Recovery without saved state: savepoints, which events they still need, and how to go on.

- `savepoint`: the message to the log that retains the events, which is read again after a failure;
- `arrived`: events as they arrived, where something puts them in order;
- `given`: the places of matches that came out;
- `layout`: the windows that matches may still come of, by the numbers of their events;
- `needed`: which events a replay needs; the others are skipped;
- `counted`: the operator of a graph, which counts its matches and tells what it needs by source;
- `log_places`: where events lie in a log that they are read from again;
- `protocol`: what an operator of one's own is asked;
- `shared`: that of several instances;
- `recoverable`: the operator that gives savepoints, and is rebuilt from one and retained events.

Paper: Lima et al., Skipping Unused Events to Speed Up Rollback-Recovery, sections II and III.
"""
