"""JOIN … WITHIN in a statement: two tables joined by equal columns and by time.

    orders AS o LEFT JOIN payments AS p ON o.id = p.id
        WITHIN INTERVAL '5' MINUTE UNCERTAIN '50 ms' BETWEEN o.ts AND p.ts DISORDER SLACK '30 s'

UNCERTAIN and DISORDER may be left out; BETWEEN may where MATCH_RECOGNIZE follows, whose order tells
the time. The result is a table with the columns of `outpace.join`, in which `o.amount` is a column
that stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from outpace.errors import BindError, OutpaceError, Span, UnsupportedError, did_you_mean
from outpace.pattern.bind.join import BoundJoin
from outpace.pattern.disorder import Disorder
from outpace.pattern.join import SIDES, Join
from outpace.pattern.notation.disorder import read_disorder
from outpace.pattern.notation.lexer import SourceText, Token, TokenCursor
from outpace.pattern.notation.parse_windows import read_span
from outpace.pattern.query import JoinKind
from outpace.pattern.windows import WindowSpan as Duration

#: Words in front of JOIN, and what they mean; others are not supported.
_KINDS: Final = {
    (): JoinKind.INNER,
    ("INNER",): JoinKind.INNER,
    ("LEFT",): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
}
_KIND_WORDS: Final = frozenset(
    {"INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF"}
)
#: Before these there is no JOIN that a WITHIN belongs to.
_ELSEWHERE: Final = frozenset(
    {"SELECT", "FROM", "WHERE", "GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "LIMIT", ",", "("}
    | {"UNION", "INTERSECT", "EXCEPT", "MINUS", "SET", "INTO", "JOIN", "WITHIN"}
)
_HINT: Final = "write ON o.id = p.id AND o.site = p.site WITHIN INTERVAL '5' MINUTE"


#: A column of the left side and one of the right, as they are written.
ColumnPair: TypeAlias = tuple[Token, Token]


@dataclass(frozen=True)
class JoinClause:
    """A join in the tokens of a statement.

    Parameters
    ----------
    start, close
        The first token, and the last one.
    factors
        The tokens of the tables, from and up to.
    names
        What the tables are called, in lower case; None where one has no name.
    how, on, within, uncertain, times, disorder
        What it says: columns of the left and the right side, and of their times, if it says them.
    """

    start: int
    close: int
    factors: tuple[tuple[int, int], tuple[int, int]]
    names: tuple[str | None, str | None]
    how: JoinKind
    on: tuple[ColumnPair, ...]
    within: Duration
    uncertain: Duration | None
    times: ColumnPair | None
    disorder: Disorder | None


@dataclass(frozen=True)
class Reference:
    """A column of a side that the rest of the statement reads.

    Parameters
    ----------
    stands
        The name that stands for it in the text until the columns are known.
    side, column
        Which one; None for all columns of the side.
    span
        Where it is read.
    shown
        Whether it is a column of the result, which has the name that the side gives it.
    without
        Of all columns, those that EXCLUDE or EXCEPT leaves out, as they are written.
    """

    stands: str
    side: int
    column: str | None
    span: Span
    shown: bool
    without: tuple[Token, ...] = ()


class JoinReader:
    """Finds the joins of a statement.

    Parameters
    ----------
    source, tokens
        The statement.
    partner
        The parenthesis that each one belongs to.
    """

    def __init__(
        self, source: SourceText, tokens: Sequence[Token], partner: Mapping[int, int]
    ) -> None:
        self._source = source
        self._tokens = tokens
        self._partner = partner
        self._cursor = TokenCursor(source)

    def read(self, skipped: Callable[[int], bool]) -> Iterator[JoinClause]:
        """Yield the joins; tokens that are skipped belong to another clause."""
        for index, token in enumerate(self._tokens):
            grouped = token.key == "WITHIN" and self._tokens[index + 1].key == "GROUP"
            if token.key != "WITHIN" or grouped or skipped(index):
                continue
            condition = self._back(index, lambda key: key in ("ON", "USING"))
            if condition is not None:
                yield self._clause(condition, index)

    def _back(self, index: int, wanted: Callable[[str], bool]) -> int | None:
        """Return the last token before an index that is wanted, outside of parentheses."""
        while index > 0:
            index -= 1
            key = self._tokens[index].key
            if wanted(key):
                return index
            if key == ")":
                index = self._partner[index]
            elif key in _ELSEWHERE:
                return None
        return None

    def _clause(self, condition: int, within: int) -> JoinClause:
        join = self._back(condition, lambda key: key == "JOIN")
        if join is None:
            raise self._error("WITHIN belongs to a JOIN", within, hint=_HINT)
        words = join
        while self._tokens[words - 1].key in _KIND_WORDS:
            words -= 1
        how = _KINDS.get(tuple(token.key for token in self._tokens[words:join]))
        if how is None:
            said = " ".join(token.key for token in self._tokens[words : join + 1])
            raise self._error(
                f"{said} has no WITHIN", words, hint="use JOIN or LEFT JOIN", kind=UnsupportedError
            )
        before = self._back(words, lambda key: key in ("FROM", ",", "(", "JOIN"))
        start = 0 if before is None else before + 1
        if before is None or self._tokens[before].key == "JOIN":
            raise self._error(
                "a join with WITHIN takes two tables, not a join",
                start,
                hint="put the first join into a subquery: FROM (SELECT ...) AS o JOIN ...",
                kind=UnsupportedError,
            )
        factors = (start, words), (join + 1, condition)
        names = self._name(*factors[0]), self._name(*factors[1])
        cursor = self._cursor
        on = self._condition(condition, within, names)
        cursor.index = within + 1
        duration = read_span(cursor)
        uncertain = read_span(cursor) if cursor.accept("UNCERTAIN") else None
        times = None
        if cursor.accept("BETWEEN"):
            first = self._column(names)
            cursor.expect("AND")
            times = self._pair(first, self._column(names), names)
        disorder = read_disorder(cursor) if cursor.accept("DISORDER") else None
        close = cursor.index - 1
        if self._tokens[start - 1].key == "(" and self._tokens[close + 1].key == ")":
            start, close = start - 1, close + 1
        return JoinClause(
            start, close, factors, names, how, on, duration, uncertain, times, disorder
        )

    def _name(self, start: int, stop: int) -> str | None:
        last = self._tokens[stop - 1]
        return last.value.lower() if last.is_name and stop > start else None

    def _condition(
        self, start: int, stop: int, names: tuple[str | None, str | None]
    ) -> tuple[ColumnPair, ...]:
        cursor = self._cursor
        cursor.index = start + 1
        pairs: list[ColumnPair] = []
        if self._tokens[start].key == "USING":
            cursor.expect("(")
            while not pairs or cursor.accept(","):
                name = cursor.expect_name("a column")
                pairs.append((name, name))
            cursor.expect(")")
        else:
            while not pairs or cursor.accept("AND"):
                first = self._column(names)
                if not cursor.accept("="):
                    raise cursor.unexpected("'=' and a column of the other table", hint=_HINT)
                pairs.append(self._pair(first, self._column(names), names))
        if cursor.index != stop:
            raise cursor.unexpected("AND, or WITHIN behind equal columns", hint=_HINT)
        return tuple(pairs)

    def _column(self, names: tuple[str | None, str | None]) -> tuple[int, Token]:
        """Read a column with the name of its table; return the side, and the column."""
        cursor = self._cursor
        table = cursor.expect_name("a column with the name of its table, such as o.id")
        if table.value.lower() not in names:
            known = [name for name in names if name is not None]
            raise cursor.error(
                f"'{table.value}' is none of the tables of the join",
                table.span,
                hint=did_you_mean(table.value, known) or _HINT,
            )
        cursor.expect(".")
        return names.index(table.value.lower()), cursor.expect_name("a column")

    def _pair(
        self, first: tuple[int, Token], second: tuple[int, Token], names: tuple[str | None, ...]
    ) -> ColumnPair:
        if first[0] == second[0]:
            raise self._cursor.error(
                f"both are columns of '{names[first[0]]}'",
                second[1].span,
                hint="one is of the left table, the other of the right one",
            )
        left, right = (first, second) if first[0] == 0 else (second, first)
        return left[1], right[1]

    def _error(
        self, message: str, index: int, *, hint: str, kind: type[OutpaceError] | None = None
    ) -> OutpaceError:
        span = self._tokens[index].span
        if kind is not None:
            return kind(message, span=span, text=self._source.text, where="statement", hint=hint)
        return self._source.error(message, span, hint=hint)


@dataclass(frozen=True)
class JoinedTables:
    """What a host has to do for a join.

    Parameters
    ----------
    right
        The query that gives the rows of the right side.
    join
        What to do, by the names of the left side's columns.
    renamed
        For columns of the right side, in lower case, the names that they have on the left side.
    compared
        The columns of both sides that it names.
    references
        What the rest of the statement reads.
    """

    right: str
    join: Join
    renamed: Mapping[str, str]
    compared: tuple[ColumnPair, ...]
    references: tuple[Reference, ...]

    def right_names(self, others: Sequence[str], names: Sequence[str]) -> list[str]:
        """Return the names that the columns of the right side are to have; `others` has the left.

        One that has the name of another joined column makes room for that.

        Raises
        ------
        BindError
            A side does not have a column that the join names.
        """
        for pair in self.compared:
            for side, (column, known) in enumerate(zip(pair, (others, names), strict=True)):
                if column.value.lower() not in {name.lower() for name in known}:
                    raise _no_column(column.value, side, known, column.span)
        given: list[str] = []
        free = [name for name in names if name.lower() not in self.renamed]
        for name in names:
            left = self.renamed.get(name.lower())
            taken = [*self.renamed.values(), *given, *(one for one in free if one != name)]
            given.append(_free(name, taken) if left is None else left)
        return given

    def expanded(
        self, bound: BoundJoin, right: Sequence[str], table: str, quoted: Callable[[str], str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return what references mean in the text, and the keys that are wanted of the right side.

        These are columns that the result gets beside its own, by their names: that of a key which
        is NULL where there is no partner. The columns of the right side are known by the names that
        they had.
        """
        texts: dict[str, str] = {}
        keys: dict[str, str] = {}
        for reference in self.references:
            names = []
            for column, own in self._columns(bound, right, reference):
                # The time and the sequence number have two names, the last is the side's own.
                named = {given: name for name, given in bound.columns[reference.side].items()}
                name = named[column]
                if name in bound.query.partitions and reference.side and self._lonely:
                    key, name = name, _free(own, [*bound.schema.names, *keys])
                    keys[name] = key
                alias = f" AS {quoted(own)}" if reference.shown else ""
                names.append(f"{table}.{quoted(name)}{alias}")
            texts[reference.stands] = ", ".join(names)
        return texts, keys

    @property
    def _lonely(self) -> bool:
        return self.join.how is JoinKind.LEFT

    def _columns(
        self, bound: BoundJoin, right: Sequence[str], reference: Reference
    ) -> list[tuple[str, str]]:
        """Return the columns of a side that are meant, each with the name that the user knows."""
        columns = bound.schemas[reference.side].names
        known = right if reference.side else columns
        pairs = list(zip(columns, known, strict=True))
        if reference.column is None:
            for one in reference.without:
                if one.value.lower() not in {own.lower() for own in known}:
                    raise _no_column(one.value, reference.side, known, one.span)
            left_out = {one.value.lower() for one in reference.without}
            left = [pair for pair in pairs if pair[1].lower() not in left_out]
            if not left:
                raise BindError(
                    f"no column of the {SIDES[reference.side]} side is left", span=reference.span
                )
            return left
        wanted = reference.column.lower()
        found = [(column, reference.column) for column, own in pairs if own.lower() == wanted]
        if not found:
            raise _no_column(reference.column, reference.side, known, reference.span)
        return found[:1]


def _no_column(name: str, side: int, known: Sequence[str], span: Span) -> BindError:
    return BindError(
        f"the {SIDES[side]} side has no column '{name}'",
        span=span,
        hint=did_you_mean(name, known) or f"it has {', '.join(known)}",
    )


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that no other column has, in whatever case."""
    known = {one.lower() for one in taken}
    while name.lower() in known:
        name += f"_{SIDES[1]}"
    return name


def filled(text: str, texts: Mapping[str, str]) -> str:
    """Put what references mean in the place of the names that stand for them."""
    if not texts:
        return text
    names = "|".join(map(re.escape, texts))
    return re.sub(rf"[\"`]?\b({names})\b[\"`]?", lambda found: texts[found[1]], text)
