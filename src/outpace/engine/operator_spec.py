"""The specification of an operator: the query, and how it is fed and divided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import pyarrow as pa

from outpace.engine.event import EVENT_ID
from outpace.engine.match.bits import BitTask, counts_unused, with_bits
from outpace.engine.match.choose import choose_matcher
from outpace.engine.match.contract import JointTasks, Matcher, Task
from outpace.engine.match.output import timed_out_schema
from outpace.engine.match.reach import reach_of
from outpace.engine.match.task import kept_columns, prepare, with_clock_errors
from outpace.engine.order.source_merge import SEQUENCE
from outpace.engine.split.schedule import overlapping, scheduler_of
from outpace.errors import BindError, UnsupportedError, did_you_mean
from outpace.pattern import ast
from outpace.pattern.argument import shown
from outpace.pattern.bind.disorder import BoundDisorder
from outpace.pattern.bind.query import bind_operator, with_changes, without_changes
from outpace.pattern.bind.uncertainty import CLOCK_ERROR
from outpace.pattern.bind.window_kinds import BoundWindows, ByTime, bind_windows
from outpace.pattern.bound import BoundQuery, Read, left_out
from outpace.pattern.expression import Literal
from outpace.pattern.query import Query, WithinKind
from outpace.pattern.schedulers import ByKey
from outpace.pattern.windows import LandmarkWindows


def tells_timeouts(query: Query) -> bool:
    """Say whether partial matches of a query may time out, and are told."""
    alone = query.windows is None and query.operator is None and query.join is None
    return query.bound is not None and alone and not query.corrects


def without_pattern(query: Query) -> Query:
    """Return a query with the windows of another, for whoever splits and does not match."""
    return Query(
        partitions=query.partitions,
        order=query.order,
        tree=ast.Repeat(ast.Var("A"), 1, None),
        outputs=(("rows", Literal(0)),),
        windows=query.windows,
        drift=query.leeway,
        numbered=query.numbered,
    )


@dataclass(frozen=True)
class OperatorSpec:
    """The specification of an operator, from which each of its parts is made.

    It travels as it was given: what follows from that is made where it is asked for, once.

    Parameters
    ----------
    query
        The query.
    schema
        The columns that events have when they come.
    given
        The pattern as it is matched, where rows bring bits; by default that of the query.
    disorder
        How far events are out of order, and what becomes of those that are late or invalid, as the
        query says it and `bind_disorder` binds it; None where they come in order, and are refused
        where they do not.
    sources
        The identifiers of several sources; None where there is one.
    instances
        How many instances share the windows; None where one has all, in the place of the front.
    timeouts
        Whether partial matches that WITHIN ended are wanted as well.
    forgets
        Whether partitions without open windows are forgotten, where nothing that is shown counts
        their events or windows.
    checked
        Whether rows that go back are refused, where they come in order; needless where the host has
        put them in order.
    brings_ids
        Whether events may come with ids of their own, in the column `EVENT_ID` behind the others;
        to those that come without one is given.
    traced
        Whether events that are put in order have ids also where nobody but the host asks for them.
    tells_used
        Whether the instance beside says which events its matches have used.
    event_driven
        Whether events alone decide what comes out and in which order, each by itself: how they are
        cut into pieces, how sources take turns and when they promise that time has passed make no
        difference. Then a replay needs none of that. A source that is ahead of others is never
        refused: the host lets it wait.
    sequence
        The column with the sequence numbers of several sources that are each in order; None where
        events are counted.
    choose
        Says how a pattern is matched; by default the fastest way that covers it.
    together
        The patterns of several queries that are matched in one place, where rows say which they are
        for; then `given` tells what is the same of all.
    """

    query: Query
    schema: pa.Schema
    given: Task | None = None
    disorder: BoundDisorder | None = None
    sources: tuple[str, ...] | None = None
    instances: int | None = None
    timeouts: bool = False
    forgets: bool = False
    checked: bool = True
    brings_ids: bool = False
    traced: bool = False
    tells_used: bool = False
    event_driven: bool = False
    sequence: str | None = SEQUENCE
    choose: Callable[[Task], Matcher] = choose_matcher
    together: JointTasks | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.disorder, BoundDisorder | None):
            raise BindError(
                f"disorder is {shown(self.disorder)}, which is not bound to the columns of events",
                where="disorder",
                hint="let the query say it, and pass bind_disorder(query, schema)",
            )
        sources = self.sources
        if sources is not None and (
            not isinstance(sources, tuple) or not sources or len({*sources}) < len(sources)
        ):
            raise BindError(
                f"sources are {shown(sources)}, not a tuple of different names",
                where="sources",
                hint='write sources=("east", "west"), or leave it out where there is one',
            )
        patience = None if self.disorder is None else self.disorder["patience"]
        if patience is not None and self.sources is None:
            raise BindError(
                "patience is for sources that are silent, but the stream has no sources",
                where="disorder",
                hint='name them: sources=["east", "west"], or leave patience out',
            )
        for source, _ in patience if isinstance(patience, tuple) else ():
            if source not in (self.sources or ()):
                raise BindError(
                    f"patience names '{source}', which is no source of the stream",
                    where="disorder",
                    hint=did_you_mean(source, self.sources or ()),
                )

        if self.timeouts and self.corrects:
            raise UnsupportedError(
                "partial matches that timed out are told where no late event corrects them",
                where="timeouts",
                hint="leave out timeouts, or let late events be dropped or set aside",
            )

    def __getstate__(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def shared(self) -> OperatorSpec:
        """The same operator, with as many instances elsewhere as its query says."""
        query = self.query
        alone = query.instances(1, query.scheduler)
        return replace(self, query=alone, instances=query.instance_count)

    @cached_property
    def flag(self) -> pa.Field | None:
        """The column that says which events went on because a time was up, where none brings it."""
        return None if self.disorder is None else self.disorder.flag_for(self.schema)

    @cached_property
    def readable(self) -> pa.Schema:
        """The columns that the query may read."""
        return self.schema if self.flag is None else self.schema.append(self.flag)

    @cached_property
    def task(self) -> Task | None:
        """The pattern as it is matched; None for a user-defined operator.

        In a stream its matches have all that is said of them, of which `emitted` shows a part.
        """
        task = self.given
        if task is None and self.query.operator is None:
            task = prepare(self.query, self.readable, timeouts=self.timeouts)
        if task is not None and self.disorder is not None and self.query.corrects:
            task = replace(task, bound=with_changes(task.bound))
        return with_clock_errors(task) if self.measured and task is not None else task

    @cached_property
    def found(self) -> Task | None:
        """The pattern as instances match it; what is said of matches the back adds to their rows.

        So it need not travel, and nobody moves it.
        """
        if self.task is None or not self.corrects:
            return self.task
        return replace(self.task, bound=without_changes(self.task.bound))

    @property
    def found_columns(self) -> pa.Schema:
        """The columns of what instances find."""
        return self.bound.output if self.found is None else self.found.bound.output

    @cached_property
    def bound(self) -> BoundQuery:
        """The query, bound to the columns that come."""
        return bind_operator(self.query, self.readable) if self.task is None else self.task.bound

    @property
    def output(self) -> pa.Schema:
        """The columns that come out."""
        hidden = left_out(self.query)
        return pa.schema([field for field in self.bound.output if field.name not in hidden])

    @cached_property
    def timed_out(self) -> pa.Schema:
        """The columns of partial matches that WITHIN ended."""
        return pa.schema([]) if self.task is None else timed_out_schema(self.task)

    @cached_property
    def windows(self) -> BoundWindows | None:
        """The windows; those of an operator without any are its partitions."""
        query = self.query
        if query.windows is None and query.operator is not None:
            query = query.over(LandmarkWindows())
        if query.windows is None:
            return None
        windows = bind_windows(query, self.readable)
        if self.event_driven and windows.time is None:
            # Who promises how far matches have come asks when windows started.
            windows = replace(windows, time=self.bound.time)
        if self.task is None and self.disorder is not None:
            # An operator keeps no rows, so when a window started is all that is known of its times.
            return replace(windows, time=self.disorder.time)
        return windows

    @cached_property
    def matcher(self) -> Matcher | None:
        """How the pattern is matched; all instances share what is compiled."""
        return None if self.task is None else self.choose(self.task)

    @cached_property
    def joint(self) -> tuple[JointTasks, tuple[Matcher, ...]] | None:
        """The patterns that are matched in one place, and how each is."""
        together = self.together
        return None if together is None else (together, tuple(map(self.choose, together.tasks)))

    @property
    def identified(self) -> bool:
        """Whether events have ids that are not their numbers; a user's operator asks for none."""
        numbered = self.sources is None and self.disorder is None and not self.brings_ids
        needs_ids = self.task is not None or self.traced or self.event_driven
        return needs_ids and not numbered

    @property
    def corrects(self) -> bool:
        """Whether late events correct what came out."""
        return self.disorder is not None and self.query.corrects

    @property
    def horizon(self) -> int | None:
        """How far back late events correct what came out; None where none does."""
        return None if self.disorder is None else self.disorder.horizon

    @cached_property
    def arriving(self) -> pa.Schema:
        """The columns that events have when they are put in order."""
        added = self.identified and EVENT_ID.name not in self.schema.names
        return self.readable.append(EVENT_ID) if added else self.readable

    @property
    def measured(self) -> bool:
        """Whether events have the errors of clocks, as they were measured."""
        known = self.query.uncertainty
        ordered = self.sources is not None and self.disorder is not None
        # Late events that correct what came out come without them.
        compared = ordered and self.horizon is None
        return compared and known is not None and known.measured

    @cached_property
    def ordered(self) -> pa.Schema:
        """The columns that events have when they are in order."""
        return self.arriving.append(CLOCK_ERROR) if self.measured else self.arriving

    @cached_property
    def kept(self) -> pa.Schema:
        """The columns that instances need."""
        if self.task is None:
            return self.readable
        wanted = {*kept_columns(self.task, self.bound.schema), EVENT_ID.name}
        if self.disorder is not None and self.corrects:
            wanted.add(self.disorder.time)  # Who finds a match says what time it depends on.
        return pa.schema([field for field in self.ordered if field.name in wanted])

    @cached_property
    def events(self) -> pa.Schema:
        """The columns that numbering, splitting and matching need."""
        wanted = set(self.kept.names)
        if self.windows is not None:
            wanted.update(self.windows.columns)
            wanted.update(() if self.windows.time is None else [self.windows.time])
        if self.disorder is not None and self.corrects:
            # A late event is put in its place among those that are kept.
            wanted.update(self.bound.order_by, self.disorder.columns)
        if self.traced and self.identified:
            wanted.add(EVENT_ID.name)
        return pa.schema([field for field in self.ordered if field.name in wanted])

    @cached_property
    def useful(self) -> BitTask | None:
        """What says which rows a step can use, where the others leave no trace; None elsewhere.

        Partial matches that time out come in the order of the events that tell so. It is said of
        events as their source sent them, before its clock is set right.
        """
        if self.task is None or self.timeouts or counts_unused(self.bound, self.windows):
            return None
        unknown = frozenset[str]()
        if self.disorder is not None:
            flag = self.disorder["flag"]
            known = [self.disorder.time] if self.sources is not None else []
            unknown = frozenset(name for name in (*known, flag) if name is not None)
        bits = with_bits(self.task, unknown=unknown)
        return bits if bits.drop_unused else None

    @property
    def time(self) -> str | None:
        """The column with the times that windows or WITHIN measure."""
        if self.bound.within is not None:
            return self.bound.time
        return None if self.windows is None else self.windows.time

    @cached_property
    def reach(self) -> int | None:
        """How far before the watermark the events of a later match may lie; None: any distance.

        An undecided match lies within WITHIN of the watermark, as a match that cannot go on is
        decided, unless it waits for the next row. In windows only their end decides, so it is their
        size that counts.
        """
        reach = None if self.query.speculates else self._reach
        return None if reach is None else reach + (self.horizon or 0)

    @property
    def _reach(self) -> int | None:
        query = self.query
        if query.windows is not None:
            assert self.windows is not None
            return self.windows.kind.size if isinstance(self.windows.kind, ByTime) else None
        whole = query.bound is not None and query.bound.kind is WithinKind.FIRST_TO_LAST
        if self.task is None or not whole:
            return None
        if query.join is not None:
            return 0  # A result's time is that at which it became final.
        reach = reach_of(self.task)
        if (known := self.bound.uncertainty) is not None:
            return known.within + known.bound + known.delay
        return None if reach.ahead or reach.awaits_row else self.bound.within

    def shows_time_in(self, column: str) -> bool:
        """Say whether a column of the matches holds the time of an event of the match.

        Only of such a column what is known of time says anything: a time that was computed, or that
        of an event before the match, may lie before it.
        """
        bound = self.bound
        if bound.query.drift is not None:
            return False
        if bound.query.join is not None:
            return column == bound.time
        shown = {measure.name: measure.expression for measure in bound.measures}.get(column)
        if shown is None:
            return column == bound.time
        return isinstance(shown, Read) and shown.column == bound.time and shown.place.shift >= 0

    @property
    def forgets_partitions(self) -> bool:
        """Whether a partition without open windows is forgotten, and nothing shown tells it.

        Shown numbers of windows count on where a partition comes again, but those of time windows,
        which time alone gives.
        """
        windows = self.windows
        timed = windows is not None and isinstance(windows.kind, ByTime)
        keyed = windows is not None and windows.keyed
        return self.forgets and keyed and (not self.query.numbered or timed)

    @property
    def finds_again(self) -> bool:
        """Whether two instances may find the same match, of which one is to come out."""
        query, count = self.query, self.instances or 1
        apart = count == 1 or isinstance(
            scheduler_of(query.instances(count, query.scheduler)), ByKey
        )
        return not (
            query.duplicates
            or query.operator is not None
            or apart
            or not overlapping(query.windows, 1)
        )
