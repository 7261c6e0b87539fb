"""The notations, read and printed: patterns, expressions, MATCH_RECOGNIZE."""
