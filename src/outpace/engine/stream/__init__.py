"""The operator in stages, as a host with micro-batches runs it: pack, order, split, match, merge.

A stage is a state machine that takes cells and gives cells (`stage`, `cell`). Its instances run in
different tasks, and its state goes into one value between two batches.
"""
