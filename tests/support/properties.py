"""How often a property is tried: a share of what the chosen Hypothesis profile says."""

from __future__ import annotations

from hypothesis import settings

#: The examples of the profile that every test run uses.
USUAL = 100


def examples(usual: int) -> settings:
    """Settings for a property that is tried so often in the usual profile, and in others alike.

    A dear property takes fewer than others, one with much to find takes more; the profile
    `explore` raises them all.

    Examples
    --------
    >>> examples(USUAL).max_examples == settings.default.max_examples
    True
    """
    return settings(max_examples=max(1, usual * settings.default.max_examples // USUAL))
