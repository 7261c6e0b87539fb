"""One order for the events of many sources: by time, then sequence number, then source."""
