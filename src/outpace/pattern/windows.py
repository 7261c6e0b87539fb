"""Windows as values: which stretches of a stream a query looks at, one by one.

A window is a run of consecutive events of a partition, in the query's order. A match, or a
user-defined operator, sees the events of one window and nothing else. `outpace.windows` holds the
names for users; the splitter (`outpace.engine.split`) tells which events are in which window.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from outpace.errors import BindError, UnsupportedError
from outpace.pattern.argument import plain, shown
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Expression

#: A stretch of time: a timedelta for timestamps, an integer in units of an integer time column.
WindowSpan: TypeAlias = "datetime.timedelta | int"


@dataclass(frozen=True, slots=True)
class CountWindows:
    """Windows of `size` events; one starts every `slide` events, the first at event `offset`.

    Window y holds the events `offset + y * slide` up to `offset + y * slide + size` (exclusive) of
    its partition. A negative offset makes the first windows shorter. `slide > size` leaves gaps.
    """

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "slide", "offset"):
            value = plain(getattr(self, name))
            object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise BindError(
                    f"the {name} of a count window is a whole number of events, not {shown(value)}",
                    where="count windows",
                    hint="windows over a stretch of time are windows.time",
                )
            _check_span(value, name, "count windows", least=None if name == "offset" else 1)
        _check_overlap(self.size // self.slide, "count windows")


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows `[start, start + size)` of event time, with a start every `slide`.

    Starts are aligned to the epoch plus `offset`; a window's number is `(start - offset) / slide`,
    so it does not depend on where a stream begins. A window without events does not exist.
    """

    size: WindowSpan
    slide: WindowSpan
    offset: WindowSpan = 0

    def __post_init__(self) -> None:
        for name in ("size", "slide", "offset"):
            object.__setattr__(self, name, plain(getattr(self, name)))
        _check_span(self.size, "size", "time windows", least=1)
        if not isinstance(self.offset, bool) and self.offset == 0:
            object.__setattr__(self, "offset", self.size * 0)
        for name in ("size", "slide", "offset"):
            value = getattr(self, name)
            _check_span(value, name, "time windows", least=None if name == "offset" else 1)
            if isinstance(value, int) is not isinstance(self.size, int):
                raise BindError(
                    f"size is {_shown(self.size)}, but {name} is {_shown(value)}",
                    where="time windows",
                    hint="give durations for a timestamp, integers for an integer time column",
                )
        _check_overlap(_units(self.size) // _units(self.slide), "time windows")


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """A window lasts as long as each event comes less than `gap` after the one before it."""

    gap: WindowSpan

    def __post_init__(self) -> None:
        object.__setattr__(self, "gap", plain(self.gap))
        _check_span(self.gap, "gap", "session windows", least=1)


@dataclass(frozen=True, slots=True)
class BetweenWindows:
    """Windows that content opens and closes.

    An event that fits `open` opens a window and is its first event; a later event that fits `close`
    closes every window that was opened before it, and is the last event of each. Both are SQL over
    the event alone, or both are left to a `predicate` with a state of its own.
    """

    open: Expression | None = None
    close: Expression | None = None
    predicate: WindowPredicate | None = None

    def __post_init__(self) -> None:
        by_content = self.open is not None and self.close is not None
        neither = self.open is None and self.close is None
        if by_content is (self.predicate is not None) or not (by_content or neither):
            raise BindError(
                "windows between events have open and close, or a predicate",
                where="between windows",
                hint="write between(open=\"type = 'start'\", close=\"type = 'end'\")",
            )
        if not isinstance(self.predicate, WindowPredicate | None):
            raise BindError(
                f"a window predicate is expected, not {shown(self.predicate)}",
                where="between windows",
                hint="give an object of a class that extends op.windows.Predicate",
            )


@dataclass(frozen=True, slots=True)
class LandmarkWindows:
    """Windows that begin at a landmark and last until the next one, which begins the next window.

    Without `at` the first event of the partition is the only landmark.
    """

    at: Expression | None = None


WindowSpec: TypeAlias = (
    CountWindows | TimeWindows | SessionWindows | BetweenWindows | LandmarkWindows
)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """What a predicate sees of a window that is open.

    Parameters
    ----------
    number
        The window's number in its partition.
    first
        Its first event.
    events
        How many events it has, without the one being looked at.

    Examples
    --------
    >>> OpenWindow(number=0, first={"ts": 3}, events=2).first["ts"]
    3
    """

    number: int
    first: Mapping[str, object]
    events: int


class WindowPredicate(ABC):
    """Opens and closes windows in Python; one clone serves one partition.

    The state is whatever the object keeps. For each event `closes` is asked for every open window,
    in the order of their numbers, then `opens` once. A window that closes holds the event.

    Examples
    --------
    >>> class Pairs(WindowPredicate):
    ...     # From each login to the same user's logout, with a window of its own for each user.
    ...     def opens(self, event, windows):
    ...         return event["kind"] == "login"
    ...     def closes(self, event, window):
    ...         return event["kind"] == "logout" and event["user"] == window.first["user"]
    ...     def clone(self):
    ...         return Pairs()
    >>> login, logout = {"kind": "login", "user": 7}, {"kind": "logout", "user": 7}
    >>> pairs = Pairs()
    >>> pairs.opens(login, ()), pairs.closes(logout, OpenWindow(0, login, 1))
    (True, True)
    """

    @abstractmethod
    def opens(self, event: Mapping[str, object], windows: tuple[OpenWindow, ...]) -> bool:
        """Say whether an event opens a window; `windows` are those that stay open.

        Parameters
        ----------
        event
            The event: its values by the names of the columns.
        windows
            The windows that stay open.
        """

    @abstractmethod
    def closes(self, event: Mapping[str, object], window: OpenWindow) -> bool:
        """Say whether an event closes an open window.

        Parameters
        ----------
        event
            The event: its values by the names of the columns.
        window
            The window.
        """

    @abstractmethod
    def clone(self) -> WindowPredicate:
        """Return a predicate with the same state that goes on by itself."""

    def state(self) -> bytes:
        """Return what `restore` needs; without it a stream with these windows cannot be saved."""
        raise UnsupportedError(
            f"window predicate {type(self).__name__} cannot be saved",
            hint="give it the methods state and restore",
        )

    def restore(self, data: bytes) -> None:
        """Go on from what `state` returned.

        Parameters
        ----------
        data
            The bytes that `state` returned.
        """
        raise UnsupportedError(f"window predicate {type(self).__name__} cannot be restored")


#: Spans stay so far below the limits of 64 bits that sums of a few never overflow.
LARGEST_SPAN = 1 << 60

#: Windows of a partition that may be open at once.
MOST_OPEN = 10_000_000

_MICROSECOND = datetime.timedelta(microseconds=1)


def _check_span(value: object, name: str, where: str, *, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | datetime.timedelta):
        raise BindError(
            f"{name} is a duration or an integer, not {shown(value)}",
            where=where,
            hint="write '10 s', a timedelta, or an integer in units of the time column",
        )
    units = _units(value)
    if least is not None and units < least:
        smallest = 1 if isinstance(value, int) else _MICROSECOND
        raise BindError(f"{name} is at least {_shown(smallest)}, not {_shown(value)}", where=where)
    if abs(units) > LARGEST_SPAN:
        raise BindError(f"{name} is too large: {_shown(value)}", where=where)


def checked_drift(windows: WindowSpec, drift: WindowSpan) -> WindowSpan:
    """Return by how much the places of events in windows are uncertain, or say why it cannot be.

    It is a stretch of what windows are measured by: time, or a number of events. One that is as
    long as a window leaves no event that is surely in it.

    Examples
    --------
    >>> checked_drift(CountWindows(100, 100), 4)
    4
    >>> checked_drift(LandmarkWindows(), 4)
    Traceback (most recent call last):
    ...
    outpace.errors.BindError: [bind] windows that the content of events begins have no drift
      drift
      hint: use windows by time, count or session, or leave out drift
    """
    match windows:
        case CountWindows(size=longest) | TimeWindows(size=longest) | SessionWindows(gap=longest):
            pass
        case _:
            raise BindError(
                "windows that the content of events begins have no drift",
                where="drift",
                hint="use windows by time, count or session, or leave out drift",
            )
    if isinstance(windows, CountWindows) and not isinstance(drift, int):
        raise BindError(
            f"the drift of count windows is a number of events, not {_shown(drift)}",
            where="drift",
            hint="say by how many places an event may be out of order: drift=10",
        )
    _check_span(drift, "drift", "drift", least=1)
    if isinstance(drift, int) is not isinstance(longest, int):
        raise BindError(
            f"windows are measured by {_shown(longest)}, but drift is {_shown(drift)}",
            where="drift",
            hint="give durations for a timestamp, integers for an integer time column",
        )
    if _units(drift) >= _units(longest):
        what = "gap of a session" if isinstance(windows, SessionWindows) else "window"
        raise BindError(
            f"the drift is shorter than the {what}, {_shown(longest)}, not {_shown(drift)}",
            where="drift",
            detail="no event would surely be where it seems to be",
        )
    return drift


def _check_overlap(windows: int, where: str) -> None:
    """Refuse windows of which a single event could open more than anyone can keep."""
    if windows > MOST_OPEN:
        raise BindError(
            f"an event is in {windows} windows",
            where=where,
            detail=f"at most {MOST_OPEN} may be open",
            hint="let windows slide further",
        )


def _units(span: WindowSpan) -> int:
    return span if isinstance(span, int) else span // _MICROSECOND


def _shown(span: WindowSpan) -> str:
    return str(span) if isinstance(span, int) else print_duration(span)
