"""Predicates as bits of byte columns: conditions on single rows, computed before these travel.

`with_bits` gives the same query with every condition that needs only its own row, also the part of
a larger condition that does, replaced by a look at a bit; `bit_columns` computes the bits. Columns
that only such conditions read need not travel any more, and neither do rows without any bit where
each variable has one and nothing else looks at them. The result is that of the query as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Booleans
from outpace.engine.match.codegen_layout import at_own_row, is_hoistable
from outpace.engine.match.contract import Block, Task
from outpace.engine.match.kernel_masks import BlockMasks
from outpace.engine.match.reach import reach_of
from outpace.engine.rows.partition import one_array
from outpace.pattern.bind.query import classify
from outpace.pattern.bind.window_kinds import BoundWindows, ByTime
from outpace.pattern.bound import (
    Apply,
    BoundExpression,
    BoundQuery,
    Constant,
    MatchOrdinal,
    Predicate,
    PredicateClass,
    Read,
    ReadPlace,
    walk,
)
from outpace.pattern.query import RowsPerMatch

#: The byte columns are named so, followed by their number.
BITS: Final = "__outpace_bits_"

_PER_COLUMN: Final = 8


@dataclass(frozen=True)
class BitTask:
    """A query that reads bits.

    Parameters
    ----------
    task
        The query; `bound.schema` has the columns of bits as well.
    predicates
        What each bit says of a row; bits of a column from the lowest, columns in order.
    drop_unused
        Whether a row without any bit can be left out.
    drop_following
        Whether it can where the row before it, in its partition, has none either.
    """

    task: Task
    predicates: tuple[Predicate, ...]
    drop_unused: bool
    drop_following: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that computing the bits reads."""
        return columns_read(self.predicates)

    def used(self, rows: pa.Table) -> Booleans:
        """Say which rows have any bit, so that a step may use them."""
        columns = {name: one_array(rows.column(name)) for name in self.reads}
        found = np.zeros(rows.num_rows, np.bool_)
        for bits in bit_columns(self.predicates, columns, rows.num_rows).values():
            found |= bits.to_numpy() != 0
        return found


def columns_read(predicates: Sequence[Predicate]) -> tuple[str, ...]:
    """Return the columns that predicates read."""
    trees = [p.expression for p in predicates if p.expression is not None]
    nodes = [node for tree in trees for node in walk(tree)]
    return tuple(dict.fromkeys(node.column for node in nodes if isinstance(node, Read)))


def with_bits(
    task: Task,
    computable: Callable[[BoundExpression], bool] = lambda _: True,
    unknown: frozenset[str] = frozenset(),
    *,
    follows: bool = False,
) -> BitTask:
    """Return the query with bits, or as it was where they would save neither column nor row.

    Parameters
    ----------
    task
        The query.
    computable
        Says of a condition whether it can be computed where the rows are; others stay as they are.
    unknown
        The columns whose values events may still get, as the time: conditions that read one stay,
        too.
    follows
        Whether it is of use that rows without a bit can be left out behind such a row.

    Examples
    --------
    >>> from outpace.engine.match.task import prepare
    >>> from outpace.pattern.query import Query
    >>> query = (Query("q").order_by("ts").pattern("A -> B").measures(n="COUNT(*)")
    ...          .define(A="kind = 'a'", B="kind = 'b' AND v > A.v"))
    >>> schema = pa.schema([("ts", pa.int64()), ("kind", pa.string()), ("v", pa.int64())])
    >>> bits = with_bits(prepare(query, schema))
    >>> bits.reads, bits.task.bound.columns, bits.drop_unused
    (('kind',), ('ts', '__outpace_bits_0', 'v'), True)
    """

    def settled(condition: BoundExpression) -> bool:
        reads = any(isinstance(node, Read) and node.column in unknown for node in walk(condition))
        return not reads and computable(condition)

    bound = task.bound
    bits: list[Predicate] = []
    predicates = [
        _with_bit(predicate, variable, bits, settled)
        for variable, predicate in enumerate(bound.predicates)
    ]
    fits = len(bits) == len(bound.predicates) and _sees_used(task)
    drop = fits and task.program.skips_unused
    following = fits and follows and task.program.needs_one_unused
    trees = [p.expression for p in predicates if p.expression is not None]
    trees += [measure.expression for measure in bound.measures]
    used = dict.fromkeys((*bound.partition_by, *bound.order_by))
    if bound.uncertainty is not None:
        used.update(dict.fromkeys(bound.uncertainty.columns))
    for tree in trees:
        used.update(dict.fromkeys(n.column for n in walk(tree) if isinstance(n, Read)))
    out = set(bound.output.names)
    saved = [name for name in bound.columns if name not in used and name not in out]
    if not bits or not (drop or following or saved):
        return BitTask(task, (), False)
    fields = [pa.field(name, pa.uint8()) for name in _names(len(bits))]
    changed = replace(
        bound,
        predicates=tuple(predicates),
        columns=tuple(used),
        schema=pa.schema([*bound.schema, *fields]),
    )
    return BitTask(replace(task, bound=changed), tuple(bits), drop, following)


def bit_columns(
    predicates: tuple[Predicate, ...], columns: Mapping[str, pa.Array], size: int
) -> dict[str, pa.Array]:
    """Compute the columns of bits for rows in any order.

    Examples
    --------
    >>> from outpace.pattern.bound import ReadPlace
    >>> x = Read(pa.int64(), "x", (), ReadPlace("last"))
    >>> large = Predicate("A", Apply(pa.bool_(), ">", (x, Constant(pa.int64(), 3))),
    ...                   PredicateClass.LOCAL)
    >>> bit_columns((large,), {"x": pa.array([1, 5])}, 2)["__outpace_bits_0"].to_pylist()
    [0, 1]
    """
    bounds = np.array([0, size], np.int64)
    nothing = np.zeros(0, np.int64)
    block = Block(columns, bounds, bounds[1:], nothing, nothing, nothing, ended=True)
    return {
        name: pa.array(BlockMasks(predicates[first : first + _PER_COLUMN])(block))
        for name, first in zip(
            _names(len(predicates)), range(0, len(predicates), _PER_COLUMN), strict=True
        )
    }


def counts_unused(bound: BoundQuery, windows: BoundWindows | None) -> bool:
    """Say whether rows that no step can use change which windows there are, or what is shown.

    Windows of time alone do not count rows. A match that several of them find comes out as the
    first of them finds it, by the numbers of events. These do not depend on the events of other
    keys as far as that goes: a window closes no later than an event behind its end. But they do on
    events that no step can use.
    """
    if windows is None:
        return False
    numbers = (isinstance(n, MatchOrdinal) for m in bound.measures for n in walk(m.expression))
    query = bound.query
    shown = query.numbered or (not query.duplicates and any(numbers))
    return shown or not isinstance(windows.kind, ByTime)


def _names(bits: int) -> list[str]:
    return [f"{BITS}{number}" for number in range(-(-bits // _PER_COLUMN))]


def _with_bit(
    predicate: Predicate,
    variable: int,
    bits: list[Predicate],
    computable: Callable[[BoundExpression], bool],
) -> Predicate:
    """Return a predicate that looks at a bit for its own part of it, and add the bit."""
    if predicate.expression is None or predicate.kind is PredicateClass.OFFSET:
        return predicate
    whole = predicate.expression
    conjunction = isinstance(whole, Apply) and whole.function == "and"
    parts = list(whole.arguments) if conjunction and isinstance(whole, Apply) else [whole]
    own, rest = [], []
    for part in parts:
        local = _at_own_row(part, variable, predicate.kind)
        if local is not None and computable(local):
            own.append(local)
        else:
            rest.append(part)
    if not own:
        return predicate
    bits.append(Predicate(predicate.name, _all_of(own), PredicateClass.LOCAL))
    kind = predicate.kind if rest else PredicateClass.LOCAL
    return replace(predicate, expression=_all_of([_bit_test(len(bits) - 1), *rest]), kind=kind)


def _at_own_row(
    part: BoundExpression, variable: int, kind: PredicateClass
) -> BoundExpression | None:
    """Return a part of a predicate that needs only its own row, or None."""
    if kind is PredicateClass.LOCAL:
        return part
    if not is_hoistable(part, variable):
        return None
    local = at_own_row(part)
    return local if classify(local) is PredicateClass.LOCAL else None


def _all_of(parts: list[BoundExpression]) -> BoundExpression:
    return parts[0] if len(parts) == 1 else Apply(pa.bool_(), "and", tuple(parts))


def _bit_test(bit: int) -> BoundExpression:
    """Return whether a bit is set: the byte is one of those that have it.

    A list of bytes looks clumsy, but a byte column has so few values that it is evaluated once for
    each of them, and, unlike arithmetic, it can be decided before a search starts.
    """
    column = Read(pa.uint8(), f"{BITS}{bit // _PER_COLUMN}", (), ReadPlace("last"))
    flag = 1 << bit % _PER_COLUMN
    holding = [Constant(pa.uint8(), byte) for byte in range(256) if byte & flag]
    return Apply(pa.bool_(), "in", (column, *holding))


def _sees_used(task: Task) -> bool:
    """Say whether nothing but the pattern looks at a row that fits no variable."""
    reach, rows = reach_of(task), task.bound.query.rows
    return not reach.back and not reach.ahead and rows is not RowsPerMatch.ALL_WITH_UNMATCHED
