"""How kernels are compiled: once per machine, cached on disk, without the interpreter lock.

Programs, masks and bounds are data to a kernel, so one compiled kernel serves all queries and a
warm start loads it from the cache. Integer division follows NumPy, which needs no check for zero.
"""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable, Sized
from pathlib import Path
from types import FrameType
from typing import Any, Final, ParamSpec, TypeVar, cast

import numba
import numpy as np

from outpace.engine.kernels.cache import add_cache
from outpace.errors import MatchError

P = ParamSpec("P")
R = TypeVar("R")

#: Up to this many elements a loop in plain Python is done before a compiler has started.
_SMALL: Final = 20_000


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function over arrays when it is first called; keep its type for the checker."""
    kernel = numba.njit(nogil=True, error_model="numpy", boundscheck=False)(function)
    add_cache(kernel, function)
    return cast("Callable[P, R]", kernel)


def compiled_within(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only other kernels call: without the code for a call from Python."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    kernel = numba.njit(nogil=True, error_model="numpy", boundscheck=False, **options)(function)
    add_cache(kernel, function)
    return cast("Callable[P, R]", kernel)


def compiled_when_worth(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that is only called from Python, and calls no other kernel.

    As long as it is not compiled on this machine, small arguments are left to the function itself,
    so that the first answer does not wait for a compiler.
    """
    kernel = compiled(function)
    # Looking into the cache takes longer than small arguments do, so it happens once.
    is_cached = functools.cache(is_compiled)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not getattr(kernel, "overloads", True) and _is_small(args) and not is_cached(kernel):
            # Compiled integers wrap around without a word, and kernels check for it themselves.
            with np.errstate(all="ignore"):
                return function(*args, **kwargs)
        return kernel(*args, **kwargs)

    return call


def call(kernel: Callable[..., R], *args: Any) -> R:
    """Call a kernel that returns arrays.

    Numba hands them over with Python code of its own, and an exception there leaves holes in the
    result. So Ctrl-C is noted while a kernel runs, and acted upon when it has returned.
    """
    noted: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        return kernel(*args)
    try:
        signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
    except ValueError:
        return kernel(*args)  # Signals arrive in the main thread alone.
    try:
        result = kernel(*args)
    except MemoryError as error:
        raise MatchError(
            "the matches do not fit into memory",
            hint="count them with .count(), take some with .limit(n), or shorten WITHIN",
        ) from error
    finally:
        signal.signal(signal.SIGINT, handler)
    if noted:
        handler(*noted[0])
    return result


def _is_small(args: tuple[object, ...]) -> bool:
    return sum(len(value) for value in args if isinstance(value, Sized)) <= _SMALL


def is_compiled(kernel: Callable[..., object]) -> bool:
    """Say whether a kernel has been compiled, by this process or, with its present text, before."""
    dispatcher: Any = kernel
    if dispatcher.overloads:
        return True
    folder = dispatcher.stats.cache_path
    if folder is None:
        return False
    source = Path(inspect.getfile(dispatcher.py_func))
    if not source.is_file():
        return False
    changed = source.stat().st_mtime
    saved = Path(folder).glob(f"{source.stem}.{dispatcher.py_func.__name__}-*.nbi")
    return any(file.stat().st_mtime >= changed for file in saved)
