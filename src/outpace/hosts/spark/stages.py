"""What the tasks of a stream do: pack rows into cells, run the instances of a stage, unpack.

Memory: packing holds `PACK_ROWS` rows or `PACK_BYTES`; an instance of a stage the cells of one
batch, which the source's admission control bounds, and what its stage says. Where only savepoints
are saved, a process has the instances of the batch before still, those that it used last, and the
events that each needs.

Spark places a row by the Murmur3 hash of its key. With the numbers 0, 1, 2 ... several instances
would share a partition, and so a core, while others have none; so each gets a number whose hash is
that of a partition of its own. The hash is part of Spark's on-disk contract for streams: a restart
must find the state where it was.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.block import read_block
from outpace.engine.codec.cell import CELLS, Cell, CellKind, cell_batch, cell_of, read_cells
from outpace.engine.codec.stretch import LogStretch, stretches_of
from outpace.engine.codec.table import read_table
from outpace.engine.packing import Packing
from outpace.engine.replayed_stage import ReadLog, ReplayedStage
from outpace.engine.stage import (
    Stage,
    StageSpec,
    restore_stage,
    run_step,
    save_stage,
)
from outpace.hosts.background import compile_when_loaded
from outpace.hosts.clock import BatchLoad, clock_time
from outpace.hosts.spark.frame import PLACED, RecordBatches, as_planned, pieces
from outpace.hosts.spark.seekable import ReadableLog
from outpace.hosts.spark.soft_files import SoftFiles
from outpace.hosts.spark.soft_stages import SoftStages

#: The outputs of a stream by their names.
OUTPUTS: Final = {
    "match": CellKind.MATCHES,
    "timed_out": CellKind.TIMED_OUT,
    "late": CellKind.LATE,
    "invalid": CellKind.INVALID,
}

#: What is kept of the load, where something follows it.
_LOAD: Final = "busy double, began bigint, worked bigint"

#: Instances whose states are not saved, as they were after their last batch in this process.
_soft: SoftStages[StageSpec, Stage] = SoftStages()
#: What other processes of this host need to go on with them.
_soft_files = SoftFiles()


class InputPart(NamedTuple):
    """A part of the input.

    Parameters
    ----------
    rows
        Rows; None: nothing but time.
    watermark
        What is promised of later rows.
    places
        Where in a log they lie; empty where they come from none.
    """

    rows: pa.Table | None
    watermark: int = NO_TIME
    places: tuple[LogStretch, ...] = ()


Value = TypeVar("Value")


class PlanPart(Generic[Value]):
    """A part of a plan that tasks receive.

    A process that has received it before has it still, with all that was made of it.
    """

    def __init__(self, value: Value) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Callable[[bytes], PlanPart[Any]], tuple[bytes]]:
        # Spark's copy of cloudpickle has no types; unlike pickle it takes classes of a notebook.
        return _received, (cloudpickle.dumps(self.value),)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=64)
def _received(data: bytes) -> PlanPart[Any]:
    return PlanPart(cloudpickle.loads(data))


@dataclass(frozen=True)
class PackTask:
    """How a task packs what it has of a stream.

    Parameters
    ----------
    packing
        The part of the plan.
    places
        What stands for each instance of the first stage in the column `instance`.
    """

    packing: PlanPart[Packing]
    places: list[int]

    def pack(self, parts: Iterable[InputPart]) -> Iterator[pa.RecordBatch]:
        """Pack parts of the input."""
        packing = self.packing.value
        context = TaskContext.get()
        sender = 0 if context is None else context.partitionId()
        position = 0
        for rows, watermark, places in parts:
            began = time.perf_counter_ns()
            cells = packing.pulse(watermark) if rows is None else packing.pack(rows, watermark)
            spent = (time.perf_counter_ns() - began) // 1000
            yield cell_batch(
                replace(
                    cell,
                    instance=self.places[cell.instance],
                    sender=sender,
                    position=position + number,
                    places=places if cell.kind is CellKind.EVENTS else (),
                    counters=replace(cell.counters, step_us=spent * (cell.kind is CellKind.REPORT)),
                )
                for number, cell in enumerate(cells)
            )
            position += len(cells)


def pack_rows(task: PackTask, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a DataFrame, which may say where in a log they lie."""
    schema = task.packing.value.rows

    def parts() -> Iterator[InputPart]:
        for _, rows in pieces(batches):
            places: tuple[LogStretch, ...] = ()
            if set(PLACED.names) <= {*rows.column_names}:
                places = stretches_of(*rows.select(PLACED.names).columns)
                rows = rows.drop_columns(PLACED.names)
            yield InputPart(as_planned(rows, schema), NO_TIME, places)

    return task.pack(parts())


def pack_blocks(task: PackTask, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """Pack rows that come as blocks, as from a log; the offsets of these may follow."""
    schema = task.packing.value.reads

    def parts() -> Iterator[InputPart]:
        for batch in batches:
            blocks, *offsets = batch.columns
            numbers = (column.to_pylist() for column in offsets)
            for block, *place in zip(blocks, *numbers, strict=True):
                rows = pa.table(read_block(block.as_buffer(), schema))
                yield InputPart(rows, NO_TIME, (LogStretch("", *place),) if place else ())

    return task.pack(parts())


def pack_matches(task: PackTask, timed: bool, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """Pack the matches of another query, and hand on what it knows of time where it is the same."""

    def parts() -> Iterator[InputPart]:
        for batch in batches:
            for cell in read_cells(batch):
                if cell.kind is CellKind.MATCHES:
                    yield InputPart(read_table(cell.block))
                elif cell.kind is CellKind.PULSE and timed:
                    yield InputPart(None, cell.watermark)

    return task.pack(parts())


class StageProcessor(StatefulProcessor):
    """Runs the instances of a stage that a task has; Spark keeps their states.

    Parameters
    ----------
    spec, place
        The stage, and its place in the chain, from 1 on.
    own, behind
        What stands for each instance of this stage, and of the next, in the column `instance`.
    log
        Where the events can be read again, if savepoints are all that Spark keeps.
    """

    def __init__(
        self,
        spec: PlanPart[StageSpec],
        place: int,
        own: list[int],
        behind: list[int],
        log: ReadableLog | None = None,
    ) -> None:
        self._part = spec
        self._place = place
        self._own = own
        self._behind = behind
        self._log = log

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state, and compile what is not compiled on this machine while batches go on."""
        self._handle = handle
        self._state = handle.getValueState("state", "state binary")
        self._spec = self._part.value
        replayed = self._spec.replay is not None
        self._anchor = handle.getValueState("anchor", "anchor binary") if replayed else None
        self._clocked = self._spec.clocked
        measured = self._spec.measured
        self._load = handle.getValueState("load", _LOAD) if measured else None
        matcher = self._spec.matcher
        if matcher is not None:
            compile_when_loaded(matcher)

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,
    ) -> Iterator[pd.DataFrame]:
        """Let one instance take the cells of a batch."""
        cells = [cell for part in rows for cell in _from_pandas(part)]
        yield from self._step(key, cells, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """Let one instance take a step because its time has come, where no cell is for it."""
        yield from self._step(key, [], timerValues, expiredTimerInfo.getExpiryTimeInMs())

    def _step(
        self, key: Any, cells: list[Cell], times: Any, expired: int | None = None
    ) -> Iterator[pd.DataFrame]:
        number = self._own.index(int(key[0]))
        # The time of a batch is written down with it, so a batch that is run again has the same.
        now_ms = times.getCurrentProcessingTimeInMs() if self._clocked else None
        began, clock = clock_time(), [time.perf_counter_ns()]
        load = BatchLoad(None, 0, 0)
        if self._load is not None and (known := self._load.get()) is not None:
            load = BatchLoad(*known)
        saved = self._state.get()
        data = None if saved is None else bytes(saved[0])
        stage = self._restored(number, data)
        clock.append(time.perf_counter_ns())
        now = NO_TIME if now_ms is None else now_ms * 1000
        given = run_step(stage, cells, number, self._place, now, load.report)
        clock.append(time.perf_counter_ns())
        if isinstance(stage, ReplayedStage):
            stage.check(*self._again)
            # Spark keeps the output of a batch and the state after it together.
            stage.acknowledge()
        state, anchor = save_stage(self._spec, stage), b""
        self._state.update((state,))
        if isinstance(stage, ReplayedStage):
            assert self._anchor is not None, "there is one where there are savepoints"
            if stage.renewed:
                anchor = stage.anchor
                self._anchor.update((anchor,))
            _soft.put(self._spec, number, state, stage)
            _soft_files.write(number, state, stage.soft, data)
        if now_ms is not None:
            self._set_timer(stage.timer, now_ms, expired)
        clock.append(time.perf_counter_ns())
        if self._load is not None:
            after = load.after(began, (clock[-1] - clock[0]) // 1000)
            self._load.update((after.busy, after.began, after.worked))
        restored, stepped, written = (
            (after - before) // 1000 for before, after in itertools.pairwise(clock)
        )
        counters = replace(
            stage.counters,
            state_bytes=len(state) + len(anchor),
            restore_us=restored,
            step_us=stepped,
            save_us=written,
        )
        report = Cell(CellKind.REPORT, stage=self._place, sender=number, counters=counters)
        outputs = [replace(cell, instance=self._behind[cell.instance]) for cell in (*given, report)]
        yield cell_batch(outputs).to_pandas()

    def _restored(self, number: int, data: bytes | None) -> Stage:
        """Return an instance as it was saved, which this process may have still."""
        if data is None or self._anchor is None:
            return restore_stage(self._spec, data, number)
        kept = _soft.take(self._spec, number, data)
        if kept is not None:
            return kept
        _, read = self._again
        (anchor,) = self._anchor.get() or (b"",)
        soft = _soft_files.read(number, data)
        return restore_stage(self._spec, data, number, read, soft, bytes(anchor))

    @property
    def _again(self) -> tuple[Packing, ReadLog]:
        """How events are packed and read again."""
        assert self._log is not None, "there is a log where there are savepoints"
        assert self._spec.replay is not None, "its stage has savepoints"
        packing = self._spec.replay.packing
        return packing, partial(self._log.read, packing.reads)

    def _set_timer(self, timer: int | None, now_ms: int, expired: int | None) -> None:
        """Let Spark know of the one timer of an instance; what has passed is for the next batch."""
        due = None if timer is None else max(-(-timer // 1000), now_ms + 1)
        known = set(self._handle.listTimers())
        # Spark takes the timer away that it has just told of.
        for one in known - {due, expired}:
            self._handle.deleteTimer(one)
        if due is not None and due not in known:
            self._handle.registerTimer(due)

    def close(self) -> None:
        """Nothing is open."""


def _from_pandas(part: pd.DataFrame) -> Iterator[Cell]:
    # The label of an instance says nothing behind it: what is handed on is for any one.
    for row in zip(*(part[name].tolist() for name in CELLS.names[1:]), strict=True):
        yield cell_of(0, *row)


def unpack(output: pa.Schema, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """Return the rows of cells of one kind."""
    for batch in batches:
        for block in batch.column("block"):
            yield from read_table(block.as_buffer()).cast(output).to_batches()


def unpack_all(output: pa.Schema, batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    """Return the rows of cells of all kinds, each in the column of its kind."""
    names = {int(kind): name for name, kind in OUTPUTS.items()}
    for batch in batches:
        for kind, block in zip(
            batch.column("kind").to_pylist(), batch.column("block"), strict=True
        ):
            for rows in read_table(block.as_buffer()).to_batches():
                filled = rows.to_struct_array().cast(output.field(names[kind]).type)
                columns = [pa.array([names[kind]] * rows.num_rows, pa.string())]
                columns += [
                    filled if field.name == names[kind] else pa.nulls(rows.num_rows, field.type)
                    for field in list(output)[1:]
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=output)


_WORD: Final = 0xFFFFFFFF
_SEED: Final = 42

#: The one number whose hash is 0, and so in the first partition of however many there are.
_FIRST: Final = -1_693_959_553


def labels(instances: int, partitions: int) -> list[int]:
    """Return a number for each instance; those of a run of `partitions` fall into different ones.

    The first instance has the same number and is in the first partition however many there are. So
    it always finds its state, and with it what tells whether the others are where they were; and
    where there is only one, no other task writes an empty file before it.

    Examples
    --------
    >>> [partition_of(label, 4) for label in labels(6, 4)]
    [0, 1, 2, 3, 0, 1]
    >>> labels(1, 3) == labels(1, 200)
    True
    """
    wanted = [-(-(instances - place) // partitions) for place in range(min(instances, partitions))]
    found: list[list[int]] = [[] for _ in wanted]
    found[0].append(_FIRST)
    numbers = itertools.count()
    while any(len(own) < count for own, count in zip(found, wanted, strict=True)):
        label = next(numbers)
        place = partition_of(label, partitions)
        if place < len(found) and len(found[place]) < wanted[place]:
            found[place].append(label)
    return [found[number % partitions][number // partitions] for number in range(instances)]


def partition_of(label: int, partitions: int) -> int:
    """Return the partition that Spark puts an integer key into.

    Examples
    --------
    >>> [partition_of(label, 200) for label in (0, 1, 2)]
    [191, 43, 174]
    """
    hashed = _murmur3(label)
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return signed % partitions


def _murmur3(value: int) -> int:
    """Return the Murmur3 hash (x86, 32 bits) of a 32-bit integer with Spark's seed."""
    mixed = (value * 0xCC9E2D51) & _WORD
    mixed = (_rotated(mixed, 15) * 0x1B873593) & _WORD
    state = _rotated(_SEED ^ mixed, 13)
    state = (state * 5 + 0xE6546B64) & _WORD
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = ((state ^ (state >> shift)) * factor) & _WORD
    return state ^ (state >> 16)


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _WORD
