"""What a simulation found: latency, throughput, utilisation, queues and drops, with history.

Single numbers are asked for by id. Tables are Arrow, one row for each consumer, query, vertex or
VM; histories have one row for each of these and each step. What counts is the time after the
warm-up, except in histories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.errors import ScenarioError, did_you_mean
from outpace.simulate.layout import SAME_TIME, Layout
from outpace.simulate.metrics import Floats, Recording, histogram_percentile
from outpace.simulate.model import BatchOperator, Consumer, WindowedOperator, kind_of
from outpace.simulate.phases import Phase, phases

_PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a simulation.

    Parameters
    ----------
    layout
        The scenario, numbered.
    recording
        What the engine recorded.
    instances
        Where a rule scaled them: from when on there were how many instances.

    Examples
    --------
    >>> from outpace.simulate import VM, Consumer, Edge, Producer, QueryModel, Scenario, Uniform
    >>> from outpace.simulate import simulate
    >>> query = QueryModel("q", (Producer("in", Uniform(10), instructions=5e6), Consumer("out")),
    ...               (Edge("in", "out"),))
    >>> result = simulate(Scenario((query,), (VM("worker", mips=100),), duration=60, warm_up=10))
    >>> round(result.latency("out"), 6), round(result.throughput("out"), 6)
    (0.05, 10.0)
    >>> result.vms().to_pylist()
    [{'vm': 'worker', 'utilisation': 0.5, 'memory_max': 0.0}]
    """

    layout: Layout
    recording: Recording
    instances: tuple[tuple[float, int], ...] = ()

    def latency(self, consumer: str) -> float:
        """Return the average latency of a consumer's events, in seconds; NaN without events.

        Parameters
        ----------
        consumer
            The id of the consumer.
        """
        place = self._place(consumer)
        found = float(self.recording.latency[place])
        return found if self.recording.events[place] else math.nan

    def throughput(self, consumer: str) -> float:
        """Return how many produced events a second came through; NaN if the consumer never ran.

        Parameters
        ----------
        consumer
            The id of the consumer.
        """
        return float(self._throughputs()[self._place(consumer)])

    def percentile(self, consumer: str, percentile: float) -> float:
        """Return a percentile of the latency in seconds, within 2 %; NaN without events.

        Parameters
        ----------
        consumer
            The id of the consumer.
        percentile
            Which one, from 0 to 100.
        """
        return histogram_percentile(self.recording.histogram[self._place(consumer)], percentile)

    @property
    def times(self) -> Floats:
        """The end of each step of the history, in seconds."""
        return np.array([end * self.layout.scenario.tick for _, end in self._steps()])

    def consumers(self) -> pa.Table:
        """Return a row for each consumer: events, latency, percentiles, throughput, loss.

        The loss is the part of what was on the way to it that was dropped, wherever that was.
        """
        recording = self.recording
        ids = [self.layout.vertices[number].id for number in self.layout.consumers]
        return pa.table(
            {
                "consumer": pa.array(ids, pa.string()),
                "events": recording.events,
                "latency": np.where(recording.events > 0, recording.latency, math.nan),
                **{
                    f"p{p:g}": [histogram_percentile(row, p) for row in recording.histogram]
                    for p in _PERCENTILES
                },
                "throughput": self._throughputs(),
                "loss": self._losses()[list(self.layout.consumers)],
            }
        )

    def queries(self) -> pa.Table:
        """Return a row for each query.

        The latency is the average over all events of its consumers, the percentiles are theirs
        together, and throughput and loss are those of the consumer that least comes through to.
        """
        place = {self.layout.vertices[n].id: p for p, n in enumerate(self.layout.consumers)}
        throughputs = self._throughputs()
        losses = self._losses()[list(self.layout.consumers)]
        rows = []
        for query in self.layout.scenario.queries:
            own = [place[v.id] for v in query.vertices if isinstance(v, Consumer)]
            events = self.recording.events[own]
            histogram = self.recording.histogram[own].sum(axis=0)
            delay = (events * self.recording.latency[own]).sum()
            rows.append(
                {
                    "query": query.name,
                    "events": float(events.sum()),
                    "latency": float(delay / events.sum()) if events.sum() else math.nan,
                    **{f"p{p:g}": histogram_percentile(histogram, p) for p in _PERCENTILES},
                    "throughput": float(throughputs[own].min()) if own else math.nan,
                    "loss": float(losses[own].max()) if own else math.nan,
                }
            )
        return pa.Table.from_pylist(rows)

    def vertices(self) -> pa.Table:
        """Return a row for each vertex: events processed and dropped, latency, utilisation, queue.

        The latency is the average age of its events when it was done with them, the throughput how
        many it processed a second while its query ran; the events are those that came to it. The
        utilisation is the part of its VM's instructions that it used in that time. The queue's mean
        and maximum are over the ends of the steps of the history after the warm-up.
        """
        warm = [end > self.layout.warm_up_ticks for _, end in self._steps()]
        queue = self.recording.vertex_queue[warm]
        used = self.recording.processed * np.array(self.layout.costs) + self.recording.setup
        offered = self._offered_to_vertices([self._counted()])[0]
        return pa.table(
            {
                "vertex": pa.array([v.id for v in self.layout.vertices], pa.string()),
                "kind": pa.array([kind_of(v) for v in self.layout.vertices], pa.string()),
                "processed": self.recording.processed,
                "dropped": self.recording.dropped,
                "latency": _ratio(self.recording.delay, self.recording.done),
                "throughput": _ratio(self.recording.processed, self._seconds()),
                "utilisation": _ratio(used, offered),
                "queue_mean": queue.mean(axis=0),
                "queue_max": queue.max(axis=0),
            }
        )

    def vms(self) -> pa.Table:
        """Return a row for each VM: utilisation, and the most memory that was in use.

        The utilisation is the part of its instructions that was used while it was up. The memory is
        what its vertices say that they and their events take, at the ends of steps of the history.
        """
        offered = self._offered_to_vms([self._counted()])[0]
        return pa.table(
            {
                "vm": pa.array([vm.id for vm in self.layout.scenario.vms], pa.string()),
                "utilisation": _ratio(self.recording.instructions, offered),
                "memory_max": self._memory().max(axis=0),
            }
        )

    def consumer_history(self) -> pa.Table:
        """Return time, consumer, events, latency and throughput of each step."""
        recording = self.recording
        seconds = self._step_seconds()[:, None]
        ids = [self.layout.vertices[number].id for number in self.layout.consumers]
        return self._history(
            "consumer",
            ids,
            {
                "events": recording.consumer_events,
                "latency": _ratio(recording.consumer_delay, recording.consumer_events),
                "throughput": recording.consumer_totals / seconds,
            },
        )

    def vertex_history(self) -> pa.Table:
        """Return time, vertex, events processed and dropped, queue and utilisation of each step.

        The queue is that at the end of a step. The utilisation is by events; what a batch costs by
        itself is only in that of the whole run.
        """
        used = self.recording.vertex_processed * np.array(self.layout.costs)
        return self._history(
            "vertex",
            [vertex.id for vertex in self.layout.vertices],
            {
                "processed": self.recording.vertex_processed,
                "dropped": self.recording.vertex_dropped,
                "queue": self.recording.vertex_queue,
                "utilisation": _ratio(used, self._offered_to_vertices(self._steps())),
            },
        )

    def vm_history(self) -> pa.Table:
        """Return time, VM and utilisation of each step."""
        offered = self._offered_to_vms(self._steps())
        return self._history(
            "vm",
            [vm.id for vm in self.layout.scenario.vms],
            {"utilisation": _ratio(self.recording.vm_instructions, offered)},
        )

    @property
    def scaled(self) -> bool:
        """Whether there are copies of all that the scenario has: `0/…`, `1/…`."""
        return bool(self.instances)

    @property
    def price(self) -> float:
        """What an hour of the VMs costs, on average over the run if instances come and go."""
        instances = self.instances or ((0.0, 1),)
        ends = [*(time for time, _ in instances[1:]), self.layout.scenario.duration]
        spans = [(end - begin) * count for (begin, count), end in zip(instances, ends, strict=True)]
        most = max(count for _, count in instances)
        whole = sum(vm.price for vm in self.layout.scenario.vms)
        return whole / most * sum(spans) / self.layout.scenario.duration

    def _losses(self) -> Floats:
        """The part of what was on the way to each vertex, and of what came, that was dropped."""
        layout, processed = self.layout, self.recording.processed
        came = processed + self.recording.dropped
        kept = np.divide(processed, came, out=np.ones_like(came), where=came > 0)
        for vertex, incoming in enumerate(layout.incoming):
            if not incoming:
                continue
            sources = [layout.sources[edge] for edge in incoming]
            # What would have come this way without losses weighs.
            sent = [
                processed[source] * layout.edges[edge].selectivity
                for source, edge in zip(sources, incoming, strict=True)
            ]
            whole = sum(
                part / kept[source] for part, source in zip(sent, sources, strict=True) if part
            )
            kept[vertex] *= sum(sent) / whole if whole else min(kept[source] for source in sources)
        lost: Floats = 1.0 - kept
        return lost

    def _memory(self) -> Floats:
        """The bytes in use on each VM at the end of each step."""
        layout, recording = self.layout, self.recording
        memory = np.zeros((layout.samples, len(layout.scenario.vms)))
        step = layout.ticks_per_sample * layout.scenario.tick
        ends = [end for _, end in self._steps()]
        every = phases(layout)
        homes = np.array([next(p.homes for p in every if end <= p.end_tick) for end in ends])
        for number, vertex in enumerate(layout.vertices):
            held = recording.vertex_queue[:, number]
            seconds = (
                vertex.window
                if isinstance(vertex, WindowedOperator)
                else vertex.interval
                if isinstance(vertex, BatchOperator)
                else 0.0
            )
            if seconds and vertex.event_bytes:
                steps = min(layout.samples, math.ceil(seconds / step - SAME_TIME))
                taken = np.concatenate((np.zeros(steps), recording.vertex_processed[:, number]))
                sums = np.concatenate(([0.0], np.cumsum(taken)))
                held = held + sums[steps + 1 :] - sums[1:-steps]
            used = vertex.state_bytes + vertex.event_bytes * held
            memory[np.arange(layout.samples), homes[:, number]] += used
        return memory

    def _place(self, consumer: str) -> int:
        known = [self.layout.vertices[number].id for number in self.layout.consumers]
        if consumer not in known:
            raise ScenarioError(
                f"unknown consumer {consumer!r}", hint=did_you_mean(consumer, known)
            )
        return known.index(consumer)

    def _steps(self) -> list[tuple[int, int]]:
        """The first tick and the tick after the last one of each step of the history."""
        per_sample, ticks = self.layout.ticks_per_sample, self.layout.ticks
        return [
            (sample * per_sample, min((sample + 1) * per_sample, ticks))
            for sample in range(self.layout.samples)
        ]

    def _step_seconds(self) -> Floats:
        return np.array([(end - first) * self.layout.scenario.tick for first, end in self._steps()])

    def _throughputs(self) -> Floats:
        return _ratio(self.recording.totals, self._seconds()[list(self.layout.consumers)])

    def _seconds(self) -> Floats:
        """How long each vertex ran after the warm-up."""
        seconds = np.zeros(len(self.layout.vertices))
        for phase in phases(self.layout):
            ticks = _overlap(phase, *self._counted())
            seconds += np.array(phase.running) * (ticks * self.layout.scenario.tick)
        return seconds

    def _offered_to_vertices(self, spans: Sequence[tuple[int, int]]) -> Floats:
        return self._offered(
            spans,
            lambda phase: np.array(phase.capacities)[list(phase.homes)] * np.array(phase.running),
        )

    def _offered_to_vms(self, spans: Sequence[tuple[int, int]]) -> Floats:
        return self._offered(spans, lambda phase: np.array(phase.capacities))

    def _offered(self, spans: Sequence[tuple[int, int]], mips: Callable[[Phase], Floats]) -> Floats:
        """The instructions that there were in each span of ticks."""
        every = phases(self.layout)
        ticks = np.array([[_overlap(phase, *span) for phase in every] for span in spans], float)
        offered: Floats = ticks @ np.array([mips(phase) for phase in every])
        offered *= 1e6 * self.layout.scenario.tick
        return offered

    def _counted(self) -> tuple[int, int]:
        """The ticks after the warm-up."""
        return self.layout.warm_up_ticks, self.layout.ticks

    def _history(self, kind: str, ids: list[str], columns: dict[str, Floats]) -> pa.Table:
        steps = self.layout.samples
        return pa.table(
            {
                "time": np.repeat(self.times, len(ids)),
                kind: pa.array(ids * steps, pa.string()),
                **{name: np.ascontiguousarray(values).ravel() for name, values in columns.items()},
            }
        )


def _overlap(phase: Phase, first: int, end: int) -> int:
    return max(0, min(end, phase.end_tick) - max(first, phase.first_tick))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Divide; NaN where there is nothing to divide by."""
    ratio: Floats = np.full(part.shape, math.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
