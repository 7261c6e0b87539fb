"""Matching: programs, matchers, measures and what happens after a match."""
