"""One simulated run of an operator, of which a seed decides everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.group import GroupOperator
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.match.twin import TwinMatcher
from outpace.engine.message import ClockExchange
from outpace.engine.operator import WholeOperator
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.rows.times import as_integers
from outpace.engine.split.number import in_order
from outpace.errors import DataError, OutpaceError, UnsupportedError
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.bind.disorder import bind_disorder
from outpace.pattern.disorder import Late
from outpace.pattern.expression import MatchId, walk
from outpace.pattern.operator import EventOperator, Operator
from outpace.pattern.query import Query, RowsPerMatch, checked_query
from outpace.pattern.windows import CountWindows
from outpace.plan.stream_plan import plan_stream
from outpace.testing.simulation.arrival import (
    END,
    ID,
    DrawnArrival,
    draw_batched_sources,
    draw_disorder,
    draw_in_order,
    draw_other,
    draw_sources,
)
from outpace.testing.simulation.clock_errors import ClockErrors
from outpace.testing.simulation.clock_events import draw_clocked
from outpace.testing.simulation.meaning import Meaning, fed_at_once, meaning_of
from outpace.testing.simulation.places import Places, RunOutcome, Stages, run_in_one_place
from outpace.testing.simulation.queries import (
    EventRow,
    QueryCase,
    SpanMaker,
    draw_instances,
    draw_operator_query,
    draw_pattern_query,
    is_large,
)
from outpace.testing.simulation.replay_run import run_recovered
from outpace.testing.simulation.trace import RunTrace, SimulationError, check_same
from outpace.testing.simulation.truth import check_against_truth

OperatorFactory: TypeAlias = "Callable[[], Operator]"

#: Where the parts of an operator run.
ONE_PLACE: Final = "one place"
PLACES: Final = "several places"
STAGES: Final = "stages"

#: Into how many pieces events are cut at most: what a piece costs differs.
_PIECES: Final = {ONE_PLACE: 16, PLACES: 12, STAGES: 5}


@dataclass(frozen=True)
class SimulatedRun:
    """A run that gave what it must give.

    Parameters
    ----------
    seed
        What decided it.
    place
        Where the parts of the operator ran: "one place", "several places" or "stages".
    queries
        The query that ran, or those of a group.
    matches, crashes
        How many rows came out, and how often parts were lost and made again.
    trace
        What happened, step by step.
    digest
        A hash of the trace: the same for the same seed.
    """

    seed: int
    place: str
    queries: tuple[Query, ...]
    matches: int
    crashes: int
    trace: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class _SeededCase:
    """What a seed decides before anything runs."""

    case: QueryCase
    arrival: DrawnArrival
    place: str
    timeouts: bool
    choose: Callable[[Task], Matcher]
    saves: bool = True
    #: The events in their true order, where they are seen in another.
    true: pa.Table | None = None
    #: The other queries of its group.
    others: tuple[_SeededCase, ...] = ()

    @property
    def each(self) -> tuple[_SeededCase, ...]:
        """The scenario of each query."""
        return (self, *self.others)

    @property
    def query(self) -> Query:
        return self.arrival.query

    @property
    def schema(self) -> pa.Schema:
        return self.arrival.events.schema

    @property
    def can_replay(self) -> bool:
        """Whether what comes out has numbers that stay, and events the times of their source."""
        passed = self.query.order_of_arrival
        moved = passed is not None and (passed.late == Late.PASS or passed.flag is not None)
        moved = moved or any(isinstance(step, ClockExchange) for step in self.arrival.steps)
        return not (moved or self.query.corrects or self.timeouts or self.others)

    def spec(self) -> OperatorSpec:
        query, disorder = _alone(self.query), None
        if query.order_of_arrival is not None:
            disorder = bind_disorder(query, self.schema)
        return OperatorSpec(
            query,
            self.schema,
            disorder=disorder,
            sources=self.arrival.sources,
            instances=self.query.instance_count if self.place == PLACES else None,
            timeouts=self.timeouts,
            choose=self.choose,
        )

    def make(self) -> WholeOperator | GroupOperator:
        """Return a new operator, in one place."""
        if not self.others:
            return WholeOperator(self.spec())
        return GroupOperator(
            GroupSpec(
                tuple(_alone(one.query) for one in self.each),
                self.schema,
                sources=self.arrival.sources,
                timeouts=any(one.timeouts for one in self.each),
                choose=self.choose,
            )
        )


def simulate_operator(
    query: Query | OperatorFactory | None = None, events: TableLike | None = None, *, seed: int
) -> SimulatedRun:
    """Run an operator as hosts do, with faults at any step, and compare with what it means.

    A seed decides how the events are cut, in which order they come, where the parts of the operator
    run and how fast, when they are saved, and when they are lost and made again. The same seed
    gives the same run, step by step.

    Parameters
    ----------
    query
        A query, or an operator of your own, which is then run over windows of some events, too.
        Without it the seed also decides the query and the events.
    events
        Events for it. The seed decides whether they come in order; a disorder of the query's own
        makes no difference.
    seed
        Any integer.

    Raises
    ------
    SimulationError
        The run gave something else than it must give. The message has the seed.

    Examples
    --------
    >>> rise = Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
    >>> simulate_operator(rise, {"ts": [1, 2, 3], "x": [5, 7, 6]}, seed=3).matches
    1
    """
    random = Random(seed)
    if query is None:
        # Every fourth run goes by a clock, and in every eighth late events correct what came out.
        # In every eighth clocks are off, and in some of these both. A third of those in one place
        # are groups.
        clocks = ClockErrors.draw(random) if seed % 8 == 4 else None
        scenario = _draw(
            random,
            clocked=seed % 4 == 3 or seed % 32 == 20,
            corrects=seed % 8 == 5 or seed % 32 == 28,
            clocks=clocks,
            grouped=seed // 8 % 3 == 0,
        )
    else:
        scenario = _draw_for(random, query, events)
    trace = RunTrace()
    try:
        matches = _simulate(scenario, random, trace)
    except Exception as error:
        again = f"python -m outpace.testing.simulation --seed {seed} --verbose"
        if query is not None:
            again = f"simulate_operator(query, events, seed={seed})"
        found = str(error) if isinstance(error, SimulationError) else repr(error)
        lines = [f"seed {seed} fails at step {len(trace.lines)}: {found}"]
        lines += [*map(_described, scenario.each), f"again: {again}"]
        failure = SimulationError("\n".join(lines))
        failure.trace = tuple(trace.lines)
        raise failure from error
    queries = tuple(one.query for one in scenario.each)
    counts = matches, trace.crashes
    return SimulatedRun(seed, scenario.place, queries, *counts, tuple(trace.lines), trace.digest)


# --- What a seed decides -------------------------------------------------------------------------


def _draw(
    random: Random, *, clocked: bool, corrects: bool, clocks: ClockErrors | None, grouped: bool
) -> _SeededCase:
    """Draw a query, its events, how they come, and where that may be the others of a group."""
    stamped = random.random() < 0.2
    schema = _schema(stamped=stamped)
    # How often there are windows, by place.
    place, share = random.choice(
        [(ONE_PLACE, 0.6), (ONE_PLACE, 0.6), (PLACES, 0.4), (PLACES, 1.0), (STAGES, 0.6)]
    )
    case = _draw_case(random, schema, place, share, corrects=corrects, clocks=clocks)
    query = case.query
    # The oracle tries all that there is, and so does a pattern that finds all.
    most = 40 if query.windows is not None or query.operator is not None else 16
    most = min(most, 12) if is_large(query) else most
    letters = "abcd" if case.holds is None else "".join(sorted(case.holds)).lower() * 4 + "d"
    most = most * 2 if query.partitions else most
    # Who is off by the same all the time keeps its events in order where no two are at one time.
    apart = clocks is not None and clocks.by_key
    events = _draw_events(random, schema, most, letters, apart=apart)
    true = None if clocks is None else events
    if clocks is not None:
        events = clocks.observe(random, query, events)
    ways: list[Callable[..., DrawnArrival]] = [
        draw_in_order,
        partial(draw_disorder, own=True, whole=place != STAGES),
    ]
    ways.append(draw_batched_sources if place == STAGES else draw_sources)
    if grouped := grouped and place == ONE_PLACE:
        # Out of order they may wait for as long as each likes.
        ways += ways[1:2] * 3
    if clocked:
        ways = [partial(draw_clocked, whole=place != STAGES)]
    if corrects:
        ways = [partial(draw_disorder, own=True, whole=place != STAGES, corrects=True)]
        if not query.duplicates:
            sources = draw_batched_sources if place == STAGES else draw_sources
            ways.append(partial(sources, corrects=True))
    way = random.choice(ways)
    arrival = way(random, query, events, _PIECES[place])
    choose = random.choice([TwinMatcher, choose_matcher])
    if clocks is not None:
        choose = choose_matcher  # Nothing plainer knows of uncertain orders.
    timeouts = _times_out(query, corrects=corrects)
    scenario = _SeededCase(case, arrival, place, timeouts, choose, true=true)
    return _with_others(random, scenario, clocks) if grouped else scenario


def _draw_case(
    random: Random,
    schema: pa.Schema,
    place: str,
    share: float,
    *,
    corrects: bool,
    clocks: ClockErrors | None = None,
) -> QueryCase:
    """Draw a query, which has windows so often."""
    stamped = not pa.types.is_integer(schema.field("ts").type)
    span: SpanMaker = (lambda units: f"{units} s") if stamped else (lambda units: units)
    windowed = share == 1.0 or random.random() < share
    if random.random() < 0.15 and not corrects and clocks is None:
        case = draw_operator_query(random, span, windowed=windowed)
    else:
        case = draw_pattern_query(random, schema, span, windowed=windowed, clocks=clocks)
    keyed = random.random() < 0.4
    query = case.query.partition_by("key") if keyed else case.query
    if (query.windows is not None and not corrects) or place == PLACES:
        query = draw_instances(random, query)
    return replace(case, query=query)


def _with_others(random: Random, first: _SeededCase, clocks: ClockErrors | None) -> _SeededCase:
    """Draw other queries that look at the same events, in one place."""
    corrects = first.query.corrects
    schema = _schema(stamped=not pa.types.is_integer(first.schema.field("ts").type))
    others = []
    # Who is told of partial matches that time out shares its operator with nobody.
    told = first.arrival.events.num_rows % 3 > 0
    draw = partial(_draw_case, random, schema, ONE_PLACE, 0.4, corrects=corrects, clocks=clocks)
    for number in range(random.randint(1, 3)):
        case = draw()
        while is_large(case.query) and first.arrival.events.num_rows > 12:
            case = draw()
        query = replace(case.query, name=f"{case.query.name}{number}")
        others.append(
            replace(
                first,
                case=replace(case, query=query),
                arrival=draw_other(random, query, first.arrival),
                timeouts=told and _times_out(query, corrects=corrects),
            )
        )
    if not told:
        each = [replace(first, timeouts=False), *others]
        others += [_with_longer_within(one) for one in each if one.query.windows is None]
    return replace(first, timeouts=told and first.timeouts, others=tuple(others))


def _with_longer_within(scenario: _SeededCase) -> _SeededCase:
    """Return the scenario of a query as another, but for a WITHIN that is twice as long."""

    def longer(query: Query) -> Query:
        known = query.bound
        bound = None if known is None else replace(known, duration=2 * known.duration)
        return replace(query, name=f"{query.name} longer", bound=bound)

    case, arrival = scenario.case, scenario.arrival
    return replace(
        scenario,
        case=replace(case, query=longer(case.query)),
        arrival=replace(arrival, query=longer(arrival.query)),
    )


def _times_out(query: Query, *, corrects: bool) -> bool:
    """Say whether partial matches that WITHIN ended are compared, too."""
    plain = query.operator is None and query.windows is None and query.uncertainty is None
    return plain and query.bound is not None and not corrects


def _draw_for(
    random: Random, given: Query | OperatorFactory, events: TableLike | None
) -> _SeededCase:
    """Draw how the events of a user's query come."""
    if events is None:
        raise DataError("a query is simulated with events", hint="pass some as the second argument")
    if isinstance(given, Query):
        # Ids follow the order in which events arrive, which the seed decides.
        shown = [one for one in given.outputs if not any(type(n) is MatchId for n in walk(one[1]))]
        query = checked_query(
            replace(given.emit("changes"), order_of_arrival=None, outputs=tuple(shown))
        )
        if query.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
            raise UnsupportedError(
                "a stream cannot return unmatched rows",
                hint="use ALL ROWS PER MATCH without WITH UNMATCHED ROWS",
            )
    else:
        query = Query("operator").apply(given)
        if random.random() < 0.7:
            query = query.over(CountWindows(random.randint(1, 9), random.randint(1, 6)))
    table = to_arrow(events, query)
    spec = OperatorSpec(query, table.schema)
    table = in_order(spec.bound, table, spec.time)
    places = [ONE_PLACE, PLACES, PLACES]
    saves = _can_be_saved(query)
    ways: list[Callable[..., DrawnArrival]] = [draw_in_order]
    if _has_stream_time(query, table.schema):
        # What comes at the same time stays in its order.
        ways += [partial(draw_disorder, own=False, whole=True)] * (len(query.order) == 1)
        places += [STAGES] * saves
    place = random.choice(places)
    if query.windows is not None or place == PLACES:
        query = draw_instances(random, query)
    arrival = random.choice(ways)(random, query, table, _PIECES[place])
    return _SeededCase(QueryCase(query), arrival, place, False, choose_matcher, saves)


def _alone(query: Query) -> Query:
    """Return a query of one instance, with its scheduler: who shares it is said elsewhere."""
    return query.instances(1, query.scheduler)


def _can_be_saved(query: Query) -> bool:
    """Say whether what a user wrote has a state."""
    if query.operator is None:
        return True
    made = query.operator()
    return type(made).state is not Operator.state


def _has_stream_time(query: Query, schema: pa.Schema) -> bool:
    """Say whether a stream can be put in order, and nothing but the query says in which."""
    try:
        return not bind_disorder(query, schema).ties
    except OutpaceError:
        return False


def _schema(*, stamped: bool) -> pa.Schema:
    time = pa.timestamp("us", "UTC") if stamped else pa.int64()
    return pa.schema(
        [
            ("ts", time),
            ("id", pa.int64()),
            ("seq", pa.int64()),
            ("kind", pa.string()),
            ("key", pa.string()),
            ("v", pa.int64()),
        ]
    )


def _draw_events(
    random: Random, schema: pa.Schema, most: int, kinds: str, *, apart: bool = False
) -> pa.Table:
    """Draw events in order; some have equal times where they need not be apart, some no value."""
    size = random.choice([random.randint(0, most), random.randint(most // 2, most)])
    unit = 1 if pa.types.is_integer(schema.field("ts").type) else 1_000_000
    gaps = random.choice([(0, 1), (0, 1, 2), (0, 0, 1, 5), (1, 2)])
    gaps = (1, 2) if apart else gaps
    times = list(accumulate(random.choice(gaps) * unit for _ in range(size)))
    values = [None if random.random() < 0.1 else random.randrange(8) for _ in range(size)]
    return pa.table(
        [
            pa.array(times, pa.int64()).cast(schema.field("ts").type),
            pa.array(range(size), pa.int64()),
            pa.array(range(size), pa.int64()),
            pa.array([random.choice(kinds) for _ in range(size)], pa.string()),
            pa.array([random.choice("xyz") for _ in range(size)], pa.string()),
            pa.array(values, pa.int64()),
        ],
        schema=schema,
    )


def _described(scenario: _SeededCase) -> str:
    query = scenario.query
    over = "" if query.windows is None else f" over {query.windows}"
    numbers = f"{' numbered' * query.numbered}{' duplicates' * query.duplicates}"
    come = "in order" if scenario.arrival.sources is None else "of sources"
    come = come if query.order_of_arrival is None else str(query.order_of_arrival)
    return (
        f"{query!r}{over}{numbers} by key {query.partitions}\n"
        f"in {scenario.place}, instances {query.instance_count} {query.scheduler}, events {come}"
    )


# --- What is compared ----------------------------------------------------------------------------


def _simulate(scenario: _SeededCase, random: Random, trace: RunTrace) -> int:
    """Run a scenario, compare what each query gives, and return how many matches came out."""
    if scenario.place == STAGES:
        meaning = _meaning(scenario)
        return len(_simulate_stages(scenario, meaning, random, trace).matches)
    if scenario.place == PLACES:
        places = Places(scenario.spec(), random, trace, saves=scenario.saves)
        places.run(scenario.arrival)
        outcomes = {scenario.query.name: places.outcome}
        if scenario.can_replay and scenario.query.windows is not None:
            again = run_recovered(scenario.spec(), scenario.arrival, random, trace)
            check_same("after replays", again.matches, places.outcome.matches)
    else:
        outcomes = run_in_one_place(
            scenario.make, scenario.arrival, random, trace, saves=scenario.saves
        )
        if scenario.can_replay:
            again = run_recovered(scenario.spec(), scenario.arrival, random, trace)
            (outcome,) = outcomes.values()
            check_same("after replays", again.matches, outcome.matches)
    for one in scenario.each:
        _check_outcome(one, outcomes[one.query.name])
    return sum(len(outcome.matches) for outcome in outcomes.values())


def _meaning(scenario: _SeededCase) -> Meaning:
    arrival = scenario.arrival
    case = replace(scenario.case, query=scenario.query)
    if case.query.uncertainty is not None:
        case = replace(case, holds=None)
    return meaning_of(case, arrival.events, arrival.time, timeouts=scenario.timeouts)


def _check_outcome(scenario: _SeededCase, outcome: RunOutcome) -> None:
    """Compare what a query gave with what it means, alone."""
    meaning = _meaning(scenario)
    if scenario.query.corrects:
        _check_changes(scenario, outcome, meaning.rows)
        return
    _check_truth(scenario, outcome)
    _check_matches(scenario.query, outcome.matches, meaning.rows)
    if scenario.query.windows is None and scenario.query.operator is None:
        # Keys come in one order, too, however events are cut and time is told.
        ordered, _ = fed_at_once(scenario.query, scenario.arrival.events, None)
        check_same("matches in their order", outcome.matches, ordered)
    if meaning.timed_out is not None:
        found = _columns(outcome.timed_out, *scenario.query.partitions, "labels", "rows")
        check_same("timed out", found, sorted(meaning.timed_out))
    _check_aside(scenario, outcome)


def _simulate_stages(
    scenario: _SeededCase, meaning: Meaning, random: Random, trace: RunTrace
) -> RunOutcome:
    """Run stages, which never end: what is final when time has come to its end is expected."""
    query, arrival = scenario.query, scenario.arrival
    plan = plan_stream(
        query,
        scenario.schema,
        random.randint(1, 3),
        timeouts=scenario.timeouts,
        sources=arrival.sources,
    )

    def by_now(released: int, time: int) -> list[Any]:
        return fed_at_once(query, arrival.events.slice(0, released), time)[0]

    stages = Stages(plan, by_now, random, trace)
    stages.run(arrival)
    found = stages.outcome.matches
    expected, timed_out = fed_at_once(query, arrival.events, END, timeouts=scenario.timeouts)
    missing = _counted(expected) - _counted(meaning.rows)
    check_same("final before the end, but not after", sorted(missing), [])
    if query.corrects:
        _check_changes(scenario, stages.outcome, expected)
        check_same("late", [stages.late], [len(arrival.late)])
        return stages.outcome
    _check_truth(scenario, stages.outcome)
    first, *others = plan.division.stages
    if query.partitions and not others and first.instances > 1:
        # Keys are in any order where they are apart.
        _check_of_keys(found, expected)
    else:
        _check_matches(query, found, expected)
    # Instances number the events that they have.
    names = (*query.partitions, "first_time", "last_time", "labels")
    given = stages.outcome.timed_out
    check_same("timed out", _columns(given, *names), _columns(timed_out, *names))
    _check_aside(scenario, stages.outcome)
    check_same("late", [stages.late], [len(arrival.late)])
    _check_promises(stages, arrival.events)
    return stages.outcome


def _check_truth(scenario: _SeededCase, outcome: RunOutcome) -> None:
    """Compare matches of events that were seen in another order with those of the true one.

    Nobody knows of an event that a source sent twice, nor of one that came late and passes on with
    another time than the clock said.
    """
    disorder, arrival, true = scenario.query.order_of_arrival, scenario.arrival, scenario.true
    if true is None:
        return
    moved = disorder is not None and disorder.late is Late.PASS and arrival.late
    doubled = arrival.events.num_rows and max(arrival.events[ID].to_pylist()) >= true.num_rows
    if moved or doubled:
        return
    case = replace(scenario.case, query=scenario.query)
    check_against_truth(case, true, arrival.events, outcome.matches)


def _check_changes(scenario: _SeededCase, outcome: RunOutcome, expected: list[EventRow]) -> None:
    """After the last change all is as if events had come in order, and none was too late."""
    outcome.settle(scenario.query.emission)
    check_same("matches", sorted(map(repr, outcome.matches)), sorted(map(repr, expected)))
    _check_truth(scenario, outcome)
    _check_aside(scenario, outcome)


def _check_promises(stages: Stages, events: pa.Table) -> None:
    """No match has an event before the time that was told to have passed before it."""
    if "ids" not in (stages.outcome.matches or [{}])[0]:
        return
    times = dict(zip(events["id"].to_pylist(), as_integers(events["ts"]).tolist(), strict=True))
    for row, promised in zip(stages.outcome.matches, stages.promised, strict=True):
        least = min((times[one] for one in row["ids"] or ()), default=END)
        if promised != NO_TIME and least < promised:
            raise SimulationError(f"{row} has an event before {promised}, which had passed")


def _check_matches(query: Query, found: list[Any], expected: list[Any]) -> None:
    """Compare results, in the order that is promised."""
    if query.operator is not None and not isinstance(query.operator(), EventOperator):
        # What it returns of its events belongs to the last of them, which depends on the cut.
        hidden = {"match_event"}
        found, expected = (
            sorted(repr({k: v for k, v in row.items() if k not in hidden}) for row in rows)
            for rows in (found, expected)
        )
        check_same("rows", found, expected)
    elif query.windows is None and query.partitions:
        for key, rows in _by_key(query, expected).items():
            check_same(f"matches of {key}", _by_key(query, found)[key], rows)
        check_same("matches of all keys", [len(found)], [len(expected)])
    else:
        check_same("matches", found, expected)


def _check_of_keys(found: list[Any], expected: list[Any]) -> None:
    """Compare results where those of one number may be in any order."""
    check_same("matches", sorted(map(repr, found)), sorted(map(repr, expected)))
    numbers = ([row.get("match_event") for row in rows] for rows in (found, expected))
    check_same("numbers of events", *numbers)


def _columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of rows, sorted."""
    return sorted(tuple(row[name] for name in names) for row in rows)


def _by_key(query: Query, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in query.partitions)].append(row)
    return found


def _counted(rows: list[Any]) -> set[str]:
    """Return rows as texts, each with the number of those like it before it."""
    counts: dict[str, int] = defaultdict(int)
    found = set()
    for row in map(repr, rows):
        counts[row] += 1
        found.add(f"{row} {counts[row]}")
    return found


def _check_aside(scenario: _SeededCase, outcome: RunOutcome) -> None:
    """Compare which events were late, and which invalid."""
    arrival = scenario.arrival
    disorder = scenario.query.order_of_arrival
    shown = scenario.place != STAGES or (disorder is not None and "SIDE" in str(disorder.late))
    if shown:
        late = [row["id"] for row in outcome.late]
        check_same("late", sorted(late), sorted(arrival.late))
    invalid = [row["id"] for row in outcome.invalid]
    check_same("invalid", sorted(invalid), sorted(arrival.invalid))
