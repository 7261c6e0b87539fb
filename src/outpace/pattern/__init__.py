"""What to detect: the pattern language as values, its three notations, and binding to a schema."""
