"""The contract of an order: the events and watermarks that it takes, the events that it lets go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.message import (
    ClockExchange,
    EventsArrived,
    SourceEnded,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.order.drift import ClockReading
from outpace.engine.rows.permutation import RearrangedRows, as_table
from outpace.engine.state import SavedPart
from outpace.errors import DataError, Hint
from outpace.pattern.bind.disorder import BoundDisorder

#: The first column of invalid events says why they are.
REASON: Final = "reason"


@dataclass(frozen=True)
class WatermarkSteps:
    """How the watermark moved with the events of a piece that say when they arrived.

    Parameters
    ----------
    met
        The watermark that each event met, as they arrived.
    moments, order
        When they arrived, as they lie in the piece, and where each is that arrived.
    final
        The watermark behind all of them, before what was told with the piece.
    """

    met: Integers
    moments: Integers
    order: Integers
    final: int


@dataclass(frozen=True)
class ReleasedEvents:
    """The events that an order lets go with a piece of a stream, and those that it sets aside.

    Parameters
    ----------
    rows
        The events whose turn it is, in order.
    watermark
        No later event has a time before this; NO_TIME while it is not known.
    late
        The events of the piece that came late, as they came, whatever becomes of them; None where
        none did.
    invalid
        Those that cannot be used, with the reason in the first column; None where all can.
    correcting
        Those that belong before events that went on early, and correct what came of these; None
        where none does.
    met
        The watermark that each of the late ones met; None where it is that before the piece.
    links
        What each of several orders in a chain lets go, of which this is the last; empty where there
        is one.
    steps
        How the watermark moved; None where no event of the piece moved it by itself.
    """

    rows: pa.Table | RearrangedRows
    watermark: int
    late: pa.Table | None = None
    invalid: pa.Table | None = None
    correcting: pa.Table | None = None
    met: Integers | None = None
    links: tuple[ReleasedEvents, ...] = ()
    steps: WatermarkSteps | None = None

    @staticmethod
    def joined(given: Sequence[ReleasedEvents]) -> ReleasedEvents:
        """Return what is let go one after the other as one, where no early event is corrected."""
        if len(given) == 1:
            return given[0]

        def of(tables: list[pa.Table | None]) -> pa.Table | None:
            there = [table for table in tables if table is not None]
            return pa.concat_tables(there) if there else None

        rows = [as_table(one.rows) for one in given if one.rows.num_rows]
        late = [one for one in given if one.late is not None]
        met = [one.met for one in late if one.met is not None]
        return ReleasedEvents(
            rows[0] if len(rows) == 1 else pa.concat_tables(rows or [as_table(given[-1].rows)]),
            given[-1].watermark,
            of([one.late for one in given]),
            of([one.invalid for one in given]),
            met=np.concatenate(met) if met and len(met) == len(late) else None,
        )


@dataclass(frozen=True, slots=True)
class OrderCounters:
    """How it goes with the order of a stream, or of one of its sources.

    Parameters
    ----------
    slack
        How far the watermark stays behind the greatest time now, in units of time.
    buffered
        Events that wait for their turn.
    late, corrected
        Events that came late: those that are lost or set aside, and those that corrected what had
        come out.
    silent
        Sources that say nothing, so that the others do not wait for them any more.
    unawaited
        Events that went on although a silent source had not come so far.
    latency, longest_wait
        How long events waited for their turn on average, and at most, since the part that counts
        them was made or resumed. By the times of arrival where `arrival` names their column and
        there is one source, however pieces are cut. Else a piece is one moment, and the clock is
        that of the order: the greatest event time, in units of time; with `op.Sequence` and one
        source that of the host, in microseconds.
    """

    slack: int = 0
    buffered: int = 0
    late: int = 0
    silent: int = 0
    unawaited: int = 0
    corrected: int = 0
    latency: float = 0.0
    longest_wait: int = 0

    @staticmethod
    def joined(each: Sequence[OrderCounters]) -> OrderCounters:
        """Return those of several orders of the same events: all that wait, else the greatest."""
        greatest = OrderCounters(*map(max, zip(*map(astuple, each), strict=True)))
        return replace(greatest, buffered=sum(one.buffered for one in each))


@dataclass(frozen=True)
class AdmittedEvents:
    """Events of several sources that may go on, each in the order of its source.

    Parameters
    ----------
    rows, places
        A table that has them, and where they are in it, source after source; None where they are
        all of it.
    owners, ticks
        The number of the source of each, and its time.
    late
        Those that came late; None where none did.
    shifted
        Whether `ticks` are other times than those in the table.
    """

    rows: pa.Table
    places: Integers | None
    owners: Integers
    ticks: Integers
    late: pa.Table | None = None
    shifted: bool = False


class Order(SavedPart, ABC):
    """How the events of a stream come into the order of the query.

    Its decisions depend on the messages that it takes alone. A host says when events arrived, and
    when a time has come that the order asked for; the order has no clock, so a replay decides the
    same.
    """

    #: How many events that are not certain are kept at most where they go on early, and how many
    #: more may; None where nobody says so.
    memory: int | None = None
    room: int | None = None

    @property
    def kind(self) -> str:
        """What tells whether a saved state is that of an order of this kind."""
        return type(self).__name__

    @property
    @abstractmethod
    def buffered(self) -> int:
        """How many events wait for their turn."""

    @property
    @abstractmethod
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""

    @property
    def certain(self) -> int:
        """What lies before this time does not change any more; NO_TIME while nothing is known."""
        return self.watermark

    @property
    def slack(self) -> int:
        """How far the watermark stays behind the greatest time now: K; 0 where nobody knows."""
        return 0

    @property
    def alpha(self) -> float:
        """The part of K that events wait."""
        return 1.0

    @property
    def times_full(self) -> int:
        """How often events had to wait longer than that, as there was no room for them."""
        return 0

    @property
    def greatest(self) -> int:
        """The greatest time that events had; NO_TIME while nobody knows."""
        return self.watermark

    @property
    def now(self) -> int:
        """How far the clock has come by which it decides; NO_TIME while nobody knows."""
        return self.greatest

    @property
    def oldest(self) -> int:
        """What `now` was, at least, when events came that wait; where any do."""
        return self.watermark

    @property
    def silent(self) -> frozenset[str]:
        """The sources that nobody waits for because they say nothing."""
        return frozenset()

    @property
    def unawaited(self) -> int:
        """How many events went on although a silent source had not come so far."""
        return 0

    @property
    def holding(self) -> str | None:
        """The source that others wait for; None where there is one, or all have finished."""
        return None

    @property
    def ended(self) -> frozenset[str]:
        """The sources that send no more events, where there are several."""
        return frozenset()

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one of which too many events are held back must wait."""
        return True

    def waiting(self, source: str) -> int:
        """Return how many events of a source wait."""
        return self.buffered

    def held_back(self, source: str) -> int:
        """Return how many events of a source wait for other sources alone."""
        return 0

    def slack_of(self, source: str) -> int:
        """Return how far the watermark of a source stays behind its greatest time."""
        return self.slack

    def unawaited_of(self, source: str) -> int:
        """Return how many events went on although a source was silent and not so far."""
        return 0

    @property
    def unawaited_times(self) -> Mapping[str, tuple[int, int]]:
        """The first and the last time that went on without a source, when it was silent last."""
        return {}

    def watermark_of(self, source: str) -> int:
        """Return a time that no later event of a source lies before, unless it is late."""
        return self.watermark

    @property
    def timer(self) -> int | None:
        """When, by the clock of the host, it wants to be asked again; None where never."""
        return None

    @property
    def due(self) -> int | None:
        """When events go on that wait for missing ones, by the clock by which they arrive.

        None where none is missing. What it says of `timer` is enough where no column tells when
        events arrived.
        """
        return self.timer

    def take(self, stimulus: Stimulus) -> ReleasedEvents:
        """Take what happened; after an error nothing is taken."""
        match stimulus:
            case EventsArrived():
                return self.push(stimulus)
            case WatermarkArrived():
                return self.tell(stimulus.watermark, stimulus.source, stimulus.arrival)
            case TimerFired():
                return self.fire(stimulus.at)
            case SourceEnded():
                return self.finish(stimulus.source)
            case ClockExchange():
                return self.compare_clocks(stimulus)

    @abstractmethod
    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Take events; after an error nothing is taken."""

    @classmethod
    def push_all(
        cls, orders: Sequence[Order], events: EventsArrived, places: Integers, bounds: Integers
    ) -> AdmittedEvents | None:
        """Let several orders of this kind, one for each source, take events at once.

        Parameters
        ----------
        orders, events
            The orders, and the events of all.
        places, bounds
            Which events each one takes, as they came, and where those of each begin and end.

        Returns
        -------
        AdmittedEvents or None
            What each would release; None where each is to take its own by itself, as nothing is
            taken yet.
        """
        return None

    @abstractmethod
    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise; see `WatermarkArrived`."""

    def compare_clocks(self, exchange: ClockExchange) -> ReleasedEvents:
        """Take what tells how far the clock of a source is from that of reference."""
        raise DataError(
            "the clocks of sources count where each has an order of its own",
            hint=Hint(
                "open the query with sources, and with .disorder(op.InOrder()) or another",
                "name the sources, and write DISORDER NONE or another",
            ),
        )

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        return None

    @abstractmethod
    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Take the end of a source, or of all."""

    def fire(self, at: int) -> ReleasedEvents:
        """Take note that the clock of the host has come to a time; see `TimerFired`."""
        return self.tell(NO_TIME)


def quarantine_hint(disorder: BoundDisorder) -> str:
    """Say how invalid events are set aside in place of an error."""
    kind = type(disorder.value).__name__
    return Hint(
        f'set such events aside with disorder(op.{kind}(..., invalid="quarantine"))',
        "set such events aside with INVALID QUARANTINE behind the kind of DISORDER",
    )


def with_reasons(rows: pa.Table, reasons: list[str]) -> pa.Table:
    """Return invalid events with the reasons why they are."""
    return rows.add_column(0, pa.field(REASON, pa.string()), pa.array(reasons, pa.string()))


def with_flags(rows: pa.Table, name: str, some: Booleans) -> pa.Table:
    """Return events of which some are flagged, beside those that were before.

    Examples
    --------
    >>> rows = pa.table({"x": [1, 2, 3], "timed": [False, None, True]})
    >>> with_flags(rows, "timed", np.array([False, True, False]))["timed"].to_pylist()
    [False, True, True]
    """
    if not some.any():
        return rows
    index = rows.schema.get_field_index(name)
    column = pc.if_else(pa.array(some), pa.scalar(True), rows.column(index))
    return rows.set_column(index, rows.schema.field(index), column)
