"""Disorder as a value: how far events are out of order, and what becomes of those that come late.

`Query.disorder` takes one of these, and `outpace.engine.order.choose` knows what runs each. Without
one, events are expected in order: in process a push refuses others; on Spark each micro-batch is
sorted, and an event before those of an earlier one is late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from outpace.pattern.setting import (
    Choice,
    ClockSpan,
    Duration,
    EventSpan,
    check_settings,
    setting,
    settings_of,
)


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


@dataclass(frozen=True, slots=True)
class Disorder:
    """What all kinds have in common.

    A kind adds its settings as fields, each with its kind of `outpace.pattern.setting`.

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

    #: What `explain` says of a kind; the names of settings in braces become their values.
    described: ClassVar[str]
    #: Whether it decides by the greatest time of each piece and by no clock, so that parts of a
    #: stream can be brought into order apart, each without the events of the others.
    divisible: ClassVar[bool] = False

    late: Late | str = field(default=Late.DROP, kw_only=True, metadata=setting(Choice(Late)))
    invalid: Invalid | str = field(
        default=Invalid.FAIL, kw_only=True, metadata=setting(Choice(Invalid))
    )
    ahead: Duration | str | None = field(default=None, kw_only=True, metadata=setting(EventSpan()))

    def __post_init__(self) -> None:
        check_settings(self, f"op.{type(self).__name__}")

    @property
    def options(self) -> dict[str, Any]:
        """The settings that all kinds have.

        Examples
        --------
        >>> KSlack(5, late="pass").options
        {'late': <Late.PASS: 'pass'>, 'invalid': <Invalid.FAIL: 'fail'>, 'ahead': None}
        """
        return {one.name: getattr(self, one.name) for one in settings_of(Disorder)}

    @property
    def clocked(self) -> bool:
        """Whether it goes by the clock of the host: it has a duration by that clock."""
        spans = [one.name for one in settings_of(type(self)) if isinstance(one.kind, ClockSpan)]
        return any(getattr(self, name) is not None for name in spans)


@dataclass(frozen=True, slots=True)
class InOrder(Disorder):
    """Events come in order, piece by piece; what a query has that says nothing.

    Examples
    --------
    >>> InOrder(late="side").late
    <Late.SIDE: 'side'>
    """

    divisible = True
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

    divisible = True
    described = "an event waits until one is seen that is {slack} later"

    slack: Duration | str = field(metadata=setting(EventSpan()))


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

    divisible = True
    described = "an event waits until it is told that no earlier one comes"
