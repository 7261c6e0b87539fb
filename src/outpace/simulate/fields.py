"""The fields of scenario values, checked against their annotations when a value is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from outpace.errors import ScenarioError
from outpace.pattern.argument import plain, shown

#: What numbers count. In a file they may be texts with a unit: "5 min", "20 us", "2 GiB".
Seconds: TypeAlias = float
Instructions: TypeAlias = float
Bytes: TypeAlias = float

_NAMES = {float: "a number", int: "a whole number", str: "text", NoneType: "None"}


def check_fields(value: Any, part: str | None = None) -> None:
    """Refuse a value with a field of another kind; lists become tuples, NumPy's numbers Python's.

    Parameters
    ----------
    value
        What was made.
    part
        What a scenario file calls it, which tells errors their place: by its id, or by the field.

    Examples
    --------
    >>> from outpace.simulate import VM, Uniform
    >>> Uniform("fast")
    Traceback (most recent call last):
    ...
    outpace.errors.ScenarioError: [scenario] the rate of Uniform is a number, not 'fast'
    """
    kinds = _kinds(value.__class__)
    name = getattr(value, "id", None)
    owner = type(value).__name__ + (f" {shown(name)}" if isinstance(name, str) else "")
    for field in fields(value):
        given = getattr(value, field.name)
        subject = () if part is None else (part, name if isinstance(name, str) else field.name)
        taken = checked(given, kinds[field.name], f"the {field.name} of {owner}", subject)
        if taken is not given:
            object.__setattr__(value, field.name, taken)


def checked(given: Any, kind: Any, what: str, subject: tuple[str, ...] = ()) -> Any:
    """Return a value of an annotated kind: a list as a tuple, a number of NumPy as one of Python.

    Examples
    --------
    >>> checked([1.5, 2], tuple[float, ...], "rates")
    (1.5, 2)
    """
    listed = get_origin(kind) is tuple and isinstance(given, list)
    taken = tuple(given) if listed else plain(given)
    if not _fits(taken, kind):
        raise ScenarioError(f"{what} is {_name(kind)}, not {shown(given)}", subject=subject)
    return taken


def not_negative(what: str, value: float, subject: tuple[str, ...] = ()) -> None:
    """Refuse what is below 0, infinite or no number."""
    if not 0 <= value < math.inf:
        raise ScenarioError(f"{what} not a number from 0 on: {value}", subject=subject)


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(one, inner[0]) for one in value)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items()
        )
    if kind is float:
        # An integer that no float holds is beyond what can be computed with.
        return isinstance(value, Real) and not isinstance(value, bool) and _is_float(value)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    return isinstance(value, kind) and not isinstance(value, type)


def _is_float(value: Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _name(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_name, inner)))
    if origin is tuple:
        return f"a list, each {_name(inner[0])}"
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is Mapping:
        return f"a mapping from {_name(inner[0])} to {_name(inner[1])}"
    return _NAMES.get(kind, f"a {kind.__name__}")
