"""How long events wait in an order: as if each event were looked at."""

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


def stream(size: int) -> pa.Table:
    """Return events that come up to 12 units late, with numbers by their times."""
    random = np.random.default_rng(3)
    times = np.cumsum(random.integers(1, 4, size))
    arrival = times + np.where(random.random(size) < 0.3, random.integers(1, 13, size), 0)
    order = np.lexsort([times, arrival])
    columns = {"ts": times[order], "at": arrival[order], "seq": order}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def order_of(disorder: Disorder, schema: pa.Schema) -> Order:
    query = op.Query("all").order_by("ts").pattern("A").disorder(disorder)
    return make_order(bind(query, schema), bind_disorder(query, schema), schema)


@pytest.mark.parametrize("piece", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_waits_are_those_of_each_event(kind: str, piece: int) -> None:
    events = stream(300)
    order, waits = order_of(KINDS[kind], events.schema), Waits()
    came: dict[int, int] = {}
    waited: list[int] = []

    def look(released: ReleasedEvents, *, last: bool = False) -> None:
        waits.note(order, released.rows.num_rows, last=last)
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


def test_waits_go_on_from_what_was_saved() -> None:
    events = stream(100)
    steps = [EventsArrived(events.slice(low, 5)) for low in range(0, 100, 5)]
    order, once = order_of(op.KSlack(7), events.schema), Waits()
    again, parts = order_of(op.KSlack(7), events.schema), []
    for step in steps:
        once.note(order, order.push(step).rows.num_rows, last=False)
        parts.append(Waits())
        parts[-1].begin(again)
        parts[-1].note(again, again.push(step).rows.num_rows, last=False)
        saved, again = again.state(), order_of(op.KSlack(7), events.schema)
        again.restore(saved)
    assert sum(part.events for part in parts) == once.events
    assert sum(part.waited for part in parts) == once.waited > 0


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
