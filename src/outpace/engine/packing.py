"""Packing: the rows of a batch become cells of events, one for each instance of the first stage.

Every instance gets a cell for every piece of rows, with the times of all of them, so that each
knows how far time has come although it has only the events of its own keys. Where several sources
send the rows, each has cells of its own, as time comes by source, unless one instance has them all.
Of rows that no step can use only the times go on, with the values that the order weighs, to one
instance, which counts those that are late; where sources or times of arrival decide, these columns
do, too. Rows without a time are refused, or set aside, and so are those of an unknown source. Rows
that are exchanges with the clock of a source, or heartbeats, go to every instance. Where the order
needs the events of all keys it needs those without a time, too: one with a sequence number is no
gap.

Blocks of rows are those of `codec.pack`: packing takes time linear in the rows and memory for two
copies of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import NO_TIME, Booleans, Integers
from outpace.engine.codec.block import block_cells, narrow_rows
from outpace.engine.codec.cell import Cell, CellKind, Counters, write_times
from outpace.engine.codec.pack import Packer, pack
from outpace.engine.codec.table import write_table
from outpace.engine.group_spec import named_rows
from outpace.engine.match.bits import BitTask
from outpace.engine.order.clock import spans_of, weights_of
from outpace.engine.order.contract import REASON, quarantine_hint
from outpace.engine.order.senders import owners_of, stray_reason
from outpace.engine.rows.partition import one_array
from outpace.engine.rows.times import as_integers, invalid_times, reason_of
from outpace.errors import DataError
from outpace.pattern.bind.disorder import CLOCK, CLOCK_TIMES, SOURCE, BoundDisorder
from outpace.pattern.disorder import Invalid


@dataclass(frozen=True)
class Packing:
    """How the rows of a query are packed.

    Parameters
    ----------
    schema
        The input's columns.
    columns
        Those that travel, columns of bits among them.
    keys
        The key columns.
    instances
        How many instances the first stage has.
    bits
        The query that reads bits; None where it reads none.
    drop
        Whether rows without any bit are left out.
    deciding_columns
        The columns that these tell, where their times do not say all: by which source they were
        sent, when they arrived.
    disorder
        The column of event time, whether that says what time it is or who sends the rows does, how
        far apart times are told apart, and whether rows that cannot be used are set aside.
    sources
        The identifiers of several sources, one of which each row names; None where there is one.
    whole
        Whether one instance has all rows, and looks at their times itself, as it does where the
        disorder is not divisible.
    clocks
        Whether rows with a `clock` are exchanges with the clock of their source.
    unread
        The column with the text of a record that its reader could not read; None where there is
        none.
    heartbeats
        The column that makes a row a heartbeat of its source, and no event, where it is not NULL.
    queries
        The names of several queries, each of which sets aside what cannot be used; empty for one.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    instances: int
    bits: BitTask | None
    drop: bool
    disorder: BoundDisorder
    sources: tuple[str, ...] | None = None
    whole: bool = False
    clocks: bool = False
    deciding_columns: tuple[str, ...] = ()
    unread: str | None = None
    heartbeats: str | None = None
    queries: tuple[str, ...] = ()

    @property
    def mixed(self) -> bool:
        """Whether the events of all sources travel together, and a column says whose they are."""
        return self.sources is not None and not self._divided

    @property
    def rows(self) -> pa.Schema:
        """The columns of rows that come, and of bits that they may bring."""
        return self.schema if self.bits is None else self.bits.task.bound.schema

    @property
    def reads(self) -> pa.Schema:
        """The input's columns that packing needs; the others may be missing."""
        names = {*self.columns, *self.keys, self.disorder.time, self.unread}
        if self.bits is not None:
            names.update(self.bits.reads)
        if self.sources is not None:
            names.add(SOURCE)
        if self.clocks:
            names.add(CLOCK)
        if self.heartbeats is not None:
            names.add(self.heartbeats)
        whole = self.disorder.invalid is Invalid.QUARANTINE
        return pa.schema([field for field in self.schema if whole or field.name in names])

    def pack(self, table: pa.Table, watermark: int = NO_TIME) -> list[Cell]:
        """Pack rows; columns of bits are computed where the table has none.

        Parameters
        ----------
        table
            The rows.
        watermark
            What is promised of later rows, if anything, of whatever source.
        """
        good, invalid = self._without_invalid(table)
        exchanges, clocks = good.slice(0, 0), self._clocked(good)
        if clocks.any():
            exchanges, good = good.filter(pa.array(clocks)), good.filter(pa.array(~clocks))
        beat_rows, beats = good.slice(0, 0), self._beats(good)
        if beats.any():
            beat_rows, good = good.filter(pa.array(beats)), good.filter(pa.array(~beats))
        times = np.zeros(good.num_rows, np.int64)
        if self._tells_time or self.drop:
            times = as_integers(one_array(good.column(self.disorder.time)))
        bits = None if self.bits is None else replace(self.bits, drop_unused=self.drop)
        packer = Packer(self.keys, self.columns, self.instances, bits)
        (columns, used), bucket = packer.computed(good), packer.buckets(good)
        arrival = self.disorder["arrival"]
        if used is not None and arrival in self.deciding_columns:
            # One that does not say when it arrived is invalid, and set aside as it is.
            used |= _flags(pc.is_null(good.column(arrival)))
        senders, buckets = [(-1, times, used)], self.instances
        name = self.disorder.weighed
        weighed = good.column(name) if name is not None and self.drop else None
        if self.sources is not None and not self.mixed:
            owners = self._owners(good)
            bucket += owners * np.int32(self.instances)
            senders, buckets = _by_owner(owners, times, used), len(self.sources) * self.instances
        if used is not None:
            np.putmask(bucket, ~used, buckets)
        packed = pack(columns, bucket, buckets, position=0)
        blocks = dict(zip(packed["bucket"].to_pylist(), packed["block"], strict=True))
        cells = []
        for source, own, wanted in senders:
            spans = b""
            if self._tells_time:
                spans = spans_of(own, self.disorder.ahead).astype("<i8").tobytes()
            first = max(source, 0) * self.instances
            for number in range(self.instances):
                block = blocks.get(first + number)
                content = b"" if block is None else block.as_buffer()
                cells.append(
                    Cell(
                        CellKind.EVENTS,
                        number,
                        content,
                        watermark=watermark,
                        spans=spans,
                        source=source,
                    )
                )
            if wanted is not None and not wanted.all() and self.deciding_columns:
                cells.append(
                    Cell(
                        CellKind.SPARSE, block=_sparse(good.select(self.deciding_columns), ~wanted)
                    )
                )
            elif wanted is not None and not wanted.all():
                weights = None if weighed is None else weights_of(weighed)[~wanted]
                unused = write_times(own[~wanted], weights)
                cells.append(Cell(CellKind.UNUSED, block=unused, source=source))
        if exchanges.num_rows:
            block = write_table(_exchanges(exchanges))
            cells += [Cell(CellKind.CLOCKS, n, block=block) for n in range(self.instances)]
        if beat_rows.num_rows:
            block = write_table(self._promises(beat_rows))
            cells += [Cell(CellKind.TOLD, n, block=block) for n in range(self.instances)]
        if invalid.num_rows:
            every = [named_rows(invalid, name) for name in self.queries] or [invalid]
            cells.append(Cell(CellKind.INVALID, block=write_table(pa.concat_tables(every))))
        events = table.num_rows - exchanges.num_rows - beat_rows.num_rows
        counters = Counters(events=events, invalid=invalid.num_rows)
        return [*cells, Cell(CellKind.REPORT, counters=counters)]

    def pulse(self, watermark: int) -> list[Cell]:
        """Tell every instance how far time has come."""
        return [Cell(CellKind.EVENTS, n, watermark=watermark) for n in range(self.instances)]

    @property
    def _tells_time(self) -> bool:
        """Whether the times of all rows go to every instance."""
        return self._divided and not self.disorder.takes_watermarks

    @property
    def _divided(self) -> bool:
        return self.disorder.divisible and not self.whole

    def _without_invalid(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows that can be used, and the others with the reason."""
        times = table.column(self.disorder.time)
        missing = np.zeros(table.num_rows, np.bool_)
        clocks = self._clocked(table)
        if self._divided or self.drop:
            # Rows that no step can use send their times alone, so these are looked at here.
            missing = invalid_times(times) & ~clocks & ~self._beats(table)
        half = clocks.copy()
        if clocks.any():
            valid = [_flags(pc.is_valid(one)) for one in _exchanges(table).columns[1:]]
            half &= ~np.logical_and.reduce(valid)
        stray = np.zeros(len(missing), np.bool_)
        if self.sources is not None:
            # Of events of several queries, each query says what becomes of these.
            told = clocks | self._beats(table)
            stray = (self._owners(table) < 0) & (told | np.bool_(not self.whole))
        corrupt = np.zeros(len(missing), np.bool_)
        if self.unread is not None:
            corrupt = _flags(pc.is_valid(table.column(self.unread)))
        wrong = missing | corrupt | stray | half
        bad = np.flatnonzero(wrong)
        kept = table.column_names
        empty = pa.schema([pa.field(REASON, pa.string()), *self.schema]).empty_table()
        if not len(bad):
            return table, empty
        reasons = [
            "the record cannot be read"
            if corrupt[row]
            else reason_of(times, self.disorder.time, int(row))
            if missing[row]
            else f"an exchange of clocks has {len(CLOCK_TIMES)} times"
            if half[row]
            else stray_reason(table.column(SOURCE)[int(row)].as_py())
            for row in bad
        ]
        if self.disorder.invalid is not Invalid.QUARANTINE:
            hint = quarantine_hint(self.disorder)
            if self.sources is not None and stray[bad[0]]:
                hint = f"the sources are {', '.join(self.sources[:10])}; or {hint}"
            raise DataError(
                reasons[0],
                detail=f"row {bad[0]} of a batch of {len(missing)}: "
                + str({name: table.column(name)[int(bad[0])].as_py() for name in kept}),
                hint=hint,
            )
        aside = table.take(pa.array(bad)).select(self.schema.names)
        aside = aside.add_column(0, REASON, pa.array(reasons, pa.string()))
        return table.filter(pa.array(~wrong)), aside.cast(empty.schema)

    def _clocked(self, table: pa.Table) -> Booleans:
        """Say which rows are exchanges with the clock of their source."""
        if not self.clocks:
            return np.zeros(table.num_rows, np.bool_)
        return _flags(pc.is_valid(table.column(CLOCK)))

    def _beats(self, table: pa.Table) -> Booleans:
        """Say which rows are heartbeats of their source."""
        if self.heartbeats is None:
            return np.zeros(table.num_rows, np.bool_)
        return _flags(pc.is_valid(table.column(self.heartbeats)))

    def _promises(self, heartbeat_rows: pa.Table) -> pa.Table:
        """Return of each source the greatest time that heartbeats promise."""
        assert self.heartbeats is not None
        times = as_integers(one_array(heartbeat_rows.column(self.heartbeats)))
        names = pa.nulls(heartbeat_rows.num_rows, pa.string())
        if self.sources is not None:
            names = one_array(heartbeat_rows.column(SOURCE)).cast(pa.string())
        promised = pa.table({SOURCE: names, "time": times}).group_by(SOURCE)
        return promised.aggregate([("time", "max")]).rename_columns([SOURCE, "time"])

    def _owners(self, table: pa.Table) -> npt.NDArray[np.int32]:
        """Return the number of the source of each row; -1 where there is no such source."""
        assert self.sources is not None
        return owners_of(table.column(SOURCE), self.sources)


def _by_owner(
    owners: npt.NDArray[np.int32], times: Integers, used: Booleans | None
) -> list[tuple[int, Integers, Booleans | None]]:
    """Return each source that has rows, with their times and which are used; -1 where none has."""
    order = np.argsort(owners, kind="stable")
    present, starts = np.unique(owners[order], return_index=True)
    parts = np.split(order, starts[1:])
    if not len(present):
        return [(-1, times, used)]
    return [
        (source, times[own], None if used is None else used[own])
        for source, own in zip(present.tolist(), parts, strict=True)
    ]


def _sparse(rows: pa.Table, some: Booleans) -> bytes:
    """Return some rows as a block."""
    kept = rows.filter(pa.array(some))
    columns = {name: one_array(kept.column(name)) for name in kept.column_names}
    return bytes(block_cells([narrow_rows(columns)])[0].as_buffer())


def _exchanges(table: pa.Table) -> pa.Table:
    """Return who asked, and the four times of each exchange."""
    times = one_array(table.column(CLOCK))
    columns = [pc.struct_field(times, name).cast(pa.int64()) for name in CLOCK_TIMES]
    return pa.table([table.column(SOURCE).cast(pa.string()), *columns], [SOURCE, *CLOCK_TIMES])


def _flags(column: pa.Array | pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(one_array(column).to_numpy(zero_copy_only=False), np.bool_)
