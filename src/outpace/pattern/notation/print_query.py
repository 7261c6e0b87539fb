"""A query as text: the clause MATCH_RECOGNIZE of SQL, or the Python code of the fluent calls.

Both read back as the same query (MATCH_RECOGNIZE without the query's name). Beyond SQL:2016 the
clause has, each where it is asked for:

- links in PATTERN: `A -> B`, `A ->> B`, `!B`, `B(->)+`, `B++`, `B+ UNTIL U` (see `parse_pattern`);
- `AFTER MATCH NO SKIP`, which drops nothing;
- `AFTER MATCH SKIP TO FIRST A OR NEXT ROW` (or LAST), which takes the next row where SQL fails;
- `WITHIN INTERVAL '1' HOUR`, `WITHIN '1 hour'` or `WITHIN 1000` after PATTERN, followed by
  `PREVIOUS TO CURRENT` where each event is measured from the one before it;
- `SELECT ALL MATCHES` or `SELECT PREFERRED MATCHES` of those with the same first event;
- `CONSUME SELECTED EVENTS` or `CONSUME ALL EVENTS`;
- `LIMIT 5 PER START` or `LIMIT 5 PER PARTITION`;
- `UNCERTAIN '50 ms' SOURCE site` where the order of events is not certain;
- `OVER COUNT (1000 SLIDE 50)` and other windows, and `INSTANCES 8` (see `parse_windows`);
- `DISORDER SLACK '2 s'` for a stream that is out of order (see `disorder`).
"""

from __future__ import annotations

import datetime
import keyword
from collections.abc import Callable, Iterable
from dataclasses import replace

from outpace.errors import BindError
from outpace.pattern import ast
from outpace.pattern.duration import print_duration
from outpace.pattern.expression import Expression, Literal
from outpace.pattern.notation.disorder import disorder_calls, disorder_clauses
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.notation.print_name import print_name
from outpace.pattern.notation.print_pattern import print_pattern
from outpace.pattern.notation.print_windows import window_calls, window_clauses
from outpace.pattern.query import (
    AfterMatch,
    Consume,
    Emission,
    OrderItem,
    Query,
    RowsPerMatch,
    Skip,
    WithinKind,
)
from outpace.pattern.windows import BetweenWindows


def print_match_recognize(query: Query, dialect: str = "outpace") -> str:
    """Write a query as the SQL clause MATCH_RECOGNIZE.

    Examples
    --------
    >>> dip = (Query("dip").partition_by("symbol").order_by("ts").pattern("STRT DOWN+")
    ...        .define(DOWN="price < PREV(price)").measures(bottom="LAST(DOWN.price)"))
    >>> print(print_match_recognize(dip))
    MATCH_RECOGNIZE (
      PARTITION BY symbol
      ORDER BY ts
      MEASURES
        LAST(DOWN.price) AS bottom
      ONE ROW PER MATCH
      PATTERN (STRT DOWN+)
      DEFINE
        DOWN AS price < PREV(price)
    )
    """
    lines = _ClausePrinter(query, dialect).lines()
    return "\n".join(["MATCH_RECOGNIZE (", *(f"  {line}" for line in lines), ")"])


def print_identity(query: Query) -> str:
    """Write what a query finds, to tell saved states of different queries apart.

    Who matches is left out, as it changes nothing, and so is disorder: events are in order where
    they are matched. So is which rows come out. What a user wrote in Python counts by its name.

    Examples
    --------
    >>> query = Query().pattern("A B")
    >>> print_identity(query) == print_identity(query.instances(8))
    True
    """
    found = replace(query.emit("changes"), instance_count=1, scheduler=None, order_of_arrival=None)
    python = []
    if isinstance(query.windows, BetweenWindows) and query.windows.predicate is not None:
        options = f"duplicates={query.duplicates} numbered={query.numbered}"
        python.append(f"over {_name_of(type(query.windows.predicate))} {options}")
        found = replace(found, windows=None)
    if query.operator is None:
        clause = print_match_recognize(found)
    else:
        clause = print_fluent(replace(found, name="query"))
        python.append(f"apply {_name_of(query.operator)}")
    return "\n".join([clause, *python])


def _name_of(value: object) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


class _ClausePrinter:
    def __init__(self, query: Query, dialect: str) -> None:
        if query.tree is None:
            raise BindError("the query has no pattern", hint='add .pattern("A B+")')
        self.query = query
        self.tree = query.tree
        self.dialect = dialect
        names = {name for name, _ in (*query.definitions, *query.subsets)}
        self.variables = names.union(ast.predicates(query.tree))

    def lines(self) -> Iterable[str]:
        query = self.query
        if query.partitions:
            yield f"PARTITION BY {', '.join(self._column(name) for name in query.partitions)}"
        if query.order:
            yield f"ORDER BY {', '.join(self._order_item(item) for item in query.order)}"
        if query.outputs:
            named = (f"{self._text(node)} AS {self._column(name)}" for name, node in query.outputs)
            yield "MEASURES\n    " + ",\n    ".join(named)
        yield query.rows.value.upper()
        if query.skip is not None:
            yield f"AFTER MATCH {self._skip(query.skip)}"
        yield f"PATTERN ({print_pattern(self.tree, name=self._variable)})"
        yield from self._extensions()
        if query.subsets:
            yield f"SUBSET {', '.join(self._subset(*subset) for subset in query.subsets)}"
        if query.definitions:
            named = (f"{self._variable(name)} AS {self._text(n)}" for name, n in query.definitions)
            yield "DEFINE\n    " + ",\n    ".join(named)

    def _extensions(self) -> Iterable[str]:
        query = self.query
        if query.bound is not None:
            kind = query.bound.kind
            yield f"WITHIN {_span(query.bound.duration)}" + (
                "" if kind is WithinKind.FIRST_TO_LAST else f" {kind.value.upper()}"
            )
        if query.selection is not None:
            yield f"SELECT {query.selection.value.upper()} MATCHES"
        if query.consumption is not Consume.NONE:
            yield f"CONSUME {query.consumption.value.upper()} EVENTS"
        for limit in query.limits:
            yield f"LIMIT {limit.count} PER {limit.per.value.upper()}"
        if query.uncertainty is not None:
            source = query.uncertainty.source
            named = "" if source is None else f" SOURCE {self._column(source)}"
            measured = " MEASURED" if query.uncertainty.measured else ""
            yield f"UNCERTAIN {_span(query.uncertainty.bound)}{measured}{named}"
        if query.join is not None:
            yield f"{query.join.value.upper()} JOIN"
        yield from window_clauses(query, self.dialect)
        yield from disorder_clauses(query)
        if query.emission is not Emission.CHANGES:
            yield f"EMIT {query.emission.value.upper()}"

    def _column(self, name: str) -> str:
        return print_name(name, dialect=self.dialect)

    def _variable(self, name: str) -> str:
        """Write a variable: without quotes it would be read in upper case."""
        return print_name(name, dialect=self.dialect, quoted=name != name.upper())

    def _qualifier(self, name: str) -> str:
        """Write the first part of a name, which is read as a variable where it names one."""
        if name in self.variables:
            return self._variable(name)
        return print_name(name, dialect=self.dialect, quoted=name.upper() in self.variables)

    def _text(self, node: Expression) -> str:
        return print_expression(
            node, self.dialect, variable=self._qualifier, qualifier=self._qualifier
        )

    def _order_item(self, item: OrderItem) -> str:
        return self._column(item.column) + _direction(item).upper()

    def _skip(self, skip: AfterMatch) -> str:
        if skip.skip is Skip.NONE:
            return "NO SKIP"
        if skip.variable is None:
            return f"SKIP {skip.skip.value.upper()}"
        lenient = "" if skip.strict else " OR NEXT ROW"
        return f"SKIP {skip.skip.value.upper()} {self._variable(skip.variable)}{lenient}"

    def _subset(self, name: str, members: tuple[str, ...]) -> str:
        return f"{self._variable(name)} = ({', '.join(self._variable(m) for m in members)})"


def _span(duration: datetime.timedelta | int) -> str:
    return str(duration) if isinstance(duration, int) else print_expression(Literal(duration))


def print_fluent(query: Query) -> str:
    """Write a query as the Python code of the fluent calls that build it.

    Examples
    --------
    >>> dip = (Query("dip").order_by("ts").pattern("STRT DOWN+")
    ...        .define(DOWN="price < PREV(price)").within("1 hour"))
    >>> print(print_fluent(dip))
    (
        op.Query('dip')
        .order_by('ts')
        .pattern('STRT DOWN+')
        .define(DOWN='price < PREV(price)')
        .within('1 hour')
    )
    """
    calls = [f"op.Query({query.name!r})", *(f".{call}" for call in _calls(query))]
    return "\n".join(["(", *(f"    {call}" for call in calls), ")"])


def _calls(query: Query) -> Iterable[str]:
    if query.partitions:
        yield f"partition_by({', '.join(map(repr, query.partitions))})"
    if query.order:
        items = (_order_text(item) for item in query.order)
        yield f"order_by({', '.join(map(repr, items))})"
    if query.tree is not None:
        yield f"pattern({print_pattern(query.tree)!r})"
    if query.subsets:
        yield f"subset({_keywords(query.subsets, repr, mapping=False)})"
    if query.definitions:
        yield f"define({_keywords(query.definitions, _expression_text, mapping=True)})"
    if query.outputs:
        yield f"measures({_keywords(query.outputs, _expression_text, mapping=True)})"
    yield from _rows_call(query.rows)
    if query.skip is not None:
        yield _skip_call(query.skip)
    if query.bound is not None:
        duration = query.bound.duration
        shown = duration if isinstance(duration, int) else print_duration(duration)
        kind = query.bound.kind
        default = kind is WithinKind.FIRST_TO_LAST
        yield f"within({shown!r})" if default else f"within({shown!r}, {kind.value!r})"
    if query.selection is not None:
        yield f"select({query.selection.value!r})"
    if query.consumption is not Consume.NONE:
        yield f"consume({query.consumption.value!r})"
    for limit in query.limits:
        yield f"limit({limit.count}, {limit.per.value!r})"
    if query.uncertainty is not None:
        bound, source = query.uncertainty.bound, query.uncertainty.source
        shown = bound if isinstance(bound, int) else print_duration(bound)
        named = "" if source is None else f", source={source!r}"
        named += ", measured=True" if query.uncertainty.measured else ""
        yield f"uncertain({shown!r}{named})"
    yield from window_calls(query)
    yield from disorder_calls(query)
    if query.emission is not Emission.CHANGES:
        yield f"emit({query.emission.value!r})"


def _expression_text(node: Expression) -> str:
    return repr(print_expression(node))


def _keywords(
    pairs: Iterable[tuple[str, object]], shown: Callable[..., str], *, mapping: bool
) -> str:
    entries = tuple(pairs)
    if all(_is_keyword_argument(name) for name, _ in entries):
        return ", ".join(f"{name}={shown(value)}" for name, value in entries)
    inner = ", ".join(f"{name!r}: {shown(value)}" for name, value in entries)
    return f"{{{inner}}}" if mapping else f"**{{{inner}}}"


def _is_keyword_argument(name: str) -> bool:
    # Python reads identifiers beyond ASCII in a normal form, which may be another name.
    plain = name.isascii() and name.isidentifier() and not name.startswith("__")
    return plain and not keyword.iskeyword(name)


def _order_text(item: OrderItem) -> str:
    plain = item.column and not any(sign.isspace() or sign in '"`' for sign in item.column)
    return (item.column if plain else print_name(item.column, quoted=True)) + _direction(item)


def _direction(item: OrderItem) -> str:
    nulls = {None: "", True: " nulls first", False: " nulls last"}[item.nulls_first]
    return (" desc" if item.descending else "") + nulls


def _rows_call(rows: RowsPerMatch) -> Iterable[str]:
    calls = {
        RowsPerMatch.ALL_SHOW_EMPTY: "all_rows_per_match()",
        RowsPerMatch.ALL_OMIT_EMPTY: "all_rows_per_match(empty='omit')",
        RowsPerMatch.ALL_WITH_UNMATCHED: "all_rows_per_match(unmatched=True)",
    }
    if rows in calls:
        yield calls[rows]


def _skip_call(skip: AfterMatch) -> str:
    if skip.variable is None:
        method = (
            "no_skip" if skip.skip is Skip.NONE else f"skip_{skip.skip.value.replace(' ', '_')}"
        )
        return f"{method}()"
    strict = ", strict=True" if skip.strict else ""
    return f"skip_{skip.skip.value.replace(' ', '_')}({skip.variable!r}{strict})"
