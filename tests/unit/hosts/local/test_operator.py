"""User-defined operators run where patterns run: on tables and streams, by partition."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pytest

import outpace as op

TRADES = pa.table(
    {
        "symbol": ["x", "y", "x", "y", "x", "x"],
        "ts": [3, 1, 1, 2, 2, 4],
        "price": [30.0, 5.0, 10.0, 7.0, 20.0, 5.0],
        "volume": [1, 1, 2, 3, 2, 5],
    }
)


class Vwap(op.Operator):
    """The mean price weighted by volume, of whole columns at a time."""

    output = pa.schema([("vwap", pa.float64()), ("trades", pa.int64())])

    def __init__(self) -> None:
        self.money = 0.0
        self.volume = 0
        self.trades = 0

    def process(self, events: pa.Table) -> None:
        price, volume = events["price"].to_numpy(), events["volume"].to_numpy()
        self.money += float(price @ volume)
        self.volume += int(volume.sum())
        self.trades += events.num_rows

    def close(self) -> dict[str, list[object]]:
        return {"vwap": [self.money / self.volume], "trades": [self.trades]}

    def state(self) -> bytes:
        return json.dumps([self.money, self.volume, self.trades]).encode()

    def restore(self, data: bytes) -> None:
        self.money, self.volume, self.trades = json.loads(data)


class Sequence(op.EventOperator):
    """A detector of price rises in a row, event by event."""

    output = pa.schema([("from_ts", pa.int64()), ("to_ts", pa.int64())])

    def __init__(self) -> None:
        self.rising: list[tuple[float, int]] = []

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        price, ts = event["price"], event["ts"]
        assert isinstance(price, float)
        assert isinstance(ts, int)
        if self.rising and price <= self.rising[-1][0]:
            self.rising = []
        self.rising.append((price, ts))
        if len(self.rising) == 3:
            yield {"from_ts": self.rising[0][1], "to_ts": ts}


class Model:
    """A stand-alone model with the usual `predict`."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        return features[:, 0] * features[:, 1] > 35


class Flagged(op.Operator):
    """Events that a model flags, vectorised."""

    output = pa.schema([("ts", pa.int64())])

    def process(self, events: pa.Table) -> pa.Table:
        features = np.column_stack([events["price"].to_numpy(), events["volume"].to_numpy()])
        return events.filter(pa.array(Model().predict(features))).select(["ts"])


BASE = op.Query("own").partition_by("symbol").order_by("ts")


def test_an_aggregate_over_partitions() -> None:
    assert op.match(TRADES, BASE.apply(Vwap)).to_pylist() == [
        {"symbol": "x", "vwap": 11.5, "trades": 4},
        {"symbol": "y", "vwap": 6.5, "trades": 2},
    ]


def test_a_table_gives_partition_after_partition() -> None:
    class Told(op.EventOperator):
        output = pa.schema([("said", pa.string())])

        def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
            return [{"said": f"{event['ts']}"}]

        def close(self) -> dict[str, list[str]]:
            return {"said": ["end"]}

    found = op.match(TRADES, BASE.apply(Told)).to_pylist()
    assert ["".join(row.values()) for row in found] == [
        *("x1", "x2", "x3", "x4", "xend"),
        *("y1", "y2", "yend"),
    ]


def test_events_come_in_the_order_of_the_query() -> None:
    found = op.match(TRADES, BASE.apply(Sequence)).to_pylist()
    assert found == [{"symbol": "x", "from_ts": 1, "to_ts": 3}]


def test_a_model_sees_whole_columns() -> None:
    found = op.match(TRADES, op.Query("flags").order_by("ts").apply(Flagged))
    assert sorted(found["ts"].to_pylist()) == [2]


@pytest.mark.parametrize("cut", range(7))
def test_a_stream_in_pieces_gives_the_same(cut: int) -> None:
    ordered = TRADES.sort_by("ts")
    matcher = op.open(BASE.apply(Vwap))
    first = matcher.push(ordered.slice(0, cut))
    matcher = op.resume(BASE.apply(Vwap), matcher.state())
    second = matcher.push(ordered.slice(cut))
    rows = [*first.to_pylist(), *second.to_pylist(), *matcher.finish().to_pylist()]
    whole = op.match(TRADES, BASE.apply(Vwap)).to_pylist()
    assert sorted(map(str, rows)) == sorted(map(str, whole))


def test_an_operator_that_cannot_be_saved_says_so() -> None:
    matcher = op.open(BASE.apply(Sequence))
    matcher.push(TRADES.slice(0, 1))
    with pytest.raises(op.UnsupportedError, match="operator Sequence cannot be saved"):
        matcher.state()


def test_rows_that_do_not_fit_are_refused() -> None:
    class Wrong(Vwap):
        def close(self) -> dict[str, list[object]]:
            return {"vwap": ["much"], "trades": [1]}

    with pytest.raises(op.DataError, match="rows that do not fit its output"):
        op.match(TRADES, BASE.apply(Wrong))


def test_a_pattern_beside_an_operator_is_refused() -> None:
    with pytest.raises(op.BindError, match="a pattern or an operator, not both"):
        op.match(TRADES, BASE.apply(Vwap).pattern("A"))


def test_matches_are_events_of_the_next_query() -> None:
    low = (
        op.Query("rise")
        .partition_by("symbol")
        .order_by("ts")
        .pattern("A B")
        .define(B="price > A.price")
        .measures(ts="B.ts")
        .skip_to_next_row()
    )
    high = (
        op.Query("two rises")
        .order_by("ts")
        .pattern("A -> B")
        .within(5)
        .define(B="symbol <> A.symbol")
        .measures(first="A.symbol", then="B.symbol")
    )
    found = op.match(op.match(TRADES, low), high).to_pylist()
    assert found == [{"first": "x", "then": "y"}]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_key_without_a_number_is_one_key_in_every_piece(resumed: bool) -> None:
    symbols = pa.array([math.nan, 0.0, -math.nan, -0.0])
    trades = TRADES.slice(0, 4).set_column(0, "symbol", symbols)
    query = op.Query("vwap").partition_by("symbol").apply(Vwap)
    matcher = op.open(query, schema=trades.schema)
    for row in range(4):
        matcher.push(trades.slice(row, 1))
        if resumed:
            matcher = op.resume(query, matcher.state())
    pieces, whole = matcher.finish(), op.match(trades, query)
    assert pieces["trades"].to_pylist() == whole["trades"].to_pylist() == [2, 2]
