"""Compiling in the background while the twin answers, and a word where someone has to wait."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from typing import Any, Final, Protocol, runtime_checkable

from outpace.engine.kernels.compiled import head_start, on_load
from outpace.engine.match.contract import Matcher

#: How long someone may wait for the compiler before it is said.
PATIENCE_SECONDS: Final = 2.0

_BACKGROUND: Final = "outpace-compile"

_compiling = threading.Lock()

#: The matchers that someone holds while Numba is not loaded.
_waiting: weakref.WeakValueDictionary[int, Matcher] = weakref.WeakValueDictionary()


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

    Small inputs are done before Numba is loaded, and do not ask for it: `compile_when_loaded` does
    this as soon as others come.

    What is compiled goes to the cache on disk, so this happens once per machine, and for a
    predicate that reads the match once per query.
    """
    if head_start.left >= 0 or not isinstance(matcher, Compilable) or matcher.ready(1):
        return None
    if not _compiling.acquire(False):
        return None

    def compile_it() -> None:
        try:
            matcher.compile_now()
        finally:
            _compiling.release()

    thread = threading.Thread(target=compile_it, name=_BACKGROUND, daemon=True)
    thread.start()
    return thread


def compile_when_loaded(matcher: Matcher) -> None:
    """Start compiling what a matcher runs when Numba is loaded, which may be now."""
    if head_start.left < 0:
        compile_in_background(matcher)
    else:
        # Those that nobody holds any more need nothing compiled.
        _waiting[id(matcher)] = matcher


def _compile_waiting() -> None:
    # One is compiled at a time, so what the first leaves to do is left to a later call.
    for matcher in list(_waiting.values()):
        if compile_in_background(matcher) is not None:
            break
    _waiting.clear()


class CompileNotice:
    """Says once, on standard error, that kernels are being compiled and someone waits for them."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._timer: threading.Timer | None = None
        self._depth = 0
        self._told = False

    def notify(self, event: Any) -> None:
        """Take note of what the compiler does."""
        (self.on_start if event.is_start else self.on_end)(event)

    def on_start(self, event: Any) -> None:
        """Begin to wait for the compiler; a kernel may have others compiled first."""
        kernel = event.data["dispatcher"].py_func
        if self._told or threading.current_thread().name == _BACKGROUND:
            return
        self._depth += 1
        if self._depth == 1 and kernel.__module__.startswith("outpace."):
            self._timer = threading.Timer(self._patience_seconds, self._tell)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """Stop to wait."""
        if self._depth == 0 or threading.current_thread().name == _BACKGROUND:
            return
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        self._told = True
        sys.stderr.write(
            "outpace: compiling for the first use on this machine, which may take a minute;"
            " python -m outpace.hosts.compile does it ahead\n"
        )


class ToilNotice:
    """Says once, on standard error, that a search takes long since it grows faster than the rows.

    Parameters
    ----------
    name
        The query's name.
    patience_seconds
        How long it may go on before it is said.
    """

    def __init__(self, name: str, patience_seconds: float = 2 * PATIENCE_SECONDS) -> None:
        self._name = name
        self._patience_seconds = patience_seconds
        self._since: float | None = None
        self._told = False

    def __call__(self) -> None:
        """Take note that the search takes far more steps than rows."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if self._told or now - self._since < self._patience_seconds:
            return
        self._told = True
        sys.stderr.write(
            f"outpace: the search for '{self._name}' takes many steps for each row, and grows"
            " faster than the rows; WITHIN bounds how long a match may last, and op.explain says"
            " which steps make it grow\n"
        )


def _listen() -> None:
    from numba.core import event

    event.Listener.register(CompileNotice)
    # Numba has no annotations.
    event.register("numba:compile", CompileNotice())  # type: ignore[no-untyped-call]  # Numba has no types


on_load(_listen)
on_load(_compile_waiting)
