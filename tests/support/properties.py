"""How often a property is tried: a share of what the chosen Hypothesis profile says."""

from __future__ import annotations

from hypothesis import settings

#: What the numbers that tests name are shares of: the profile of every test run draws 70.
USUAL = 100


def examples(usual: int) -> settings:
    """Settings for a property that is tried so often where the profile draws 100, and so on.

    A dear property takes fewer than others, one with much to find takes more; the profile
    `explore` raises them all.

    Examples
    --------
    >>> examples(USUAL).max_examples == settings.default.max_examples
    True
    """
    return settings(max_examples=max(1, usual * settings.default.max_examples // USUAL))
