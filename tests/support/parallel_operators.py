"""Operators that instances import, as those of users are: they do well, fail, or take long."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

import outpace as op


class Rises(op.EventOperator):
    """Gives the events that are higher than the one before."""

    output = pa.schema([("at", pa.int64())])

    def __init__(self) -> None:
        self.last = 1 << 60

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        value = event["x"]
        assert isinstance(value, int)
        if value > self.last:
            yield {"at": event["ts"]}
        self.last = value


class Fails(op.Operator):
    """Raises an error of its own at event 500."""

    output = pa.schema([("at", pa.int64())])

    def process(self, events: pa.Table) -> None:
        if 500 in events["ts"].to_pylist():
            raise ZeroDivisionError("nothing can be divided by nothing")


class Loses(op.Operator):
    """Loses a connection of its own at the first event of each window."""

    output = pa.schema([("at", pa.int64())])

    def process(self, events: pa.Table) -> None:
        raise BrokenPipeError("the service is gone")


class Dies(op.Operator):
    """Is killed at event 500, as a process that takes too much memory is."""

    output = pa.schema([("at", pa.int64())])

    def process(self, events: pa.Table) -> None:
        if 500 in events["ts"].to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)


class Sleeps(op.Operator):
    """Takes long for every window."""

    output = pa.schema([("at", pa.int64())])

    def process(self, events: pa.Table) -> None:
        time.sleep(0.2)


class Stuck(op.Operator):
    """Notes its process in a file, then keeps Python to itself for longer than any test waits."""

    output = pa.schema([("at", pa.int64())])

    def process(self, events: pa.Table) -> None:
        (Path(os.environ["OUTPACE_STUCK"]) / str(os.getpid())).touch()
        re.match("(a+)+$", "a" * 60 + "b")
