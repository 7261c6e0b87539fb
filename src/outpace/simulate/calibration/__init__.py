"""Calibration: what an event and a batch of a real query cost, and whether predictions hold.

A query of this engine runs as a stream on Spark, is fed at a pace, and is watched from outside:
when events arrive in the log, when batches begin, when their rows are in the sink. From that follow
a scenario for the simulator, and a comparison of what the simulator says with what was measured.

- `feed`: a process that appends events to a log at a pace;
- `stream`: a streaming query, the process that feeds it, and what its batches did;
- `estimates`: instructions per event by both methods of the CEPSim paper (section 6.3);
- `written`: the scenario, as a file that says how it was measured;
- `compare`: predictions beside measurements.
"""
