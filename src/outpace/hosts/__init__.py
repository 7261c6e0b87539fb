"""What drives the engine: in process, in several processes, and on Spark."""
