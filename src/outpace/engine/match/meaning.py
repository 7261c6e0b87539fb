"""The meaning of a query as numbers, from which the ids of its matches are made."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from outpace.engine.arrays import Unsigned
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.query import Query
from outpace.pattern.windows import LandmarkWindows

#: What makes the two halves of an id differ.
LANES: Final = np.array([0, 0xD1342543DE82EF95], np.uint64)


@lru_cache(maxsize=64)
def query_words(query: Query) -> Unsigned:
    """Return two numbers that stand for what a query means, however it is run."""
    if query.windows == LandmarkWindows() and not query.numbered:
        query = replace(query, windows=None)  # A partition is its only window.
    return np.array(_words_of(print_identity(query)), np.uint64)


def _words_of(text: str) -> tuple[int, int]:
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
