"""The query: one immutable value that says what to detect and what to return.

Every method returns a new query. Text is parsed at once, so that a mistake shows where it is made;
names are resolved later, when the query meets a schema.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from outpace.errors import BindError, UnsupportedError
from outpace.pattern import ast
from outpace.pattern.argument import (
    a_duration,
    a_flag,
    a_text,
    a_whole_number,
    an_instance,
    one_of,
    several,
    shown,
    some_names,
)
from outpace.pattern.expression import Expression

if TYPE_CHECKING:
    # What most queries do without is loaded when it is used.
    from outpace.pattern.builder import Fluent, Steps
    from outpace.pattern.disorder import Disorder
    from outpace.pattern.node import Node
    from outpace.pattern.operator import Operator
    from outpace.pattern.schedulers import Scheduler
    from outpace.pattern.windows import WindowSpan, WindowSpec


class RowsPerMatch(Enum):
    """What a match becomes in the output."""

    ONE = "one row per match"
    ALL_SHOW_EMPTY = "all rows per match show empty matches"
    ALL_OMIT_EMPTY = "all rows per match omit empty matches"
    ALL_WITH_UNMATCHED = "all rows per match with unmatched rows"


class Skip(Enum):
    """Where the search goes on after a match."""

    NONE = "none"
    """Every start is tried and nothing is dropped (Flink's noSkip)."""
    TO_NEXT_ROW = "to next row"
    PAST_LAST_ROW = "past last row"
    TO_FIRST = "to first"
    TO_LAST = "to last"


class Selection(Enum):
    """Which of the matches with the same first event are meant."""

    PREFERRED = "preferred"
    """The one that the pattern's order of preference puts first (SQL)."""
    ALL = "all"
    """Every one (Flink)."""


class Consume(Enum):
    """Which events of a match later matches may not use."""

    NONE = "none"
    SELECTED = "selected"
    """The events of the match."""
    ALL = "all"
    """Every event from the first to the last of the match."""


class Per(Enum):
    """What a LIMIT counts."""

    START = "start"
    """Matches with the same first event."""
    PARTITION = "partition"


class WithinKind(Enum):
    """Between which events WITHIN measures."""

    FIRST_TO_LAST = "first to last"
    PREVIOUS_TO_CURRENT = "previous to current"


class JoinKind(Enum):
    """What becomes of the rows of the left side that have no partner."""

    INNER = "inner"
    """They do not come out."""
    LEFT = "left"
    """They come out alone."""


class Emission(Enum):
    """Which rows come out of a stream whose matches may be taken back."""

    CHANGES = "changes"
    """All that happens to matches: they come, are taken back, are confirmed."""
    CONFIRMED = "confirmed"
    """Matches that nothing takes back any more, each once."""
    LATEST = "latest"
    """What a table of the present matches needs: those that are new or changed, and that go."""


@dataclass(frozen=True, slots=True)
class AfterMatch:
    """AFTER MATCH SKIP: where to, which variable, and whether a missing variable is an error.

    In SQL a target that is not in the match, or is its first row, is an error; the fluent API takes
    the next row instead unless `strict`.
    """

    skip: Skip
    variable: str | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """WITHIN: exclusive, `last.ts - first.ts < duration`.

    An integer counts in units of an integer time column; a timedelta goes with a timestamp.
    """

    duration: datetime.timedelta | int
    kind: WithinKind = WithinKind.FIRST_TO_LAST


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How far apart two events may be that may have happened in another order.

    Parameters
    ----------
    bound
        The time between them at most; an integer counts in units of an integer time column.
    source
        The column that names the source of an event: those of one source are in order.
    measured
        Whether the clocks of sources count as they were measured, where that is better.
    """

    bound: datetime.timedelta | int
    source: str | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `count` matches per start or per partition."""

    count: int
    per: Per = Per.START


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A column of ORDER BY; `nulls_first` None means the default: nulls last."""

    column: str
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class Clauses:
    """All parts of a query as plain data; `Query` adds the fluent methods."""

    name: str = "query"
    partitions: tuple[str, ...] = ()
    order: tuple[OrderItem, ...] = ()
    tree: ast.Pattern | None = None
    definitions: tuple[tuple[str, Expression], ...] = ()
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    outputs: tuple[tuple[str, Expression], ...] = ()
    rows: RowsPerMatch = RowsPerMatch.ONE
    skip: AfterMatch | None = None
    bound: Within | None = None
    selection: Selection | None = None
    consumption: Consume = Consume.NONE
    limits: tuple[Limit, ...] = ()
    uncertainty: Uncertainty | None = None
    #: The variables L and R are the sides of a join; see `outpace.pattern.join`.
    join: JoinKind | None = None
    operator: Callable[[], Operator] | None = None
    windows: WindowSpec | None = None
    #: By how much the places of events in windows are uncertain.
    drift: WindowSpan | None = None
    duplicates: bool = False
    numbered: bool = False
    instance_count: int = 1
    scheduler: Scheduler | None = None
    order_of_arrival: Disorder | None = None
    emission: Emission = Emission.CHANGES
    #: Definitions of variables that an earlier pattern had and the present one has not.
    set_aside: tuple[tuple[str, Expression], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        a_text(self.name, "the name of a query", hint='write op.Query("name")')


@dataclass(frozen=True, slots=True, repr=False)
class Query(Clauses):
    """A query, built step by step; each method returns a new one.

    Parameters
    ----------
    name
        What results, errors and metrics call the query.
    partitions, order, tree, definitions, subsets, outputs, set_aside
        What `partition_by`, `order_by`, `pattern`, `define`, `subset` and `measures` set: write a
        query with them, not with these.
    rows, skip, bound, selection, consumption, limits
        The same, by `all_rows_per_match`, `skip_to_next_row` and its like, `within`, `select`,
        `consume` and `limit`.
    windows, drift, duplicates, numbered, operator, instance_count, scheduler
        The same, by `over`, `apply` and `instances`.
    uncertainty, order_of_arrival, emission, join
        The same, by `uncertain`, `disorder`, `emit`, and `outpace.join`.

    Examples
    --------
    >>> dip = (Query("dip").partition_by("symbol").order_by("ts")
    ...        .pattern("STRT DOWN+ UP+")
    ...        .define(DOWN="price < PREV(price)", UP="price > PREV(price)")
    ...        .measures(bottom="LAST(DOWN.price)", ticks="COUNT(*)")
    ...        .within("1 hour"))
    >>> dip.partitions
    ('symbol',)
    """

    def of(self, *inputs: str | list[str] | tuple[str, ...]) -> Node:
        """Say what the query reads in a graph: sources, or other queries by their names there.

        Names are given one by one or in one list. See `outpace.graph`.

        Parameters
        ----------
        inputs
            The names.
        """
        from outpace.pattern.node import Node

        names = several(inputs)
        if not names:
            raise BindError("what a query reads has a name", hint='write query.of("falls")')
        return Node(self, names)

    def partition_by(self, *columns: str | list[str] | tuple[str, ...]) -> Query:
        """Match each group of rows with equal values in these columns on its own.

        Columns are named one by one or in one list.

        Parameters
        ----------
        *columns
            The names of the columns.
        """
        hint = 'write partition_by("symbol")'
        names = tuple(
            a_text(name, "a column of partition by", hint=hint) for name in several(columns)
        )
        return replace(self, partitions=names)

    def order_by(
        self, *columns: str | OrderItem | list[str | OrderItem] | tuple[str | OrderItem, ...]
    ) -> Query:
        """Set the order of events; the first column is the event time that WITHIN measures.

        A column name may end in `desc` or `asc`, and in `nulls first` or `nulls last`; one with
        spaces in it goes into double quotes or backticks. Columns are named one by one or in one
        list.

        Parameters
        ----------
        *columns
            The names of the columns, each maybe with a direction.
        """
        return replace(self, order=tuple(_order_item(column) for column in several(columns)))

    def pattern(self, pattern: str | ast.Pattern | Steps) -> Query:
        """Set the pattern, as text, as a tree, or from the builder (`step("A").then("B")`).

        A pattern that takes the place of another one keeps the definitions of the variables that
        both have. Those of variables that only the earlier one has are set aside: they come back
        with a pattern that has the variable again.

        Parameters
        ----------
        pattern
            The pattern.

        Examples
        --------
        >>> query = Query().pattern("A B").define(A="x > 1", B="x > 2").pattern("A C")
        >>> [name for name, _ in query.definitions]
        ['A']
        >>> [name for name, _ in query.pattern("A B C").definitions]
        ['A', 'B']
        """
        from outpace.pattern.builder import pattern_tree

        tree = pattern_tree(pattern)
        if self.tree is None:
            return replace(self, tree=tree)
        had, has = (set(ast.predicates(each)) for each in (self.tree, tree))
        now, aside = dict(self.definitions), dict(self.set_aside)
        known = {**now, **aside, **now}
        gone = {name for name in known if name in had or name in aside} - has
        return replace(
            self,
            tree=tree,
            definitions=tuple(pair for pair in known.items() if pair[0] not in gone),
            set_aside=tuple(pair for pair in known.items() if pair[0] in gone),
        )

    def apply(self, operator: Callable[[], Operator]) -> Query:
        """Run a user-defined operator in place of a pattern: a class, or what makes an instance.

        Parameters
        ----------
        operator
            The class, or a function without arguments that makes an instance.
        """
        if not callable(operator):
            raise BindError(
                f"apply takes a class of operators, or what makes one, not {shown(operator)}",
                hint="write apply(MyOperator), where MyOperator extends op.Operator",
            )
        if isinstance(operator, type):
            from outpace.pattern.operator import check_operator

            check_operator(operator)
        return replace(self, operator=operator)

    def define(
        self,
        definitions: Mapping[str, str | Expression | Fluent] | None = None,
        /,
        **named: str | Expression | Fluent,
    ) -> Query:
        """Say when an event fits a variable; a variable without a definition fits every event.

        Names that are no Python identifiers go into the mapping.

        Parameters
        ----------
        definitions
            The condition of each variable, by its name.
        **named
            The same, as keywords.
        """
        added = _expressions("define", "define", definitions, named)
        return replace(self, definitions=tuple({**dict(self.definitions), **added}.items()))

    def subset(self, /, **unions: tuple[str, ...] | list[str]) -> Query:
        """Name a union of variables, to be used like a variable in expressions.

        Parameters
        ----------
        **unions
            The variables of each union, by its name.
        """
        merged = dict(self.subsets)
        for name, members in unions.items():
            hint = f'write subset({name}=["A", "B"])'
            merged[name] = some_names(members, f"subset {name}", hint=hint)
        return replace(self, subsets=tuple(merged.items()))

    def measures(
        self,
        measures: Mapping[str, str | Expression | Fluent] | None = None,
        /,
        **named: str | Expression | Fluent,
    ) -> Query:
        """Add output columns computed from the match.

        Parameters
        ----------
        measures
            The expression of each column, by its name.
        **named
            The same, as keywords.
        """
        added = _expressions("measures", "measure", measures, named)
        return replace(self, outputs=tuple({**dict(self.outputs), **added}.items()))

    def one_row_per_match(self) -> Query:
        """Return one row per match: the partition columns and the measures (the default)."""
        return replace(self, rows=RowsPerMatch.ONE)

    def all_rows_per_match(self, *, empty: str = "show", unmatched: bool = False) -> Query:
        """Return every row of every match, with all input columns.

        Parameters
        ----------
        empty
            "show" or "omit": whether an empty match gives a row.
        unmatched
            Also return the rows that are in no match.
        """
        if not isinstance(empty, str) or empty not in ("show", "omit"):
            raise BindError(f"empty matches are to be 'show' or 'omit', not {shown(empty)}")
        if a_flag(unmatched, "unmatched"):
            return replace(self, rows=RowsPerMatch.ALL_WITH_UNMATCHED)
        return replace(
            self,
            rows=RowsPerMatch.ALL_SHOW_EMPTY if empty == "show" else RowsPerMatch.ALL_OMIT_EMPTY,
        )

    def no_skip(self) -> Query:
        """After a match, drop nothing: every start is tried."""
        return replace(self, skip=AfterMatch(Skip.NONE))

    def skip_to_next_row(self) -> Query:
        """After a match, go on at the row after its first row."""
        return replace(self, skip=AfterMatch(Skip.TO_NEXT_ROW))

    def skip_past_last_row(self) -> Query:
        """After a match, go on at the row after its last row."""
        return replace(self, skip=AfterMatch(Skip.PAST_LAST_ROW))

    def skip_to_first(self, variable: str, *, strict: bool = False) -> Query:
        """After a match, go on at the first row of a variable.

        Where that row is missing or is the match's own first row, go on at the next row, or fail if
        `strict`.

        Parameters
        ----------
        variable
            The variable, or a union.
        strict
            Whether it is an error where that row is missing or is the first row of the match.
        """
        return replace(self, skip=_skip_to(Skip.TO_FIRST, variable, strict))

    def skip_to_last(self, variable: str, *, strict: bool = False) -> Query:
        """After a match, go on at the last row of a variable; see `skip_to_first`.

        Parameters
        ----------
        variable, strict
            As for `skip_to_first`.
        """
        return replace(self, skip=_skip_to(Skip.TO_LAST, variable, strict))

    def within(
        self,
        duration: str | datetime.timedelta | int,
        kind: str | WithinKind = WithinKind.FIRST_TO_LAST,
    ) -> Query:
        """Bound the time of a match, exclusively: `last.ts - first.ts < duration`.

        Parameters
        ----------
        duration
            "500 ms", "1 hour", a timedelta, or an integer in units of an integer time column.
        kind
            "first to last" event, or "previous to current": from each event to the one before it in
            the match.
        """
        value = a_duration(duration, "within")
        if (value <= 0) if isinstance(value, int) else (value <= datetime.timedelta(0)):
            raise BindError(
                f"within must be longer than nothing, not {shown(duration)}",
                hint='write within("1 hour"), or a number in units of the time column',
            )
        return replace(self, bound=Within(value, one_of(WithinKind, kind, "within")))

    def select(self, selection: str | Selection) -> Query:
        """Choose the "preferred" match of each start, or "all" of them.

        Parameters
        ----------
        selection
            "preferred" or "all".
        """
        return replace(self, selection=one_of(Selection, selection, "select"))

    def consume(self, consumption: str | Consume) -> Query:
        """Say which events later matches may not use: "none", "selected" or "all".

        Parameters
        ----------
        consumption
            "none", "selected" or "all".
        """
        return replace(self, consumption=one_of(Consume, consumption, "consume"))

    def limit(self, count: int, per: str | Per = Per.PARTITION) -> Query:
        """Return at most `count` matches per "start" or per "partition".

        Parameters
        ----------
        count
            The number of matches.
        per
            Of what: "start" or "partition".
        """
        most = a_whole_number(count, "a limit", least=1, hint="write limit(10)")
        counted = one_of(Per, per, "limit")
        kept = tuple(limit for limit in self.limits if limit.per is not counted)
        return replace(self, limits=(*kept, Limit(most, counted)))

    def uncertain(
        self,
        bound: str | datetime.timedelta | int,
        source: str | None = None,
        *,
        measured: bool = False,
    ) -> Query:
        """Find each match that some order of the events has, and say whether every order has it.

        The result has a column `confidence` behind the others: CONFIRMED where the match is found
        in whatever order the events happened, UNCERTAIN where it is found in some.

        Parameters
        ----------
        bound
            Two events that are at most so far apart may have happened in either order: "50 ms", a
            timedelta, or an integer in units of an integer time column. For clocks that are known
            to within half of a round trip, it is the longest round trip.
        source
            The column that names the source of an event. Events of one source are in order.
        measured
            Take what exchanges with the clock of a source tell where that is better: the time of an
            event is off by no more than half of their round trip, and by no more than half of
            `bound`. That is for streams with sources whose clocks are compared, see
            `outpace.ingest.ClockSync`; elsewhere it says nothing.
        """
        value = a_duration(bound, "uncertain")
        if (value <= 0) if isinstance(value, int) else (value <= datetime.timedelta(0)):
            raise BindError(
                f"uncertain must be longer than nothing, not {shown(bound)}",
                hint='write uncertain("50 ms"), or a number in units of the time column',
            )
        if source is not None:
            a_text(source, "the column of sources", hint='write uncertain("50 ms", source="site")')
        flag = a_flag(measured, "measured")
        return replace(self, uncertainty=Uncertainty(value, source, flag))

    def over(
        self,
        windows: WindowSpec,
        *,
        drift: str | datetime.timedelta | int | None = None,
        duplicates: bool = False,
        numbered: bool = False,
    ) -> Query:
        """Look at the events window by window; see `outpace.windows`.

        A match lies in one window and is found as if the window's events were all there is. Matches
        come ordered by their number x:y, where x is the number of the event that made the match
        final and y the number of the window.

        Parameters
        ----------
        windows
            Which windows; each partition has its own.
        drift
            How far the clocks of sources may be apart: a window's measures are computed three
            times, LOW with the window half of this earlier, MIDDLE, and HIGH half of it later. A
            measure `v` is then their average, beside `v_low`, `v_middle`, `v_high` and `v_spread`,
            which is NULL where fewer than two of them are known. For count windows it is a number
            of events.
        duplicates
            Return a match once for every window that it is found in, not only for the first; so
            it is with `drift`.
        numbered
            Add the columns `match_event` (x), `window` (y), `window_start` and `window_end`.
        """
        from outpace.pattern.windows import WindowSpec, checked_drift

        hint = "write over(op.windows.count(1000, slide=50))"
        windows = an_instance(windows, WindowSpec, "a kind of windows", hint=hint)
        every = a_flag(duplicates, "duplicates") or drift is not None
        return replace(
            self,
            windows=windows,
            drift=None if drift is None else checked_drift(windows, a_duration(drift, "drift")),
            duplicates=every,
            numbered=a_flag(numbered, "numbered"),
        )

    def instances(self, count: int, schedule: Scheduler | None = None) -> Query:
        """Give the windows to so many instances, which match in parallel.

        Parameters
        ----------
        count
            The number of instances: processes in process, tasks on Spark; at most 1024. Without a
            `schedule` no more processes are started than eight for each core, and for a table than
            it has rows.
        schedule
            Which instance gets a window; see `outpace.schedulers`. By default all windows of a key
            go to the same instance, and without a key batches of consecutive windows do.
        """
        number = a_whole_number(count, "the number of instances", least=1)
        if schedule is not None:
            from outpace.pattern.schedulers import Scheduler

            hint = "write instances(4, op.schedulers.RoundRobin())"
            an_instance(schedule, Scheduler, "a scheduler", hint=hint)
        return replace(self, instance_count=number, scheduler=schedule)

    @property
    def corrects(self) -> bool:
        """Whether late events correct what came out, so that the result has a column `diff`."""
        disorder = self.order_of_arrival
        return disorder is not None and disorder.corrects

    @property
    def speculates(self) -> bool:
        """Whether matches come before they are certain, so that the result says which are."""
        return self.order_of_arrival is not None and self.order_of_arrival.speculates

    @property
    def follows_load(self) -> bool:
        """Whether its events wait the less, the less the host has to do."""
        disorder = self.order_of_arrival
        return disorder is not None and disorder.follows_load

    @property
    def confirms(self) -> bool:
        """Whether it is told when nothing takes a match back any more."""
        return self.speculates or (self.corrects and self.emission is Emission.CONFIRMED)

    @property
    def shows_changes(self) -> bool:
        """Whether rows say in a column `diff` what becomes of their matches."""
        return self.corrects and self.emission is not Emission.CONFIRMED

    @property
    def identifies(self) -> bool:
        """Whether rows have the ids of their matches, as others say later what becomes of them."""
        latest = self.corrects and self.emission is Emission.LATEST
        return latest or (self.speculates and self.emission is Emission.CHANGES)

    def disorder(self, disorder: Disorder) -> Query:
        """Say how far the events of a stream may be out of order, and what becomes of late ones.

        A complete table is sorted, so this changes nothing there.

        Parameters
        ----------
        disorder
            `op.KSlack("2 s")` waits for events that are two seconds late, `op.Punctuation()` until
            it is told that none comes; `op.InOrder(late="side")` expects order. Each says what
            becomes of late and invalid events.
        """
        from outpace.pattern.disorder import Disorder

        hint = 'write disorder(op.KSlack("2 s"))'
        return replace(
            self, order_of_arrival=an_instance(disorder, Disorder, "disorder", hint=hint)
        )

    def emit(self, emission: str | Emission) -> Query:
        """Say which rows come out where matches may be taken back.

        That is with `op.Speculative`, and with late="correct"; a complete table has nothing to take
        back, and gives all its matches once.

        Parameters
        ----------
        emission
            "changes", the default: each match when it comes (`diff` 1), when it is taken back (-1)
            and when it is confirmed (0). "confirmed": only matches that nothing takes back any
            more, each once, as a reorderer that waits would give them; no column says more.
            "latest": what brings a table of the present matches up to date, by `match_id`: with
            `diff` 1 the rows of a match as they are now, in place of those it had; with -1 a match
            that is gone. Each match is in a push at most once, and what stays as it is never.

        Examples
        --------
        >>> from outpace.pattern.disorder import Speculative
        >>> rise = Query("rise").order_by("ts").pattern("A B").measures(at="B.ts")
        >>> print(rise.disorder(Speculative("2 s")).emit("confirmed").emission.value)
        confirmed
        """
        return replace(self, emission=one_of(Emission, emission, "emit"))

    @staticmethod
    def from_sql(text: str, *, dialect: str = "outpace", name: str = "query") -> Query:
        """Read a query from the text of a MATCH_RECOGNIZE clause.

        Parameters
        ----------
        text
            The clause, with its parentheses or without.
        dialect
            Whose SQL it is, as for `outpace.sql`.
        name
            The name of the query.

        Examples
        --------
        >>> Query.from_sql("MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B+))").to_text()
        'A B+'
        """
        from outpace.pattern.notation.parse_match_recognize import parse_match_recognize

        return parse_match_recognize(
            a_text(text, "MATCH_RECOGNIZE"), dialect=_known_dialect(dialect), name=name
        )

    def to_sql(self, *, dialect: str = "outpace") -> str:
        """Return the query as a MATCH_RECOGNIZE clause.

        Parameters
        ----------
        dialect
            Whose SQL is written, as for `outpace.sql`.
        """
        from outpace.pattern.notation.print_query import print_match_recognize

        return print_match_recognize(self, _known_dialect(dialect))

    def to_python(self) -> str:
        """Return the query as Python source that builds it."""
        from outpace.pattern.notation.print_query import print_fluent

        return print_fluent(self)

    def to_text(self) -> str:
        """Return the pattern alone, as text."""
        from outpace.pattern.notation.print_pattern import print_pattern

        return "" if self.tree is None else print_pattern(self.tree)

    def explain(self, data: object = None) -> QueryExplanation:
        """Show the pattern, the automaton, and where each part of the query runs.

        Parameters
        ----------
        data
            The input or its Arrow schema. A Spark DataFrame or Parquet files also show what Spark
            does. Without it, what depends on types is left out.
        """
        if not _explainers:
            raise UnsupportedError("no planner is loaded", hint="import outpace first")
        return _explainers[-1](self, data)

    def __repr__(self) -> str:
        from outpace.pattern.notebook import query_text

        return query_text(self)

    def _repr_html_(self) -> str:
        from outpace.pattern.notebook import query_html

        return query_html(self)

    @property
    def leeway(self) -> WindowSpan | None:
        """By how much the places of events in windows are not certain; None: they are."""
        from outpace.pattern.windows import TimeWindows

        if self.uncertainty is None or not isinstance(self.windows, TimeWindows):
            return self.drift
        return self.uncertainty.bound

    @property
    def effective_selection(self) -> Selection:
        """The selection asked for; else all matches where the pattern has `->>`, else preferred."""
        if self.selection is not None:
            return self.selection
        any_link = self.tree is not None and ast.Link.ANY in ast.links(self.tree)
        return Selection.ALL if any_link else Selection.PREFERRED

    @property
    def effective_skip(self) -> AfterMatch:
        """The after-match mode asked for; else past last row for preferred, none for all."""
        if self.skip is not None:
            return self.skip
        preferred = self.effective_selection is Selection.PREFERRED
        return AfterMatch(Skip.PAST_LAST_ROW if preferred else Skip.NONE)


class QueryExplanation(Protocol):
    """What `Query.explain` returns; `str()` of it is the text."""

    @property
    def text(self) -> str:
        """The explanation as plain text."""

    @property
    def dot(self) -> str:
        """The automaton as Graphviz DOT."""

    @property
    def svg(self) -> str:
        """The automaton as SVG."""


#: What `Query.explain` calls: the package registers it, as this module cannot import a host.
_explainers: list[Callable[[Query, object], QueryExplanation]] = []


def register_explainer(explain: Callable[[Query, object], QueryExplanation]) -> None:
    """Set what `Query.explain` calls."""
    _explainers[:] = [explain]


def checked_query(query: object) -> Query:
    """Return what a user passed as a query, or say that it is none."""
    if isinstance(query, Query):
        return query
    from outpace.pattern.join import Join

    hint = 'write op.Query("name").pattern("A B")'
    if isinstance(query, Join):
        hint = "op.open and op.run take a join; what it gives, and op.join of two tables, is data"
    raise BindError(f"a query is expected, not an object of type {type(query).__name__}", hint=hint)


def _known_dialect(dialect: str) -> str:
    """Return the name of a dialect in lower case, or refuse one that there is not."""
    name = a_text(dialect, "a dialect").lower()
    if name == "outpace":
        return name  # What knows the others takes long to load.
    from outpace.pattern.notation.dialect import check_dialect

    return check_dialect(dialect)


def _skip_to(skip: Skip, variable: str, strict: bool) -> AfterMatch:
    return AfterMatch(skip, a_text(variable, "a variable"), a_flag(strict, "strict"))


def _order_item(column: str | OrderItem) -> OrderItem:
    if isinstance(column, OrderItem):
        return column
    name, words = _order_words(a_text(column, "a column of order by", hint='write order_by("ts")'))
    descending: bool = False
    nulls_first: bool | None = None
    if [word.lower() for word in words[-2:]] in (["nulls", "first"], ["nulls", "last"]):
        nulls_first = words[-1].lower() == "first"
        words = words[:-2]
    if words and words[-1].lower() in ("asc", "desc"):
        descending = words.pop().lower() == "desc"
    if words or not name:
        raise BindError(
            f"order by takes a column name, not {column!r}",
            hint="add a column with what is to be ordered by; in op.sql the database computes it",
        )
    return OrderItem(name, descending, nulls_first)


def _order_words(column: str) -> tuple[str, list[str]]:
    """Split the text of an ORDER BY item into the column's name and the words behind it."""
    from outpace.pattern.notation.lexer import SourceText, TokenKind, tokenize

    if column.lstrip()[:1] in ('"', "`"):
        name, *rest = tokenize(SourceText(column, "order by"))
        return name.value, [token.value for token in rest if token.kind is not TokenKind.END]
    first, *words = column.split() or [""]
    return first, words


_EXAMPLES: Final = {
    "define": "define(A='price > 3')",
    "measures": "measures(since='FIRST(A.ts)')",
}


def _expressions(
    method: str,
    what: str,
    given: Mapping[str, str | Expression | Fluent] | None,
    named: Mapping[str, str | Expression | Fluent],
) -> dict[str, Expression]:
    """Return the trees of the expressions that were passed by name or in a mapping."""
    from outpace.pattern.builder import expression_tree

    if given is not None and not isinstance(given, Mapping):
        raise BindError(
            f"{method} takes names with expressions, not {shown(given)}",
            hint="write " + _EXAMPLES[method],
        )
    return {
        a_text(name, f"a name of {method}"): expression_tree(value, f"{what} {name}")
        for name, value in {**(given or {}), **named}.items()
    }
