"""Functions of text. Positions and lengths count characters from 1; 0 means "not found".

Case mapping is character by character, so a text keeps its length. Regular expressions are RE2's,
by way of Arrow: a search takes time in proportion to the text, whatever the expression. Results
are bounded: a text that would be longer than `MOST_CHARACTERS` is refused before it is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression, Constant
from outpace.pattern.functions.signature import (
    Function,
    MismatchError,
    Resolve,
    Signature,
    fixed,
    require,
    returns,
)
from outpace.pattern.values import MOST_CHARACTERS, check_length, joined_text

#: The longest regular expression.
MOST_SOUGHT = 10_000

#: How many steps a search may take: the parts of the expression times the characters of the text.
MOST_STEPS = 20_000_000

#: The most parts of an expression that is searched in a whole column at once: row by row, a search
#: that takes long can be stopped.
MOST_PARTS_IN_COLUMNS = 1_000

#: So many characters to trim are looked through one by one.
_FEW_CHARACTERS = 32

#: The most pairs of characters that are compared: levenshtein_distance looks at all of them.
MOST_PAIRS = 1_000_000


def _takes(result: pa.DataType, *kinds: str) -> Resolve:
    def resolve(given: Sequence[BoundExpression]) -> Signature:
        wanted = tuple(
            require(argument, kind, index)
            for index, (argument, kind) in enumerate(zip(given, kinds, strict=False))
        )
        return Signature(wanted, result)

    return resolve


def _upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    return "".join(u if len(u := c.upper()) == 1 else c for c in text)


def _lower(text: str) -> str:
    if text.isascii():
        return text.lower()
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
        if len(characters) > _FEW_CHARACTERS:
            # Python would look through all of them for each character of the text.
            unwanted = frozenset(characters)
            kept = [place for place, c in enumerate(text) if c not in unwanted]
            if not kept:
                return ""
            first = 0 if side == "right" else kept[0]
            return text[first:] if side == "left" else text[first : kept[-1] + 1]
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
    check_length(len(text) * max(0, count))
    return text * max(0, count)


def _replace(text: str, old: str, new: str = "") -> str:
    if len(new) > len(old):
        check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


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
    # Half of a surrogate pair has a code, but is no character that a text can hold.
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise DataError(f"{code} is no character")
    return chr(code)


def _code(text: str) -> int:
    if not text:
        raise DataError("an empty text has no first character")
    return ord(text[0])


@lru_cache(maxsize=256)
def named_groups(pattern: str) -> tuple[str, int]:
    r"""Return a regular expression with named groups, g0 for the whole, and the last one's number.

    Arrow gives parts of a text only by the names of groups.

    Examples
    --------
    >>> named_groups(r"(a|[(])(?:b)\(")
    ('(?P<g0>(?P<g1>a|[(])(?:b)\\()', 1)
    """
    if len(pattern) > MOST_SOUGHT:
        raise DataError(f"a regular expression has at most {MOST_SOUGHT} characters")
    try:
        pc.match_substring_regex(pa.scalar(""), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as problem:
        reason = str(problem).removeprefix("Invalid regular expression: ")
        raise DataError(
            f"{values.excerpt(pattern)} is no regular expression: {reason}"
        ) from problem
    count = 0

    def name(found: re.Match[str]) -> str:
        nonlocal count
        if found["group"] is None:
            return found[0]
        count += 1
        return f"(?P<g{count}>"

    return f"(?P<g0>{_PARTS.sub(name, pattern)})", count


#: What a parenthesis may stand in without a meaning (a class, a quotation, after a backslash), and
#: those that begin a group which is counted.
_PARTS = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|(?P<group>\((?:\?P?<\w+>|(?!\?)))",
    re.DOTALL,
)


@lru_cache(maxsize=256)
def pattern_parts(pattern: str) -> int:
    r"""Return how many parts a regular expression has with its repetitions written out.

    Examples
    --------
    >>> pattern_parts("ab{3}"), pattern_parts("(ab{3}){10}"), pattern_parts(r"[a-z]\{9}")
    (4, 40, 4)
    """
    # In each group that is open: its parts, and those of what a repetition would repeat.
    groups = [(0, 0)]
    for found in _ITEMS.finditer(pattern):
        if found[0] == "(":
            groups.append((0, 0))
            continue
        count, last = groups.pop()
        if found["least"] is not None:
            times = max(int(found["least"]), int(found["most"] or 0), 1)
            groups.append((count + last * (times - 1), last * times))
            continue
        # A class of Unicode has many ranges.
        size = 8 if found[0] in (r"\p", r"\P") else len(found[0]) if found["quoted"] else 1
        if found[0] == ")" and groups:
            size = max(count, 1)
            count, _ = groups.pop()
        groups.append((count + size, size))
    return sum(count for count, _ in groups)


_ITEMS = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|\Z))|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"
    r"|\{(?P<least>\d{1,9})(?:,(?P<most>\d{0,9}))?\}|.",
    re.DOTALL,
)


def search_steps(length: int, pattern: str) -> int:
    """Return how many steps a search in a text of some length may take."""
    return length * pattern_parts(pattern)


def replacement_steps(length: int, pattern: str) -> int:
    """Return how many steps a replacement may take: after each part the rest is searched anew."""
    return length * length // 8 * pattern_parts(pattern)


def _check_steps(steps: int, length: int) -> None:
    if steps > MOST_STEPS:
        raise DataError(
            f"a text of {length} characters is too long for this regular expression",
            detail=f"the search may take {steps} steps, the most is {MOST_STEPS}",
            hint="take a part of the text, or smaller repetitions",
        )


def _regular(result: pa.DataType, *kinds: str) -> Resolve:
    """Return a rule that refuses a broken constant pattern at once."""
    takes = _takes(result, *kinds)

    def resolve(given: Sequence[BoundExpression]) -> Signature:
        signature = takes(given)
        pattern = given[1]
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                named_groups(pattern.value)
            except DataError as problem:
                hint = "regular expressions are RE2's: nothing looks ahead or back, nor refers back"
                raise MismatchError(problem.message, 1, hint) from problem
        return signature

    return resolve


def _found(text: str, pattern: str) -> bool:
    named_groups(pattern)
    _check_steps(search_steps(len(text), pattern), len(text))
    return bool(pc.match_substring_regex(pa.scalar(text), pattern).as_py())


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    named, last = named_groups(pattern)
    if not 0 <= group <= last:
        raise DataError(f"{values.excerpt(pattern)} has no group {group}")
    _check_steps(search_steps(len(text), pattern), len(text))
    found = pc.extract_regex(pa.scalar(text), named).as_py()
    return None if found is None else found[f"g{group}"]


def _replaced(text: str, pattern: str, replacement: str = "") -> str:
    named_groups(pattern)
    _check_steps(replacement_steps(len(text), pattern), len(text))
    if replaced_length(len(text), len(text) + 1, replacement) > MOST_CHARACTERS:
        count = pc.count_substring_regex(pa.scalar(text), pattern).as_py()
        check_length(replaced_length(len(text), count, replacement))
    try:
        written = replacement_template(replacement)
        return str(pc.replace_substring_regex(pa.scalar(text), pattern, written).as_py())
    except pa.ArrowInvalid as problem:
        shown = f"{values.excerpt(replacement)} does not fit {values.excerpt(pattern)}"
        raise DataError(f"{shown}: {problem}") from problem


def replacement_template(replacement: str) -> str:
    """Return what stands for found parts as RE2 has it: `$1` names a group, a backslash nothing."""
    return re.sub(r"\$(\d)", r"\\\1", replacement.replace("\\", "\\\\"))


def replaced_length(length: int, count: int, replacement: str) -> int:
    """Return a length that a text cannot exceed after `count` of its parts are replaced."""
    return length + count * len(replacement) + length * replacement.count("$")


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
    return joined_text(separator, [part for part in flat if part is not None])


def _hamming(left: str, right: str) -> int:
    if len(left) != len(right):
        raise DataError("hamming_distance needs two texts of the same length")
    return sum(a != b for a, b in zip(left, right, strict=True))


def _levenshtein(left: str, right: str) -> int:
    if len(left) * len(right) > MOST_PAIRS:
        raise DataError("levenshtein_distance of texts this long is not supported")
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
    Function("replace", 2, 3, _TEXT, fixed(_replace)),
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
        fixed(_found),
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
