"""The operator: order, number, split, schedule, match, merge, as three parts with one mutator each.

The front brings events into order, numbers them, says which windows they open and close, and which
instance gets them (`front`). Instances match the windows that they are given; a partition without
windows is the window that is always open (`instance`). The back puts what they found together, in
its order (`back`).
`WholeOperator` is a front and one instance in one place, whose matches are in order already; a host
that has parts in several places carries `Deliver` and `Delivered` between them. Each part is a
state machine: a step is a function of its state and of the message.

Memory: that of the parts, see there.
Paper: SPACE (Amann 2018) 2.3.4, figure 2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.emission import ChangeCounters, emitted
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Deliver,
    Delivered,
    DeliveryFailed,
    Emit,
    Instruction,
    MarkSet,
    Routed,
    SetAside,
    Stimulus,
    WentBack,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.history import MatchHistory
from outpace.engine.state import State
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import (
    StateError,
)


class WholeOperator(Stateful):
    """Front and one instance in one place; what one instance finds is in order, so nobody merges.

    Examples
    --------
    >>> from outpace.engine.message import EventsArrived
    >>> from outpace.pattern.query import Query
    >>> query = Query().order_by("ts").pattern("A B").measures(at="B.ts")
    >>> operator = WholeOperator(OperatorSpec(query, pa.schema([("ts", pa.int64())])))
    >>> (emit,) = operator.step(EventsArrived(pa.table({"ts": [1, 2]})))
    >>> emit.matches.table.to_pylist()
    [{'at': 2}]
    """

    CHANGED = ("front", "instance", "_history")

    def __init__(self, spec: OperatorSpec, place: int = 0) -> None:
        assert spec.instances is None, "instances that share windows have places of their own"
        self.spec, self._place = spec, place
        self.front = Front(spec, place)
        self.instance = Instance(spec)
        #: What came out within the horizon, where late events correct it.
        self._history = MatchHistory[None](spec.bound.output) if spec.corrects else None
        #: Whether the front took what happened last.
        self._delivers = True
        #: What became of matches since the operator was made.
        self._changes = ChangeCounters()

    def step(self, stimulus: Stimulus) -> list[Instruction]:
        """Take what happened and return what is to be done; see `Front.step` for errors."""
        aside: list[Instruction] = []
        answers: list[Answer] = []
        begun, certain = self.instance.begun, int(NO_TIME)
        try:
            self._delivers = False
            moves = self.front.step(stimulus)
            self._delivers = True
            for message in moves:
                match message:
                    case SetAside():
                        aside.append(message)
                    case Deliver():
                        answers.append(self._deliver(message))
                    case Routed():
                        certain = message.certain
                    case MarkSet() if self._history is not None:
                        self._history.mark(message.number, None)
                    case WentBack() if self._history is not None:
                        self._history.go_back(message.mark)
            emit = _emitted(self.spec.bound.output, answers)
            if self._history is not None:
                said = self._history.emit(certain)
                self._changes = self._changes.after(said)
                emit = replace(emit, matches=emitted(self.spec.query, said))
            return [*aside, emit]
        except BaseException:
            if answers or self.instance.begun != begun:
                self.front.step(DeliveryFailed())
            raise

    @property
    def refuses(self) -> bool:
        """Whether the front refused what happened last, of which nothing was taken then."""
        return not self._delivers and not self.front.has_lost

    @property
    def changes(self) -> ChangeCounters:
        """What became of matches that may be taken back, since the operator was made."""
        again = {"rollbacks": self.front.rollbacks, "replayed": self.front.replayed}
        return replace(self._changes, **again)

    def _deliver(self, message: Deliver) -> Answer:
        answer = self.instance.step(message)
        self.front.step(Delivered(0, answer))
        if self._history is not None:
            assert message.standing is not None
            self._history.forget(message.standing.oldest)
            self._history.give(answer.matches)
        return answer

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        self.front.check()
        parts = {"front": self.front.state(), "instance": self.instance.state()}
        if self._history is not None and self._history.begun:
            parts["history"] = self._history.state()
        return State(self._header, parts=parts)

    def restore(self, state: State) -> None:
        """Go on from what `state` returned, maybe in another process; if it is refused, as before.

        Also one that failed goes on from there.
        """
        if state.numbers != self._header:
            other = f"{'without' if self.spec.windows else 'with'} windows"
            if state.numbers.get("windows") == self._header["windows"]:
                other = "whose late events correct what came out up to another horizon"
            raise StateError(
                f"the saved state belongs to a query {other}",
                hint="resume it with the query that it was saved from, or start from the input",
            )
        fresh = WholeOperator(self.spec, self._place)
        fresh.front.restore(state.part("front"))
        fresh.instance.restore(state.part("instance"), fresh.front)
        if fresh._history is not None and "history" in state.parts:
            fresh._history.restore(state.part("history"), None)
        self._history = fresh._history
        self.front.become(fresh.front)
        self.instance.become(fresh.instance)

    @property
    def _header(self) -> dict[str, object]:
        corrects = {} if self.spec.horizon is None else {"horizon": self.spec.horizon}
        corrects |= {"speculates": True} if self.spec.query.speculates else {}
        return {"windows": self.spec.windows is not None, **corrects}


def _emitted(schema: pa.Schema, answers: Sequence[Answer]) -> Emit:
    """Return what one instance gave, which is in its order, each match once."""
    last = answers[-1]
    if len(answers) == 1:
        return Emit(last.matches, last.timed_out, last.watermark)
    return Emit(
        WindowMatches.joined(schema, [answer.matches for answer in answers]),
        pa.concat_tables([answer.timed_out for answer in answers]),
        last.watermark,
    )


def matches_of(instructions: Sequence[Instruction]) -> pa.Table:
    """Return the matches that became final with one stimulus."""
    return emit_of(instructions).matches.table


def emit_of(instructions: Sequence[Instruction]) -> Emit:
    """Return what became final with one stimulus."""
    (emit,) = [one for one in instructions if isinstance(one, Emit)]
    return emit
