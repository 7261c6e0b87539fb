"""The stage whose state is not saved: it saves savepoints, and is rebuilt from the log.

Its events come from a log that can be read again. What is saved of it is a savepoint of its
operator, and where in the log the events lie that this needs; who has lost it reads these, packs
them as they were, and gives each the number that it had.

The savepoint is the anchor. Where events come in order, a batch that is taken again gives the same
whatever the time, so the anchor stays for many batches: of each of these is saved where it lies in
the log alone, and who rebuilds the stage takes them again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.cell_input import TakenCells
from outpace.engine.codec.cell import Cell, CellKind
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.event import EVENT_ID
from outpace.engine.message import HostLoad, MatchesAcknowledged
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.identify import EventIds
from outpace.engine.packing import Packing
from outpace.engine.recover.log_places import (
    LogPiece,
    LogPlaces,
    PlacedEvents,
    joined_stretches,
)
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.engine.stage_parts import WholeStage
from outpace.engine.state import NATURAL, State, integer, integers, reading, require
from outpace.errors import DataError, StateError
from outpace.pattern.disorder import InOrder

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
#: From so many events of the log on since the anchor, or so many stretches of it, there is another
#: one, and with each batch where it takes no more bytes than these: a replay reads as many events
#: more at most, and those of one batch.
_SINCE: Final = 1 << 20
_STRETCHES: Final = 64
_SMALL: Final = 2048


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
        #: The savepoint that a replay begins with, and whether it is another one since the batch
        #: before.
        self.anchor, self.renewed = b"", False
        #: How many events came before the anchor, where those lie that it needs, and the batches
        #: since; None where these cannot be taken again, so that there has to be another anchor.
        self._at, self._anchored = 0, LogPlaces()
        self._since: list[PlacedEvents] | None = None
        assert spec.disorder is not None
        self._in_order = isinstance(spec.disorder.value, InOrder) and spec.sources is None
        #: The events that the last savepoint needs, and those that came since, with their numbers.
        self._events: list[pa.Table] = []
        #: How many events the replay took that it was rebuilt by; None where it was not, or long
        #: ago.
        self._replayed: int | None = None
        #: Whether nobody knows yet that the log gives the events that came.
        self._unknown = True

    def _operator(self, spec: OperatorSpec, number: int) -> RecoverableOperator:
        return RecoverableOperator(spec, number)

    def step(
        self, cells: Sequence[Cell], now: int = NO_TIME, load: HostLoad | None = None
    ) -> list[Cell]:
        """Take a batch, and note where it lies in the log."""
        before, plain = self._came, all(_says_all(cell) for cell in cells)
        given = super().step(cells, now, load)
        if self._since is not None and plain:
            stretches: tuple[LogStretch, ...] = ()
            for one in dict.fromkeys(one for cell in cells for one in cell.places):
                stretches = joined_stretches(stretches, (one,))
            self._since.append(PlacedEvents(before, self._came - before, (), stretches))
        else:
            self._since = None
        return given

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
        anchor = self._settle().keeping(self.part.needed, _SKIPPED).encode()
        since = self._since
        if since is not None:
            read = [one.stop - one.first for block in since for one in block.stretches]
            since = since if sum(read) < _SINCE and len(read) < _STRETCHES else None
        self.renewed = since is None or len(anchor) <= _SMALL
        if self.renewed:
            self.anchor, self._at = anchor, self._came
            # Blocks that follow each other are read as one.
            places = self._places
            self._anchored = LogPlaces(places.blocks) if self._by_source else places.joined()
            self._since = [] if self._in_order else None

    def _settle(self) -> Savepoint:
        """Take all matches that came out as kept, and return what is needed then."""
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
        self._savepoint = savepoint
        return savepoint

    def state(self) -> State:
        """Return which anchor it is, and where in the log what it needs lies, and what came since.

        The anchor is saved beside it.
        """
        assert self._savepoint is not None, "what came out is acknowledged before it is saved"
        since = self._since or []
        places = LogPlaces([*self._anchored.blocks, *since], self._places.reached)
        numbers = {"anchor": zlib.crc32(self.anchor), "since": len(since)}
        counts = {"counts": list(self._counts)} if self._counts else {}
        return State(numbers | counts, [_bytes(zlib.compress(places.state().encode()))])

    @property
    def soft(self) -> State | None:
        """The last savepoint and the events that it needs, for `recall`; None where it has none."""
        if not self._events:
            return None
        assert self._savepoint is not None, "what came out is acknowledged before it is saved"
        savepoint = State({}, [_bytes(self._savepoint.encode())])
        return State({}, self._events, {"places": self._places.state(), "savepoint": savepoint})

    def recall(self, saved: State, anchor: bytes, soft: State) -> None:
        """Stand where `state` was, with the anchor and with what `soft` was then."""
        self._read(saved, anchor)
        _, (events,) = soft.content(1)
        _, (savepoint_table,) = soft.part("savepoint").content(1)
        savepoint = Savepoint.decode(_read_bytes(savepoint_table))
        self.part.check(savepoint)
        require(savepoint.at == self._came, "other events have come")
        require(events.schema.equals(self._empty.schema), "events have other columns")
        (numbers,) = integers(events.select([_NUMBER.name]), **{_NUMBER.name: range(savepoint.at)})
        require((np.diff(numbers) > 0).all(), "events do not rise")
        self._places.restore(soft.part("places"), len(self._sources))
        self._stand(saved, savepoint, events)

    def rebuild(self, saved: State, anchor: bytes, packing: Packing, read: ReadLog) -> None:
        """Stand where `state` was, with the anchor and the events of the log."""
        savepoint = self._read(saved, anchor)
        reached, kept = self._places.reached, [self._empty]
        for block in self._anchored.blocks:
            for _ in self._read_block(block, packing, read):
                kept += [
                    rows.filter(pa.array(~savepoint.drops(rows.column(_NUMBER.name).to_numpy())))
                    for rows in self._events
                ]
                self._events = []
            self._check_again(block)
        events = pa.concat_tables(kept)
        self._places.blocks = [*self._anchored.blocks]
        self._stand(saved, savepoint, events)
        for block in self._since or ():
            pieces = (piece for stretch in block.stretches for piece in read(stretch))
            # What came out of it is where it belongs.
            super().step([cell for piece in pieces for cell in self._cells(packing, piece)])
            self._check_again(block)
        if self._since:
            self._settle()
        self._places.reached, self._unknown = reached, not self._came
        replayed = events.num_rows + self._came - self._at
        self._replayed = replayed if self._anchored.blocks or self._since else None

    def _check_again(self, block: PlacedEvents) -> None:
        """Refuse a log in which a block that was read again has other events."""
        if (found := self._came - block.number) != block.events:
            raise StateError(
                "the log has other events than those that were read from it",
                detail=f"{found:,} and not {block.events:,} of '{self._queries[0].name}', read "
                f"again from {_named(block.stretches)}",
                hint="start with a new checkpoint folder; keep the events of a log that a "
                "stream still needs",
            )

    def _read_block(self, block: PlacedEvents, packing: Packing, read: ReadLog) -> Iterator[None]:
        """Take the events of a block again, piece by piece where that makes no difference."""
        self._came = block.number
        self._ids.restore(_counted(block.counts or (block.number,)))
        pieces = (piece for stretch in block.stretches for piece in read(stretch))
        for group in [list(pieces)] if self._by_source else ([piece] for piece in pieces):
            packed = [own for piece in group for own in self._own(packing, piece)]
            self._note(packed)
            yield

    def _read(self, saved: State, anchor: bytes) -> Savepoint:
        """Take what `state` returned, of this query, and return the anchor."""
        header, (table,) = saved.content(1)
        require(header.get("anchor") == zlib.crc32(anchor), "it belongs to another savepoint")
        savepoint = Savepoint.decode(anchor)
        self.part.check(savepoint)
        places = _read_places(table, len(self._sources))
        kept = len(places.blocks) - integer(header, "since", range(len(places.blocks) + 1))
        since, known = places.blocks[kept:], LogPlaces(places.blocks[:kept])
        before = all(one.number + one.events <= savepoint.at for one in known.blocks)
        require(before, "its savepoint needs events that came behind it")
        self.anchor, self._at, self._places.reached = anchor, savepoint.at, places.reached
        self._anchored = known
        self._since = since if self._in_order else None
        self._came = since[-1].number + since[-1].events if since else savepoint.at
        return savepoint

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
        cells = self._cells(packing, piece)
        own = [one for one in cells if one.kind is CellKind.EVENTS and len(one.block)]
        return [(cell, self._arriving.read(cell)) for cell in own]

    def _cells(self, packing: Packing, piece: LogPiece) -> list[Cell]:
        """Return the cells of a piece that are its own, as they came."""
        return [
            replace(cell, places=(piece.stretch,) if cell.kind is CellKind.EVENTS else ())
            for cell in packing.pack(piece.rows)
            if cell.kind in self.takes and cell.instance == self._number
        ]


def first_needed(saved: State) -> dict[str, int]:
    """Return from which offsets on the parts of a log are needed by what `state` returned."""
    header, (places_table,) = saved.content(1)
    return _read_places(places_table, len(header.get("counts", []))).first


def _says_all(cell: Cell) -> bool:
    """Say whether the log says all that a cell does: events, or their times."""
    placed = cell.kind is CellKind.EVENTS and bool(cell.places)
    return (placed or cell.kind is CellKind.UNUSED) and cell.watermark == NO_TIME


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
