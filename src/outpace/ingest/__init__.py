"""Where events come from: files, generators, and many sources at once in one order.

The clocks of sources: `ClockSync` answers those that ask what time it is with `ClockClient`.

Examples
--------
>>> import outpace as op
>>> with op.ingest.ClockSync(port=0) as sync:
...     with op.ingest.ClockClient(sync.address, "east") as client:
...         exchange = client.ask()
>>> abs(exchange.received - exchange.asked) < 1_000_000
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outpace.engine.message import ClockExchange
    from outpace.engine.order.drift import ClockReading
    from outpace.ingest.clock import ClockClient, ClockCounters, ClockSync

__all__ = ["ClockClient", "ClockCounters", "ClockExchange", "ClockReading", "ClockSync"]

#: Names are loaded when they are used: who reads files needs no clocks.
_HOMES: Final = {
    "ClockClient": "outpace.ingest.clock",
    "ClockCounters": "outpace.ingest.clock",
    "ClockExchange": "outpace.engine.message",
    "ClockReading": "outpace.engine.order.drift",
    "ClockSync": "outpace.ingest.clock",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'outpace.ingest' has no attribute '{name}'")
        return getattr(importlib.import_module(_HOMES[name]), name)
