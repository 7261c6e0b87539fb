"""The back: what instances found as one, in its order, each match once.

Memory: that of the merger, and a number for each delivery without an answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.merge.merger import Merger, out_of_turn
from outpace.engine.message import (
    AllAnswered,
    Deliver,
    Delivered,
    Emit,
    Routed,
    TurnEnded,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.snapshot import Stateful
from outpace.engine.state import ANY, NATURAL, State, integer, integers, require
from outpace.engine.window_match.matcher import ENDED
from outpace.engine.window_match.result import WindowMatches


@dataclass(frozen=True)
class BackCounters:
    """What a back holds: matches that wait for others, and those that may be found again."""

    waiting: int
    remembered: int


class Back(Stateful):
    """Puts the matches of instances together, in their order, each of them once.

    With `Deliver` it hears whose answers are due, so that `TurnEnded` lets out what no due answer
    can change; where all have answered, `AllAnswered` lets the rest out.
    """

    CHANGED = ("_merger", "_due", "_horizons", "_watermarks")

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec, count = spec, spec.instances or 1
        self._merger = Merger(spec.bound.output, count, distinct=spec.finds_again)
        #: For each instance the arrival numbers that its due deliveries begin with.
        self._due: list[deque[int]] = [deque() for _ in range(count)]
        #: What each instance promised last: who has not answered has no windows, and no time.
        self._horizons = [ENDED] * count
        self._watermarks = [int(NO_TIME)] * count
        self._arrived = 0
        self._ended = False
        self._nothing = pa.table({})

    @property
    def settled(self) -> bool:
        """Whether the input has ended and every delivery is answered."""
        return self._ended and not any(self._due)

    def counters(self) -> BackCounters:
        """Return how many matches are held."""
        return BackCounters(self._merger.waiting, self._merger.remembered)

    def step(self, message: Deliver | Routed | Delivered | TurnEnded | AllAnswered) -> list[Emit]:
        """Take what happened and return what is complete."""
        match message:
            case Deliver():
                # An answer is due for what comes from here on.
                self._due[message.instance].append(self._arrived)
                return []
            case Routed():
                self._arrived, self._ended = message.arrived, message.ended
                return []
            case Delivered():
                self._receive(message)
                return []
            case TurnEnded():
                return self._complete()
            case AllAnswered():
                return self._emit(self._merger.rest())

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        numbers = {"arrived": self._arrived, "ended": self._ended}
        sizes = [len(due) for due in self._due]
        promised = {"due": sizes, "horizon": self._horizons, "watermark": self._watermarks}
        due = pa.array([first for due in self._due for first in due], pa.int64())
        tables = [pa.table(promised), pa.table({"arrived": due})]
        return State(numbers, tables, {"merger": self._merger.state()})

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
        self._due = [deque(part.tolist()) for part in parts]
        self._horizons, self._watermarks = horizons.tolist(), watermarks.tolist()

    def _complete(self) -> list[Emit]:
        """Return what no due answer can change any more."""
        if self._spec.windows is None and not any(self._due):
            # What time makes final comes before the next event, which need not come soon.
            return self._emit(self._merger.rest())
        now = ENDED if self._ended else self._arrived
        for number, (due, horizon) in enumerate(zip(self._due, self._horizons, strict=True)):
            frontier = due[0] if due else now
            self._merger.advance(number, frontier, min(horizon, frontier))
        return self._emit(self._merger.pop())

    def _receive(self, message: Delivered) -> None:
        instance, answer = message.instance, message.answer
        due = self._due[instance]
        if due:
            if answer.events and answer.frontier <= due[0]:
                detail = (
                    f"it goes up to event {answer.frontier}, and those from {due[0]} on are due"
                )
                raise out_of_turn(instance, detail)
            due.popleft()
        self._merger.push(instance, answer.matches)
        self._merger.advance(instance, answer.frontier, answer.horizon)
        self._horizons[instance] = answer.horizon if answer.open_windows else ENDED
        self._watermarks[instance] = answer.watermark

    def _emit(self, matches: WindowMatches) -> list[Emit]:
        return [Emit(matches, self._nothing, min(self._watermarks))]
