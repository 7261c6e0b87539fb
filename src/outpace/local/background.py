"""Compiling in the background while the twin answers, so that nobody waits for a compiler."""

from __future__ import annotations

import threading
from typing import Protocol, runtime_checkable

from outpace.engine.match.contract import Matcher

_compiling = threading.Lock()


@runtime_checkable
class Compilable(Protocol):
    """A matcher that leaves small blocks to the twin until it is compiled."""

    def ready(self, size: int) -> bool:
        """Say whether compiled code would match a block of this size now."""
        ...

    def compile_now(self) -> None:
        """Compile all that it runs."""
        ...


def compile_in_background(matcher: Matcher) -> threading.Thread | None:
    """Start compiling what a matcher runs; None where nothing is left or another one is busy.

    What is compiled goes to the cache on disk, so this happens once per machine, and for a
    predicate that reads the match once per query.
    """
    if not isinstance(matcher, Compilable) or matcher.ready(1) or not _compiling.acquire(False):
        return None

    def compile_it() -> None:
        try:
            matcher.compile_now()
        finally:
            _compiling.release()

    thread = threading.Thread(target=compile_it, name="outpace-compile", daemon=True)
    thread.start()
    return thread
