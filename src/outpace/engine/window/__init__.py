"""Windows over ordered streams: who is in which window, who matches it, and what comes out.

`contract` holds what the parts hand to each other: the splitter (`split`) says which windows open
and close, schedulers (`schedule`) give windows to instances, and an instance (`match`, `apply`)
finds the matches of its windows.
"""
