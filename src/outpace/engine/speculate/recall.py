"""Rows that an instance has, so that they are not sent again when the operator goes back.

Sender and receiver follow the same rule, from deliveries alone: they know rows by the ids of their
events, and rows that were delivered since the mark that an instance goes back to can be recalled.
So of a row that the instance has only the id travels. It is so with windows alone: without, all
instances read all events. A few of them among many that are new (`is_worth_recalling`) travel with
these, as a delivery of their own takes longer.

Memory: for the receiver the rows within the horizon that it was sent, and those once more that it
went back behind; for the sender their ids.
Paper: Sardar 2018, 6.1 (internal replay).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans, Integers
from outpace.engine.rows.partition import gather
from outpace.engine.speculate.standings import Standing

#: Rows that an instance has travel again among this many times as many that are new.
_FEW: Final = 64


def is_worth_recalling(known: int, new: int) -> bool:
    """Say whether so many rows that instances have are to be recalled, before others that are new.

    Examples
    --------
    >>> is_worth_recalling(20, 1000), is_worth_recalling(20, 2000), is_worth_recalling(0, 0)
    (True, False, False)
    """
    return known * _FEW > new


@dataclass(frozen=True)
class _SentPiece:
    """A delivery: the mark before it, the ids of its rows, and these where they are kept."""

    mark: int
    ids: Integers
    rows: pa.Table | None


class SentRows:
    """The rows that an instance was sent, as far as it may be sent them again.

    Examples
    --------
    >>> rows = pa.table({"x": ["a", "b", "c"]})
    >>> sent = SentRows()
    >>> sent.stand(Standing(0, mark=0))
    >>> sent.add(np.array([7, 8, 9]), rows)
    >>> sent.stand(Standing(0, back_to=0))
    >>> sent.known(np.array([8, 5, 7])).tolist()
    [True, False, True]
    >>> sent.rows(np.array([8, 5, 7]), pa.table({"x": ["late"]}))["x"].to_pylist()
    ['b', 'late', 'a']
    """

    def __init__(self) -> None:
        self._mark, self._oldest = -1, 0
        self._sent: list[_SentPiece] = []
        #: What was sent behind the mark that the instance went back to last.
        self._recalled: list[_SentPiece] = []

    def stand(self, standing: Standing) -> None:
        """Follow where the instance is to stand."""
        if (mark := standing.back_to) is not None:
            self._recalled = [one for one in self._sent if one.mark >= mark]
            self._sent = [one for one in self._sent if one.mark < mark]
            self._mark = mark
        if standing.mark is not None:
            self._mark = standing.mark
        if standing.oldest != self._oldest:
            self._oldest = standing.oldest
            self._sent = [one for one in self._sent if one.mark >= self._oldest]
            self._recalled = [one for one in self._recalled if one.mark >= self._oldest]

    def known(self, ids: Integers) -> Booleans:
        """Say which events the instance has."""
        if not self._recalled:
            return np.zeros(len(ids), np.bool_)
        return np.isin(ids, np.concatenate([one.ids for one in self._recalled]))

    def add(self, ids: Integers, rows: pa.Table | None = None) -> None:
        """Take events that are sent, and their rows where they are to be recalled."""
        if len(ids):
            self._sent.append(_SentPiece(self._mark, ids, rows))

    def rows(self, ids: Integers, fresh: pa.Table) -> pa.Table:
        """Return the rows of events: those that are fresh, in their order, and others it has."""
        there = np.concatenate([*(one.ids for one in self._recalled), ids[~self.known(ids)]])
        order = np.argsort(there, kind="stable")
        places = order[np.searchsorted(there, ids, sorter=order)]
        tables = [one.rows for one in self._recalled if one.rows is not None]
        table = pa.concat_tables([*tables, fresh])
        return pa.table([gather(column, places) for column in table.columns], schema=fresh.schema)
