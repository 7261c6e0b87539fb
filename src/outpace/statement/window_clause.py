"""Row patterns in the WINDOW clause: what MATCH_RECOGNIZE finds, said of each row of a SELECT.

    SELECT id, low OVER w, max(price) OVER w FROM ticks
    WINDOW w AS (PARTITION BY symbol ORDER BY ts MEASURES LAST(DOWN.price) AS low
                 ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
                 AFTER MATCH SKIP PAST LAST ROW INITIAL
                 PATTERN (STRT DOWN+ UP+) DEFINE ...)

What stands between FROM and the end of WHERE becomes a table with a column for each measure and
each function over a matched frame; `low OVER w` becomes the name of such a column. Windows without
a pattern are left to the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from outpace.errors import OutpaceError, PatternSyntaxError, Span, UnsupportedError
from outpace.pattern.expression import Call, Expression, Literal, Name, Navigate, transform
from outpace.pattern.notation.lexer import SourceText, Token, TokenCursor
from outpace.pattern.notation.parse_expression import read_expression
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.query import Query

#: What ends the tables of a SELECT and their condition.
_AFTER_WHERE: Final = frozenset(
    {"GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH"}
    | {"UNION", "INTERSECT", "EXCEPT", "MINUS", ")"}
)
_AFTER_QUALIFY: Final = _AFTER_WHERE - {"QUALIFY", "WINDOW"}
#: Functions that know the partition and not the frame.
_OF_PARTITIONS: Final = frozenset(
    {"ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE", "LAG", "LEAD"}
)
#: Functions that are 0 over a frame without rows.
_COUNTS: Final = frozenset({"COUNT", "COUNT_IF", "COUNTIF", "APPROX_DISTINCT"})
_FRAME_UNITS: Final = frozenset({"ROWS", "RANGE", "GROUPS"})
_FRAME_HINT: Final = "write ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"


@dataclass(eq=False, slots=True)
class RowWindow:
    """A window with a pattern, as it is written.

    Parameters
    ----------
    span
        Its parentheses in the statement.
    partitions, order
        The expressions, as indices of tokens from and up to.
    after
        The tokens that say how many rows follow in a frame; None for all.
    seek
        Whether a match may begin behind the first row of its frame.
    clause
        The pattern, with its measures.
    columns
        What the SELECT reads: the names of columns, and their measures; it grows as it is read.
    """

    span: Span
    partitions: tuple[tuple[int, int], ...]
    order: tuple[tuple[int, int], ...]
    after: tuple[int, int] | None
    seek: bool
    clause: Query
    columns: dict[str, Expression] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class WindowedSelect:
    """What a SELECT with such windows reads.

    Parameters
    ----------
    start, close
        The tokens of FROM and of the end of WHERE.
    factor, condition
        The tokens of the table, and those of WHERE with its condition, from and up to.
    alias
        The token that the table is called by, if it has a name.
    windows
        Those with a pattern that the SELECT uses.
    """

    start: int
    close: int
    factor: tuple[int, int]
    condition: tuple[int, int]
    alias: Token | None
    windows: list[RowWindow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """What a host makes of the matches of a window's step.

    Parameters
    ----------
    row
        The column with the number of a row: in its partition on Spark, in all rows elsewhere.
    partitions
        The columns that tell partitions.
    measures
        The columns that rows get.
    """

    row: str
    partitions: tuple[str, ...]
    measures: tuple[str, ...]

    @property
    def row_of(self) -> str:
        """The measure that says whose match it is; NULL for an empty one, which is a row itself."""
        return f"{self.row}_of"


class WindowReader:
    """Finds the windows with patterns in a statement.

    Parameters
    ----------
    source, tokens
        The statement.
    partner
        The parenthesis that each one belongs to.
    prefix
        What the names of new columns begin with.
    """

    def __init__(
        self,
        source: SourceText,
        tokens: Sequence[Token],
        partner: Mapping[int, int],
        prefix: str,
    ) -> None:
        self._source = source
        self._tokens = tokens
        self._partner = partner
        self._prefix = prefix
        self._clauses = dict(self._definitions())
        #: Where the windows of a SELECT open, by their names.
        self._named = {
            (self._select(clause), self._tokens[one - 2].value.lower()): one
            for clause, opened in self._clauses.items()
            for one in opened
        }
        self._selects: dict[int, WindowedSelect] = {}
        self._windows: dict[int, RowWindow] = {}
        #: What is written in the place of some text of the statement, by where it begins and ends.
        self.written: dict[tuple[int, int], str] = {}

    def read(self) -> list[WindowedSelect]:
        """Return what becomes a table, and note what is written in the place of what reads it."""
        for index, token in enumerate(self._tokens[:-2]):
            if token.key == "OVER" and (opened := self._pattern_of(index)) is not None:
                self._replace(index, opened)
        for clause in self._clauses:
            self._leave_patterns_out(clause)
        for select in self._selects.values():
            self._hide_columns(select)
            self._filter(select)
        return [*self._selects.values()]

    def _definitions(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the WINDOW clauses, and where the parentheses of their windows open."""
        for index, token in enumerate(self._tokens[:-4]):
            found = []
            at = index + 1
            while token.key == "WINDOW" and self._key(at + 1) == "AS" and self._key(at + 2) == "(":
                found.append(at + 2)
                at = self._partner[at + 2] + 2
                if self._key(at - 1) != ",":
                    break
            if found:
                yield index, found

    def _key(self, index: int) -> str:
        return self._tokens[index].key if index < len(self._tokens) else ""

    def _select(self, index: int) -> int:
        """Return the SELECT that a token belongs to, or -1."""
        while index > 0:
            index -= 1
            if self._key(index) == ")":
                index = self._partner[index]
            elif self._key(index) == "SELECT":
                return index
        return -1

    def _pattern_of(self, over: int) -> int | None:
        """Return where the window of an OVER opens if it has a pattern."""
        if self._key(over + 1) == "(":
            opened = over + 1
            only = self._tokens[opened + 1]
            if self._partner[opened] != opened + 2:
                return opened if self._has_pattern(opened) else None
        else:
            only = self._tokens[over + 1]
        named = self._named.get((self._select(over), only.value.lower())) if only.is_name else None
        return named if named is not None and self._has_pattern(named) else None

    def _has_pattern(self, opened: int) -> bool:
        return any(
            self._key(at) == "PATTERN" and self._key(at + 1) == "(" for at in self._inside(opened)
        )

    def _inside(self, opened: int) -> Iterator[int]:
        """Yield the tokens directly in parentheses."""
        yield from self._direct(opened + 1, self._partner[opened])

    def _direct(self, start: int, stop: int) -> Iterator[int]:
        at = start
        while at < stop:
            yield at
            at = self._partner[at] if self._key(at) == "(" else at
            at += 1

    def _replace(self, over: int, opened: int) -> None:
        """Write a column in the place of a measure or a function over a window."""
        select = self._select(over)
        end = self._partner[over + 1] if self._key(over + 1) == "(" else over + 1
        start = over - 1
        if self._key(start) == ")":
            start = self._partner[start] - 1
        if self._key(start) == "FILTER" and self._key(start - 1) == ")":
            start = self._partner[start - 1] - 1
        if select < 0 or not self._tokens[start].is_name:
            raise self._error("OVER stands behind a measure of the window, or a function", over)
        key = self._key(start)
        begin, stop = self._tokens[start].start, self._tokens[end].end
        window = self._window(opened, select)
        if key in _OF_PARTITIONS and start < over - 1:
            place = self._tokens[over].start, stop
            self.written[place] = f"OVER ({self._partitioned(window)})"
            return
        known = self._windowed(select)
        if window not in known.windows:
            known.windows.append(window)
        node = self._measure(window, start, over, known)
        column = next((name for name, one in window.columns.items() if one == node), None)
        if column is None:
            column = f"{self._prefix}column_{begin}"
            window.columns[column] = node
        text = f"coalesce({column}, 0)" if key in _COUNTS and start < over - 1 else column
        shown = self._key(start - 1) in ("SELECT", "DISTINCT", "ALL", ",")
        if shown and self._key(end + 1) in (",", "FROM") and start < known.start:
            first = self._tokens[start]
            text = f"{text} AS {self._source.text[first.start : first.end]}"
        self.written[begin, stop] = text

    def _partitioned(self, window: RowWindow) -> str:
        """Return the text of a window's partitions and order."""
        by = ", ".join(self._text(*one) for one in window.partitions)
        order = ", ".join(self._text(*one) for one in window.order)
        return " ".join(
            f"{words} BY {text}" for words, text in (("PARTITION", by), ("ORDER", order)) if text
        )

    def _text(self, start: int, stop: int) -> str:
        return self._source.text[self._tokens[start].start : self._tokens[stop - 1].end]

    def _measure(
        self, window: RowWindow, start: int, over: int, select: WindowedSelect
    ) -> Expression:
        token = self._tokens[start]
        if start == over - 1:
            named = dict(window.clause.outputs)
            found = next((name for name in named if name.lower() == token.value.lower()), None)
            if found is None:
                hint = f"its measures are {', '.join(named)}" if named else "it has no MEASURES"
                raise self._error(f"the window has no measure '{token.value}'", start, hint=hint)
            return named[found]
        text = self._source.text[token.start : self._tokens[over - 1].end]
        whole, dialect = self._source.text, self._source.dialect
        cursor = TokenCursor(SourceText(text, "statement", token.start, whole, dialect))
        node = read_expression(cursor)
        cursor.expect_end()
        alias = select.alias.value.lower() if select.alias is not None else None

        def plain(part: Expression) -> Expression:
            if isinstance(part, Name) and len(part.parts) > 1 and part.parts[0].lower() == alias:
                return replace(part, parts=part.parts[1:])
            return part

        return _of_frame(transform(node, plain))

    def _windowed(self, select: int) -> WindowedSelect:
        """Return what a SELECT reads, found out once."""
        if select not in self._selects:
            self._selects[select] = self._reads(select)
        return self._selects[select]

    def _reads(self, select: int) -> WindowedSelect:
        stop = len(self._tokens) - 1
        direct = list(self._direct(select, stop))
        start = next((at for at in direct if self._key(at) == "FROM"), None)
        if start is None:
            raise self._error("a window with a pattern needs FROM", select)
        end = next((at for at in direct if at > start and self._key(at) in _AFTER_WHERE), stop)
        inside = [at for at in direct if start < at < end]
        where = next((at for at in inside if self._key(at) == "WHERE"), end)
        for at in inside:
            comma = self._key(at) == "," and self._key(start + 1) != "VALUES"
            if at < where and (self._key(at) == "JOIN" or comma):
                message = "a window with a pattern takes the rows of one table"
                hint = "FROM (SELECT ... FROM a JOIN b ON ...) AS t"
                raise self._error(message, at, hint=hint, kind=UnsupportedError)
        if self._key(end) in ("GROUP", "HAVING"):
            message = "a window with a pattern does not go with groups"
            hint = "FROM (SELECT ... GROUP BY ...) AS t"
            raise self._error(message, end, hint=hint, kind=UnsupportedError)
        alias = self._alias(start + 1, where)
        return WindowedSelect(start, end - 1, (start + 1, where), (where, end), alias)

    def _alias(self, start: int, stop: int) -> Token | None:
        """Return the name of a table."""
        last = stop - 1
        if self._key(last) == ")" and self._partner[last] > start:
            last = self._partner[last] - 1
            if last == start:
                return None  # It is a function that gives a table.
        token = self._tokens[last]
        return token if token.is_name and last >= start else None

    def _window(self, opened: int, select: int) -> RowWindow:
        """Return a window, read once."""
        if opened not in self._windows:
            self._windows[opened] = self._read_window(opened, select)
        return self._windows[opened]

    def _read_window(self, opened: int, select: int) -> RowWindow:
        close = self._partner[opened]
        inside = list(self._inside(opened))
        frame = self._frame(inside)
        if frame is None:
            raise self._error("a window with a pattern needs a frame", opened, hint=_FRAME_HINT)
        begin, end, after = frame
        taken = [range(begin, end)]
        partitions: tuple[tuple[int, int], ...] = ()
        order: tuple[tuple[int, int], ...] = ()
        first = inside[0]
        if self._tokens[first].is_name and self._is_base(first, begin):
            base = self._named.get((select, self._tokens[first].value.lower()))
            if base is None:
                raise self._error(f"there is no window '{self._tokens[first].value}'", first)
            if self._has_pattern(base):
                raise self._error("a window cannot be based on one with a pattern", first)
            taken.append(range(first, first + 1))
            within = list(self._inside(base))
            partitions, order, _ = self._lists(within, self._partner[base])
        partitions_here, order_here, lists = self._lists(inside, close)
        taken += lists
        for at in inside:
            if self._key(at) == "SEEK" and self._key(at + 1) == "PATTERN":
                taken.append(range(at, at + 1))
            if self._key(at) in ("ONE", "ALL") and self._key(at + 2) == "PER":
                raise self._error(f"{self._key(at)} ... PER MATCH does not stand in a window", at)
        span = Span(self._tokens[opened].start, self._tokens[close].end)
        seek = any(self._key(one.start) == "SEEK" for one in taken)
        clause = self._clause(opened, taken)
        return RowWindow(
            span, partitions_here or partitions, order_here or order, after, seek, clause
        )

    def _is_base(self, first: int, frame: int) -> bool:
        """Whether a window begins with the name of another one."""
        following = self._key(first + 1)
        begins = first + 1 == frame or following in ("PARTITION", "ORDER", "MEASURES")
        return begins and self._key(first) not in ("PARTITION", "ORDER", "MEASURES")

    def _frame(self, inside: Sequence[int]) -> tuple[int, int, tuple[int, int] | None] | None:
        """Return the tokens of a frame from and up to, and of what follows in it."""
        for at in inside:
            following = self._key(at + 1)
            if self._key(at) not in _FRAME_UNITS or following not in (
                "BETWEEN",
                "CURRENT",
                "UNBOUNDED",
            ):
                continue
            if following == "BETWEEN" and self._key(at - 1) in (
                "MEASURES",
                ",",
                "AND",
                "OR",
                "NOT",
            ):
                continue  # A column of that name.
            words = [self._key(at + ahead) for ahead in range(5)]
            end = next((one for one in inside if one > at and self._key(one) == "FOLLOWING"), None)
            if words != ["ROWS", "BETWEEN", "CURRENT", "ROW", "AND"] or end is None:
                message = (
                    "the frame of a window with a pattern is a number of rows from the present one"
                )
                raise self._error(message, at, hint=_FRAME_HINT, kind=UnsupportedError)
            if self._key(end + 1) == "EXCLUDE":
                message = "EXCLUDE does not go with a pattern"
                raise self._error(message, end + 1, kind=UnsupportedError)
            unbounded = self._key(at + 5) == "UNBOUNDED" and end == at + 6
            return at, end + 1, None if unbounded else (at + 5, end)
        return None

    def _lists(
        self, inside: Sequence[int], close: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], list[range]]:
        """Return the expressions of PARTITION BY and ORDER BY, and the tokens of both."""
        partitions: tuple[tuple[int, int], ...] = ()
        order: tuple[tuple[int, int], ...] = ()
        taken = []
        for at in inside:
            key = self._key(at)
            if key not in ("PARTITION", "ORDER") or self._key(at + 1) != "BY":
                continue
            stop = next((one for one in inside if one > at + 1 and self._ends_list(one)), close)
            items = list(self._items(at + 2, stop))
            taken.append(range(at, stop))
            if key == "PARTITION":
                partitions = tuple(items)
            else:
                order = tuple(items)
        return partitions, order, taken

    def _ends_list(self, at: int) -> bool:
        key, following = self._key(at), self._key(at + 1)
        return (
            key in ("MEASURES", "INITIAL", "SEEK", "AFTER")
            or (key in ("ORDER", "PARTITION") and following == "BY")
            or (key == "PATTERN" and following == "(")
            or (key in _FRAME_UNITS and following in ("BETWEEN", "CURRENT", "UNBOUNDED"))
        )

    def _items(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the tokens between commas."""
        for at in self._direct(start, stop):
            if self._key(at) == ",":
                yield start, at
                start = at + 1
        yield start, stop

    def _clause(self, opened: int, taken: Sequence[range]) -> Query:
        """Read the pattern; what was read of the window already is blank in its text."""
        start, end = self._tokens[opened].end, self._tokens[self._partner[opened]].start
        text = self._source.text[start:end]
        for one in taken:
            begin, stop = (
                self._tokens[one.start].start - start,
                self._tokens[one.stop - 1].end - start,
            )
            text = text[:begin] + " " * (stop - begin) + text[stop:]
        query = parse_match_recognize(
            text,
            dialect=self._source.dialect,
            offset=start,
            whole=self._source.text,
            where="statement",
            name="window",
        )
        plain = Query(
            query.name,
            tree=query.tree,
            definitions=query.definitions,
            subsets=query.subsets,
            outputs=query.outputs,
            skip=query.skip,
        )
        if query != plain:
            message = "a window has MEASURES, AFTER MATCH, PATTERN, SUBSET and DEFINE alone"
            raise self._error(message, opened, kind=UnsupportedError)
        return query

    def _leave_patterns_out(self, clause: int) -> None:
        """Write a WINDOW clause without the windows that have a pattern."""
        opened = self._clauses[clause]
        kept = [one for one in opened if not self._has_pattern(one)]
        if len(kept) < len(opened):
            texts = [self._text(one - 2, self._partner[one] + 1) for one in kept]
            place = self._tokens[clause].start, self._tokens[self._partner[opened[-1]]].end
            self.written[place] = f"WINDOW {', '.join(texts)}" if texts else ""

    def _hide_columns(self, select: WindowedSelect) -> None:
        """Leave the new columns out of `*`."""
        begin = self._select(select.start)
        names = ", ".join(name for window in select.windows for name in window.columns)
        for at in self._direct(begin, select.start):
            if self._key(at) != "*" or self._key(at - 1) not in (
                "SELECT",
                "DISTINCT",
                "ALL",
                ",",
                ".",
            ):
                continue
            word = self._key(at + 1)
            if word in ("EXCLUDE", "EXCEPT") and self._key(at + 2) == "(":
                place = self._tokens[at + 2].end
                self.written[place, place] = f"{names}, "
            else:
                word = "EXCEPT" if self._source.dialect in ("spark", "databricks") else "EXCLUDE"
                place = self._tokens[at].end
                self.written[place, place] = f" {word} ({names})"

    def _filter(self, select: WindowedSelect) -> None:
        """Write WHERE for a QUALIFY that reads columns alone by now."""
        stop = len(self._tokens) - 1
        behind = list(self._direct(select.close + 1, stop))
        end = next((at for at in behind if self._key(at) in _AFTER_QUALIFY), stop)
        at = next((at for at in behind if at < end and self._key(at) == "QUALIFY"), None)
        if at is None:
            return
        first = self._select(select.start)
        named = (one for (begin, _), one in self._named.items() if begin == first)
        others = (self._tokens[one].start for one in range(at, end) if self._key(one) == "OVER")
        read = all(any(a <= one < b for a, b in self.written) for one in others)
        if read and all(self._has_pattern(one) for one in named):
            self.written[self._tokens[at].start, self._tokens[at].end] = "WHERE"

    def _error(
        self,
        message: str,
        index: int,
        *,
        hint: str | None = None,
        kind: type[OutpaceError] = PatternSyntaxError,
    ) -> OutpaceError:
        span = self._tokens[index].span
        return kind(message, span=span, text=self._source.text, where="statement", hint=hint)


def _of_frame(node: Expression) -> Expression:
    """Return a function over the rows of a frame as a measure."""
    if isinstance(node, Call) and node.arguments:
        kind = {"first_value": "first", "nth_value": "first", "last_value": "last"}.get(node.name)
        if kind is not None:
            offset = None
            if node.name == "nth_value" and len(node.arguments) == 2:
                nth = node.arguments[1]
                if not isinstance(nth, Literal) or not isinstance(nth.value, int) or nth.value < 1:
                    message = "nth_value counts rows from 1"
                    raise PatternSyntaxError(message, span=nth.span)
                offset = nth.value - 1
            return Navigate("first" if kind == "first" else "last", node.arguments[0], offset)
    return node
