"""Joins in process: as nested loops over the ordered rows have them, however they are fed."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.joins import LEFT, RIGHT, Rows, joined, some_rows
from support.properties import examples

import outpace as op
from outpace.compiler.kernel import compiled
from outpace.engine.divide.groups import PartitionWork, SortedGroups
from outpace.engine.join_tables import rows_of_side
from outpace.engine.kernels import close_pairs as kernels
from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import (
    BindError,
    DataError,
    MatchError,
    OutpaceError,
    StateError,
    UnsupportedError,
)
from outpace.pattern.bind.join import bind_join

HOW = ("inner", "left")
SCHEMAS = (LEFT, RIGHT)
SEQUENCE = pa.field("seq", pa.int64())
JAM = {"id": [1], "ts": [5], "jam": ["j"]}
STAMP = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
TEA = {"id": [1], "ts": [7], "tea": ["t"]}


def table(rows: Rows, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


@st.composite
def two_sides(draw) -> tuple[Rows, Rows, int, str, np.random.Generator]:
    seed, sizes = draw(st.integers(0, 2**20)), [draw(st.integers(0, 14)) for _ in range(2)]
    left, right = (some_rows(seed, size, side) for side, size in enumerate(sizes))
    return (
        left,
        right,
        draw(st.integers(0, 12)),
        draw(st.sampled_from(HOW)),
        np.random.default_rng(seed),
    )


def fed(join: op.Join, sides: list[Rows], schemas, rng, *, tell: bool = False) -> Rows:
    """Push rows side by side in random cuts, with the state saved and resumed here and there."""
    stream, out, done = op.open(join, schema=tuple(schemas)), [], [0, 0]
    while any(place < len(rows) for place, rows in zip(done, sides, strict=True)):
        side = int(rng.integers(0, 2))
        name, size = ("left", "right")[side], int(rng.integers(1, 5))
        rows = sides[side][done[side] : done[side] + size]
        done[side] += size
        out += stream.push(table(rows, schemas[side]), name).to_pylist()
        if tell and sides[side][done[side] : done[side] + 1]:
            out += stream.heartbeat(name, sides[side][done[side]]["ts"]).to_pylist()
        if rng.random() < 0.2:
            stream = op.resume(join, stream.state())
    return out + stream.finish().to_pylist()


@examples(25)
@given(two_sides())
def test_tables_and_streams_are_joined_as_nested_loops_do(given) -> None:
    left, right, within, how, rng = given
    uncertain = int(rng.integers(1, within + 1)) if within and rng.random() < 0.4 else None
    wanted = joined(left, right, within, how, uncertain)
    sides = [table(rows, schema) for rows, schema in zip((left, right), SCHEMAS, strict=True)]
    settings: Any = {"on": "id", "within": within, "time": "ts", "how": how, "uncertain": uncertain}
    assert op.join(*sides, **settings).to_pylist() == wanted
    join = op.Join(**settings)
    assert fed(join, [left, right], SCHEMAS, rng, tell=bool(rng.integers(0, 2))) == wanted


@examples(25)
@given(two_sides(), st.sampled_from(["drop", "correct"]), st.booleans())
def test_what_a_reorderer_repairs_and_what_late_rows_correct_is_the_join_of_the_rows(
    given, late, numbered
) -> None:
    left, right, within, how, rng = given
    slack = 6
    sides, schemas = [], [schema.append(SEQUENCE) if numbered else schema for schema in SCHEMAS]
    for rows in (left, right):
        for number, row in enumerate(rows):
            row |= {"seq": number} if numbered else {}
        late_by = [row["ts"] + rng.uniform(0, slack) for row in rows]
        sides.append([rows[place] for place in np.argsort(late_by)])
        # Rows of one time without a number come as they came.
        rows[:] = sorted(rows if numbered else sides[-1], key=lambda row: row["ts"])
    uncertain = int(rng.integers(1, within + 1)) if within and rng.random() < 0.4 else None
    settings: Any = {"on": "id", "within": within, "time": "ts", "how": how, "uncertain": uncertain}
    disorder = op.KSlack(slack) if late == "drop" else op.KSlack(1, late=late, horizon=1000)
    came = fed(op.Join(**settings, disorder=disorder), sides, schemas, rng)
    wanted = [tuple(row.values()) for row in joined(left, right, within, how, uncertain)]
    names = ["id", "ts", "ts_left", "v_left", "a", "ts_right", "v_right"]
    names += [] if uncertain is None else ["confidence"]
    shown = [tuple(row[name] for name in names) for row in came]
    if late == "drop":
        assert shown == wanted
        return
    counted: Counter[tuple[Any, ...]] = Counter()
    for values, row in zip(shown, came, strict=True):
        counted[values] += row["diff"]
    assert +counted == Counter(wanted)


@examples(25)
@given(two_sides(), st.integers(1, 6))
def test_an_uncertain_join_has_what_is_true_and_is_sure_of_nothing_else(given, uncertain) -> None:
    true_left, true_right, within, how, rng = given
    seen = [[dict(row) for row in rows] for rows in (true_left, true_right)]
    for row in (row for rows in seen for row in rows):
        # Twice the time, so that a clock may be off by half of the bound.
        row["ts"] = 2 * row["ts"] + int(rng.integers(-uncertain, uncertain + 1))
    for row in (*true_left, *true_right):
        row["ts"] *= 2
    sides = [
        table(sorted(rows, key=lambda row: row["ts"]), schema)
        for rows, schema in zip(seen, SCHEMAS, strict=True)
    ]
    within = 2 * (within + uncertain)
    settings: Any = {"on": "id", "within": within, "time": "ts", "how": how}
    found = op.join(*sides, **settings, uncertain=2 * uncertain).to_pylist()
    ids = {(row["v_left"], row["v_right"]): row["confidence"] for row in found}
    true = {(row["v_left"], row["v_right"]) for row in joined(true_left, true_right, within, how)}
    assert {pair for pair, confidence in ids.items() if confidence == "CONFIRMED"} <= true
    # A left row whose pairs are all in doubt may be alone, which its pairs say.
    assert {pair for pair in true if pair[1] is not None} <= set(ids)
    for alone in (pair[0] for pair in true if pair[1] is None):
        own = {confidence for pair, confidence in ids.items() if pair[0] == alone}
        assert (alone, None) in ids or own == {"UNCERTAIN"}


def test_an_uncertain_join_does_not_go_on_as_another() -> None:
    settings: Any = {"on": "id", "within": 5, "time": "ts"}
    join = op.Join(**settings, uncertain=2)
    stream = op.open(join, schema=tuple(table([], schema).schema for schema in SCHEMAS))
    saved = stream.state()
    with pytest.raises(StateError, match="another `uncertain`"):
        op.resume(op.Join(**settings), saved)
    with pytest.raises(StateError, match="another `uncertain`"):
        op.resume(op.Join(**settings, uncertain=3), saved)


@pytest.mark.parametrize(
    ("uncertain", "error"),
    [
        (6, "must not be longer than within"),
        ("5 ms", "different units"),
        (0, "longer than nothing"),
        (True, "uncertain"),
        ("soon", "uncertain"),
    ],
)
def test_what_is_no_bound_of_a_join_is_refused(uncertain, error) -> None:
    with pytest.raises(OutpaceError, match=error):
        op.Join(on="id", within=5, time="ts", uncertain=uncertain)


def test_a_column_of_an_uncertain_join_cannot_have_the_name_of_the_confidence() -> None:
    sides = [{"id": [1], "ts": [1], "Confidence": [1]}, {"id": [1], "ts": [1], "b": [1]}]
    with pytest.raises(BindError, match="has a column 'confidence' already"):
        op.join(*sides, on="id", within=5, time="ts", uncertain=1)


@pytest.mark.parametrize("numbers", [None, [[1, 0, 2], [2, 1]], [[None, 3, 3], [None, 3]]])
def test_rows_of_one_time_are_in_one_order_however_they_are_joined(numbers) -> None:
    sides = [
        pa.table({"id": [1, 1, 1], "t": [0, 0, 5], "a": [10, 11, 12]}),
        pa.table({"id": [1, 1], "t": [5, 5], "b": [20, 21]}),
    ]
    disorders = [None, op.InOrder(), op.KSlack(1)]
    if numbers is not None:
        sides = [
            side.append_column(SEQUENCE, pa.array(own, pa.int64()))
            for side, own in zip(sides, numbers, strict=True)
        ]
        del disorders[0]  # Their numbers do not rise, which is refused.
    settings: Any = {"on": "id", "within": 9, "time": "t"}
    query = (
        op.Query("q").partition_by("id").order_by("t").pattern("A B")
        .define(A="a = 11", B="a = 12").measures(x="A.b", y="B.b")
    )  # fmt: skip
    whole = op.join(*sides, **settings)
    wanted = op.match(whole, query).to_pylist()
    for disorder in disorders:
        stream = op.open(op.Join(**settings, disorder=disorder), schema=[s.schema for s in sides])
        pattern, rows, found = op.open(query), [], []
        for name, side in (("right", sides[1]), ("left", sides[0])):
            rows.append(stream.push(side, name))
            found += pattern.push(rows[-1]).to_pylist()
        rows.append(stream.finish())
        found += pattern.push(rows[-1]).to_pylist() + pattern.finish().to_pylist()
        assert pa.concat_tables(rows).to_pylist() == whole.to_pylist()
        assert found == wanted
    if numbers is None:
        # The third left row comes before the right ones, which complete its pairs, too.
        assert [(row["x"], row["y"]) for row in wanted] == [(20, 20), (21, 21)]


@pytest.mark.parametrize("how", HOW)
def test_rows_are_kept_as_long_as_a_partner_may_come(how) -> None:
    within, stream = 7, op.open(op.Join(on="id", within=7, time="ts", how=how), schema=SCHEMAS)
    sides = [some_rows(3, 300, side, ids=5, end=400) for side in (0, 1)]
    for place in range(0, 300, 10):
        for name, rows, schema in zip(("left", "right"), sides, SCHEMAS, strict=True):
            stream.push(table(rows[place : place + 10], schema), name)
        taken = [row for rows in sides for row in rows[: place + 10]]
        assert stream.watermark is not None
        bound = sum(row["ts"] >= stream.watermark - within for row in taken)
        assert stream.rows_kept + stream.buffered <= bound
    assert 0 < stream.rows_kept < 60
    stream.heartbeat("left", 10_000)
    stream.heartbeat("right", 10_000)
    assert (stream.rows_kept, stream.partitions) == (0, 0)


def test_a_row_without_a_partner_comes_when_none_can_come_any_more() -> None:
    stream = op.open(op.Join(on="id", within=5, time="ts", how="left"), schema=SCHEMAS)
    stream.push({"id": 1, "ts": 10, "v": 0, "a": "x"}, "left")
    stream.heartbeat("left", 100)
    assert stream.heartbeat("right", 15).num_rows == 0
    (row,) = stream.heartbeat("right", 16).to_pylist()
    assert (row["ts"], row["ts_left"], row["ts_right"]) == (15, 10, None)


@pytest.mark.parametrize("how", HOW)
def test_a_pattern_over_a_join_finds_the_same_in_tables_and_streams(how) -> None:
    sides = [some_rows(8, 60, side, end=200) for side in (0, 1)]
    tables = [table(rows, schema) for rows, schema in zip(sides, SCHEMAS, strict=True)]
    settings: Any = {"on": "id", "within": 9, "time": "ts", "how": how}
    query = (
        op.Query("twice").partition_by("id").order_by("ts").pattern("A -> !B").within(12).no_skip()
        .define(A="v_left > 5", B="v_right > 40").measures(a="A.v_left", at="A.ts")
    )  # fmt: skip
    wanted = op.match(op.join(*tables, **settings), query).to_pylist()
    assert len(wanted) > 5
    stream, pattern = op.open(op.Join(**settings), schema=SCHEMAS), op.open(query)
    found = []
    for place in range(0, 60, 7):
        for name, rows in zip(("left", "right"), tables, strict=True):
            found += pattern.push(stream.push(rows.slice(place, 7), name)).to_pylist()
    # Time passes in the pattern as it does in the join, without another row.
    before = len(found)
    for name in ("left", "right"):
        found += pattern.push(stream.heartbeat(name, 1000)).to_pylist()
    assert len(found) > before
    assert pattern.push(stream.finish()).num_rows == pattern.finish().num_rows == 0
    assert sorted(map(str, found)) == sorted(map(str, wanted))


@pytest.mark.parametrize("how", HOW)
def test_rows_sorted_by_key_are_joined_in_pieces_as_tasks_of_spark_do(how) -> None:
    sides = [some_rows(5, 150, side, ids=2, end=300) for side in (0, 1)]
    bound = bind_join(op.Join(on="id", within=6, time="ts", how=how), *SCHEMAS)
    rows = pa.concat_tables(
        rows_of_side(bound, name, table(side, schema))
        for name, side, schema in zip(("left", "right"), sides, SCHEMAS, strict=True)
    ).sort_by([("id", "ascending"), ("ts", "ascending")])
    spec = OperatorSpec(bound.query, bound.schema, checked=False)
    groups = SortedGroups(PartitionWork(spec, ("id",)), rows_at_once=40)
    found = [part for low in range(0, 300, 17) for part in groups.push(rows.slice(low, 17))]
    found = pa.concat_tables([*found, *groups.finish()]).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, joined(*sides, 6, how)))


def test_several_columns_are_equal_and_names_that_both_have_get_a_suffix() -> None:
    left = {"b": ["x", "y"], "a": [1, 1], "Ts": [3, 4], "v": [1, 2], "source": ["s", "t"]}
    right = {"a": [1, 1], "b": ["y", "x"], "ts": [5, 6], "V": [3, 4], "seq": ["p", "q"]}
    found = op.join(left, right, on=["a", "b"], within=2, time="ts")
    assert found.to_pylist() == [
        {"a": 1, "b": "y", "Ts": 5, "Ts_left": 4, "v_left": 2, "source_left": "t",
         "ts_right": 5, "V_right": 3, "seq_right": "p"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "within", "known"),
    [
        (pa.timestamp("s"), "1500 ms", datetime.datetime(2024, 5, 1, 0, 0, 2)),
        (pa.timestamp("ns", "UTC"), "1 us", STAMP + datetime.timedelta(microseconds=1)),
        (pa.date32(), "1 hour", datetime.date(2024, 5, 2)),
    ],
)
def test_times_keep_their_type_and_one_that_it_has_not_is_rounded_up(kind, within, known) -> None:
    at = pa.array([STAMP.replace(tzinfo=None)]).cast(pa.timestamp("us"))
    at = (
        at.cast(pa.timestamp("us", "UTC")).cast(kind)
        if getattr(kind, "tz", None)
        else at.cast(kind)
    )
    left = pa.table({"id": [1], "ts": at})
    right = pa.table({"id": [2], "ts": at})
    found = op.join(left, right, on="id", within=within, time="ts", how="left")
    assert found.schema.field("ts").type == kind
    assert found["ts"][0].as_py() == known


def test_columns_of_any_name_and_of_nested_types_come_through() -> None:
    left = pa.table(
        {"id": [1, 2], "ts": [1, 2], 'a "b`.c': [[1], None], "": [{"x": 1}, None], "L": ["l", "m"]}
    ).append_column("view", pa.array(["v", None], pa.string_view()))
    right = pa.table({"id": [1], "ts": [2], "R": [["k"]]})
    settings: Any = {"on": "id", "within": 3, "time": "ts", "how": "left"}
    join = op.Join(**settings)
    stream = op.open(join, schema=(left.schema, right.schema))
    found = [stream.push(left, "left")]
    stream = op.resume(join, stream.state())
    found += [stream.push(right, "right"), stream.finish()]
    whole = op.join(left, right, **settings)
    assert pa.concat_tables(found).equals(whole)
    first, _ = whole.to_pylist()
    assert list(first.values()) == [1, 2, 1, [1], {"x": 1}, "l", "v", 2, ["k"]]


@pytest.mark.parametrize(
    ("kind", "last", "within", "beyond", "says"),
    [
        (pa.int8(), 125, 2, 3, "the last tinyint is 127"),
        (pa.int32(), 2**31 - 6, 5, 6, "the last integer is 2147483647"),
        (pa.int64(), 2**62 - 6, 5, 6, f"the last bigint is {2**62 - 1}"),
        (pa.timestamp("us"), 253_402_300_799_000_000, "999999 us", "1 s", "9999-12-31 23:59:59.9"),
        (pa.timestamp("s", "UTC"), 253_402_300_798, "1 s", "1500 ms", "9999-12-31 23:59:59\n"),
        (pa.timestamp("ns"), 9_223_372_036_000_000_000, "854775 us", "1 s", "2262-04-11 23:47:16"),
        (pa.date32(), 2_932_895, "1 day", "25 hours", "the last date is 9999-12-31"),
    ],
)
def test_a_row_without_a_partner_is_refused_where_its_time_has_no_room(
    kind, last, within, beyond, says
) -> None:
    stored = pa.int32() if kind == pa.date32() else pa.int64()
    times = pa.array([last], stored).cast(kind)
    left, right = (pa.table({"id": [side], "ts": times}) for side in (1, 2))
    settings: Any = {"on": "id", "time": "ts", "how": "left"}
    found = op.join(left, right, **settings, within=within)
    assert found["ts_left"].equals(pa.chunked_array([times]))
    assert found["ts"][0].cast(stored).as_py() > last
    with pytest.raises(DataError, match=says):
        op.join(left, right, **settings, within=beyond)
    # With a partner nothing is waited for.
    assert op.join(left, left, **settings, within=beyond)["ts"].equals(found["ts_left"])
    stream = op.open(op.Join(**settings, within=beyond), schema=(left.schema, right.schema))
    stream.push(left, "left")
    with pytest.raises(DataError, match="'ts' ends before a row without a partner is known"):
        stream.finish()


def test_times_of_two_units_and_texts_of_two_widths_are_joined() -> None:
    times = pa.array([datetime.datetime(2024, 1, 1)])
    left = pa.table({"id": pa.array(["x"]), "ts": times.cast(pa.timestamp("ms"))})
    right = pa.table(
        {
            "id": pa.array(["x"], pa.large_string()).dictionary_encode(),
            "ts": times.cast(pa.timestamp("ns")),
        }
    )
    found = op.join(left, right, on="id", within="0 s", time="ts")
    assert found.schema.field("ts").type == pa.timestamp("ns")
    assert found.num_rows == 1


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"within": -1}, BindError, "within must not be negative"),
        ({"within": "2 s"}, BindError, "within is a duration, but 'ts' holds integers"),
        ({"on": []}, BindError, "on one column at least"),
        ({"on": "price"}, BindError, "unknown column 'price'"),
        ({"on": "ts"}, BindError, "cannot be a column of on as well"),
        ({"on": ["id", "id"]}, BindError, "named twice"),
        ({"on": "seq"}, BindError, "cannot have 'seq'"),
        ({"time": "when"}, BindError, "unknown column 'when'"),
        ({"time": "jam", "right": {"id": [1], "jam": ["j"]}}, BindError, "'jam' is a varchar"),
        ({"how": "outer"}, BindError, "how does not know 'outer'"),
        ({"disorder": "2 s"}, BindError, "disorder=op.KSlack"),
        ({"left": {"id": [[1]], "ts": [1]}, "right": {"id": [[1]], "ts": [1]}}, BindError,
         "has no order\n  on"),
        ({"left": {**JAM, "half": pa.array([1.0], pa.float16())}}, UnsupportedError,
         "do not know: halffloat\n  left side"),
        ({"right": {"id": ["x"], "ts": [1]}}, BindError, "bigint on the left side, but varchar"),
        ({"right": {"id": [1], "ts": [datetime.datetime(2024, 1, 1)]}}, BindError, "on the right"),
        ({"left": pa.table({"id": [1], "ts": [STAMP]}),
          "right": pa.table({"id": [1], "ts": [STAMP.replace(tzinfo=None)]})}, BindError,
         "of zone UTC on the left side, but a timestamp without a zone on the right"),
        ({"left": {"id": [1], "ts": [1], "jam": [1], "jam_left": [2]},
          "right": {"id": [1], "ts": [1], "jam": [1]}}, BindError, "two columns named 'jam_left'"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused_with_its_place(change, error, says) -> None:
    given: dict[str, Any] = {"left": {**JAM, "seq": [1]}, "right": {**TEA, "seq": [1]}}
    given |= {"on": "id", "within": 5, "time": "ts", **change}
    with pytest.raises(error, match=says) as caught:
        op.join(given.pop("left"), given.pop("right"), **given)
    assert isinstance(caught.value, OutpaceError)


@pytest.mark.parametrize(
    ("disorder", "says"),
    [
        (op.Speculative(3), "op.Speculative does not go with a join\n  disorder"),
        (op.Sequence("1 s", flag="timed"), "none that flags rows\n  disorder"),
    ],
)
def test_a_join_is_not_built_with_what_its_sides_cannot_have(
    disorder: op.Speculative | op.Sequence, says: str
) -> None:
    with pytest.raises(UnsupportedError, match=says):
        op.Join(on="id", within=5, time="ts", disorder=disorder)


def test_a_null_time_names_its_side_and_row() -> None:
    left = pa.table({"id": [1, 1], "ts": pa.array([1, None], pa.int64())})
    with pytest.raises(DataError, match="NULL") as caught:
        op.join(left, left.slice(0, 1), on="id", within=5, time="ts")
    assert caught.value.where == "left side"
    assert "row 1" in str(caught.value)


def test_a_stream_says_what_it_needs_of_a_push() -> None:
    join = op.Join(on="id", within=5, time="ts")
    with pytest.raises(DataError, match="schemas of its left and its right side"):
        op.open(join)  # type: ignore[call-overload]
    with pytest.raises(UnsupportedError, match="two sides as sources"):
        op.open(join, schema=SCHEMAS, timeouts=True)  # type: ignore[call-overload]
    stream = op.open(join, schema=SCHEMAS)
    with pytest.raises(DataError, match=r'side of the rows is missing\n  hint: write push.*"left"'):
        stream.push({"id": 1, "ts": 1, "v": 1})
    with pytest.raises(DataError, match="there is no side 'middle'"):
        stream.heartbeat("middle", 1)
    with pytest.raises(DataError, match="there is no side 'middle'"):
        stream.push({"id": 1, "ts": 1, "v": 1}, "middle")
    with pytest.raises(DataError, match="column 'v' is missing"):
        stream.push({"id": 1, "ts": 1}, "right")
    with pytest.raises(DataError, match="column 'id' has varchar, not bigint"):
        stream.push({"id": ["5"], "ts": [1], "v": [1]}, "right")
    other = op.open(join, schema=(LEFT, RIGHT.append(pa.field("w", pa.int64()))))
    with pytest.raises(OutpaceError, match="join of other columns"):
        other.restore(stream.state())
    with pytest.raises(OutpaceError, match="belongs to a join"):
        op.resume(op.Query().order_by("ts").pattern("A"), stream.state())
    query = op.open(op.Query().order_by("ts").pattern("A"))
    with pytest.raises(StateError, match="belongs to a join"):
        query.restore(stream.state())
    for schema in (None, LEFT):
        if schema is not None:
            query.bind(schema)
        with pytest.raises(StateError, match="belongs to no join"):
            op.resume(join, query.state())
        with pytest.raises(StateError, match="belongs to no join"):
            stream.restore(query.state())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"on": ["id", "v"]}, "`on`\n  saved with id, now id, v"),
        ({"time": "v"}, "`time`\n  saved with ts, now v"),
        ({"within": 6}, "`within`\n  saved with 5, now 6"),
        ({"within": "2 s"}, "`within`\n  saved with 5, now 2 seconds"),
        ({"how": "left"}, "`how`\n  saved with inner, now left"),
    ],
)
def test_a_state_of_a_join_with_another_setting_is_refused_with_both_values(change, said) -> None:
    settings: Any = {"on": "id", "within": 5, "time": "ts"}
    stream = op.open(op.Join(**settings), schema=SCHEMAS)
    stream.push({"id": [1], "ts": [1], "v": [1]}, "right")
    with pytest.raises(StateError, match=f"a join with another {said}"):
        op.resume(op.Join(**{**settings, **change}), stream.state())
    assert op.resume(op.Join(**settings, name="other"), stream.state()).rows_kept == 0


@examples(10)
@given(two_sides(), st.sampled_from([None, op.KSlack(3), op.KSlack(1, late="side")]))
def test_a_recorded_join_gives_the_same_step_by_step(given, disorder) -> None:
    left, right, within, how, rng = given
    join = op.Join(on="id", within=within, time="ts", how=how, disorder=disorder)
    with TemporaryDirectory() as home:
        recordings = [Path(home) / "first"]
        stream, found = op.open(join, schema=SCHEMAS, record=recordings[0]), []
        for rows, schema, name in zip((left, right), SCHEMAS, ("left", "right"), strict=True):
            found.append(stream.push(table(rows, schema), name))
            found.append(stream.heartbeat(name, 40))
            if rng.random() < 0.5:
                recordings.append(Path(home) / name)
                stream = op.resume(join, stream.state(), record=recordings[-1])
        saved = stream.state()
        found.append(stream.finish())
        replays = [op.replay(one) for one in recordings]
        assert {replayed.query for replayed in replays} == {join}
        steps = [step for replayed in replays for step in replayed]
        assert [step.matches for step in steps] == found
        assert all(step.as_recorded for step in steps)
        assert [step.title for step in steps][-1] == "end"
        before = op.replay(recordings[-1], until=steps[-1].number - 1)
        list(before)
        assert before.stream.state() == saved
        with pytest.raises(StateError, match="another query"):
            op.replay(recordings[0], query=op.Join(on="v", within=within, time="ts"))


def test_a_reorderer_reads_columns_that_both_sides_have() -> None:
    at = pa.field("at", pa.int64())
    schemas = (LEFT.append(at), RIGHT.append(at).append(SEQUENCE))
    settings: Any = {"on": "id", "within": 5, "time": "ts"}
    stream = op.open(op.Join(**settings, disorder=op.KSlack(2, arrival="at")), schema=schemas)
    stream.push({"id": 1, "ts": 10, "v": 1, "a": "x", "at": 11}, "left")
    stream.push({"id": 1, "ts": 9, "v": 1, "at": 12, "seq": 0}, "right")
    (row,) = stream.finish().to_pylist()
    assert (row["at_left"], row["at_right"], row["seq_right"]) == (11, 12, 0)
    with pytest.raises(BindError, match="unknown column 'seq'\n  disorder, left side"):
        op.open(op.Join(**settings, disorder=op.Sequence("1 s")), schema=schemas)


def test_late_rows_are_shown_with_the_side_that_they_are_of() -> None:
    join = op.Join(on="id", within=5, time="ts", disorder=op.KSlack(2, late="side"))
    stream = op.open(join, schema=SCHEMAS)
    stream.push({"id": 1, "ts": 10, "v": 1, "a": "x"}, "left")
    stream.heartbeat("right", 20)
    stream.push({"id": 1, "ts": 3, "v": 2, "a": "y"}, "left")
    (late,) = stream.late.to_pylist()
    assert (late["source"], late["id"], late["ts"], late["v_left"]) == ("left", 1, 3, 2)


def test_a_join_says_how_to_wait_and_where_it_runs(caplog: pytest.LogCaptureFixture) -> None:
    join = op.Join(on="id", within=5, time="ts")
    stream = op.open(join, schema=SCHEMAS)
    stream.push({"id": 1, "ts": 10, "v": 1, "a": "x"}, "left")
    with pytest.raises(op.DataError, match=r"hint: write op.Join\(..., disorder=op.KSlack"):
        _ = stream.late
    for look in (op.explain, lambda query: op.match(pa.table({"ts": [1]}), query)):
        with pytest.raises(BindError, match=r"of type Join\n  hint: op.open and op.run take"):
            look(join)  # type: ignore[operator]  # it is no query
    waiting = op.open(replace(join, disorder=op.KSlack(1)), schema=SCHEMAS)
    for ts in (10, 1):
        waiting.push({"id": 1, "ts": ts, "v": 1, "a": "x"}, "left")
    assert "Let events wait longer with op.Join(disorder=...)" in caplog.text


def test_more_pairs_than_there_is_room_for_are_refused() -> None:
    many = pa.table({"id": np.zeros(20_000, np.int64), "ts": np.zeros(20_000, np.int64)})
    with pytest.raises(MatchError, match="400000000 pairs at once"):
        op.join(many, many, on="id", within=5, time="ts")


def test_compiled_kernels_do_what_their_text_says() -> None:
    rng, size = np.random.default_rng(5), 200
    times, side = np.sort(rng.integers(0, 99, size)), rng.integers(0, 3, size)
    segments, begin = np.array([0, 80, 80, size]), np.array([20, 80, 90])
    times[80:] = np.sort(rng.integers(0, 99, size - 80))
    times[:80] = np.sort(rng.integers(0, 99, 80))
    results = []
    for make in (lambda function: function, compiled):
        find, write = (
            make(kernel.__wrapped__) for kernel in (kernels.find_partners, kernels.write_pairs)
        )
        lists = [np.zeros(size, np.int64) for _ in range(4)]
        find(times, side, segments, begin, 7, *lists)
        pairs, joined_rows = np.zeros((lists[3].sum(), 2), np.int64), np.zeros(size, np.int64)
        write(side, *lists, pairs, joined_rows)
        results.append((pairs.tolist(), joined_rows.tolist()))
    assert results[0] == results[1]
    assert len(results[0][0]) > 100
