"""The registry of functions: what each means in Python, Arrow, Numba and Catalyst.

`Apply.function` holds a canonical name of this registry. Operators keep their SQL sign (`+`, `<=`,
`and`, `is null`, `like`); `and` and `or` take two or more arguments. `negate`, `case` (conditions
and values in turn, then maybe the value of ELSE), `cast`, `try_cast`, `in`, `array`, `element_at`
(also for `x[i]`) and `field` are the rest of the syntax; everything else (BETWEEN, NOT IN, IF,
NULLIF) is expressed with these when a query is bound.
"""

from __future__ import annotations

from outpace.pattern.bound import Apply, BoundExpression, Constant, Label, Read
from outpace.pattern.functions.arithmetic import ARITHMETIC
from outpace.pattern.functions.choice import CHOICES
from outpace.pattern.functions.collection import COLLECTIONS
from outpace.pattern.functions.condition import CONDITIONS
from outpace.pattern.functions.function import Function
from outpace.pattern.functions.number import NUMBERS
from outpace.pattern.functions.search import SEARCHES
from outpace.pattern.functions.text import TEXTS
from outpace.pattern.functions.time import TIMES

FUNCTIONS = CONDITIONS + CHOICES + ARITHMETIC + NUMBERS + TEXTS + SEARCHES + TIMES + COLLECTIONS

_BY_NAME = {name: f for f in FUNCTIONS for name in (f.name, *f.aliases)}


def find_function(name: str) -> Function | None:
    """Return a function by any of its names, or None.

    Examples
    --------
    >>> find_function("mod").name
    '%'
    """
    return _BY_NAME.get(name)


def function_of(node: Apply) -> Function:
    """Return the function of a call."""
    return _BY_NAME[node.function]


def function_names() -> tuple[str, ...]:
    """Return all names under which functions can be called."""
    return tuple(name for name in _BY_NAME if name.replace("_", "").isalnum())


def is_null_without(node: BoundExpression) -> bool:
    """Say whether an expression is NULL for certain where all its reads and labels are NULL.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from outpace.pattern.bound import ReadPlace
    >>> x = Read(pa.int64(), "x", (), ReadPlace("last"))
    >>> is_null_without(Apply(pa.int64(), "negate", (x,)))
    True
    >>> is_null_without(Apply(pa.bool_(), "is null", (x,)))
    False
    """
    match node:
        case Read() | Label() | Constant(value=None):
            return True
        case Apply(function="and" | "or" | "coalesce", arguments=parts):
            return all(is_null_without(part) for part in parts)
        case Apply(function="case", arguments=parts):
            outcomes = [*parts[1::2], *(parts[-1:] if len(parts) % 2 else ())]
            return all(is_null_without(part) for part in outcomes)
        case Apply(function="in", arguments=(item, *_)):
            return is_null_without(item)
        case Apply(arguments=parts):
            return function_of(node).strict and any(is_null_without(part) for part in parts)
        case _:
            return False
