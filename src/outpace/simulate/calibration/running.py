"""What a stream on Spark that runs costs, from what it leaves behind: metrics, or its checkpoint.

Nothing is run. The batches are read from

- what `op.spark.metrics.watch` serves as `/metrics.json`;
- progress of Spark as JSON, a list of it or one in each line, as `query.recentProgress` has it and
  listeners get it;
- a checkpoint: its offsets say when batches began and how many events they have, if those of the
  sources count them, as those of event logs and Kafka do; its commits were written when batches
  ended. It does not say how many rows came out.

The costs are those of the line through what batches of different sizes took, by the estimates of a
calibration.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from outpace.errors import DataError, ScenarioError
from outpace.files.small_file import read_small
from outpace.simulate.calibration.calibrated_scenario import MeasuredRun, calibrated
from outpace.simulate.calibration.estimates import Costs, TimedBatch, estimate_costs
from outpace.simulate.model import BatchOperator
from outpace.simulate.scenario import Scenario

_BYTES_MAX: Final = 2**26
_BATCHES_MAX: Final = 100_000

#: The least number of batches with events that something is estimated from.
_BATCHES_MIN: Final = 5

#: Full are the largest batches, this part of all.
_FULL: Final = 0.25


@dataclass(frozen=True, slots=True)
class RunningStream:
    """What a stream did.

    Parameters
    ----------
    name
        What it is called.
    batches
        Its batches that had events, in order.
    matches
        How many rows came out of them; None where nothing says it.
    """

    name: str
    batches: tuple[TimedBatch, ...]
    matches: float | None

    @property
    def events(self) -> int:
        """How many events all batches had."""
        return sum(batch.events for batch in self.batches)

    @property
    def rate(self) -> float:
        """The events a second that came."""
        seconds = self.batches[-1].started - self.batches[0].started
        return sum(batch.events for batch in self.batches[1:]) / seconds

    @property
    def interval(self) -> float:
        """The time between the begins of two batches; 0 where each begins as the last one ends.

        Where most batches end well before the next one begins, they wait for their time.
        """
        begins = [later.started - earlier.started for earlier, later in pairwise(self.batches)]
        idle = [later.started - earlier.committed for earlier, later in pairwise(self.batches)]
        between = statistics.median(begins)
        return round(between, 3) if statistics.median(idle) > 0.05 * between else 0.0

    def costs(self) -> Costs:
        """Return what a batch and an event cost."""
        largest = sorted(self.batches, key=lambda batch: -batch.events)
        full = largest[: max(1, round(_FULL * len(largest)))]
        return estimate_costs({n: [batch] for n, batch in enumerate(self.batches)}, full)

    def scenario(self, cores: int, mips: float) -> Scenario:
        """Return the scenario of a stream that does the same.

        Parameters
        ----------
        cores
            How many it runs on.
        mips
            What each is said to do in a second, in million instructions.
        """
        interval = self.interval
        selectivity = 1.0 if self.matches is None else self.matches / self.events
        if not selectivity:
            raise ScenarioError(
                f"the stream found nothing in {self.events:,} events",
                detail="what never comes out has no latency",
            )
        measured = MeasuredRun(self.name, trigger=interval or 1.0, cores=cores)
        found = calibrated(measured, self.costs(), selectivity, mips, max(1.0, self.rate))
        query = found.queries[0]
        # The most events of a batch are settings that nothing here tells.
        vertices = tuple(
            replace(vertex, interval=interval, events_max=float("inf"))
            if isinstance(vertex, BatchOperator)
            else vertex
            for vertex in query.vertices
        )
        return replace(found, queries=(replace(query, vertices=vertices),))


def read_running(path: str | Path, query: str | None = None) -> RunningStream:
    """Read what a stream did.

    Parameters
    ----------
    path
        A checkpoint's folder, or a file with metrics or progress.
    query
        The name of the stream, where there are several.
    """
    place = Path(path)
    if place.is_dir():
        return _chosen([_checkpoint(place)], str(path), None)
    try:
        text = read_small(place, _BYTES_MAX)
    except OSError as error:
        raise DataError(f"'{path}' cannot be read", detail=str(error)) from None
    return running_of(_parsed(text, str(path)), str(path), query)


def running_of(values: Any, place: str, query: str | None = None) -> RunningStream:
    """Return what a stream did, of metrics or progress.

    Parameters
    ----------
    values
        What JSON has.
    place
        What errors call it.
    query
        The name of the stream, where there are several.

    Examples
    --------
    >>> history = [[10.0 * n, 0.5 + n / 10, 100.0 * n, 5.0 * n, 0.0] for n in range(1, 8)]
    >>> stream = running_of({"queries": [{"name": "dips", "history": history}]}, "metrics.json")
    >>> stream.name, len(stream.batches), stream.batches[-1].events, round(stream.interval, 1)
    ('dips', 7, 7000, 9.9)
    """
    return _chosen(_streams(values, place), place, query)


def _chosen(streams: list[RunningStream], place: str, query: str | None) -> RunningStream:
    named = [one for one in streams if query is None or one.name == query]
    if len(named) != 1:
        names = ", ".join(one.name for one in streams)
        raise DataError(
            f"'{place}' has {len(named)} streams" + (f" called '{query}'" if query else ""),
            detail=f"it has {names}" if names else None,
            hint="--query NAME chooses one" if names else None,
        )
    found = named[0]
    if len(found.batches) < _BATCHES_MIN:
        raise DataError(
            f"'{place}' has {len(found.batches)} batches with events, which are too few",
            hint=f"let the stream run for {_BATCHES_MIN} batches or more",
        )
    return found


def _parsed(text: str, place: str) -> Any:
    """Return the values of a text that is JSON, or has a JSON value in each line."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    values = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise DataError(
                    "this is no JSON", where=f"{place}, line {number}", detail=str(error)
                ) from None
    return values


def _streams(values: Any, place: str) -> list[RunningStream]:
    if isinstance(values, dict) and "queries" in values:
        return [_of_metrics(one, place) for one in _list(values["queries"], place)]
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for progress in _list([values] if isinstance(values, dict) else values, place):
        if not isinstance(progress, dict) or "batchId" not in progress:
            raise _unlike(place, "a progress has a batchId")
        by_id.setdefault(str(progress.get("id")), []).append(progress)
    return [_of_progress(own, place) for own in by_id.values()]


def _of_metrics(query: Any, place: str) -> RunningStream:
    """Read the history of `/metrics.json`: ends, seconds, events and matches a second, behind."""
    if not isinstance(query, dict):
        raise _unlike(place, "a query is no object")
    batches, matches, before = [], 0.0, None
    for moment in _list(query.get("history"), place):
        try:
            end, seconds, rate, found = (float(value) for value in moment[:4])
        except (TypeError, ValueError):
            raise _unlike(place, "a moment has an end, seconds, events and matches") from None
        since = seconds if before is None else end - before
        before = end
        if events := round(rate * since):
            batches.append(_batch(events, end - seconds, end))
            matches += found * since
    return RunningStream(str(query.get("name")), tuple(batches[-_BATCHES_MAX:]), matches)


def _of_progress(progresses: Sequence[Mapping[str, Any]], place: str) -> RunningStream:
    # What operators observed is read as `op.spark.metrics` reads it, which imports PySpark.
    from outpace.hosts.spark.metrics_account import Account

    batches: dict[int, TimedBatch] = {}
    matches, known = 0.0, False
    for progress in progresses:
        account = Account()
        try:
            account.progressed(progress)
            end, seconds, *observed = account.queries()[0]["history"][0][:4]
            rows = sum(int(source["numInputRows"]) for source in progress["sources"])
            number, written = int(progress["batchId"]), int(progress["sink"]["numOutputRows"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unlike(place, f"a progress lacks something: {error}") from None
        # A row of a source may be a block of events: who takes them counts them.
        events = round(observed[0] * seconds) or rows
        if not events or number in batches:
            continue
        batches[number] = _batch(events, end - seconds, end)
        if observed[0] or written >= 0:
            known = True
            matches += observed[1] * seconds if observed[0] else written
    name = next((p["name"] for p in progresses if p.get("name")), progresses[0].get("id"))
    kept = tuple(batches[number] for number in sorted(batches))[-_BATCHES_MAX:]
    return RunningStream(str(name), kept, matches if known else None)


def _checkpoint(folder: Path) -> RunningStream:
    """Read batches of a checkpoint: its offsets and commits, each a file for each batch."""
    offsets = folder / "offsets"
    if not offsets.is_dir() or not (folder / "commits").is_dir():
        raise DataError(
            f"'{folder}' is no checkpoint of a stream", detail="it has offsets and commits"
        )
    batches: list[TimedBatch] = []
    before: int | None = None
    numbers = sorted(int(p.name) for p in offsets.iterdir() if p.name.isdigit())[-_BATCHES_MAX:]
    for number in numbers:
        text = read_small(offsets / str(number), _BYTES_MAX)
        # The first line is a version, the second is about the batch, each other one is a source.
        _, about, *sources = text.splitlines()
        try:
            began = float(json.loads(about)["batchTimestampMs"]) / 1000
        except (KeyError, TypeError, ValueError) as error:
            place = str(offsets / str(number))
            raise DataError("the offsets have no time", where=place, detail=str(error)) from None
        stop = sum(_counted(source, offsets / str(number)) for source in sources)
        commit = folder / "commits" / str(number)
        if before is not None and stop > before and commit.exists():
            batches.append(_batch(stop - before, began, commit.stat().st_mtime))
        before = stop
    return RunningStream(folder.resolve().name, tuple(batches), None)


def _counted(source: str, place: Path) -> int:
    """Return how many events a source had up to an offset."""
    try:
        found = list(_numbers(json.loads("[]" if source == "-" else source)))
    except ValueError:
        found = []
    if not found and source != "-":
        raise DataError(
            "the offset of a source does not count events", where=str(place), detail=source[:200]
        )
    return sum(found)


def _numbers(offset: Any) -> Iterator[int]:
    """Yield the numbers of an offset: one, that of an event log, or those of Kafka's partitions."""
    if isinstance(offset, dict):
        # An event log also says how many bytes that is, and when it was.
        if isinstance(offset.get("offset"), int):
            yield offset["offset"]
            return
        for name, inner in offset.items():
            # Those of files count what was listed, not events.
            if name != "logOffset":
                yield from _numbers(inner)
    elif isinstance(offset, int) and not isinstance(offset, bool):
        yield offset


def _batch(events: int, began: float, ended: float) -> TimedBatch:
    # When its events came nobody says: they waited for half of the time between batches or so.
    return TimedBatch(events, began, began, max(ended, began + 1e-6), 0.0)


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise _unlike(place, "a list is expected")
    return value


def _unlike(place: str, detail: str) -> DataError:
    return DataError(
        f"'{place}' is neither metrics nor progress of streams",
        detail=detail,
        hint="save /metrics.json of op.spark.metrics.watch, or query.recentProgress as JSON",
    )
