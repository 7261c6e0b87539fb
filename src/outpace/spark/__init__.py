"""The Spark host: DataFrames in and out, lazily; never creates, stops or configures a session."""
