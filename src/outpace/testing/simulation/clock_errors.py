"""Clocks that are off: events are seen in another order than the true one, which is hidden."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pyarrow as pa

from outpace.engine.rows.times import as_integers
from outpace.pattern.query import Query
from outpace.testing.simulation.arrival import time_of, unit_of


@dataclass(frozen=True)
class ClockErrors:
    """How far the times of events are off.

    Parameters
    ----------
    most
        By how many units at most, either way.
    by_key
        Whether all events of a key have one clock, which is off by the same all the time, so that
        they stay in their order.
    """

    most: int
    by_key: bool

    @staticmethod
    def draw(random: Random) -> ClockErrors:
        """Draw how good the clocks are."""
        return ClockErrors(random.randint(1, 3), random.random() < 0.4)

    def observe(self, random: Random, query: Query, events: pa.Table) -> pa.Table:
        """Return events of true times as they are seen, in the order in which they are seen."""
        unit, column = unit_of(query, events), time_of(query)
        keys = events["key"].to_pylist()
        drawn = {key: random.randint(-self.most, self.most) for key in sorted({*keys})}
        errors = [drawn[key] for key in keys]
        if not self.by_key:
            errors = [random.randint(-self.most, self.most) for _ in keys]
        pairs = zip(as_integers(events[column]).tolist(), errors, strict=True)
        seen = [time + unit * error for time, error in pairs]
        order = sorted(range(len(seen)), key=lambda row: seen[row])
        kind = events.schema.field(column).type
        times = pa.array(seen, pa.int64()).cast(kind)
        events = events.set_column(events.schema.get_field_index(column), column, times)
        events = events.take(pa.array(order, pa.int64()))
        numbers = pa.array(range(len(order)), pa.int64())
        return events.set_column(events.schema.get_field_index("seq"), "seq", numbers)
