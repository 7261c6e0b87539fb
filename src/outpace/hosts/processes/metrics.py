"""Metrics of a run, over time: rates, what waits, open windows, duplication, state.

Totals are always current. Samples of them are kept at regular times; when there are too many, every
second one is dropped and samples are taken half as often, so a run of any length has between
`most / 2` and `most` of them. Memory: `most` samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from outpace.engine.emission import ChangeCounters

#: Samples that are kept at most, and the seconds between the first of them.
MOST_SAMPLES: Final = 2048
FIRST_INTERVAL_S: Final = 0.1

#: What is told of matches that may be taken back.
_CHANGES: Final = (
    *("tentative", "confirmed", "retracted", "share_retracted"),
    *("tentative_latency", "confirmed_latency", "rollbacks", "replayed"),
    *("checkpoints", "checkpoint_bytes", "deliveries", "redeliveries", "full"),
)

_SCHEMA: Final = pa.schema(
    [
        ("seconds", pa.float64()),
        ("part", pa.string()),
        ("name", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)


@dataclass(slots=True)
class SourceMetrics:
    """What is known of a source.

    Parameters
    ----------
    events, late, invalid
        The events taken from it, and those of them that came late, or cannot be used.
    buffered
        Those that wait to be ordered.
    slack
        How far the watermark of the source stays behind its greatest time, in units of time.
    silent
        1 while it says nothing and the others do not wait for it any more, else 0.
    unawaited
        Events that went on without it while it was silent, although it had not come so far.
    unawaited_first, unawaited_last
        The times of the first and of the last of these when it was silent last, in units of time; 0
        where there are none.
    drift, drift_bound, clock_jumps
        What is added to its times, how far that may be off, in microseconds, and how often its
        clock was set; where clocks are compared.
    """

    events: int = 0
    buffered: int = 0
    slack: int = 0
    late: int = 0
    invalid: int = 0
    silent: int = 0
    unawaited: int = 0
    unawaited_first: int = 0
    unawaited_last: int = 0
    drift: int = 0
    drift_bound: int = 0
    clock_jumps: int = 0


@dataclass(slots=True)
class InstanceMetrics:
    """What is known of an instance.

    Parameters
    ----------
    events, matches
        What it processed and found.
    waiting
        Events that were sent to it and not processed yet.
    open_windows
        Windows that it has open.
    rows_kept, state_bytes
        The rows that undecided matches may need, and the memory for all that it keeps.
    busy_s
        The seconds that it worked.
    """

    events: int = 0
    matches: int = 0
    waiting: int = 0
    open_windows: int = 0
    rows_kept: int = 0
    state_bytes: int = 0
    busy_s: float = 0.0


@dataclass(slots=True)
class OperatorMetrics:
    """What is known of the rest: splitter, scheduler and merger.

    Parameters
    ----------
    events, matches
        What came in, and the rows that came out.
    sent, bytes
        Events sent to instances, one for each instance that gets it; and the bytes of all events in
        shared memory, where each lies once.
    open_windows
        Windows that are open.
    unawaited
        Events that went on although a silent source had not come so far.
    latency, longest_wait
        How long events waited for their turn on average, and at most: by the times of arrival where
        the query names their column and there is one source; else from piece to piece, in units of
        time by the greatest event time, with `op.Sequence` and one source in microseconds by the
        clock.
    waiting_matches, remembered_matches
        What the merger holds: matches that wait for an instance that is behind, and those that may
        be found again.
    rate_limit
        Events per second that may be read; 0 without rate control.
    alpha, slack, tentative, confirmed, retracted, share_retracted, rollbacks, replayed
        Of matches that may be taken back: see `SpeculationCounters`.
    tentative_latency, confirmed_latency
        How far time had come behind what decided them when they came and were confirmed, see there.
    retained, retained_bytes, skipped_share, savepoint_age_s, replays, recover_s, doubles
        Where the run is recovered by a replay: see `RecoveryCounters`.
    checkpoints, checkpoint_bytes, checkpoint_seconds, deliveries, redeliveries, full
        What is done so that they may be: see there.
    """

    events: int = 0
    matches: int = 0
    sent: int = 0
    bytes: int = 0
    open_windows: int = 0
    unawaited: int = 0
    latency: float = 0.0
    longest_wait: int = 0
    waiting_matches: int = 0
    remembered_matches: int = 0
    rate_limit: float = 0.0
    alpha: float = 1.0
    slack: int = 0
    tentative: int = 0
    confirmed: int = 0
    retracted: int = 0
    share_retracted: float = 0.0
    tentative_latency: float = 0.0
    confirmed_latency: float = 0.0
    rollbacks: int = 0
    replayed: int = 0
    retained: int = 0
    retained_bytes: int = 0
    skipped_share: float = 0.0
    savepoint_age_s: float = 0.0
    replays: int = 0
    recover_s: float = 0.0
    doubles: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    checkpoint_seconds: float = 0.0
    deliveries: int = 0
    redeliveries: int = 0
    full: int = 0

    def take(self, changes: ChangeCounters) -> None:
        """Take what became of matches that may be taken back."""
        for name in _CHANGES:
            setattr(self, name, getattr(changes, name))

    @property
    def duplication(self) -> float:
        """How often an event was sent on average."""
        return self.sent / self.events if self.events else 1.0


@dataclass
class Metrics:
    """The metrics of a run: current totals, and samples of them.

    Examples
    --------
    >>> metrics = Metrics.of(["door"], instances=1)
    >>> metrics.operator.events = metrics.sources["door"].events = 100
    >>> metrics.sample(seconds=1.0)
    >>> metrics.operator.events = metrics.sources["door"].events = 400
    >>> metrics.sample(seconds=2.0)
    >>> metrics.over_time("source", "rate").select(["seconds", "name", "value"]).to_pylist()
    [{'seconds': 1.0, 'name': 'door', 'value': 100.0},
     {'seconds': 2.0, 'name': 'door', 'value': 300.0}]
    """

    sources: dict[str, SourceMetrics]
    instances: list[InstanceMetrics]
    operator: OperatorMetrics = field(default_factory=OperatorMetrics)
    seconds: float = 0.0
    _samples: list[tuple[float, list[tuple[str, str, str, float]]]] = field(default_factory=list)
    _interval_s: float = FIRST_INTERVAL_S
    _most: int = MOST_SAMPLES

    @staticmethod
    def of(sources: list[str], instances: int) -> Metrics:
        """Return the metrics of a run that has not begun."""
        return Metrics(
            {source: SourceMetrics() for source in sources},
            [InstanceMetrics() for _ in range(instances)],
        )

    @property
    def table(self) -> pa.Table:
        """All samples, one row for each value: seconds, part, name, metric, value.

        Parts are "source", "instance" and "operator". Rates are events (or matches) per second
        since the sample before. The "wait" of a source is how many seconds its events wait to be
        ordered: those that wait, divided by the rate.
        """
        return self.over_time()

    def over_time(self, part: str | None = None, metric: str | None = None) -> pa.Table:
        """Return the samples of one part or one metric, or all of them."""
        rows = []
        before: dict[tuple[str, str, str], tuple[float, float]] = {}
        rate = 0.0
        for seconds, values in self._samples:
            for where, name, what, value in values:
                rows.append((seconds, where, name, what, value))
                if what == "buffered" and rate > 0:
                    # The rate of the source's events was the last that was computed.
                    rows.append((seconds, where, name, "wait", value / rate))
                if what in _RATES:
                    then, last = before.get((where, name, what), (0.0, 0.0))
                    rate = (value - last) / max(seconds - then, 1e-9)
                    rows.append((seconds, where, name, _RATES[what], rate))
                    before[where, name, what] = seconds, value
        chosen = [row for row in rows if part in (None, row[1]) and metric in (None, row[3])]
        columns = zip(*chosen, strict=True) if chosen else [[]] * len(_SCHEMA)
        return pa.table([list(column) for column in columns], schema=_SCHEMA)

    def due(self, seconds: float) -> bool:
        """Say whether it is time for a sample."""
        last = self._samples[-1][0] if self._samples else 0.0
        return seconds - last >= self._interval_s

    def sample(self, seconds: float) -> None:
        """Keep the current values as those of a time, in seconds since the start."""
        self.seconds = seconds
        self._samples.append((seconds, self._values()))
        if len(self._samples) > self._most:
            # A sample is kept with the one before it dropped, so rates stay those of all events.
            self._samples = self._samples[1::2]
            self._interval_s *= 2

    def _values(self) -> list[tuple[str, str, str, float]]:
        values: list[tuple[str, str, str, float]] = []
        for name, source in self.sources.items():
            values += [("source", name, key, value) for key, value in _fields(source)]
        for number, instance in enumerate(self.instances):
            values += [("instance", str(number), key, value) for key, value in _fields(instance)]
        values += [("operator", "", key, value) for key, value in _fields(self.operator)]
        values.append(("operator", "", "duplication", self.operator.duplication))
        return values


#: Totals that are shown as rates, too.
_RATES: Final = {"events": "rate", "matches": "match_rate", "sent": "sent_rate"}


def _fields(part: SourceMetrics | InstanceMetrics | OperatorMetrics) -> list[tuple[str, float]]:
    return [(name, float(getattr(part, name))) for name in part.__dataclass_fields__]
