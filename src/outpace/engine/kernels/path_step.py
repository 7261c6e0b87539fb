"""The form of compiled predicates: the arguments of a step function and its result.

`step` moves the registers of the run on by one take and says whether the row fits the variable: 1
or 0, and -1 where the twin must decide (an overflow). Arrays come as plain pointers, which keeps a
call as cheap as a few additions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from outpace.compiler.kernel import compile_callback, compiled

_INTEGERS, _FLOATS, _FLAGS = (f"CPointer({one})" for one in ("int64", "float64", "uint8"))
_ARRAYS: Final = (*[_INTEGERS] * 3, _FLOATS, _INTEGERS, _FLOATS, _FLAGS)
#: The types of what a step function is given, and of what it returns.
_SIGNATURE: Final = f"int64({', '.join((*['int64'] * 6, *_ARRAYS))})"


def path_step(function: Callable[..., int]) -> Any:
    """Compile a step function, or load what was compiled of it before."""
    return compile_callback(function, _SIGNATURE)


@lru_cache(maxsize=1)
def no_step() -> Any:
    """Return the step function of queries whose predicates never read the match."""
    return path_step(_always)


def _always(
    variable: int,
    depth: int,
    row: int,
    begin: int,
    stop: int,
    size: int,
    run_rows: Any,
    run_labels: Any,
    registers: Any,
    float_registers: Any,
    column_integers: Any,
    column_floats: Any,
    valid: Any,
) -> int:
    return 1


@compiled
def find_last(run_rows: Any, run_labels: Any, depth: int, bits: int, steps: int) -> int:
    """Return the row of the run's last take of some variables, `steps` further in; -1: none."""
    left = steps
    for take in range(depth, -1, -1):
        if bits >> run_labels[take] & 1:
            if left == 0:
                return int(run_rows[take])
            left -= 1
    return -1


@compiled
def is_repeated(
    run_rows: Any, run_labels: Any, depth: int, bits: int, row: int,
    values: Any, at: int, valid: Any, known_at: int,
) -> bool:  # fmt: skip
    """Say whether a run has taken a row of some variables with the value of another row."""
    value = values[at + row]
    for take in range(depth):
        if bits >> run_labels[take] & 1 and valid[known_at + run_rows[take]]:
            other = values[at + run_rows[take]]
            if other == value or (other != other and value != value):
                return True
    return False


@compiled
def find_first(run_rows: Any, run_labels: Any, depth: int, bits: int, steps: int) -> int:
    """Return the row of the run's first take of some variables, `steps` further in; -1: none."""
    left = steps
    for take in range(depth + 1):
        if bits >> run_labels[take] & 1:
            if left == 0:
                return int(run_rows[take])
            left -= 1
    return -1
