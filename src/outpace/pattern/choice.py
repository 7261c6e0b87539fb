"""One value of a few: text at the edge becomes a member of an enumeration, or a clear error."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from outpace.errors import BindError, did_you_mean

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
    except ValueError:
        known = [str(member.value) for member in kind]
        raise BindError(
            f"{method} does not know {value!r}",
            hint=did_you_mean(str(value), known) or f"use one of {', '.join(map(repr, known))}",
        ) from None
