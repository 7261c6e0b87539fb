"""Binding: a query and a schema become a bound query, or a clear error."""
