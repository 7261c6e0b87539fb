"""The merger: the matches of all instances as one stream, in their order."""
