"""Arguments as users pass them, checked once for each kind: what comes back is a plain value.

NumPy's numbers, texts and times are taken like Python's. Whatever does not fit becomes an
`OutpaceError` that says what was expected and what came. One value of a few becomes a member of an
enumeration.
"""

from __future__ import annotations

import datetime
import operator
import os
from collections.abc import Mapping
from enum import Enum
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from outpace.errors import BindError, OutpaceError, did_you_mean

_Kind = TypeVar("_Kind")

#: The longest value that an error shows; of others it names the type.
_SHOWN_MAX = 60
#: Whole numbers have 64 bits where events are matched.
_LARGEST = (1 << 63) - 1


def shown(value: object) -> str:
    """Return a value as an error shows it: itself where it is short, else its type.

    Examples
    --------
    >>> shown(2.5), shown(list(range(100)))
    ('2.5', 'an object of type list')
    """
    try:
        text = repr(value)
    except Exception:  # An object of the user's may fail at anything.
        text = "\n"
    if len(text) > _SHOWN_MAX or "\n" in text or " at 0x" in text:
        return f"an object of type {type(value).__name__}"
    return text


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as the value of Python that it is, and anything else as it came.

    Examples
    --------
    >>> plain(np.int32(3)), plain(np.timedelta64(1500, "ms")), plain("x")
    (3, datetime.timedelta(seconds=1, microseconds=500000), 'x')
    """
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, np.datetime64 | np.timedelta64):
        # Python's times end at microseconds, so what is finer would come as a mere integer.
        finer = np.datetime_data(value.dtype)[0] in ("ns", "ps", "fs", "as")
        value = value.astype(f"{value.dtype.kind}8[us]") if finer else value
    return value.item()


def a_whole_number(
    value: Any,
    what: str,
    *,
    least: int | None = None,
    hint: str | None = None,
    error: type[OutpaceError] = BindError,
) -> int:
    """Return an integer; True and 2.0 are none.

    Examples
    --------
    >>> a_whole_number(np.int64(3), "a limit", least=1)
    3
    >>> a_whole_number(2.5, "a limit", least=1)
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] a limit is a whole number of at least 1, not 2.5
    """
    try:
        number = None if isinstance(value, bool | np.ndarray) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise error(f"{what} is a whole number{bound}, not {shown(value)}", hint=hint)
    if abs(number) > _LARGEST:
        limit, far = (_LARGEST, "large") if number > 0 else (-_LARGEST, "small")
        raise error(f"{what} is too {far}: {shown(value)}", detail=f"the limit is {limit}")
    return number


def a_number(
    value: Any,
    what: str,
    *,
    above: float | None = None,
    error: type[OutpaceError] = BindError,
) -> float:
    """Return a finite number.

    Examples
    --------
    >>> a_number(np.float32(0.5), "a rate", above=0)
    0.5
    >>> a_number("fast", "a rate", above=0)
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] a rate is a number above 0, not 'fast'
    """
    number = plain(value)
    fits = isinstance(number, Real) and not isinstance(number, bool)
    if not fits or not abs(number) < np.inf or (above is not None and not number > above):
        bound = "" if above is None else f" above {above}"
        raise error(f"{what} is a number{bound}, not {shown(value)}")
    try:
        return float(number)
    except OverflowError:
        raise error(f"{what} is too large: {shown(value)}") from None


def a_text(
    value: Any, what: str, *, hint: str | None = None, error: type[OutpaceError] = BindError
) -> str:
    """Return a text.

    Examples
    --------
    >>> a_text(3, "the name of a query")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] the name of a query is text, not 3
    """
    if not isinstance(value, str):
        raise error(f"{what} is text, not {shown(value)}", hint=hint)
    return str(value)


def a_flag(value: Any, what: str, *, error: type[OutpaceError] = BindError) -> bool:
    """Return True or False.

    Examples
    --------
    >>> a_flag("no", "strict")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] strict is True or False, not 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise error(f"{what} is True or False, not {shown(value)}")
    return bool(value)


def a_duration(value: Any, what: str) -> datetime.timedelta | int:
    """Return a duration: text is read, an integer counts in units of an integer time column.

    Examples
    --------
    >>> a_duration("2 s", "within"), a_duration(np.int64(7), "within")
    (datetime.timedelta(seconds=2), 7)
    >>> a_duration(2.5, "within")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] within is a duration or an integer, not 2.5
      hint: write "2 s", a timedelta, or an integer
    """
    from outpace.pattern.duration import parse_duration

    if isinstance(value, str):
        return parse_duration(value, where=what)
    duration = plain(value)
    if isinstance(duration, bool) or not isinstance(duration, int | datetime.timedelta):
        raise BindError(
            f"{what} is a duration or an integer, not {shown(value)}",
            hint='write "2 s", a timedelta, or an integer',
        )
    # A subclass, such as pandas' own, would print and compare in its own way.
    if isinstance(duration, datetime.timedelta):
        return datetime.timedelta(duration.days, duration.seconds, duration.microseconds)
    return a_whole_number(duration, what)


def a_path(value: Any, what: str, *, error: type[OutpaceError] = BindError) -> str:
    """Return a path as text.

    Examples
    --------
    >>> a_path(3, "the path of a log")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] the path of a log is text or a pathlib.Path, not 3
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise error(f"{what} is text or a pathlib.Path, not {shown(value)}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise error(f"{what} has a character that no file's name can have: {path!a}") from None
    return path


def several(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what was passed one by one, or as one list: `f("a", "b")` and `f(["a", "b"])`.

    Examples
    --------
    >>> several(("a", "b")) == several((["a", "b"],)) == ("a", "b")
    True
    """
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return tuple(values[0])
    return values


def check_characters(text: str, what: str) -> None:
    r"""Refuse a text with half of a surrogate pair, which no file and no column can hold.

    Examples
    --------
    >>> check_characters("\ud800", "measure 1")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] half of a surrogate pair is no character
      measure 1
    """
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BindError("half of a surrogate pair is no character", where=what)


def listed(values: Any) -> tuple[Any, ...] | None:
    """Return the values of a list, or of anything else that has some; None where there are none.

    A text, bytes and a mapping are no lists, and neither is an array of NumPy without dimensions.

    Examples
    --------
    >>> listed(["a", 3]), listed("ab"), listed(3)
    (('a', 3), None, None)
    """
    if isinstance(values, str | bytes | Mapping):
        return None
    try:
        found = iter(values)
    except TypeError:
        return None
    return tuple(found)


def some_names(values: Any, what: str, *, hint: str | None = None) -> tuple[str, ...]:
    """Return the texts of a list; a text alone is no list of its letters.

    Examples
    --------
    >>> some_names("AB", "subset U")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] subset U is a list of names, not 'AB'
    """
    names = listed(values)
    if names is not None and all(isinstance(name, str) for name in names):
        for name in names:
            check_characters(name, what)
        return tuple(map(str, names))
    raise BindError(f"{what} is a list of names, not {shown(values)}", hint=hint)


def an_instance(
    value: _Kind,
    kind: Any,
    what: str,
    *,
    hint: str | None = None,
    error: type[OutpaceError] = BindError,
) -> _Kind:
    """Return an object of a class, or of one of several: `A | B`.

    Examples
    --------
    >>> an_instance("A B", dict, "a dictionary")
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] a dictionary is expected, not 'A B'
    """
    if not isinstance(value, kind):
        raise error(f"{what} is expected, not {shown(value)}", hint=hint)
    return value


_AnyEnum = TypeVar("_AnyEnum", bound=Enum)


def one_of(kind: type[_AnyEnum], value: str | _AnyEnum, method: str) -> _AnyEnum:
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
