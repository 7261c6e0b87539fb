"""Functions of text. Positions and lengths count characters from 1; 0 means "not found".

Case mapping is character by character, so a text keeps its length. Results are bounded: a text that
would be longer than `MOST_CHARACTERS` is refused before it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import Apply, BoundExpression
from outpace.pattern.functions.function import (
    ArrowKernel,
    ArrowOperand,
    Function,
    Signature,
    called,
    constants,
    fixed,
    infix,
    longest,
    of_text,
    require,
    returns,
    unify,
    unsuitable,
)
from outpace.pattern.values import MOST_CHARACTERS, can_be_kept, check_length, joined_text

#: So many characters to trim are looked through one by one.
_FEW_CHARACTERS = 32

#: The most pairs of characters that are compared: levenshtein_distance looks at all of them.
MOST_PAIRS = 1_000_000


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


def _concatenation(arguments: Sequence[BoundExpression]) -> Signature:
    if any(types.is_list(argument.type) for argument in arguments):
        kind = unify(arguments)
        return Signature((kind,) * len(arguments), kind)
    for position, argument in enumerate(arguments):
        if types.is_binary(argument.type):
            return Signature((pa.binary(),) * len(arguments), pa.binary())
        require(argument, "text", position)
    return Signature((pa.string(),) * len(arguments), pa.string())


def _joined(*given: Any) -> Any:
    values.check_length(sum(map(len, given)))
    total = given[0]
    for part in given[1:]:
        total = total + part
    return total


def _joined_columns(node: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
    if not types.is_string(node.type):
        raise unsuitable("only text")
    parts = [operand.cast(node.type) for operand in operands]
    length = sum(map(longest, parts))
    most = length * max(len(part) for part in parts if isinstance(part, pa.Array))
    if not can_be_kept(length, most):
        raise unsuitable("long texts")
    return pc.binary_join_element_wise(*parts, pa.scalar("", node.type))


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


def with_constant(function: Callable[..., pa.Array]) -> ArrowKernel:
    """Return the kernel of a text function whose second argument Arrow takes as an option."""

    def kernel(_: Apply, operands: Sequence[ArrowOperand]) -> pa.Array:
        (sought,) = constants(operands[1:])
        if not types.is_string(operands[0].type):
            raise unsuitable("only text")
        return function(operands[0], sought)

    return kernel


def _translate(text: str, old: str, new: str) -> str:
    signs = reversed(list(enumerate(old)))
    return text.translate({ord(c): new[i] if i < len(new) else None for i, c in signs})


_TEXT = returns(pa.string(), "text")
_TEST = returns(pa.bool_(), "text")
_COUNT = returns(pa.int64(), "text")
_COUNTED = returns(pa.string(), "text", "integer")
_PADDED = returns(pa.string(), "text", "integer", "text")

TEXTS: tuple[Function, ...] = (
    Function("lower", 1, 1, _TEXT, fixed(_lower), "in small letters", "lower('Ab') = 'ab'",
             ("lcase",), safe=True),
    Function("upper", 1, 1, _TEXT, fixed(_upper), "in capitals", "upper('Ab') = 'AB'",
             ("ucase",), safe=True),
    Function("length", 1, 1, _COUNT, fixed(len), "in characters", "length('äb') = 2",
             ("char_length", "character_length", "len"),
             arrow=lambda node, operands: pc.utf8_length(*operands).cast(node.type),
             catalyst=of_text(called("length")), safe=True),
    Function("substr", 2, 3, _COUNTED, fixed(_substring),
             "the part from a position, counted from 1 or from the end, maybe of a length",
             "substr('abcd', 2, 2) = 'bc'", ("substring",)),
    Function("trim", 1, 2, _TEXT, fixed(_trimmed("both")),
             "without spaces (or given characters) at both ends", "trim(' a ') = 'a'", ("btrim",)),
    Function("ltrim", 1, 2, _TEXT, fixed(_trimmed("left")), "the same at the left",
             "ltrim('xxa', 'x') = 'a'"),
    Function("rtrim", 1, 2, _TEXT, fixed(_trimmed("right")), "the same at the right",
             "rtrim('a ') = 'a'"),
    Function("replace", 2, 3, _TEXT, fixed(_replace), "a part replaced everywhere, or dropped",
             "replace('abc', 'b', 'x') = 'axc'", lengthens=True),
    Function("||", 1, None, _concatenation, fixed(_joined),
             "all arguments joined: text, arrays, binary", "concat('a', 'b') = 'ab'", ("concat",),
             arrow=_joined_columns, catalyst=of_text(infix("||")), lengthens=True),
    Function("concat_ws", 1, None, _concat_rule, fixed(_concat_ws),
             "joined with a separator; NULLs left out", "concat_ws('-', 'a', null, 'b') = 'a-b'",
             strict=False, lengthens=True),
    Function("starts_with", 2, 2, _TEST, fixed(str.startswith),
             "whether it begins with a text", "starts_with('abc', 'ab')", ("startswith",),
             arrow=with_constant(pc.starts_with)),
    Function("ends_with", 2, 2, _TEST, fixed(str.endswith),
             "whether it ends with a text", "ends_with('abc', 'bc')", ("endswith", "suffix"),
             arrow=with_constant(pc.ends_with)),
    Function("strpos", 2, 2, _COUNT, fixed(lambda text, part: text.find(part) + 1),
             "where a part begins, 0 if not found", "strpos('abc', 'c') = 3",
             ("instr", "charindex")),
    Function("position", 2, 2, _COUNT, fixed(lambda part, text: text.find(part) + 1),
             "the same, the part first", "position('c', 'abc') = 3", ("locate",)),
    Function("lpad", 2, 3, _PADDED, fixed(_padded(True)),
             "filled up at the left, or cut, to a length", "lpad('7', 3, '0') = '007'",
             lengthens=True),
    Function("rpad", 2, 3, _PADDED, fixed(_padded(False)),
             "filled up at the right, or cut, to a length", "rpad('7', 3, '.') = '7..'",
             lengthens=True),
    Function("left", 2, 2, _COUNTED, fixed(lambda text, count: text[: max(0, count)]),
             "the first n characters", "left('abc', 2) = 'ab'"),
    Function("right", 2, 2, _COUNTED, fixed(lambda text, count: text[-count:] if count > 0 else ""),
             "the last n characters", "right('abc', 2) = 'bc'"),
    Function("repeat", 2, 2, _COUNTED, fixed(_repeat), "n times", "repeat('ab', 2) = 'abab'",
             lengthens=True),
    Function("split", 2, 2, returns(pa.list_(pa.string()), "text"), fixed(_split),
             "an array of its parts", "split('a,b', ',') = array['a', 'b']",
             ("string_split", "str_split")),
    Function("split_part", 3, 3, returns(pa.string(), "text", "text", "integer"),
             fixed(_split_part), "the n-th part", "split_part('a,b', ',', 2) = 'b'"),
    Function("chr", 1, 1, returns(pa.string(), "integer"), fixed(_character),
             "the character of a code", "chr(65) = 'A'", ("char",)),
    Function("codepoint", 1, 1, _COUNT, fixed(_code),
             "the code of the first character", "codepoint('A') = 65", ("ascii", "unicode", "ord")),
    Function("translate", 3, 3, _TEXT, fixed(_translate),
             "characters replaced one by one, or dropped", "translate('abc', 'ac', 'x') = 'xb'"),
    Function("levenshtein_distance", 2, 2, _COUNT, fixed(_levenshtein),
             "how many characters to change, add or drop between two texts",
             "levenshtein_distance('kitten', 'sitting') = 3", ("levenshtein",)),
    Function("hamming_distance", 2, 2, _COUNT, fixed(_hamming),
             "how many characters differ of two texts of one length",
             "hamming_distance('abc', 'axc') = 1", ("hamming",)),
)  # fmt: skip
