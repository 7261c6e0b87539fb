"""Blocks and tables as bytes: what travels between processes, tasks and files."""
