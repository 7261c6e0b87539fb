"""Sources whose clocks are off, in the study `disorder`: what exchanges of messages make of that.

Before its events a source asks what time it is, so often as the engine remembers. The messages take
times that are drawn from a seed, or named where the paper names them; the engine has the exchanges
as it would have them from `outpace.ingest.clock`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Floats
from outpace.engine.message import ClockExchange
from outpace.engine.order.drift import KEPT, SourceClock
from outpace.hosts.local.open import open_query
from outpace.pattern.disorder import Disorder, InOrder
from outpace.pattern.query import Query
from outpace.pattern.windows import TimeWindows
from outpace.studies import disorder_figures as figures
from outpace.studies.disorder_runs import NAMES, pieces, run_order, shifted
from outpace.studies.disorder_stream import (
    ARRIVED,
    BALLS,
    KICKOFF,
    PICOSECONDS,
    disordered,
    football,
)
from outpace.studies.report import Row

#: Picoseconds in a millisecond.
_MILLISECOND: Final = 1000 * PICOSECONDS

#: What arrives in so many microseconds is given to a query at once.
_STEP: Final = 1_000_000

#: What a message takes: so long, and as long as others are before it, on average; in picoseconds.
_WAY: Final = 50 * PICOSECONDS
_QUEUE: Final = 20 * PICOSECONDS

#: The column of times by the clock of the source.
_DRIFTED: Final = "driftedTs"

#: The source whose clock is right, and the one whose clock is off.
_RIGHT, _OFF = NAMES[:2]

#: The drift, in milliseconds, that is also measured by clocks which count microseconds.
_EXACTLY: Final = 5

#: How far the clock is off in tables 5.11 and 5.12, and how far that is measured wrongly.
_WINDOW_DRIFT: Final = 5 * _MILLISECOND
_WINDOW_ERROR: Final = _MILLISECOND // 8

#: So many events has the stream of table 5.13, a second of the match; in the middle of it is a
#: shot, and so many events of the ball later, which are 44 ms, the goal.
_GOAL_EVENTS: Final = 15_200
_GOAL_AFTER: Final = 88

#: The conditions of query 5.8.
_SHOT: Final = (
    f"sourceId = '{_RIGHT}' AND (x > 29880 OR x < 22560) AND y > -33968 AND y < 33965 AND "
    f"sid IN {BALLS}"
)
_GOAL: Final = (
    f"sourceId = '{_OFF}' AND x <= 29898 AND x > 22579 AND y <= -33968 AND z < 2440 AND "
    f"a_abs >= 55000 AND sid IN {BALLS}"
)


def exchanges(
    drift: int, ways: Sequence[tuple[int, int]], resolution: int = 1
) -> list[ClockExchange]:
    """Return exchanges of the source whose clock is off, one every 10 ms, before the match.

    Parameters
    ----------
    drift
        How far its clock is ahead, in picoseconds.
    ways
        How long the message there and the one back take, for each.
    resolution
        What both clocks count: they show the last multiple of it.

    Examples
    --------
    >>> (one,) = exchanges(5000, [(20, 30)], resolution=100)
    >>> one.heard - one.asked, one.received - one.asked
    (0, -5000)
    """
    made = []
    for number, (there, back) in enumerate(ways):
        start = KICKOFF - (len(ways) - number) * 10 * _MILLISECOND
        moments = (start + drift, start + there, start + there, start + there + back + drift)
        made.append(ClockExchange(_OFF, *(one // resolution * resolution for one in moments)))
    return made


def drawn_ways(seed: int = 1) -> list[tuple[int, int]]:
    """Return what messages of the exchanges take, as in a network with little to do."""
    queued = np.random.default_rng(seed).exponential(_QUEUE, (KEPT, 2)).astype(np.int64)
    return [(_WAY + int(there), _WAY + int(back)) for there, back in queued]


def drifting(disorder: Disorder, sources: list[pa.Table], drift: int, step: int) -> Iterator[Row]:
    """Bring two sources into one order, of which one has a clock that is off: table 5.10.

    Parameters
    ----------
    disorder, sources
        How, and their events.
    drift
        How far the clock is off, in milliseconds.
    step
        How far the clock of the run goes at a time, in microseconds.
    """
    table, off = figures.DRIFTS.name, drift * _MILLISECOND
    words, *said = figures.PAPER_DRIFTS[drift]
    streams = _drifted(sources, off)
    count = sum(disordered(stream["ts"].to_numpy()) for stream in sources)
    tried: list[tuple[str, tuple[int | None, float | None], int]] = [
        ("nothing corrected", said[0], 0),
        ("clocks compared in ms", said[1], _MILLISECOND),
    ]
    if drift == _EXACTLY:
        tried.append(("clocks compared in µs", (None, None), PICOSECONDS))
    for curve, (left, accuracy), resolution in tried:
        comparisons = exchanges(off, drawn_ways(), resolution) if resolution else []
        run = run_order(
            disorder,
            streams,
            time=_DRIFTED,
            step=step,
            apart=True,
            happened="ts",
            exchanges=comparisons,
            bound=_bound(comparisons),
        )
        setting = f"{words}, {curve}"
        yield Row(table, setting, run.behind, "events", left, curve, words)
        found = 100.0 * (1 - run.behind / count)
        yield Row(table, f"{setting}: accuracy", found, "%", accuracy)
        if run.bound:
            bound = f"{run.bound / PICOSECONDS:.3g} µs"
            setting = f"{words}, {curve}: by more than the bound, {bound}"
            yield Row(table, setting, run.far_behind, "events")


def windows(disorder: Disorder, sources: list[pa.Table], length: int, short: int) -> Iterator[Row]:
    """Average velocities over windows where a drift is measured wrongly: tables 5.11 and 5.12.

    Parameters
    ----------
    disorder, sources
        As for `drifting`.
    length, short
        Those of the windows in microseconds: of the tables, and of many more.
    """
    one, three = figures.ONE_WINDOW, figures.THREE_WINDOWS
    right, wrong = _averages(disorder, sources, length)
    alone, together = right - wrong["v_middle"], right - wrong["v"]
    for place, expected in enumerate(right.tolist()):
        nothing: tuple[float | None, ...] = (None, None, None)
        known = place < len(figures.PAPER_WINDOWS)
        first, *others = figures.PAPER_WINDOWS[place] if known else nothing
        window = f"window {place + 1}"
        for figure, off, name, other in zip(
            (one, three), (alone, together), ("v_middle", "v"), others, strict=True
        ):
            off_by = None if first is None or other is None else round(first - other, 2)
            table, found = figure.name, float(off[place])
            yield Row(table, window, found, "µm/s", off_by, figure.quantity, place + 1)
            yield Row(table, f"{window}: average by right clocks", expected, "µm/s", first)
            found = float(wrong[name][place])
            yield Row(table, f"{window}: average by the corrected clock", found, "µm/s", other)
    paper = np.array(figures.PAPER_WINDOWS)
    paper_sums = np.abs(paper[:, :1] - paper[:, 1:]).sum(axis=0)
    yield _ratio("all windows, three to one", alone, together, paper_sums[1] / paper_sums[0])
    right, wrong = _averages(disorder, sources, short)
    alone, together = right - wrong["v_middle"], right - wrong["v"]
    setting = f"{len(right)} windows of {short / 1000:g} ms, three to one"
    yield _ratio(setting, alone, together, None)
    each = np.stack([wrong[f"v_{name}"] for name in ("low", "middle", "high")])
    within = (each.min(axis=0) <= right) & (right <= each.max(axis=0))
    setting = f"{len(right)} windows: the true average lies between the least and the greatest"
    yield Row(three.name, setting, 100 * float(within.mean()), "%")


def patterns() -> Iterator[Row]:
    """Look for a goal whose two events come from sources with clocks that are off: table 5.13."""
    streams, table = _goal(), figures.PATTERNS.name
    goal = (
        Query("goal")
        .order_by(_DRIFTED)
        .pattern("SHOT -> GOAL")
        .define(SHOT=_SHOT, GOAL=_GOAL)
        .measures(shot="SHOT.ts", goal="GOAL.ts")
        .within(1000 * _MILLISECOND)
        .no_skip()
    )
    for words, drift, delay, said in figures.PAPER_PATTERNS:
        off, wrong = drift * _MILLISECOND, int(delay * _MILLISECOND)
        # All of the round trip is taken by the answer: the drift is as wrong as it can be.
        comparisons = exchanges(off, [(0, 2 * wrong)]) if drift else []
        drifted = _drifted(streams, off)
        yield Row(
            table, words, _found(goal, drifted, comparisons)[0], "matches", said, "by time", words
        )
        unsure = (
            goal.uncertain(_bound(comparisons), source="sourceId") if _bound(comparisons) else goal
        )
        found, surely = _found(unsure, drifted, comparisons)
        for curve, value in (("CONFIRMED", surely), ("UNCERTAIN", found - surely)):
            # The paper tells the confidence of the match that times alone do not have.
            paper = None if said else int(curve == "UNCERTAIN")
            setting = f"{words}, with confidence: {curve}"
            yield Row(table, setting, value, "matches", paper, curve, words)


def _ratio(setting: str, alone: Floats, together: Floats, said: float | None) -> Row:
    ratio = float(np.abs(together).sum() / np.abs(alone).sum())
    return Row(figures.THREE_WINDOWS.name, setting, ratio, "times", said)


def _drifted(sources: list[pa.Table], drift: int) -> list[pa.Table]:
    """Return the events of two sources with the times of their clocks, one of which is ahead."""
    right, off = (stream.append_column(_DRIFTED, stream["ts"]) for stream in sources)
    return [right, shifted(off, driftedTs=drift)]


def _bound(comparisons: Sequence[ClockExchange]) -> int:
    """Return how far the drift that exchanges tell may be off."""
    clock = SourceClock()
    for exchange in comparisons:
        clock.compare(exchange)
    return clock.reading.bound


def _averages(
    disorder: Disorder, sources: list[pa.Table], length: int
) -> tuple[Floats, dict[str, Floats]]:
    """Return the average velocity of each window by right clocks, and as it is by the wrong one."""
    ticks = length * PICOSECONDS
    query = (
        Query("velocity")
        .order_by(_DRIFTED)
        .pattern("A+")
        .measures(v="AVG(A.v_abs)")
        .disorder(disorder)
        .over(TimeWindows(ticks, ticks, KICKOFF % ticks), drift=2 * _WINDOW_ERROR, numbered=True)
    )
    comparisons = exchanges(_WINDOW_DRIFT, [(0, 2 * _WINDOW_ERROR)])
    right = _matches(query, _drifted(sources, 0), [])
    wrong = _matches(query, _drifted(sources, _WINDOW_DRIFT), comparisons)
    # The window before the first event, and one behind the last, have events in one run alone.
    starts = [set(one["window_start"].to_pylist()) for one in (right, wrong)]
    both = pa.array(sorted(one for one in starts[0] & starts[1] if one >= KICKOFF))
    right, wrong = (
        one.filter(pc.is_in(one["window_start"], both)).sort_by("window_start")
        for one in (right, wrong)
    )
    names = ("v", "v_low", "v_middle", "v_high")
    return right["v_middle"].to_numpy(), {name: wrong[name].to_numpy() for name in names}


def _goal() -> list[pa.Table]:
    """Return a second of a match with a shot and a goal, as each of two sources tells it."""
    match = football(_GOAL_EVENTS)
    columns = {name: match[name].to_numpy().copy() for name in ("x", "y", "z", "a_abs")}
    sensors = match["sid"].to_numpy()
    # The balls lie between the posts, in the field.
    columns["x"][np.isin(sensors, BALLS)] = 26_000
    ball = np.flatnonzero(sensors == BALLS[0])
    shot, goal = ball[len(ball) // 2], ball[len(ball) // 2 + _GOAL_AFTER]
    columns["x"][shot], columns["y"][shot] = 31_000, -33_000
    for name, value in (("y", -34_000), ("z", 1_000), ("a_abs", 60_000)):
        columns[name][goal] = value
    for name, values in columns.items():
        place = match.schema.get_field_index(name)
        match = match.set_column(place, match.schema.field(place), pa.array(values))
    arrived = (match["ts"].to_numpy() - KICKOFF) // PICOSECONDS
    match = match.append_column(ARRIVED, pa.array(arrived))
    return [
        match.append_column("sourceId", pa.array([name] * match.num_rows))
        for name in (_RIGHT, _OFF)
    ]


def _matches(
    query: Query, streams: list[pa.Table], comparisons: Sequence[ClockExchange]
) -> pa.Table:
    """Return what a query finds in the events of two sources, after exchanges."""
    stream = open_query(query, sources=NAMES[:2])
    stream.bind(streams[0].schema)
    found = [stream.compare_clocks(exchange) for exchange in comparisons]
    for _, number, rows in pieces(streams, ARRIVED, _STEP):
        found.append(stream.push(rows, source=NAMES[number]))
    return pa.concat_tables([*found, stream.finish()])


def _found(
    query: Query, streams: list[pa.Table], comparisons: Sequence[ClockExchange]
) -> tuple[int, int]:
    """Return how many matches a query has, and how many of them are certain."""
    found = _matches(query.disorder(InOrder()), streams, comparisons)
    if "confidence" not in found.column_names:
        return found.num_rows, found.num_rows
    return found.num_rows, found["confidence"].to_pylist().count("CONFIRMED")
