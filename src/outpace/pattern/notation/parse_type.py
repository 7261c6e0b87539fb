"""SQL type names, as in CAST, read into Arrow types and written back.

All scalar types that Spark has, and arrays, maps and structs of them. Names are those of the
standard, of Spark, Trino and DuckDB; a timestamp without a precision counts microseconds.
"""

from __future__ import annotations

import pyarrow as pa

from outpace.pattern.notation.lexer import SourceText, TokenCursor, TokenKind
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.size import MOST_NESTED

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "REAL": pa.float32(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "INTERVAL": pa.duration("us"),
}
_CHARACTERS = frozenset({"VARCHAR", "CHAR", "CHARACTER"})
_DECIMALS = frozenset({"DECIMAL", "NUMERIC", "DEC"})
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "VARBINARY",
    pa.date32(): "DATE",
    pa.duration("us"): "INTERVAL",
}

#: The first words of types, which may stand in front of a string as a typed literal.
TYPE_WORDS = frozenset(_PLAIN) | _CHARACTERS | _DECIMALS | {"TIMESTAMP"}


def parse_type(text: str, *, where: str = "type") -> pa.DataType:
    """Read the name of an SQL type.

    Examples
    --------
    >>> parse_type("decimal(10, 2)")
    Decimal128Type(decimal128(10, 2))
    >>> parse_type("array(timestamp(3) with time zone)")
    ListType(list<item: timestamp[ms, tz=UTC]>)
    >>> parse_type("struct<bid: double, ask: double>") == parse_type("row(bid double, ask double)")
    True
    """
    cursor = TokenCursor(SourceText(text, where))
    kind = read_type(cursor)
    cursor.expect_end()
    return kind


def read_type(cursor: TokenCursor, level: int = 0) -> pa.DataType:
    """Read a type from a cursor."""
    if level > MOST_NESTED:
        raise cursor.error(f"types are nested deeper than {MOST_NESTED} levels")
    kind = _element_type(cursor, level)
    while cursor.accept("[", "]"):
        kind = pa.list_(kind)
    return kind


def _element_type(cursor: TokenCursor, level: int) -> pa.DataType:
    token = cursor.token
    if token.kind is not TokenKind.WORD:
        raise cursor.unexpected("a type")
    cursor.advance()
    word = token.key
    if word in _CHARACTERS:
        cursor.accept("VARYING")
        if cursor.accept("("):
            _number(cursor, 1, 2**31 - 1)
            cursor.expect(")")
        return pa.string()
    if word in _DECIMALS:
        return _decimal(cursor)
    if word == "TIMESTAMP":
        return _timestamp(cursor)
    if word == "DOUBLE":
        cursor.accept("PRECISION")
    if word == "ARRAY":
        close = _open(cursor)
        item = read_type(cursor, level + 1)
        cursor.expect(close)
        return pa.list_(item)
    if word == "MAP":
        close = _open(cursor)
        key = read_type(cursor, level + 1)
        cursor.expect(",")
        item = read_type(cursor, level + 1)
        cursor.expect(close)
        return pa.map_(key, item)
    if word in ("ROW", "STRUCT"):
        return _struct(cursor, level)
    if word not in _PLAIN:
        raise cursor.error(
            f"'{token.value}' is no known type",
            token.span,
            hint="write BIGINT, DOUBLE, VARCHAR, BOOLEAN, DECIMAL(p, s), DATE or TIMESTAMP",
        )
    return _PLAIN[word]


def _open(cursor: TokenCursor) -> str:
    if cursor.accept("<"):
        return ">"
    cursor.expect("(")
    return ")"


def _decimal(cursor: TokenCursor) -> pa.DataType:
    precision, scale = 38, 0
    if cursor.accept("("):
        precision = _number(cursor, 1, 38)
        if cursor.accept(","):
            scale = _number(cursor, 0, precision)
        cursor.expect(")")
    return pa.decimal128(precision, scale)


def _timestamp(cursor: TokenCursor) -> pa.DataType:
    unit = "us"
    if cursor.accept("("):
        digits = _number(cursor, 0, 9)
        unit = next(name for most, name in _UNITS.items() if digits <= most)
        cursor.expect(")")
    if cursor.accept("WITH", "TIME", "ZONE") or cursor.accept("WITH", "LOCAL", "TIME", "ZONE"):
        return pa.timestamp(unit, "UTC")
    cursor.accept("WITHOUT", "TIME", "ZONE")
    return pa.timestamp(unit)


def _struct(cursor: TokenCursor, level: int) -> pa.DataType:
    close = _open(cursor)
    members: list[pa.Field] = []
    while True:
        name = cursor.expect_name("the name of a field").value
        cursor.accept(":")
        members.append(pa.field(name, read_type(cursor, level + 1)))
        if not cursor.accept(","):
            break
    cursor.expect(close)
    return pa.struct(members)


def _number(cursor: TokenCursor, least: int, most: int) -> int:
    token = cursor.token
    whole = token.kind is TokenKind.NUMBER and token.value.isdigit() and len(token.value) < 12
    if not whole or not least <= int(token.value) <= most:
        raise cursor.unexpected(f"a whole number from {least} to {most}")
    return int(cursor.advance().value)


def print_type(kind: pa.DataType, dialect: str = "outpace") -> str:
    """Write an Arrow type as the SQL name that `parse_type` reads back.

    Examples
    --------
    >>> print_type(pa.list_(pa.decimal128(10, 2)))
    'ARRAY(DECIMAL(10, 2))'
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        digits = next(digits for digits, unit in _UNITS.items() if unit == kind.unit)
        return f"TIMESTAMP({digits})" + (" WITH TIME ZONE" if kind.tz else "")
    if pa.types.is_list(kind):
        return f"ARRAY({print_type(kind.value_type, dialect)})"
    if pa.types.is_map(kind):
        return f"MAP({print_type(kind.key_type, dialect)}, {print_type(kind.item_type, dialect)})"
    if pa.types.is_struct(kind):
        members = (kind.field(index) for index in range(kind.num_fields))
        named = (
            f"{print_name(member.name, dialect=dialect)} {print_type(member.type, dialect)}"
            for member in members
        )
        return f"ROW({', '.join(named)})"
    raise ValueError(f"the type {kind} has no SQL name here")
