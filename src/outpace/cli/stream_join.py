"""A join of two inputs of `outpace stream`, as they are: one in Python, or a statement that is it.

Such a one runs in process, like a clause; any other statement runs on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from outpace.cli.run_input import TextOptions
from outpace.cli.run_query import SqlText
from outpace.cli.stream_feed import RowFeed, feed_of
from outpace.cli.stream_input import StreamInput
from outpace.errors import BindError, OutpaceError
from outpace.pattern.bind.join import bind_join
from outpace.pattern.disorder import Disorder, InOrder, Invalid, Late, Punctuation
from outpace.pattern.join import SIDES, Join
from outpace.statement.step import table_of


@dataclass(frozen=True)
class StreamJoin:
    """A join of two inputs.

    Parameters
    ----------
    asked
        The join.
    sides
        The inputs, the left one first.
    statement
        The statement that it stands in; None where it is one in Python.
    """

    asked: Join
    sides: tuple[StreamInput, StreamInput]
    statement: SqlText | None = None

    @property
    def join(self) -> Join:
        """The join, whose rows come batch by batch."""
        join = self.asked
        return join if join.disorder is not None else replace(join, disorder=InOrder())

    def feeds(self, columns: TextOptions) -> tuple[RowFeed, RowFeed] | str:
        """Return what reads the sides in process, or why they are read on Spark."""
        feeds = [feed_of(side, columns) for side in self.sides]
        for feed in feeds:
            if isinstance(feed, str):
                return feed
        left, right = (feed for feed in feeds if not isinstance(feed, str))
        if self.statement is None:
            return left, right
        with self._placed():
            tables = self.statement.statement().steps[0].joined
            assert tables is not None
            names = tables.right_names(left.schema.names, right.schema.names)
        return left, RenamedFeed(right, names)

    def output(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """Return the columns of both sides, which are those of the result."""
        with self._placed():
            return bind_join(self.join, left, right).schema

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Let errors say where in the statement what they are about stands."""
        try:
            yield
        except OutpaceError as error:
            if self.statement is None:
                raise
            statement = self.statement.statement()
            placed = statement.located(error, statement.steps[0])
            raise self.statement.located(placed) from error.__cause__


@dataclass
class RenamedFeed:
    """A source of events whose columns get other names."""

    feed: RowFeed
    names: Sequence[str]

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        fields = zip(self.feed.schema, self.names, strict=True)
        return pa.schema([field.with_name(name) for field, name in fields])

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""
        return self.feed.ended

    def freeze(self) -> None:
        """Take what is there now for all that there is."""
        self.feed.freeze()

    def take(self) -> pa.Table:
        """Return the events since the last call."""
        return self.feed.take().rename_columns(list(self.names))


def join_of(request: object, inputs: Sequence[StreamInput]) -> StreamJoin | None:
    """Return the join of two inputs that a request is; None where it is something else."""
    if isinstance(request, Join):
        return StreamJoin(request, sides_of(inputs))
    if not isinstance(request, SqlText):
        return None
    statement = request.statement()
    if len(statement.steps) != 1:
        return None
    (step,) = statement.steps
    rest = re.fullmatch(rf"SELECT \* FROM `?{step.table}`?", statement.outer.strip(), re.IGNORECASE)
    if step.joined is None or rest is None:
        return None
    named = {one.name.lower(): one for one in inputs}
    left, right = (named.get(table_of(source) or "") for source in step.sources)
    if left is None or right is None:
        return None
    return StreamJoin(step.joined.join, (left, right), request)


def sides_of(inputs: Sequence[StreamInput]) -> tuple[StreamInput, StreamInput]:
    """Return the left and the right input of a join in Python: by these names, or in order."""
    if len(inputs) != len(SIDES):
        raise BindError(
            f"a join reads two inputs, not {len(inputs)}", hint="--from LEFT --from RIGHT"
        )
    first, second = inputs
    return (second, first) if (second.name, first.name) == SIDES else (first, second)


def check_joined(join: Join) -> None:
    """Refuse a join whose rows would be put aside, where nobody could read them."""
    disorder = join.disorder
    if disorder is None:
        return
    check_told(disorder)
    if disorder.late is Late.SIDE or disorder.invalid is Invalid.QUARANTINE:
        kind = "late" if disorder.late is Late.SIDE else "invalid"
        raise BindError(
            f"the {kind} rows of a join have no place to go",
            hint='write LATE DROP and INVALID FAIL; late="drop" and invalid="fail" in Python',
        )


def check_told(disorder: Disorder) -> None:
    """Refuse to wait for somebody who tells the time: on the command line nobody does."""
    if isinstance(disorder, Punctuation):
        raise BindError(
            "nobody tells outpace stream that no earlier event comes",
            hint="let rows be heartbeats with --heartbeats COLUMN, or wait with --slack '2 s'",
        )
