"""The query of `outpace stream`, as the options want it, over its input.

What a query sends to a side output has to have a folder, so that no event is lost without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

import outpace as op
from outpace.cli.run_query import QueryFiles, SqlText
from outpace.cli.stream_input import LOG, StreamInput
from outpace.cli.stream_join import check_joined, check_told, sides_of
from outpace.engine.operator_spec import tells_timeouts
from outpace.errors import BindError, OutpaceError, UnsupportedError
from outpace.pattern.bind.check import check_emission
from outpace.pattern.disorder import Disorder, InOrder, Invalid, KSlack, Late
from outpace.pattern.join import Join
from outpace.pattern.notation.disorder import parse_disorder
from outpace.pattern.query import Emission, Query
from outpace.statement.step import whole_table
from outpace.statement.streamable import needs_all_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What is to run: a query, a join, a statement, or several queries over one stream.
Request: TypeAlias = Query | Join | SqlText | QueryFiles

#: What a disorder says of late events and the like where it says nothing.
_SILENT: Final = InOrder().options
#: Whether Spark runs batches without events.
_EMPTY_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"


@dataclass(frozen=True)
class Additions:
    """What the options say of a query.

    Parameters
    ----------
    disorder
        How far events are out of order, in place of what the query says; None where that holds.
    emission
        Which rows come out, in place of what the query says; None where that holds.
    late, invalid, timed_out
        Whether these outputs have a folder.
    sources
        The identifiers of several sources, which the column `source` names; none where it is one.
    recovery
        Whether the log is read again where a state is lost.
    heartbeats
        The column whose rows are heartbeats where it has a value; None where there are none.
    """

    disorder: Disorder | None = None
    emission: Emission | None = None
    late: bool = False
    invalid: bool = False
    timed_out: bool = False
    sources: tuple[str, ...] = ()
    recovery: Literal["replay"] | None = None
    heartbeats: str | None = None

    @property
    def sides(self) -> bool:
        """Whether there is more than matches."""
        return self.late or self.invalid or self.timed_out

    def of(self, query: Query) -> Query:
        """Return the query with its disorder and what comes out as the options want it.

        Examples
        --------
        >>> query = op.Query("q").order_by("ts").pattern("A").define(A="price > 1")
        >>> Additions(KSlack("2 s"), late=True).of(query).order_of_arrival.late
        <Late.SIDE: 'side'>
        """
        disorder = self._disorder(query.order_of_arrival, query.name)
        if disorder is not None and disorder is not query.order_of_arrival:
            query = query.disorder(disorder)
        query = query if self.emission is None else query.emit(self.emission)
        check_emission(query)
        return query

    def of_join(self, join: Join) -> Join:
        """Return a join with its disorder as the options want it."""
        if self.emission is not None:
            raise BindError("--emit goes with a query", hint="leave it out: a join gives all rows")
        return replace(join, disorder=self._disorder(join.disorder, join.name))

    def _disorder(self, said: Disorder | None, name: str) -> Disorder | None:
        """Return what a query or a join says of the order of events, as the options want it."""
        before = said or InOrder()
        disorder = before if self.disorder is None else _with_options(self.disorder, before)
        if self.late:
            disorder = replace(disorder, late=Late.SIDE)
        if self.invalid:
            disorder = replace(disorder, invalid=Invalid.QUARANTINE)
        self._check(name, disorder)
        return said if disorder == before else disorder

    def _check(self, name: str, disorder: Disorder) -> None:
        if disorder.late is Late.SIDE and not self.late:
            raise BindError(
                f"the late events of '{name}' have no place to go", hint="--late-to FOLDER"
            )
        if disorder.invalid is Invalid.QUARANTINE and not self.invalid:
            raise BindError(
                f"the invalid events of '{name}' have no place to go",
                hint="--invalid-to FOLDER",
            )
        if self.heartbeats is None:
            check_told(disorder)


def check_query(request: Request, inputs: Sequence[StreamInput], additions: Additions) -> None:
    """Refuse what the options cannot do to a query, before Spark is started."""
    _check_inputs(request, inputs)
    source = inputs[0]
    if additions.recovery is not None:
        _check_recovery(request, source)
    if isinstance(request, QueryFiles):
        request.each(additions.of)
    elif isinstance(request, Query):
        additions.of(request)
    if isinstance(request, Query | QueryFiles):
        queries = [request] if isinstance(request, Query) else [one for _, one in request.files]
        if additions.timed_out and not any(map(tells_timeouts, queries)):
            named = " and ".join(f"'{query.name}'" for query in queries)
            raise BindError(
                f"{named} ha{'s' if len(queries) == 1 else 've'} no partial matches that time out",
                hint="--timed-out-to goes with WITHIN",
            )
        if additions.invalid and source.is_text and not isinstance(source.schema, pa.Schema):
            raise BindError("--invalid-to does not go with this input", hint="name a local folder")
        return
    sides = additions.timed_out if isinstance(request, Join) else additions.sides
    if sides or additions.sources or additions.heartbeats is not None:
        what = "sources that are told apart" if additions.sources else "heartbeats"
        if isinstance(request, Join):
            what = "partial matches that time out" if sides else what
            raise UnsupportedError(f"a join has no {what}", hint="leave the option out")
        what = "side outputs" if sides else what
        raise BindError(
            f"a statement has no {what}",
            where=str(request.path),
            hint="write the MATCH_RECOGNIZE clause alone, or a query in Python",
        )
    if isinstance(request, Join):
        additions.of_join(request)
        if additions.invalid and any(one.is_text for one in inputs):
            raise BindError(
                "--invalid-to does not go with a join of texts",
                hint="read them with outpace log append, and join the logs",
            )
        return
    names = {one.name.lower() for one in inputs}
    for step in request.statement().steps:
        if step.window is not None:
            raise UnsupportedError(
                "a row pattern in a window does not go with a stream",
                span=step.span,
                text=request.statement().text,
                where=str(request.path),
                hint="write MATCH_RECOGNIZE",
            )
        if step.joined is not None:
            check_joined(step.joined.join)
        else:
            additions.of(step.query)
        whole = step.is_clause and whole_table(step) in names
        if additions.disorder is not None and not whole:
            raise BindError(
                f"--slack and --disorder go with a clause that reads '{source.name}' as it is",
                where=str(request.path),
                hint="write DISORDER SLACK '2 s' into the clause, or into the join",
            )
    _check_rows(request)


def _check_rows(request: SqlText) -> None:
    if found := needs_all_rows(request.statement()):
        what, span = found
        raise request.located(
            UnsupportedError(
                f"{what} needs all matches, and a stream has no end",
                span=span,
                text=request.text,
                hint="leave it out, or run the statement over a table: outpace run",
            )
        )


def _check_inputs(request: Request, inputs: Sequence[StreamInput]) -> None:
    if isinstance(request, Join):
        sides_of(inputs)
        return
    names = [one.name.lower() for one in inputs]
    for one in inputs:
        if names.count(one.name.lower()) > 1:
            raise BindError(
                f"two inputs are called '{one.name}'", hint="--from name=… gives one another name"
            )
    if len(inputs) > 1 and not isinstance(request, SqlText):
        raise BindError(
            f"a query reads one input, not {len(inputs)}",
            hint="a join reads two: op.Join, or SELECT * FROM a JOIN b ON … WITHIN …",
        )


def _check_recovery(request: Request, source: StreamInput) -> None:
    if not isinstance(request, Query):
        raise UnsupportedError(
            "--recovery goes with one query: its clause alone, or a query in Python",
            hint="leave it out, or run each query by itself",
        )
    if source.format != LOG or "form" in source.options:
        raise UnsupportedError(
            "--recovery reads a log again, and this input is none",
            hint="--from log:PATH; outpace log append writes one",
        )


def tells_changes(request: Request, additions: Additions) -> bool:
    """Say whether all rows tell what becomes of matches."""
    return _all(request, additions, lambda query: query.shows_changes)


def check_current(request: Request, additions: Additions) -> None:
    """Refuse to follow changes where rows do not tell them, and of which match they are."""
    alone = isinstance(request, Query)
    if not alone or not _all(request, additions, lambda query: query.identifies):
        raise BindError(
            "--current follows changes, and the rows do not tell them"
            if alone
            else "--current goes with one query, whose matches it keeps",
            hint="--emit latest, and a query with DISORDER SPECULATIVE ... or LATE CORRECT ...",
        )


def _all(request: Request, additions: Additions, holds: Callable[[Query], bool]) -> bool:
    """Say whether something holds for all queries; of a statement nobody knows."""
    if isinstance(request, SqlText):
        return False
    if isinstance(request, Join):
        return holds(additions.of_join(request).outline)
    queries = [request] if isinstance(request, Query) else [query for _, query in request.files]
    return all(holds(additions.of(query)) for query in queries)


def endings(request: Request, additions: Additions, timing: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings with which a query ends that is to take what is there.

    Spark runs one more batch after each for what goes by the clock, so there would be no last one.
    """
    if isinstance(request, Query):
        queries = [request]
    elif isinstance(request, Join):
        queries = [request.outline]
    elif isinstance(request, QueryFiles):
        queries = [query for _, query in request.files]
    else:
        steps = request.statement().steps
        queries = [step.joined.join.outline if step.joined else step.query for step in steps]
    disorders = [additions.of(query).order_of_arrival for query in queries]
    clocked = any(disorder is not None and disorder.clocked for disorder in disorders)
    return {_EMPTY_BATCHES: "false"} if clocked and "availableNow" in timing else {}


def found(
    session: SparkSession, request: Request, inputs: Sequence[StreamInput], additions: Additions
) -> DataFrame:
    """Return the stream of what a query finds: matches, or all outputs where sides are wanted."""
    if isinstance(request, SqlText):
        return _statement(session, request, inputs, additions)
    if isinstance(request, Join):
        left, right = (side.rows(session) for side in sides_of(inputs))
        search = op.search((left, right), additions.of_join(request))
        return search.outputs() if additions.sides else search.matches()
    (source,) = inputs
    queries = (
        request.each(additions.of) if isinstance(request, QueryFiles) else [additions.of(request)]
    )
    asked = op.group(*queries) if isinstance(request, QueryFiles) else queries[0]
    times = {query.order[0].column for query in queries if query.order}
    if additions.invalid and source.is_text and times:
        frame = source.with_broken_lines(times, session)
    else:
        frame = source.blocks(session)
    search = op.search(
        frame,
        asked,
        sources=additions.sources or None,
        recovery=additions.recovery,
        heartbeats=additions.heartbeats,
    )
    return search.outputs() if additions.sides else search.matches()


def _statement(
    session: SparkSession, request: SqlText, inputs: Sequence[StreamInput], additions: Additions
) -> DataFrame:
    from outpace.hosts.spark.sql import sql

    def matching(source: StreamInput) -> Callable[[Query], DataFrame]:
        return lambda query: op.match(source.blocks(session), additions.of(query))

    for source in inputs:
        source.rows(session).createOrReplaceTempView(source.name)
    matchers = {source.name: matching(source) for source in inputs}
    try:
        return sql(session, request.text, request.dialect, matchers)
    except OutpaceError as error:
        raise request.located(error) from error.__cause__


def disorder_of(slack: str | None, disorder: str | None) -> Disorder | None:
    """Return what `--slack` or `--disorder` says; None where neither is given.

    Examples
    --------
    >>> disorder_of("2 s", None) == disorder_of(None, "SLACK '2 s'") == KSlack("2 s")
    True
    """
    if disorder is not None:
        if slack is not None:
            raise BindError("--slack and --disorder say the same", hint="give one of them")
        return parse_disorder(disorder, "--disorder")
    if slack is None:
        return None
    return KSlack(int(slack) if slack.isascii() and slack.isdigit() else slack)


def _with_options(disorder: Disorder, before: Disorder) -> Disorder:
    """Return a disorder with what the query says of late events and the like, unless it does."""
    said = {name: value for name, value in disorder.options.items() if value != _SILENT[name]}
    return replace(disorder, **{**before.options, **said})
