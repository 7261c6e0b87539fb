"""How the loops of the simulator are compiled: without calls and without counting references.

A call that passes many arrays costs as much as a vertex's whole step, and so does counting who
holds them. The hot loops make no arrays, so they need not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from outpace.compiler.cache import add_cache
from outpace.compiler.kernel import load_numba

P = ParamSpec("P")
R = TypeVar("R")


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function as a part of each kernel that calls it."""
    kernel = load_numba().njit(inline="always", nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", kernel)


def compiled_without_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes, returns and keeps no arrays."""
    # Numba's types do not list the last option, which turns the counting of references off.
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
    kernel = load_numba().njit(nogil=True, **options)(function)
    add_cache(kernel, function)
    return cast("Callable[P, R]", kernel)
