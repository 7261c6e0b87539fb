"""How a query runs: from a bound query to stages, and what `explain()` shows."""
