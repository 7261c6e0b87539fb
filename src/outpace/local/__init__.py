"""The in-process host: Arrow tables, data frames and DuckDB in, Arrow out; no JVM is started."""
