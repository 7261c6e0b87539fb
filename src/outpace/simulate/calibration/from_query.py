"""A scenario made from a query: a vertex for each part of the operator, with costs as measured.

The parts are those that `explain` shows and does not leave out: the reorderer that puts a stream in
order, the splitter that cuts it into windows, the matcher, and the merger that brings the results
of windows together. The data go through them in this process, piece by piece, again and again, and
each part's time counts by itself; what a part that is left out does costs the one before or behind
it. The state is the most that the matcher kept of these data.

What is measured is processing. How long a reorderer or a window waits for events by design is no
cost, and not in the latency of such a scenario.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.intake import Intake
from outpace.engine.message import Deliver, Delivered, EventsArrived, SetAside, TurnEnded
from outpace.engine.operator_spec import OperatorSpec
from outpace.errors import ScenarioError
from outpace.hosts.clock import clock_time
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.argument import a_number, a_whole_number
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.query import Query, checked_query
from outpace.simulate.cloud import VM
from outpace.simulate.generators import Uniform
from outpace.simulate.model import Consumer, Edge, OperatorModel, Producer, QueryModel
from outpace.simulate.scenario import Scenario

#: The first time that the data go through counts for nothing: the matcher is compiled then.
_PASSES_MIN: Final = 3

#: How long may be measured.
_SECONDS_MAX: Final = 600.0

#: The rate of the producer, as a part of what a core can do.
_WRITTEN_AT: Final = 0.5


@dataclass(frozen=True, slots=True)
class PartCosts:
    """What one time through the data took, in seconds, by the parts of the operator.

    Parameters
    ----------
    order, split, match, merge
        The seconds of each part.
    delivered, matches
        The events that went to the matcher, and the matches that came out.
    state_bytes
        The most that the matcher kept.
    """

    order: float
    split: float
    match: float
    merge: float
    delivered: int
    matches: int
    state_bytes: float


def from_query(
    query: Query,
    data: TableLike,
    *,
    rate: float | None = None,
    piece: int = 1_000,
    seconds: float = 1.0,
    mips: float = 2_500.0,
) -> Scenario:
    """Measure a query on data, and return a scenario with a vertex for each part of its operator.

    Parameters
    ----------
    query
        What runs.
    data
        The events, as they come; they are sorted first if the query says no order of arrival.
    rate
        The events a second of the scenario's producer; half of what a core can do if not given.
    piece
        How many events are taken at a time. Small pieces cost more for each event.
    seconds
        How long is measured, at least, after the first time through the data.
    mips
        What a core of this machine is said to do in a second, in million instructions. In a
        prediction for this machine it has no effect.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(x="B.x")
    >>> data = pa.table({"ts": range(2000), "x": [number % 7 for number in range(2000)]})
    >>> scenario = from_query(rise, data, seconds=0.01)
    >>> [vertex.id for vertex in scenario.queries[0].vertices]
    ['events', 'match', 'matches']
    >>> round(scenario.queries[0].edges[-1].selectivity, 2)
    0.43
    """
    checked_query(query)
    count = a_whole_number(piece, "the number of events at a time", least=1, error=ScenarioError)
    seconds = a_number(seconds, "how long is measured", above=0, error=ScenarioError)
    if not seconds <= _SECONDS_MAX:
        raise ScenarioError(f"measuring takes at most {_SECONDS_MAX:g} s, not {seconds:g}")
    mips = a_number(mips, "the mips", above=0, error=ScenarioError)
    if rate is not None:
        rate = a_number(rate, "the rate", above=0, error=ScenarioError)
    table = to_arrow(data, query)
    if not table.num_rows:
        raise ScenarioError("there are no events to measure the query with")
    disorder = None
    if query.order_of_arrival is not None:
        disorder = bind_disorder(query, table.schema)
    spec = OperatorSpec(query, table.schema, disorder=disorder)
    ordered = spec.bound.order_by  # Names that the data lack are an error of the query's.
    if disorder is None and ordered:
        directions = {True: "descending", False: "ascending"}
        table = table.sort_by([(one.column, directions[one.descending]) for one in query.order])
    passes = [_measured(spec, table, count)]
    begin = time.perf_counter()
    while len(passes) <= _PASSES_MIN or time.perf_counter() - begin < seconds:
        passes.append(_measured(spec, table, count))
    return _scenario(spec, table, passes[1:], rate, mips)


def _measured(spec: OperatorSpec, table: pa.Table, piece: int) -> PartCosts:
    """Let data go through the parts of an operator once, and time them."""
    intake, front, instance, back = Intake(spec), Front(spec), Instance(spec), Back(spec)
    order = split = match = merge = 0.0
    delivered = matches = kept = 0
    row_bytes = table.nbytes / table.num_rows
    for first in range(0, table.num_rows, piece):
        arrival = clock_time() if spec.disorder is not None else None
        rows = table.slice(first, piece)
        message = EventsArrived(rows) if arrival is None else EventsArrived(rows, arrival=arrival)
        # The front has an intake of its own; this one tells what that takes.
        order -= time.perf_counter()
        intake.take(message)
        order += time.perf_counter()
        split -= time.perf_counter()
        moves = front.step(message)
        split += time.perf_counter()
        for move in moves:
            if isinstance(move, SetAside):
                continue
            if isinstance(move, Deliver):
                match -= time.perf_counter()
                answer = Delivered(0, instance.step(move))
                match += time.perf_counter()
                delivered += move.events.rows.num_rows
                merge -= time.perf_counter()
                back.step(move)
                back.step(answer)
                merge += time.perf_counter()
                front.step(answer)
                continue
            back.step(move)
        merge -= time.perf_counter()
        emits = back.step(TurnEnded())
        merge += time.perf_counter()
        matches += sum(emit.matches.table.num_rows for emit in emits)
        kept = max(kept, instance.rows_kept)
    split = max(0.0, split - order)
    return PartCosts(order, split, match, merge, delivered, matches, kept * row_bytes)


def _scenario(
    spec: OperatorSpec,
    table: pa.Table,
    passes: list[PartCosts],
    rate: float | None,
    mips: float,
) -> Scenario:
    events, last = table.num_rows, passes[-1]
    # What comes out only when the input ends is no rate of a stream.
    if not last.matches:
        raise ScenarioError(
            f"the query found nothing in {events:,} events",
            detail="what never comes out has no latency",
            hint="measure with more events, or with such that it finds something in",
        )
    found = {
        name: statistics.median(getattr(one, name) for one in passes) / events
        for name in ("order", "split", "match", "merge")
    }
    streamed, windowed = spec.disorder is not None, spec.windows is not None
    parts: list[tuple[str, float]] = []
    if streamed:
        parts.append(("reorderer", found.pop("order")))
    if windowed:
        parts.append(("splitter", found.pop("split")))
    merge = found.pop("merge") if windowed else 0.0
    parts.append(("match", sum(found.values())))
    total = sum(cost for _, cost in parts) + merge
    given = _WRITTEN_AT / total if rate is None else rate
    event_bytes = table.nbytes / events
    ids = ["events", *(name for name, _ in parts)]
    # An event that goes to the matcher in two windows costs it as two.
    shares = dict.fromkeys(ids, 1.0) | {"match": max(1e-12, last.delivered / events)}
    selectivity = last.matches / max(1, last.delivered)
    operators = []
    for name, cost in parts:
        instructions = _rounded(cost / shares[name] * mips * 1e6)
        state = _rounded(last.state_bytes) if name == "match" else 0.0
        operators.append(
            OperatorModel(name, instructions, state_bytes=state, event_bytes=_rounded(event_bytes))
        )
    edges = [
        Edge(source, target, _rounded(shares[target])) for source, target in itertools.pairwise(ids)
    ]
    if windowed:
        # A merger works for each result.
        cost = _rounded(merge * events / last.matches * mips * 1e6)
        operators.append(OperatorModel("merger", cost))
        edges += [Edge("match", "merger", _rounded(selectivity)), Edge("merger", "matches")]
    else:
        edges.append(Edge("match", "matches", _rounded(selectivity)))
    producer = Producer("events", Uniform(math.ceil(given) if given > 1 else given))
    model = QueryModel(spec.query.name, (producer, *operators, Consumer("matches")), tuple(edges))
    return Scenario((model,), (VM("core", mips),), duration=60, warm_up=10)


def _rounded(value: float) -> float:
    """More digits than were measured would only be in the way of readers."""
    return float(f"{value:.6g}")
