"""The functions of the expression language, each with its meaning in plain Python."""
