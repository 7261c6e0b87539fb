"""The stage whose state is not saved: it saves savepoints, and is rebuilt from the log.

Its events come from a log that can be read again. What is saved of it is the savepoint of its
operator, and where in the log the events lie that this needs; who has lost it reads these, packs
them as they were, and gives each the number that it had.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.cell_input import TakenCells
from outpace.engine.codec.cell import Cell, CellKind
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.event import EVENT_ID
from outpace.engine.message import MatchesAcknowledged
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.identify import EventIds
from outpace.engine.packing import Packing
from outpace.engine.recover.log_places import LogPiece, LogPlaces, PlacedEvents
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.engine.stage_parts import WholeStage
from outpace.engine.state import NATURAL, State, integers, reading, require
from outpace.errors import DataError, StateError

#: Reads a stretch of a log again, piece by piece.
ReadLog: TypeAlias = Callable[[LogStretch], Iterable[LogPiece]]

#: Events as they were packed.
Packed: TypeAlias = tuple[Cell, pa.Table]

#: The column with the numbers of events that an instance needs.
_NUMBER: Final = pa.field("__outpace_number", pa.int64())

#: So many intervals are skipped by who reads the log again: the events of shorter ones take less
#: time to be matched once more than their numbers take room in each savepoint.
_SKIPPED: Final = 32
#: So many events are compared with what the log gives when it is read again.
_COMPARED: Final = 100


class ReplayedStage(WholeStage):
    """The whole operator, of which a savepoint is saved, and which is rebuilt by a replay.

    A host that keeps the output of a batch together with what is saved after it, or neither, calls
    `acknowledge` between the two, so that no replay gives a match again.
    """

    part: RecoverableOperator

    def __init__(self, spec: OperatorSpec, number: int) -> None:
        super().__init__(spec, number)
        self._number = number
        #: Whether the events of a batch are taken source by source.
        self._by_source = self._arriving.by_source
        self._sources = spec.sources or ()
        #: How many events came, and which ids the next ones have.
        self._came, self._ids = 0, EventIds(spec.sources, number)
        self._places = LogPlaces()
        #: The last savepoint; None where a batch came since, or none was made.
        self._savepoint: Savepoint | None = None
        #: The events that the last savepoint needs, and those that came since, with their numbers.
        self._events: list[pa.Table] = []
        #: How many events the replay took that it was rebuilt by; None where it was not, or long
        #: ago.
        self._replayed: int | None = None
        #: Whether nobody knows yet that the log gives the events that came.
        self._unknown = True

    def _operator(self, spec: OperatorSpec, number: int) -> RecoverableOperator:
        return RecoverableOperator(spec, number)

    def _given(self, taken: TakenCells) -> list[Cell]:
        given, self._savepoint = super()._given(taken), None
        self._note(taken.logged)
        places = [one for cell, _ in taken.logged for one in cell.places]
        if places:
            self._places.reached = dict(sorted((one.part, one.stop) for one in places))
        if self._replayed is not None:
            self.counters = replace(self.counters, replays=1, replayed=self._replayed)
            self._replayed = None
        return given

    def check(self, packing: Packing, read: ReadLog) -> None:
        """Refuse a log that does not give the events that came; the first ones tell."""
        block = next((one for one in self._places.blocks if one.events), None)
        if not self._unknown or block is None:
            return
        self._unknown = False
        again = ReplayedStage(self.part.spec, self._number)
        for _ in again._read_block(block, packing, read):
            pass
        if _shown(again._events, again._came) != _shown(self._events, block.events):
            raise DataError(
                "the log does not give the events that came from it when it is read again",
                detail=f"of '{self._queries[0].name}', in {_named(block.stretches)}",
                hint="match a stream as its source gives it: what computes columns of it goes into "
                "the query",
            )

    def acknowledge(self) -> None:
        """Take all matches that came out as kept, and drop the events that none needs any more."""
        part = self.part
        savepoint = savepoint_of(part.step(MatchesAcknowledged(part.last_match)))
        needed = part.needed
        self._places.keep(needed)
        if len(needed):
            events = pa.concat_tables(self._events)
            numbers = events.column(_NUMBER.name).to_numpy()
            self._events = [events.take(pa.array(np.searchsorted(numbers, needed)))]
        else:
            self._events = []
        self._savepoint = savepoint.keeping(needed, _SKIPPED)

    def state(self) -> State:
        """Return the savepoint, and where in the log the events lie that it needs."""
        assert self._savepoint is not None, "what came out is acknowledged before it is saved"
        places = self._places if self._by_source else self._places.joined()
        tables = [_bytes(self._savepoint.encode()), _bytes(zlib.compress(places.state().encode()))]
        counts = self._counts
        return State({"counts": list(counts)} if counts else {}, tables)

    @property
    def soft(self) -> State | None:
        """The events that the last savepoint needs, for `recall`; None where it needs none."""
        if not self._events:
            return None
        return State({}, self._events, {"places": self._places.state()})

    def recall(self, saved: State, soft: State) -> None:
        """Stand where `state` was, with what `soft` was then."""
        savepoint, _ = self._read(saved)
        _, (events,) = soft.content(1)
        require(events.schema.equals(self._empty.schema), "events have other columns")
        (numbers,) = integers(events.select([_NUMBER.name]), **{_NUMBER.name: range(savepoint.at)})
        require((np.diff(numbers) > 0).all(), "events do not rise")
        self._places.restore(soft.part("places"), len(self._sources))
        self._stand(saved, savepoint, events)

    def rebuild(self, saved: State, packing: Packing, read: ReadLog) -> None:
        """Stand where `state` was, with the events of the log."""
        savepoint, places = self._read(saved)
        self._places.reached, kept = places.reached, [self._empty]
        for block in places.blocks:
            for _ in self._read_block(block, packing, read):
                kept += [
                    rows.filter(pa.array(~savepoint.drops(rows.column(_NUMBER.name).to_numpy())))
                    for rows in self._events
                ]
                self._events = []
            if (found := self._came - block.number) != block.events:
                raise StateError(
                    "the log has other events than those that were read from it",
                    detail=f"{found:,} and not {block.events:,} of '{self._queries[0].name}', read "
                    f"again from {_named(block.stretches)}",
                    hint="start with a new checkpoint folder; keep the events of a log that a "
                    "stream still needs",
                )
        events = pa.concat_tables(kept)
        self._stand(saved, savepoint, events)
        self._replayed = events.num_rows if places.blocks else None

    def _read_block(self, block: PlacedEvents, packing: Packing, read: ReadLog) -> Iterator[None]:
        """Take the events of a block again, piece by piece where that makes no difference."""
        self._came = block.number
        self._ids.restore(_counted(block.counts or (block.number,)))
        pieces = (piece for stretch in block.stretches for piece in read(stretch))
        for group in [list(pieces)] if self._by_source else ([piece] for piece in pieces):
            packed = [own for piece in group for own in self._own(packing, piece)]
            self._note(packed)
            yield

    def _read(self, saved: State) -> tuple[Savepoint, LogPlaces]:
        """Return the savepoint of what `state` returned, which is that of this query."""
        _, (savepoint_table, places_table) = saved.content(2)
        savepoint = Savepoint.decode(_read_bytes(savepoint_table))
        self.part.check(savepoint)
        return savepoint, _read_places(places_table, len(self._sources))

    def _stand(self, saved: State, savepoint: Savepoint, events: pa.Table) -> None:
        """Let the operator stand where a savepoint was made, with the events that it needs."""
        numbers = events.column(_NUMBER.name).to_numpy()
        with reading():
            self.part.rebuild(savepoint, events.drop_columns([_NUMBER.name]), numbers)
        self._came = savepoint.at
        self._ids.restore(_counted(saved.numbers.get("counts", [savepoint.at])))
        self._events = [events] if len(numbers) else []
        self._savepoint, self._unknown = savepoint, not savepoint.at

    @property
    def _counts(self) -> tuple[int, ...]:
        """How many events each of several sources has sent."""
        return tuple(self._ids.counts.values()) if self._sources else ()

    @property
    def _empty(self) -> pa.Table:
        schema = self.part.spec.schema
        return pa.schema([*schema, EVENT_ID, _NUMBER]).empty_table()

    def _note(self, packed: Sequence[Packed]) -> None:
        """Note events that came next, and where they lie."""
        together = [packed] if self._by_source else [[one] for one in packed]
        for block in filter(None, together):
            before, counts = self._came, self._counts
            # The cells of several sources tell of the same piece.
            stretches = dict.fromkeys(one for cell, _ in block for one in cell.places)
            for cell, rows in sorted(block, key=lambda one: one[0].source):
                if rows.num_rows:
                    self._take(rows, self._sources[cell.source] if self._by_source else None)
            if self._came > before:
                self._places.add(
                    PlacedEvents(before, self._came - before, counts, tuple(stretches))
                )

    def _take(self, rows: pa.Table, source: str | None) -> None:
        """Take the next events, with the ids and the numbers that they have."""
        numbers = np.arange(self._came, self._came + rows.num_rows)
        identified = rows.append_column(EVENT_ID, pa.array(self._ids.next(rows, source)))
        self._events.append(identified.append_column(_NUMBER, pa.array(numbers)))
        self._ids.accept(source, rows)
        self._came += rows.num_rows

    def _own(self, packing: Packing, piece: LogPiece) -> list[Packed]:
        """Return the events of a piece that are its own, as they came."""
        cells = (
            replace(cell, places=(piece.stretch,))
            for cell in packing.pack(piece.rows)
            if cell.kind is CellKind.EVENTS and cell.instance == self._number and len(cell.block)
        )
        return [(cell, self._arriving.read(cell)) for cell in cells]


def first_needed(saved: State) -> dict[str, int]:
    """Return from which offsets on the parts of a log are needed by what `state` returned."""
    header, (_, places_table) = saved.content(2)
    return _read_places(places_table, len(header.get("counts", []))).first


def _read_places(table: pa.Table, sources: int) -> LogPlaces:
    """Return where events lie in the log, of an operator of so many sources."""
    with reading():
        state = State.decode(zlib.decompress(_read_bytes(table)))
    places = LogPlaces()
    places.restore(state, sources)
    return places


def _bytes(data: bytes) -> pa.Table:
    """Return bytes as a table of a state."""
    return pa.table({"byte": np.frombuffer(data, np.int8).astype(np.int64)})


def _read_bytes(table: pa.Table) -> bytes:
    (packed,) = integers(table, byte=range(-128, 128))
    return packed.astype(np.int8).tobytes()


def _counted(counts: Sequence[int]) -> State:
    """Return what `EventIds` restores."""
    require(all(type(one) is int and one in NATURAL for one in counts), "counts are no numbers")
    return State({}, [pa.table({"count": np.array(counts, np.int64)})])


def _shown(events: Sequence[pa.Table], size: int) -> str:
    """Return the first of so many events as text, in which NaN is like NaN."""
    shown = pa.concat_tables(events).slice(0, min(size, _COMPARED)) if events else ()
    return f"{size} {shown and shown.to_pylist()}"


def _named(stretches: Sequence[LogStretch]) -> str:
    """Name the first and the last of some stretches, for errors."""
    texts = [
        f"{part + ', ' if part else ''}offset {first:,} to {stop:,}"
        for part, first, stop in (stretches[0], stretches[-1])
    ]
    return texts[0] if len(stretches) == 1 else f"{texts[0]} up to {texts[1]}"
