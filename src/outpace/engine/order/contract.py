"""How the order of a stream is asked for: what is told, and what it lets go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, Self

import pyarrow as pa

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.state import State

#: The first column of invalid events says why they are.
REASON: Final = "reason"


@dataclass(frozen=True)
class Released:
    """What a piece of a stream gives.

    Parameters
    ----------
    rows
        The events whose turn it is, in order.
    watermark
        No later event has a time before this; NO_TIME while it is not known.
    late
        The events of the piece that came late, as they came, whatever becomes of them; None where
        none can be.
    invalid
        Those that cannot be used, with the reason in the first column; None where none can be.
    """

    rows: pa.Table
    watermark: int
    late: pa.Table | None = None
    invalid: pa.Table | None = None


class Order(Protocol):
    """How the events of a stream come into the order of the query."""

    @property
    def buffered(self) -> int:
        """How many events wait for their turn."""
        ...

    @property
    def watermark(self) -> int:
        """No later event has a time before this; NO_TIME while it is not known."""
        ...

    def push(
        self,
        rows: pa.Table,
        spans: Integers | None = None,
        told: int = NO_TIME,
        source: str | None = None,
    ) -> Released:
        """Take events; see `EventsArrived`."""
        ...

    def tell(self, time: int, source: str | None = None) -> Released:
        """Take a promise; see `TimeTold`."""
        ...

    def finish(self, source: str | None = None) -> Released:
        """Take the end of a source, or of all."""
        ...

    def snapshot(self) -> Self:
        """Return a part that stands where this one does; see `Stateful`."""
        ...

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        ...

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        ...


def with_reasons(rows: pa.Table, reasons: list[str]) -> pa.Table:
    """Return invalid events with the reasons why they are."""
    return rows.add_column(0, pa.field(REASON, pa.string()), pa.array(reasons, pa.string()))
