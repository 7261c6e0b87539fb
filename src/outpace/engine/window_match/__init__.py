"""The instance: the matches in the windows that it is given."""
