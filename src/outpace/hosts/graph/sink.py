"""The process of a sink: it appends matches to an event log, each once, whoever is lost.

The offset of a match in the log is its number, so the log itself says which one comes next. Matches
are acknowledged when they are on the disk: they never come again, so that not even a crash of the
machine may take them.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pyarrow as pa

from outpace.errors import BindError, DataError
from outpace.hosts.graph.inlet import Inlet, TakenMatches
from outpace.hosts.graph.links import Secret
from outpace.hosts.graph.member import Member
from outpace.hosts.graph.message import SINK
from outpace.hosts.graph.metrics import NodeMetrics
from outpace.ingest.log.folder import SEGMENT_BYTES, create_folder
from outpace.ingest.log.reader import Log
from outpace.ingest.log.writer import Writer
from outpace.pattern.types import is_instant

_TURN_S: Final = 0.1
#: How long the writer of a run that was lost may take to end.
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True)
class SinkSetup:
    """What the process of a sink is started with.

    Parameters
    ----------
    name
        What the monitor calls it.
    node
        The operator whose matches it takes.
    path
        The folder of the log.
    """

    name: str
    node: str
    path: str


def make_log(
    path: str | os.PathLike[str], schema: pa.Schema, node: str, *, go_on: bool = False
) -> str:
    """Make an event log for matches, or go on with that of an earlier run, and return its path."""
    place = Path(path)
    if (place / "log.json").exists():
        if go_on and Log.open(place).schema.equals(schema):
            return str(place)
        raise DataError(
            f"there is a log in '{place}' already",
            hint=f"name a new folder for the matches of '{node}'",
        )
    times = [one.name for one in schema if is_instant(one.type)]
    times += [one.name for one in schema if pa.types.is_integer(one.type)]
    if not times:
        raise BindError(
            f"matches of '{node}' have no time, so that they cannot go to an event log",
            hint="add a measure with a time: measures(at='LAST(ts)')",
        )
    return str(create_folder(place, schema, times[0], SEGMENT_BYTES).path)


def run_sink(
    setup: SinkSetup, monitor: str, secret: Secret, number: int, parent: Connection
) -> None:
    """Work until the monitor says that all is done; the body of the process."""
    member = Member(setup.name, monitor, secret, number, parent)
    with member.telling():
        _work(setup, member)


def _writer(path: str) -> Writer:
    """Return what writes to the log; who was lost with all others may still have it."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return Log.open(path).writer(sync="always")
        except DataError:
            if time.monotonic() > end:
                raise
            time.sleep(_TURN_S)


def _check_next(setup: SinkSetup, there: int, first: int) -> None:
    """Refuse a log that does not have the matches that were put into it."""
    if there != first:
        raise DataError(
            f"the log in '{setup.path}' has {there} matches, and the run goes on behind {first}",
            hint="go on with the log of the earlier run, or name a new folder for the graph",
        )


def _work(setup: SinkSetup, member: Member) -> None:
    writer = _writer(setup.path)
    inlet = Inlet(member.links, setup.node, SINK, member.number)
    taken, metrics, told = TakenMatches(inlet, writer.stop), NodeMetrics(), False
    member.ready(None)
    while not member.stopped:
        member.wait([inlet.socket] if inlet.socket else [], _TURN_S)
        for _, address in member.peers():
            inlet.connect(address, writer.stop)
        if inlet.asks():
            member.ask(setup.node)
        for first, rows in taken.tables():
            _check_next(setup, writer.stop, first)
            writer.append(rows)
        if taken.ended and not told:
            _check_next(setup, writer.stop, taken.stop)
            told = True
            member.done()
        metrics.events, metrics.doubles = writer.stop, taken.doubles
        if member.due:
            member.beat(asdict(metrics))
    writer.close()
    member.leave(asdict(metrics))
