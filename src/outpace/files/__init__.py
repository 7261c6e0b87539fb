"""Files as tables: Parquet and text, found, pruned, put in order and matched in parts."""
