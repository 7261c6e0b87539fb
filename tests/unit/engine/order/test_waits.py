"""How long events wait in an order: as if each event were looked at."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import outpace as op
from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.choose import make_order
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.waits import Waits
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.bind.query import bind
from outpace.pattern.disorder import Disorder

KINDS = {
    "slack": op.KSlack(7),
    "slack by event": op.KSlack(7, arrival="at"),
    "greatest": op.MPKSlack(),
    "quantile": op.Quantile(0.9),
    "numbers": op.Sequence("20 us", arrival="at"),
    "told": op.Punctuation(),
}


BY_ARRIVAL = {
    "slack": op.KSlack(7, arrival="at"),
    "passing": op.KSlack(3, arrival="at", late="pass"),
    "greatest": op.MPKSlack(arrival="at"),
    "quantile": op.Quantile(0.9, arrival="at"),
    "distance": op.LDOP(window=20, arrival="at"),
    "coverage": op.AQKSlack(window=20, aggregate="count", arrival="at"),
    "in order": op.InOrder(arrival="at"),
}


def stream(size: int) -> pa.Table:
    """Return events that come up to 12 units late, with numbers by their times."""
    random = np.random.default_rng(3)
    times = np.cumsum(random.integers(1, 4, size))
    arrival = times + np.where(random.random(size) < 0.3, random.integers(1, 13, size), 0)
    order = np.lexsort([times, arrival])
    columns = {"ts": times[order], "at": arrival[order], "seq": order}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def order_of(
    disorder: Disorder, schema: pa.Schema, sources: tuple[str, ...] | None = None
) -> Order:
    query = op.Query("all").order_by("ts").pattern("A").disorder(disorder)
    return make_order(bind(query, schema), bind_disorder(query, schema), schema, sources)


@pytest.mark.parametrize("piece", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_waits_are_those_of_each_event(kind: str, piece: int) -> None:
    events = stream(300)
    order, waits = order_of(KINDS[kind], events.schema), Waits()
    came: dict[int, int] = {}
    waited: list[int] = []

    def look(released: ReleasedEvents, *, last: bool = False) -> None:
        waits.note(order, released, last=last)
        waited.extend(order.now - came.pop(seq) for seq in released.rows["seq"].to_pylist())
        gone = [] if released.late is None else released.late["seq"].to_pylist()
        for seq in gone:
            came.pop(seq, None)

    for low in range(0, 300, piece):
        rows = events.slice(low, piece)
        told = int(rows["ts"].to_numpy().min()) - 12 if kind == "told" else int(NO_TIME)
        waits.begin(order)
        released = order.push(EventsArrived(rows, watermark=told))
        came |= dict.fromkeys(rows["seq"].to_pylist(), order.now)
        look(released)
    look(order.finish(), last=True)
    assert not came
    assert waits.events == len(waited)
    assert waits.waited == sum(waited)
    assert waits.longest == max(waited) > 0
    assert waits.average == pytest.approx(np.mean(waited))


@pytest.mark.parametrize("sources", [None, ("a", "b")], ids=["one source", "two sources"])
@pytest.mark.parametrize("kind", [*KINDS, "in order"])
def test_waits_go_on_from_what_was_saved(kind: str, sources: tuple[str, ...] | None) -> None:
    events = stream(100)
    disorder = op.InOrder() if kind == "in order" else KINDS[kind]
    if sources is not None:
        numbers = events["seq"].to_numpy()
        events = events.set_column(2, "seq", pa.array(numbers // 2))
        events = events.append_column("source", pa.array(np.array(sources)[numbers % 2]))
    steps = [EventsArrived(events.slice(low, 5)) for low in range(0, 100, 5)]
    if kind == "told":
        steps = [replace(one, watermark=one.rows["ts"].to_numpy().min() - 12) for one in steps]
    order, once = order_of(disorder, events.schema, sources), Waits()
    again, parts = order_of(disorder, events.schema, sources), []
    for step in steps:
        once.note(order, order.push(step))
        parts.append(Waits())
        parts[-1].begin(again)
        parts[-1].note(again, again.push(step))
        saved, again = again.state(), order_of(disorder, events.schema, sources)
        again.restore(saved)
    assert sum(part.events for part in parts) == once.events
    assert sum(part.waited for part in parts) == once.waited
    assert once.waited > 0 or (kind == "in order" and sources is None)


def test_what_waits_for_a_source_that_has_not_come_is_counted_from_what_was_saved() -> None:
    schema = pa.schema({"ts": pa.int64(), "source": pa.string()})
    order = order_of(op.KSlack(7), schema, ("a", "b"))
    order.push(EventsArrived(pa.table([[10], ["a"]], schema=schema)))
    again, waits = order_of(op.KSlack(7), schema, ("a", "b")), Waits()
    again.restore(order.state())
    waits.begin(again)
    for ts, source in ((15, "a"), (30, "b"), (40, "a")):
        rows = pa.table([[ts], [source]], schema=schema)
        waits.note(again, again.push(EventsArrived(rows)))
    # The first two wait from 10 and from 15 to 40; the third has waited from 30 on.
    assert (waits.events, waits.waited, waits.longest) == (2, 30 + 25 + 10, 30)


def by_moments(events: pa.Table) -> list[pa.Table]:
    """Return events in pieces of those that arrive at one moment."""
    at = events["at"].to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(at)) + 1).tolist(), len(at)]
    return [events.slice(low, high - low) for low, high in itertools.pairwise(starts)]


def in_pieces(events: pa.Table, moments: int) -> list[pa.Table]:
    each = by_moments(events)
    return [pa.concat_tables(each[low : low + moments]) for low in range(0, len(each), moments)]


@pytest.mark.parametrize("kind", BY_ARRIVAL)
@pytest.mark.parametrize("moments", [1, 7, 1000])
def test_waits_by_arrival_are_the_same_however_pieces_are_cut(kind: str, moments: int) -> None:
    events = stream(300)
    order, waited = order_of(BY_ARRIVAL[kind], events.schema), []
    for piece in by_moments(events):
        released = order.push(EventsArrived(piece))
        waited += [piece["at"][0].as_py() - at for at in released.rows["at"].to_pylist()]
    last = piece["at"][0].as_py()
    waited += [last - at for at in order.finish().rows["at"].to_pylist()]

    matches = op.open(op.Query("all").order_by("ts").pattern("A").disorder(BY_ARRIVAL[kind]))
    for piece in in_pieces(events, moments):
        matches.push(piece)
    matches.finish()
    assert matches.order.latency == pytest.approx(np.mean(waited))
    assert matches.order.longest_wait == max(waited)
    assert kind == "in order" or max(waited) > 0


def test_waits_of_a_chain_are_those_of_the_largest_slack() -> None:
    events = stream(300)
    queries = {
        slack: op.Query(f"q{slack}").order_by("ts").pattern("A").disorder(
            op.KSlack(slack, arrival="at")
        )
        for slack in (3, 12)
    }  # fmt: skip
    group, alone = op.open(op.group(*queries.values())), op.open(queries[12])
    for piece in in_pieces(events, 40):
        group.push(piece)
        alone.push(piece)
    assert group.order.latency == alone.order.latency > 0
    assert group.order.longest_wait == alone.order.longest_wait


@pytest.mark.parametrize("moments", [1, 7, 1000])
def test_events_wait_for_lower_numbers_by_their_arrival(moments: int) -> None:
    at = [0, 10, 20, 30, 41, 50, 60]
    events = pa.table({"ts": [0, 2, 3, 1, 4, 6, 5], "seq": [0, 2, 3, 1, 4, 6, 5], "at": at})
    matches = op.open(
        op.Query("all").order_by("ts").pattern("A").disorder(op.Sequence("1 s", arrival="at"))
    )
    for piece in in_pieces(events, moments):
        matches.push(piece)
    # 2 and 3 wait for 1, which comes at 30; 6 waits for 5.
    assert matches.order.latency == pytest.approx((20 + 10 + 10) / 7)
    assert matches.order.longest_wait == 20


def test_a_gap_that_stays_counts_as_long_as_it_is_waited_for() -> None:
    order = op.Sequence("50 us", at_least="50 us", arrival="at")
    matches = op.open(op.Query("all").order_by("ts").pattern("A").disorder(order))
    matches.push({"ts": [0, 2, 3, 4], "seq": [0, 2, 3, 4], "at": [0, 10, 20, 1000]})
    # 2 was held until 60, and 3 with it; 4 followed at once.
    assert matches.order.latency == pytest.approx((50 + 40) / 4)
    assert matches.order.longest_wait == 50


def test_any_times_of_arrival_do_no_harm() -> None:
    ends = [-(1 << 63), -1, 0, (1 << 63) - 1]
    query = op.Query("all").order_by("ts").pattern("A")
    matches = op.open(query.disorder(op.KSlack((1 << 63) - 1, arrival="at")))
    matches.push({"ts": [1, 2, 3, 4], "at": ends})
    matches.finish()
    assert 0 < matches.order.latency <= matches.order.longest_wait == 1 << 64


def test_sources_wait_for_each_other_by_event_time() -> None:
    stream = op.open(
        op.Query("all").order_by("ts").pattern("A").disorder(op.InOrder()), sources=["a", "b"]
    )
    stream.push({"ts": [10], "x": [1]}, source="a")
    stream.push({"ts": [30], "x": [2]}, source="a")
    stream.push({"ts": [25], "x": [3]}, source="b")
    # 10 waited until 25 of the other came, when 30 was the greatest time; 30 waits.
    assert stream.order.longest_wait == 20
    stream.push({"ts": [40], "x": [4]}, source="b")
    stream.finish()
    assert stream.order.latency == pytest.approx((20 + 10 + 10 + 0) / 4)
    assert stream.order.longest_wait == 20


@pytest.mark.parametrize("sources", [None, ["a"], ["a", "b"]])
@pytest.mark.parametrize("told", [True, False])
def test_events_wait_for_what_is_told_with_sources_as_without(
    sources: list[str] | None, *, told: bool
) -> None:
    query = op.Query("all").order_by("ts").pattern("A").disorder(op.Punctuation())
    stream = op.open(query, sources=sources)
    for time in range(0, 1000, 100):
        stream.push({"ts": [time]}, source=sources and "a")
    for source in sources or [None]:
        if told:
            stream.advance(950) if source is None else stream.heartbeat(source, 950)
        elif source is not None:
            stream.finish(source)
    if not told:
        stream.finish()
    assert (stream.order.latency, stream.order.longest_wait) == (450.0, 900)


def test_sources_in_order_are_counted_too() -> None:
    stream = op.open(op.Query("all").order_by("ts").pattern("A"), sources=["a", "b"])
    stream.push({"ts": [1, 2], "x": [1, 2]}, source="a")
    stream.push({"ts": [9], "x": [3]}, source="a")
    stream.push({"ts": [9], "x": [4]}, source="b")
    assert (stream.order.latency, stream.order.longest_wait) == (pytest.approx((7 + 7 + 0) / 3), 7)


def test_nothing_waits_in_a_stream_in_order() -> None:
    stream = op.open(op.Query("all").order_by("ts").pattern("A"))
    stream.push({"ts": [1, 2], "x": [1, 2]})
    assert (stream.order.latency, stream.order.longest_wait) == (0.0, 0)
