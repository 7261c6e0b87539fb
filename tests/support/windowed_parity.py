"""Queries over windows that every host must answer alike: in process, classic and Connect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import outpace as op
from outpace import schedulers, windows
from outpace.files import blocks
from outpace.files import plan as files_plan
from outpace.hosts.spark.files import plan_session_files
from outpace.hosts.spark.schema import arrow_schema
from outpace.pattern.query import Query
from outpace.plan.row_plan import plan_query

SIZE = 900

#: The columns that all results have here, so that one job answers all queries.
COLUMNS = (
    *("first", "last", "n", "m", "x", "x_low", "x_middle", "x_high", "x_spread", "confidence"),
    *("match_event", "window", "window_start", "window_end"),
)


def pattern(text: str) -> Query:
    """A query whose variables are kinds of events."""
    names = [name for name in "ABC" if name in text]
    return (
        op.Query("q")
        .order_by("ts")
        .pattern(text)
        .define({name: f"kind = '{name.lower()}'" for name in names})
        .measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)")
    )


CHAIN = pattern("A -> B -> C")
STRICT = pattern("A B*").skip_to_next_row()
FALLS = pattern("A D+").define(D="v < PREV(v)").measures(m="MATCH_NUMBER()")
PAIRS = pattern("A ->> C").within(9)
TOTAL = op.Query("q").order_by("ts").pattern("A+").measures(x="SUM(ts)")


def bounded() -> windows.Predicate:
    """Windows of a user; made in a function, so that the class travels to tasks as it is."""

    class Bounded(windows.Predicate):
        """A `d` opens a window where less than three are open; each has nine events."""

        def opens(
            self, event: Mapping[str, object], open_windows: tuple[windows.OpenWindow, ...]
        ) -> bool:
            return event["kind"] == "d" and len(open_windows) < 3

        def closes(self, event: Mapping[str, object], window: windows.OpenWindow) -> bool:
            return window.events >= 8

        def clone(self) -> Bounded:
            return Bounded()

    return Bounded()


def operators() -> dict[str, type[op.Operator]]:
    """Operators of users; made in a function, so that they travel to tasks as they are."""

    class Sequence(op.EventOperator):
        """Finds an a with the next b behind it."""

        output = pa.schema([("first", pa.int64()), ("last", pa.int64())])

        def __init__(self) -> None:
            self.first: object = None

        def on_event(self, event: dict[str, object]) -> list[dict[str, object]]:
            if event["kind"] == "b" and self.first is not None:
                first, self.first = self.first, None
                return [{"first": first, "last": event["ts"]}]
            if event["kind"] == "a":
                self.first = event["ts"]
            return []

    class Mean(op.Operator):
        """The mean of v weighted by ts, as the volume-weighted price of a window is."""

        output = pa.schema([("n", pa.int64()), ("m", pa.int64())])

        def __init__(self) -> None:
            self.events, self.weighted, self.weight = 0, 0.0, 0.0

        def process(self, events: pa.Table) -> None:
            self.events += events.num_rows
            self.weighted += pc.sum(pc.multiply(events["v"], events["ts"])).as_py()
            self.weight += pc.sum(events["ts"]).as_py()

        def close(self) -> dict[str, list[int]]:
            return {"n": [self.events], "m": [round(1e6 * self.weighted / self.weight)]}

    class Predict(op.Operator):
        """A model that looks at all events of a window at once."""

        output = pa.schema([("first", pa.int64()), ("m", pa.int64())])

        def process(self, events: pa.Table) -> pa.Table:
            features = np.column_stack([events["v"].to_numpy(), events["ts"].to_numpy() % 10])
            predicted = features @ np.array([3.0, -0.2])
            chosen = np.flatnonzero(predicted > 1)
            times = events["ts"].take(pa.array(chosen))
            scores = np.round(1e6 * predicted[chosen]).astype(np.int64)
            return pa.table({"first": times, "m": scores})

    return {"sequence": Sequence, "mean": Mean, "predict": Predict}


SEQUENCE, MEAN, PREDICT = (
    op.Query("applied").order_by("ts").apply(operator) for operator in operators().values()
)
TIME = windows.time(24, slide=7, offset=3)
COUNT = windows.count(30, slide=8)
BETWEEN = windows.between(open="kind = 'a' AND v < 0.3", close="kind = 'd'")
#: By name: the query, and what its plan on Spark says.
QUERIES = {
    "time": (CHAIN.over(TIME), "divided by time, in batches of windows: 48 windows"),
    "time, numbered": (
        STRICT.over(TIME, numbered=True).instances(3),
        "another pass over the time column",
    ),
    "time, duplicates": (
        PAIRS.over(TIME, duplicates=True, numbered=True).instances(2, schedulers.Batches(5)),
        "batches of windows: 5 windows\n",
    ),
    "time, keyed": (
        CHAIN.partition_by("key").over(windows.time(60, slide=25)).instances(2),
        "tasks that match: 2",
    ),
    "time, keyed, numbered": (
        FALLS.partition_by("key").over(windows.time(60), numbered=True),
        "all keys together: numbers count the events of all keys",
    ),
    "count": (
        STRICT.over(COUNT).instances(3, schedulers.Batches(11)),
        "in batches of windows: 11 windows, and those that overlap them",
    ),
    "count, numbered": (
        FALLS.over(windows.count(40, slide=15, offset=-5), numbered=True).instances(
            2, schedulers.Batches(9)
        ),
        "before that one task orders and splits the packed rows",
    ),
    "count, duplicates": (
        PAIRS.over(COUNT, duplicates=True, numbered=True),
        "in batches of windows: 262,144 rows; before",
    ),
    "count, keyed": (
        CHAIN.partition_by("key").over(windows.count(50, slide=20)).instances(5),
        "divided by key: key",
    ),
    "count, keyed, numbered": (
        CHAIN.partition_by("key").over(windows.count(50, slide=20), numbered=True),
        "divided by key, after one task has numbered the events of all keys: key",
    ),
    "session": (
        CHAIN.over(windows.session(4), numbered=True).instances(4, schedulers.Batches(6)),
        "in batches of windows: 6 windows; before",
    ),
    "between": (
        STRICT.over(BETWEEN, numbered=True).instances(2, schedulers.Batches(3)),
        "3 windows, and those that overlap them",
    ),
    "predicate": (
        CHAIN.over(windows.between(predicate=bounded()), numbered=True).instances(2),
        "262,144 rows, and those that overlap them",
    ),
    "landmark": (
        FALLS.over(windows.landmark("kind = 'd'"), numbered=True).instances(
            2, schedulers.Batches(7)
        ),
        "in batches of windows: 7 windows",
    ),
    "landmark, keyed": (CHAIN.partition_by("key").over(windows.landmark()), "divided by key: key"),
    "drift, time": (
        TOTAL.over(TIME, drift=5, numbered=True),
        "divided by time, in batches of windows: 64 windows",
    ),
    "drift, count, keyed": (
        TOTAL.partition_by("key").over(windows.count(50, slide=20), drift=8),
        "divided by key: key",
    ),
    "drift, session": (
        TOTAL.over(windows.session(4), drift=1, numbered=True).instances(2, schedulers.Batches(3)),
        "in batches of windows: 3 windows; before",
    ),
    "uncertain, time": (
        pattern("A -> B? -> C")
        .no_skip()
        .select("all")
        .over(TIME, duplicates=True, numbered=True)
        .uncertain(5),
        "divided by time, in batches of windows: 64 windows",
    ),
    "operator": (SEQUENCE, "divided not at all: one operator takes all events"),
    "operator, keyed": (SEQUENCE.partition_by("key"), "divided by key: key"),
    "operator, time": (
        MEAN.over(TIME, numbered=True).instances(2, schedulers.Batches(20)),
        "batches of windows: 20 windows\n",
    ),
    "operator, time, keyed": (MEAN.partition_by("key").over(windows.time(90)), "16 windows\n"),
    "operator, count": (
        PREDICT.over(COUNT, numbered=True).instances(3, schedulers.Batches(30)),
        "in batches of windows: 30 windows; before",
    ),
}

#: By name: the folder of the files that a query runs over, and what its plan says.
FILES = {
    "time": ("ordered", "windows: 6 shares"),
    "time, keyed, numbered": ("ordered", "all keys together: numbers count"),
    "time, keyed": ("mixed", "divided by key: key; 2 buckets"),
    "time, numbered": ("mixed", "the rows become a DataFrame"),
    "count, numbered": ("ordered", "windows: 6 shares"),
    "count, keyed": ("ordered", "divided by key: key; 5 buckets"),
    "count, keyed, numbered": ("ordered", "in order and numbers the events of all keys"),
    "session": ("ordered", "columns read to split: ts"),
    "between": ("ordered", "columns read to split: ts, kind, v"),
    "landmark": ("ordered", "columns read to split: ts, kind"),
    "drift, time": ("ordered", "windows: 6 shares"),
    "drift, session": ("ordered", "columns read to split: ts"),
    "operator": ("ordered", "one task reads the row groups in order"),
    "operator, keyed": ("mixed", "divided by key: key; 1 bucket"),
    "operator, time": ("ordered", "windows: 6 shares"),
}

#: What Connect is asked, where each question takes longer: every division, and every way.
CONNECT_FRAME = ("time, keyed, numbered", "count", "count, keyed", "operator, time")
CONNECT_FILES = ("time", "count, keyed", "session", "operator")

Answers: TypeAlias = "dict[str, list[list[int | None]]]"


def events() -> pa.Table:
    """Rows in order, without equal times."""
    numbers = np.random.default_rng(21)
    return pa.table(
        {
            "ts": np.cumsum(numbers.integers(1, 5, SIZE)),
            "kind": numbers.choice(list("abcd"), SIZE),
            "key": numbers.choice(["x", "y", "z"], SIZE),
            "v": numbers.random(SIZE),
        }
    )


def write_files(folder: Path) -> None:
    """Write the rows in order, and in any order, in row groups that are read one by one."""
    table = events()
    mixed = table.take(np.random.default_rng(4).permutation(SIZE))
    for name, rows in (("ordered", table), ("mixed", mixed)):
        (folder / name).mkdir()
        pq.write_table(rows, folder / name / "0.parquet", row_group_size=SIZE // 6)


def from_frame(session: SparkSession, folder: Path, names: Iterable[str] = QUERIES) -> Answers:
    """Return what queries find in a DataFrame, in one job."""
    frame = session.read.parquet(str(folder / "mixed"))
    frames = {}
    for name in names:
        query, said = QUERIES[name]
        text = "\n".join(plan_query(query, arrow_schema(frame)).lines())
        assert said in text, f"{name}: {text}"
        frames[name] = op.match(frame, query)
    return _answers(frames)


def from_files(session: SparkSession, folder: Path, names: Iterable[str] = FILES) -> Answers:
    """Return what queries find in files, each way that there is, in one job."""
    frames = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "UNIT_ROWS", SIZE // 6)
        patch.setattr(files_plan, "BATCH_FACTOR", 2)
        for name in names:
            kind, said = FILES[name]
            files = op.parquet(folder / kind)
            text = "\n".join(plan_session_files(session, files, QUERIES[name][0]).lines())
            assert said in text, f"{name}: {text}"
            frames[name] = op.match(files, QUERIES[name][0])
    return _answers(frames)


def in_process() -> Answers:
    """Return what is found in one table."""
    table = events()
    answers = {}
    for name, (query, _) in QUERIES.items():
        found = op.match(table, query.instances(1)).to_pylist()
        answers[name] = _sorted([[row.get(column) for column in COLUMNS] for row in found])
    return answers


def _answers(frames: dict[str, DataFrame]) -> Answers:
    labelled = [
        found.select(
            sf.lit(name).alias("name"),
            *(
                sf.col(column) if column in found.columns else sf.lit(None).alias(column)
                for column in COLUMNS
            ),
        )
        for name, found in frames.items()
    ]
    answers: Answers = {name: [] for name in frames}
    for name, *match in reduce(DataFrame.union, labelled).collect():
        answers[name].append(match)
    return {name: _sorted(matches) for name, matches in answers.items()}


def _sorted(matches: list[list[int | None]]) -> list[list[int | None]]:
    return sorted(matches, key=repr)
