"""Joins in process: of tables, and of streams that are fed piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.join_tables import join_tables, rows_of_side
from outpace.engine.match.contract import Matcher, Task
from outpace.engine.state import State, reading, require
from outpace.errors import DataError, StateError
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.stream import StreamMatcher
from outpace.pattern.argument import listed, shown
from outpace.pattern.bind.join import bind_join
from outpace.pattern.join import SIDES, Join
from outpace.pattern.notation.join_values import check_join, join_settings


@fitting("shorten within")
def join_data(left: TableLike, right: TableLike, join: Join) -> pa.Table:
    """Join two tables, as `outpace.join` says."""
    sides = to_arrow(left), to_arrow(right)
    return join_tables(bind_join(join, *(side.schema for side in sides)), *sides)


class JoinStream(StreamMatcher):
    """A join that is fed piece by piece; see `outpace.open`.

    Each push brings rows of one side, which its `source` names. The rows of the result are pushed
    into the stream of a pattern as they are.

    Parameters
    ----------
    join
        What is joined, and how.
    schema
        The columns of the left side and those of the right one.
    choose
        What picks a matcher.

    Examples
    --------
    >>> sides = [pa.schema({"id": pa.int64(), "ts": pa.int64(), name: pa.int64()}) for name in "ab"]
    >>> joined = JoinStream(Join(on="id", within=5, time="ts"), sides)
    >>> joined.push({"id": 7, "ts": 1, "a": 10}, "left").num_rows
    0
    >>> joined.push({"id": 7, "ts": 3, "b": 20}, "right").num_rows
    0
    >>> joined.heartbeat("left", 4).to_pylist()
    [{'id': 7, 'ts': 3, 'ts_left': 1, 'a': 10, 'ts_right': 3, 'b': 20}]
    """

    def __init__(
        self, join: Join, schema: object, choose: Callable[[Task], Matcher] | None = None
    ) -> None:
        sides = listed(schema) or ()
        if len(sides) != len(SIDES) or not all(isinstance(each, pa.Schema) for each in sides):
            raise DataError(
                "a join needs the schemas of its left and its right side",
                hint="write op.open(join, schema=(left.schema, right.schema))",
            )
        self._asked = join
        self._join = bind_join(join, *(to_arrow(each.empty_table()).schema for each in sides))
        super().__init__(self._join.query, sources=SIDES, choose=choose)
        self.bind(self._join.schema)

    @property
    def _recorded(self) -> Join:
        return self._asked

    @property
    def _has_state(self) -> bool:
        return True  # It tells the columns of both sides.

    def _rows(self, data: TableLike, source: str | None) -> pa.Table:
        self._check_source(source)
        assert source is not None
        own = self._join.schemas[SIDES.index(source)]
        return rows_of_side(self._join, source, to_arrow(data, None, own))

    _disorder_hint = 'write op.Join(..., disorder=op.KSlack("2 s"))'

    def _check_source(self, source: str | None) -> None:
        hint = 'write push(rows, "left") or "right"'
        if source is None:
            raise DataError("the side of the rows is missing", hint=hint)
        if not isinstance(source, str) or source not in SIDES:
            raise DataError(f"there is no side {shown(source)}", hint=hint)

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""
        sides = [schema.empty_table() for schema in self._join.schemas]
        stream = {"stream": State.decode(super().state())}
        return State({"join": join_settings(self._asked)}, sides, stream).encode()

    def _restore(self, saved: State) -> None:
        if sides_of(saved) != self._join.schemas:
            raise StateError("the saved state belongs to a join of other columns")
        check_join(self._asked, saved.numbers["join"])
        stream = saved.part("stream")
        with reading():
            require(stream.tables[0].schema == self._join.schema, "its rows have other columns")
        super()._restore(stream)


def resume_join(
    join: Join, state: bytes, choose: Callable[[Task], Matcher] | None = None
) -> JoinStream:
    """Go on from saved state, as `outpace.resume` says."""
    saved = State.decode(state)
    sides = sides_of(saved)
    check_join(join, saved.numbers["join"])
    with reading():
        stream = JoinStream(join, sides, choose)
    stream.restore(state)
    return stream


def sides_of(saved: State) -> tuple[pa.Schema, ...]:
    """Return the schemas of the sides that a state was saved with."""
    if "join" not in saved.numbers:
        raise StateError(
            "the saved state belongs to no join",
            hint="resume it with the query that it was saved from",
        )
    return tuple(table.schema for table in saved.tables)
