"""Replay of a recorded stream: the same stimuli, step by step, and what comes of each.

Steps are a function of what was kept before and of what came, so a replay gives the instructions
that the stream gave. Where it does not, this release or the user's own code decides otherwise than
the one that recorded it: each step says so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from outpace.engine.codec.table import read_table
from outpace.engine.match.contract import Block, Matcher, Outcome, Resume, Task
from outpace.engine.message import (
    Aside,
    ClockExchange,
    Emit,
    EventsArrived,
    Instruction,
    SetAside,
    Stimulus,
    TimerFired,
    WatermarkArrived,
)
from outpace.engine.state import State
from outpace.engine.wire import read_stimulus
from outpace.errors import DataError, OutpaceError, StateError
from outpace.hosts.background import compiled_soon
from outpace.hosts.local.description import Recordable
from outpace.hosts.local.group import GroupMatcher
from outpace.hosts.local.join import JoinStream, sides_of
from outpace.hosts.local.open import check_group, check_stream
from outpace.hosts.local.recording import Ending, StreamRecording, failure_of, outcome_of
from outpace.hosts.local.recording import StepOutcome as Recorded
from outpace.hosts.local.stream import StreamMatcher
from outpace.ingest.log.frame import FrameKind, LogFrame
from outpace.pattern.argument import a_whole_number
from outpace.pattern.group import QueryGroup
from outpace.pattern.join import Join
from outpace.pattern.notebook import Text
from outpace.pattern.query import Query, checked_query

_LOG: Final = logging.getLogger("outpace.stream")


def replay(
    path: str | os.PathLike[str], *, until: int | None = None, query: Recordable | None = None
) -> Replay:
    """Replay a stream that was recorded with `open_query(record=...)`.

    Parameters
    ----------
    path
        The folder of the recording.
    until
        The last step that is taken; all of them by default.
    query
        The query, or the group of them, where it has parts in Python: those are not in the
        recording.

    Returns
    -------
    Replay
        Yields the steps, one after the other. What is torn at the end of the recording, by a crash
        say, is left out, with a warning.

    Raises
    ------
    StateError, DataError
        If the folder holds no recording, or one of another version or another query, or a step is
        damaged: then the place is named, and the steps before it have been yielded.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> from outpace.hosts.local.open import open_query
    >>> from outpace.pattern.query import Query
    >>> rise = (Query("rise").order_by("ts").pattern("A B")
    ...         .define(B="price > A.price").measures(at="B.ts"))
    >>> matcher = open_query(rise, record=folder.name)
    >>> matcher.push({"ts": [1], "price": [5.0]}).to_pylist()
    []
    >>> matcher.push({"ts": [2], "price": [6.0]}).to_pylist()
    [{'at': 2}]
    >>> for step in replay(folder.name):
    ...     print(step.number, step.matches.to_pylist(), step.state.rows_kept, step.as_recorded)
    1 [] 1 True
    2 [{'at': 2}] 0 True
    >>> folder.cleanup()
    """
    if until is not None:
        until = a_whole_number(until, "until", least=0, error=DataError)
    if query is not None and not isinstance(query, QueryGroup | Join):
        checked_query(query)
    return Replay(StreamRecording.open(path), until, query)


@dataclass(frozen=True)
class StreamState:
    """What a stream keeps after a step, as numbers.

    Parameters
    ----------
    rows_kept
        Rows that an undecided match may still need.
    open_windows, partitions
        Windows that are open, and partitions that are known.
    buffered
        Rows that wait for others that may come before them.
    watermark
        No later row has a time before this; None where it is not known.
    slack
        How far the watermark stays behind the greatest time.
    """

    rows_kept: int
    open_windows: int
    partitions: int
    buffered: int
    watermark: int | None
    slack: int


@dataclass(frozen=True)
class MatcherCall:
    """What a matcher was asked, and what it said."""

    task: Task
    block: Block
    outcome: Outcome

    def why(self, index: int) -> str:
        """Explain a match."""
        from outpace.explanation.why import why
        from outpace.explanation.why_join import why_joined

        explain = why if self.task.bound.query.join is None else why_joined
        return explain(self.task, self.block, self.outcome.found, index)

    def undecided(self) -> list[str]:
        """Return a line for each row that later ones decide about."""
        from outpace.explanation.why import undecided
        from outpace.explanation.why_join import undecided_joined

        if self.task.bound.query.join is not None:
            return undecided_joined(self.task, self.block, self.outcome)
        return undecided(self.task, self.block, self.outcome.resume)


@dataclass(frozen=True)
class ReplayedStep:
    """A step of a replay.

    Parameters
    ----------
    number, arrival_us
        Its number, from 1, and when it was recorded, in microseconds since 1970.
    stimulus, title
        What happened, as a value and in words.
    instructions
        What came of it; each says which query it is of. `matches`, `timed_out`, `late` and
        `invalid` are tables, or of a group dictionaries of tables by the names of its queries.
    error
        Why it was refused; None where it was not.
    as_recorded
        Whether it gave the same as when it was recorded; None where the recording does not tell,
        because the process ended in this step, or it is skipped.
    skipped
        Whether it was interrupted when it was recorded, by Ctrl-C say, and so is not taken again.
    state
        What the stream keeps after it.

    Examples
    --------
    >>> import tempfile
    >>> from outpace.hosts.local.open import open_query
    >>> from outpace.pattern.query import Query
    >>> query = Query("pair").order_by("ts").pattern("A B").measures(at="B.ts")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = open_query(query, record=folder).push({"ts": [1, 2, 3]})
    ...     (step,) = replay(folder)
    >>> step.title, step.matches.to_pylist()
    ('3 rows', [{'at': 2}])
    >>> print(step.explain())
    match 0, rows 0 to 1, 2 events, match number 1
    <BLANKLINE>
      row  ts  label  position  follows  condition
      0    1   A      0         first    no condition
      1    2   B      1         at once  no condition
    <BLANKLINE>
    complete at row 1
    after match skip past last row: the search goes on at row 2
    <BLANKLINE>
    undecided:
      A is row 2: waits for B
    """

    number: int
    arrival_us: int
    stimulus: Stimulus
    title: str
    instructions: list[Instruction]
    error: Exception | None
    as_recorded: bool | None
    skipped: bool
    state: StreamState
    _calls: list[MatcherCall] = field(default_factory=list, repr=False)
    #: For each query why its steps are not explained; None where they are.
    _reasons: dict[str, str | None] = field(default_factory=dict, repr=False)
    _grouped: bool = field(default=False, repr=False)

    @property
    def matches(self) -> pa.Table:
        """The matches that became final."""
        return self._each(lambda emit: emit.matches.table)

    @property
    def timed_out(self) -> pa.Table:
        """The partial matches that WITHIN ended, where the stream collects them."""
        return self._each(lambda emit: emit.timed_out)

    @property
    def late(self) -> pa.Table:
        """The rows that came late."""
        return self._aside(Aside.LATE)

    @property
    def invalid(self) -> pa.Table:
        """The rows that cannot be used, with the reason in the first column."""
        return self._aside(Aside.INVALID)

    def _aside(self, kind: Aside) -> pa.Table:
        found = {
            one.query: one.rows
            for one in self.instructions
            if isinstance(one, SetAside) and one.kind is kind
        }
        return self._each(lambda emit: found.get(emit.query, pa.table({})))

    def _each(self, look: Callable[[Emit], pa.Table]) -> pa.Table:
        """Return a table, or the tables of a group by the names of its queries."""
        emits = (one for one in self.instructions if isinstance(one, Emit))
        found = {emit.query: look(emit) for emit in emits}
        return found if self._grouped else next(iter(found.values()), pa.table({}))

    def explain(self, limit: int = 20) -> str:
        """Explain why each match is one, and which rows a match may still start with.

        Rows are those of the partitions that the step looked at, and are numbered from the
        beginning of the stream. Of a join it says what made each pair one, and which rows of each
        side still wait. The queries of a group are explained one after the other. Where steps are
        not explained, the text says why: see `Replay.unexplained`.

        Parameters
        ----------
        limit
            How many matches of a query are explained.
        """
        texts = {name: self._explained(name, limit) for name in self._reasons}
        if len(texts) == 1:
            return Text(*texts.values())
        return Text(
            "\n\n".join(f"query '{name}':\n\n{text}" for name, text in texts.items() if text)
        )

    def _explained(self, name: str, limit: int) -> str:
        """Explain what a query did in the step."""
        reason = self._reasons[name]
        if reason is not None:
            return reason
        parts = []
        calls = [call for call in self._calls if call.task.bound.query.name == name]
        # A later call of the step decides what was open in an earlier one.
        ended = any(call.block.ended for call in calls)
        for call in calls:
            found = call.outcome.found
            parts += [call.why(index) for index in range(min(len(found.start), limit))]
            if len(found.start) > limit:
                parts.append(f"and {len(found.start) - limit:,} more")
            if not ended and (lines := call.undecided()):
                parts.append("\n".join(["undecided:", *(f"  {line}" for line in lines)]))
        return "\n\n".join(parts)


class Replay(Iterator[ReplayedStep]):
    """The steps of a recorded stream, as they are taken again; see `replay`.

    Parameters
    ----------
    recording
        The recording.
    until
        The number of the last step that is taken; None: all are.
    query
        The query in place of one that the recording cannot hold, see `replay`.

    Attributes
    ----------
    query
        The query that was recorded, the group of them, or the join.
    stream
        The stream after the last step that was yielded: it can be pushed to, or its state saved.
    torn
        The place of what was torn at the end of the recording, once that is reached.
    unexplained
        Why steps are not explained; None where they are.

    Examples
    --------
    >>> import tempfile
    >>> from outpace.hosts.local.open import open_query
    >>> from outpace.pattern.query import Query
    >>> query = Query("pair").order_by("ts").pattern("A B").measures(at="B.ts")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     matcher = open_query(query, record=folder)
    ...     found = [matcher.push({"ts": [time]}).to_pylist() for time in (1, 2, 3)]
    ...     steps = replay(folder, until=1)
    ...     print([step.number for step in steps])
    [1]
    >>> steps.stream.push({"ts": [7]}).to_pylist()
    [{'at': 7}]
    """

    def __init__(
        self, recording: StreamRecording, until: int | None, query: Recordable | None
    ) -> None:
        self._recording = recording
        self.query = recording.query(query)
        self._until = until
        #: What the matcher was asked in the present step.
        self._calls: list[MatcherCall] = []
        #: The queries of a group, each by itself, for its steps to be explained: in the group they
        #: share conditions, and rows that none can use are left out.
        self._apart: dict[str, StreamMatcher] = {}
        #: Whether a group began with what was kept, which a query by itself cannot.
        self._resumed = False
        self.stream = self._opened()
        self._steps = self._replayed()

    @property
    def torn(self) -> str | None:
        """The place of what was torn at the end of the recording, once that is reached."""
        return self._recording.torn

    @property
    def unexplained(self) -> str | None:
        """Why steps are not explained; None where they are."""
        reasons = list(self._reasons.values())
        return reasons[0] if None not in reasons else None

    @property
    def _reasons(self) -> dict[str, str | None]:
        """For each query why its steps are not explained; None where they are."""
        if isinstance(self.query, QueryGroup):
            resumed = _RESUMED if self._resumed else None
            return {query.name: resumed or _reason(query) for query in self.query.queries}
        return {self.query.name: None if isinstance(self.query, Join) else _reason(self.query)}

    def __next__(self) -> ReplayedStep:
        return next(self._steps)

    def _opened(self) -> StreamMatcher | GroupMatcher:
        recording, query = self._recording, self.query
        try:
            if isinstance(query, Join):
                return self._opened_join(query)
            sources, timeouts = recording.sources, recording.timeouts
            if isinstance(query, QueryGroup):
                sources = check_group(query, sources, timeouts=timeouts)
                for one in query.queries:
                    if _reason(one) is None:
                        self._apart[one.name] = StreamMatcher(
                            one, sources=sources, timeouts=timeouts, choose=self._observed
                        )
                return GroupMatcher(query, sources=sources, timeouts=timeouts)
            sources = check_stream(query, sources, timeouts=timeouts)
            return StreamMatcher(query, sources=sources, timeouts=timeouts, choose=self._observed)
        except OutpaceError as error:
            error.where = error.where or str(recording.path)
            raise

    def _opened_join(self, join: Join) -> JoinStream:
        """Open a join: the state that its recording begins with has the columns of its sides."""
        for frame, payload in self._recording.frames():
            with self._recording.reading(frame):
                if frame.kind is FrameKind.STATE:
                    sides = sides_of(State.decode(payload.to_pybytes()))
                    return JoinStream(join, sides, self._observed)
            break
        raise StateError(
            f"the recording in '{self._recording.path}' has no beginning",
            detail="that of a join tells the columns of its sides",
        )

    def _observed(self, task: Task) -> Matcher:
        """Return a matcher, one that is seen where its steps are explained."""
        matcher = compiled_soon(task)
        if self._reasons[task.bound.query.name] is not None:
            return matcher
        return _ObservedMatcher(task, matcher, self._calls)

    def _replayed(self) -> Iterator[ReplayedStep]:
        pending: tuple[LogFrame, Stimulus] | None = None
        for frame, payload in self._recording.frames():
            recorded = None
            if frame.kind is FrameKind.OUTCOME:
                with self._recording.reading(frame):
                    recorded = Recorded.read(payload)
            if pending is not None:
                yield self._step(*pending, recorded)
                pending = None
            if frame.kind is FrameKind.STIMULUS:
                if self._until is not None and frame.first > self._until:
                    return
                with self._recording.reading(frame):
                    pending = frame, read_stimulus(payload)
            elif frame.kind is not FrameKind.OUTCOME:
                with self._recording.reading(frame):
                    self._begin(frame.kind, payload)
        if pending is not None:
            yield self._step(*pending, None)
        if self.torn is not None:
            _LOG.warning("the recording is torn at its end: %s", self.torn)

    def _begin(self, kind: FrameKind, payload: pa.Buffer) -> None:
        if kind is FrameKind.SCHEMA:
            for stream in (self.stream, *self._apart.values()):
                stream.bind(read_table(payload).schema)
        else:
            self.stream.restore(payload.to_pybytes())
            self._apart, self._resumed = {}, True

    def _step(self, frame: LogFrame, stimulus: Stimulus, recorded: Recorded | None) -> ReplayedStep:
        self._calls.clear()
        stream, reasons = self.stream, self._reasons
        instructions: list[Instruction] = []
        error: Exception | None = None
        same: bool | None = None
        skipped = recorded is not None and recorded.ending is Ending.INTERRUPTED
        if not skipped:
            try:
                instructions = stream.step(stimulus)
                outcome = outcome_of(instructions, self.query)
            except Exception as failure:
                error, outcome = failure, failure_of(failure)
            same = None if recorded is None else outcome == recorded
            if error is None:
                self._step_apart(stimulus, reasons)
        state = StreamState(
            stream.rows_kept,
            stream.open_windows,
            stream.partitions,
            stream.buffered,
            stream.watermark,
            stream.order.slack,
        )
        return ReplayedStep(
            frame.first,
            frame.arrival,
            stimulus,
            self._title(stimulus),
            instructions,
            error,
            same,
            skipped,
            state,
            list(self._calls),
            reasons,
            isinstance(self.query, QueryGroup),
        )

    def _step_apart(self, stimulus: Stimulus, reasons: dict[str, str | None]) -> None:
        """Let the queries of a group take a step each; one that fails takes no more."""
        for name, alone in list(self._apart.items()):
            try:
                alone.step(stimulus)
            except Exception as error:
                message = error.message if isinstance(error, OutpaceError) else str(error)
                reasons[name] = f"the query failed: {message}"
                del self._apart[name]

    def _title(self, stimulus: Stimulus) -> str:
        if isinstance(stimulus, TimerFired):
            return f"clock {stimulus.at}"
        if isinstance(stimulus, ClockExchange):
            return f"clock of {stimulus.source}"
        of = "" if stimulus.source is None else f" of {stimulus.source}"
        if isinstance(stimulus, EventsArrived):
            rows = stimulus.rows.num_rows
            return f"{rows:,} row{'' if rows == 1 else 's'}{of}"
        if isinstance(stimulus, WatermarkArrived):
            return f"time {self.stream.time_text(stimulus.watermark)}{of}"
        return f"end{of}"


#: Why steps of a group are not explained that goes on from saved state.
_RESUMED: Final = "steps of a group are explained where the recording has its beginning"


def _reason(query: Query) -> str | None:
    if query.windows is not None:
        return "steps are explained of a query without windows"
    if query.uncertainty is not None:
        return "steps are explained of a query without uncertain, in one order of the events"
    return None


class _ObservedMatcher:
    """A matcher that lets others see what it is asked and what it says."""

    def __init__(self, task: Task, matcher: Matcher, calls: list[MatcherCall]) -> None:
        self._task, self._matcher, self._calls = task, matcher, calls

    def __call__(self, block: Block, resume: Resume) -> Outcome:
        """Match a block from where an earlier call stopped."""
        outcome = self._matcher(block, resume)
        self._calls.append(MatcherCall(self._task, block, outcome))
        return outcome
