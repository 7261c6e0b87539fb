"""How K is chosen, by the disorder of the query; see `kernels.slack`."""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

from outpace.engine.arrays import END_OF_TIME
from outpace.engine.kernels import slack as kernel
from outpace.engine.order.clock import SlackRule, fixed
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.disorder import WindowAggregate

_AGGREGATES: Final = {
    WindowAggregate.COUNT: kernel.COUNT_OF,
    WindowAggregate.SUM: kernel.SUM_OF,
    WindowAggregate.AVG: kernel.AVERAGE_OF,
    WindowAggregate.MIN: kernel.EXTREME_OF,
    WindowAggregate.MAX: kernel.EXTREME_OF,
}


def fixed_slack(disorder: BoundDisorder) -> SlackRule:
    """Return the rule of K-slack."""
    return fixed(disorder["slack"])


def greatest_delay(disorder: BoundDisorder) -> SlackRule:
    """Return the rule of MP-K-slack."""
    least, most = _bounds(disorder)
    return SlackRule(kernel.GREATEST_DELAY, least, most)


def delay_quantile(disorder: BoundDisorder) -> SlackRule:
    """Return the rule that a share of all events is in time."""
    least, most = _bounds(disorder)
    return SlackRule(kernel.QUANTILE, least, most, share=disorder["share"])


def latency_distance(disorder: BoundDisorder) -> SlackRule:
    """Return the rule of LDOP."""
    least, most = _bounds(disorder)
    return SlackRule(
        kernel.DISTANCE,
        least,
        most,
        length=disorder["window"],
        low=disorder["low"],
        high=disorder["high"],
    )


def window_coverage(disorder: BoundDisorder) -> SlackRule:
    """Return the rule of AQ-K-slack."""
    least, most = _bounds(disorder)
    aggregate, confidence = disorder["aggregate"], disorder["confidence"]
    # A sum of fewer events is too small; an average may be too small or too large.
    sure = {
        WindowAggregate.AVG: NormalDist().inv_cdf((1 + confidence) / 2),
        WindowAggregate.MIN: confidence,
        WindowAggregate.MAX: confidence,
    }
    return SlackRule(
        kernel.COVERAGE,
        least,
        most,
        share=disorder["quantile"],
        length=disorder["window"],
        aggregate=_AGGREGATES[aggregate],
        error=disorder["error"],
        normal=sure.get(aggregate, NormalDist().inv_cdf(confidence)),
        proportional=disorder["proportional"],
        derivative=disorder["derivative"],
    )


def _bounds(disorder: BoundDisorder) -> tuple[int, int]:
    least, most = disorder["at_least"], disorder["at_most"]
    return least or 0, END_OF_TIME if most is None else most
