"""Blocks and tables as bytes: the bytes that travel between processes, tasks and files."""
