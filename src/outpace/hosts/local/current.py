"""The matches that are current, of a stream that takes some back: a table that follows changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern.argument import an_instance
from outpace.pattern.bound import CONFIRMED, DIFF, MATCH

_WHOLE: Final = "apply all that the stream gave, each push once and in its order"


class CurrentMatches:
    """A table of the matches that are there now, which follows the changes of a stream.

    Memory: the matches that are there; `drop_confirmed` lets those go that nothing takes back.

    Examples
    --------
    >>> current = CurrentMatches()
    >>> def change(match: str, diff: int, confirmed: bool) -> pa.Table:
    ...     return pa.table({"match_id": [match], "diff": [diff], "confirmed": [confirmed]})
    >>> for one in (("a", 1, False), ("b", 1, False), ("a", -1, False), ("b", 0, True)):
    ...     current.apply(change(*one))
    >>> current.table.to_pylist()
    [{'match_id': 'b', 'confirmed': True}]
    """

    def __init__(self) -> None:
        self._table: pa.Table | None = None
        #: Whether it is said which matches are certain; all changes are told then.
        self._confirms = False

    def __len__(self) -> int:
        return 0 if self._table is None else int(self._table.num_rows)

    @property
    def table(self) -> pa.Table:
        """The rows of the matches that are there, in the order in which they came."""
        if self._table is None:
            raise DataError("nobody knows the columns yet", hint="apply what a stream gave first")
        return self._table

    def apply(self, changes: pa.Table) -> None:
        """Take what a stream gave: its pushes, in their order.

        Parameters
        ----------
        changes
            The rows of one push, or of several in their order.

        Raises
        ------
        DataError
            The columns are not those of a stream that takes matches back, or one goes that never
            came.
        """
        an_instance(changes, pa.Table, "what a stream gave", hint="write apply(stream.push(rows))")
        check_changes(changes.column_names)
        current = self._table
        if current is None:
            self._confirms = says_certain(changes.schema)
            current = changes.slice(0, 0).drop_columns([DIFF])
        diffs = changes.column(DIFF).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(diffs)) + 1).tolist(), len(diffs)]
        for low, high in itertools.pairwise(bounds):
            if low == high:
                continue
            rows = changes.slice(low, high - low).drop_columns([DIFF])
            match int(diffs[low]):
                case 1:
                    current = pa.concat_tables([self._without_others(current, rows), rows])
                case 0:
                    current = self._confirmed(current, rows)
                case _:
                    current = current.filter(pc.invert(self._are_named(current, rows)))
        self._table = current.combine_chunks()

    def drop_confirmed(self) -> pa.Table:
        """Return the rows of the matches that nothing takes back any more, and forget them."""
        table = self.table
        if not self._confirms:
            raise DataError(
                f"the rows have no column '{CONFIRMED}' that says what is certain",
                hint="only a query with op.Speculative says what is certain",
            )
        sure = table.column(CONFIRMED)
        self._table = table.filter(pc.invert(sure))
        return table.filter(sure)

    def _without_others(self, current: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the rows of matches that stay where others come.

        Where all changes are told, a match that is there already does not come.
        """
        known = pc.is_in(rows.column(MATCH), current.column(MATCH).combine_chunks())
        if not pc.any(known).as_py():
            return current
        if self._confirms:
            again = rows.column(MATCH).filter(known)[0]
            raise DataError(f"the match {again} came already", hint=_WHOLE)
        names = pc.unique(rows.column(MATCH))
        return current.filter(pc.invert(pc.is_in(current.column(MATCH), names)))

    def _are_named(self, current: pa.Table, rows: pa.Table) -> pa.ChunkedArray:
        """Say which rows are those of the matches of others.

        Where all changes are told, matches that nobody knows are refused.
        """
        names = pc.unique(rows.column(MATCH))
        if self._confirms:
            known = pc.is_in(names, current.column(MATCH).combine_chunks())
            unknown = names.filter(pc.invert(known))
            if len(unknown):
                raise DataError(
                    f"the match {unknown[0]} is changed, but it never came", hint=_WHOLE
                )
        return pc.is_in(current.column(MATCH), names)

    def _confirmed(self, current: pa.Table, rows: pa.Table) -> pa.Table:
        sure = pc.or_(current.column(CONFIRMED), self._are_named(current, rows))
        place = current.column_names.index(CONFIRMED)
        return current.set_column(place, current.schema.field(place), sure)


def check_changes(columns: Sequence[str]) -> None:
    """Refuse rows whose columns do not say what becomes of which match."""
    for name in (MATCH, DIFF):
        if name not in columns:
            raise DataError(
                f"the rows have no column '{name}', so nobody knows which matches are there",
                detail=f"they have {', '.join(columns)}",
                hint="take what a query with op.Speculative gives, with emit('changes') or"
                " emit('latest'), or one with late='correct' and emit('latest')",
            )


def says_certain(changes: pa.Schema) -> bool:
    """Say whether a column says which matches are certain; before `diff` it is a value of theirs.

    >>> flag, diff = pa.field("confirmed", pa.bool_()), pa.field("diff", pa.int64())
    >>> says_certain(pa.schema([diff, flag])), says_certain(pa.schema([flag, diff]))
    (True, False)
    """
    behind = changes.names[changes.names.index(DIFF) + 1 :]
    return CONFIRMED in behind and pa.types.is_boolean(changes.field(CONFIRMED).type)
