"""What an expression means, value by value and for whole columns."""
