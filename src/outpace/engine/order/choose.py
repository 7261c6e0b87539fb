"""Which part brings events into order, by what a query says of them.

A new kind of disorder is a value in `outpace.pattern.disorder`, a part here that runs it (its own
file, with the methods of `Order`), and a word in `outpace.pattern.notation.disorder`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

from outpace.engine.order.contract import Order
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.source_order import ReorderedSources, SourceOrder
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import Disorder, InOrder, KSlack, Watermark


def _k_slack(bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> Order:
    return Reorderer(bound, disorder, schema, slack=disorder["slack"])


#: What runs each kind.
ORDERS: Final[dict[type[Disorder], Callable[[BoundQuery, BoundDisorder, pa.Schema], Order]]] = {
    InOrder: partial(Reorderer, slack=0),
    KSlack: _k_slack,
    Watermark: partial(Reorderer, slack=None),
}


def make_order(
    bound: BoundQuery,
    disorder: BoundDisorder | None,
    schema: pa.Schema,
    sources: tuple[str, ...] | None = None,
) -> Order:
    """Return what brings the events of a stream, or of several sources, into the query's order.

    Each source is brought into order by itself; then their events are.
    """

    def make() -> Order:
        assert disorder is not None
        return ORDERS[type(disorder.value)](bound, disorder, schema)

    if sources is None:
        return make()
    if disorder is None:
        return SourceOrder(bound, sources, schema)
    return ReorderedSources(bound, disorder, {source: make() for source in sources}, schema)
