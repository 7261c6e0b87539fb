"""The meaning of an expression, value by value and for whole columns."""
