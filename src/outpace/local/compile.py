"""Compiling ahead: kernels when the library is set up, a query's predicates in the background.

`python -m outpace.local.compile` compiles every kernel once and leaves it in Numba's cache on
disk, which takes a minute or two. After that no query waits for it.
"""

from __future__ import annotations

import threading

from outpace.engine.match.contract import Matcher
from outpace.engine.match.kernel import KernelMatcher
from outpace.local.match import match
from outpace.pattern.query import Query
from outpace.testing.workloads import WORKLOADS, events

#: Enough rows that the matcher compiles rather than leaving them to the twin.
_ROWS = 200_000


def compile_in_background(matcher: Matcher) -> threading.Thread | None:
    """Start compiling what a matcher runs; None where nothing is left to compile.

    Until it is done, small blocks go to the twin, which gives the same matches.
    """
    if not isinstance(matcher, KernelMatcher) or matcher.ready(1):
        return None
    thread = threading.Thread(target=matcher.compile_now, name="outpace-compile", daemon=True)
    thread.start()
    return thread


def compile_kernels() -> None:
    """Compile the kernels for both widths of masks that queries need."""
    table = events(_ROWS)
    for query in (*(make() for make in WORKLOADS.values()), *_wide_queries()):
        match(table, query)


def _wide_queries() -> list[Query]:
    names = "ABCDEFGHI"
    return [
        Query(f"wide {link}")
        .order_by("ts")
        .pattern(pattern)
        .define({name: f"type = {number}" for number, name in enumerate(names)})
        .measures(n="COUNT(*)")
        .within(1000)
        for link, pattern in (
            ("strict", " ".join(names)),
            ("next", " -> ".join(names)),
            ("mixed", " -> ".join(names) + "?"),
        )
    ]


if __name__ == "__main__":
    compile_kernels()
