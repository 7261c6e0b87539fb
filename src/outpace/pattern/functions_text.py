"""Functions of text. Positions and lengths count characters from 1; 0 means "not found".

Case mapping is character by character, so a text keeps its length. Regular expressions are
Python's, which for the usual constructs are those of Java and RE2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from outpace.errors import DataError
from outpace.pattern import types
from outpace.pattern.bound import BoundExpression, Constant
from outpace.pattern.functions_signature import (
    Function,
    MismatchError,
    Resolve,
    Signature,
    fixed,
    require,
    returns,
)

#: A result longer than this is refused: no text column of real data comes near it.
MOST_CHARACTERS = 10_000_000


def _takes(result: pa.DataType, *kinds: str) -> Resolve:
    def resolve(given: Sequence[BoundExpression]) -> Signature:
        wanted = tuple(
            require(argument, kind, index)
            for index, (argument, kind) in enumerate(zip(given, kinds, strict=False))
        )
        return Signature(wanted, result)

    return resolve


def _upper(text: str) -> str:
    return "".join(u if len(u := c.upper()) == 1 else c for c in text)


def _lower(text: str) -> str:
    return "".join(u if len(u := c.lower()) == 1 else c for c in text)


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Count a negative start from the end; a start outside of the text gives nothing."""
    if start == 0 or abs(start) > len(text):
        return ""
    first = start - 1 if start > 0 else len(text) + start
    if length is None:
        return text[first:]
    return text[first : first + max(0, length)]


def _trimmed(side: str) -> Any:
    def trim(text: str, characters: str = " ") -> str:
        if side == "left":
            return text.lstrip(characters)
        return text.rstrip(characters) if side == "right" else text.strip(characters)

    return trim


def _padded(left: bool) -> Any:
    def pad(text: str, length: int, filling: str = " ") -> str:
        if not 0 <= length <= MOST_CHARACTERS:
            raise DataError(f"a text cannot be padded to {length} characters")
        if not filling:
            raise DataError("a text cannot be padded with nothing")
        missing = length - len(text)
        if missing <= 0:
            return text[:length]
        added = (filling * (missing // len(filling) + 1))[:missing]
        return added + text if left else text + added

    return pad


def _repeat(text: str, count: int) -> str:
    if len(text) * max(0, count) > MOST_CHARACTERS:
        raise DataError(f"a text cannot be repeated {count} times")
    return text * max(0, count)


def _split(text: str, separator: str) -> list[str]:
    if not separator:
        raise DataError("a text cannot be split at nothing")
    return text.split(separator)


def _split_part(text: str, separator: str, number: int) -> str | None:
    if number < 1:
        raise DataError(f"the parts of a text count from 1, not {number}")
    parts = _split(text, separator)
    return parts[number - 1] if number <= len(parts) else None


def _character(code: int) -> str:
    try:
        return chr(code)
    except (ValueError, OverflowError) as problem:
        raise DataError(f"{code} is no character") from problem


def _code(text: str) -> int:
    if not text:
        raise DataError("an empty text has no first character")
    return ord(text[0])


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise DataError(f"'{text}' is no regular expression: {problem}") from problem


def _regular(result: pa.DataType, *kinds: str) -> Resolve:
    """Return a rule that refuses a broken constant pattern at once."""
    takes = _takes(result, *kinds)

    def resolve(given: Sequence[BoundExpression]) -> Signature:
        signature = takes(given)
        pattern = given[1]
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                _pattern(pattern.value)
            except DataError as problem:
                raise MismatchError(problem.message, 1) from problem
        return signature

    return resolve


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    expression = _pattern(pattern)
    if not 0 <= group <= expression.groups:
        raise DataError(f"'{pattern}' has no group {group}")
    found = expression.search(text)
    return None if found is None else found.group(group)


def _replaced(text: str, pattern: str, replacement: str = "") -> str:
    # `$1` names a group in SQL; a backslash has no meaning of its own.
    template = re.sub(r"\$(\d+)", r"\\g<\1>", replacement.replace("\\", "\\\\"))
    try:
        return _pattern(pattern).sub(template, text)
    except (re.error, IndexError) as problem:
        raise DataError(f"'{replacement}' does not fit '{pattern}': {problem}") from problem


def _concat_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of concat_ws: a separator, then texts or arrays of texts."""
    kinds = [require(given[0], "text", 0)]
    for position, argument in enumerate(given[1:], 1):
        if types.is_list(argument.type) and (
            types.is_string(argument.type.value_type) or pa.types.is_null(argument.type.value_type)
        ):
            kinds.append(argument.type)
        else:
            kinds.append(require(argument, "text", position))
    return Signature(tuple(kinds), pa.string())


def _concat_ws(separator: str | None, *parts: Any) -> str | None:
    if separator is None:
        return None
    flat: list[str | None] = []
    for part in parts:
        if isinstance(part, list):
            flat += part
        else:
            flat.append(part)
    return separator.join(part for part in flat if part is not None)


def _hamming(left: str, right: str) -> int:
    if len(left) != len(right):
        raise DataError("hamming_distance needs two texts of the same length")
    return sum(a != b for a, b in zip(left, right, strict=True))


def _levenshtein(left: str, right: str) -> int:
    before = list(range(len(right) + 1))
    for row, a in enumerate(left, 1):
        current = [row]
        for column, b in enumerate(right, 1):
            current.append(min(before[column] + 1, current[-1] + 1, before[column - 1] + (a != b)))
        before = current
    return before[-1]


_TEXT = returns(pa.string(), "text")
_TEST = returns(pa.bool_(), "text")
_COUNT = returns(pa.int64(), "text")

TEXTS: tuple[Function, ...] = (
    Function("lower", 1, 1, _TEXT, fixed(_lower), ("lcase",)),
    Function("upper", 1, 1, _TEXT, fixed(_upper), ("ucase",)),
    Function("length", 1, 1, _COUNT, fixed(len), ("char_length", "character_length", "len")),
    Function(
        "substr",
        2,
        3,
        _takes(pa.string(), "text", "integer", "integer"),
        fixed(_substring),
        ("substring",),
    ),
    Function("trim", 1, 2, _TEXT, fixed(_trimmed("both")), ("btrim",)),
    Function("ltrim", 1, 2, _TEXT, fixed(_trimmed("left"))),
    Function("rtrim", 1, 2, _TEXT, fixed(_trimmed("right"))),
    Function("replace", 2, 3, _TEXT, fixed(lambda text, old, new="": text.replace(old, new))),
    Function("concat_ws", 1, None, _concat_rule, fixed(_concat_ws), strict=False),
    Function(
        "starts_with",
        2,
        2,
        _TEST,
        fixed(lambda text, part: text.startswith(part)),
        ("startswith",),
    ),
    Function(
        "ends_with",
        2,
        2,
        _TEST,
        fixed(lambda text, part: text.endswith(part)),
        ("endswith", "suffix"),
    ),
    Function(
        "strpos",
        2,
        2,
        _COUNT,
        fixed(lambda text, part: text.find(part) + 1),
        ("instr", "charindex"),
    ),
    Function("position", 2, 2, _COUNT, fixed(lambda part, text: text.find(part) + 1), ("locate",)),
    Function("lpad", 2, 3, _takes(pa.string(), "text", "integer", "text"), fixed(_padded(True))),
    Function("rpad", 2, 3, _takes(pa.string(), "text", "integer", "text"), fixed(_padded(False))),
    Function(
        "left",
        2,
        2,
        _takes(pa.string(), "text", "integer"),
        fixed(lambda text, count: text[: max(0, count)]),
    ),
    Function(
        "right",
        2,
        2,
        _takes(pa.string(), "text", "integer"),
        fixed(lambda text, count: text[-count:] if count > 0 else ""),
    ),
    Function("repeat", 2, 2, _takes(pa.string(), "text", "integer"), fixed(_repeat)),
    Function(
        "split",
        2,
        2,
        returns(pa.list_(pa.string()), "text"),
        fixed(_split),
        ("string_split", "str_split"),
    ),
    Function(
        "split_part", 3, 3, _takes(pa.string(), "text", "text", "integer"), fixed(_split_part)
    ),
    Function("chr", 1, 1, returns(pa.string(), "integer"), fixed(_character), ("char",)),
    Function("codepoint", 1, 1, _COUNT, fixed(_code), ("ascii", "unicode", "ord")),
    Function(
        "translate",
        3,
        3,
        _TEXT,
        fixed(
            lambda text, old, new: text.translate(
                {
                    ord(c): new[i] if i < len(new) else None
                    for i, c in reversed(list(enumerate(old)))
                }
            )
        ),
    ),
    Function(
        "regexp_like",
        2,
        2,
        _regular(pa.bool_(), "text", "text"),
        fixed(lambda text, pattern: _pattern(pattern).search(text) is not None),
        ("rlike", "regexp_matches", "regexp"),
    ),
    Function(
        "regexp_extract",
        2,
        3,
        _regular(pa.string(), "text", "text", "integer"),
        fixed(_extracted),
    ),
    Function(
        "regexp_replace", 2, 3, _regular(pa.string(), "text", "text", "text"), fixed(_replaced)
    ),
    Function("levenshtein_distance", 2, 2, _COUNT, fixed(_levenshtein), ("levenshtein",)),
    Function("hamming_distance", 2, 2, _COUNT, fixed(_hamming), ("hamming",)),
)
