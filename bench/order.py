"""How many events a second each kind of disorder brings into order, in process, on one core.

Run `python bench/order.py`; `--help` lists the options. One event in five is out of order: late by
an exponential delay with a mean of 50 events. Events have a time, a value, a sequence number and a
time of arrival, and come in blocks. Each kind orders them with the piece as the moment of arrival,
and with a column that tells it event by event; `Sequence` has one source, and twenty, which a
column names. The time covers all of `push`, from the table to the table in order; the first tenth
does not count. Prints a JSON object for each kind.

Then queries that allow for clocks that drift, each in turns with the query that does not: windows
by time, count and session with a drift of a twentieth, and patterns whose order is uncertain within
half of the time from one event to the next, and within twice that time. Their events are in order.

Then joins of two sides with half of the events each, in order, where three rows of four have a
partner: as tables, and as streams, with a thousand keys and with a key for each pair.

Then `op.Speculative` with a K of 1 s, whose events go on at once (alpha is 0), in turns with
`op.KSlack`: one event in twenty late by up to 1 s, and all in order, each with few matches (one in
a thousand events) and with many (one in seven). Its times are those of the processor.

Last, a hundred queries in one group (`op.group`), block by block in turns with each of them by
itself, over a quarter of the events; `ratio` is how much more processor time the runs take, but for
the first tenth. The queries of `group` differ in thresholds and in three K, those of `group-within`
in thresholds and in WITHIN, and those of `group-mixed` in all of these and in nine patterns. Those
of `group-strict` differ in thresholds, and their pattern is strict.
"""

import argparse
import json
import os
import time

import numpy as np
import pyarrow as pa

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind

#: Units of time from one event to the next, in microseconds.
STEP = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4_000_000, help="events")
    parser.add_argument("--block", type=int, default=65_536, help="events of a block")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="kinds, with commas")
    options = parser.parse_args()
    lines = {
        **{name: (measured, *given) for name, given in kinds().items()},
        **{name: (beside, queries) for name, queries in allowing().items()},
        **{
            f"join-{how}-{keys}": (joined, how, keys)
            for how in ("inner", "left")
            for keys in (1000, options.n // 2)
        },
        **{name: (speculating, *given) for name, given in speculations().items()},
        **{name: (grouped, differs) for name, differs in groups().items()},
    }
    chosen = options.only.split(",") if options.only else [*lines]
    if unknown := {*chosen} - {*lines}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(lines)}")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for name, (measure, *given) in lines.items():
        if name in chosen:
            print(json.dumps(measure(name, *given, options)), flush=True)


def kinds():
    """Return the kinds with the number of their sources, by name."""
    made = {
        "slack": (op.KSlack, {"slack": "5 ms"}),
        "mp": (op.MPKSlack, {}),
        "quantile": (op.Quantile, {"share": 0.999}),
        "ldop": (op.LDOP, {"window": "1 s", "low": 5, "high": 5}),
        "aq": (op.AQKSlack, {"aggregate": "sum", "column": "v", "window": "1 s"}),
    }
    plain = {name: (kind(**given), 1) for name, (kind, given) in made.items()}
    by_event = {
        f"{name}-by-event": (kind(**given, arrival="at"), 1) for name, (kind, given) in made.items()
    }
    sequence = op.Sequence("100 ms", arrival="at", deviations=8)
    return {**plain, **by_event, "sequence": (sequence, 1), "sequence-20": (sequence, 20)}


def arriving(size, sources):
    """Return events of sources as they arrive."""
    random = np.random.default_rng(1)
    times = np.arange(size) * STEP
    late = random.random(size) < 0.2
    arrival = times + np.where(late, random.exponential(50 * STEP, size), 0).astype(np.int64)
    owner = random.integers(0, sources, size)
    number = np.zeros(size, np.int64)
    for source in range(sources):
        own = owner == source
        number[own] = np.arange(own.sum())
    order = np.argsort(arrival, kind="stable")
    events = pa.table(
        {
            "ts": pa.array(times[order], pa.timestamp("us")),
            "at": pa.array(arrival[order], pa.timestamp("us")),
            "seq": number[order],
            "v": random.random(size)[order],
        }
    )
    if sources == 1:
        return events
    return events.append_column("source", pa.array(np.array(names_of(sources))[owner[order]]))


def names_of(sources):
    return tuple(f"s{source:02}" for source in range(sources))


def measured(name, disorder, sources, options):
    events = arriving(options.n, sources)
    query = op.Query("q").order_by("ts").pattern("A").disorder(disorder)
    bound, ordered = bind(query, events.schema), bind_disorder(query, events.schema)
    names = names_of(sources) if sources > 1 else None
    seconds = []
    for _ in range(options.repeat):
        order = make_order(bound, ordered, events.schema, names)
        late = released = counted = 0
        took = 0.0
        for low in range(0, options.n, options.block):
            block = events.slice(low, options.block)
            started = time.perf_counter()
            given = order.push(EventsArrived(block))
            released += given.rows.num_rows
            late += 0 if given.late is None else given.late.num_rows
            if low >= options.n // 10:
                took += time.perf_counter() - started
                counted += block.num_rows
        seconds.append(took / counted)
    return {
        "kind": name,
        "events": options.n,
        "block": options.block,
        "late": late,
        "slack_us": order.slack,
        "buffered": order.buffered,
        "events_per_s": round(1 / float(np.median(seconds))),
    }


def allowing():
    """Return queries that allow for drift, each with the one that does not, by name."""
    total = op.Query("total").order_by("ts").pattern("A+").measures(v="SUM(v)", n="COUNT(*)")
    windows = {
        "time": (op.windows.time("100 ms"), "5 ms"),
        "sliding": (op.windows.time("100 ms", slide="20 ms"), "5 ms"),
        "count": (op.windows.count(10_000), 500),
        "session": (op.windows.session("50 us"), "2 us"),
    }
    queries = {
        f"drift-{name}": (total.over(kind, duplicates=True), total.over(kind, drift=drift))
        for name, (kind, drift) in windows.items()
    }
    for text in ("A -> B", "A -> !C -> B", "A -> B -> C", "A ->> B"):
        pattern = op.Query("pattern").order_by("ts").pattern(text).within("500 us").no_skip()
        pattern = pattern.define(
            {name: f"kind = {number}" for number, name in enumerate("ABC") if name in text}
        )
        pattern = pattern.measures(a="A.ts", b="B.ts")
        for bound in ("5 us", "20 us"):
            queries[f"uncertain {bound}: {text}"] = pattern, pattern.uncertain(bound)
    return queries


def beside(name, queries, options):
    """Measure the processor time of two queries in turns over a stream."""
    random = np.random.default_rng(2)
    waits = np.where(random.random(options.n) < 0.001, 100, random.integers(5, 15, options.n))
    events = pa.table(
        {
            "ts": pa.array(np.cumsum(waits), pa.timestamp("us")),
            "v": random.random(options.n),
            "kind": random.integers(0, 8, options.n),
        }
    )
    seconds, matches = [[], []], [0, 0]
    for _ in range(options.repeat):
        for which, query in enumerate(queries):
            stream = op.open(query)
            started = time.process_time()
            blocks = range(0, options.n, options.block)
            found = [stream.push(events.slice(low, options.block)).num_rows for low in blocks]
            matches[which] = sum(found) + stream.finish().num_rows
            seconds[which].append(time.process_time() - started)
    certain, allowed = (options.n / float(np.median(took)) for took in seconds)
    return {
        "kind": name,
        "events": options.n,
        "block": options.block,
        "matches": matches[1],
        "matches_certain": matches[0],
        "events_per_s": round(allowed),
        "share_of_certain": round(allowed / certain, 2),
    }


def speculations():
    """Return how many events are late, and how many begin or end a match, by name."""
    return {
        f"speculative{few}{ordered}": (late, part)
        for few, part in (("", 0.01), ("-many", 0.3))
        for ordered, late in (("", 0.05), ("-in-order", 0.0))
    }


def speculating(name, late, part, options):
    """Measure speculation in turns with K-slack."""
    random, times = np.random.default_rng(4), np.arange(options.n) * STEP
    delay = random.integers(0, 1_000_000, options.n)
    arrival = times + np.where(random.random(options.n) < late, delay, 0)
    events = pa.table(
        {
            "ts": pa.array(times[np.argsort(arrival, kind="stable")], pa.timestamp("us")),
            "v": random.random(options.n),
            "key": random.integers(0, 100, options.n),
        }
    )
    query = (
        op.Query("pattern")
        .partition_by("key")
        .order_by("ts")
        .pattern("A -> B")
        .define(A=f"v < {part}", B=f"v > {1 - part}")
        .within(f"{1000 * STEP} us")
        .measures(a="A.ts", b="B.ts")
    )
    kinds = op.KSlack("1 s"), op.Speculative("1 s", alpha=0)
    seconds, rows = [[], []], [0, 0]
    for turn in range(options.repeat + 1):
        for which, kind in enumerate(kinds):
            stream = op.open(query.disorder(kind))
            started = time.process_time()
            blocks = range(0, options.n, options.block)
            found = [stream.push(events.slice(low, options.block)).num_rows for low in blocks]
            rows[which] = sum(found) + stream.finish().num_rows
            if turn:
                seconds[which].append(time.process_time() - started)
    slack, early = (options.n / float(np.median(took)) for took in seconds)
    return {
        "kind": name,
        "events": options.n,
        "block": options.block,
        "matches": rows[0],
        "rows": rows[1],
        "events_per_s": round(early),
        "share_of_slack": round(early / slack, 2),
    }


#: These leave out events that no step can use.
PATTERNS = (
    *("A -> B", "A -> B -> A", "A -> B+", "A -> B? -> A", "B -> A"),
    *("A ->> B", "A -> !C -> B", "B -> A -> C", "A -> (B | C)"),
)


def groups():
    """Return what the queries of a group differ in beside thresholds, by name."""
    return {
        "group": {"slack"},
        "group-within": {"within"},
        "group-mixed": {"slack", "within", "pattern"},
        "group-strict": {"strict"},
    }


def grouped(name, differs, options, count=100):
    """Measure queries of different conditions as a group, in turns with each of them."""
    size = options.n // 4
    events = arriving(size, 1)
    random = np.random.default_rng(3)
    events = events.append_column("key", pa.array(random.integers(0, 100, size)))
    queries = [grouped_query(number, differs) for number in range(count)]
    group, alone = op.open(op.group(*queries)), [op.open(query) for query in queries]
    together = apart = 0.0
    matches = counted = 0
    for low in range(0, size, options.block):
        block = events.slice(low, options.block)
        started = time.process_time()
        found = group.push(block)
        between = time.process_time()
        each = [stream.push(block) for stream in alone]
        ended = time.process_time()
        assert list(found.values()) == each
        if low >= size // 10:
            together += between - started
            apart += ended - between
            counted += block.num_rows
            matches += sum(table.num_rows for table in each)
    return {
        "kind": name,
        "queries": count,
        "events": size,
        "block": options.block,
        "matches": matches,
        "events_per_s": round(counted / together),
        "ratio": round(apart / together, 2),
    }


def grouped_query(number, differs):
    pattern = PATTERNS[number % len(PATTERNS)] if "pattern" in differs else PATTERNS[0]
    pattern = "A B" if "strict" in differs else pattern
    conditions = {
        "A": f"v < {0.005 + number % 10 / 1000}",
        "B": f"v > {0.99 - number % 7 / 1000}",
        "C": "v > 0.5 AND v < 0.505",
    }
    within = 5000 + (50 * number if "within" in differs else 0)
    slack = 1000 + (100 * (number % 3) if "slack" in differs else 0)
    return (
        op.Query(f"q{number}")
        .partition_by("key")
        .order_by("ts")
        .pattern(pattern)
        .define({letter: text for letter, text in conditions.items() if letter in pattern})
        .within(f"{within * STEP} us")
        .measures(a="FIRST(A.ts)", b="LAST(B.ts)")
        .disorder(op.KSlack(f"{slack * STEP} us"))
    )


def joined(name, how, keys, options):
    """Measure a join of tables, and of streams."""
    random, size = np.random.default_rng(3), options.n // 2
    left = np.arange(size) * STEP
    right = left + random.integers(-200 * STEP, 200 * STEP, size)
    order = np.argsort(right, kind="stable")
    key = np.arange(size) % keys
    sides = [
        pa.table({"id": key, "ts": left, "price": random.random(size)}),
        pa.table({"id": key[order], "ts": right[order], "paid": random.random(size)}),
    ]
    given = {"on": "id", "within": 150 * STEP, "time": "ts", "how": how}
    tables, streams = [], []
    for _ in range(options.repeat):
        started = time.perf_counter()
        rows = op.join(*sides, **given).num_rows
        tables.append(time.perf_counter() - started)
        stream = op.open(op.Join(**given), schema=tuple(side.schema for side in sides))
        started, found, kept = time.perf_counter(), 0, 0
        for low in range(0, size, options.block):
            for side, table in zip(("left", "right"), sides, strict=True):
                found += stream.push(table.slice(low, options.block), side).num_rows
            kept = max(kept, stream.rows_kept)
        assert found + stream.finish().num_rows == rows
        streams.append(time.perf_counter() - started)
    return {
        "kind": name,
        "events": 2 * size,
        "block": options.block,
        "rows": rows,
        "rows_kept_max": kept,
        "events_per_s": round(2 * size / float(np.median(streams))),
        "events_per_s_table": round(2 * size / float(np.median(tables))),
    }


if __name__ == "__main__":
    main()
