"""The senders of events: the identifiers of sources, and which events of a piece are whose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.arrays import Integers
from outpace.engine.message import EventsArrived
from outpace.engine.order.contract import with_reasons
from outpace.engine.rows.partition import group_codes, one_array
from outpace.errors import DataError, did_you_mean
from outpace.pattern.bind.disorder import SOURCE, BoundDisorder
from outpace.pattern.disorder import Invalid

#: The numbers of the sources of events.
Owners: TypeAlias = npt.NDArray[np.int32]


def source_names(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the identifiers of sources in their order.

    Raises
    ------
    DataError
        There are none, or two of them are the same, or one is no text.
    """
    named = [] if isinstance(sources, str) else list(sources)
    if not all(isinstance(source, str) for source in named):
        raise DataError("the identifiers of sources are strings", detail=f"got {named}")
    if not named or len(set(named)) < len(named):
        raise DataError(
            "sources need identifiers that differ",
            detail=f"got {', '.join(sorted(named)) or 'none'}",
            hint='give a list of strings: ["east", "west"]',
        )
    return tuple(sorted(named))


def no_source(source: str | None, sources: Sequence[str]) -> DataError:
    """Return the error for a source that is not among those of a stream."""
    hint = did_you_mean(str(source or ""), sources) or f"there are {', '.join(sources[:10])}"
    return DataError(stray_reason(source), hint=hint)


def owners_of(column: pa.ChunkedArray, sources: Sequence[str]) -> Owners:
    """Return the number of the source of each event; -1 where there is no such source.

    Examples
    --------
    >>> owners_of(pa.chunked_array([["b", "a", None, "c"]]), ["a", "b"]).tolist()
    [1, 0, -1, -1]
    """
    named = one_array(column).cast(pa.string())
    found = pc.index_in(named, value_set=pa.array(sources, pa.string()))
    return np.asarray(found.fill_null(-1), np.int32)


def stray_reason(source: str | None) -> str:
    """Say what is wrong with who sent an event."""
    return f"'{SOURCE}' is NULL" if source is None else f"there is no source '{source}'"


@dataclass(frozen=True)
class SourceShares:
    """Which events of a piece are of which source.

    Parameters
    ----------
    names
        The sources that have any.
    places, bounds
        Their events, source after source, and where those of each begin and end.
    """

    names: tuple[str, ...]
    places: Integers
    bounds: Integers

    @staticmethod
    def of(events: EventsArrived, owners: Owners | None, names: tuple[str, ...]) -> SourceShares:
        """Return the shares of a piece of one source, or of several with their numbers."""
        if owners is None:
            assert events.source is not None
            size = events.rows.num_rows
            return SourceShares(
                (events.source,) if size else (), np.arange(size), np.array([0, size])
            )
        grouping = group_codes(owners, len(names))
        there = np.flatnonzero(np.diff(grouping.segments))
        places = np.arange(len(owners)) if grouping.order is None else grouping.order
        bounds = np.append(grouping.segments[there], len(owners))
        return SourceShares(
            tuple(names[number] for number in there), places.astype(np.int64), bounds
        )

    def each(self) -> Iterator[tuple[str, Integers]]:
        """Yield each source with its events."""
        for name, (low, high) in zip(self.names, pairwise(self.bounds), strict=False):
            yield name, self.places[low:high]


def owned(
    rows: pa.Table, sources: tuple[str, ...], disorder: BoundDisorder | None
) -> tuple[pa.Table, Owners, pa.Table | None]:
    """Return rows with the numbers of their sources, and those of no source with the reason.

    Raises
    ------
    DataError
        The rows do not say who sent them, or an unknown one did and such are not set aside.
    """
    if SOURCE not in rows.column_names:
        raise DataError(
            "the source of the rows is missing",
            hint=f"name it, or give the rows a column '{SOURCE}'",
        )
    column = rows.column(SOURCE)
    owners = owners_of(column, sources)
    stray = np.flatnonzero(owners < 0)
    if not len(stray):
        return rows, owners, None
    if disorder is None or disorder.invalid is Invalid.FAIL:
        raise no_source(column[int(stray[0])].as_py(), sources)
    reasons = [stray_reason(column[int(row)].as_py()) for row in stray]
    aside = with_reasons(rows.take(pa.array(stray)), reasons)
    return rows.filter(pa.array(owners >= 0)), owners[owners >= 0], aside
