"""The demo: a page with matches in made-up ticks."""
