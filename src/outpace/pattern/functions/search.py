"""Searches in text: LIKE and regular expressions.

Regular expressions are RE2's, by way of Arrow: a search takes time in proportion to the text,
whatever the expression. Patterns and searches are bounded, and refused before they take long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import values
from outpace.pattern.bound import Apply, BoundExpression, Constant
from outpace.pattern.functions.function import (
    ArrowOperand,
    Function,
    MismatchError,
    Resolve,
    Signature,
    constants,
    fixed,
    longest,
    of_text,
    returns,
    unsuitable,
)
from outpace.pattern.values import MOST_CHARACTERS, can_be_kept, check_length

#: The longest regular expression.
MOST_SOUGHT = 10_000

#: How many steps a search may take: the parts of the expression times the characters of the text.
MOST_STEPS = 20_000_000

#: The most parts of an expression that is searched in a whole column at once: row by row, a search
#: that takes long can be stopped.
MOST_PARTS_IN_COLUMNS = 1_000

#: The longest pattern of LIKE, and how many comparisons a piece with `_` may need.
MOST_LIKE = 10_000
_MOST_COMPARED = 100_000_000

#: A longer pattern of LIKE is matched row by row: RE2 has a state for each of its characters.
_MOST_IN_RE2 = 256

#: A piece of a LIKE pattern between two percent signs: its characters, None for any character.
Piece = tuple[str | None, ...]


@lru_cache(maxsize=256)
def like_pieces(pattern: str, escape: str | None = None) -> tuple[Piece, ...]:
    """Return what a LIKE pattern has between its percent signs: one piece more than there are.

    Examples
    --------
    >>> like_pieces("a_%b!%%", "!")
    (('a', None), ('b', '%'), ())
    """
    if escape is not None and len(escape) != 1:
        raise DataError("the escape of LIKE is a single character")
    if len(pattern) > MOST_LIKE:
        raise DataError(f"a pattern of LIKE has at most {MOST_LIKE} characters")
    pieces: list[list[str | None]] = [[]]
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            sign = next(signs, "")
            if sign not in ("%", "_", escape):
                raise DataError(
                    f"the escape character {escape!r} must be followed by '%', '_' or itself"
                )
            pieces[-1].append(sign)
        elif sign == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if sign == "_" else sign)
    return tuple(map(tuple, pieces))


def _like(text: str, pattern: str, escape: str | None = None) -> bool:
    """Find the pieces one after the other, each where it first fits: nothing is tried twice."""
    head, *middle = like_pieces(pattern, escape)
    if not middle:
        return len(text) == len(head) and _fits(head, text, 0)
    *middle, tail = middle
    position, end = len(head), len(text) - len(tail)
    if position > end or not _fits(head, text, 0) or not _fits(tail, text, end):
        return False
    for piece in middle:
        position = _after(piece, text, position, end)
        if position < 0:
            return False
    return True


def _fits(piece: Piece, text: str, position: int) -> bool:
    return all(sign is None or sign == text[position + i] for i, sign in enumerate(piece))


def _after(piece: Piece, text: str, position: int, end: int) -> int:
    """Return where a piece ends that is searched from a position on, or -1."""
    if None not in piece:
        start = text.find("".join(sign or "" for sign in piece), position, end)
        return start if start < 0 else start + len(piece)
    if len(piece) * (end - position) > _MOST_COMPARED:
        raise DataError("a text and a pattern this long cannot be compared by LIKE")
    found = _expression(piece).search(text, position, end)
    return -1 if found is None else found.end()


@lru_cache(maxsize=256)
def _expression(piece: Piece) -> re.Pattern[str]:
    """Return the regular expression of a piece; it has one length, so there is no way back."""
    return re.compile("".join("." if c is None else re.escape(c) for c in piece), re.DOTALL)


def _like_rule(arguments: Sequence[BoundExpression]) -> Signature:
    """Rule of LIKE, which refuses a broken constant pattern at once."""
    signature = returns(pa.bool_(), "text")(arguments)
    given = [part.value for part in arguments[1:] if isinstance(part, Constant)]
    if len(given) == len(arguments) - 1 and None not in given:
        try:
            like_pieces(*map(str, given))
        except DataError as problem:
            raise MismatchError(problem.message, 1) from problem
    return signature


def _like_column(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    column, given = operands[0], constants(operands[1:])
    pieces = like_pieces(*given)
    filled = [number for number, piece in enumerate(pieces) if piece]
    if len(filled) > 1 or any(None in piece for piece in pieces):
        return _like_several(column, pieces)
    text = "".join(sign or "" for piece in pieces for sign in piece)
    if len(pieces) == 1:
        return pc.equal(column, pa.scalar(text, column.type))
    if filled == [0]:
        return pc.starts_with(column, text)
    last = filled == [len(pieces) - 1]
    return pc.ends_with(column, text) if last else pc.match_substring(column, text)


def _like_several(column: ArrowOperand, pieces: tuple[Piece, ...]) -> pa.Array:
    if sum(map(len, pieces)) + len(pieces) > _MOST_IN_RE2:
        raise unsuitable("a long pattern")
    written = (
        "".join("." if sign is None else re.escape(sign) for sign in piece) for piece in pieces
    )
    return pc.match_substring_regex(column, f"^(?s:{'.*'.join(written)})$")


def _like_spelt(node: Apply, parts: Sequence[str]) -> str | None:
    # Spark's LIKE has a default escape character, the backslash; SQL's has none.
    if len(parts) != 2 or not isinstance(node.arguments[1], Constant):
        return None
    # Java's regular expressions try all ways of placing several pieces.
    if len([piece for piece in like_pieces(str(node.arguments[1].value)) if piece]) > 1:
        return None
    return f"({parts[0]} LIKE {parts[1]})"


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
    takes = returns(result, *kinds)

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


def _found_column(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    (pattern,) = constants(operands[1:])
    named_groups(pattern)
    _check_columns(search_steps(longest(operands[0]), pattern), pattern)
    return pc.match_substring_regex(operands[0], pattern)


def _extracted_column(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    pattern, group = (*constants(operands[1:]), 0)[:2]
    named, last = named_groups(pattern)
    if not 0 <= group <= last:
        raise unsuitable("no such group")
    _check_columns(search_steps(longest(operands[0]), pattern), pattern)
    return pc.struct_field(pc.extract_regex(operands[0], named), f"g{group}")


def _replaced_column(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    column = operands[0]
    pattern, replacement = (*constants(operands[1:]), "")[:2]
    length = longest(column)
    _check_columns(replacement_steps(length, pattern), pattern)
    # A text may have so many parts; the row evaluator counts them where that is too much.
    most = replaced_length(length, length + 1, replacement)
    if not can_be_kept(most, most * len(column)):
        raise unsuitable("long texts")
    return pc.replace_substring_regex(column, pattern, replacement_template(replacement))


def _check_columns(steps: int, pattern: str) -> None:
    if steps > MOST_STEPS or pattern_parts(pattern) > MOST_PARTS_IN_COLUMNS:
        raise unsuitable("a search that may take long")


SEARCHES: tuple[Function, ...] = (
    Function("like", 2, 3, _like_rule, fixed(_like),
             "whether it fits a pattern as a whole; `ESCAPE '!'` may follow", "'abc' like 'a_%'",
             arrow=_like_column, catalyst=of_text(_like_spelt), safe=True),
    Function("regexp_like", 2, 2, _regular(pa.bool_(), "text"), fixed(_found),
             "whether a part fits", "regexp_like('abc', '[b-d]+')",
             ("rlike", "regexp_matches", "regexp"), arrow=_found_column),
    Function("regexp_extract", 2, 3, _regular(pa.string(), "text", "text", "integer"),
             fixed(_extracted),
             "the part that fits, or its n-th group; empty where the group took no part",
             "regexp_extract('ab12', '([a-z]+)([0-9]+)', 2) = '12'", arrow=_extracted_column),
    Function("regexp_replace", 2, 3, _regular(pa.string(), "text"), fixed(_replaced),
             "parts that fit replaced; `$1` to `$9` are groups, `$0` is the part",
             "regexp_replace('a1b2', '([0-9])', '<$1>') = 'a<1>b<2>'",
             arrow=_replaced_column, lengthens=True),
)  # fmt: skip
