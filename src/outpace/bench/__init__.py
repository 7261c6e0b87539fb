"""The benchmark: how fast workloads run on each host, and what memory they take."""
