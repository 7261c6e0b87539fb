"""In process: tables and streams without a cluster."""
