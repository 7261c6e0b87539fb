"""How many rows a second queries of every kind take in process, on one core: slow kinds stand out.

Run `python bench/cliffs.py`; `--help` lists the options. More than a hundred queries over a table
of ticks and events: constructs of patterns, conditions on earlier events and aggregates, types of
columns, skips, selection and consumption, keys, windows, ways of output. Each runs in a process of
its own that is ended after `--seconds`; a smaller table first, so that nothing is compiled in the
time that counts. The time is that of the processor for all of `op.match`, the least of `--repeat`
runs. Prints a line for each query, the slow ones again at the end, and exits with 1 where one is
below `--least`.
"""

import argparse
import json
import multiprocessing
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import outpace as op


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="rows")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="how long a query may take")
    parser.add_argument("--least", type=float, default=1.0, help="million rows a second")
    parser.add_argument("--only", default="", help="names or parts of them, with commas")
    parser.add_argument("--list", action="store_true", help="print the names alone")
    options = parser.parse_args()
    chosen = {
        name: query
        for name, query in queries().items()
        if any(part in name for part in options.only.split(","))
    }
    if options.list:
        print(*chosen, sep="\n")
        return 0
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    table = events(options.n)
    found = []
    for name, query in chosen.items():
        found.append(apart(name, query, table, options))
        print(json.dumps(found[-1]), flush=True)
    slow = sorted(
        (one for one in found if one["rate"] < options.least), key=lambda one: one["rate"]
    )
    for one in slow:
        print(f"{one['rate']:8.3f} M rows/s  {one['query']}  ({one['matcher']})")
    print(f"{len(found)} queries, {len(slow)} below {options.least:g} M rows/s")
    return 1 if slow else 0


def apart(name, query, table, options):
    """Measure a query in a process of its own."""
    here, there = multiprocessing.Pipe(duplex=False)
    find = timed_out if name.startswith(TIMED_OUT) else op.match
    child = multiprocessing.Process(
        target=measure, args=(find, query, table, options.repeat, there)
    )
    child.start()
    there.close()
    line = {"query": name, "rate": 0.0, "matches": None, "matcher": None}
    deadline = time.monotonic() + options.seconds
    try:
        while here.poll(max(deadline - time.monotonic(), 0)):
            line |= here.recv()
    except EOFError:
        pass
    child.terminate()
    child.join()
    if not line["rate"]:
        line["rate"] = round(table.num_rows / options.seconds / 1e6, 3)
        line["ended"] = True
    return line


def timed_out(table, query):
    """Return the partial matches that time out."""
    return op.search(table, query).timed_out()


def measure(find, query, table, repeat, there):
    """Send what is known of a query, as it becomes known."""
    there.send({"matcher": matcher_of(query, table)})
    find(table.slice(0, WARM), query)
    best = None
    for _ in range(repeat):
        started = time.process_time()
        found = find(table, query)
        took = time.process_time() - started
        best = took if best is None else min(best, took)
        there.send({"rate": round(table.num_rows / best / 1e6, 3), "matches": found.num_rows})
    there.close()


def matcher_of(query, table):
    """Return what `explain` says of the matcher."""
    lines = str(op.explain(query, table.schema)).splitlines()
    return next((line.strip() for line in lines if line.startswith("  match: ")), None)


def events(size):
    """Return ticks of a thousand symbols and users, a tenth of a second apart."""
    random = np.random.default_rng(7)
    start = np.datetime64("2024-01-02T09:00:00", "us")
    steps = random.integers(50_000, 150_000, size).astype("timedelta64[us]")
    times = start + np.cumsum(steps)
    price = np.round(100 + np.cumsum(random.normal(0, 0.05, size)) % 50, 2)
    amount = random.integers(1, 50_000, size)
    kinds = np.array(["view", "login", "buy", "sell", "fail", "ok", "ping", "cart"])
    flags = random.random(size)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "kind": pa.array(kinds[random.integers(0, len(kinds), size)]),
            "user": pa.array(
                np.array([f"u{n:04}" for n in range(5000)])[random.integers(0, 5000, size)]
            ),
            "symbol": pa.array(
                np.array([f"S{n:03}" for n in range(500)])[random.integers(0, 500, size)]
            ),
            "price": pa.array(price),
            "qty": pa.array(random.integers(1, 1000, size).astype(np.int32)),
            "amount": pc.cast(pa.array(amount), pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
            "flag": pa.array([None if f < 0.1 else bool(f < 0.5) for f in flags.tolist()]),
            "day": pa.array(times.astype("datetime64[D]")),
            "due": pa.array(
                times + random.integers(0, 600, size).astype("timedelta64[s]"), pa.timestamp("us")
            ),
            "wait": pa.array(
                random.integers(0, 600, size).astype("timedelta64[s]").astype("timedelta64[us]")
            ),
            "score": pa.array(random.random(size).astype(np.float32)),
            "code": pa.array(random.integers(0, 50, size).astype(np.uint8)),
            "maybe": pa.array(
                np.where(flags < 0.2, 0, random.integers(0, 100, size)), mask=flags < 0.2
            ),
        }
    )


def by_time(pattern, **conditions):
    """Return a query in the order of time, which skips past the last row of a match."""
    query = op.Query("q").order_by("ts").pattern(pattern).define(**conditions)
    return query.measures(first="FIRST(ts)", last="LAST(ts)", n="COUNT(*)")


def queries():
    """Return the queries by name: what they show, and how."""
    made = {}
    made |= constructs()
    made |= earlier_events()
    made |= aggregates()
    made |= types()
    made |= skips()
    made |= windows()
    made |= outputs()
    made |= {f"{TIMED_OUT}{name}": query for name, query in made.items() if name in TIMED}
    return made


#: Queries of which the partial matches that time out are found, too, and how their names begin.
TIMED = (
    *("next A -> B -> C by key", "next A -> B+ -> C", "absence by key", "any A ->> B by key"),
    *("permute by key", "A{3,} B below AVG", "next joined thrice", "previous to current"),
)
TIMED_OUT = "timed out: "
#: So many rows are matched by compiled code, however long that takes to compile.
WARM = 200_000
DOWN, UP = "price < PREV(price)", "price > PREV(price)"
BUY, SELL, LOGIN, FAIL, OK = (f"kind = '{kind}'" for kind in ("buy", "sell", "login", "fail", "ok"))


def constructs():
    """Patterns of every construct, whose conditions read single rows."""
    three = {"A": LOGIN, "B": BUY, "C": SELL}
    return {
        "strict A B": by_time("A B", A=LOGIN, B=BUY),
        "strict V": by_time("S D+ U+", D=DOWN, U=UP),
        "strict V by key": by_time("S D+ U+", D=DOWN, U=UP).partition_by("symbol"),
        "strict A{3,5} B": by_time("A{3,5} B", A=DOWN, B=UP),
        "reluctant A+? B": by_time("A+? B", A="price > 110", B=BUY),
        "possessive A++ B": by_time("A++ B", A="price > 110", B=BUY),
        "alternation (A|B) C": by_time("(A|B) C", **three),
        "alternation (A|B)+ C": by_time("(A|B)+ C", **three),
        "permute": by_time("PERMUTE(A, B, C)", **three),
        "permute by key": by_time("PERMUTE(A, B, C)", **three).partition_by("user"),
        "optional A B? C": by_time("A B? C", **three),
        "groups (A B)+ C": by_time("(A B)+ C", **three),
        "exclusion": by_time("A {- B+ -} C", **three).all_rows_per_match(),
        "anchors": by_time("^ A* B", A="price > 0", B=BUY).partition_by("user"),
        "next A -> B": by_time("A -> B", A=LOGIN, B=BUY).within("1 min"),
        "next A -> B -> C": by_time("A -> B -> C", **three).within("1 min"),
        "next A -> B -> C by key": by_time("A -> B -> C", **three)
        .partition_by("user")
        .within("1 hour"),
        "next A -> B+ -> C": by_time("A -> B+ -> C", **three).within("1 min"),
        "next A{3} -> B": by_time("A{3} -> B", A=FAIL, B=OK).partition_by("user").within("1 hour"),
        "not between A -> !B -> C": by_time("A -> !B -> C", **three).within("1 min"),
        "not next A !B C": by_time("A !B C", **three),
        "absence A -> !B": by_time("A -> !B", A=LOGIN, B=BUY).within("1 min"),
        "absence by key": by_time("A -> !B", A=LOGIN, B=BUY).partition_by("user").within("1 hour"),
        "until": by_time("A -> B(->)+ UNTIL C", **three).within("1 min"),
        "any A ->> B": by_time("A ->> B", A=LOGIN, B=BUY).within("1 s"),
        "any A ->> B by key": by_time("A ->> B", A=LOGIN, B=BUY)
        .partition_by("user")
        .within("1 hour"),
        "any A ->> B ->> C by key": by_time("A ->> B ->> C", **three)
        .partition_by("user")
        .within("1 hour"),
        "any negation by key": by_time("A ->> B -> !C", **three)
        .partition_by("user")
        .within("1 hour"),
        "any repetition by key": by_time("A ->> B(->)+ ->> C", **three)
        .partition_by("user")
        .within("10 min"),
        "seventy variables": by_time(
            " -> ".join(f"V{n}" for n in range(70)),
            **{f"V{n}": f"code = {n % 50}" for n in range(70)},
        ).within("1 hour"),
        "seventy variables by key": by_time(
            " -> ".join(f"V{n}" for n in range(70)),
            **{f"V{n}": f"code = {n % 50}" for n in range(70)},
        )
        .partition_by("symbol")
        .within("1 day"),
        "permute of groups": by_time("PERMUTE(A, B -> C) -> D", D=FAIL, **three)
        .partition_by("user")
        .within("1 hour"),
        "alternation of sequences": by_time("(A B | A C | B C)+ D", D=FAIL, **three),
        "previous to current": by_time("A -> B -> C", **three).within("5 s", "previous to current"),
    }


def earlier_events():
    """Conditions that read earlier events of the match."""
    return {
        "any joined by user": by_time(
            "LOGIN ->> BUY", LOGIN=LOGIN, BUY=f"{BUY} AND user = LOGIN.user"
        ).within("1 min"),
        "any joined thrice": by_time(
            "A ->> B ->> C", A=LOGIN, B=f"{BUY} AND user = A.user", C=f"{SELL} AND user = B.user"
        ).within("10 min"),
        "any joined in part": by_time(
            "A ->> B ->> C",
            A=LOGIN,
            B=f"{BUY} AND user = A.user",
            C=f"{SELL} AND symbol = B.symbol",
        ).within("5 min"),
        "any higher price": by_time(
            "A ->> B", A=f"{LOGIN} AND code = 1", B=f"{BUY} AND price > A.price + 20"
        ).within("1 min"),
        "next joined by user": by_time("A -> B", A=LOGIN, B=f"{BUY} AND user = A.user").within(
            "1 min"
        ),
        "next joined thrice": by_time(
            "A -> B -> C", A=LOGIN, B=f"{BUY} AND user = A.user", C=f"{SELL} AND user = A.user"
        ).within("1 min"),
        "strict higher than first": by_time("A B+", A=LOGIN, B="price > A.price"),
        "match number": by_time(
            "A B+", A=LOGIN, B=f"{DOWN} AND (MATCH_NUMBER() % 2 = 0 OR price > A.price - 1)"
        ),
        "two columns joined": by_time(
            "A -> B -> C",
            A=LOGIN,
            B=f"{BUY} AND user = A.user AND symbol = A.symbol",
            C=f"{SELL} AND user = A.user",
        ).within("1 hour"),
        "until joined": by_time(
            "A -> B(->)+ UNTIL C",
            A=LOGIN,
            B=f"{BUY} AND user = A.user",
            C=f"{SELL} AND user = A.user",
        ).within("5 min"),
        "absence joined": by_time("A -> !B", A=LOGIN, B=f"{BUY} AND user = A.user").within("1 min"),
        "A+ B with FIRST": by_time("A+ B", A="price >= FIRST(A.price)", B=BUY).within("10 min"),
        "A+ with LAST back": by_time(
            "A+ B", A="price >= LAST(A.price, 1) OR LAST(A.price, 1) IS NULL", B=BUY
        ),
        "later by minutes": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND ts - A.ts > INTERVAL '5' MINUTE"
        ).within("1 hour"),
        "later by minutes, any": by_time(
            "A ->> B",
            A=f"{LOGIN} AND code = 3",
            B=f"{BUY} AND code = 3 AND ts - A.ts > INTERVAL '5' MINUTE",
        ).within("10 min"),
        "not joined": by_time(
            "A -> !B -> C", A=LOGIN, B=f"{FAIL} AND user = A.user", C=f"{BUY} AND user = A.user"
        ).within("1 min"),
        "text of the match": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND symbol || user = A.symbol || A.user"
        ).within("10 s"),
        "text LIKE earlier": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND substring(user, 1, 2) = substring(A.user, 1, 2)"
        ).within("1 min"),
        "upper of earlier": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND upper(user) = upper(A.user)"
        ).within("1 min"),
        "decimal of earlier": by_time("A -> B", A=LOGIN, B=f"{BUY} AND amount > A.amount").within(
            "1 min"
        ),
        "boolean of earlier": by_time("A -> B", A=LOGIN, B=f"{BUY} AND flag = A.flag").within(
            "1 min"
        ),
        "date of earlier": by_time("A -> B", A=LOGIN, B=f"{BUY} AND day = A.day").within("1 min"),
        "nulls of earlier": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND maybe IS DISTINCT FROM A.maybe"
        ).within("1 min"),
        "float of earlier": by_time("A -> B", A=LOGIN, B=f"{BUY} AND score > A.score").within(
            "1 min"
        ),
        "interval of earlier": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND wait > A.wait + INTERVAL '10' SECOND"
        ).within("1 min"),
        "hour of earlier": by_time(
            "A -> B", A=LOGIN, B=f"{BUY} AND EXTRACT(HOUR FROM ts) > EXTRACT(HOUR FROM A.due)"
        ).within("1 min"),
    }


def aggregates():
    """Conditions on aggregates of the match so far."""
    return {
        "A{3,} B below AVG": by_time(
            "A{3,} B", A="qty > 100", B="price < 0.98 * AVG(A.price)"
        ).within("10 min"),
        "A+ while SUM": by_time("A+", A="SUM(A.qty) < 10000"),
        "A+ while SUM, next row": by_time("A+", A="SUM(A.qty) < 5000").skip_to_next_row(),
        "A+ while COUNT": by_time("A+ B", A="COUNT(A.qty) <= 20", B=BUY),
        "A -> B+ above MAX": by_time(
            "A -> B+ -> C", A=LOGIN, B=f"{BUY} AND price >= MAX(B.price)", C=SELL
        ).within("1 min"),
        "A+ B with MIN": by_time("A+ B", A="price > 110", B="price > MIN(A.price) * 1.1"),
        "A+ B with STDDEV": by_time(
            "A{5,} B", A="qty > 100", B="price > AVG(A.price) + 2 * STDDEV(A.price)"
        ).within("1 min"),
        "SUM of decimals": by_time("A+", A="SUM(A.amount) < 100000"),
        "COUNT_IF": by_time("A+ B", A="COUNT_IF(A.qty > 500) < 10", B=BUY),
        "SUM by key": by_time("A -> B+ -> C", A=LOGIN, B=f"{BUY} AND SUM(B.qty) < 3000", C=SELL)
        .partition_by("user")
        .within("1 day"),
    }


def types():
    """Columns of every type, in conditions and measures."""
    return {
        "decimal": op.Query("q")
        .order_by("ts")
        .pattern("A B+")
        .define(A="amount > 200", B="amount < PREV(amount)")
        .measures(total="SUM(B.amount)"),
        "decimal arithmetic": by_time(
            "A B+", A="amount * 1.05 > 300", B="amount + 1 < PREV(amount)"
        ),
        "decimal measures": by_time("A B+", A="amount > 200", B=DOWN).measures(
            low="MIN(amount)", mean="AVG(amount)"
        ),
        "timestamps": by_time(
            "A B", A="due > ts + INTERVAL '5' MINUTE", B="due - ts < INTERVAL '1' MINUTE"
        ),
        "dates": by_time("A B", A="day > DATE '2024-01-02'", B="day = PREV(day)"),
        "intervals": by_time(
            "A B+", A="wait > INTERVAL '5' MINUTE", B="wait < PREV(wait)"
        ).measures(most="MAX(wait)"),
        "booleans with NULL": by_time("A B+", A="flag", B="NOT flag"),
        "nulls": by_time("A B+", A="maybe IS NULL", B="maybe > PREV(maybe)"),
        "small integers": by_time("A B+", A="code > 25", B="code < PREV(code)"),
        "floats": by_time("A B+", A="score > 0.5", B="score < PREV(score)"),
        "texts": by_time("A B", A="user LIKE 'u1%'", B="symbol > 'S250'"),
        "text functions": by_time("A B", A="upper(kind) = 'BUY'", B="length(user) = 5"),
        "text measures": by_time("A B+", A=BUY, B=DOWN).measures(
            who="FIRST(user)", what="ARRAY_AGG(kind)"
        ),
        "case": by_time("A B", A="CASE WHEN qty > 500 THEN price ELSE 0 END > 110", B=UP),
        "in list": by_time("A B", A="kind IN ('buy', 'sell')", B="code IN (1, 2, 3)"),
        "regular expression": by_time("A B", A="regexp_like(user, '^u1[0-9]5')", B=BUY),
        "extract": by_time("A B", A="EXTRACT(MINUTE FROM ts) < 30", B=BUY),
    }


def skips():
    """Ways to go on after a match, to select and to consume."""
    three = {"A": LOGIN, "B": BUY, "C": SELL}
    chain = by_time("A -> B -> C", **three).within("10 s")
    timed = by_time("A -> B", A=LOGIN, B=BUY).within("1 s")
    return {
        "skip to next row": chain.skip_to_next_row(),
        "skip past last row": chain.skip_past_last_row(),
        "skip to first B": by_time("A B+", A=LOGIN, B=DOWN).skip_to_first("B"),
        "skip to last B": by_time("A B+", A=LOGIN, B=DOWN).skip_to_last("B"),
        "no skip": by_time("A -> B -> C", **three).within("2 s").select("all").no_skip(),
        "consume selected": chain.consume("selected"),
        "consume selected by key": by_time("A -> B -> C", **three)
        .partition_by("user")
        .within("1 hour")
        .consume("selected"),
        "consume all": chain.consume("all"),
        "consume any": by_time("A ->> B", A=LOGIN, B=BUY).within("1 s").consume("selected"),
        "any joined, past last": by_time("A ->> B", A=LOGIN, B=f"{BUY} AND user = A.user")
        .within("1 min")
        .skip_past_last_row(),
        "any higher by key, next row": by_time("A ->> B", A=LOGIN, B=f"{BUY} AND price > A.price")
        .partition_by("user")
        .within("1 hour")
        .skip_to_next_row(),
        "any higher by key, consumed": by_time("A ->> B", A=LOGIN, B=f"{BUY} AND price > A.price")
        .partition_by("user")
        .within("1 hour")
        .consume("selected"),
        "any higher by key, limited": by_time("A ->> B", A=LOGIN, B=f"{BUY} AND price > A.price")
        .partition_by("user")
        .within("1 hour")
        .limit(3),
        "consume strict": by_time("S D+ U+", D=DOWN, U=UP).consume("selected"),
        "limit": timed.limit(10),
        "limit per start": by_time("A ->> B", A=LOGIN, B=BUY).within("10 s").limit(2, per="start"),
        "select all of repetition": by_time("A B*", A=LOGIN, B=DOWN).select("all"),
    }


def windows():
    """Windows of every kind, with and without keys."""
    three = {"A": LOGIN, "B": BUY, "C": SELL}
    chain, strict = by_time("A -> B -> C", **three), by_time("A B", A=LOGIN, B=BUY)
    kinds = {
        "count": op.windows.count(1000, slide=50),
        "count, tumbling": op.windows.count(1000),
        "time": op.windows.time("1 min", slide="5 s"),
        "time, tumbling": op.windows.time("1 min"),
        "session": op.windows.session("140 ms"),
        "between": op.windows.between(open=f"{LOGIN} AND code = 1", close=f"{OK} AND code = 2"),
        "landmark": op.windows.landmark(f"{OK} AND code = 3"),
    }
    made = {f"window {name}": chain.over(each) for name, each in kinds.items()}
    made |= {f"window {name}, strict": strict.over(each) for name, each in kinds.items()}
    hours = op.windows.time("1 hour", slide="5 min")
    made["window time by 5000 keys"] = chain.partition_by("user").over(hours)
    made["window time by 5000 keys, strict"] = strict.partition_by("user").over(hours)
    made["window count by 5000 keys"] = chain.partition_by("user").over(
        op.windows.count(20, slide=5)
    )
    made["window session by 5000 keys"] = chain.partition_by("user").over(
        op.windows.session("10 min")
    )
    made["window any"] = by_time("A ->> B", A=f"{LOGIN} AND code = 1", B=BUY).over(
        op.windows.time("10 s")
    )
    made["window condition on earlier"] = by_time(
        "A -> B", A=LOGIN, B=f"{BUY} AND user = A.user"
    ).over(op.windows.time("1 min"))
    made["window with aggregate"] = by_time("A+", A="SUM(A.qty) < 10000").over(
        op.windows.time("1 min")
    )
    return made


def outputs():
    """Ways of output."""
    chain = by_time("A B+", A=LOGIN, B=DOWN)
    return {
        "all rows": chain.all_rows_per_match(),
        "all rows, running measures": chain.all_rows_per_match().measures(
            total="SUM(qty)", label="CLASSIFIER()"
        ),
        "all rows, unmatched": chain.all_rows_per_match(unmatched=True),
        "empty matches": by_time("A*", A=LOGIN),
        "many measures": chain.measures(**{f"m{n}": f"SUM(B.qty + {n})" for n in range(20)}),
        "lists": chain.measures(kinds="ARRAY_AGG(B.kind)", said="LISTAGG(B.kind, ',')"),
        "sorted and different": chain.measures(
            sorted="ARRAY_AGG(kind ORDER BY price DESC)", n="COUNT(DISTINCT kind)"
        ),
        "value at the greatest": chain.measures(top="MAX_BY(kind, price)"),
        "match id": chain.measures(id="MATCH_ID()"),
        "match number by key": chain.partition_by("user").measures(number="MATCH_NUMBER()"),
    }


if __name__ == "__main__":
    raise SystemExit(main())
