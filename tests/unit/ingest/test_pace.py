"""Sources at a pace: as fast as asked for and not faster, and nothing is lost by waiting."""

from __future__ import annotations

import time

import pytest

from outpace.errors import DataError
from outpace.ingest.generators import simple_events
from outpace.ingest.pace import paced


def test_events_come_no_faster_than_asked_for() -> None:
    began = time.monotonic()
    batches = list(paced(simple_events(600), rate=2000).batches())
    assert time.monotonic() - began >= 0.3
    # No event waits longer than a few hundredths of a second for its batch.
    assert max(batch.num_rows for batch in batches) <= 40


def test_who_reads_late_gets_all_events() -> None:
    batches = paced(simple_events(1000), rate=10_000).batches()
    found = [next(batches)]
    time.sleep(0.2)
    found += batches
    assert [n for batch in found for n in batch["seq"].to_pylist()] == list(range(1000))


def test_a_rate_is_above_zero() -> None:
    with pytest.raises(DataError, match="above 0"):
        paced(simple_events(1), rate=0)
