"""The papers' experiments as programs: each study measures here what a paper measured there.

`report` and `page` hold what all studies share: rows "figure, setting, value, unit, paper", their
JSON file, table and plots. A `Study` has figures, and experiments that yield rows.
"""
