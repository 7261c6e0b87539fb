"""The clause MATCH_RECOGNIZE ( ... ) of SQL:2016, read into a query.

All clauses of the standard, in its order, and a few more, which `print_query` lists. Variables
without quotes are folded to upper case, quoted ones keep their case. A clause that stands twice,
a measure without a name and a missing PATTERN are errors with their place.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from outpace.errors import BindError, Span
from outpace.pattern import ast
from outpace.pattern.expression import Expression
from outpace.pattern.notation.disorder import read_disorder, settings_hint
from outpace.pattern.notation.lexer import SourceText, Token, TokenCursor, TokenKind
from outpace.pattern.notation.parse_call import INFIX, read_direction
from outpace.pattern.notation.parse_expression import read_expression
from outpace.pattern.notation.parse_pattern import read_pattern
from outpace.pattern.notation.parse_windows import (
    read_count,
    read_scheduler,
    read_span,
    read_windows,
)
from outpace.pattern.notation.print_name import RESERVED
from outpace.pattern.query import (
    AfterMatch,
    Consume,
    Emission,
    Limit,
    OrderItem,
    Per,
    Query,
    RowsPerMatch,
    Selection,
    Skip,
    Within,
    WithinKind,
)

#: Says of the place of an expression, or of names with dots, which column of the rows it is; None:
#: it is none.
ComputeColumn: TypeAlias = Callable[[Span], str | None]


def parse_match_recognize(
    text: str,
    *,
    dialect: str = "outpace",
    offset: int = 0,
    whole: str | None = None,
    name: str = "query",
    where: str = "match_recognize",
    computed: ComputeColumn | None = None,
) -> Query:
    """Read what stands between the parentheses of MATCH_RECOGNIZE.

    Parameters
    ----------
    text
        The clauses, with or without `MATCH_RECOGNIZE (` and `)` around them.
    dialect, offset, whole, where
        See `outpace.pattern.notation.lexer.SourceText`.
    name
        The name of the query.
    computed
        Gives expressions of PARTITION BY and ORDER BY a column; without it they are refused.

    Raises
    ------
    PatternSyntaxError
        With the place in the text.

    Examples
    --------
    >>> query = parse_match_recognize('''
    ...     PARTITION BY symbol ORDER BY ts
    ...     MEASURES LAST(down.price) AS bottom
    ...     PATTERN (strt down+ up+)
    ...     DEFINE down AS down.price < PREV(down.price), up AS up.price > PREV(up.price)''')
    >>> [name for name, _ in query.definitions]
    ['DOWN', 'UP']
    """
    cursor = TokenCursor(SourceText(text, where, offset, whole, dialect))
    computed = computed or (lambda place: None)
    wrapped = cursor.accept("MATCH_RECOGNIZE")
    if wrapped:
        cursor.expect("(")
    query = replace(read_clauses(cursor, computed), name=name)
    if wrapped:
        cursor.expect(")")
    cursor.expect_end()
    return query


def read_clauses(cursor: TokenCursor, computed: ComputeColumn) -> Query:
    """Read the clauses from a cursor, up to the end or the closing parenthesis.

    MEASURES stands before PATTERN in the text and has to know which names are variables, so the
    clauses are read twice.
    """
    start = cursor.index
    query = _ClauseReader(cursor, frozenset(), computed).read()
    assert query.tree is not None, "a query that was read has a pattern"
    names = {name for name, _ in (*query.definitions, *query.subsets)}
    cursor.index = start
    return _ClauseReader(cursor, names.union(ast.predicates(query.tree)), computed).read()


def fold_upper(name: str, quoted: bool) -> str:
    """Return the name of a variable as SQL spells it: upper case unless quoted."""
    return name if quoted else name.upper()


#: Tokens that are values.
_VALUES: Final = (TokenKind.NUMBER, TokenKind.STRING)
#: By how much signs change how deep what follows is.
_OPENING: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


class _ClauseReader:
    def __init__(self, cursor: TokenCursor, variables: Set[str], computed: ComputeColumn) -> None:
        self.cursor = cursor
        self.variables = variables
        self.computed = computed
        self.query = Query()
        #: Where each clause stands that was read.
        self.clauses: dict[str, Token] = {}

    def read(self) -> Query:
        cursor = self.cursor
        while cursor.token.kind is not TokenKind.END and not cursor.at(")"):
            words, read_clause = self._clause()
            self._once(words)
            cursor.index += len(words.split())
            read_clause()
        if "PATTERN" not in self.clauses:
            raise cursor.unexpected("PATTERN", hint="write PATTERN (A B+) DEFINE B AS ...")
        return self.query

    def _clause(self) -> tuple[str, Callable[[], None]]:
        words = self._words_ahead()
        if words is None:
            raise self.cursor.unexpected("a clause of MATCH_RECOGNIZE", hint=self._hint())
        return words, partial(_READERS[words], self)

    def _words_ahead(self) -> str | None:
        """Return the words that a clause begins with, if one comes next."""
        found = (words for words in _READERS if self.cursor.at(*words.split()))
        return next(found, None)

    def _hint(self) -> str | None:
        """Say what may follow the last clause."""
        lists = ("MEASURES", "DEFINE", "SUBSET", "PARTITION BY", "ORDER BY")
        last = next(reversed(self.clauses), None)
        if last == "DISORDER" and self.query.order_of_arrival is not None:
            return settings_hint(self.query.order_of_arrival)
        return f"{last} takes a list with commas" if last in lists else None

    def _once(self, words: str) -> None:
        # LIMIT may stand once per start and once per partition; `_limit` checks that.
        kind = "ROWS PER MATCH" if words.endswith("PER MATCH") else words
        if kind in self.clauses and kind != "LIMIT":
            raise self.cursor.error(f"{kind} stands here a second time")
        self.clauses[kind] = self.cursor.token

    def _column(self) -> str:
        cursor = self.cursor
        if cursor.token.key in RESERVED:
            raise cursor.unexpected("a column", hint=f'write "{cursor.token.value}" for the column')
        parts = [self._output_name("a column")]
        while cursor.accept("."):
            parts.append(cursor.expect_name("a column after '.'").value)
        return ".".join(parts)

    def _row_column(self, clause: str) -> str:
        """Read a column, or an expression that becomes one before rows are matched."""
        cursor = self.cursor
        item = self._item()
        if len(item) < 2:
            return self._column()
        place = Span(item[0].start, item[-1].end)
        column = self.computed(place)
        names = all(one.is_name for one in item[::2]) and all(one.key == "." for one in item[1::2])
        if column is None and names and len(item) % 2:
            return self._column()
        if column is None:
            raise cursor.error(
                f"{clause} takes columns here, no expressions",
                place,
                hint="a database computes them in a statement, see op.sql; else add a column",
            )
        cursor.index += len(item)
        return column

    def _item(self) -> list[Token]:
        """Return the tokens of the item of a list that comes next, without its direction."""
        cursor = self.cursor
        start, depth = cursor.index, 0
        while cursor.token.kind is not TokenKind.END and not cursor.at("PATTERN", "("):
            depth += _OPENING.get(cursor.token.key, 0)
            if depth < 0 or (not depth and cursor.index > start and self._ends_item(start)):
                break
            cursor.index += 1
        item, cursor.index = cursor.tokens[start : cursor.index], start
        return item

    def _ends_item(self, start: int) -> bool:
        """Whether the item that begins at a token ends before the present one."""
        cursor, last = self.cursor, self.cursor.previous
        if cursor.token.key in (",", "ASC", "DESC", "NULLS"):
            return True
        if not (last.is_name or last.key in (")", "]") or last.kind in _VALUES):
            return False
        if cursor.at("OVER", "("):
            return False
        # A word behind a column alone is no part of the item: it is misspelled, or of a clause.
        column = all(one.is_name or one.key == "." for one in cursor.tokens[start : cursor.index])
        other = cursor.token.is_name and cursor.token.key not in INFIX
        begun = cursor.tokens[start].key in RESERVED
        return (column and other and not begun) or self._words_ahead() is not None

    def _output_name(self, what: str) -> str:
        """Read a name, where PATTERN with its parenthesis is the next clause and no name."""
        if self.cursor.at("PATTERN", "("):
            raise self.cursor.unexpected(what)
        return self.cursor.expect_name(what).value

    def _variable(self, what: str = "a pattern variable") -> str:
        token = self.cursor.expect_name(what)
        return fold_upper(token.value, token.kind is TokenKind.QUOTED)

    def _expression(self) -> Expression:
        return read_expression(self.cursor, self._fold_known)

    def _fold_known(self, name: str, quoted: bool) -> str:
        """Fold a name that stands for a variable, and leave one of a column as it is."""
        folded = fold_upper(name, quoted)
        return folded if folded in self.variables else name

    def _partition_by(self) -> None:
        columns = [self._row_column("PARTITION BY")]
        while self.cursor.accept(","):
            columns.append(self._row_column("PARTITION BY"))
        self.query = replace(self.query, partitions=tuple(columns))

    def _order_by(self) -> None:
        items = [self._order_item()]
        while self.cursor.accept(","):
            items.append(self._order_item())
        self.query = replace(self.query, order=tuple(items))

    def _order_item(self) -> OrderItem:
        column = self._row_column("ORDER BY")
        return OrderItem(column, *read_direction(self.cursor))

    def _measures(self) -> None:
        cursor = self.cursor
        measures: dict[str, Expression] = {}
        while True:
            node = self._expression()
            if not cursor.accept("AS"):
                raise cursor.unexpected("AS and the name of the measure")
            alias = self._output_name("the name of the measure")
            if alias in measures:
                place = cursor.previous.span
                raise cursor.error(f"the measure {alias} stands here a second time", place)
            measures[alias] = node
            if not cursor.accept(","):
                break
        self.query = replace(self.query, outputs=tuple(measures.items()))

    def _one_row(self) -> None:
        self.cursor.accept("SHOW", "EMPTY", "MATCHES")
        self.query = replace(self.query, rows=RowsPerMatch.ONE)

    def _all_rows(self) -> None:
        rows = RowsPerMatch.ALL_SHOW_EMPTY
        if self.cursor.accept("OMIT", "EMPTY", "MATCHES"):
            rows = RowsPerMatch.ALL_OMIT_EMPTY
        elif self.cursor.accept("WITH", "UNMATCHED", "ROWS"):
            rows = RowsPerMatch.ALL_WITH_UNMATCHED
        else:
            self.cursor.accept("SHOW", "EMPTY", "MATCHES")
        self.query = replace(self.query, rows=rows)

    def _after_match(self) -> None:
        self.query = replace(self.query, skip=self._skip())

    def _skip(self) -> AfterMatch:
        cursor = self.cursor
        if cursor.accept("NO", "SKIP"):
            return AfterMatch(Skip.NONE)
        cursor.expect("SKIP", "SKIP or NO SKIP")
        if cursor.accept("PAST", "LAST", "ROW"):
            return AfterMatch(Skip.PAST_LAST_ROW)
        cursor.expect("TO", "TO or PAST LAST ROW")
        if cursor.accept("NEXT", "ROW"):
            return AfterMatch(Skip.TO_NEXT_ROW)
        first = cursor.at("FIRST") and self._names_follow()
        if first or (cursor.at("LAST") and self._names_follow()):
            cursor.advance()
        variable = self._variable("NEXT ROW, FIRST, LAST or a pattern variable")
        lenient = cursor.accept("OR", "NEXT", "ROW")
        return AfterMatch(Skip.TO_FIRST if first else Skip.TO_LAST, variable, strict=not lenient)

    def _names_follow(self) -> bool:
        """Whether FIRST or LAST is followed by a variable, and is not one itself."""
        following = self.cursor.ahead()
        clause = following.key in ("PATTERN", "INITIAL", "SEEK") and self.cursor.ahead(2).key == "("
        return following.is_name and following.key != "OR" and not clause

    def _initial(self) -> None:
        if not self.cursor.at("PATTERN"):
            raise self.cursor.unexpected("PATTERN after INITIAL")

    def _seek(self) -> None:
        hint = "leave it out: matches are searched from every row on; it stands in windows alone"
        place = self.cursor.previous.span
        raise self.cursor.source.unsupported("SEEK is not supported", place, hint=hint)

    def _pattern(self) -> None:
        cursor = self.cursor
        opener = cursor.expect("(", "'(' after PATTERN")
        if cursor.accept(")"):
            tree: ast.Pattern = ast.Empty(span=cursor.span_from(opener.start))
        else:
            tree = read_pattern(cursor, fold_upper)
            if cursor.token.kind is TokenKind.END:
                raise cursor.error("'(' is never closed", opener.span, hint="add ')'")
            cursor.expect(")")
        self.query = replace(self.query, tree=tree)

    def _within(self) -> None:
        cursor = self.cursor
        start = cursor.token
        duration = read_span(cursor)
        if (duration if isinstance(duration, int) else duration.total_seconds()) <= 0:
            place = cursor.span_from(start.start)
            raise cursor.error("within must be longer than nothing", place)
        kind = WithinKind.FIRST_TO_LAST
        if cursor.accept("PREVIOUS", "TO", "CURRENT"):
            kind = WithinKind.PREVIOUS_TO_CURRENT
        else:
            cursor.accept("FIRST", "TO", "LAST")
        self.query = replace(self.query, bound=Within(duration, kind))

    def _select(self) -> None:
        cursor = self.cursor
        if not (cursor.at("ALL") or cursor.at("PREFERRED")):
            raise cursor.unexpected("ALL MATCHES or PREFERRED MATCHES after SELECT")
        selection = Selection.ALL if cursor.advance().key == "ALL" else Selection.PREFERRED
        cursor.expect("MATCHES")
        self.query = replace(self.query, selection=selection)

    def _consume(self) -> None:
        cursor = self.cursor
        kinds = {"NONE": Consume.NONE, "SELECTED": Consume.SELECTED, "ALL": Consume.ALL}
        if cursor.token.key not in kinds:
            raise cursor.unexpected("NONE, SELECTED EVENTS or ALL EVENTS after CONSUME")
        consumption = kinds[cursor.advance().key]
        cursor.accept("EVENTS")
        self.query = replace(self.query, consumption=consumption)

    def _limit(self) -> None:
        cursor = self.cursor
        start = cursor.token
        count = read_count(cursor, "a whole number")
        if count < 1:
            raise cursor.error("a limit is at least 1", start.span)
        per = Per.PARTITION
        if cursor.accept("PER"):
            if not (cursor.at("START") or cursor.at("PARTITION")):
                raise cursor.unexpected("START or PARTITION after PER")
            per = Per.START if cursor.advance().key == "START" else Per.PARTITION
        if any(limit.per is per for limit in self.query.limits):
            message = f"LIMIT PER {per.value.upper()} stands here a second time"
            raise cursor.error(message, start.span)
        self.query = replace(self.query, limits=(*self.query.limits, Limit(count, per)))

    def _uncertain(self) -> None:
        cursor = self.cursor
        start = cursor.token
        bound = read_span(cursor)
        measured = cursor.accept("MEASURED")
        source = self._column() if cursor.accept("SOURCE") else None
        try:
            self.query = self.query.uncertain(bound, source, measured=measured)
        except BindError as error:
            span = cursor.span_from(start.start)
            raise cursor.error(error.message, span, hint=error.hint) from None

    def _over(self) -> None:
        cursor = self.cursor
        windows = read_windows(cursor)
        start = cursor.token
        drift = read_span(cursor) if cursor.accept("DRIFT") else None
        try:
            query = self.query.over(windows, drift=drift)
        except BindError as error:
            span = cursor.span_from(start.start)
            raise cursor.error(error.message, span, hint=error.hint) from None
        duplicates = cursor.accept("WITH", "DUPLICATES") or query.duplicates
        numbered = cursor.accept("NUMBERED")
        self.query = replace(query, duplicates=duplicates, numbered=numbered)

    def _instances(self) -> None:
        cursor = self.cursor
        start = cursor.token
        count = read_count(cursor, "a number of instances")
        if count < 1:
            raise cursor.error("there is at least one instance", start.span)
        scheduler = read_scheduler(cursor) if cursor.accept("SCHEDULE") else None
        self.query = self.query.instances(count, scheduler)

    def _disorder(self) -> None:
        self.query = self.query.disorder(read_disorder(self.cursor))

    def _emit(self) -> None:
        cursor = self.cursor
        if cursor.token.key not in Emission.__members__:
            raise cursor.unexpected("CHANGES, CONFIRMED or LATEST after EMIT")
        self.query = self.query.emit(Emission[cursor.advance().key])

    def _subset(self) -> None:
        cursor = self.cursor
        subsets: dict[str, tuple[str, ...]] = {}
        while True:
            start = cursor.token
            name = self._variable("the name of the subset")
            if name in subsets:
                raise cursor.error(f"the subset {name} stands here a second time", start.span)
            cursor.expect("=", "'=' and the variables in parentheses")
            cursor.expect("(")
            members = [self._variable()]
            while cursor.accept(","):
                members.append(self._variable())
            cursor.expect(")", "',' or ')'")
            subsets[name] = tuple(members)
            if not cursor.accept(","):
                break
        self.query = replace(self.query, subsets=tuple(subsets.items()))

    def _define(self) -> None:
        cursor = self.cursor
        definitions: dict[str, Expression] = {}
        while True:
            start = cursor.token
            name = self._variable()
            if name in definitions:
                raise cursor.error(f"the variable {name} is defined a second time", start.span)
            cursor.expect("AS", "AS and a condition")
            definitions[name] = self._expression()
            if not cursor.accept(","):
                break
        self.query = replace(self.query, definitions=tuple(definitions.items()))


#: The clauses by the words that they begin with, and what reads them.
_READERS: Final[dict[str, Callable[[_ClauseReader], None]]] = {
    "PARTITION BY": _ClauseReader._partition_by,
    "ORDER BY": _ClauseReader._order_by,
    "MEASURES": _ClauseReader._measures,
    "ONE ROW PER MATCH": _ClauseReader._one_row,
    "ALL ROWS PER MATCH": _ClauseReader._all_rows,
    "AFTER MATCH": _ClauseReader._after_match,
    "INITIAL": _ClauseReader._initial,
    "SEEK": _ClauseReader._seek,
    "PATTERN": _ClauseReader._pattern,
    "WITHIN": _ClauseReader._within,
    "SELECT": _ClauseReader._select,
    "CONSUME": _ClauseReader._consume,
    "LIMIT": _ClauseReader._limit,
    "UNCERTAIN": _ClauseReader._uncertain,
    "OVER": _ClauseReader._over,
    "INSTANCES": _ClauseReader._instances,
    "DISORDER": _ClauseReader._disorder,
    "EMIT": _ClauseReader._emit,
    "SUBSET": _ClauseReader._subset,
    "DEFINE": _ClauseReader._define,
}
