"""The sans-IO core: everything that decides, as state machines over blocks of columns."""
