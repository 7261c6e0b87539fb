"""Functions of arrays, maps and structs. Positions count from 1; a missing element is NULL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import DataError
from outpace.pattern import types, values
from outpace.pattern.bound import BoundExpression
from outpace.pattern.functions.aggregate import distinct_rows, hashable, key_type, order_key
from outpace.pattern.functions.function import (
    Function,
    MismatchError,
    Resolve,
    Signature,
    ValueFunction,
    fixed,
    require,
    returns,
    unify,
)
from outpace.pattern.functions.text import with_constant
from outpace.pattern.types import type_name


def _array_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = unify(given) if given else pa.null()
    return Signature((kind,) * len(given), pa.list_(kind))


def _collection(argument: BoundExpression) -> pa.DataType:
    return argument.type if pa.types.is_map(argument.type) else require(argument, "array", 0)


def _element_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = _collection(given[0])
    if pa.types.is_map(kind):
        return Signature((kind, _sought(given[1], kind.key_type)), kind.item_type)
    return Signature((kind, require(given[1], "integer", 1)), kind.value_type)


def _sought(argument: BoundExpression, kind: pa.DataType) -> pa.DataType:
    if types.common_type(argument.type, kind) is None:
        raise MismatchError(f"expected {type_name(kind)}, found {type_name(argument.type)}", 1)
    return kind


def _element(collection: Any, key: Any) -> Any:
    if isinstance(collection, dict):
        return collection.get(key)
    if key == 0:
        raise DataError("the elements of an array count from 1, not 0")
    position = key - 1 if key > 0 else len(collection) + key
    return collection[position] if 0 <= position < len(collection) else None


def _contains_rule(given: Sequence[BoundExpression]) -> Signature:
    """Rule of contains: text in a text, or a value in an array."""
    if types.is_list(given[0].type):
        kind = given[0].type
        return Signature((kind, _sought(given[1], kind.value_type)), pa.bool_())
    return returns(pa.bool_(), "text")(given)


def _contains(collection: Any, sought: Any) -> bool | None:
    if isinstance(collection, str):
        return sought in collection
    if sought in collection:
        return True
    return None if None in collection else False


def _list_rule(result: str) -> Resolve:
    """Return the rule of a function of one array that gives the array's type or its elements'."""

    def resolve(given: Sequence[BoundExpression]) -> Signature:
        kind = require(given[0], "array", 0)
        if not types.is_ordered(kind.value_type):
            raise MismatchError(f"{type_name(kind.value_type)} has no order", 0)
        return Signature((kind,), kind if result == "array" else kind.value_type)

    return resolve


def _plain_list(given: Sequence[BoundExpression]) -> Signature:
    kind = require(given[0], "array", 0)
    return Signature((kind,), kind)


def _extreme(pick: Any) -> ValueFunction:
    def compute(collection: list[Any]) -> Any:
        if not collection or None in collection:
            return None
        return pick(collection, key=order_key)

    return compute


def _sorted(collection: list[Any]) -> list[Any]:
    """Sort with NULLs last."""
    known = sorted((item for item in collection if item is not None), key=order_key)
    return known + [None] * (len(collection) - len(known))


def _distinct(collection: list[Any]) -> list[Any]:
    return [row[0] for row in distinct_rows([(item,) for item in collection])]


def _join_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = require(given[0], "array", 0)
    if values.converter(kind.value_type, pa.string()) is None:
        raise MismatchError(f"{type_name(kind.value_type)} cannot be written as text", 0)
    rest = (require(argument, "text", i) for i, argument in enumerate(given[1:], 1))
    return Signature((kind, *rest), pa.string())


def _join(signature: Signature) -> ValueFunction:
    written = values.converter(signature.arguments[0].value_type, pa.string())
    assert written is not None

    def compute(collection: list[Any], separator: str, missing: str | None = None) -> str:
        parts = (missing if item is None else written(item) for item in collection)
        return values.joined_text(separator, [part for part in parts if part is not None])

    return compute


def _map_rule(given: Sequence[BoundExpression]) -> Signature:
    if not given:
        return Signature((), pa.map_(pa.string(), pa.null()))
    if len(given) == 1:
        raise MismatchError("expected an array of keys and one of values")
    keys, items = (require(argument, "array", i) for i, argument in enumerate(given))
    return Signature((keys, items), pa.map_(key_type(keys.value_type, 0), items.value_type))


def _map(keys: list[Any] | None = None, items: list[Any] | None = None) -> dict[Any, Any]:
    given, held = keys or [], items or []
    if len(given) != len(held):
        raise DataError("a map needs as many values as keys")
    if None in given:
        raise DataError("a map cannot have NULL as a key")
    if len({hashable(key) for key in given}) != len(given):
        raise DataError("a map cannot have the same key twice")
    return dict(zip(given, held, strict=True))


def _map_part(part: str) -> Resolve:
    def resolve(given: Sequence[BoundExpression]) -> Signature:
        kind = require(given[0], "map", 0)
        return Signature((kind,), pa.list_(kind.key_type if part == "keys" else kind.item_type))

    return resolve


def _size_rule(given: Sequence[BoundExpression]) -> Signature:
    return Signature((_collection(given[0]),), pa.int64())


def _field_rule(given: Sequence[BoundExpression]) -> Signature:
    raise MismatchError("write the field after a dot")


def _position_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = require(given[0], "array", 0)
    return Signature((kind, _sought(given[1], kind.value_type)), pa.int64())


def _slice_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = require(given[0], "array", 0)
    return Signature((kind, pa.int64(), pa.int64()), kind)


def _slice(collection: list[Any], start: int, length: int) -> list[Any]:
    if start == 0 or length < 0:
        raise DataError("a slice of an array starts at 1 and has no negative length")
    first = start - 1 if start > 0 else len(collection) + start
    return collection[first : first + length] if first >= 0 else []


def _reverse_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = given[0].type if types.is_list(given[0].type) else require(given[0], "text", 0)
    return Signature((kind,), kind)


def _sum_rule(given: Sequence[BoundExpression]) -> Signature:
    kind = require(given[0], "array", 0)
    if not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        raise MismatchError(f"expected an array of numbers, found {type_name(kind)}", 0)
    return Signature((kind,), pa.int64() if types.is_integer(kind.value_type) else pa.float64())


def _array_sum(signature: Signature) -> ValueFunction:
    def compute(collection: list[Any]) -> Any:
        total = sum(item for item in collection if item is not None)
        if types.is_integer(signature.result):
            return values.check_integer(total, signature.result)
        return float(total)

    return compute


COLLECTIONS: tuple[Function, ...] = (
    Function("array", 0, None, _array_rule, fixed(lambda *items: list(items)),
             "an array of the arguments", "cardinality(array(1, 2)) = 2", ("list_value",),
             strict=False),
    Function("element_at", 2, 2, _element_rule, fixed(_element),
             "an element, counted from 1 or from the end, or the value of a key, as `x[i]`",
             "element_at(array['a', 'b'], 2) = 'b'", ("list_extract",)),
    Function("field", 2, 2, _field_rule, fixed(lambda item, name: item[name]),
             "a field of a struct, written `x.field`", ""),
    Function("contains", 2, 2, _contains_rule, fixed(_contains),
             "whether an array has an element, or a text a part", "contains(array[1, 2], 2)",
             ("array_contains", "list_contains"), arrow=with_constant(pc.match_substring)),
    Function("cardinality", 1, 1, _size_rule, fixed(len),
             "how many elements", "cardinality(array[1, 2]) = 2",
             ("size", "array_length", "array_size")),
    Function("array_max", 1, 1, _list_rule("item"), fixed(_extreme(max)),
             "the largest; NULL if any is", "array_max(array[1, 3]) = 3", ("list_max",)),
    Function("array_min", 1, 1, _list_rule("item"), fixed(_extreme(min)),
             "the smallest; NULL if any is", "array_min(array[1, 3]) = 1", ("list_min",)),
    Function("array_sort", 1, 1, _list_rule("array"), fixed(_sorted),
             "in order, NULLs last", "array_sort(array[3, 1])[1] = 1",
             ("list_sort", "sort_array")),
    Function("array_distinct", 1, 1, _plain_list, fixed(_distinct),
             "each element once", "cardinality(array_distinct(array[1, 2, 1])) = 2",
             ("list_distinct",)),
    Function("array_sum", 1, 1, _sum_rule, _array_sum,
             "of what is not NULL", "array_sum(array[1, 2, null]) = 3", ("list_sum",)),
    Function("array_position", 2, 2, _position_rule,
             fixed(lambda given, sought: given.index(sought) + 1 if sought in given else 0),
             "where an element is, 0 if not found", "array_position(array['a', 'b'], 'b') = 2"),
    Function("reverse", 1, 1, _reverse_rule, fixed(lambda given: given[::-1]),
             "an array or text backwards", "reverse('abc') = 'cba'"),
    Function("slice", 3, 3, _slice_rule, fixed(_slice),
             "the part from a position, of a length", "slice(array[1, 2, 3], 2, 2)[1] = 2"),
    Function("array_join", 2, 3, _join_rule, _join,
             "one text with a separator; NULLs left out, or as a third argument says",
             "array_join(array[1, 2], '-') = '1-2'", ("array_to_string",), lengthens=True),
    Function("map", 0, 2, _map_rule, fixed(_map),
             "from an array of keys and one of values", "map(array['a'], array[1])['a'] = 1",
             ("map_from_arrays",)),
    Function("map_keys", 1, 1, _map_part("keys"), fixed(list),
             "an array of the keys", "map_keys(map(array['a'], array[1]))[1] = 'a'"),
    Function("map_values", 1, 1, _map_part("values"), fixed(lambda mapping: [*mapping.values()]),
             "an array of the values", "map_values(map(array['a'], array[1]))[1] = 1"),
)  # fmt: skip
