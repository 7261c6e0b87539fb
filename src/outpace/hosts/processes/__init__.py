"""In processes: sources are read, instances match side by side (`op.run`)."""
