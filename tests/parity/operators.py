"""Operators of users, in a module that other processes can import."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

import outpace as op


class Pairs(op.EventOperator):
    """Finds an a with the next b behind it, event by event."""

    output = pa.schema([("first", pa.int64()), ("last", pa.int64())])

    def __init__(self) -> None:
        self.first: object = None

    def on_event(self, event: dict[str, object]) -> Iterable[Mapping[str, object]]:
        if event["kind"] == "b" and self.first is not None:
            first, self.first = self.first, None
            yield {"first": first, "last": event["id"]}
        elif event["kind"] == "a":
            self.first = event["id"]

    def state(self) -> bytes:
        return json.dumps(self.first).encode()

    def restore(self, data: bytes) -> None:
        self.first = json.loads(data)
