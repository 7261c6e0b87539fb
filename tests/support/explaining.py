"""What the tests of WHY and WHY NOT share: a query over a table, and its matches by the twin."""

import pyarrow as pa
from hypothesis import reject
from hypothesis import strategies as st
from support.strategies import patterns

from outpace.engine.match.partitions import WholePartitions
from outpace.engine.match.task import prepare
from outpace.engine.match.twin import TwinMatcher
from outpace.errors import OutpaceError
from outpace.pattern import ast
from outpace.pattern.query import Query, WithinKind

#: Conditions of all classes; the data has a column x of small integers and NULLs.
CONDITIONS = ("x = 0", "x > 0", "x > PREV(x)", "x >= FIRST(x) AND x < 3", "COUNT(*) < 3", None)


def searched(table: pa.Table, query: Query) -> WholePartitions:
    return WholePartitions(prepare(query, table.schema), table, TwinMatcher)


@st.composite
def events_queries(draw: st.DrawFn) -> WholePartitions:
    """Draw a pattern of every kind over a short table, with the preferred match of each start."""
    size = draw(st.integers(1, 8))
    steps = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    table = pa.table(
        {
            "ts": pa.array([sum(steps[: i + 1]) for i in range(size)], pa.int64()),
            "x": pa.array(
                draw(st.lists(st.none() | st.integers(0, 3), min_size=size, max_size=size)),
                pa.int64(),
            ),
        }
    )
    tree = draw(patterns(leaves=5, largest_bound=2))
    chosen = {name: draw(st.sampled_from(CONDITIONS)) for name in ast.predicates(tree)}
    query = (
        Query()
        .order_by("ts")
        .pattern(tree)
        .define({name: text for name, text in chosen.items() if text is not None})
        .measures(n="COUNT(*)")
        .select("preferred")
        .skip_to_next_row()
        .within(draw(st.integers(1, 6)), draw(st.sampled_from(WithinKind)))
    )
    try:
        return searched(table, query)
    except OutpaceError:
        # A pattern that the language refuses, such as a negation with nothing before it.
        reject()
