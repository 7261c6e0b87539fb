"""Splitting a SQL statement into what a database runs and the MATCH_RECOGNIZE clauses between.

The result is a list of steps, each after the steps that it reads from, and the rest of the
statement, in which every table factor with its clause is replaced by the name of a table that the
host fills with the step's matches. No database is needed to split a statement, so all hosts share
it. Places in errors always count from the beginning of the whole statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from outpace.errors import OutpaceError, PatternSyntaxError, Span, UnsupportedError
from outpace.pattern.expression import Call, Expression, MatchNumber, Star, Subquery, walk
from outpace.pattern.framed import Frames, framed
from outpace.pattern.join import Join
from outpace.pattern.notation.dialect import check_dialect
from outpace.pattern.notation.lexer import SourceText, Token, TokenKind, tokenize
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.query import OrderItem, Query, RowsPerMatch
from outpace.statement.dialect import translate
from outpace.statement.join_step import JoinClause, JoinedTables, JoinReader, Reference
from outpace.statement.place import Fragment
from outpace.statement.step import ComputedColumn, Lookup, Statement, Step
from outpace.statement.window_clause import RowWindow, WindowColumns, WindowedSelect, WindowReader

#: How deep parentheses may be nested in a statement.
MOST_NESTED = 400

#: What can come first inside the parentheses of MATCH_RECOGNIZE.
_CLAUSES = frozenset(
    {"PARTITION", "ORDER", "MEASURES", "ONE", "ALL", "AFTER", "PATTERN", "SUBSET", "DEFINE"}
)
#: After one of these a table factor begins.
_BEFORE_FACTOR = frozenset({"FROM", "JOIN", "USING", "APPLY", ","})
#: A table factor contains none of these outside parentheses.
_NOT_IN_FACTOR = frozenset(
    {"SELECT", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH"}
    | {"UNION", "INTERSECT", "EXCEPT", "MINUS", "ON", "SET", "INTO", "UPDATE", "INSERT", "DELETE"}
)
#: What can follow a table factor and is therefore no alias without AS.
_AFTER_FACTOR = _NOT_IN_FACTOR | {
    *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ASOF", "POSITIONAL"),
    *("SEMI", "ANTI", "LATERAL", "USING", "TABLESAMPLE", "PIVOT", "UNPIVOT", "FOR", "WHEN"),
    *("MATCH_RECOGNIZE", "OUTER", "STRAIGHT_JOIN", "SAMPLE", "CONNECT", "START", "RETURNING"),
}
#: What leaves columns out of `*`, in one dialect or another.
_LEAVE_OUT = frozenset({"EXCLUDE", "EXCEPT"})
#: What a statement can create that lasts longer than the tables of the matches.
_LASTING = frozenset({"VIEW", "MACRO", "FUNCTION", "PROCEDURE", "TRIGGER"})


def split(
    text: str, dialect: str = "outpace", *, database: str = "duckdb", prefix: str = "__outpace_"
) -> Statement:
    """Split a statement.

    Parameters
    ----------
    text
        One statement; a semicolon may end it.
    dialect
        What it is written in: "trino", "spark", "flink", "oracle", "snowflake" and the like.
        "outpace" is the database's own SQL.
    database
        The dialect that the database understands.
    prefix
        What the names of the steps' tables begin with.

    Examples
    --------
    >>> statement = split('''
    ...     SELECT m.low FROM ticks AS t MATCH_RECOGNIZE (
    ...         ORDER BY ts MEASURES LAST(B.price) AS low
    ...         PATTERN (A B+) DEFINE B AS price < PREV(price)) AS m''')
    >>> statement.steps[0].source
    'SELECT * FROM ticks AS t'
    >>> statement.outer.strip()
    'SELECT m.low FROM __outpace_1 AS m'
    """
    dialect = check_dialect(dialect)
    source = SourceText(text, where="statement", dialect=dialect)
    tokens = _one_statement(source, tokenize(source, MOST_NESTED))
    while prefix.lower() in text.lower():
        prefix += "_"
    return _StatementSplitter(source, tokens, database, prefix).split()


@dataclass(frozen=True, slots=True)
class _TableFactor:
    """A table factor with its clause, as indices of tokens; `close` is the closing parenthesis."""

    start: int
    keyword: int
    close: int


#: What becomes a table of its own.
_StatementPart: TypeAlias = _TableFactor | JoinClause | WindowedSelect


class _StatementSplitter:
    """The state of splitting one statement."""

    def __init__(self, source: SourceText, tokens: list[Token], database: str, prefix: str) -> None:
        self.source = source
        self.text = source.text
        self.tokens = tokens
        self.database = database
        self.prefix = prefix
        self.partner = _partners(source, tokens)
        keywords = list(self._keywords())
        clauses = [range(index, self.partner[index + 1]) for index in keywords]
        reader = JoinReader(source, tokens, self.partner)
        self.joins = list(reader.read(lambda index: any(index in clause for clause in clauses)))
        self.units = [self._unit(index) for index in keywords]
        windows = WindowReader(source, tokens, self.partner, prefix)
        selects = windows.read()
        self.parts: list[_StatementPart] = [*self.units, *self.joins, *selects]
        self.steps: list[Step] = []
        self.tables: dict[_StatementPart, str] = {}
        #: What is written in the place of columns of joined tables and of what is read of windows,
        #: by where these begin and end.
        self.written = windows.written
        self.references = {join: self._references(join, clauses) for join in self.joins}

    def split(self) -> Statement:
        """Return the steps and the rest."""
        if self.parts:
            self._refuse_lasting()
        outer = self._render(0, len(self.tokens) - 1)
        rest = self._translated(outer)
        return Statement(self.text, self.source.dialect, tuple(self.steps), rest)

    def _keywords(self) -> Iterator[int]:
        """Yield where MATCH_RECOGNIZE begins a clause and is no function, table or column."""
        for index, token in enumerate(self.tokens[:-2]):
            if token.key != "MATCH_RECOGNIZE" or self.tokens[index + 1].key != "(":
                continue
            before = self.tokens[index - 1] if index else None
            if before is not None and before.key == ".":
                continue
            after_table = before is not None and (
                before.key == ")"
                or (before.is_name and before.key not in _BEFORE_FACTOR | _NOT_IN_FACTOR | {"BY"})
            )
            if after_table or self.tokens[index + 2].key in _CLAUSES:
                yield index

    def _unit(self, keyword: int) -> _TableFactor:
        start = keyword
        join = next((one for one in self.joins if one.close == keyword - 1), None)
        if join is not None:
            return _TableFactor(join.start, keyword, self.partner[keyword + 1])
        while start > 0 and not self._begins_factor(start):
            start = self.partner[start - 1] if self.tokens[start - 1].key == ")" else start - 1
        start = self._values(start)
        inside = self._outside_parentheses(start, keyword)
        misplaced = any(token.key in _NOT_IN_FACTOR for token in inside)
        if start in (0, keyword) or misplaced:
            raise self._error(
                "MATCH_RECOGNIZE stands right after a table or subquery",
                keyword,
                hint="FROM ticks MATCH_RECOGNIZE (...) AS m",
            )
        if self.tokens[start].key == "LATERAL":
            message = "MATCH_RECOGNIZE does not take the rows of LATERAL"
            hint = "its input is computed before the rest of the statement: write the join inside"
            raise self._error(message, start, hint=hint, kind=UnsupportedError)
        return _TableFactor(start, keyword, self.partner[keyword + 1])

    def _values(self, start: int) -> int:
        """Return where VALUES stands if `start` is one of its rows, else `start`."""
        row = start
        while row > 1 and self.tokens[row - 1].key == "," and self.tokens[row - 2].key == ")":
            row = self.partner[row - 2]
        rows = self.tokens[start].key == "(" and row > 0 and self.tokens[row - 1].key == "VALUES"
        return row - 1 if rows else start

    def _begins_factor(self, index: int) -> bool:
        before = self.tokens[index - 1]
        return before.key in _BEFORE_FACTOR or before.key == "("

    def _outside_parentheses(self, start: int, stop: int) -> Iterator[Token]:
        index = start
        while index < stop:
            yield self.tokens[index]
            index = self.partner[index] if self.tokens[index].key == "(" else index + 1

    def _refuse_lasting(self) -> None:
        head = [token.key for token in self.tokens[:8]]
        created = [key for key in head if key in _LASTING]
        if head[0] == "CREATE" and created:
            what = created[0].lower()
            held = "MATCH_RECOGNIZE" if self.units else "a JOIN with WITHIN"
            message = f"a {what} cannot hold {held}: it would outlive the matches"
            hint = "CREATE TABLE ... AS keeps the matches"
            raise self._error(message, 0, hint=hint, kind=UnsupportedError)

    def _render(self, start: int, stop: int) -> Fragment:
        """Return the text of some tokens, with each unit replaced by the name of its table."""
        parts: list[str | Fragment] = []
        position = self.tokens[start].start
        end = self.tokens[stop - 1].end if stop > start else position
        for unit in self._outermost(start, stop):
            parts.append(self._slice(position, self.tokens[unit.start].start))
            parts.append(self._replacement(unit))
            position = self.tokens[unit.close].end
        parts.append(self._slice(position, end))
        return Fragment.join(parts)

    def _outermost(self, start: int, stop: int) -> list[_StatementPart]:
        inside = [part for part in self.parts if start <= part.start and part.close < stop]
        # Of two units, the outer one starts no later and closes later.
        inside.sort(key=lambda unit: (unit.start, -unit.close))
        chosen: list[_StatementPart] = []
        for unit in inside:
            if not chosen or unit.start > chosen[-1].close:
                chosen.append(unit)
        return chosen

    def _slice(self, start: int, end: int) -> Fragment:
        pieces: list[tuple[str, int | None]] = []
        for (begin, stop), name in sorted(self.written.items()):
            if start <= begin and stop <= end:
                pieces += [(self.text[start:begin], start), (name, begin)]
                start = stop
        return Fragment((*pieces, (self.text[start:end], start)) if end > start else tuple(pieces))

    def _replacement(self, part: _StatementPart) -> str:
        table = self._table(part)
        return f"FROM {self._called(table, part)} " if isinstance(part, WindowedSelect) else table

    def _called(self, table: str, select: WindowedSelect) -> str:
        """Return a table under the name that a SELECT with windows calls its own by."""
        name = select.alias
        return table if name is None else f"{table} AS {self.text[name.start : name.end]}"

    def _table(self, part: _StatementPart, time: Token | None = None) -> str:
        """Return the name of a unit's table; the first time, add its step.

        What reads the result of a join may know its time.
        """
        if part not in self.tables:
            match part:
                case _TableFactor():
                    self.steps.append(self._step(part))
                case JoinClause():
                    self.steps.append(self._join(part, time))
                case WindowedSelect():
                    self._add_windows(part)
            self.tables[part] = self.steps[-1].table
        return self.tables[part]

    def _add_windows(self, select: WindowedSelect) -> None:
        """Add a step for each window of a SELECT; each reads the rows of the one before it."""
        factor, condition = self._render(*select.factor), self._render(*select.condition)
        read = Fragment.join((factor, " ", condition))
        for window in select.windows:
            step = self._window(window, select, read)
            self.steps.append(step)
            read = Fragment(((self._called(step.table, select), None),))

    def _window(self, window: RowWindow, select: WindowedSelect, read: Fragment) -> Step:
        """Return the step of a window, whose rows are numbered in the order of its partitions."""
        table = f"{self.prefix}{len(self.steps) + 1}"
        row, after = f"{table}_row", f"{table}_after"
        computed = [
            self._column(f"{table}_partition_{number}", place)
            for number, place in enumerate(window.partitions, 1)
        ]
        partitions = tuple(column.name for column, _ in computed)
        if window.after is not None:
            column, text = self._column(after, window.after)
            computed.append((column, self._counted(text)))
        computed.append((ComputedColumn(row, "OVER", window.span), self._numbered(window)))
        source = _with_columns(computed, read)
        frames = Frames(
            row,
            after if window.after is not None else None,
            window.seek,
            f"{table}_skipped",
            f"{table}_matched",
        )
        try:
            query = framed(replace(window.clause, outputs=tuple(window.columns.items())), frames)
        except OutpaceError as error:
            raise error.located(self.text, "statement").in_sql() from None
        query = replace(query, partitions=partitions, order=(OrderItem(row),))
        return Step(
            table,
            self._translated(self._scoped(select.start, source)),
            query,
            window.span,
            tuple(self._lookup(node) for node in _subqueries(query)),
            window=WindowColumns(row, partitions, tuple(window.columns)),
            computed=tuple(column for column, _ in computed),
        )

    def _column(self, name: str, place: tuple[int, int]) -> tuple[ComputedColumn, Fragment]:
        """Return a column that is computed by some tokens, and the text of these."""
        start, stop = place
        span = self.tokens[start].span.join(self.tokens[stop - 1].span)
        return ComputedColumn(name, self.text[span.start : span.end], span), self._render(*place)

    def _counted(self, after: Fragment) -> Fragment:
        """Return the text of a number of rows; one that is none is an error of the database."""
        error = "raise_error" if self.database == "spark" else "error"
        message = "the end of a frame is a number of rows, 0 at least"
        parts = ("CASE WHEN (", after, ") >= 0 THEN ", after, f" ELSE {error}('{message}') END")
        return Fragment.join(parts)

    def _numbered(self, window: RowWindow) -> Fragment:
        """Return the text that numbers rows.

        Spark may compute rows twice, and rows of one place in the order may change places between:
        they get the same number, and the host tells them apart.
        """
        partitions = [self._render(*place) for place in window.partitions]
        order = [self._render(*place) for place in window.order]
        if self.database != "spark":
            listed = _listed("ORDER BY", [*partitions, *order])
            return Fragment.join(("row_number() OVER (", *listed, ")"))
        if not order:
            return Fragment.join(("1",))
        lists = (*_listed("PARTITION BY", partitions), *_listed("ORDER BY", order))
        return Fragment.join(("rank() OVER (", *lists, ")"))

    def _join(self, join: JoinClause, time: Token | None) -> Step:
        times = join.times or (time and (time, time))
        if times is None:
            raise self._error(
                "the times that WITHIN compares are not named",
                join.close,
                hint="write WITHIN INTERVAL '5' MINUTE BETWEEN o.ts AND p.ts",
            )
        sources = [
            self._translated(
                self._scoped(start, Fragment.join(("SELECT * FROM ", self._render(start, stop))))
            )
            for start, stop in join.factors
        ]
        span = self.tokens[join.start].span.join(self.tokens[join.close].span)
        try:
            asked = Join(
                on=[left.value for left, _ in join.on],
                within=join.within,
                time=times[0].value,
                how=join.how,
                uncertain=join.uncertain,
                disorder=join.disorder,
            )
        except OutpaceError as error:
            error.span = span
            raise error.located(self.text, "statement").in_sql() from None
        renamed: dict[str, str] = {}
        compared = (*join.on, times)
        for left, right in ((one.value, other.value) for one, other in compared):
            if renamed.setdefault(right.lower(), left) != left:
                raise self._error(
                    f"column '{right}' of the right side is compared with two of the left side",
                    join.close,
                    hint="compare it with one, and ask for the other in WHERE",
                )
        joined = JoinedTables(sources[1], asked, renamed, compared, self.references[join])
        table = f"{self.prefix}{len(self.steps) + 1}"
        return Step(table, sources[0], Query("join"), span, joined=joined)

    def _references(self, join: JoinClause, clauses: list[range]) -> tuple[Reference, ...]:
        """Return what is read of the tables of a join, which becomes one table; note their places.

        A name that stands for another table, too, cannot be told apart.
        """
        around = [0, *(at + 1 for at in self._around(join.start))]
        stop = self.partner[around[-1] - 1] if around[-1] else len(self.tokens) - 1
        if any(unit.start == join.start for unit in self.units):
            return ()  # The tables are not seen behind MATCH_RECOGNIZE.
        found: list[Reference] = []
        for index in range(around[-1], stop):
            token = self.tokens[index]
            inside = join.start <= index <= join.close or any(index in one for one in clauses)
            if inside or not token.is_name or token.value.lower() not in join.names:
                continue
            if index and self.tokens[index - 1].key == ".":
                continue
            dot, column = self.tokens[index + 1 : index + 3] if index + 2 < stop else (token, token)
            if dot.key != "." or not (column.is_name or column.key == "*"):
                raise self._error(
                    f"'{token.value}' is a table of the join, and something else here",
                    index,
                    hint="give the tables of the join names of their own, such as orders AS o",
                    kind=UnsupportedError,
                )
            stands = f"{self.prefix}column_{len(self.written) + 1}"
            side = join.names.index(token.value.lower())
            every = column.key == "*"
            without, end = self._left_out(index + 3) if every else ((), index + 3)
            shown = self._is_output(index, end)
            last = self.tokens[end - 1]
            span = token.span.join(last.span)
            name = None if every else column.value
            found.append(Reference(stands, side, name, span, shown, without))
            self.written[token.start, last.end] = stands
        return tuple(found)

    def _left_out(self, index: int) -> tuple[tuple[Token, ...], int]:
        """Return the columns that EXCLUDE or EXCEPT leaves out behind `*`, and where it ends."""
        if self.tokens[index].key not in _LEAVE_OUT:
            return (), index
        opened = index + 1
        if self.tokens[opened].key != "(":
            return (self.tokens[opened],), opened + 1
        names = self.tokens[opened + 1 : self.partner[opened]]
        commas = all(one.key == "," for one in names[1::2])
        if not len(names) % 2 or not commas or not all(one.is_name for one in names[::2]):
            message = f"{self.tokens[index].key} has names of columns between commas"
            raise self._error(message, opened, hint="write p.* EXCLUDE (id, ts)")
        return tuple(names[::2]), self.partner[opened] + 1

    def _is_output(self, start: int, stop: int) -> bool:
        """Say whether some tokens are a column of the result of SELECT, as they are."""
        before, after = self.tokens[start - 1].key, self.tokens[stop].key
        if before not in ("SELECT", "DISTINCT", ",") or after not in (",", "FROM"):
            return False
        while start > 0:
            start -= 1
            key = self.tokens[start].key
            if key in _NOT_IN_FACTOR or key in ("FROM", "BY", "("):
                return key == "SELECT"
            if key == ")":
                start = self.partner[start]
        return False

    def _step(self, unit: _TableFactor) -> Step:
        query, places = self._query(unit)
        computed = [self._column(name, place) for name, place in places.items()]
        join = next((one for one in self.joins if one.start == unit.start), None)
        if join is not None:
            self._table(join, self._time(unit, query))
        factor = self._render(unit.start, unit.keyword)
        source = self._scoped(unit.start, _with_columns(computed, factor))
        lookups = tuple(self._lookup(node) for node in _subqueries(query))
        # Numbers go up as steps are added, after the steps that this one reads from.
        table = f"{self.prefix}{len(self.steps) + 1}"
        span = self.tokens[unit.keyword].span.join(self.tokens[unit.close].span)
        return Step(
            table,
            self._translated(source),
            query,
            span,
            lookups,
            computed=tuple(column for column, _ in computed),
            outside=tuple(self._outside(unit)),
        )

    def _outside(self, unit: _TableFactor) -> Iterator[tuple[str, Span]]:
        """Yield names in front of columns, in the input of a clause, that stand around it, too."""
        around = {
            token.value.lower()
            for index, token in enumerate(self.tokens)
            if token.is_name and not unit.start <= index <= unit.close
        }
        for index in range(unit.start, unit.keyword):
            token = self.tokens[index]
            qualifies = token.is_name and self.tokens[index + 1].key == "."
            if qualifies and self.tokens[index - 1].key != "." and token.value.lower() in around:
                yield token.value, token.span

    def _time(self, unit: _TableFactor, query: Query) -> Token | None:
        """Return the first column that a clause orders by, where it is written."""
        inside = self.tokens[unit.keyword : unit.close]
        named = {item.column.lower() for item in query.order[:1]}
        return next((one for one in inside if one.is_name and one.value.lower() in named), None)

    def _query(self, unit: _TableFactor) -> tuple[Query, dict[str, tuple[int, int]]]:
        """Read a clause; return also the columns that the database computes, and their tokens."""
        start = self.tokens[unit.keyword].start
        clause = self.text[start : self.tokens[unit.close].end]
        computed: dict[str, tuple[int, int]] = {}
        table = self._name_of(unit)

        def column(place: Span) -> str | None:
            tokens = self._tokens_of(place.start, place.end)
            first, *dotted = self.tokens[slice(*tokens)]
            if all(one.key == "." or one.is_name for one in dotted) and dotted[0].key == ".":
                own = first.value.lower() == table and len(dotted) == 2
                return dotted[1].value if own else None
            name = f"{self.prefix}key_{place.start}"
            computed[name] = tokens
            return name

        query = parse_match_recognize(
            clause,
            dialect=self.source.dialect,
            offset=start,
            whole=self.text,
            where="statement",
            name=self._alias(unit.close + 1) or "query",
            computed=column,
        )
        hidden = not query.outputs and query.rows is RowsPerMatch.ONE
        if hidden and query.partitions and set(query.partitions) <= computed.keys():
            # No column would be left of a match.
            shown = (("match_number", MatchNumber()), ("rows", Call("count", (Star(),))))
            query = replace(query, outputs=shown)
        return query, computed

    def _name_of(self, unit: _TableFactor) -> str | None:
        """Return the name that a clause's input is called by, in lower case, if it has one."""
        last = unit.keyword - 1
        if self.tokens[last].key == ")":
            last = self.partner[last] - 1  # A list of columns stands behind the name.
        named = last >= unit.start and self.tokens[last].is_name
        return self.tokens[last].value.lower() if named else None

    def _tokens_of(self, begin: int, end: int) -> tuple[int, int]:
        """Return the tokens of a part of the text, from and up to."""
        start = next(i for i, token in enumerate(self.tokens) if token.start >= begin)
        return start, next(i for i, token in enumerate(self.tokens) if token.start >= end)

    def _alias(self, index: int) -> str | None:
        token = self.tokens[index]
        if token.key == "AS":
            token = self.tokens[index + 1]
        elif token.key in _AFTER_FACTOR:
            return None
        return token.value if token.is_name else None

    def _lookup(self, node: Subquery) -> Lookup:
        assert node.span is not None, "parsed nodes know their place"
        begin = self.text.index(node.text, node.span.start)
        start, stop = self._tokens_of(begin, begin + len(node.text.rstrip()))
        query = self._scoped(start, self._render(start, stop))
        return Lookup(node, self._translated(query))

    def _scoped(self, index: int, query: Fragment) -> Fragment:
        """Put the common table expressions that are visible at a token in front of a query."""
        for tables in reversed(self._visible(index)):
            # An inner WITH may use a name of an outer one again, so each gets a level of its own.
            nested = self._first_key(query) in ("WITH", "VALUES", "(")
            inner = ("SELECT * FROM (", query, ")") if nested else (query,)
            query = Fragment.join((tables, " ", *inner))
        return query

    def _first_key(self, query: Fragment) -> str:
        words = query.text.split(None, 1)
        return "(" if query.text.startswith("(") else words[0].upper() if words else ""

    def _visible(self, index: int) -> list[Fragment]:
        """Return the WITH lists around a token, outermost first, up to the entries it can see."""
        groups = [0, *(at + 1 for at in self._around(index))]
        lists = []
        for begin in groups:
            for at in self._direct(begin, index):
                entries = self._entries(at, index)
                if entries:
                    lists.append(self._with(at, entries))
        return lists

    def _around(self, index: int) -> Iterator[int]:
        """Yield the parentheses that open before a token and close after it, outermost first."""
        for at in range(index):
            if self.tokens[at].key == "(" and self.partner[at] >= index:
                yield at

    def _direct(self, begin: int, stop: int) -> Iterator[int]:
        """Yield the places of WITH directly in a group, not in parentheses inside it."""
        at = begin
        while at < stop:
            if self.tokens[at].key == "WITH":
                yield at
            at = self.partner[at] if self.tokens[at].key == "(" else at + 1

    def _with(self, at: int, entries: list[tuple[int, int]]) -> Fragment:
        recursive = self.tokens[at + 1].key == "RECURSIVE"
        parts: list[str | Fragment] = ["WITH RECURSIVE " if recursive else "WITH "]
        for number, (start, stop) in enumerate(entries):
            parts.extend([", "] if number else [])
            parts.append(self._render(start, stop))
        return Fragment.join(parts)

    def _entries(self, at: int, index: int) -> list[tuple[int, int]]:
        """Return the entries of a WITH list that end before a token; none where it is no list."""
        entries: list[tuple[int, int]] = []
        recursive = self.tokens[at + 1].key == "RECURSIVE"
        start = at + 2 if recursive else at + 1
        while (body := self._body(start)) is not None:
            close = self.partner[body]
            if close >= index:
                if recursive and body < index:
                    self._refuse_recursion(start, index)
                break
            entries.append((start, close + 1))
            if self.tokens[close + 1].key != ",":
                break
            start = close + 2
        return entries

    def _body(self, start: int) -> int | None:
        """Return where the parentheses of an entry `name [(columns)] AS [hint] (` open."""
        if not self.tokens[start].is_name:
            return None
        at = start + 1
        if self.tokens[at].key == "(":
            at = self.partner[at] + 1
        if self.tokens[at].key != "AS":
            return None
        at += 1
        while self.tokens[at].key in ("NOT", "MATERIALIZED"):
            at += 1
        return at if self.tokens[at].key == "(" else None

    def _refuse_recursion(self, entry: int, index: int) -> None:
        unit = next(unit for unit in self.units if unit.start <= index <= unit.close)
        name = self.tokens[entry].value.lower()
        for at in range(unit.start, unit.keyword):
            if self.tokens[at].is_name and self.tokens[at].value.lower() == name:
                message = "MATCH_RECOGNIZE cannot take part in a recursion"
                raise self._error(message, at, kind=UnsupportedError)

    def _translated(self, fragment: Fragment) -> str:
        try:
            return translate(fragment.text, self.source.dialect, self.database)
        except OutpaceError as error:
            raise fragment.relocate(error, self.text) from error.__cause__

    def _error(
        self,
        message: str,
        index: int,
        *,
        hint: str | None = None,
        kind: type[OutpaceError] = PatternSyntaxError,
    ) -> OutpaceError:
        span = self.tokens[index].span
        return kind(message, span=span, text=self.text, where="statement", hint=hint)


def _with_columns(computed: Iterable[tuple[ComputedColumn, Fragment]], read: Fragment) -> Fragment:
    """Return the query that gives what a table has, and computed columns."""
    parts: list[str | Fragment] = ["SELECT *"]
    for column, text in computed:
        parts += [", ", text, f" AS {column.name}"]
    return Fragment.join((*parts, " FROM ", read))


def _listed(words: str, expressions: list[Fragment]) -> Iterator[str | Fragment]:
    """Yield the text of some words and expressions with commas between, if there are any."""
    for number, expression in enumerate(expressions):
        yield ", " if number else f"{words} "
        yield expression
    yield " "


def _one_statement(source: SourceText, tokens: list[Token]) -> list[Token]:
    """Drop the semicolons at the end; refuse an empty text and several statements."""
    last = len(tokens) - 1
    while last and tokens[last - 1].key == ";":
        last -= 1
    if not last:
        raise source.error("there is no statement", tokens[-1].span)
    for index in range(last):
        if tokens[index].key == ";":
            following = tokens[index + 1].span
            hint = "run them one after the other"
            raise source.error("only one statement at a time", following, hint=hint)
    end = tokens[last].start
    return [*tokens[:last], Token(TokenKind.END, "", "", end, end)]


def _partners(source: SourceText, tokens: list[Token]) -> dict[int, int]:
    """Return for each parenthesis the index of the one that it belongs to."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.key == "(":
            opened.append(index)
        elif token.key == ")":
            if not opened:
                raise source.error("there is no '(' for this ')'", token.span)
            partner[index] = opened[-1]
            partner[opened.pop()] = index
    if opened:
        raise source.error("this '(' is never closed", tokens[opened[-1]].span)
    return partner


def _subqueries(query: Query) -> Iterator[Subquery]:
    expressions: list[Expression] = [node for _, node in (*query.outputs, *query.definitions)]
    for root in expressions:
        yield from (node for node in walk(root) if isinstance(node, Subquery))
