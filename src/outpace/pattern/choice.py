"""One value of a few: text at the edge becomes a member of an enumeration, or a clear error."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from outpace.errors import BindError, did_you_mean
from outpace.pattern.argument import shown

_Choice = TypeVar("_Choice", bound=Enum)


def one_of(kind: type[_Choice], value: str | _Choice, method: str) -> _Choice:
    """Return the member of an enumeration that a text means.

    Examples
    --------
    >>> class Colour(Enum):
    ...     RED = "red"
    >>> one_of(Colour, "red", "paint")
    <Colour.RED: 'red'>
    """
    try:
        return kind(value)
    except (TypeError, ValueError):
        known = [str(member.value) for member in kind]
        raise BindError(
            f"{method} does not know {shown(value)}",
            hint=(did_you_mean(value, known) if isinstance(value, str) else None)
            or f"use one of {', '.join(map(repr, known))}",
        ) from None
