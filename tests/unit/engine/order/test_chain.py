"""A chain of K-slacks: each link gives what a K-slack of its own gives, and an event waits once."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import outpace as op
from outpace.engine.message import EventsArrived
from outpace.engine.order.chain import SlackChain
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.rows.permutation import as_table
from outpace.engine.state import State
from outpace.pattern.bind.disorder import BoundDisorder, bind_disorder
from outpace.pattern.bind.query import bind

SCHEMA = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
QUERY = op.Query("q").order_by("ts").pattern("A")
BOUND = bind(QUERY, SCHEMA)


def slack(units: int) -> BoundDisorder:
    return bind_disorder(QUERY.disorder(op.KSlack(units)), SCHEMA)


def piece(*times: int) -> EventsArrived:
    return EventsArrived(pa.table({"ts": times, "n": range(len(times))}, SCHEMA))


def shown(released: ReleasedEvents) -> tuple[list[int], list[int], int]:
    late = [] if released.late is None else sorted(released.late["ts"].to_pylist())
    return as_table(released.rows)["ts"].to_pylist(), late, released.watermark


def test_two_queries_share_a_buffer() -> None:
    # Rajendran 2019, figure 2.10: what the smaller K lets go waits on for the larger.
    chain = SlackChain(BOUND, [slack(1), slack(3)], SCHEMA)
    assert [shown(one) for one in chain.push(piece(1, 4, 3, 6)).links] == [
        ([1, 3, 4], [], 5),
        ([1], [], 3),
    ]
    assert chain.buffered == 3  # 3 and 4 for the second, 6 for both
    # 3 is late for the first query alone.
    assert [shown(one) for one in chain.push(piece(3, 8)).links] == [
        ([6], [3], 7),
        ([3, 3, 4], [], 5),
    ]
    assert [shown(one)[0] for one in chain.finish().links] == [[8], [6, 8]]


def test_three_queries_share_the_buffer_of_the_largest_k() -> None:
    """Rajendran 2019, figure 2.10: k3 < k1 < k2, and buffers of k3, k1 - k3 and k2 - k1.

    Every link gives what it gives alone, and all hold as many events as the largest K does.
    """
    slacks = [slack(one) for one in (2, 5, 9)]
    chain = SlackChain(BOUND, slacks, SCHEMA)
    alone = [make_order(BOUND, one, SCHEMA) for one in slacks]
    found: list[list[list[int]]] = []
    for time in (1, 4, 3, 7, 6, 12, 10, 20):
        links = chain.push(piece(time)).links
        assert [shown(one) for one in links] == [shown(one.push(piece(time))) for one in alone]
        assert chain.buffered == alone[-1].buffered
        found.append([shown(one)[0] for one in links])
    assert found == [
        [[], [], []],
        [[1], [], []],
        [[], [], []],
        [[3, 4], [1], []],
        [[], [], []],
        [[6, 7], [3, 4, 6], [1]],
        [[], [], []],
        [[10, 12], [7, 10, 12], [3, 4, 6, 7, 10]],
    ]


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), max_size=8), st.integers(-1, 30), st.booleans()),
        max_size=8,
    ),
    st.sets(st.integers(0, 12), min_size=2, max_size=4),
)
def test_each_link_gives_what_it_gives_alone(
    pieces: list[tuple[list[int], int, bool]], slacks: set[int]
) -> None:
    disorders = [slack(units) for units in sorted(slacks)]
    chain: SlackChain = SlackChain(BOUND, disorders, SCHEMA)
    alone: list[Order] = [make_order(BOUND, one, SCHEMA) for one in disorders]
    for times, told, saved in pieces:
        together, apart = chain.push(piece(*times)), [one.push(piece(*times)) for one in alone]
        assert list(map(shown, together.links)) == list(map(shown, apart))
        if told >= 0:
            together, apart = chain.tell(told), [one.tell(told) for one in alone]
            assert list(map(shown, together.links)) == list(map(shown, apart))
        assert chain.buffered == alone[-1].buffered
        if saved:
            state = chain.state().encode()
            chain = SlackChain(BOUND, disorders, SCHEMA)
            chain.restore(State.decode(state))
    assert list(map(shown, chain.finish().links)) == [shown(one.finish()) for one in alone]
