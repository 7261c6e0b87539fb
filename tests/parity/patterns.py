"""Cases of patterns: every construct, rule and reference, without a key and by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from parity.case import Case, Holds, Row, Run, events, fed, kinds, named, timed, traced

import outpace as op

EVENTS: Final = events(54, 11)
#: Few kinds, so that repetitions are long.
DENSE: Final = events(40, 23, kinds="aabbc")

PATTERNS: Final = (
    *("A", "A B", "A B C", "A B+ C", "A B*? C", "A B{2,3}", "A B{2,3}? C?", "A B{2,}", "A{,2} B"),
    *("A? B", "A B?? C?", "A*", "A+ B+", "(A | B)* C", "(A B C A | A B)", "A | A B", "A B | C+"),
    *(
        "^ A B*",
        "^ (A | B)*",
        "(A | B | D)+ $",
        "(A | B | C)+? $",
        "()",
        "B?",
        "(A B?)+",
        "(A+ B)* C",
    ),
    *("PERMUTE(A, B)", "PERMUTE(A, B, C)", "PERMUTE(A, B+) C", "A !B", "A !B C", "A+ !B C"),
    *("A++ B", "A*+ B C?", "(A | B)++ C", "A B+ UNTIL C"),
    *("A -> B", "A -> B -> C", "A -> B C", "A B -> C", "A -> (B | C) -> D", "A -> B? -> C"),
    *("A -> B+ -> C", "A -> B+? -> C", "A -> B++ -> C", "A -> B{2} -> C", "A -> B{2,} -> C"),
    *("A B(->)+ C", "A -> B(.)+ -> C", "A -> B+ UNTIL D -> C", "A -> (B -> C)+ -> D"),
    *("A -> !B -> C", "A -> !B -> C -> D", "A -> B -> !C -> D", "A -> !B C", "A -> B+ -> !C -> D"),
    *("PERMUTE(A, B) -> C", "^ A -> B", "A -> (B | C | D) $"),
)
WITHIN: Final = (
    *("A B+ C", "A+", "(A | B)+ C", "A -> B", "A -> B -> C", "A -> B+ -> C", "A -> B -> C -> D"),
    *(
        "A -> !B",
        "A -> B -> !C",
        "A -> B+ -> !C",
        "A -> !B -> C",
        "A -> (B | C -> !D)",
        "A -> C -> !A",
    ),
    *("A ->> B", "A ->> B ->> C", "A ->> B+", "A B(->>)+", "A -> B(->>){2}", "A ->> (B | C) ->> D"),
    *("A ->> !B ->> C", "A ->> B -> C", "A -> B ->> C", "A ->> B? ->> C", "A ->> B ->> !C"),
)
RULES: Final = {
    "past last row": lambda query: query.skip_past_last_row(),
    "next row": lambda query: query.skip_to_next_row(),
    "no skip": lambda query: query.no_skip(),
    "to first B": lambda query: query.skip_to_first("B"),
    "to last B": lambda query: query.skip_to_last("B"),
    "all": lambda query: query.select("all"),
    "all, past last row": lambda query: query.select("all").skip_past_last_row(),
    "preferred, no skip": lambda query: query.select("preferred").no_skip(),
    "uses events once": lambda query: query.no_skip().consume("selected"),
    "uses ranges once": lambda query: query.select("all").consume("all"),
    "one per start": lambda query: query.select("all").limit(1, per="start"),
    "two per partition": lambda query: query.no_skip().limit(2),
    "both limits": lambda query: query.select("all").limit(2, per="start").limit(5),
    "previous to current": lambda query: query.within(3, "previous to current"),
}
RULED: Final = ("A B+ C?", "A -> B+ -> C", "A ->> B ->> C")


def _value(rows: Sequence[Row], event: int, back: int = 0) -> float | None:
    return rows[event + back]["v"] if 0 <= event + back < len(rows) else None


def _above(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and left > right


def _values(rows: Sequence[Row], run: Run, names: str) -> list[int]:
    """Return the values that are there of the events which a run has as some variables."""
    return [v for event, name in run if name in names and (v := rows[event]["v"]) is not None]


def _last(rows: Sequence[Row], run: Run, names: str, back: int = 0) -> float | None:
    taken = [rows[event]["v"] for event, name in run if name in names]
    return taken[-1 - back] if len(taken) > back else None


def _with_own(rows: Sequence[Row], event: int, run: Run, name: str) -> Run:
    return (*run, (event, name))


def _is(kind: str, rows: Sequence[Row], event: int) -> bool:
    return bool(rows[event]["kind"] == kind)


def _mean_exceeded(rows: Sequence[Row], event: int, run: Run) -> bool:
    before = _values(rows, run, "B")
    own = rows[event]["v"]
    if not _is("b", rows, event) or own is None:
        return False
    return not before or own > sum(before) / len(before)


#: By name: the pattern, the definitions as text, and the same in Python.
REFERENCES: Final[dict[str, tuple[str, dict[str, str], dict[str, Holds]]]] = {
    "PREV": (
        "S DOWN+ UP+",
        {"DOWN": "v < PREV(v)", "UP": "v > PREV(v)"},
        {
            "S": lambda rows, event, run: True,
            "DOWN": lambda rows, event, run: _above(_value(rows, event, -1), _value(rows, event)),
            "UP": lambda rows, event, run: _above(_value(rows, event), _value(rows, event, -1)),
        },
    ),
    "PREV by two": (
        "A U+",
        {"U": "v > PREV(v, 2)"},
        {"U": lambda rows, event, run: _above(_value(rows, event), _value(rows, event, -2))},
    ),
    "NEXT": (
        "PEAK -> B",
        {"PEAK": "v > NEXT(v)"},
        {"PEAK": lambda rows, event, run: _above(_value(rows, event), _value(rows, event, 1))},
    ),
    "a variable": (
        "A -> B -> C",
        {"B": "kind = 'b' AND v > A.v"},
        {
            "B": lambda rows, event, run: (
                _is("b", rows, event) and _above(_value(rows, event), _last(rows, run, "A"))
            )
        },
    ),
    "FIRST": (
        "A U+",
        {"U": "v > FIRST(A.v)"},
        {"U": lambda rows, event, run: _above(_value(rows, event), _last(rows, run, "A"))},
    ),
    "LAST before itself": (
        "A (B | C)+",
        {"B": "kind = 'b' AND (LAST(B.v, 1) IS NULL OR v > LAST(B.v, 1))"},
        {
            "B": lambda rows, event, run: (
                _is("b", rows, event)
                and (
                    _last(rows, run, "B") is None
                    or _above(_value(rows, event), _last(rows, run, "B"))
                )
            )
        },
    ),
    "AVG": (
        "A B+ C?",
        {
            "B": "kind = 'b' AND (COUNT(B.v) = 1 OR v > (SUM(B.v) - v) / (COUNT(B.v) - 1.0))"
            " AND v IS NOT NULL"
        },
        {"B": _mean_exceeded},
    ),
    "SUM": (
        "U+",
        {"U": "SUM(U.v) <= 30"},
        {
            "U": lambda rows, event, run: (
                bool(own := _values(rows, _with_own(rows, event, run, "U"), "U")) and sum(own) <= 30
            )
        },
    ),
    "COUNT": (
        "A U* C",
        {"U": "COUNT(U.v) <= 2"},
        {
            "U": lambda rows, event, run: (
                len(_values(rows, _with_own(rows, event, run, "U"), "U")) <= 2
            )
        },
    ),
    "MIN and MAX": (
        "U{2,}",
        {"U": "MAX(U.v) - MIN(U.v) < 9"},
        {
            "U": lambda rows, event, run: (
                bool(own := _values(rows, _with_own(rows, event, run, "U"), "U"))
                and max(own) - min(own) < 9
            )
        },
    ),
    "next, a path": (
        "A -> B+ -> C",
        {"B": "kind = 'b' AND v > LAST(A.v)", "C": "kind = 'c' AND v < LAST(B.v)"},
        {
            "B": lambda rows, event, run: (
                _is("b", rows, event) and _above(_value(rows, event), _last(rows, run, "A"))
            ),
            "C": lambda rows, event, run: (
                _is("c", rows, event) and _above(_last(rows, run, "B"), _value(rows, event))
            ),
        },
    ),
    "any, a path": (
        "A ->> B ->> C",
        {"C": "kind = 'c' AND v > B.v"},
        {
            "C": lambda rows, event, run: (
                _is("c", rows, event) and _above(_value(rows, event), _last(rows, run, "B"))
            )
        },
    ),
    "negation, a path": (
        "A -> !B -> C",
        {"B": "kind = 'b' AND v > A.v"},
        {
            "B": lambda rows, event, run: (
                _is("b", rows, event) and _above(_value(rows, event), _last(rows, run, "A"))
            )
        },
    ),
}

MEASURES: Final = {
    "n": "MATCH_NUMBER()",
    "label": "CLASSIFIER()",
    "first": "FIRST(id)",
    "last": "LAST(id)",
    "last_b": "LAST(B.id)",
    "second_b": "FIRST(B.id, 1)",
    "earlier_b": "LAST(B.id, 1)",
    "before": "PREV(A.v)",
    "after": "NEXT(LAST(id))",
    "rows": "COUNT(*)",
    "values": "COUNT(B.v)",
    "kinds": "COUNT(DISTINCT kind)",
    "sum": "SUM(B.v)",
    "mean": "AVG(price)",
    "least": "MIN(v)",
    "most": "MAX(S.v)",
    "ids": "ARRAY_AGG(S.id)",
    "either": "COALESCE(LAST(B.v), FIRST(A.v), -1)",
    "span": "LAST(ts) - FIRST(ts)",
}


def _patterns() -> Iterator[Case]:
    for text in PATTERNS:
        yield Case(text, traced(text), EVENTS, fed(EVENTS))
    for text in PATTERNS[::2]:
        yield Case(f"{text}, by key", traced(text).partition_by("key"), EVENTS, fed(EVENTS))
    for text in WITHIN:
        for keys in ((), ("key",)):
            query = traced(text).within(8).partition_by(*keys)
            yield Case(f"{text} within 8{_keyed(keys)}", query, EVENTS, fed(EVENTS))
    for text in RULED:
        for name, rule in RULES.items():
            query = rule(traced(text).within(7))
            yield Case(f"{text}, {name}", query, DENSE, fed(DENSE, (3, 1, 11)))


def _keyed(keys: tuple[str, ...]) -> str:
    return ", by key" if keys else ""


def _references() -> Iterator[Case]:
    for name, (text, definitions, holds) in REFERENCES.items():
        for keys in ((), ("key",)):
            query = traced(text, **definitions).within(15).partition_by(*keys)
            yield Case(f"{name}{_keyed(keys)}", query, EVENTS, fed(EVENTS), holds=holds)
    numbered = traced("A U", U="id % 2 = MATCH_NUMBER() % 2")
    yield Case("MATCH_NUMBER in a definition", numbered, EVENTS, fed(EVENTS))
    union = traced("A B? C", C="v > LAST(S.v)").subset(S=["A", "B"])
    yield Case("a subset in a definition", union, EVENTS, fed(EVENTS))


def _outputs() -> Iterator[Case]:
    base = kinds("A B* C?").subset(S=["A", "B"]).measures(MEASURES)
    running = {f"running_{name}": f"RUNNING {MEASURES[name]}" for name in ("sum", "last_b", "rows")}
    final = {f"final_{name}": f"FINAL {MEASURES[name]}" for name in ("sum", "last_b", "rows")}
    yield Case("one row", base.partition_by("key"), EVENTS, fed(EVENTS))
    rows = base.measures(running).measures(final).all_rows_per_match()
    yield Case("all rows", rows, EVENTS, fed(EVENTS))
    yield Case("all rows, by key", rows.partition_by("key"), EVENTS, fed(EVENTS))
    excluded = kinds("A {- B+ -} C?").measures(c="CLASSIFIER()", n="RUNNING COUNT(*)")
    yield Case("all rows, exclusion", excluded.all_rows_per_match(), EVENTS, fed(EVENTS))
    empty = kinds("B*").measures(n="MATCH_NUMBER()", c="CLASSIFIER()", rows="COUNT(*)")
    yield Case("empty matches", empty, EVENTS, fed(EVENTS))
    yield Case("empty matches shown", empty.all_rows_per_match(), EVENTS, fed(EVENTS))
    omitted = empty.all_rows_per_match(empty="omit")
    yield Case("empty matches omitted", omitted, EVENTS, fed(EVENTS))
    unmatched = kinds("A B+").measures(n="MATCH_NUMBER()", c="CLASSIFIER()")
    unmatched = unmatched.all_rows_per_match(unmatched=True)
    yield Case("unmatched rows", unmatched, EVENTS)
    yield Case("unmatched rows, by key", unmatched.partition_by("key"), EVENTS)
    pairs = kinds("A ->> B").within(6).measures(n="MATCH_NUMBER()", c="CLASSIFIER()")
    yield Case("all rows of all", pairs.all_rows_per_match(), EVENTS, fed(EVENTS))
    bare = kinds("A -> B").within(9)
    yield Case("no measures", bare, EVENTS, fed(EVENTS))
    yield Case("no measures, by two keys", bare.partition_by("key", "v"), EVENTS, fed(EVENTS))


def _inputs() -> Iterator[Case]:
    falls = traced("A -> B -> C").within("8 s")
    stamped = timed(EVENTS)
    yield Case("timestamps", falls, stamped, fed(stamped))
    yield Case("timestamps, absence", traced("A -> !B").within("6 s"), stamped, fed(stamped))
    mixed = EVENTS.take(pa.array([number * 31 % 54 for number in range(54)]))
    yield Case("a table in any order", traced("A B+").order_by("ts", "id"), mixed)
    yield Case("descending", traced("A B+").order_by("ts desc", "id"), mixed)
    yield Case("by value, nulls first", traced("A -> B").order_by("v nulls first", "id"), EVENTS)
    yield Case("no rows", traced("A -> B").within(5), EVENTS.slice(0, 0))
    small = EVENTS.set_column(
        2, "kind", EVENTS["kind"].dictionary_encode().cast(pa.dictionary(pa.int32(), pa.string()))
    )
    yield Case("a dictionary", traced("A -> B"), small, fed(small))
    prices = kinds("A -> B", B="price > A.price * 1.5 AND kind LIKE '_'").within(20)
    prices = prices.measures(ratio="B.price / A.price", text="UPPER(A.kind) || B.key")
    yield Case("prices", prices, EVENTS, fed(EVENTS))
    clause = """MATCH_RECOGNIZE (
        PARTITION BY key ORDER BY ts
        MEASURES FIRST(a.id) AS first_id, LAST(b.id) AS last_id, COUNT(*) AS n
        ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
        PATTERN (a b{1,2}) DEFINE a AS kind = 'a', b AS kind <> 'a')"""
    yield Case("a clause", op.Query.from_sql(clause), EVENTS, fed(EVENTS))


CASES: Final = named((*_patterns(), *_references(), *_outputs(), *_inputs()))
