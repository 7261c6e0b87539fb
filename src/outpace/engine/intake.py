"""The intake: how events come in, for the front of a query, or for those of several.

    stimulus ──► columns checked ──► ids ──► order ──► events whose turn it is
                                              └──────► late ones, ones that correct, invalid ones

Memory: that of the order, and of the waits that it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.event import EVENT_ID
from outpace.engine.message import Aside, EventsArrived, SetAside, SourceEnded, Stimulus
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import (
    Order,
    OrderCounters,
    ReleasedEvents,
    quarantine_hint,
    with_reasons,
)
from outpace.engine.order.drift import ClockReading
from outpace.engine.order.identify import EventIds
from outpace.engine.order.in_order import OrderedInput
from outpace.engine.order.source_merge import CAPACITY
from outpace.engine.order.waits import ArrivalWaits, JoinedWaits, Waits
from outpace.engine.rows.permutation import RearrangedRows
from outpace.engine.rows.times import as_integers
from outpace.engine.state import NATURAL, SavedPart, State, integer, require
from outpace.errors import BindError, DataError, missing_column, other_type
from outpace.pattern.bind.disorder import SOURCE, BoundDisorder, bind_disorder
from outpace.pattern.disorder import InOrder, Invalid, Punctuation, Speculative

_UNBOUNDED: Final = 1 << 62


class Intake(SavedPart):
    """Takes what happens, and returns the events whose turn it is.

    Parameters
    ----------
    spec
        The operator.
    place
        Which one it is, where each of several has events of its own.
    order
        What brings events into order; by default that of the operator.

    Attributes
    ----------
    order
        What brings events into order.
    waits
        How long events wait for their turn; nobody counts it where all come in order.
    """

    CHANGED = ("_ids", "waits")
    SAME: ClassVar = {"order": ("_ordering", "events that were brought into order in another way")}
    NUMBERS: ClassVar = {"corrected": ("_corrected", NATURAL)}
    PARTS: ClassVar = {"order": "order"}

    def __init__(self, spec: OperatorSpec, place: int = 0, order: Order | None = None) -> None:
        self._spec = spec
        self.order = _make_order(spec) if order is None else order
        self._ids = EventIds(spec.sources if spec.identified else None, place)
        self.waits = _make_waits(spec)
        #: How many events came late, by source, and how many corrected what had come out.
        self._late: Counter[str | None] = Counter()
        self._corrected = 0
        #: Whether the events are the matches of another stream, which tells the time.
        self._follows = False

    @property
    def in_order(self) -> bool:
        """Whether events pass as they come, and count once their instance has answered."""
        return isinstance(self.order, OrderedInput)

    def accept(self) -> None:
        """Let events count that passed as they came."""
        if isinstance(self.order, OrderedInput):
            self.order.accept()

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        return self.order.certain

    @property
    def passed(self) -> int:
        """The time that has passed with rows or by a promise; NO_TIME where nobody knows."""
        order = self.order
        return order.latest if isinstance(order, OrderedInput) else order.watermark

    def watermark_of(self, source: str | None) -> int:
        """Return the time before which an event of a source, or of the only one, is late."""
        return self.watermark if source is None else self.order.watermark_of(source)

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""
        return self.order.timer

    @property
    def holding(self) -> str | None:
        """The source that the others wait for; None where there is one, or all have finished."""
        return self.order.holding

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        return self.order.clock_of(source)

    @property
    def unawaited_times(self) -> Mapping[str, tuple[int, int]]:
        """The first and the last time that went on without a source, when it was silent last."""
        return self.order.unawaited_times

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one of which too many events are held back must wait."""
        return self.order.wants(source)

    def counters(self, source: str | None = None) -> OrderCounters:
        """Return how it goes with the order of all events, or of those of a source."""
        if source is None or self._spec.sources is None:
            counters, late = self.waits.counters(self.order), sum(self._late.values())
            return replace(counters, late=late, corrected=self._corrected)
        return replace(self.waits.counters(self.order, source), late=self._late.get(source, 0))

    def ids_of(self, events: EventsArrived) -> Integers:
        """Return the ids that events will have which come next and bring none."""
        return self._ids.next(events.rows, events.source)

    def ids_at(self, numbers: Integers) -> Integers:
        """Return the ids that events of the only source have, by their numbers."""
        return self._ids.at(numbers)

    @property
    def came(self) -> dict[str | None, int]:
        """How many events each source has sent, or the only one: None; where they have ids."""
        return self._ids.counts

    def take(self, stimulus: Stimulus) -> ReleasedEvents:
        """Take what happened; after an error in the rows nothing is taken.

        Late events that come within the horizon correct what came out.
        """
        named = getattr(stimulus, "source", None)
        if named is not None and self._spec.sources is None:
            raise DataError(
                f"there is no source '{named}', as the stream has no sources",
                hint="name all sources when the operator is made",
            )
        before, source = self.order.watermark, None
        self.waits.begin(self.order)
        if isinstance(stimulus, EventsArrived):
            released, source = self._arrive(stimulus), stimulus.source
        else:
            released = self.order.take(stimulus)
        if not self.in_order:
            last = isinstance(stimulus, SourceEnded) and stimulus.source is None
            arrived = stimulus.rows if isinstance(stimulus, EventsArrived) else None
            self.waits.note(self.order, released, arrived, last=last)
            if self._spec.event_driven:
                released = replace(released, watermark=self._last_time(released.rows))
        if released.late is not None:
            if self._spec.horizon is not None:
                met = before if released.met is None else released.met
                released = self._corrections(released, released.late, met - self._spec.horizon)
            assert released.late is not None
            self._count_late(released.late, source)
        if released.correcting is not None:
            self._corrected += released.correcting.num_rows
        return released

    def aside(self, released: ReleasedEvents) -> list[SetAside]:
        """Return the events that take no part, as they came."""
        found = [(Aside.LATE, released.late), (Aside.INVALID, released.invalid)]
        name, flag = self._spec.query.name, self._spec.flag
        added = [EVENT_ID.name] * self._spec.identified + ([] if flag is None else [flag.name])
        return [
            SetAside(name, kind, rows.drop_columns(added))
            for kind, rows in found
            if rows is not None and rows.num_rows
        ]

    def _corrections(
        self, released: ReleasedEvents, late: pa.Table, border: int | Integers
    ) -> ReleasedEvents:
        """Part late events in those that are too late, and those that correct what came out.

        The border is that which each met, so a piece is as good as its events one by one.
        """
        assert self._spec.disorder is not None
        over = as_integers(late.column(self._spec.disorder.time)) < border
        correcting = late.filter(pa.array(~over))
        if self._spec.useful is not None:
            correcting = correcting.filter(pa.array(self._spec.useful.used(correcting)))
        return replace(released, late=late.filter(pa.array(over)), correcting=correcting)

    def _last_time(self, rows: pa.Table | RearrangedRows) -> int:
        """Return the time of the last of some events, where somebody asks for it."""
        time = self._spec.bound.time
        if self._spec.reach is None or time is None or not rows.num_rows:
            return int(NO_TIME)
        return int(as_integers(rows.column(time).slice(rows.num_rows - 1))[0])

    def _count_late(self, rows: pa.Table, source: str | None) -> None:
        """Count late events by source, where somebody says who sent them."""
        counts = Counter({source: rows.num_rows})
        if source is None and self._spec.sources is not None and SOURCE in rows.column_names:
            counts = Counter(rows.column(SOURCE).cast(pa.string()).to_pylist())
        self._late = Counter(self._late) + counts

    def _arrive(self, message: EventsArrived) -> ReleasedEvents:
        """Let the order take events, with their ids."""
        spec, source = self._spec, message.source
        rows = self._flagged(self._fitted(message.rows))
        before = self.order, self._follows
        given = spec.disorder is not None or spec.sources is not None or not spec.checked
        if (message.watermark != NO_TIME or self._follows) and not given:
            self._check_following(rows)
        if spec.identified and rows.schema.get_field_index(EVENT_ID.name) < 0:
            rows = self._ids.give(rows, source)
        try:
            arrived, unknown = self._arrived(rows)
            if arrived is not message.rows:
                message = replace(message, rows=arrived)
            released = self.order.push(message)
        except BaseException:
            self.order, self._follows = before
            raise
        if spec.identified:
            self._ids.accept(source, rows)
        if unknown is not None:
            both = [unknown, *([] if released.invalid is None else [released.invalid])]
            released = replace(released, invalid=pa.concat_tables(both))
        return released

    def _arrived(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return events that say when they arrived, where they are to, and others with the reason.

        Raises
        ------
        DataError
            An event does not say it, and such are not to be set aside.
        """
        disorder = self._spec.disorder
        name = None if disorder is None else disorder["arrival"]
        if disorder is None or name is None or not (column := rows.column(name)).null_count:
            return rows, None
        reason = f"'{name}' is NULL, so nobody knows when the event arrived"
        missing = column.is_null()
        if disorder.invalid is Invalid.FAIL:
            row = missing.to_pylist().index(True)
            raise DataError(
                reason,
                detail=f"row {row} of a piece of {rows.num_rows}, column '{name}'",
                hint=quarantine_hint(disorder),
            )
        without = rows.filter(missing)
        return rows.filter(column.is_valid()), with_reasons(without, [reason] * len(without))

    def _follow(self) -> None:
        """Take the matches of another stream from now on, whose watermarks tell the time."""
        bound, before = self._spec.bound, self.order
        disorder = bind_disorder(self._spec.query.disorder(Punctuation()), bound.schema)
        self.order = make_order(bound, disorder, self._spec.arriving)
        self._follows = True
        if isinstance(before, OrderedInput):
            self.order.tell(before.latest)

    def _check_following(self, matches: pa.Table) -> None:
        """Refuse events, matches of another stream or others, before the time that has passed."""
        time, passed = self._spec.bound.order_by[0], self.passed
        times = as_integers(matches.column(time).drop_null())
        if len(times) and times.min() < passed:
            raise DataError(
                f"matches of another stream come before rows that were already taken: "
                f"{time} is {times.min()}, after {passed}",
                hint="push the matches of one stream, each once and in the order in which they "
                "came; for several streams open with sources, or use .disorder(op.KSlack(...))",
            )
        if not self._follows:
            self._follow()

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the stream, or refuse those that have not all of them.

        Tables may differ in the order of columns, and in what is said beside their types.
        """
        spec, schema = self._spec, rows.schema
        known = spec.arriving if spec.brings_ids else spec.schema
        if spec.brings_ids and spec.flag is not None:
            known = known.remove(known.get_field_index(spec.flag.name))
        if schema.equals(known, check_metadata=True):
            return rows
        for field in spec.events if spec.disorder is None else spec.schema:
            if field == EVENT_ID:
                continue
            index = schema.get_field_index(field.name)
            if index < 0:
                raise missing_column(field.name, schema.names)
            found = schema.field(index).type
            if found != field.type:
                raise other_type(field.name, found, field.type)
        # A column that nobody reads may have any type, and is left out.
        there = [field for field in known if _has(schema, field)]
        if not there:
            return rows  # Nothing but their number counts.
        columns = [rows.column(field.name) for field in there]
        return pa.Table.from_arrays(columns, schema=pa.schema(there))

    def _flagged(self, rows: pa.Table) -> pa.Table:
        """Return rows, none of which a flag says anything of, where they do not bring it."""
        flag = self._spec.flag
        if flag is None:
            return rows
        ids = rows.schema.get_field_index(EVENT_ID.name)
        column = pa.array(np.zeros(rows.num_rows, np.bool_))
        return rows.add_column(rows.num_columns if ids < 0 else ids, flag, column)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        ids = {"ids": self._ids.state()} if self._spec.identified else {}
        numbers = {"follows": self._follows, "late": [*map(list, self._late.items())]}
        return super().state().plus(State(numbers, parts=ids))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        if state.numbers.get("follows") is True:
            self._follow()
        super().restore(state)
        self._late = Counter(dict(_late_counts(state.numbers.get("late"), self._spec.sources)))
        if self._spec.identified:
            self._ids.restore(state.part("ids"))

    @property
    def _ordering(self) -> str:
        """How events are brought into order, with all settings."""
        disorder = self._spec.disorder
        return self.order.kind if disorder is None else f"{self.order.kind} {disorder.given}"


@dataclass(frozen=True)
class JoinedIntakes:
    """Several intakes of the same events, asked as one."""

    each: Sequence[Intake]

    @property
    def watermark(self) -> int:
        """No later event has a time before this, in any order; NO_TIME while one does not know."""
        return min((one.watermark for one in self.each), default=int(NO_TIME))

    @property
    def waits(self) -> JoinedWaits:
        """How long events wait for their turn."""
        return JoinedWaits([one.waits for one in self.each])

    @property
    def holding(self) -> str | None:
        """The source that others wait for; None where there is one, or all have finished."""
        found = (one.holding for one in self.each)
        return next((one for one in found if one is not None), None)

    def clock_of(self, source: str) -> ClockReading | None:
        """Return what is known of the clock of a source; None where nothing is."""
        found = (one.clock_of(source) for one in self.each)
        return next((one for one in found if one is not None), None)

    @property
    def unawaited_times(self) -> Mapping[str, tuple[int, int]]:
        """The first and the last time that went on without a source, in any of the orders."""
        spans: dict[str, tuple[int, int]] = {}
        for one in self.each:
            for source, (first, last) in one.unawaited_times.items():
                known = spans.get(source, (first, last))
                spans[source] = min(first, known[0]), max(last, known[1])
        return spans

    def wants(self, source: str) -> bool:
        """Say whether a source may go on; one of which too many events are held back must wait."""
        return all(one.wants(source) for one in self.each)

    def counters(self, source: str | None = None) -> OrderCounters:
        """Return how it goes with the order of all events, or of those of a source.

        Those that wait count in each, and else the greatest counts.
        """
        each = [one.counters(source) for one in self.each]
        return OrderCounters.joined(each) if each else OrderCounters()


def _late_counts(saved: object, sources: Sequence[str] | None) -> Iterator[tuple[str | None, int]]:
    """Yield how many events came late, by source, as it was saved."""
    require(isinstance(saved, list), "nobody knows how many events came late")
    assert isinstance(saved, list)
    for one in saved:
        require(isinstance(one, list) and len(one) == 2, "nobody knows whose events came late")
        source, count = one
        require(source is None or source in (sources or ()), "a source is unknown")
        yield source, integer({"late": count}, "late", NATURAL)


def _has(schema: pa.Schema, field: pa.Field) -> bool:
    """Say whether a schema has a column of a name and a type."""
    index = schema.get_field_index(field.name)
    return index >= 0 and bool(schema.field(index).type == field.type)


def _one_by_one(disorder: BoundDisorder | None) -> BoundDisorder | None:
    """Return a disorder that each event counts for by itself, however pieces are cut.

    Where no column says when events arrived, their ids, which rise, stand for it.
    """
    if disorder is None or disorder["arrival"] is not None:
        return disorder
    settings = {**dict(disorder.settings), "arrival": EVENT_ID.name}
    return replace(disorder, settings=tuple(settings.items()))


def _make_waits(spec: OperatorSpec) -> Waits:
    """Return what counts waits: by a column where each event says when it arrived."""
    disorder = spec.disorder
    if disorder is None or spec.sources is not None or disorder["arrival"] is None:
        return Waits(len(spec.sources or ()))
    # Nothing waits there, or not until its turn is certain.
    early = isinstance(disorder.value, (InOrder, Speculative))
    return Waits() if early else ArrivalWaits(disorder)


def _make_order(spec: OperatorSpec) -> Order:
    # A complete table is in order, whatever the query says: instances that share it have it so.
    checked = spec.checked and spec.instances is None
    if checked and spec.disorder is None and spec.query.order_of_arrival is not None:
        raise BindError(
            "the query says how far its events are out of order, and the operator takes them in"
            " order",
            where=f"query '{spec.query.name}': disorder",
            hint="give the operator disorder=bind_disorder(query, schema), or checked=False where"
            " its events are in order",
        )
    if spec.sources is not None or spec.disorder is not None:
        disorder, capacity = spec.disorder, CAPACITY
        if spec.event_driven:
            disorder, capacity = _one_by_one(disorder), _UNBOUNDED
        return make_order(
            spec.bound,
            disorder,
            spec.arriving,
            spec.sources,
            spec.useful,
            sequence=spec.sequence,
            capacity=capacity,
        )
    keys = (
        ()
        if spec.windows is not None and spec.query.windows is not None
        else spec.bound.partition_by
    )
    tells_time = spec.reach is not None and spec.checked
    return OrderedInput(
        spec.bound,
        spec.arriving,
        keys,
        checked=spec.checked,
        tells_time=tells_time,
        read=spec.time,
    )
