"""Stretches of time in units of a time column: microseconds, or those of integers."""

from __future__ import annotations

import datetime
from typing import Final

import pyarrow as pa

from outpace.errors import BindError
from outpace.pattern import types
from outpace.pattern.types import type_name

_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def in_units(
    span: datetime.timedelta | int,
    name: str,
    kind: pa.DataType,
    where: str,
    said: str = "{} is given",
) -> int:
    """Return a stretch of time in units of a column of integers or instants, or refuse it there.

    Examples
    --------
    >>> in_units(datetime.timedelta(seconds=2), "ts", pa.timestamp("ms"), "within")
    2000000
    """
    if types.is_integer(kind):
        if isinstance(span, datetime.timedelta):
            raise BindError(
                f"{said.format('a duration')}, but '{name}' holds integers",
                where=where,
                hint="give an integer in the units of the column, or order by a timestamp",
            )
        return span
    if not isinstance(span, datetime.timedelta):
        raise BindError(
            f"{said.format('an integer')}, but '{name}' is a {type_name(kind)}",
            where=where,
            hint=f"write a duration such as '{span} s'",
        )
    return span // _MICROSECOND
