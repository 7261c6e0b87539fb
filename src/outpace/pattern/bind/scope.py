"""What the names in an expression mean: columns and variables, and errors about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from outpace.errors import BindError, UnsupportedError, did_you_mean
from outpace.pattern import expression as ex

#: Where columns stand, and no expressions.
_CLAUSES_OF_COLUMNS = ("partition by", "order by")


@dataclass(frozen=True)
class Scope:
    """What the names in an expression can mean.

    Parameters
    ----------
    schema
        The input's columns.
    variables
        Variables and SUBSETs, and the numbers that they stand for.
    labels
        The names of the variables by number.
    unlabelled
        Variables that are only negated or only an `until`: no row of a match has their label.
    where
        The clause, for messages.
    defines
        The number of the variable whose DEFINE this is; None in a measure.
    final
        Whether everything sees the whole match (ONE ROW PER MATCH).
    """

    schema: pa.Schema
    variables: Mapping[str, frozenset[int]]
    labels: tuple[str, ...]
    unlabelled: frozenset[str]
    where: str
    defines: int | None = None
    final: bool = False


def resolve_column(
    name: str,
    schema: pa.Schema,
    where: str,
    node: ex.Expression | None = None,
    text: str | None = None,
) -> str:
    """Return a column's name as the schema spells it: exact, else regardless of case.

    Examples
    --------
    >>> resolve_column("PRICE", pa.schema([("price", pa.float64())]), "order by")
    'price'
    """
    exact = [known for known in schema.names if known == name]
    matches = exact or [known for known in schema.names if known.lower() == name.lower()]
    if len(matches) == 1:
        return str(matches[0])
    if len(set(matches)) == 1:
        message = f"column '{name}' is ambiguous: the input has {len(matches)} of that name"
        raise bind_error(message, where, node, text, hint="give each a name of its own with AS")
    if matches:
        listed = " and ".join(f"'{match}'" for match in matches)
        raise bind_error(
            f"column '{name}' could be {listed}", where, node, text, hint="write it exactly"
        )
    hint = did_you_mean(name, schema.names)
    if hint is None and name.lower() in ("none", "nan", "nil"):
        hint = "a missing value is NULL: write IS NULL or IS NOT NULL"
    elif _in_double_quotes(node, text):
        quoted = name.replace("'", "''")
        hint = f"text goes into single quotes: '{quoted}'" + (f"; {hint}" if hint else "")
    elif where in _CLAUSES_OF_COLUMNS and not name.isidentifier():
        hint = "add a column for what is computed; in op.sql the database computes it"
    if not schema.names:
        hint = "the rows have no columns at all"
    hint = hint or "the columns are " + ", ".join(schema.names)
    raise bind_error(f"unknown column '{name}'", where, node, text, hint=hint)


def _in_double_quotes(node: ex.Expression | None, text: str | None) -> bool:
    if node is None or node.span is None:
        return False
    whole = node.span.text if text is None else text
    return whole is not None and whole[node.span.start : node.span.start + 1] == '"'


def bind_error(
    message: str,
    where: str,
    node: ex.Expression | None,
    text: str | None,
    *,
    hint: str | None = None,
    unsupported: bool = False,
) -> BindError:
    """Return the error that an expression is refused with, at its place."""
    kind = UnsupportedError if unsupported else BindError
    span = None if node is None else node.span
    return kind(message, span=span, text=text, where=where, hint=hint)
