"""Recovery without saved state: savepoints, which events they still need, and how to go on.

- `..savepoint`: the message to the log of retained events, which is read again after a failure;
- `arrivals`: events as they arrived, where something puts them in order;
- `place_runs`: which event is in which place of that order;
- `match_places`: the places of matches that came out;
- `layout`: the windows that matches may still come of, by the numbers of their events;
- `event_needs`: which events a replay needs; the others are skipped;
- `window_replay`, `partition_replay`: what a replay needs with windows, and without;
- `graph_operator`: that of a graph, which counts its matches and tells what it needs by source;
- `log_places`: where events lie in a log that they are read from again;
- `protocol`: what an operator of one's own is asked;
- `refusals`: what is not recovered so, and the errors that say it;
- `recoverable`: the operator that gives savepoints, and is rebuilt from one and retained events.

Paper: Lima et al., Skipping Unused Events to Speed Up Rollback-Recovery, sections II and III.
"""
