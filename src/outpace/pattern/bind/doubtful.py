"""What is allowed in a query and looks like a mistake, one line each."""

from __future__ import annotations

from outpace.pattern.bound import Apply, BoundExpression, Predicate, Read, walk
from outpace.pattern.functions.condition import COMPARISONS


def useless_order(partition_by: tuple[str, ...], order_by: tuple[str, ...]) -> tuple[str, ...]:
    """Say of which columns no partition has two values, so that they order nothing."""
    return tuple(
        f"order by {name}: all rows of a partition have the same value there"
        for name in order_by
        if name in partition_by
    )


def self_comparisons(predicates: tuple[Predicate, ...]) -> tuple[str, ...]:
    """Say which conditions compare a value with itself."""
    found = []
    for predicate in predicates:
        for node in walk(predicate.expression) if predicate.expression is not None else ():
            if _compares_with_itself(node):
                found.append(
                    f"define {predicate.name}: a value is compared with itself; the row being "
                    f"looked at is already the last of its variable, so the one before it is "
                    f"LAST({predicate.name}.column, 1)"
                )
    return tuple(dict.fromkeys(found))


def _compares_with_itself(node: BoundExpression) -> bool:
    if not isinstance(node, Apply) or node.function not in COMPARISONS:
        return False
    left, right = node.arguments
    return left == right and any(isinstance(part, Read) for part in walk(left))
