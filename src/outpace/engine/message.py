"""Messages: the stimuli and instructions of the operator, and those between its parts.

Messages are values that nobody changes. Time in them is in the units of the query: microseconds, or
the integers of the time column. A host turns what happens into stimuli, lets the operator take
them, and carries out the instructions; where the parts of the operator are in different places it
carries deliveries and answers between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, get_args

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Floats, Integers
from outpace.engine.event import Events, chosen
from outpace.engine.savepoint import Savepoint
from outpace.engine.speculate.standings import Standing
from outpace.engine.split.windows import Split, Windows
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import DataError


@dataclass(frozen=True)
class HostLoad:
    """The load that a host measured in a stretch of time; no part measures it by itself.

    Parameters
    ----------
    busy
        For which part of the stretch it was busy.
    worked
        Seconds that it worked for the events since the load that it told before this one; of
        several instances, that which had most to do.
    """

    busy: float
    worked: float


@dataclass(frozen=True)
class EventsArrived:
    """Rows came.

    Parameters
    ----------
    rows
        The rows.
    source
        The source that sent them; None where there is one, or where a column `source` names it.
    spans
        All times that the stream had in this piece, also of events that others take, as stretches:
        see `Clock.follow_spans`; None where the rows are all.
    watermark
        The watermark that the source sent: none of its later events has a time before this.
    arrival
        When they came, in microseconds of the clock of the host; NO_TIME where it has none.
    load
        How busy the host was in the last stretch of time; None where it does not say.
    weights
        The number that each time of `spans` counts with, where the order reads a column of all
        events; None where it reads none, or the rows are all.
    """

    rows: pa.Table
    source: str | None = None
    spans: Integers | None = None
    watermark: int = NO_TIME
    arrival: int = NO_TIME
    load: HostLoad | None = None
    weights: Floats | None = None


@dataclass(frozen=True)
class TableArrived:
    """All rows that there are, or all that are left, came, in order.

    This is `EventsArrived` and `SourceEnded` in one step.
    """

    rows: pa.Table


@dataclass(frozen=True)
class BatchBegun:
    """A host that counts by batches begins one: waits are counted from here on."""


@dataclass(frozen=True)
class WatermarkArrived:
    """A source, or the only one, promises that no later event of it has a time before this.

    Parameters
    ----------
    watermark, source
        The time, and the source that promises it.
    arrival
        When the promise came, in microseconds of the clock of the host; NO_TIME where it has none.
    """

    watermark: int
    source: str | None = None
    arrival: int = NO_TIME


@dataclass(frozen=True)
class TimerFired:
    """The clock of the host has come to a time, in microseconds; see `Front.timer`."""

    at: int


@dataclass(frozen=True)
class ClockExchange:
    """A source asked what time it is, and was answered: four times, by two clocks.

    Parameters
    ----------
    source
        The source that asked.
    asked, heard
        When it asked, and when it heard the answer, by its own clock.
    received, answered
        When the question came, and when the answer left, by the clock of reference.

    Examples
    --------
    >>> ClockExchange("east", asked=100, received=1150, answered=1160, heard=180).asked
    100
    """

    source: str
    asked: int
    received: int
    answered: int
    heard: int


@dataclass(frozen=True)
class SourceEnded:
    """A source sends no more events; None: none does."""

    source: str | None = None


@dataclass(frozen=True)
class MatchesAcknowledged:
    """Whoever takes the matches has some of them for good, or none more; a `Save` answers it.

    Parameters
    ----------
    last
        The number x:y of the last of them, with all others of that number; None: none is
        acknowledged, and the operator says what it needs by now.
    """

    last: tuple[int, int] | None = None


@dataclass(frozen=True)
class RowsAcknowledged:
    """Whoever reads the rows of matches, which are counted, has the first so many for good."""

    count: int


@dataclass(frozen=True)
class Deliver:
    """An instance is to take events with its windows that they open and close.

    Parameters
    ----------
    instance
        Which one.
    events, ranges
        The events that came, and which of them are for the instance: pairs of a first row and the
        one behind the last, rising, with gaps between; None where all are. Others tell the time.
    split
        Its windows that open and close.
    arrived
        How many events the whole stream has had.
    watermark
        No later event has a time before this.
    ended
        Whether no more events come.
    standing
        Where the instance stands before; None where nobody goes back.
    """

    instance: int
    events: Events
    ranges: Integers | None
    split: Split
    arrived: int
    watermark: int = NO_TIME
    ended: bool = False
    standing: Standing | None = None

    @property
    def size(self) -> int:
        """How many events are for the instance."""
        if self.ranges is None:
            return len(self.events.arrival)
        if len(self.ranges) == 1:
            first, stop = self.ranges[0].tolist()
            return int(stop - first)
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    @property
    def own_events(self) -> Events:
        """The events that are for the instance."""
        return self.events if self.ranges is None else chosen(self.events, self.ranges)


@dataclass(frozen=True)
class MarkSet:
    """From the front: all parts note where they stand, as the mark of a number.

    Numbers rise. An instance hears of it with the next delivery that it gets, see `Standing`.
    """

    mark: int


@dataclass(frozen=True)
class WentBack:
    """From the front: events came late, and all parts go back to a mark before them.

    The deliveries since then are of no use, and come again, with the late events in their places.
    An instance hears of it with the next delivery that it gets, see `Standing`.
    """

    mark: int


@dataclass(frozen=True)
class DeliveryFailed:
    """To the front: the instance beside has begun to take what nobody can take back."""


@dataclass(frozen=True)
class Answer:
    """The matches that an instance found in a delivery, and its promises of later ones.

    Parameters
    ----------
    matches
        The matches that became final.
    timed_out
        Partial matches that WITHIN ended; an empty table where nobody asks for them.
    frontier, horizon
        No later match has a smaller x, and none starts with an earlier event.
    watermark
        No later match has an event with a time before this; NO_TIME where nobody knows.
    open_windows
        How many windows it has open.
    events
        How many events it was delivered.
    idle, event_counts
        Partitions that it has forgotten, and how many events it has had of each.
    checkpoint_bytes
        How many bytes it copied to note how it stood before the delivery.
    used
        The events of its matches, where `OperatorSpec.tells_used` says so; it does not travel.
    """

    matches: WindowMatches
    timed_out: pa.Table
    frontier: int
    horizon: int
    watermark: int = NO_TIME
    open_windows: int = 0
    events: int = 0
    idle: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    event_counts: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    checkpoint_bytes: int = 0
    used: Integers = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Delivered:
    """An instance has answered the first delivery that it had not answered yet."""

    instance: int
    answer: Answer


@dataclass(frozen=True)
class Routed:
    """All that is to be delivered of some events is: so far have stream and time come.

    Parameters
    ----------
    arrived, watermark, ended
        As in `Deliver`.
    certain
        Nothing that comes changes what lies before this time; NO_TIME where nobody knows.
    more
        Whether more blocks of the same step follow.
    oldest
        The first mark that the front may go back to.
    now
        How far the clock has come by which events wait.
    """

    arrived: int
    watermark: int = NO_TIME
    ended: bool = False
    certain: int = NO_TIME
    more: bool = False
    oldest: int = 0
    now: int = NO_TIME


@dataclass(frozen=True)
class TurnEnded:
    """All messages that there were are carried.

    Matches that no due answer can change come out of the back, and where none is due all that it
    has; a front tells every instance where it is to stand.
    """


@dataclass(frozen=True)
class EventsRecalled:
    """Events that had their turn before are needed once more, where a front was made again.

    Parameters
    ----------
    events, split
        The events, and the windows that they open and close, to be given to instances anew.
    """

    events: Events
    split: Split


@dataclass(frozen=True)
class OperatorLost:
    """The operator was lost: another one is to stand where its last savepoint was made.

    Parameters
    ----------
    savepoint
        The savepoint.
    rows, numbers
        The events before it that it needs, and their numbers, which rise.
    settled
        How many rows of matches were acknowledged, where they are counted.
    """

    savepoint: Savepoint
    rows: pa.Table
    numbers: Integers
    settled: int = 0


class Aside(Enum):
    """Why events are set aside."""

    LATE = "late"
    INVALID = "invalid"


@dataclass(frozen=True)
class SetAside:
    """Events take no part: they came late, or cannot be used, with the reason in a column.

    Parameters
    ----------
    query
        The name of the query that they take no part in.
    kind, rows
        Why, and the events.
    """

    query: str
    kind: Aside
    rows: pa.Table


@dataclass(frozen=True)
class Emit:
    """Matches are final, in this order.

    Parameters
    ----------
    query
        The name of the query that they are of.
    matches, timed_out
        The matches, and the partial ones that WITHIN ended.
    watermark
        No later match has an event with a time before this; NO_TIME where nobody knows.
    """

    query: str
    matches: WindowMatches
    timed_out: pa.Table
    watermark: int = NO_TIME


@dataclass(frozen=True)
class Save:
    """A replay needs no more than this: whoever retains the events may drop the others.

    Parameters
    ----------
    query
        The name of the query that it is of.
    savepoint
        From which event on they are needed, and which of the later ones are not.
    """

    query: str
    savepoint: Savepoint


#: What a front hears of instances.
Reply: TypeAlias = Delivered | DeliveryFailed
#: What a front says.
Move: TypeAlias = "SetAside | MarkSet | WentBack | Deliver | Routed"


@dataclass(frozen=True)
class FrontMoved:
    """The front of an operator was asked before, and said this: the other parts are to take it."""

    moves: Sequence[Move]


Stimulus: TypeAlias = EventsArrived | WatermarkArrived | TimerFired | SourceEnded | ClockExchange
#: What an operator hears.
OperatorInput: TypeAlias = Stimulus | TableArrived | FrontMoved | Delivered | TurnEnded | BatchBegun
#: What an operator hears, beside these, that gives savepoints.
Acknowledgement: TypeAlias = MatchesAcknowledged | RowsAcknowledged
#: What an operator says; `Deliver` where its instances are elsewhere.
Instruction: TypeAlias = Emit | SetAside | Save | Deliver


def query_of(instruction: Instruction) -> str:
    """Return the name of the query that an instruction is of; deliveries have none."""
    assert not isinstance(instruction, Deliver), "the instance is beside"
    return instruction.query


def refused_message(part: str, message: object, taken: object) -> DataError:
    """Return the error for a message that a part does not take; `taken` are those that it takes."""
    name = message.__name__ if isinstance(message, type) else type(message).__name__
    what = f"the class {name}, which is no message" if isinstance(message, type) else name
    known = get_args(taken) or (taken,)
    return DataError(
        f"{part} does not take {what}",
        detail=f"it takes {', '.join(sorted(one.__name__ for one in known))}",
        hint="a host carries each message to the part that takes it",
    )


#: No windows open and none close.
NO_SPLIT = Split(Windows.none(), Windows.none())
