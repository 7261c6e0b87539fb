"""Disorder as a value: how far events are out of order, and what becomes of those that come late.

`Query.disorder` takes one of these, and `outpace.engine.order.choose` knows what runs each. Without
one, events are expected in order: in process a push refuses others; on Spark each micro-batch is
sorted, and an event before those of an earlier one is late.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from outpace.errors import BindError
from outpace.pattern.argument import a_duration
from outpace.pattern.choice import one_of


class Late(Enum):
    """What becomes of an event whose time the watermark has passed; it is counted in any case."""

    DROP = "drop"
    PASS = "pass"
    """It takes part as if it had happened at the watermark."""
    SIDE = "side"
    """It goes to the side output `late`."""


class Invalid(Enum):
    """What becomes of an event without a time, or one too far in the future."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    """It goes to the side output `invalid`, with the reason."""


Duration = datetime.timedelta | int


@dataclass(frozen=True, slots=True)
class Disorder:
    """What all kinds have in common.

    Parameters
    ----------
    late
        "drop", "pass" or "side".
    invalid
        "fail" or "quarantine".
    ahead
        An event whose time is further than this ahead of all events before it, or with `Watermark`
        of the time that was told last, is invalid; by default none is. A duration such as "1 hour",
        or an integer in units of an integer time column.
    """

    #: What `explain` says of a kind, with its settings in units of time.
    described: ClassVar[str]

    late: Late | str = Late.DROP
    invalid: Invalid | str = Invalid.FAIL
    ahead: Duration | str | None = None

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of the durations that a kind has beside what all have.

        Examples
        --------
        >>> KSlack.settings(), Watermark.settings()
        (('slack',), ())
        """
        common = {field.name for field in fields(Disorder)}
        return tuple(field.name for field in fields(cls) if field.name not in common)

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", one_of(Late, self.late, "late"))
        object.__setattr__(self, "invalid", one_of(Invalid, self.invalid, "invalid"))
        if self.ahead is not None:
            object.__setattr__(self, "ahead", _duration(self.ahead, "ahead"))


@dataclass(frozen=True, slots=True)
class InOrder(Disorder):
    """Events come in order, piece by piece; what a query has that says nothing.

    Examples
    --------
    >>> InOrder(late="side").late
    <Late.SIDE: 'side'>
    """

    described = "each batch is sorted; events before those of an earlier batch are late"


@dataclass(frozen=True, slots=True)
class KSlack(Disorder):
    """An event waits until one is seen whose time is `slack` later: K-slack with a fixed K.

    Parameters
    ----------
    slack
        K: "2 s", a timedelta, or an integer in units of an integer time column. No event that is
        late by at most this much is lost.

    Examples
    --------
    >>> KSlack("2 s").slack
    datetime.timedelta(seconds=2)
    """

    described = "an event waits until one is seen that is {slack:,} units of time later"

    slack: Duration | str = 0

    def __init__(
        self,
        slack: Duration | str,
        *,
        late: Late | str = Late.DROP,
        invalid: Invalid | str = Invalid.FAIL,
        ahead: Duration | str | None = None,
    ) -> None:
        for name, value in (("late", late), ("invalid", invalid), ("ahead", ahead)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "slack", _duration(slack, "slack"))
        Disorder.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Watermark(Disorder):
    """An event waits until it is told that no earlier one comes.

    In process `advance` tells it. On Spark it is the watermark of the stream, which
    `withWatermark` gave the time column.

    Examples
    --------
    >>> Watermark(late="pass", ahead="1 hour").ahead
    datetime.timedelta(seconds=3600)
    """

    described = "an event waits until it is told that no earlier one comes"


def _duration(value: Duration | str, name: str) -> Duration:
    parsed = a_duration(value, name)
    if (parsed < 0) if isinstance(parsed, int) else (parsed < datetime.timedelta(0)):
        raise BindError(f"{name} must not be negative")
    return parsed
