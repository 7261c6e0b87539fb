"""Outpace finds patterns in event streams."""
