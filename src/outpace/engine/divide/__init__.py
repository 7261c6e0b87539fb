"""Cuts of a whole table into parts that are matched apart, with the same result."""
