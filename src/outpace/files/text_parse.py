"""Blocks of CSV or JSON lines as rows with types, and what is wrong with those that are not.

A row is a line: values with line breaks in them are refused, never cut in two. Every value is
checked against the type of its column. The way to an error is slow and exact: the block's first bad
line is searched for, then what is wrong with it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from outpace.pattern.types import type_name

#: What to try where a value does not have the type of its column.
TYPES_HINT: Final = 'name the types: --schema "ts bigint, price double"'

_SHOWN_MAX: Final = 80
#: A hint names so many columns.
_NAMED_MAX: Final = 6
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_CONVERSION: Final = re.compile(r"In CSV column #(\d+): .*?(?:invalid value '(.*)')?$", re.DOTALL)
_WIDTH: Final = re.compile(r"Expected (\d+) columns, got (\d+)")


class TextFormat(Enum):
    """How the rows of a text file are written."""

    CSV = "CSV"
    JSON = "JSON lines"


class LineBreakError(Exception):
    """The rows of a block are not its lines."""


_NULL: Final = re.compile(rb"\s*+null")
_NULL_LINE: Final = re.compile(rb"\n\s*+null")

#: What parsing a block can raise.
PARSE_ERRORS: Final = (pa.ArrowException, UnicodeError, LineBreakError)

Parse = Callable[[bytes], pa.Table]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a line.

    Parameters
    ----------
    index, line
        Which line of the block it is, counted from 0, and how it begins.
    message, column, hint
        What is wrong, in which column where that is known, and what to try.
    """

    index: int
    line: str
    message: str
    column: str | None = None
    hint: str | None = None


def parser(format: TextFormat, schema: pa.Schema, names: Sequence[str], delimiter: str) -> Parse:
    r"""Return what turns a block into the rows of a schema.

    Parameters
    ----------
    format, delimiter
        How rows and values are written.
    schema
        The columns to read.
    names
        All columns that a line of CSV has, in their order.

    Examples
    --------
    >>> schema = pa.schema([("price", pa.float64())])
    >>> parser(TextFormat.CSV, schema, ["ts", "price"], ",")(b"1,2.5\n2,3\n").to_pylist()
    [{'price': 2.5}, {'price': 3.0}]
    """
    if format is TextFormat.CSV:
        return partial(_parse_csv, schema, tuple(names), delimiter)
    return partial(_parse_json, schema)


def fault_of(
    format: TextFormat, schema: pa.Schema, names: Sequence[str], delimiter: str, block: bytes
) -> Fault:
    r"""Return what is wrong with the first bad line of a block that does not parse.

    Examples
    --------
    >>> schema = pa.schema([("price", pa.float64())])
    >>> fault = fault_of(TextFormat.CSV, schema, ["ts", "price"], ",", b"1,2.5\n2,low\n")
    >>> fault.index, fault.column, fault.message
    (1, 'price', "'low' is not of type double")
    """
    parse = parser(format, schema, names, delimiter)
    lines = block.split(b"\n")
    index = first_bad(lines, parse)
    line = lines[index].rstrip(b"\r")
    if format is TextFormat.CSV:
        message, column, hint = _csv_fault(parse, line, names, schema)
    else:
        message, column, hint = _json_fault(line, schema)
    return Fault(index, shown_line(line), message, column, hint)


def does_parse(parse: Parse, block: bytes) -> bool:
    """Say whether a block parses."""
    try:
        parse(block)
    except PARSE_ERRORS:
        return False
    return True


def _parse_csv(schema: pa.Schema, names: Sequence[str], delimiter: str, block: bytes) -> pa.Table:
    if not block.strip():
        return schema.empty_table()
    table = arrow_csv.read_csv(
        # Arrow takes an empty value at the end of a text for a quoted one.
        io.BytesIO(block if block.endswith(b"\n") else block + b"\n"),
        read_options=arrow_csv.ReadOptions(
            column_names=list(names), use_threads=False, block_size=len(block) + 1
        ),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
        convert_options=arrow_csv.ConvertOptions(
            column_types=schema,
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    _check_rows(table, block)
    return table


def _parse_json(schema: pa.Schema, block: bytes) -> pa.Table:
    if not block.strip():
        return schema.empty_table()
    check_objects(block)
    # Arrow takes the bytes of a JSON string as they are.
    pa.array([block], pa.large_binary()).cast(pa.large_string())
    fields = [pa.field(f.name, json_type(f.type)) for f in schema]
    # Rows without any column would not be counted.
    read = pa.schema(fields or [pa.field("", pa.null())])
    table = arrow_json.read_json(
        io.BytesIO(block),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(len(block), 1)),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=read, unexpected_field_behavior="ignore"
        ),
    )
    _check_rows(table, block)
    return table.select(schema.names).cast(schema)


def check_objects(block: bytes) -> None:
    r"""Refuse a line that is null: Arrow takes it for a row, and ends the process at a first one.

    Examples
    --------
    >>> check_objects(b'{"x": null}')
    >>> check_objects(b'{"x": 1} \n null')
    Traceback (most recent call last):
    ...
    outpace.files.text_parse.LineBreakError
    """
    if _NULL.match(block) or _NULL_LINE.search(block):
        raise LineBreakError


def json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow reads a column as; dates and times are cast from text."""
    return pa.string() if pa.types.is_date(kind) or pa.types.is_time(kind) else kind


def _check_rows(table: pa.Table, block: bytes) -> None:
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table.num_rows != lines:
        lines = sum(1 for line in block.split(b"\n") if line.strip(b"\r"))
        if table.num_rows != lines:
            raise LineBreakError


def first_bad(lines: Sequence[bytes], parse: Parse) -> int:
    """Return which line makes its block fail: the last of the shortest beginning that does."""
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if does_parse(parse, b"\n".join(lines[:middle])):
            low = middle + 1
        else:
            high = middle
    return low - 1


def _csv_fault(
    parse: Parse, line: bytes, names: Sequence[str], schema: pa.Schema
) -> tuple[str, str | None, str | None]:
    """Return what is wrong with a line of CSV, in which column, and what to try."""
    try:
        parse(line)
    except PARSE_ERRORS as error:
        message = str(error)
    else:
        message = ""
    width = _WIDTH.search(message)
    if width and not _open_quote(line):
        return f"expected {width[1]} values, found {width[2]}", None, None
    found = _CONVERSION.search(message)
    if found is None:
        hint = "a row of CSV must be one line"
        return "a quoted value does not end on its line", None, hint
    name = names[int(found[1])]
    if found[2] is None:
        return "the value is not UTF-8 text", name, "the file must be UTF-8"
    return f"{_quoted(found[2])} is not {_kind(schema, name)}", name, _hint(schema, name, found[2])


def _json_fault(line: bytes, schema: pa.Schema) -> tuple[str, str | None, str | None]:
    """Return what is wrong with a JSON line, in which column, and what to try."""
    message = _not_an_object(line)
    if message:
        return message, None, "every line is one JSON object"
    values: dict[str, Any] = json.loads(line)
    for field in schema:
        if not does_parse(partial(_parse_json, pa.schema([field])), line):
            value = json.dumps(values.get(field.name), ensure_ascii=False)
            fault = f"{_quoted(value)} is not {_kind(schema, field.name)}"
            return fault, field.name, _hint(schema, field.name, value)
    return "the line is not one JSON object", None, None


def _not_an_object(line: bytes) -> str | None:
    if not line.strip():
        return None
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} of the line is not UTF-8"
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        return f"the line is not JSON: {message} at character {error.pos + 1}"
    except ValueError:
        return "a number of the line has too many digits"
    except RecursionError:
        return "the line is nested too deeply"
    if isinstance(value, dict):
        return None
    return "the line is not a JSON object"


def _kind(schema: pa.Schema, name: str) -> str:
    return f"of type {type_name(schema.field(name).type)}"


def _hint(schema: pa.Schema, name: str, value: str) -> str:
    """Return how to name types with which a value fits into its column."""
    if len(schema) > _NAMED_MAX or not all(other.isidentifier() for other in schema.names):
        return TYPES_HINT
    kinds = {field.name: type_name(field.type) for field in schema}
    kinds[name] = "double" if _NUMBER.fullmatch(value) else "string"
    columns = ", ".join(f"{column} {kind}" for column, kind in kinds.items())
    return f'name the types: --schema "{columns}"'


def _open_quote(line: bytes) -> bool:
    return line.count(b'"') % 2 == 1


def _quoted(value: str) -> str:
    return f"'{value if len(value) <= _SHOWN_MAX else value[:_SHOWN_MAX] + '…'}'"


def shown_line(line: bytes) -> str:
    """Return a line as an error shows it: its beginning."""
    text = line[: 4 * _SHOWN_MAX].decode("utf-8", "replace").strip()
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
