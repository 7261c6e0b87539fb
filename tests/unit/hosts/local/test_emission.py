"""Which rows come out where matches may be taken back: confirmed ones, changes, or the latest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disordered import SCHEMA, drawn_events, queries
from support.properties import examples

import outpace as op
from outpace.engine.codec.cell import CellKind
from outpace.engine.codec.table import read_table
from outpace.engine.stage import run_step
from outpace.pattern.checkpoints import LeastWork
from outpace.plan.stream_plan import plan_group

Rows = list[dict[str, Any]]

DISORDERS = st.sampled_from(
    [
        *(op.Speculative(slack, alpha=alpha) for slack in (4, 12) for alpha in (0, 0.5)),
        op.Speculative(op.MPKSlack(), alpha=0),
        *(op.KSlack(slack, late="correct", horizon=8) for slack in (0, 3)),
        op.Punctuation(late="correct", horizon=100),
    ]
)


class Present:
    """The present matches by their ids, as all changes tell."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {}

    def apply(self, changes: Rows) -> tuple[Rows, dict[str, Rows]]:
        """Take the changes of a push; return the rows of confirmed matches, and those before it."""
        before, certain = self.rows, list[dict[str, Any]]()
        self.rows = before.copy()
        for row in changes:
            diff, sure = row.pop("diff"), row.pop("confirmed", False)
            name = row.pop("match_id")
            if sure:
                certain.append(row)
            if diff < 0:
                self.rows.pop(name, None)
            elif diff > 0:
                self.rows[name] = [*self.rows.get(name, []), row]
        return certain, before


def check_latest(latest: Rows, before: dict[str, Rows], after: dict[str, Rows]) -> None:
    """What is gone is told, and what is new or changed, as it is now; all of it once."""
    gone, come = set[str](), dict[str, Rows]()
    for row in latest:
        diff, name = row.pop("diff"), row.pop("match_id")
        if diff < 0:
            gone.add(name)
            assert row in before[name]
        else:
            assert diff == 1
            come.setdefault(name, []).append(row)
    assert gone == before.keys() - after.keys()
    assert come == {name: rows for name, rows in after.items() if rows != before.get(name)}


@examples(20)
@given(queries(), DISORDERS, st.sampled_from([3, 4096]), st.integers(0, 1 << 32))
def test_every_emission_tells_what_all_changes_tell(
    query: op.Query, disorder: op.pattern.disorder.Disorder, span: int, seed: int
) -> None:
    random = Random(seed)
    coming = sorted(drawn_events(random).to_pylist(), key=lambda e: e["ts"] + random.randint(0, 12))
    query = query.measures(match_id=op.match_id()).disorder(disorder)
    asked = {name: query.emit(name) for name in ("changes", "confirmed", "latest")}
    streams = {name: op.open(one, schema=SCHEMA) for name, one in asked.items()}
    alone = op.match(SCHEMA.empty_table(), query.disorder(op.KSlack(1))).schema
    assert op.match(SCHEMA.empty_table(), asked["confirmed"]).schema == alone
    present, confirmed = Present(), Counter[str]()
    followed = op.CurrentMatches()

    def take(found: dict[str, pa.Table]) -> None:
        certain, before = present.apply(found["changes"].to_pylist())
        assert (
            found["confirmed"].schema == op.match(SCHEMA.empty_table(), asked["confirmed"]).schema
        )
        sure = found["confirmed"].drop_columns(["match_id"]).to_pylist()
        if query.speculates:
            assert sure == certain
        confirmed.update(map(repr, sure))
        current = Counter(repr(row) for rows in present.rows.values() for row in rows)
        assert not confirmed - current, "what is confirmed stays"
        followed.apply(found["latest"])
        followed.apply(found["latest"])  # To take them twice changes nothing.
        left = followed.table.drop_columns(["match_id"]).to_pylist()
        assert Counter(map(repr, left)) == current
        check_latest(found["latest"].to_pylist(), before, present.rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeastWork, "interval", lambda *_: span)
        while coming:
            size = random.randint(1, 6)
            piece, coming = coming[:size], coming[size:]
            rows = pa.Table.from_pylist(piece, SCHEMA)
            take({name: stream.push(rows) for name, stream in streams.items()})
            if random.random() < 0.3:
                told = piece[-1]["ts"] - random.randint(0, 5)
                take({name: stream.advance(told) for name, stream in streams.items()})
            if random.random() < 0.2:
                streams = {n: op.resume(asked[n], one.state()) for n, one in streams.items()}
        take({name: stream.finish() for name, stream in streams.items()})
    everything = Counter(repr(row) for rows in present.rows.values() for row in rows)
    assert confirmed == everything, "in the end all that is there was confirmed, once"


def rises(disorder: op.pattern.disorder.Disorder) -> op.Query:
    query = op.Query("rise").order_by("ts").pattern("A B").define(B="v > A.v")
    return query.measures(first="A.v", last="B.v").skip_to_next_row().disorder(disorder)


def rows(*values: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in values], "v": [v for _, v in values]})


def test_late_events_are_confirmed_when_the_horizon_has_passed() -> None:
    query = rises(op.KSlack(0, late="correct", horizon=10)).emit("confirmed")
    stream = op.open(query)
    assert stream.push(rows((1, 10), (3, 30), (4, 20), (9, 0))).to_pylist() == []
    assert stream.push(rows((2, 25))).to_pylist() == []
    expected = [{"first": 10, "last": 25}, {"first": 25, "last": 30}]
    assert stream.push(rows((14, 0))).to_pylist() == expected


def test_a_match_that_changed_comes_once_in_place_of_what_it_was() -> None:
    query = rises(op.Speculative(10, alpha=0)).measures(number="MATCH_NUMBER()").emit("latest")
    stream = op.open(query)
    stream.push(rows((3, 10), (4, 30), (5, 0)))
    found = stream.push(rows((1, 1), (2, 2))).drop_columns(["match_id"])
    assert found.to_pylist() == [
        {"first": 1, "last": 2, "number": 1, "diff": 1},
        {"first": 2, "last": 10, "number": 2, "diff": 1},
        {"first": 10, "last": 30, "number": 3, "diff": 1},
    ]


def test_a_value_named_confirmed_says_nothing_of_what_is_certain() -> None:
    query = op.Query("rise").order_by("ts").pattern("A B").define(B="v > A.v").skip_to_next_row()
    query = query.measures(confirmed="A.v", n="MATCH_NUMBER()")
    stream = op.open(query.disorder(op.KSlack(0, late="correct", horizon=10)).emit("latest"))
    current = op.CurrentMatches()
    current.apply(stream.push(rows((3, 10), (4, 30), (5, 0))))
    # The match of 10 and 30 comes again, as the second.
    current.apply(stream.push(rows((1, 1), (2, 2), (2, 0))))
    assert current.table.select(["confirmed", "n"]).to_pylist() == [
        {"confirmed": 1, "n": 1},
        {"confirmed": 0, "n": 2},
        {"confirmed": 10, "n": 3},
    ]
    with pytest.raises(op.OutpaceError, match="no column 'confirmed' that says what is certain"):
        current.drop_confirmed()


@pytest.mark.parametrize("emission", ["changes", "confirmed", "latest"])
def test_it_is_written_in_sql_and_in_python(emission: str) -> None:
    query = rises(op.Speculative(10)).emit(emission)
    text = query.to_sql()
    assert ("EMIT" in text) == ("emit" in query.to_python()) == (emission != "changes")
    assert op.Query.from_sql(text, name="rise") == query
    written = text.replace("PATTERN", f"EMIT {emission} PATTERN") if "EMIT" not in text else text
    assert op.Query.from_sql(written, name="rise") == query


def test_where_nothing_is_taken_back_all_is_confirmed() -> None:
    plain = rises(op.KSlack(1))
    assert op.match(rows((1, 1), (2, 2)), plain.emit("confirmed")).num_rows == 1
    with pytest.raises(op.OutpaceError, match="every match is the latest"):
        op.open(plain.emit("latest"))
    with pytest.raises(op.OutpaceError, match="emit does not know 'all'"):
        plain.emit("all")
    own = rises(op.KSlack(0, late="correct", horizon=5)).measures(confirmed="A.v").emit("latest")
    assert op.open(own).push(rows((1, 1), (2, 2), (3, 0)))["confirmed"].to_pylist() == [1]
    with pytest.raises(op.OutpaceError, match="column 'diff' already"):
        op.open(rises(op.Speculative(1)).measures(diff="A.v").emit("confirmed")).push(rows((1, 1)))


def test_a_state_goes_on_with_another_emission() -> None:
    query = rises(op.Speculative(10, alpha=0))
    stream = op.open(query)
    stream.push(rows((1, 10), (3, 30), (4, 20)))
    found = op.resume(query.emit("latest"), stream.state()).push(rows((2, 25)))
    assert found["diff"].to_pylist() == [-1, 1, 1]
    sure = op.resume(query.emit("confirmed"), stream.state())
    assert sure.push(rows((2, 25))).num_rows == 0
    assert sure.push(rows((14, 15), (15, 0))).to_pylist() == CONFIRMED


PUSHES = (rows((1, 10), (3, 30), (4, 20)), rows((2, 25)), rows((14, 15), (15, 0)))
CONFIRMED = [{"first": 10, "last": 25}, {"first": 25, "last": 30}]


def test_queries_of_a_group_let_out_what_each_says() -> None:
    early = replace(rises(op.Speculative(10, alpha=0)), name="early").emit("confirmed")
    late = replace(rises(op.InOrder(late="correct", horizon=10)), name="late").emit("latest")
    group = op.group(early, late, replace(rises(op.KSlack(10)), name="plain"))
    stream = op.open(group)
    told = [stream.push(one) for one in PUSHES]
    assert [one["early"].to_pylist() for one in told] == [[], [], CONFIRMED]
    assert [one["late"]["diff"].to_pylist() for one in told] == [[1], [-1, 1, 1], []]
    assert told[-1]["early"].equals(told[-1]["plain"])
    plan = plan_group(group, PUSHES[0].schema, 2)
    (spec,) = plan.division.stages
    stage, found = spec.make(), list[dict[str, Any]]()
    for one in PUSHES:
        cells = run_step(stage, plan.division.packing.pack(one), 0, 1)
        matches = (cell for cell in cells if cell.kind is CellKind.MATCHES)
        found += [row for cell in matches for row in read_table(cell.block).to_pylist()]
    assert list(found[0]) == ["query", "first", "last", "match_id", "diff"]
    names = ("first", "last")
    certain = [{name: row[name] for name in names} for row in found if row["query"] == "early"]
    assert certain == CONFIRMED


def test_a_recording_lets_out_the_same(tmp_path: Path) -> None:
    query = rises(op.Speculative(10, alpha=0)).emit("latest")
    stream = op.open(query, record=tmp_path / "recorded")
    told = [stream.push(one).to_pylist() for one in PUSHES]
    assert [step.matches.to_pylist() for step in op.replay(tmp_path / "recorded")] == told
