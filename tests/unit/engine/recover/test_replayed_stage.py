"""A stage that saves nothing but savepoints gives what one does that saves its state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import disorders, window_queries
from support.properties import examples

import outpace as op
from outpace.engine import replayed_stage
from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import Cell, CellKind, Counters
from outpace.engine.codec.stretch import LogStretch
from outpace.engine.recover.log_places import LogPiece
from outpace.engine.replayed_stage import ReplayedStage, first_needed
from outpace.engine.stage import Stage, StageSpec, restore_stage, save_stage
from outpace.engine.state import State
from outpace.errors import DataError, StateError, UnsupportedError
from outpace.hosts.spark.soft_stages import SoftStages
from outpace.pattern.bind.disorder import CLOCK_TIMES
from outpace.plan.plan import Plan
from outpace.plan.stream_plan import StageDivision, plan_stream
from outpace.testing.stream_chain import BatchOutput, Chain, States

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "ts": pa.int64(),
        "seq": pa.int64(),
        "key": pa.string(),
        "kind": pa.string(),
        "v": pa.int64(),
        "source": pa.string(),
        "beat": pa.int64(),
    }
)
#: Some events are of the first, and some of the second source.
SOURCES = ("west", "east")
#: What tells the log.
LOG = 77


@dataclass
class Log:
    """Rows by offsets that begin somewhere, read in pieces of any size.

    Rows take turns in going to the parts, of which each has offsets of its own.
    """

    rows: pa.Table
    random: random.Random
    base: int = 1000
    most: int = 9
    parts: int = 1
    reads: list[LogStretch] = field(default_factory=list)
    #: Before these offsets nothing is kept.
    trimmed: dict[str, int] = field(default_factory=dict)

    def stretches(self, first: int, stop: int) -> list[LogStretch]:
        """Return where the rows between two numbers lie, part by part."""
        edges = [
            [-(-(edge - self.base - part) // self.parts) + self.base for edge in (first, stop)]
            for part in range(self.parts)
        ]
        return [LogStretch(str(part), *own) for part, own in enumerate(edges)]

    def pieces(self, stretch: LogStretch) -> Iterator[LogPiece]:
        part, first, stop = stretch
        while first < stop:
            end = min(stop, first + self.random.randint(1, self.most))
            places = (np.arange(first, end) - self.base) * self.parts + int(part)
            yield LogPiece(self.rows.take(places), LogStretch(part, first, end))
            first = end

    def read(self, stretch: LogStretch) -> Iterator[LogPiece]:
        self.reads.append(stretch)
        assert stretch.first >= self.trimmed.get(stretch.part, 0)
        return self.pieces(stretch)

    def trim(self, states: States) -> None:
        """Trim what nobody needs."""
        found = [first_needed(State.decode(state or b"").part("stage")) for state in states[0]]
        for part in {part for own in found for part in own}:
            self.trimmed[part] = min(own[part] for own in found if part in own)


class SoftChain(Chain):
    """Stages that save savepoints.

    A process that has an instance still goes on with it. Where it is lost, what it needs may be in
    a file, or be read from the log again.
    """

    def __init__(self, plan: Plan[StageDivision], log: Log, lost: float) -> None:
        super().__init__(plan.division.stages, log.read)
        self._random, self._lost = log.random, lost
        self._soft: SoftStages[StageSpec, Stage] = SoftStages()
        self._files: dict[tuple[int, bytes], bytes | None] = {}

    def _restore(self, spec: StageSpec, state: bytes | None, number: int) -> Stage:
        soft = None if state is None else self._soft.take(spec, number, state)
        if soft is not None and self._random.random() >= self._lost:
            return soft
        file = None if state is None else self._files.get((number, state))
        if file is not None and self._random.random() < 0.5:
            anchor = self._anchors[number, state]
            return restore_stage(spec, state, number, _never, State.decode(file), anchor)
        return super()._restore(spec, state, number)

    def _save(self, spec: StageSpec, stage: Stage, number: int) -> bytes:
        saved = super()._save(spec, stage, number)
        self._soft.put(spec, number, saved, stage)
        assert isinstance(stage, ReplayedStage)
        self._files[number, saved] = None if stage.soft is None else stage.soft.encode()
        return saved


def _never(stretch: LogStretch) -> Iterator[LogPiece]:
    raise AssertionError("nobody reads the log")


def packed(plan: Plan[StageDivision], log: Log, first: int, stop: int) -> list[Cell]:
    """Return the cells of a batch whose stretches of the log several tasks read."""
    cells, sender = [], 0
    for part, low, high in log.stretches(first, stop):
        for edges in pairwise(sorted({low, high, log.random.randint(low, high)})):
            found = (
                replace(cell, sender=sender, places=(piece.stretch,))
                for piece in log.pieces(LogStretch(part, *edges))
                for cell in plan.division.packing.pack(piece.rows)
            )
            cells += [replace(cell, position=place) for place, cell in enumerate(found)]
            sender += 1
    return [cell for cell in cells if cell.kind is not CellKind.REPORT]


def shown(given: BatchOutput) -> dict[str, Any]:
    """Return the rows of a batch, in their order, and what was counted."""
    kinds = (CellKind.MATCHES, CellKind.LATE, CellKind.INVALID)
    rows = {kind.name: [t.to_pylist() for t in given.tables(kind)] for kind in kinds}
    pulses = [cell.watermark for cell in given.cells if cell.kind is CellKind.PULSE]
    # What is skipped is not kept, and nobody saves since when events wait.
    unlike = dict.fromkeys(("replays", "replayed", "kept", "partials", "waited", "longest_wait"), 0)
    counters = [[replace(one, **unlike) for one in own] for own in given.counters]
    return {**rows, "pulses": pulses, "counters": counters}


def compare(
    query: op.Query, log: Log, cuts: list[int], *, lost: float, **asked: Any
) -> tuple[SoftChain, list[Counters]]:
    """Run a query in batches with and without saved state; both give the same in each."""
    saving = plan_stream(query, log.rows.schema, 2, **asked)
    replaying = plan_stream(query, log.rows.schema, 2, **asked, log=LOG)
    chain, alone = SoftChain(replaying, log, lost), Chain(saving.division.stages)
    last, told = log.base + log.rows.num_rows, []
    edges = sorted({log.base, last, *(min(log.base + cut, last) for cut in cuts)})
    for now, (first, stop) in enumerate(pairwise(edges)):
        expected, alone.states = alone.crash(packed(saving, log, first, stop), 7 * now)
        given, states = run(chain, replaying, log, (first, stop), 7 * now)
        shared = len(saving.division.stages) > 1
        if shared:
            # Where one place has all parts, it promises less of the matches to come.
            given, expected = (replace(one, cells=_found(one)) for one in (given, expected))
        if saving.division.packing.drop != replaying.division.packing.drop or shared:
            # What only decides is an event here, and a part of one there.
            given, expected = (replace(one, counters=[]) for one in (given, expected))
        assert shown(given) == shown(expected)
        chain.states = states
        log.trim(states)
        told += [one for own in given.counters for one in own]
    return chain, told


def _found(given: BatchOutput) -> list[Cell]:
    return [cell for cell in given.cells if cell.kind is not CellKind.PULSE]


def run(
    chain: SoftChain, plan: Plan[StageDivision], log: Log, stretch: tuple[int, int], now: int
) -> tuple[BatchOutput, States]:
    """Run a batch, and now and then once more: what was saved before is where it begins."""
    cells = packed(plan, log, *stretch)
    given = chain.crash(cells, now)
    while log.random.random() < 0.3:
        again = chain.crash(log.random.sample(cells, len(cells)), now)
        assert shown(again[0]) == shown(given[0])
        given = again
    return given


def kinds(pattern: str, within: int | None = 6) -> op.Query:
    query = window_queries.pattern(pattern)
    return query if within is None else query.within(within)


class Sums(op.Operator):
    """A user-defined operator: the sum of a window."""

    output = pa.schema([("sum", pa.int64())])

    def __init__(self) -> None:
        self.sum = 0

    def process(self, events: pa.Table) -> None:
        self.sum += sum(events["v"].to_pylist())

    def close(self) -> dict[str, list[int]]:
        return {"sum": [self.sum]}

    def state(self) -> bytes:
        return str(self.sum).encode()

    def restore(self, data: bytes) -> None:
        self.sum = int(data)


class SavedBounded(window_queries.Bounded):
    """A predicate whose windows can be saved; it remembers nothing."""

    def state(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        assert data == b""

    def clone(self) -> SavedBounded:
        return SavedBounded()


WINDOWS = window_queries.KINDS | {"predicate": op.windows.between(predicate=SavedBounded())}

QUERIES = {
    **window_queries.PATTERNS,
    **{
        f"{kind}: {name}": window_queries.PATTERNS[name].over(windows)
        for kind, windows in WINDOWS.items()
        for name in ("next", "strict", "any")
    },
    "chain": kinds("A -> B -> C", None).over(op.windows.count(9, slide=4), duplicates=True),
    "deadline": kinds("A -> !B").no_skip(),
    "path": kinds("A -> B").define(B="kind = 'b' AND v > A.v"),
    "unbounded": kinds("A -> B -> C", None),
    "numbered": kinds("A -> B", None).over(op.windows.time(6, slide=3), numbered=True),
    "shared": kinds("A -> B", None).over(op.windows.count(9, slide=4)).instances(2),
    "operator": op.Query("q").order_by("ts").apply(Sums).over(op.windows.time(5)),
}
KINDS = {name: kind for name, kind in disorders.KINDS.items() if name not in ("told", "early")} | {
    "none": None,
    "patient": partial(op.KSlack, 4, patience="20 us"),
}


def rows(size: int, jitter: int, random: random.Random) -> pa.Table:
    """Return events that are up to a jitter out of order; some have no use for most queries."""
    times = np.sort([random.randint(0, 3 * size) for _ in range(size)])
    came = np.argsort(times + [random.randint(0, jitter) for _ in range(size)], kind="stable")
    return pa.table(
        {
            "id": np.arange(size),
            "ts": times[came],
            "seq": came,
            "key": [random.choice("pqr") for _ in range(size)],
            "kind": [random.choice("aabbccdx") for _ in range(size)],
            "v": [random.randint(0, 9) for _ in range(size)],
            "source": [random.choice(SOURCES) for _ in range(size)],
            "beat": [time if random.random() < 0.05 else None for time in times[came].tolist()],
        },
        SCHEMA,
    )


@examples(12)
@given(
    name=st.sampled_from(sorted(QUERIES)),
    # In order, the batches since a savepoint are taken again.
    disorder=st.one_of(st.just("none"), st.sampled_from(sorted(KINDS))),
    late=st.sampled_from(["drop", "side"]),
    keyed=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    lost=st.sampled_from([0, 0.3, 1]),
    parts=st.sampled_from([1, 3]),
    asked=st.fixed_dictionaries(
        {}, optional={"sources": st.just(SOURCES), "heartbeats": st.just("beat")}
    ),
    skipped=st.sampled_from([0, 1, 32]),
    since=st.sampled_from([1, 20, 1000]),
    seed=st.integers(0, 9999),
)
def test_a_replay_gives_what_saved_state_gives(
    name, disorder, late, keyed, cuts, lost, parts, asked, skipped, since, seed
):
    query, choose = QUERIES[name], random.Random(seed)
    if disorder == "patient":
        asked["sources"] = SOURCES
    if (kind := KINDS[disorder]) is not None:
        query = query.disorder(kind(late=late))
    query = query.partition_by("key") if keyed else query
    log = Log(rows(60, 5, choose), choose, parts=parts)
    with patch.multiple(replayed_stage, _SKIPPED=skipped, _SINCE=since, _SMALL=0):
        compare(query, log, cuts, lost=lost, **asked)


def long_log(size: int = 4000) -> Log:
    choose = random.Random(5)
    return Log(rows(size, 0, choose), choose, most=9 if size < 100 else 700)


def saved_of(query: op.Query, log: Log) -> tuple[Plan[StageDivision], bytes, bytes]:
    """Return what an instance saves that has read all of a log, and its anchor."""
    plan = plan_stream(query, log.rows.schema, 1, log=LOG)
    stage = plan.division.stages[0].make()
    cells = packed(plan, log, log.base, log.base + log.rows.num_rows)
    stage.step([cell for cell in cells if cell.kind in stage.takes], NO_TIME)
    assert isinstance(stage, ReplayedStage)
    stage.acknowledge()
    return plan, save_stage(plan.division.stages[0], stage), stage.anchor


CHAIN = QUERIES["chain"].over(op.windows.count(900, slide=300), duplicates=True)


@pytest.mark.parametrize(
    "query",
    [kinds("A -> B", None).define(B="kind = 'z'"), kinds("A -> B").disorder(op.KSlack(10**6))],
)
def test_a_savepoint_is_small_however_many_events_are_kept(query):
    log = long_log(20_000)
    _, saved, anchor = saved_of(query, log)
    plan = plan_stream(query, log.rows.schema, 1)
    [spec], stage = plan.division.stages, plan.division.stages[0].make()
    cells = packed(plan, log, log.base, log.base + log.rows.num_rows)
    stage.step([cell for cell in cells if cell.kind in stage.takes], NO_TIME)
    assert stage.counters.kept + stage.counters.buffered > 4000
    assert len(saved) + len(anchor) < 2000
    assert 50 * (len(saved) + len(anchor)) < len(save_stage(spec, stage))


def test_a_savepoint_is_small_however_many_events_are_skipped():
    log = long_log(20_000)
    # Each window begins with what the one before it has, and thousands are needed, one by one.
    query = QUERIES["chain"].over(op.windows.count(9000, slide=30), duplicates=True)
    plan, saved, anchor = saved_of(query, log)
    assert len(saved) + len(anchor) < 1500
    stage = restore_stage(plan.division.stages[0], saved, 0, log.read, anchor=anchor)
    assert isinstance(stage, ReplayedStage)
    stage.acknowledge()
    assert stage.soft is not None
    assert 2000 < stage.soft.tables[0].num_rows < 6000
    assert len(save_stage(plan.division.stages[0], stage)) + len(stage.anchor) < 1500


def test_a_replay_reads_the_events_of_windows_that_are_open():
    log = long_log()
    plan, saved, anchor = saved_of(CHAIN, log)
    stage = restore_stage(plan.division.stages[0], saved, 0, log.read, anchor=anchor)
    [(_, first, stop)] = log.reads
    # The windows that are open began within the last 900 events that a step can use.
    assert stop == log.base + 4000
    assert first > log.base + 2000
    run_on = [cell for cell in packed(plan, log, log.base, log.base + 9) if cell.instance == 0]
    later = [
        replace(cell, places=(LogStretch("", stop, stop + 9),))
        for cell in run_on
        if cell.kind in stage.takes
    ]
    stage.step(later, NO_TIME)
    assert stage.counters.replays == 1
    assert 0 < stage.counters.replayed < 900
    stage.step(later, NO_TIME)
    assert stage.counters.replays == 0


def saved_in_batches(query: op.Query, log: Log, size: int) -> list[tuple[bytes, bytes, bool]]:
    """Return what an instance saves after each batch, its anchor, and whether that is new."""
    plan = plan_stream(query, log.rows.schema, 1, log=LOG)
    [spec], stage, saved = plan.division.stages, plan.division.stages[0].make(), []
    assert isinstance(stage, ReplayedStage)
    for first in range(log.base, log.base + log.rows.num_rows, size):
        cells = packed(plan, log, first, min(first + size, log.base + log.rows.num_rows))
        stage.step([cell for cell in cells if cell.kind in stage.takes], NO_TIME)
        stage.acknowledge()
        saved.append((save_stage(spec, stage), stage.anchor, stage.renewed))
    return saved


#: By key, a savepoint says of each row that is held which it is.
HELD = kinds("A -> B -> C", 30_000).partition_by("v", "key").no_skip()
HELD = HELD.define(C="kind = 'd' AND v > 8")


def test_a_large_savepoint_stays_for_many_batches_which_a_replay_takes_again():
    log = long_log(20_000)
    with patch.object(replayed_stage, "_SINCE", 6000):
        saved = saved_in_batches(HELD, log, 1000)
    places = [place for place, (_, _, renewed) in enumerate(saved) if renewed]
    assert places[0] == 0
    assert len(places) > 2
    assert set(np.diff(places).tolist()) == {6}
    each = np.mean([len(state) + renewed * len(anchor) for state, anchor, renewed in saved[1:]])
    assert 4 * each < len(saved[-1][1])
    [spec] = plan_stream(HELD, log.rows.schema, 1, log=LOG).division.stages
    state, anchor, renewed = saved[-1]
    assert not renewed
    log.reads.clear()
    stage = restore_stage(spec, state, 0, log.read, anchor=anchor)
    assert isinstance(stage, ReplayedStage)
    assert log.reads[-1].stop == log.base + 20_000
    stage.acknowledge()
    assert (save_stage(spec, stage), stage.anchor) == (state, anchor)
    with pytest.raises(StateError, match="belongs to another savepoint"):
        restore_stage(spec, state, 0, log.read, anchor=saved[0][1])
    with pytest.raises(StateError, match="belongs to another savepoint"):
        restore_stage(spec, state, 0, log.read)
    whole = State.decode(state)
    [part] = whole.parts.values()
    none_since = replace(part, numbers={**part.numbers, "since": 0})
    damaged = replace(whole, parts={"stage": none_since}).encode()
    with pytest.raises(StateError, match="contradicts itself") as error:
        restore_stage(spec, damaged, 0, log.read, anchor=anchor)
    assert "events that came behind it" in str(error.value)


def test_what_is_saved_of_the_batches_since_a_savepoint_is_bounded():
    with patch.object(replayed_stage, "_SMALL", 0):
        saved = saved_in_batches(HELD, long_log(2000), 15)
    assert [place for place, (_, _, renewed) in enumerate(saved) if renewed] == [0, 64, 128]
    assert max(len(state) for state, _, _ in saved) < 1000


def test_nothing_is_read_again_where_nothing_is_needed():
    log = long_log(50)
    plan, saved, anchor = saved_of(kinds("A -> B", 1).disorder(op.InOrder()), log)
    restore_stage(plan.division.stages[0], saved, 0, log.read, anchor=anchor)
    assert log.reads == []


@pytest.mark.parametrize("change", ["fewer", "more"])
def test_a_log_that_has_other_events_by_now_is_refused(change):
    log = long_log(50)
    plan, saved, anchor = saved_of(kinds("A -> B", None).define(B="kind = 'z'"), log)

    def read(stretch: LogStretch) -> Iterator[LogPiece]:
        pieces = list(log.pieces(stretch))
        again = [*pieces, pieces[0]]
        return iter(pieces[1:] if change == "fewer" else again)

    with pytest.raises(StateError, match="the log has other events") as error:
        restore_stage(plan.division.stages[0], saved, 0, read, anchor=anchor)
    assert "read again from 0, offset 1," in str(error.value)


def test_another_log_another_query_and_state_that_was_saved_otherwise_are_refused():
    log = long_log(50)
    query = kinds("A -> B", None)
    plan, saved, anchor = saved_of(query, log)
    [other] = plan_stream(query, log.rows.schema, 1, log=LOG + 1).division.stages
    with pytest.raises(StateError, match="belongs to another log"):
        restore_stage(other, saved, 0, log.read, anchor=anchor)
    [other] = plan_stream(kinds("A -> C", None), log.rows.schema, 1, log=LOG).division.stages
    with pytest.raises(StateError, match="belongs to another query"):
        restore_stage(other, saved, 0, log.read, anchor=anchor)
    [whole] = plan_stream(query, log.rows.schema, 1).division.stages
    with pytest.raises(StateError, match='started with recovery="replay"'):
        restore_stage(whole, saved)
    with pytest.raises(StateError, match='started without recovery="replay"'):
        restore_stage(plan.division.stages[0], save_stage(whole, whole.make()), 0, log.read)


@pytest.mark.parametrize("change", ["none", "other", "fewer", "more"])
def test_a_log_that_does_not_give_what_came_is_refused_at_once(change):
    log = long_log(50)
    plan = plan_stream(kinds("A -> B"), log.rows.schema, 1, log=LOG)
    stage = plan.division.stages[0].make()
    assert isinstance(stage, ReplayedStage)
    cells = packed(plan, log, 1000, 1050)
    stage.step([cell for cell in cells if cell.kind in stage.takes])

    def read(stretch: LogStretch) -> Iterator[LogPiece]:
        [piece] = Log(log.rows, log.random, most=1).pieces(stretch._replace(stop=stretch.first + 1))
        size = stretch.stop - stretch.first
        found = log.rows.slice(stretch.first - log.base, size)
        if change == "other":
            found = found.set_column(0, "id", pa.array(np.arange(size) + 1000))
        found = found.slice(1) if change == "fewer" else found
        found = pa.concat_tables([found, piece.rows]) if change == "more" else found
        yield LogPiece(found, stretch)

    packing = plan.division.packing
    if change == "none":
        stage.check(packing, read)
        stage.check(packing, _never)  # It knows.
        return
    with pytest.raises(DataError, match="does not give the events that came") as error:
        stage.check(packing, read)
    assert "of 'q', in 0, offset 1,0" in str(error.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (kinds("A -> B").disorder(op.KSlack(1, late="pass")), "late events that are passed on"),
        (kinds("A -> B").disorder(op.KSlack(1, late="correct", horizon=9)), "correct"),
        (kinds("A -> B").disorder(op.Speculative(1)), "correct"),
    ],
)
def test_what_a_replay_cannot_rebuild_is_refused(query, message):
    with pytest.raises(UnsupportedError, match=message):
        plan_stream(query, SCHEMA, 2, log=LOG)


def test_clocks_that_are_compared_and_what_timed_out_are_refused():
    schema = SCHEMA.append(pa.field("clock", pa.struct(dict.fromkeys(CLOCK_TIMES, pa.int64()))))
    with pytest.raises(UnsupportedError, match="clocks that are compared"):
        plan_stream(kinds("A -> B"), schema, 2, log=LOG, sources=SOURCES)
    with pytest.raises(UnsupportedError, match="time out have no numbers"):
        plan_stream(kinds("A -> B"), SCHEMA, 2, log=LOG, timeouts=True)


@pytest.mark.parametrize("damage", ["fewer", "other columns", "out of order", "no places"])
def test_soft_state_that_is_not_what_is_needed_is_as_if_it_were_not_there(damage):
    log = long_log(50)
    plan, saved, anchor = saved_of(kinds("A -> B", None).define(B="kind = 'z'"), log)
    stage = restore_stage(plan.division.stages[0], saved, 0, log.read, anchor=anchor)
    assert isinstance(stage, ReplayedStage)
    assert stage.soft is not None
    [events], parts = stage.soft.tables, stage.soft.parts
    changed = {
        "fewer": State({}, [events.slice(1)], parts),
        "other columns": State({}, [events.drop_columns(["id"])], parts),
        "out of order": State({}, [events.take([1, 0])], parts),
        "no places": State({}, [events]),
    }[damage]
    log.reads.clear()
    again = restore_stage(plan.division.stages[0], saved, 0, log.read, changed, anchor)
    assert log.reads
    assert isinstance(again, ReplayedStage)
    assert again.soft is not None
    assert again.soft.tables[0].equals(events)
    log.reads.clear()
    restore_stage(plan.division.stages[0], saved, 0, log.read, stage.soft, anchor)
    assert log.reads == []


def test_what_is_saved_is_the_same_however_often_it_is_taken():
    log = long_log(50)
    plan, saved, anchor = saved_of(kinds("A -> B", None), log)
    [spec] = plan.division.stages
    stage = restore_stage(spec, saved, 0, log.read, anchor=anchor)
    assert [save_stage(spec, stage) for _ in range(2)] == [saved, saved]
    stage.step([], NO_TIME)
    with pytest.raises(AssertionError, match="acknowledged before"):
        save_stage(spec, stage)
    assert isinstance(stage, ReplayedStage)
    stage.acknowledge()
    assert save_stage(spec, stage) == save_stage(spec, stage)
