"""Settings of a value that users pass: of which kind each is, declared once, where its field is.

    slack: Duration | str = field(metadata=setting(EventSpan()))

What checks settings, binds them to a schema, reads them from SQL and prints them goes by this
alone. A setting whose default is None may be None.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, Final, TypeAlias

from outpace.errors import BindError, OutpaceError
from outpace.pattern.argument import a_duration, a_number, a_text, a_whole_number, one_of, shown

Duration: TypeAlias = datetime.timedelta | int

#: Durations by source.
SourceSpans: TypeAlias = tuple[tuple[str, Duration], ...]

_KIND: Final = "setting"


@dataclass(frozen=True, slots=True)
class EventSpan:
    """A duration of event time: "2 s", or an integer in units of an integer time column.

    Parameters
    ----------
    least
        The name of another setting that it must not be below.
    of_query
        Whether, where it is left out, it is the length of the query's windows, or WITHIN.
    """

    least: str | None = None
    of_query: bool = False

    def checked(self, value: Any, name: str) -> Duration:
        """Return a duration that is not negative."""
        return _not_negative(a_duration(value, name), name)


@dataclass(frozen=True, slots=True)
class ClockSpan:
    """A duration by the clock of the host, whatever the time column holds: "2 s".

    Parameters
    ----------
    least
        The name of another setting that it must not be below.
    lasting
        Whether it must be longer than nothing.
    by_source
        Whether it may be several, one for each of some sources: a mapping, which is kept as pairs.
    """

    least: str | None = None
    lasting: bool = False
    by_source: bool = False

    def checked(self, value: Any, name: str) -> Duration | SourceSpans:
        """Return a duration that is not negative, or those of sources."""
        if self.by_source and isinstance(value, Mapping | tuple):
            given = dict(value)
            if not given:
                raise BindError(f"{name} names no source", hint=f'write {name}={{"east": "2 s"}}')
            return tuple(
                (a_text(source, f"a source of {name}"), self._span(span, f"{name} of '{source}'"))
                for source, span in given.items()
            )
        return self._span(value, name)

    def _span(self, value: Any, name: str) -> Duration:
        duration = a_duration(value, name)
        if isinstance(duration, int):
            raise BindError(
                f"{name} is a duration by the clock, not {shown(value)}",
                hint="write a duration such as '500 ms'",
            )
        if self.lasting and not duration:
            raise BindError(f"{name} must be longer than nothing")
        return _not_negative(duration, name)


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Parameters
    ----------
    least, most
        The range that it is in, ends included; `least` may be the name of another setting.
    whole
        Whether it is an integer.
    column
        The name of another setting, a column of integers that this one must be able to be in.
    """

    least: float | str | None = None
    most: float | None = None
    whole: bool = False
    column: str | None = None

    def checked(self, value: Any, name: str) -> float:
        """Return a number in the range."""
        number = a_whole_number(value, name) if self.whole else a_number(value, name)
        low = None if isinstance(self.least, str) else self.least
        if (low is not None and number < low) or (self.most is not None and number > self.most):
            raise BindError(f"{name} is a number {_range(low, self.most)}, not {shown(value)}")
        return number


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a few: a member of an enumeration, or its value as text."""

    members: type[Enum]

    def checked(self, value: Any, name: str) -> Enum:
        """Return the member."""
        member: Enum = one_of(self.members, value, name)
        return member


class ColumnValues(Enum):
    """What a column holds that a setting names."""

    INTEGERS = "integers"
    NUMBERS = "numbers"
    TIMES = "times or integers"


@dataclass(frozen=True, slots=True)
class ColumnName:
    """The name of a column of the input.

    Parameters
    ----------
    values
        What the column has to hold; None where it may be anything.
    """

    values: ColumnValues | None = None

    def checked(self, value: Any, name: str) -> str:
        """Return the name."""
        return a_text(value, name)


@dataclass(frozen=True, slots=True)
class FlagName:
    """The name of a column of booleans that the input may have, and that is added otherwise."""

    def checked(self, value: Any, name: str) -> str:
        """Return the name."""
        return a_text(value, name)


@dataclass(frozen=True, slots=True)
class SourceName:
    """The name of a source, as the column `source` of the input has it."""

    def checked(self, value: Any, name: str) -> str:
        """Return the name."""
        return a_text(value, name)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Two numbers, the lower one first, both from 0 to 1."""

    def checked(self, value: Any, name: str) -> tuple[float, float]:
        """Return the numbers."""
        pair = value if isinstance(value, tuple | list) else ()
        if len(pair) != 2:
            raise BindError(f"{name} is two numbers, not {shown(value)}", hint="write (0.7, 0.9)")
        low, high = (Number(least=0, most=1).checked(one, name) for one in pair)
        if low > high:
            raise BindError(f"{name} begins with the lower number, not {shown(value)}")
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Inner:
    """Another value that has settings.

    Parameters
    ----------
    make
        Returns it for what a user gave, or refuses that.
    family
        What it is one of.
    """

    make: Callable[[Any, str], Any]
    family: str

    def checked(self, value: Any, name: str) -> Any:
        """Return the value."""
        return self.make(value, name)


SettingKind: TypeAlias = (
    EventSpan
    | ClockSpan
    | Number
    | Choice
    | ColumnName
    | FlagName
    | SourceName
    | NumberRange
    | Inner
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that a class declares.

    Parameters
    ----------
    name, kind
        What it is called, and of which kind it is.
    default
        What it is where it is left out, as it is kept; `dataclasses.MISSING` where it cannot be.
    """

    name: str
    kind: SettingKind
    default: Any

    @property
    def required(self) -> bool:
        """Whether it cannot be left out."""
        return self.default is MISSING

    def checked(self, value: Any) -> Any:
        """Return a value that fits, as it is kept.

        Raises
        ------
        BindError
            It does not fit.
        """
        if value is None and self.default is None:
            return None
        return self.kind.checked(value, self.name)


def setting(kind: SettingKind) -> Mapping[str, SettingKind]:
    """Return the metadata of a field that is a setting."""
    return {_KIND: kind}


def settings_of(declaring: type) -> tuple[Setting, ...]:
    """Return the settings that a dataclass declares, its own before those that all have.

    Examples
    --------
    >>> from outpace.pattern.disorder import KSlack
    >>> [setting.name for setting in settings_of(KSlack)]
    ['slack', 'late', 'invalid', 'ahead', 'arrival', 'horizon', 'patience', 'flag']
    """
    declared = sorted(fields(declaring), key=lambda one: one.kw_only is True)
    return tuple(_setting(one.name, one.metadata[_KIND], one.default) for one in declared)


def check_settings(value: Any, where: str) -> None:
    """Check the settings of a frozen value that was just made, and keep them as they are kept.

    Raises
    ------
    OutpaceError
        One does not fit, or contradicts another.
    """
    for one in settings_of(type(value)):
        try:
            object.__setattr__(value, one.name, one.checked(getattr(value, one.name)))
        except OutpaceError as error:
            # A text that is no duration has a place of its own, inside the setting.
            error.where = where if error.where is None else f"{where}, {error.where}"
            raise
    for one in settings_of(type(value)):
        other = getattr(one.kind, "least", None)
        if not isinstance(other, str):
            continue
        high, low = getattr(value, one.name), getattr(value, other)
        # A duration and an integer have no order; binding says which of them does not fit.
        if high is not None and type(high) is type(low) and high < low:
            raise BindError(f"{one.name} must not be less than {other}", where=where)


def _setting(name: str, kind: SettingKind, default: Any) -> Setting:
    kept = default is MISSING or default is None
    return Setting(name, kind, default if kept else kind.checked(default, name))


def _not_negative(duration: Duration, name: str) -> Duration:
    if (duration < 0) if isinstance(duration, int) else (duration < datetime.timedelta(0)):
        raise BindError(f"{name} must not be negative")
    return duration


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return f"of at most {most}"
    return f"of at least {least}" if most is None else f"from {least} to {most}"
