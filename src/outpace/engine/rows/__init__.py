"""Rows of tables: grouped by key, sorted, gathered, kept by key, and read as times."""
