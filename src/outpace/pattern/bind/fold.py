"""Constant folding: what does not depend on any row is computed when the query is bound.

Guarantees the value that evaluating later would give. A part that fails when it is computed is left
as it is, because AND, OR and CASE may never evaluate it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from outpace.pattern.bound import Apply, BoundExpression, Constant
from outpace.pattern.functions import function_of
from outpace.pattern.functions.function import Signature


def fold(node: BoundExpression) -> BoundExpression:
    """Compute what is constant now, and drop what cannot matter.

    Examples
    --------
    >>> from outpace.pattern.bound import MatchOrdinal
    >>> fold(Apply(pa.bool_(), "or", (Constant(pa.bool_(), True), MatchOrdinal(pa.bool_())))).value
    True
    """
    if not isinstance(node, Apply):
        return node
    if node.function in ("and", "or"):
        return _fold_logic(node)
    if node.function == "case":
        return _fold_case(node)
    if not all(isinstance(argument, Constant) for argument in node.arguments):
        return node
    return _fold_call(node)


def _fold_call(node: Apply) -> BoundExpression:
    function = function_of(node)
    given = [argument.value for argument in node.arguments if isinstance(argument, Constant)]
    if function.strict and None in given:
        return Constant(node.type, None)
    signature = Signature(tuple(argument.type for argument in node.arguments), node.type)
    try:
        compute = function.python(signature)
        if function.lazy:
            value = compute(*(lambda _, value=value: value for value in given))(None)
        else:
            value = compute(*given)
    except Exception:
        return node
    # Arrays and maps stay calls, so that bound nodes can be keys.
    return node if isinstance(value, list | dict) else Constant(node.type, value)


def _fold_logic(node: Apply) -> BoundExpression:
    decisive = node.function == "or"
    kept: list[BoundExpression] = []
    for argument in node.arguments:
        if isinstance(argument, Constant) and argument.value is decisive:
            return Constant(pa.bool_(), decisive)
        if not (isinstance(argument, Constant) and argument.value is (not decisive)):
            kept.append(argument)
    if not kept:
        return Constant(pa.bool_(), not decisive)
    if all(isinstance(argument, Constant) for argument in kept):
        return Constant(pa.bool_(), None)
    return kept[0] if len(kept) == 1 else replace(node, arguments=tuple(kept))


def _fold_case(node: Apply) -> BoundExpression:
    count = len(node.arguments)
    kept: list[BoundExpression] = []
    otherwise = node.arguments[-1] if count % 2 else Constant(node.type, None)
    for position in range(0, count - 1, 2):
        condition, outcome = node.arguments[position : position + 2]
        if not isinstance(condition, Constant):
            kept += (condition, outcome)
        elif condition.value:
            otherwise = outcome
            break
    if not kept:
        return otherwise
    return replace(node, arguments=(*kept, otherwise))
