"""The stage whose state is not saved: it has savepoints, and reads events of a log again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.cell_input import TakenCells
from outpace.engine.codec.cell import Cell, CellKind
from outpace.engine.event import EVENT_ID
from outpace.engine.message import (
    MatchesAcknowledged,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.packing import Packing
from outpace.engine.recover.log_places import LogPiece, LogPlaces
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.engine.stage_parts import WholeStage
from outpace.engine.state import NATURAL, State, integer, integers, reading, require
from outpace.errors import StateError

#: The column with the numbers of events that an instance needs.
_NUMBER: Final = "__outpace_number"

#: Reads the rows of a log between two offsets, piece by piece.
ReadLog: TypeAlias = Callable[[int, int], Iterable[LogPiece]]


class ReplayedStage(WholeStage):
    """The whole operator, of which a savepoint is saved, and which is rebuilt by a replay.

    A host that keeps the output of a batch together with what is saved after it, or neither, calls
    `acknowledge` between the two, so that no replay gives a match again.
    """

    part: RecoverableOperator

    def __init__(self, spec: OperatorSpec, number: int) -> None:
        super().__init__(spec, number)
        self._number = number
        self._places = LogPlaces()
        #: The last savepoint; None where a batch came since, or none was made.
        self._savepoint: Savepoint | None = None
        #: The events that the last savepoint needs, and those that came since, with their numbers.
        self._events: list[pa.Table] = []
        #: How many events the replay took that it was rebuilt by; None where it was not, or long
        #: ago.
        self._replayed: int | None = None

    def _operator(self, spec: OperatorSpec, number: int) -> RecoverableOperator:
        return RecoverableOperator(spec, number)

    def _given(self, taken: TakenCells) -> list[Cell]:
        given, self._savepoint = super()._given(taken), None
        number = self.part.came - sum(rows.num_rows for _, rows in taken.logged)
        for cell, rows in taken.logged:
            self._places.add(number, rows.num_rows, cell.first, cell.stop)
            if rows.num_rows:
                self._events.append(self._numbered(rows, number))
            number += rows.num_rows
        if self._replayed is not None:
            self.counters = replace(self.counters, replays=1, replayed=self._replayed)
            self._replayed = None
        return given

    def acknowledge(self) -> None:
        """Take all matches that came out as kept, and drop the events that none needs any more."""
        part, places = self.part, self._places
        savepoint = savepoint_of(part.step(MatchesAcknowledged(part.last_match)))
        needed = part.needed
        if len(needed):
            places.trim(int(needed[0]))
            events = pa.concat_tables(self._events)
            numbers = events.column(_NUMBER).to_numpy()
            self._events = [events.take(pa.array(np.searchsorted(numbers, needed)))]
        else:
            places.clear()
            self._events = []
        self._savepoint = savepoint.keeping(needed)

    def state(self) -> State:
        """Return the savepoint, and where in the log the events begin that it needs."""
        assert self._savepoint is not None, "what came out is acknowledged before it is saved"
        places = self._places
        offset, number = places.first or (places.until, self.part.came)
        packed = np.frombuffer(self._savepoint.encode(), np.int8)
        table = pa.table({"savepoint": packed.astype(np.int64)})
        return State({"offset": offset, "number": number, "until": places.until}, [table])

    @property
    def soft(self) -> State | None:
        """The events that the last savepoint needs, for `recall`; None where it needs none."""
        if not self._events:
            return None
        return State({}, self._events, {"places": self._places.state()})

    def recall(self, saved: State, soft: State) -> None:
        """Stand where `state` was, with what `soft` was then."""
        savepoint = self._read(saved)
        _, (events,) = soft.content(1)
        columns = self._numbered(self.part.spec.schema.empty_table(), 0).schema
        require(events.schema.equals(columns), "events have other columns")
        (numbers,) = integers(events.select([_NUMBER]), **{_NUMBER: range(savepoint.at)})
        require((np.diff(numbers) > 0).all(), "events do not rise")
        self._places.restore(soft.part("places"))
        self._stand(savepoint, events)

    def rebuild(self, saved: State, packing: Packing, read: ReadLog) -> None:
        """Stand where `state` was, with the events of the log."""
        savepoint, header = self._read(saved), saved.numbers
        offset, number, until = (
            integer(header, name, NATURAL) for name in ("offset", "number", "until")
        )
        places = LogPlaces(offset)
        kept = [self._numbered(self.part.spec.schema.empty_table(), 0)]
        for piece in read(offset, until) if offset < until else ():
            own = self._own(packing, piece)
            places.add(number, own.num_rows, piece.first, piece.stop)
            wanted = ~savepoint.drops(np.arange(number, number + own.num_rows))
            kept.append(self._numbered(own, number).filter(pa.array(wanted)))
            number += own.num_rows
        if number != savepoint.at:
            raise StateError(
                "the log has other events than those that were read from it",
                detail=f"{number:,} and not {savepoint.at:,} of '{self._queries[0].name}' before "
                f"offset {until:,}, read again from offset {offset:,}",
                hint="start with a new checkpoint folder; keep the events of a log that a stream "
                "still needs",
            )
        places.until, self._places = until, places
        events = pa.concat_tables(kept)
        self._stand(savepoint, events)
        self._replayed = events.num_rows if offset < until else None

    def _read(self, saved: State) -> Savepoint:
        """Return the savepoint of what `state` returned, which is that of this query."""
        _, (table,) = saved.content(1)
        (packed,) = integers(table, savepoint=range(-128, 128))
        savepoint = Savepoint.decode(packed.astype(np.int8).tobytes())
        self.part.check(savepoint)
        return savepoint

    def _stand(self, savepoint: Savepoint, events: pa.Table) -> None:
        """Let the operator stand where a savepoint was made, with the events that it needs."""
        numbers = events.column(_NUMBER).to_numpy()
        ids = pa.array(self.part.intake.ids_at(numbers))
        rows = events.drop_columns([_NUMBER]).append_column(EVENT_ID, ids)
        with reading():
            self.part.rebuild(savepoint, rows, numbers)
        self._events = [events] if len(numbers) else []
        self._savepoint = savepoint

    def _numbered(self, rows: pa.Table, first: int) -> pa.Table:
        """Return events with their numbers, of which the first is known."""
        numbers = np.arange(first, first + rows.num_rows)
        return rows.append_column(pa.field(_NUMBER, pa.int64()), pa.array(numbers))

    def _own(self, packing: Packing, piece: LogPiece) -> pa.Table:
        """Return the events of a piece that are its own, as they came."""
        cells = packing.pack(piece.rows)
        own = [
            self._arriving.read(cell)
            for cell in cells
            if cell.kind is CellKind.EVENTS and cell.instance == self._number
        ]
        return pa.concat_tables([self.part.spec.schema.empty_table(), *own])
