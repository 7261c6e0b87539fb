"""SQL around MATCH_RECOGNIZE: statements, dialects, and what a database understands."""
