"""The last rows of a stream in order: those that come before rows already taken are refused.

The first column of the query's order is the time of the whole stream, so it must not go back, in
whatever partition; rows of one time follow the other columns in their partition. Matches that were
given away could be wrong otherwise, and nobody would know.

Memory: the last row; with keys and several order columns, the last row of each key of the latest
time.
"""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa

from outpace.engine.kernels.grouping import is_ascending
from outpace.engine.rows.partition import comparable, key_codes, one_array, sort_rows
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.state import require, typed
from outpace.errors import DataError, Hint
from outpace.pattern.bound import BoundQuery
from outpace.pattern.duration import print_duration
from outpace.pattern.types import is_instant, is_integer, value_type


class LastRows(Stateful):
    """Says of rows whether they may come now.

    Parameters
    ----------
    bound
        The query.
    partition_by
        The columns of partitions that have an order of their own among rows of one time.

    Examples
    --------
    >>> from outpace.pattern.bind.query import bind
    >>> from outpace.pattern.query import Query
    >>> query = Query().order_by("ts").pattern("A")
    >>> last_rows = LastRows(bind(query, pa.schema([("ts", pa.int64())])))
    >>> last_rows.accept(pa.table({"ts": [5, 6]}))
    >>> try:
    ...     last_rows.check(pa.table({"ts": [7, 3]}))
    ... except DataError as error:
    ...     print(error)
    [data] row 1 of the pushed table comes before row 0 of it
      ts is 3, after 7
      hint: push rows in event order, or let the query wait for late ones: .disorder(op.KSlack(4))
    """

    def __init__(self, bound: BoundQuery, partition_by: tuple[str, ...] = ()) -> None:
        self._by_time = replace(
            bound,
            partition_by=(),
            order_by=bound.order_by[:1],
            descending=bound.descending[:1],
            nulls_first=bound.nulls_first[:1],
        )
        keys = partition_by if len(bound.order_by) > 1 else ()
        self._by_key = replace(bound, partition_by=keys)
        self._columns = tuple(dict.fromkeys((*keys, *bound.order_by)))
        #: The last row taken, or those of the latest time that are the last of their key.
        self.latest = bound.schema.empty_table().select(self._columns)

    def check(self, rows: pa.Table) -> None:
        """Refuse rows that come before rows that were taken, or before each other."""
        if not self._by_time.order_by or not rows.num_rows:
            return
        if not self._rises(rows):
            self._check_by(self._by_time, rows)
        if len(self._by_key.order_by) > 1:
            self._check_by(self._by_key, rows)

    def accept(self, rows: pa.Table) -> None:
        """Remember rows that were taken."""
        if not self._by_time.order_by or not rows.num_rows:
            return
        if not self._by_key.partition_by:
            self.latest = rows.slice(rows.num_rows - 1).select(self._columns)
            return
        joined = pa.concat_tables([self.latest, rows.select(self._columns)])
        times, _ = key_codes([joined.column(self._by_time.order_by[0])])
        joined = joined.filter(pa.array(times == times[-1]))
        keys, firsts = key_codes([joined.column(name) for name in self._by_key.partition_by])
        last = np.zeros(len(firsts), np.int64)
        last[keys] = np.arange(len(keys))
        self.latest = joined.take(pa.array(last)).combine_chunks()

    def restore(self, latest: pa.Table) -> None:
        """Go on after the rows that `latest` had when it was saved."""
        latest = typed(latest, self.latest.schema)
        by_key = bool(self._by_key.partition_by)
        require(by_key or latest.num_rows <= 1, "more than one row is the last")
        self.latest = latest

    def _rises(self, rows: pa.Table) -> bool:
        """Say whether time rises, as far as that is cheap to see."""
        name = self._by_time.order_by[0]
        values = comparable(one_array(rows.column(name)))
        if values is None or self._by_time.descending[0] or not is_ascending(values):
            return False
        if not self.latest.num_rows:
            return True
        last = comparable(one_array(self.latest.column(name)))
        return last is not None and bool(last[-1] <= values[0])

    def _check_by(self, order: BoundQuery, rows: pa.Table) -> None:
        joined = pa.concat_tables([self.latest, rows.select(self._columns)])
        sorted_rows, segments = sort_rows(joined, order)
        if sorted_rows is None:
            return
        # The place of each row, the partitions one after the other: it rises where none is late.
        which = np.repeat(np.arange(len(segments) - 1), np.diff(segments))
        place = sorted_rows + which * joined.num_rows
        if is_ascending(place):
            return
        late: list[tuple[int, int]] = []
        for begin, end in itertools.pairwise(segments):
            group = sorted_rows[begin:end]
            # A row is late where one that came earlier is placed behind it.
            earliest_behind = np.minimum.accumulate(group[::-1])[::-1]
            behind = group[group > earliest_behind]
            if len(behind):
                row = int(behind.min())
                late.append((row, int(group[group < row][-1])))
        if late:
            raise self._refused(joined, *min(late))

    def _refused(self, joined: pa.Table, row: int, taken: int) -> DataError:
        before = self.latest.num_rows
        others = f"row {taken - before} of it"
        if taken < before:
            others = "rows that were already taken"
        values = ((name, joined.column(name)) for name in self._by_key.order_by)
        shown = [
            f"{name} is {_text(value[row])}, after {_text(value[taken])}"
            for name, value in values
            if value[row] != value[taken]
        ]
        return DataError(
            f"row {row - before} of the pushed table comes before {others}",
            detail=", ".join(shown),
            hint=self._hint(joined, row, taken),
        )

    def _hint(self, joined: pa.Table, row: int, taken: int) -> str:
        """Name the NULL that no row can follow, or the disorder that would have waited for one."""
        name = self._by_time.order_by[0]
        times = joined.column(name).take(pa.array([row, taken]))
        in_order = "push rows in event order"
        if times[0].is_valid and not times[1].is_valid:
            return f"a NULL comes after every {name}: leave such rows out, or push them last"
        kind = value_type(times.type)
        timed = (is_integer(kind) or is_instant(kind)) and not self._by_time.descending[0]
        if times.null_count or not timed:
            return in_order
        late, last = as_integers(times).tolist()
        python = sql = str(last - late)
        if is_instant(kind):
            span = print_duration(datetime.timedelta(microseconds=last - late))
            python, sql = f'"{span}"', f"'{span}'"
        wait = f"{in_order}, or let the query wait for late ones:"
        return Hint(f"{wait} .disorder(op.KSlack({python}))", f"{wait} DISORDER SLACK {sql}")


def _text(value: pa.Scalar) -> str:
    return str(value) if value.is_valid else "NULL"
