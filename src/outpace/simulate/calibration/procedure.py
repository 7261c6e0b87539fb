"""How a query is measured: first to estimate its costs, then, in new runs, to be predicted.

Rates that costs are estimated from are others than those at which predictions are checked, and the
checks are runs of their own: an estimate is never compared with what it was made of. Rates that are
compared are measured in turns, so that what else happens on the machine happens to all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from outpace.errors import OutpaceError
from outpace.simulate.calibration.compare import Reading
from outpace.simulate.calibration.estimates import (
    Costs,
    TimedBatch,
    estimate_costs,
    selectivity_of,
)
from outpace.simulate.calibration.live_stream import (
    LiveStream,
    RateStretch,
    RowCounts,
    StreamSetting,
    counting,
    latency_of,
    live_stream,
    steady,
    throughput_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Before anything counts, events come at this part of the greatest rate that batches allow.
_WARM_AT: Final = 0.1


@dataclass(frozen=True, slots=True)
class CalibrationPace:
    """How long things are measured.

    Parameters
    ----------
    warm
        The seconds before anything counts, in which batches follow each other and Java compiles.
    seconds
        The seconds at each rate, each time; longer where batches take long.
    turns
        How often rates rise and fall again when costs are estimated.
    full
        The batches at full speed, before the rates and after them.
    batches
        The least number of batches that are waited for at a rate.
    rates
        The rates that costs are estimated from, as parts of the greatest one, rising.
    """

    warm: float
    seconds: float
    turns: int
    full: int
    batches: int = 5
    rates: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """What a calibration found.

    Parameters
    ----------
    costs
        What a batch and an event cost.
    selectivity
        How many matches there are for each event.
    counts
        What the query's metrics counted.
    rates
        The rates that were measured, each with its number of batches.
    full
        The number of batches at full speed.
    """

    costs: Costs
    selectivity: float
    counts: RowCounts
    rates: dict[float, int]
    full: int


def measure_costs(
    session: SparkSession,
    setting: StreamSetting,
    pace: CalibrationPace,
    on_step: Callable[[str], None] = lambda _: None,
) -> CalibrationResult:
    """Run a query at full speed and at several rates, and estimate what it costs.

    Rates rise and then fall, between two times at full speed: what becomes faster or slower with
    the time does so for all of them alike. Each time is half as long as `pace` says.

    Parameters
    ----------
    session
        Where it runs.
    setting, pace
        What runs, and for how long.
    on_step
        Called with the name of each step before it begins.
    """
    _warm(session, setting, pace, on_step)
    with counting(session) as counts, live_stream(session, setting) as live:
        _begin(live, setting, pace)
        on_step("full speed")
        full = _full(live, setting, pace.full)
        size, seconds = (
            statistics.median(batch.events for batch in full),
            statistics.median(batch.seconds for batch in full),
        )
        greatest = size / max(setting.trigger, seconds)
        stretches = []
        for part in pace.turns * (*pace.rates, *reversed(pace.rates)):
            on_step(f"{part * greatest:,.0f} events/s")
            stretches.append(live.at_rate(part * greatest, pace.seconds / 2, pace.batches))
        on_step("full speed")
        full += _full(live, setting, pace.full)
        batches = live.batches()
        counted = counts()
    paced: dict[float, list[TimedBatch]] = {}
    for stretch in stretches:
        paced.setdefault(stretch.rate, []).extend(_settled(batches, stretch))
    return CalibrationResult(
        estimate_costs(paced, full),
        selectivity_of(counted.matches, counted.events),
        counted,
        {rate: len(own) for rate, own in paced.items()},
        len(full),
    )


def measure_rates(
    session: SparkSession,
    setting: StreamSetting,
    pace: CalibrationPace,
    rates: Sequence[tuple[float, bool]],
    repeat: int,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[list[Reading]]:
    """Run a query at rates, in turns, and return the readings of each rate.

    Parameters
    ----------
    session, setting, pace, on_step
        As for `measure_costs`.
    rates
        Each with whether batches cannot keep up with it.
    repeat
        How often each is measured.
    """
    stretches: list[list[RateStretch]] = [[] for _ in rates]
    _warm(session, setting, pace, on_step)
    # Metrics are counted here as well, so that batches do the same as when costs were estimated.
    with counting(session), live_stream(session, setting) as live:
        _begin(live, setting, pace)
        for _ in range(repeat):
            for own, (rate, overload) in zip(stretches, rates, strict=True):
                if overload:
                    live.drain()
                on_step(f"{rate:,.0f} events/s")
                own.append(live.at_rate(rate, pace.seconds, pace.batches))
                if overload:
                    live.drain()
        live.drain()
        batches = live.batches()
        return [
            [_reading(live, batches, stretch, overload) for stretch in own]
            for own, (_, overload) in zip(stretches, rates, strict=True)
        ]


def _warm(
    session: SparkSession,
    setting: StreamSetting,
    pace: CalibrationPace,
    on_step: Callable[[str], None],
) -> None:
    """Run the query with batches right after each other, so that Java compiles sooner."""
    on_step("warm-up")
    with live_stream(session, replace(setting, trigger=0.0)) as live:
        live.at_full_speed(2)
        live.at_rate(_low_rate(setting), pace.warm, pace.batches)


def _begin(live: LiveStream, setting: StreamSetting, pace: CalibrationPace) -> None:
    """Let a query that has just started load what it needs."""
    live.at_full_speed(1)
    live.at_rate(_low_rate(setting), setting.trigger, pace.batches)


def _low_rate(setting: StreamSetting) -> float:
    return _WARM_AT * setting.events_max / setting.trigger


def _full(live: LiveStream, setting: StreamSetting, count: int) -> list[TimedBatch]:
    """Return the batches at full speed that are as large as they may be, or nearly."""
    # The first of them may begin before all events are there, and is not counted.
    stretch = live.at_full_speed(count + 2)
    found = steady(live.batches(), stretch)
    return [batch for batch in found if 2 * batch.events >= setting.events_max]


def _settled(batches: Sequence[TimedBatch], stretch: RateStretch) -> list[TimedBatch]:
    """Return the batches of a stretch without the first one."""
    return steady(batches, stretch)[1:]


def _reading(
    live: LiveStream, batches: Sequence[TimedBatch], stretch: RateStretch, overload: bool
) -> Reading:
    """Return what a stretch shows; in overload all that was done in it counts."""
    if overload:
        counted = [b for b in steady(batches, stretch) if b.committed <= stretch.ended]
    else:
        counted = _settled(batches, stretch)
    if len(counted) < 2:
        raise OutpaceError(
            f"there were too few batches at {stretch.rate:,.0f} events/s", hint="measure for longer"
        )
    return Reading(live.came(stretch), latency_of(counted), throughput_of(counted))
