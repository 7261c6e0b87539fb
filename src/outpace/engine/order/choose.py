"""Which part brings events into order, by what a query says of them.

A new kind of disorder is a value in `outpace.pattern.disorder`, a part here that runs it (its own
file, with the methods of `Order`), and a word in `outpace.pattern.notation.disorder`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace.engine.match.bits import BitTask
from outpace.engine.order import rules
from outpace.engine.order.clock import SlackRule, fixed
from outpace.engine.order.contract import Order
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.sequence import SequenceOrder
from outpace.engine.order.source_order import ReorderedSources, SourceOrder
from outpace.engine.order.speculative import SpeculativeOrder
from outpace.errors import UnsupportedError
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery
from outpace.pattern.disorder import (
    LDOP,
    AQKSlack,
    Disorder,
    InOrder,
    KSlack,
    MPKSlack,
    Punctuation,
    Quantile,
    Sequence,
    Speculative,
)

Make: TypeAlias = Callable[..., Order]


def _by(rule: Callable[[BoundDisorder], SlackRule | None]) -> Make:
    """Return what makes a reorderer that chooses K by a rule."""

    def make(
        bound: BoundQuery,
        disorder: BoundDisorder,
        schema: pa.Schema,
        useful: BitTask | None = None,
    ) -> Order:
        return Reorderer(bound, disorder, schema, rule(disorder), useful=useful)

    return make


def _make_inner(bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema) -> Order:
    """Return what runs the disorder that another one goes by."""
    return ORDERS[type(disorder.value)](bound, disorder, schema)


#: What runs each kind.
ORDERS: Final[dict[type[Disorder], Make]] = {
    InOrder: partial(Reorderer, rule=fixed(0), in_order=True),
    KSlack: _by(rules.fixed_slack),
    Punctuation: _by(lambda _: None),
    MPKSlack: _by(rules.greatest_delay),
    AQKSlack: _by(rules.window_coverage),
    LDOP: _by(rules.latency_distance),
    Quantile: _by(rules.delay_quantile),
    Sequence: SequenceOrder,
    Speculative: partial(SpeculativeOrder, make=_make_inner),
}


def make_order(
    bound: BoundQuery,
    disorder: BoundDisorder | None,
    schema: pa.Schema,
    sources: tuple[str, ...] | None = None,
    useful: BitTask | None = None,
) -> Order:
    """Return what brings the events of a stream, or of several sources, into the query's order.

    Each source is brought into order by itself; then their events are. What says which events a
    step can use is for a kind that drops the others.
    """
    given: dict[str, Any] = {} if useful is None else {"useful": useful}

    def make() -> Order:
        assert disorder is not None
        kind = type(disorder.value)
        if kind not in ORDERS:
            raise UnsupportedError(
                f"nothing runs {kind.__name__}",
                hint="give it a row in ORDERS of outpace.engine.order.choose",
            )
        return ORDERS[kind](bound, disorder, schema, **given)

    if sources is None:
        return make()
    if disorder is None:
        return SourceOrder(bound, sources, schema)
    if isinstance(disorder.value, Speculative):
        raise UnsupportedError(
            "op.Speculative takes the events of all sources as one stream",
            where="sources",
            hint="leave out sources; a column `source` breaks ties",
        )
    return ReorderedSources(bound, disorder, {source: make() for source in sources}, schema)
