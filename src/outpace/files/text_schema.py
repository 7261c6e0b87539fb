"""The types of columns, told from a block of CSV or JSON lines.

A column gets a type only where every value of the block has it. A column of CSV in which more than
half of the values are numbers or times, but not all, is refused with the first one that is not:
taken for text it would be compared as text, which nobody would notice.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from outpace.files.text_parse import (
    PARSE_ERRORS,
    TYPES_HINT,
    Fault,
    Parse,
    TextFormat,
    check_objects,
    does_parse,
    fault_of,
    first_bad,
    json_type,
    parser,
    shown_line,
)

#: Columns whose types are told may be nested so deeply.
_MOST_NESTED: Final = 64
_JSON_STRING: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*+"')
#: What most values of a column may be, as a regular expression.
_KINDS: Final = {
    "numbers": r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$",
    "times": r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?$",
}
_CHANGED: Final = re.compile(r"Column\(/([^/)]*)")


def tell_schema(
    format: TextFormat, names: Sequence[str], delimiter: str, known: pa.Schema, block: bytes
) -> pa.Schema | Fault:
    r"""Return the columns of a block, or what is wrong with one of its lines.

    Parameters
    ----------
    format, delimiter
        How rows and values are written.
    names
        All columns that a line of CSV has, in their order.
    known
        The columns whose types need not be told.
    block
        Whole lines, without a header.

    Examples
    --------
    >>> known = pa.schema([("ts", pa.int32())])
    >>> schema = tell_schema(TextFormat.CSV, ["ts", "price"], ",", known, b"1,2.5\n2,\n")
    >>> schema.names, schema.types
    (['ts', 'price'], [DataType(int32), DataType(double)])
    >>> tell_schema(TextFormat.CSV, ["ts", "price"], ",", known, b"1,2\n2,low\n3,4\n").message
    "'low' is not one of the numbers that column price has otherwise"
    """
    is_csv = format is TextFormat.CSV
    infer: Parse = partial(_infer_json, known)
    if is_csv:
        new_names = [name for name in names if name not in known.names]
        if not new_names:
            return known
        infer = partial(_infer_csv, tuple(names), new_names, delimiter)
    elif (index := _deep_line(block)) is not None:
        line = block.split(b"\n")[index]
        return Fault(index, shown_line(line), "the line is nested too deeply")
    try:
        table = infer(block)
        if not is_csv:
            table = _with_times_as_text(table, known, block)
    except PARSE_ERRORS:
        untyped = pa.schema([(name, pa.binary()) for name in names])
        for schema in (untyped, known):
            if not does_parse(parser(format, schema, names, delimiter), block):
                return fault_of(format, schema, names, delimiter, block)
        return _changing(block, infer)
    for name in table.column_names if is_csv else ():
        fault = _mixed(name, table.column(name), block)
        if fault is not None:
            return fault
    types = {f.name: _spark_type(table.column(f.name)) for f in table.schema}
    types |= {f.name: f.type for f in known}
    order = dict.fromkeys([*(names if is_csv else ()), *types])
    return pa.schema([(name, types[name]) for name in order])


def _deep_line(block: bytes) -> int | None:
    """Return which line of JSON is nested too deeply for its types to be told."""
    plain = _JSON_STRING.sub(b"", block)
    codes = np.frombuffer(plain, np.uint8)
    opened, closed = (np.isin(codes, np.frombuffer(marks, np.uint8)) for marks in (b"[{", b"]}"))
    deep = np.cumsum(opened.astype(np.int64) - closed) > _MOST_NESTED
    return plain.count(b"\n", 0, int(deep.argmax())) if deep.any() else None


def _infer_csv(
    names: Sequence[str], new_names: Sequence[str], delimiter: str, block: bytes
) -> pa.Table:
    return arrow_csv.read_csv(
        io.BytesIO(block),
        read_options=arrow_csv.ReadOptions(
            column_names=list(names), use_threads=False, block_size=max(len(block), 1)
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=list(new_names), null_values=[""], strings_can_be_null=True
        ),
    )


def _infer_json(known: pa.Schema, block: bytes) -> pa.Table:
    explicit = pa.schema([pa.field(f.name, json_type(f.type)) for f in known])
    check_objects(block)
    return arrow_json.read_json(
        io.BytesIO(block),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(len(block), 1)),
        parse_options=arrow_json.ParseOptions(explicit_schema=explicit),
    )


def _with_times_as_text(table: pa.Table, known: pa.Schema, block: bytes) -> pa.Table:
    """Read the columns again that Arrow takes for times, whether they have a zone or not."""
    times = [f.name for f in table.schema if pa.types.is_timestamp(f.type)]
    new_names = [name for name in times if name not in known.names]
    if not new_names:
        return table
    return _infer_json(pa.schema([*known, *((name, pa.string()) for name in new_names)]), block)


def _changing(block: bytes, infer: Parse) -> Fault:
    """Return the fault of the line whose value has another type than those before it."""
    lines = block.split(b"\n")
    index = first_bad(lines, infer)
    found = None
    try:
        infer(b"\n".join(lines[: index + 1]))
    except PARSE_ERRORS as error:
        found = _CHANGED.search(str(error))
    message = "the value is of another type than those of the lines before"
    return Fault(index, shown_line(lines[index]), message, found[1] if found else None, TYPES_HINT)


def _mixed(name: str, column: pa.ChunkedArray, block: bytes) -> Fault | None:
    """Return the fault of the first value that is not what most values of a column are."""
    if not pa.types.is_string(column.type):
        return None
    present = len(column) - column.null_count
    for kind, expression in _KINDS.items():
        fits = pc.match_substring_regex(column, expression)
        count = pc.sum(fits).as_py() or 0
        if count < present < 2 * count:
            row = pc.index(fits, value=False).as_py()
            lines = block.split(b"\n")
            index = [i for i, line in enumerate(lines) if line.strip(b"\r")][row]
            value = column[row].as_py()
            message = f"'{value}' is not one of the {kind} that column {name} has otherwise"
            hint = f'name the types: --schema "{name} string", or double, timestamp and so on'
            return Fault(index, shown_line(lines[index]), message, name, hint)
    return None


def _spark_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type that a column has on Spark."""
    if pa.types.is_string(column.type) and column.null_count < len(column):
        for zone in ("UTC", None):
            with suppress(pa.ArrowInvalid):
                # Text is a time where every value of the block is, all with a zone or none. One
                # value is asked first, as Arrow writes a message for each that is no time.
                pc.cast(column.drop_null().slice(0, 1), pa.timestamp("us", zone))
                pc.cast(column, pa.timestamp("us", zone))
                return pa.timestamp("us", zone)
    return _plain_type(column.type)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or pa.types.is_binary(kind):
        # Bytes that are not UTF-8 are refused, with their place, when they are read.
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain_type(f.type)) for f in kind])
    return kind
