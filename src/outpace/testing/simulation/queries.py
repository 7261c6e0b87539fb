"""Random queries, with their conditions in Python as well, for the simulator of the operator."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace import schedulers, windows
from outpace.engine.match.task import prepare
from outpace.errors import OutpaceError
from outpace.pattern.bind.window_kinds import bind_windows
from outpace.pattern.operator import (
    EventOperator,
    Operator,
    SharedOperator,
    WindowBlock,
    WindowRows,
)
from outpace.pattern.query import Query, Selection
from outpace.pattern.schedulers import Candidate, Scheduler
from outpace.pattern.windows import OpenWindow, WindowPredicate, WindowSpec
from outpace.testing.oracle import Run
from outpace.testing.simulation.clock_errors import ClockErrors

EventRow: TypeAlias = "dict[str, Any]"
#: Whether an event fits a variable after a run, written in Python.
Holds: TypeAlias = Callable[[Sequence[EventRow], int, Run], bool]
#: A stretch of so many units, as the time column of the events has it.
SpanMaker: TypeAlias = Callable[[int], "int | str"]

LETTERS: Final = "ABCD"

#: The column that may say which events went on because a time was up, and the measure with it.
FLAG, FLAGS = "timed", "flags"


@dataclass(frozen=True)
class QueryCase:
    """A query, and what its variables mean.

    Parameters
    ----------
    query
        The query.
    holds
        Its conditions in Python, by variable; none where only the engine knows what it means.
    """

    query: Query
    holds: Mapping[str, Holds] | None = None


# --- Conditions ----------------------------------------------------------------------------------


def _of_kind(letter: str) -> tuple[str, Holds]:
    kind = letter.lower()
    return f"kind = '{kind}'", lambda rows, event, run: bool(rows[event]["kind"] == kind)


def _below_previous(letter: str) -> tuple[str, Holds]:
    return (
        "v < PREV(v)",
        lambda rows, event, run: event > 0 and _less(rows[event]["v"], rows[event - 1]["v"]),
    )


def _above_first(letter: str) -> tuple[str, Holds]:
    """Holds for events above the last event that the run has as A."""
    kind = letter.lower()

    def holds(rows: Sequence[EventRow], event: int, run: Run) -> bool:
        taken = [rows[place]["v"] for place, name in run if name == "A"]
        own = rows[event]
        return own["kind"] == kind and bool(taken) and _less(taken[-1], own["v"])

    return f"kind = '{kind}' AND v > A.v", holds


def _large(letter: str) -> tuple[str, Holds]:
    return "v > 3", lambda rows, event, run: _less(3, rows[event]["v"])


def _less(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left < right


# --- Patterns ------------------------------------------------------------------------------------


def draw_pattern_query(
    random: Random,
    schema: pa.Schema,
    span: SpanMaker,
    *,
    windowed: bool,
    clocks: ClockErrors | None = None,
) -> QueryCase:
    """Draw a pattern and its rules until they fit each other.

    Where clocks are off, the order is uncertain.
    """
    while True:
        text = _sequence(random, 2)
        if random.random() < 0.1:
            text = random.choice([f"^ {text}", f"{text} $"])
        names = [name for name in LETTERS if name in text.replace("PERMUTE", "")]
        conditions = {name: _condition(random, name, names) for name in names}
        query = Query("q").order_by("ts").measures(ids="ARRAY_AGG(id)")
        query = query.measures(labels="ARRAY_AGG(CLASSIFIER())")
        try:
            query = query.pattern(text)
            query = query.define({name: text for name, (text, _) in conditions.items()})
            if clocks is not None:
                query = _with_clock_errors(random, query, clocks, span, windowed=windowed)
            else:
                query = _with_rules(random, query, names, span)
            if windowed and clocks is None:
                query = _with_rows(random, query)
                query = query.over(
                    draw_windows(random, span),
                    duplicates=random.random() < 0.25,
                    numbered=random.random() < 0.7,
                )
                bind_windows(query, schema)
            prepare(query, schema)
        except OutpaceError:
            continue
        return QueryCase(query, {name: holds for name, (_, holds) in conditions.items()})


def _condition(random: Random, name: str, names: list[str]) -> tuple[str, Holds]:
    chance = random.random()
    if chance < 0.12:
        return _below_previous(name)
    if chance < 0.16:
        return _large(name)
    if chance < 0.3 and name != "A" and "A" in names:
        return _above_first(name)
    return _of_kind(name)


def _sequence(random: Random, depth: int) -> str:
    parts = [_item(random, depth)]
    links = [" ", " -> ", " -> ", " ->> "]
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        link = random.choice(links)
        absent = random.random() < 0.1
        parts += [link, f"!{random.choice(LETTERS)}" if absent else _item(random, depth)]
    return "".join(parts)


def _item(random: Random, depth: int) -> str:
    chance = random.random()
    if not depth or chance < 0.75:
        item = random.choice(LETTERS)
    elif chance < 0.85:
        item = f"({_item(random, depth - 1)} | {_sequence(random, depth - 1)})"
    elif chance < 0.92:
        item = f"PERMUTE({', '.join(random.sample(LETTERS, 2))})"
    else:
        item = f"({_sequence(random, depth - 1)})"
    if random.random() < 0.3:
        item += random.choice(
            ["?", "*", "+", "+", "{2}", "{1,2}", "{2,}", "??", "*?", "+?", "++", "(->)+"]
        )
    return item


def _with_rules(random: Random, query: Query, names: list[str], span: SpanMaker) -> Query:
    if random.random() < 0.5:
        kind = random.choice(["first to last"] * 4 + ["previous to current"])
        query = query.within(span(random.randint(1, 9)), kind)
    chance = random.random()
    if chance < 0.15:
        query = query.no_skip()
    elif chance < 0.3:
        query = query.skip_to_next_row()
    elif chance < 0.4:
        query = query.skip_to_first(random.choice(names))
    elif chance < 0.5:
        query = query.skip_to_last(random.choice(names))
    elif chance < 0.6:
        query = query.select(random.choice(["all", "preferred"]))
    elif chance < 0.65:
        query = query.no_skip().consume(random.choice(["selected", "all"]))
    if random.random() < 0.1:
        query = query.limit(random.randint(1, 3), per=random.choice(["start", "partition"]))
    if random.random() < 0.3:
        query = query.measures(n="MATCH_NUMBER()")
    return query


def _with_clock_errors(
    random: Random, query: Query, clocks: ClockErrors, span: SpanMaker, *, windowed: bool
) -> Query:
    """Say how uncertain the order is, and the rules that a query then needs."""
    bound = 2 * clocks.most + random.choice([0, 0, 1])
    query = query.no_skip().within(span(bound + random.randint(1, 9)))
    query = query.select("all") if random.random() < 0.7 else query
    if windowed:
        slide, offset = random.randint(1, 6), random.choice([0, 0, random.randint(-4, 4)])
        spans = map(span, (bound + random.randint(1, 8), slide, offset))
        size, slide_by, begin = spans
        over = windows.time(size, slide=slide_by, offset=begin)
        query = query.over(over, duplicates=True, numbered=random.random() < 0.7)
    by_key = clocks.by_key and random.random() < 0.7
    return query.uncertain(span(bound), "key" if by_key else None)


def _with_rows(random: Random, query: Query) -> Query:
    return query.all_rows_per_match() if random.random() < 0.15 else query


def is_large(query: Query) -> bool:
    """Say whether a pattern may have many matches for each start."""
    return query.effective_selection is Selection.ALL


# --- Windows -------------------------------------------------------------------------------------


class BoundedWindows(WindowPredicate):
    """An `a` opens a window where less than three are open; five events or a `d` close it."""

    def opens(self, event: Mapping[str, object], windows: tuple[OpenWindow, ...]) -> bool:
        """Say whether an event opens a window."""
        return event["kind"] == "a" and len(windows) < 3

    def closes(self, event: Mapping[str, object], window: OpenWindow) -> bool:
        """Say whether an event closes a window."""
        return event["kind"] == "d" or window.events >= 5

    def clone(self) -> BoundedWindows:
        """Return another one."""
        return BoundedWindows()

    def state(self) -> bytes:
        """Return nothing: nothing is kept."""
        return b""

    def restore(self, data: bytes) -> None:
        """Go on."""
        assert data == b""


def draw_windows(random: Random, span: SpanMaker) -> WindowSpec:
    """Draw windows of any kind."""
    kinds = ["count", "count", "time", "time", "session", "between", "predicate", "landmark"]
    kind = random.choice(kinds)
    # Most overlap, so that several windows have a match.
    size = random.randint(1, 12)
    slide = random.choice([random.randint(1, 6), random.randint(1, max(1, size // 2))])
    offset = random.choice([0, 0, random.randint(-4, 4)])
    if kind == "count":
        return windows.count(size, slide=slide, offset=offset)
    if kind == "time":
        return windows.time(span(size), slide=span(slide), offset=span(offset))
    if kind == "session":
        return windows.session(span(random.randint(1, 4)))
    if kind == "between":
        return windows.between(open="kind = 'a'", close="kind = 'd'")
    if kind == "predicate":
        return windows.between(predicate=BoundedWindows())
    return random.choice([windows.landmark(), windows.landmark("kind = 'd'")])


# --- Operators of users --------------------------------------------------------------------------


class PairFinder(EventOperator):
    """Finds an a with the next b behind it, event by event, and tells at the end what waits."""

    output = pa.schema([("first", pa.int64()), ("last", pa.int64())])

    def __init__(self) -> None:
        self.first: object = None

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        """Take an event."""
        if event["kind"] == "b" and self.first is not None:
            first, self.first = self.first, None
            yield {"first": first, "last": event["id"]}
        elif event["kind"] == "a":
            self.first = event["id"]

    def close(self) -> Mapping[str, Sequence[object]]:
        """Tell what waits."""
        waits = [] if self.first is None else [self.first]
        return {"first": waits, "last": [None] * len(waits)}

    def state(self) -> bytes:
        """Return what waits."""
        return json.dumps(self.first).encode()

    def restore(self, data: bytes) -> None:
        """Go on."""
        self.first = json.loads(data)


class Total(Operator):
    """Adds up the values of a window, of whole columns, and tells the sum when it closes."""

    output = pa.schema([("events", pa.int64()), ("total", pa.int64())])

    def __init__(self) -> None:
        self.events, self.total = 0, 0

    def process(self, events: pa.Table) -> None:
        """Take events."""
        self.events += events.num_rows
        self.total += sum(value or 0 for value in events["v"].to_pylist())

    def close(self) -> dict[str, list[int]]:
        """Tell the sum."""
        return {"events": [self.events], "total": [self.total]}

    def state(self) -> bytes:
        """Return the sums."""
        return json.dumps([self.events, self.total]).encode()

    def restore(self, data: bytes) -> None:
        """Go on."""
        self.events, self.total = json.loads(data)


class Sums(SharedOperator):
    """Adds up the values of all windows at once, and tells each sum when its window closes."""

    output = Total.output

    def __init__(self) -> None:
        self.rows, self.total = 0, 0
        self.before: dict[int, tuple[int, int]] = {}

    def process_windows(self, block: WindowBlock) -> WindowRows:
        """Take events."""
        values = [value or 0 for value in block.events["v"].to_pylist()]
        totals = list(itertools.accumulate(values, initial=self.total))
        for number, row in zip(block.opened.tolist(), block.first.tolist(), strict=True):
            self.before[number] = self.rows + row, totals[row]
        begun = [self.before.pop(number) for number in block.closed.tolist()]
        ends = [(self.rows + row, totals[row]) for row in block.stop.tolist()]
        self.rows, self.total = self.rows + len(values), totals[-1]
        pairs = list(zip(begun, ends, strict=True))
        events = [end[0] - begin[0] for begin, end in pairs]
        total = [end[1] - begin[1] for begin, end in pairs]
        return WindowRows({"events": events, "total": total}, block.closed)

    def state(self) -> bytes:
        """Return the sums."""
        return json.dumps([self.rows, self.total, list(self.before.items())]).encode()

    def restore(self, data: bytes) -> None:
        """Go on."""
        self.rows, self.total, before = json.loads(data)
        self.before = {number: tuple(begin) for number, begin in before}


def draw_operator_query(random: Random, span: SpanMaker, *, windowed: bool) -> QueryCase:
    """Draw an operator of a user, over windows or not."""
    query = Query("q").order_by("ts").apply(random.choice([PairFinder, Total, Sums]))
    if windowed:
        query = query.over(draw_windows(random, span), numbered=random.random() < 0.7)
    return QueryCase(query)


# --- Schedulers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backwards(Scheduler):
    """A scheduler of a user."""

    def assign(self, window: Candidate, loads: Sequence[float]) -> int:
        """Return an instance."""
        return len(loads) - 1 - window.number % len(loads)


def draw_instances(random: Random, query: Query) -> Query:
    """Share the windows of a query among instances."""
    asked: list[Scheduler | None] = [
        None,
        schedulers.RoundRobin(),
        schedulers.Batches(),
        schedulers.Batches(random.randint(1, 3)),
        schedulers.LeastLoaded(),
        schedulers.ByKey(),
        Backwards(),
    ]
    return query.instances(random.randint(1, 4), random.choice(asked))
