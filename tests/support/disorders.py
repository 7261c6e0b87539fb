"""Every kind of disorder, once: what holds for each of them is tested with these.

A kind takes settings by name. Times are integers; `op.Sequence` goes by the column `seq`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import outpace as op
from outpace.pattern.disorder import Disorder

KINDS: dict[str, Callable[..., Disorder]] = {
    "in order": op.InOrder,
    "slack": partial(op.KSlack, 4),
    "greatest delay": op.MPKSlack,
    "quantile": partial(op.Quantile, 0.9),
    "coverage": partial(op.AQKSlack, aggregate="count", window=5),
    "distance": partial(op.LDOP, window=7),
    "told": op.Punctuation,
    "numbers": partial(op.Sequence, "10 us"),
    "early": partial(op.Speculative, 4, alpha=0.3),
}
