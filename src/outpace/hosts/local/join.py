"""Joining tables in process."""

from __future__ import annotations

import pyarrow as pa

from outpace.compiler.kernel import fitting
from outpace.engine.joined import join_tables
from outpace.hosts.local.frames import TableLike, to_arrow
from outpace.pattern.bind.join import bind_join
from outpace.pattern.join import Join


@fitting("shorten within")
def join_data(left: TableLike, right: TableLike, join: Join) -> pa.Table:
    """Join two tables, as `outpace.join` says."""
    sides = to_arrow(left), to_arrow(right)
    return join_tables(bind_join(join, *(side.schema for side in sides)), *sides)
