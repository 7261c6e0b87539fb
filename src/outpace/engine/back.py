"""The back: the matches of all instances as one, in their order, each match once.

Where late events correct matches that came out, it goes back with the front. A mark that the front
sets lies between two deliveries of each instance. The back stands at it once all answers to those
before have come; answers to later ones wait so long:

    answers of instance 0   a  a  a | b        the mark is | , and b waits
    answers of instance 1   a  .  . | .

When the front goes back, answers that are due to deliveries since the mark are of no use.

Memory: that of the merger, and a number for each delivery without an answer; where late events
correct also the answers that wait, and for each mark a snapshot of the merger.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.emission import ChangeCounters, emitted
from outpace.engine.merge.merger import Merger, out_of_turn
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    Emit,
    MarkSet,
    Routed,
    TurnEnded,
    WentBack,
    refused_message,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.history import MatchHistory, ShownColumns
from outpace.engine.state import ANY, NATURAL, State, integer, integers, require
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import StateError
from outpace.pattern.query import RowsPerMatch

_BackInput: TypeAlias = MarkSet | WentBack | Deliver | Routed | Delivered | TurnEnded


@dataclass(frozen=True)
class BackCounters:
    """The matches that a back holds: those that wait for others, and those that may come again."""

    waiting: int
    remembered: int


@dataclass(frozen=True)
class _Due:
    """A delivery to an instance, or a mark between two of them.

    Parameters
    ----------
    arrived
        The arrival number of the event that comes first from there on.
    mark
        The number of the mark; None for a delivery.
    answer
        The answer, where it waits for other instances.
    useless
        Whether the front has gone back since.
    """

    arrived: int
    mark: int | None = None
    answer: Answer | None = None
    useless: bool = False


class Back(Stateful):
    """Puts the matches of instances together, in their order, each of them once.

    With `Deliver` it hears whose answers are due, so that `TurnEnded` lets out the matches that no
    due answer can change, and all where none is due.
    """

    CHANGED = ("_merger", "_due", "_horizons", "_watermarks", "_history", "_timed_out")

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec, count = spec, spec.instances or 1
        self._merger = Merger(
            spec.found_columns,
            count,
            distinct=spec.finds_again,
            keyed=spec.windows is not None and spec.windows.keyed,
        )
        #: For each instance the deliveries whose answers are due, and the marks between them.
        self._due: list[deque[_Due]] = [deque() for _ in range(count)]
        #: What came out within the horizon, where late events correct it, and backs as they stood.
        self._history: MatchHistory[Back] | None = None
        one_row = spec.task is not None and spec.bound.query.rows is RowsPerMatch.ONE
        self._columns = ShownColumns(spec.found_columns, spec.output, one_row, spec.query.confirms)
        if spec.corrects:
            self._history = MatchHistory(self._columns)
        #: What the front said last, of a step of which more may follow.
        self._routed = Routed(0)
        #: What became of matches since the part was made.
        self.changes = ChangeCounters()
        #: What each instance promised last: who has not answered has no windows, and no time.
        self._horizons = [ENDED] * count
        self._watermarks = [int(NO_TIME)] * count
        self._arrived = 0
        self._ended = False
        #: Partial matches that WITHIN ended and nobody was told of, where somebody asks for them.
        self._timed_out: list[pa.Table] = []
        self._nothing = spec.timed_out.empty_table()
        self._no_matches = WindowMatches.none(spec.output)

    @property
    def settled(self) -> bool:
        """Whether the input has ended and every delivery is answered."""
        return self._ended and not self.is_waiting

    def counters(self) -> BackCounters:
        """Return how many matches are held."""
        return BackCounters(self._merger.waiting, self._merger.remembered)

    @property
    def oldest(self) -> int | None:
        """The number of the oldest mark that it may go back to; None where there is none."""
        history = self._history
        return history.oldest if history is not None and history.begun else None

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return any(self._due)

    @property
    def goes_back(self) -> bool:
        """Whether what came out is wrong until more answers come, for which a host waits."""
        return self._history is not None and self._history.went_back

    def step(self, message: _BackInput) -> list[Emit]:
        """Take what happened and return what is complete."""
        match message:
            case Delivered():
                self._receive(message.instance, message.answer)
            case Routed():
                self._arrived, self._ended = message.arrived, message.ended
                self._routed = message
            case TurnEnded():
                return self._complete()
            case Deliver():
                # An answer is due for what comes from here on.
                self._due[message.instance].append(_Due(self._arrived))
            case MarkSet():
                for due in self._due:
                    due.append(_Due(self._arrived, message.mark))
                self._settle()
            case WentBack():
                self._go_back(message.mark)
            case _:
                raise refused_message("the back", message, _BackInput)
        return []

    def state(self) -> State:
        """Return all that is kept, for `restore`; see `Front.state` where late events correct."""
        if self._history is not None and any(self._due):
            raise StateError(
                "answers are due that what came out may be corrected by",
                hint="save all parts once every delivery is answered, or keep snapshots",
            )
        numbers = {"arrived": self._arrived, "ended": self._ended}
        sizes = [len(due) for due in self._due]
        promised = {"due": sizes, "horizon": self._horizons, "watermark": self._watermarks}
        due = pa.array([one.arrived for due in self._due for one in due], pa.int64())
        tables = [pa.table(promised), pa.table({"arrived": due})]
        parts = {"merger": self._merger.state()}
        if self._history is not None and self._history.begun:
            parts |= {"history": self._history.state(), "base": self._history.base.state()}
        return State(numbers, tables, parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, whatever was taken since."""
        fresh = Back(self._spec)
        fresh._read(state)
        self.become(fresh)

    def _read(self, state: State) -> None:
        header, (promised, due) = state.content(2)
        self._arrived = integer(header, "arrived", NATURAL)
        self._ended = header.get("ended") is True
        (first,) = integers(due, arrived=range(self._arrived + 1))
        counts, horizons, watermarks = integers(
            promised, due=range(len(first) + 1), horizon=range(ENDED + 1), watermark=ANY
        )
        self._merger.restore(state.part("merger"))
        require(len(counts) == len(self._due), "promises of instances are missing")
        require(counts.sum() == len(first), "deliveries belong to no instance")
        parts = np.split(first, np.cumsum(counts)[:-1])
        require(all((np.diff(part) >= 0).all() for part in parts), "deliveries go back")
        self._due = [deque(map(_Due, part.tolist())) for part in parts]
        self._horizons, self._watermarks = horizons.tolist(), watermarks.tolist()
        if self._history is not None and "history" in state.parts:
            base = Back(self._spec)
            base._read(state.part("base"))
            base._history = None
            self._history.restore(state.part("history"), base)

    def _complete(self) -> list[Emit]:
        """Return what no due answer can change any more."""
        now = ENDED if self._ended else self._arrived
        for number, (due, horizon) in enumerate(zip(self._due, self._horizons, strict=True)):
            frontier = due[0].arrived if due else now
            self._merger.advance(number, frontier, min(horizon, frontier))
        # What time makes final comes before the next event, which need not come soon.
        return self._emit(self._merger.pop() if self.is_waiting else self._merger.rest())

    def _receive(self, instance: int, answer: Answer) -> None:
        """Take the answer to the first delivery that has none, or keep it for its turn."""
        if answer.checkpoint_bytes:
            self.changes = self.changes.plus(checkpoint_bytes=answer.checkpoint_bytes)
        if not 0 <= instance < len(self._due):
            raise out_of_turn(instance, f"there are {len(self._due)}, counted from 0")
        due = self._due[instance]
        for place, one in enumerate(due):
            if one.mark is not None or one.answer is not None:
                continue
            if place:
                due[place] = replace(one, answer=answer)
                return
            self._take_due(instance, answer)
            if due:
                self._settle()
            return
        raise out_of_turn(instance, "all that it was sent is answered")

    def _settle(self) -> None:
        """Take the answers whose turn it is, and stand at marks that have all answers before."""
        while True:
            for instance, due in enumerate(self._due):
                while due and (answer := due[0].answer) is not None:
                    self._take_due(instance, answer)
            for due in self._due:
                if not due or due[0].mark is None:
                    return
            (mark,) = {due.popleft() for due in self._due}
            assert self._history is not None
            assert mark.mark is not None
            self._history.give(self._merger.pop())
            self._history.mark(mark.mark, self._twin(mark.arrived))
            self.changes = self.changes.plus(checkpoint_bytes=self._merger.copied_bytes)

    def _take_due(self, instance: int, answer: Answer) -> None:
        """Take the answer that is due first, unless it is of no use."""
        first = self._due[instance].popleft()
        if first.useless:
            return
        if answer.events and answer.frontier <= first.arrived:
            detail = f"it goes up to event {answer.frontier}, and those from {first.arrived} on"
            raise out_of_turn(instance, f"{detail} are due")
        self._take(instance, answer)

    def _take(self, instance: int, answer: Answer) -> None:
        self._merger.push(instance, answer.matches)
        self._merger.advance(instance, answer.frontier, answer.horizon)
        self._horizons[instance] = answer.horizon if answer.open_windows else ENDED
        self._watermarks[instance] = answer.watermark
        if self._spec.timeouts:
            self._timed_out.append(answer.timed_out)

    def _twin(self, arrived: int) -> Back:
        """Return a back that stands at a mark, behind so many events, and stays there.

        This one has heard of more events already where answers came late.
        """
        twin = self.twin()
        twin._history, twin._due = None, [deque() for _ in self._due]
        twin._stand(self)
        twin._arrived, twin._ended = arrived, False
        return twin

    def _stand(self, other: Back) -> None:
        """Stand where another back does."""
        self._merger = other._merger.snapshot()
        self._horizons, self._watermarks = [*other._horizons], [*other._watermarks]
        self._arrived, self._ended = other._arrived, other._ended

    def _go_back(self, number: int) -> None:
        """Stand at a mark again; what is due to later deliveries is of no use."""
        assert self._history is not None
        passed = not any(one.mark == number for one in self._due[0])
        if passed:
            self._stand(self._history.go_back(number))
        for instance, due in enumerate(self._due):
            place = 0
            if not passed:
                place = next(n for n, one in enumerate(due) if one.mark == number) + 1
                self._arrived, self._ended = due[place - 1].arrived, False
            kept = [*due][:place]
            kept += [
                _Due(self._arrived, useless=True)
                for one in [*due][place:]
                if one.mark is None and one.answer is None
            ]
            self._due[instance] = deque(kept)

    def _emit(self, matches: WindowMatches) -> list[Emit]:
        if (history := self._history) is not None:
            history.give(matches)
            # What is found once more is compared as a whole.
            routed = self._routed
            whole = not history.went_back or not (routed.more or any(self._due))
            matches = self._no_matches
            if whole and (sayings := history.emit(routed.certain)):
                self.changes = self.changes.after(sayings, routed.now)
                matches = emitted(self._spec.query, self._columns, sayings)
            if whole:
                # What is forgotten was said to be certain, now at the latest.
                history.forget(routed.oldest)
        timed_out, self._timed_out = self._timed_out, []
        ended = pa.concat_tables(timed_out) if timed_out else self._nothing
        return [Emit(self._spec.query.name, matches, ended, min(self._watermarks))]
