"""Recovery without saved state: what retains the events of a stream, and what it still needs.

`op.open(query, recovery="replay")` gives a stream whose events are retained in a `RetainedLog`;
what was acknowledged, and what no match can use, is dropped from it. `op.resume(query, log)` goes
on with what is left, wherever the stream was lost. `op.run(..., recovery="replay", log=log)` runs
over sources so, and the same call goes on. `OperatorStream` does it for operators of your own,
which are `Recoverable`: push, pop, save, restore.

Examples
--------
>>> import outpace as op
>>> rise = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
>>> log = op.recover.RetainedLog()
>>> stream = op.open(rise, recovery="replay", log=log)
>>> stream.push({"ts": [1, 2, 3], "x": [5, 6, 4]}).to_pylist()
[{'at': 2}]
>>> stream.acknowledge().trim, len(log)
(1, 1)
>>> again = op.resume(rise, log)
>>> again.push({"ts": [4], "x": [9]}).to_pylist()
[{'at': 4}]
"""

from __future__ import annotations

from outpace.engine.recover.protocol import OwnMatch, Recoverable, SeekableLog
from outpace.engine.savepoint import Savepoint
from outpace.hosts.local.operator_stream import OperatorStream
from outpace.hosts.local.recoverable import RecoverableStream
from outpace.hosts.local.recovery_counters import RecoveryCounters
from outpace.ingest.retained_log import RetainedLog

__all__ = [
    "OperatorStream",
    "OwnMatch",
    "Recoverable",
    "RecoverableStream",
    "RecoveryCounters",
    "RetainedLog",
    "Savepoint",
    "SeekableLog",
]
