"""Events that come in order: rows that go back are refused, as no match could be taken back.

Memory: the place of the last row; see `Arrival`.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import Order, ReleasedEvents
from outpace.engine.order.last_rows import LastRows
from outpace.engine.rows.times import as_integers, passed, valid_times
from outpace.engine.state import ANY, State
from outpace.pattern.bound import BoundQuery
from outpace.pattern.types import is_instant, is_integer, value_type


class OrderedInput(Order):
    """Lets events pass that come in the order of a query.

    Parameters
    ----------
    bound, schema
        The query, and the columns that events have.
    partition_by
        The columns of partitions that have an order of their own among rows of one time.
    checked
        Whether rows that go back are refused.
    tells_time
        Whether rows tell how far time has come, where somebody asks for it.
    read
        The column whose times somebody reads, so that none may be NULL; None where nobody does.
    """

    CHANGED = ("_last_rows",)
    NUMBERS: ClassVar = {"watermark": ("_watermark", ANY)}

    def __init__(
        self,
        bound: BoundQuery,
        schema: pa.Schema,
        partition_by: tuple[str, ...],
        *,
        checked: bool = True,
        tells_time: bool = False,
        read: str | None = None,
    ) -> None:
        self._checked = checked
        self._read = read
        self._tells_time = tells_time
        self._nothing = schema.empty_table()
        self._last_rows = LastRows(bound, partition_by)
        self._time = _time(bound)
        self._watermark = int(NO_TIME)
        #: What counts from `take` on: the rows, and how far time comes with them.
        self._next = self._nothing, self._watermark

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME where nobody asks for it."""
        return self._watermark

    @property
    def latest(self) -> int:
        """The time that the last row or promise has come to; NO_TIME where nobody knows."""
        rows = self._last_rows.latest
        if self._time is None or not rows.num_rows or rows.column(self._time).null_count:
            return self._watermark
        return max(self._watermark, int(as_integers(rows.column(self._time)).max()))

    @property
    def buffered(self) -> int:
        """None: nothing waits."""
        return 0

    def push(self, events: EventsArrived) -> ReleasedEvents:
        """Check the next rows; they count from `take` on."""
        rows = events.rows
        if self._checked:
            if self._read is not None and rows.column(self._read).null_count:
                # A row without a time is the reason, not the rows that seem to be late behind it.
                valid_times(self._read, rows.column(self._read), range(rows.num_rows))
            self._last_rows.check(rows)
            self._check_passed(rows)
        watermark = max(self._watermark, int(events.watermark), self._last_time(rows))
        self._next = rows, watermark
        return ReleasedEvents(rows, watermark)

    def accept(self) -> None:
        """Let what was let go last count; without it, it is as if nothing had come."""
        rows, self._watermark = self._next
        if self._checked:
            self._last_rows.accept(rows)
        self._next = self._nothing, self._watermark

    def tell(self, time: int, source: str | None = None, arrival: int = NO_TIME) -> ReleasedEvents:
        """Take a promise that no later row has a time before this."""
        return self.push(EventsArrived(self._nothing, watermark=time))

    def finish(self, source: str | None = None) -> ReleasedEvents:
        """Say that no more rows come."""
        self._next = self._nothing, self._watermark
        return ReleasedEvents(*self._next)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return super().state().plus(State({}, [self._last_rows.latest]))

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        _, (latest,) = state.content(1)
        self._last_rows.restore(latest)

    def _last_time(self, rows: pa.Table) -> int:
        """Return the time of the last row, where somebody asks for it."""
        if not self._tells_time or self._time is None or not rows.num_rows:
            return int(NO_TIME)
        last = rows.column(self._time).slice(rows.num_rows - 1)
        return int(NO_TIME) if last.null_count else int(as_integers(last)[0])

    def _check_passed(self, rows: pa.Table) -> None:
        """Refuse rows before a time that has passed; they are in order, so the first one tells."""
        if self._watermark == NO_TIME or self._time is None or not rows.num_rows:
            return
        first = rows.column(self._time).slice(0, 1)
        if not first.null_count and int(as_integers(first)[0]) < self._watermark:
            raise passed(0, f"{self._time} is {first[0]}")


def _time(bound: BoundQuery) -> str | None:
    """Return the column that tells the time of the stream, where there is one that rises."""
    if not bound.order_by or bound.descending[0]:
        return None
    kind = value_type(bound.schema.field(bound.order_by[0]).type)
    return bound.order_by[0] if is_instant(kind) or is_integer(kind) else None
