"""What goes over a link: states as they are saved (`outpace.engine.state`), told by their kind.

That is the codec for what somebody else may have written, and a link may be anybody's: bytes that
are none are refused, and nothing is ever unpickled. A peer says who it is before anything else,
with the secret of the run.

From who reads: `hello` (what it reads, and which event it wants next), `taken` (up to which event),
`saved` (backups, or how many matches are taken for good). From who is read: `welcome` (the backups
that it keeps), `events`, `promise` (of time), `end`. Between an operator and the monitor: `begun`,
`ready`, `beat`, `done`, `failed`, `where` (is a node); `peer` (where a node is), `stop`. Between
another machine and the monitor: `machine` (which processes it runs); `orders` (which it is to run).
To who does not belong to the run: `refused`.
"""

from __future__ import annotations

import hmac
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers
from outpace.engine.state import NATURAL, State, integer, integers, reading, require
from outpace.errors import DataError, InstanceError, OutpaceError
from outpace.hosts.graph.backup import Backup

#: How large a message is at most: many times what wide events, or savepoints, come to. Who sends a
#: larger one loses the connection before it is in memory.
MESSAGE_BYTES: Final = 1 << 26
#: Who reads what comes out of a graph.
SINK: Final = ""


def write(kind: str, tables: Sequence[pa.Table] = (), **numbers: Any) -> bytes:
    """Return a message as bytes; raise `DataError` where nobody would take it."""
    data = State({"kind": kind, **numbers}, tables).encode()
    if len(data) > MESSAGE_BYTES:
        raise DataError(
            f"a message between operators of a graph has {len(data):,} bytes",
            detail=f"links take {MESSAGE_BYTES:,} at most, and it is of the kind '{kind}'",
            hint="keep large values out of events and measures, and their keys in",
        )
    return data


def read(data: bytes) -> tuple[str, State]:
    """Return the kind of a message and the message; raise `StateError` for anything else."""
    state = State.decode(data)
    kind = state.numbers.get("kind")
    require(isinstance(kind, str), "these bytes are no message of a link")
    return str(kind), state


def knows_secret(message: State, token: str) -> bool:
    """Say whether who sent a message knows the secret of the run."""
    own_token = str(message.numbers.get("token"))
    return hmac.compare_digest(own_token.encode(errors="replace"), token.encode())


def write_events(rows: pa.Table, numbers: Integers) -> Iterator[tuple[int, bytes]]:
    """Yield events as messages, as few as they fit in, each behind the number of its last event.

    Numbers without gaps are told by the first.
    """
    if rows.num_rows > 1 and rows.nbytes > MESSAGE_BYTES // 2:
        half = rows.num_rows // 2
        yield from write_events(rows.slice(0, half), numbers[:half])
        yield from write_events(rows.slice(half), numbers[half:])
        return
    first = int(numbers[0])
    whole = int(numbers[-1]) - first + 1 == len(numbers)
    tables = [rows] if whole else [rows, pa.table({"number": numbers})]
    yield int(numbers[-1]), write("events", tables, first=first)


def read_events(state: State) -> tuple[pa.Table, Integers]:
    """Return the events of a message, and their numbers."""
    with reading():
        rows, *others = state.tables
        if not others:
            first = integer(state.numbers, "first", NATURAL)
            return rows, np.arange(first, first + rows.num_rows)
        (numbers,) = integers(others[0], number=NATURAL)
        require(len(numbers) == rows.num_rows, "events have no numbers")
        require((np.diff(numbers) > 0).all(), "numbers of events do not rise")
        return rows, numbers


def write_backups(backups: Iterable[Backup]) -> pa.Table:
    """Return backups as a table of a message."""
    return pa.table({"backup": pa.array([one.encoded for one in backups], pa.binary())})


def read_backups(state: State) -> list[Backup]:
    """Return the backups of a message."""
    with reading():
        return [Backup.decode(one) for one in state.tables[0]["backup"].to_pylist()]


def told_failure(error: Exception) -> dict[str, Any]:
    """Return what is said of an error to who cannot see it."""
    if isinstance(error, OutpaceError):
        parts = ("code", "message", "detail", "hint", "where")
        return {one: getattr(error, one) for one in parts}
    message = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    return {"code": "", "message": message, "detail": trace, "hint": None, "where": None}


def failure_of(place: str, told: Mapping[str, Any]) -> OutpaceError:
    """Return what is raised here for what was raised at another place."""
    kinds = {one.code: one for one in _kinds(OutpaceError)}
    where = place if told["where"] is None else f"{place}: {told['where']}"
    kind = kinds.get(told["code"], InstanceError)
    return kind(told["message"], detail=told["detail"], hint=told["hint"], where=where)


def _kinds(kind: type[OutpaceError]) -> Iterator[type[OutpaceError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _kinds(one)
