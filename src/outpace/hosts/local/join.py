"""Joins in process: of tables, and of streams that are fed piece by piece."""

from __future__ import annotations

import os

import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.joined import join_tables, rows_of_side
from outpace.engine.state import State, reading
from outpace.errors import BindError, DataError, StateError, UnsupportedError
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.hosts.local.stream import StreamMatcher
from outpace.pattern.argument import listed, shown
from outpace.pattern.bind.join import bind_join
from outpace.pattern.join import SIDES, Join


@fitting("shorten within")
def join_data(left: TableLike, right: TableLike, join: Join) -> pa.Table:
    """Join two tables, as `outpace.join` says."""
    sides = to_arrow(left), to_arrow(right)
    return join_tables(bind_join(join, *(side.schema for side in sides)), *sides)


class JoinStream(StreamMatcher):
    """A join that is fed piece by piece; see `outpace.open`.

    Each push brings rows of one side, which its `source` names. The rows of the result are pushed
    into the stream of a pattern as they are.

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

    def __init__(self, join: Join, schema: object) -> None:
        sides = listed(schema) or ()
        if len(sides) != len(SIDES) or not all(isinstance(each, pa.Schema) for each in sides):
            raise DataError(
                "a join needs the schemas of its left and its right side",
                hint="write op.open(join, schema=(left.schema, right.schema))",
            )
        self._join = bind_join(join, *(to_arrow(each.empty_table()).schema for each in sides))
        super().__init__(self._join.query, sources=SIDES)
        self.bind(self._join.schema)

    def record(self, path: str | os.PathLike[str]) -> None:
        """Refuse: a recording has one query, and a join is none that it could name."""
        raise UnsupportedError("a join is not recorded", hint="record the stream of the pattern")

    def _rows(self, data: TableLike, source: str | None) -> pa.Table:
        self._check_source(source)
        assert source is not None
        own = self._join.schemas[SIDES.index(source)]
        return rows_of_side(self._join, source, to_arrow(data, None, own))

    def _check_source(self, source: str | None) -> None:
        hint = 'write push(rows, "left") or "right"'
        if source is None:
            raise DataError("the side of the rows is missing", hint=hint)
        if not isinstance(source, str) or source not in SIDES:
            raise DataError(f"there is no side {shown(source)}", hint=hint)

    def state(self) -> bytes:
        """Return everything that is kept between pushes, as bytes for `resume_query`."""
        sides = [schema.empty_table() for schema in self._join.schemas]
        return State({"join": True}, sides, {"stream": State.decode(super().state())}).encode()

    def restore(self, state: bytes) -> None:
        """Go on from bytes that `state` returned; if they are refused, as before."""
        saved = State.decode(state)
        if _sides(saved) != self._join.schemas:
            raise StateError("the saved state belongs to a join of other columns")
        stream = saved.part("stream")
        with reading():
            if stream.tables[0].schema != self._join.schema:
                raise _another_join()
        with self._all_or_nothing():
            self._restore(stream)


def resume_join(join: Join, state: bytes) -> JoinStream:
    """Go on from saved state, as `outpace.resume` says."""
    sides = _sides(State.decode(state))
    try:
        stream = JoinStream(join, sides)
    except BindError as error:
        raise _another_join(error.message) from error
    stream.restore(state)
    return stream


def _sides(saved: State) -> tuple[pa.Schema, ...]:
    """Return the schemas of the sides that a state was saved with."""
    if saved.numbers.get("join") is not True:
        raise StateError(
            "the saved state belongs to no join",
            hint="resume it with the query that it was saved from",
        )
    return tuple(table.schema for table in saved.tables)


def _another_join(detail: str | None = None) -> StateError:
    return StateError(
        "the saved state belongs to another join",
        detail=detail,
        hint="resume it with the join that it was saved from, or start from the input",
    )
