"""Saved states with a right checksum and content that nobody wrote, and what comes of them.

`python -m support.hostile_states SEED COUNT` tries so many and prints what went wrong: anything
but a `StateError` at `resume`, or a stream that goes on and raises nothing but errors of the
library.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import random
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from support.disorders import KINDS

import outpace as op
from outpace.engine.state import State
from outpace.errors import OutpaceError, StateError
from outpace.pattern.windows import WindowPredicate
from outpace.plan.stream_plan import plan_stream
from outpace.testing.stream_chain import Chain

EXTREMES = [0, 1, -1, 2, 7, 63, 64, 1000, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**62), -5]


class Count(op.EventOperator):
    """Counts the events of a window."""

    output = pa.schema([("events", pa.int64())])

    def __init__(self) -> None:
        self.events = 0

    def on_event(self, event: dict[str, object]) -> list[dict[str, object]]:
        self.events += 1
        return [{"events": self.events}] if self.events % 3 == 0 else []

    def close(self) -> dict[str, list[object]]:
        return {"events": [self.events]}

    def state(self) -> bytes:
        return json.dumps(self.events).encode()

    def restore(self, data: bytes) -> None:
        self.events = int(json.loads(data))


class Tens(WindowPredicate):
    """Windows of ten events, from every fourth one on."""

    def opens(self, event: Any, windows: Any) -> bool:
        return event["x"] % 4 == 0

    def closes(self, event: Any, window: Any) -> bool:
        return window.events >= 10

    def clone(self) -> Tens:
        return Tens()

    def state(self) -> bytes:
        return b"{}"

    def restore(self, data: bytes) -> None:
        json.loads(data)


def _rows(begin: int, end: int) -> pa.Table:
    times = range(begin, end)
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()),
            "key": [("a", "b", "c", "dd", None)[(t * t // 3) % 5] for t in times],
            "seq": pa.array(times, pa.int64()),
            "x": pa.array([t * 7919 % 13 for t in times], pa.int64()),
            "price": [float(t * 31 % 17) for t in times],
        }
    )


def queries() -> dict[str, tuple[op.Query, dict[str, Any]]]:
    """Return queries of many kinds, and how each is opened."""
    base = op.Query("q").order_by("ts")
    rise = base.pattern("A B+ C").define(B="price > PREV(price)", C="x > A.x").measures(at="C.ts")
    plain = base.pattern("A B").define(A="x < 5", B="x > 5").measures(at="B.ts", n="COUNT(*)")
    pairs = base.pattern("A ->> B").define(A="x = 1", B="x = 2").within(40).measures(at="B.ts")
    chain = base.pattern("A -> B -> C").define(A="x = 1", B="x = 2", C="x = 3").measures(at="C.ts")
    windows = {
        "count": op.windows.count(20, 5),
        "tumbling": op.windows.count(20),
        "time": op.windows.time(20, 5),
        "session": op.windows.session(2),
        "between": op.windows.between("x = 1", "x = 2"),
        "predicate": op.windows.between(predicate=Tens()),
        "landmark": op.windows.landmark("x = 1"),
    }
    made: dict[str, tuple[op.Query, dict[str, Any]]] = {
        "plain": (plain.within(9), {}),
        "rise": (rise.within(30), {"timeouts": True}),
        "pairs": (pairs, {}),
        "chain": (chain.within(50), {}),
        "limit": (chain.limit(2, per="partition") if hasattr(op.Query, "limit") else chain, {}),
        "sources": (plain.within(9), {"sources": ["east", "west"]}),
        "reordered": (plain.within(9).disorder(op.KSlack(4)), {"sources": ["east", "west"]}),
        "early sources": (
            plain.within(9).disorder(op.Speculative(4, alpha=0)),
            {"sources": ["east", "west"]},
        ),
        "applied": (base.apply(Count), {}),
    }
    made |= {name: (plain.within(9).disorder(make()), {}) for name, make in KINDS.items()}
    for name in ("plain", "rise", "chain", "pairs", "applied"):
        query, how = made[name]
        made[f"{name} by key"] = (query.partition_by("key"), how)
    for name, over in windows.items():
        for kind, query in {"plain": plain, "rise": rise, "chain": chain, "pairs": pairs}.items():
            made[f"{kind} {name}"] = (query.over(over), {})
            if kind in ("plain", "chain"):
                made[f"{kind} {name} by key"] = (query.partition_by("key").over(over), {})
        made[f"applied {name}"] = (base.apply(Count).over(over), {})
        made[f"applied {name} by key"] = (base.apply(Count).partition_by("key").over(over), {})
    return made


def groups() -> dict[str, tuple[op.QueryGroup, dict[str, Any]]]:
    """Return queries that share a stream: a chain of K-slacks, another order, one of its own."""
    base = op.Query("a").order_by("ts").pattern("A B").define(A="x < 5", B="x > 5").within(9)
    base = base.measures(at="B.ts", n="COUNT(*)")
    soon, late = base.disorder(op.KSlack(2)), base.partition_by("key").disorder(op.KSlack(6))
    other = base.over(op.windows.time(20, 5)).disorder(op.MPKSlack())
    named = {"a": soon, "b": late, "c": other, "d": base}
    return {"group": (op.group(*(replace(one, name=name) for name, one in named.items())), {})}


def _push(stream: Any, begin: int, end: int) -> None:
    if getattr(stream, "_identifiers", None) is None:
        stream.push(_rows(begin, end))
    else:
        for source in stream._identifiers:
            stream.push(_rows(begin, end), source=source)


def saved(query: Any, how: dict[str, Any], events: int) -> bytes:
    """Return the state of a stream after some events."""
    stream = op.open(query, **how)
    _push(stream, 0, events)
    return stream.state()


def goes_on(query: Any, how: dict[str, Any], state: bytes, events: int) -> str:
    """Go on from a state; return what came of it."""
    timeouts = how.get("timeouts", False)
    try:
        stream = op.resume(query, state, timeouts=timeouts)
    except StateError:
        return "refused"
    try:
        _push(stream, events, events + 30)
        stream.state()
        _push(stream, events + 30, events + 200)
        stream.finish()
    except OutpaceError:
        return "failed"
    return "done"


def hostile(state: bytes, choose: random.Random) -> bytes:
    """Return a state with something else in it, whose checksum fits."""
    if choose.random() < 0.1:
        return _damaged(state, choose)
    return _changed_part(State.decode(state), choose).encode()


def _changed_part(state: State, choose: random.Random) -> State:
    header, tables, parts = dict(state.numbers), list(state.tables), dict(state.parts)
    if parts and choose.random() < 0.9:
        name = choose.choice(list(parts))
        parts[name] = _changed_part(parts[name], choose)
        if choose.random() < 0.03:
            del parts[name]
        return State(header, tables, parts)
    for _ in range(choose.choice([1, 1, 1, 2, 4])):
        if header and choose.random() < 0.2:
            _change_header(header, choose)
        elif tables:
            place = choose.randrange(len(tables))
            tables[place] = _changed(tables[place], choose)
            if choose.random() < 0.03:
                choose.choice([tables.pop, tables.reverse, lambda: tables.append(tables[0])])()
    return State(header, tables, parts)


def _change_header(header: dict[str, Any], choose: random.Random) -> None:
    name = choose.choice(list(header))
    deep: Any = []
    for _ in range(choose.choice([1, 400])):
        deep = [deep]
    value = header[name]
    act = choose.randrange(6)
    if act == 0:
        del header[name]
    elif act == 1:
        header[name] = choose.choice([None, "x", 1.5, True, [], {}, 10**30, deep])
    elif act == 2 and isinstance(value, list) and value:
        value[choose.randrange(len(value))] = choose.choice([*EXTREMES, None, "x", [], 10**30])
    elif act == 3 and isinstance(value, list) and value:
        choose.choice([value.pop, value.reverse, lambda: value.append(value[0])])()
    else:
        header[name] = choose.choice(EXTREMES)


def _changed(table: pa.Table, choose: random.Random) -> pa.Table:
    rows, names = table.num_rows, table.column_names
    act = choose.randrange(12)
    if act == 0 and rows:
        return table.slice(choose.randrange(rows), choose.randrange(rows + 1))
    if act == 1 and rows:
        return table.take(pa.array([choose.randrange(rows) for _ in range(rows)], pa.int64()))
    if act == 2 and rows:
        return pa.concat_tables([table, table])
    if act == 3 and names:
        return table.drop_columns([choose.choice(names)])
    if act == 4:
        return table.append_column("more", pa.array(range(rows), pa.int64()))
    if not names:
        return table
    index = choose.randrange(len(names))
    column = table.column(index)
    values = column.to_pylist()
    kind: pa.DataType = column.type
    if act == 5:
        other = [pa.int32(), pa.float64(), pa.string(), pa.binary(), pa.list_(pa.int64())]
        return table.set_column(index, names[index], pa.nulls(rows, choose.choice(other)))
    if not values:
        return table
    row = choose.randrange(rows)
    if act == 6:
        values[row] = None
    elif pa.types.is_integer(kind) and act < 9:
        values[row] = choose.choice(EXTREMES)
    elif pa.types.is_integer(kind) and values[row] is not None:
        shift = choose.choice([-2, -1, 1, 2, 5])
        values = [
            v if v is None or (i < row and act == 9) else v + shift for i, v in enumerate(values)
        ]
    elif pa.types.is_binary(kind):
        values[row] = (values[row] or b"")[: choose.randrange(20)]
    elif pa.types.is_list(kind):
        values[row] = [choose.choice(EXTREMES) for _ in range(choose.randrange(4))]
    try:
        return table.set_column(index, names[index], pa.array(values, kind))
    except (pa.ArrowException, OverflowError):
        return table


def _damaged(state: bytes, choose: random.Random) -> bytes:
    """Flip bytes behind the header, or the header's length, and compute the checksum again."""
    import struct
    import zlib

    data = bytearray(state)
    for _ in range(choose.choice([1, 2, 8])):
        data[choose.randrange(12, len(data))] = choose.choice(
            [0, 1, 127, 255, choose.randrange(256)]
        )
    data[8:12] = struct.pack("<I", zlib.crc32(bytes(data[12:])))
    return bytes(data)


def staged(query: op.Query, events: int) -> tuple[Any, Any]:
    """Return a query as the stages of a stream on Spark, after some events, and their packing."""
    plan = plan_stream(query.disorder(op.KSlack(3)), _rows(0, 1).schema, 2)
    chain = Chain(plan.division.stages)
    chain.run(plan.division.packing.pack(_rows(0, events)))
    return chain, plan.division.packing


def stages_go_on(query: op.Query, events: int, choose: random.Random) -> str:
    """Go on with stages of which one has another state; return what came of it."""
    chain, packing = staged(query, events)
    states = choose.choice(chain.states)
    number = choose.randrange(len(states))
    states[number] = hostile(states[number], choose)
    try:
        for begin, end in ((events, events + 30), (events + 30, events + 200)):
            chain.run(packing.pack(_rows(begin, end)))
    except StateError:
        return "refused"
    except OutpaceError:
        return "failed"
    return "done"


def attack(seed: int, count: int, only: str = "") -> collections.Counter[str]:
    """Try so many states; return how often what came of them, and print what must not be."""
    outcomes: collections.Counter[str] = collections.Counter()
    every: dict[str, tuple[Any, dict[str, Any]]] = {**queries(), **groups()}
    made = [one for one in every.items() if only == "staged" or only in one[0]]
    states: dict[tuple[str, int], bytes] = {}
    for number in range(count):
        choose = random.Random(seed * 1_000_003 + number)
        name, (query, how) = choose.choice(made)
        events = choose.choice([1, 17, 60])
        if only == "staged" or (not only and choose.random() < 0.2):
            if name in groups() or how or query.order_of_arrival is not None:
                continue
            if query.windows is not None and choose.random() < 0.5:
                query = query.instances(2)
            run = partial(stages_go_on, query, events, choose)
            _try(f"{seed} {number} staged {name} {events}", run, outcomes)
            continue
        if (name, events) not in states:
            states[name, events] = saved(query, how, events)
            assert goes_on(query, how, states[name, events], events) == "done", name
        state = hostile(states[name, events], choose)
        run = partial(goes_on, query, how, state, events)
        _try(f"{seed} {number} {name} {events}", run, outcomes)
    return outcomes


def _try(name: str, run: Callable[[], str], outcomes: collections.Counter[str]) -> None:
    """Run a case, which is named first: it may end the process, or not end."""
    sys.stderr.write(f"{name}\n")
    signal.alarm(60)
    try:
        outcomes[run()] += 1
    except Exception as error:
        calls = traceback.extract_tb(error.__traceback__)
        if calls[-1].name in ("opens", "closes", "on_event"):
            outcomes["failed"] += 1  # Users' own code was given other events.
            return
        outcomes["wrong"] += 1
        places = [f"{call.filename.rsplit('/', 1)[-1]}:{call.lineno}" for call in calls[-3:]]
        sys.stdout.write(f"{name}: {error!r} at {' '.join(places)}\n")
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    faulthandler.enable()
    arguments = sys.argv[1:]
    sys.stdout.write(f"{dict(attack(int(arguments[0]), int(arguments[1]), *arguments[2:]))}\n")
