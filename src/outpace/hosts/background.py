"""Compiling in the background while the twin answers, and a word where someone has to wait."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Protocol, runtime_checkable

from outpace.compiler.kernel import compiler, head_start, on_load
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task

#: How long someone may wait for the compiler before it is said.
PATIENCE_SECONDS: Final = 2.0

#: How often something is called meanwhile.
_TURN_SECONDS: Final = 0.2

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
    """Waits for compilers, and says once, on standard error, that it takes long.

    A thread compiles, or waits for another that does, so that Ctrl-C ends the wait at once: what is
    half compiled would be of no use, so the thread goes on.

    Parameters
    ----------
    patience_seconds
        How long the wait may last before it is said.
    meanwhile
        Called now and then while the wait lasts.
    """

    def __init__(
        self,
        patience_seconds: float = PATIENCE_SECONDS,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._meanwhile = meanwhile
        self._told = False

    def __call__(self, compile_it: Callable[[], Any]) -> Any:
        """Return what the compiler returns."""
        if threading.current_thread().name == _BACKGROUND:
            return compile_it()
        compiled: Future[Any] = Future()

        def compile_behind() -> None:
            try:
                compiled.set_result(compile_it())
            except BaseException as error:  # It is the caller's, who may be gone.
                compiled.set_exception(error)

        threading.Thread(target=compile_behind, name=_BACKGROUND, daemon=True).start()
        wait([compiled], self._patience_seconds)
        if not compiled.done() and not self._told:
            self._told = True
            sys.stderr.write(
                "outpace: waiting for the compiler, which may take a minute for the first use on"
                " this machine; python -m outpace.hosts.compile does it ahead\n"
            )
        while self._meanwhile is not None and not compiled.done():
            self._meanwhile()
            wait([compiled], _TURN_SECONDS)
        return compiled.result()


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


compiler.run = CompileNotice()
on_load(_compile_waiting)


def compiled_soon(task: Task) -> Matcher:
    """Return the matcher of a pattern; without windows it is compiled while it works already."""
    matcher = choose_matcher(task)
    if task.bound.query.windows is None:
        compile_when_loaded(matcher)
    return matcher
