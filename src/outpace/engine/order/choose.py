"""Which part brings events into order, by the disorder that a query names.

A new kind of disorder is a value in `outpace.pattern.disorder`, a part here that runs it (its own
file, with the methods of `Order`), and a word in `outpace.pattern.notation.disorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace.engine.match.bits import BitTask
from outpace.engine.order import rules
from outpace.engine.order.clock import SlackRule, fixed
from outpace.engine.order.contract import Order
from outpace.engine.order.ordered_sources import SourceOrder
from outpace.engine.order.reordered_sources import ReorderedSources
from outpace.engine.order.reorderer import Reorderer
from outpace.engine.order.sequence import SequenceOrder
from outpace.engine.order.source_merge import CAPACITY, SEQUENCE
from outpace.engine.order.speculative import SpeculativeOrder
from outpace.engine.order.speculative_sources import SpeculativeSources
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

OrderFactory: TypeAlias = Callable[..., Order]

#: How each kind that has a K chooses it; None where it is told.
RULES: Final[dict[type[Disorder], Callable[[BoundDisorder], SlackRule | None]]] = {
    KSlack: rules.fixed_slack,
    Punctuation: lambda _: None,
    MPKSlack: rules.greatest_delay,
    AQKSlack: rules.window_coverage,
    LDOP: rules.latency_distance,
    Quantile: rules.delay_quantile,
}


def _make_reorderer(
    bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema, useful: BitTask | None = None
) -> Order:
    rule = RULES[type(disorder.value)](disorder)
    return Reorderer(bound, disorder, schema, rule, useful=useful)


def _make_speculative(
    bound: BoundQuery, disorder: BoundDisorder, schema: pa.Schema, useful: BitTask | None = None
) -> Order:
    inner: BoundDisorder = disorder["slack"]
    _check_rule(inner)
    rule = RULES[type(inner.value)](inner)
    return SpeculativeOrder(bound, disorder, schema, rule, useful=useful)


def _check_rule(slack: BoundDisorder) -> None:
    """Refuse a kind of disorder without a K."""
    kind = type(slack.value)
    if kind not in RULES:
        raise UnsupportedError(
            f"nothing says what K is for {kind.__name__}",
            where="op.Speculative",
            hint=f"write a duration, or one of {_names(RULES)}",
        )


def _names(kinds: Iterable[type[Disorder]]) -> str:
    return ", ".join(f"op.{kind.__name__}" for kind in kinds)


#: What runs each kind.
ORDERS: Final[dict[type[Disorder], OrderFactory]] = {
    InOrder: partial(Reorderer, rule=fixed(0), in_order=True),
    **dict.fromkeys(RULES, _make_reorderer),
    Sequence: SequenceOrder,
    Speculative: _make_speculative,
}


def make_order(
    bound: BoundQuery,
    disorder: BoundDisorder | None,
    schema: pa.Schema,
    sources: tuple[str, ...] | None = None,
    useful: BitTask | None = None,
    *,
    sequence: str | None = SEQUENCE,
    capacity: int = CAPACITY,
) -> Order:
    """Return what brings the events of a stream, or of several sources, into the query's order.

    Each source is brought into order by itself; then their events are. What says which events a
    step can use is for a kind that drops the others; sequence and capacity are for sources that are
    each in order, see `SourceOrder`.
    """

    def make() -> Order:
        assert disorder is not None
        kind = type(disorder.value)
        filters = useful is not None and (kind in RULES or kind is Speculative)
        given: dict[str, Any] = {"useful": useful} if filters else {}
        if kind not in ORDERS:
            raise UnsupportedError(
                f"{kind.__name__} is no reorderer of Outpace",
                where="disorder",
                hint=f"write one of {_names(ORDERS)}",
            )
        return ORDERS[kind](bound, disorder, schema, **given)

    if sources is None:
        return make()
    if disorder is None:
        return SourceOrder(bound, sources, schema, sequence=sequence, capacity=capacity)
    if not isinstance(disorder.value, Speculative):
        return ReorderedSources(bound, disorder, {source: make() for source in sources}, schema)
    if disorder["clock"] is not None:
        raise UnsupportedError(
            "the clock of one source is for events that come as one stream",
            where="sources",
            hint="leave out sources, or clock: with sources each has a clock of its own",
        )
    inner: BoundDisorder = disorder["slack"]
    _check_rule(inner)
    each = {source: _make_reorderer(bound, inner, schema) for source in sources}
    return SpeculativeSources(bound, disorder, each, schema, useful)
