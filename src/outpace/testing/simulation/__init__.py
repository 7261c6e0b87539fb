"""The simulator of the operator: a seed decides query, events, hosts and faults.

`simulate_operator` makes one run; `python -m outpace.testing.simulation` makes many, or one again.
"""
