"""Matches that are counted: each has its number among all, also when the operator was rebuilt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.message import EventsArrived, RowsAcknowledged, SourceEnded
from outpace.engine.operator import matches_of
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.counted import CountedOperator
from outpace.engine.recover.recoverable import savepoint_of
from outpace.engine.savepoint import Savepoint
from outpace.pattern.query import Query

ROWS = pa.table({"ts": range(60), "k": list("abcab" * 12), "key": [0, 1, 2] * 20})


def query(windows: int, *, keyed: bool, selection: str, rows: bool = False) -> Query:
    made = op.Query("q").order_by("ts").pattern("A -> B").define(A="k = 'a'", B="k = 'b'")
    made = made.measures(begin="A.ts", end="B.ts")
    made = made.partition_by("key") if keyed else made
    made = made.measures(kind="CLASSIFIER()").all_rows_per_match() if rows else made
    if windows == 0:
        return made.pattern("A B") if selection == "preferred" else made.pattern("A B+")
    made = made.select(selection) if selection != "preferred" else made
    return made.over(op.windows.count(windows, slide=3), duplicates=True)


def saved(operator: CountedOperator, count: int) -> Savepoint:
    """Acknowledge the first so many rows, and return what is needed now."""
    return savepoint_of(operator.step(RowsAcknowledged(count)))


@given(
    windows=st.sampled_from([0, 7, 11]),
    keyed=st.booleans(),
    selection=st.sampled_from(["preferred", "all"]),
    rows=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6).map(sorted),
    shares=st.lists(st.floats(0, 1), min_size=7, max_size=7),
    lost=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_a_rebuilt_operator_counts_on_and_gives_the_rest(
    windows: int,
    keyed: bool,
    selection: str,
    rows: bool,
    cuts: list[int],
    shares: list[float],
    lost: list[bool],
) -> None:
    spec = OperatorSpec(query(windows, keyed=keyed, selection=selection, rows=rows), ROWS.schema)
    whole = CountedOperator(spec)
    want = pa.concat_tables(
        [matches_of(whole.step(EventsArrived(ROWS))), matches_of(whole.step(SourceEnded()))]
    ).to_pylist()
    operator, found, settled = CountedOperator(spec), list[dict[str, object]](), 0
    kept = np.arange(0)
    for begin, end, share, fails in zip([0, *cuts], [*cuts, 60], shares, lost, strict=False):
        found += matches_of(
            operator.step(EventsArrived(ROWS.slice(begin, end - begin)))
        ).to_pylist()
        kept = np.concatenate([kept, np.arange(begin, end)])
        assert operator.came_out == len(found)
        # Some of the matches are acknowledged; those of one event and window only together.
        savepoint = saved(operator, settled + int(share * (len(found) - settled)))
        assert settled <= operator.settled <= len(found)
        settled = operator.settled
        savepoint = Savepoint.decode(savepoint.encode())
        kept = kept[~savepoint.drops(kept)]
        if fails:
            operator = CountedOperator(spec)
            before = kept[kept < savepoint.at]
            again = operator.stand(savepoint, ROWS.take(before), before, settled).to_pylist()
            later = kept[kept >= savepoint.at]
            if len(later):
                again += matches_of(operator.step(EventsArrived(ROWS.take(later)))).to_pylist()
            assert again == found[settled:]
            assert operator.came_out == len(found)
    found += matches_of(operator.step(SourceEnded())).to_pylist()
    assert found == want


def test_a_savepoint_before_all_events_can_be_read() -> None:
    operator = CountedOperator(OperatorSpec(query(7, keyed=False, selection="all"), ROWS.schema))
    again = Savepoint.decode(saved(operator, 0).encode())
    assert (again.seed, again.at, again.trim) == (None, 0, -1)
