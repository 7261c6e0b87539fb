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
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.event import EVENT_ID, SEQUENCE_BITS
from outpace.engine.front import Front
from outpace.engine.instance import Instance
from outpace.engine.message import (
    Answer,
    Correct,
    Deliver,
    Delivered,
    DeliveryFailed,
    Emit,
    EventsReplayed,
    Instruction,
    Rewind,
    SetAside,
    SourceEnded,
    Stimulus,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.runs import sorted_run
from outpace.engine.order.total import TotalOrder
from outpace.engine.rows.times import as_integers
from outpace.engine.snapshot import Stateful
from outpace.engine.speculate.history import STRETCHES, GivenMatches, OperatorHistory, said
from outpace.engine.state import State
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import (
    StateError,
)

#: A time behind all others.
_END: Final = int(np.iinfo(np.int64).max)

#: Where the parts stood, for `WholeOperator`.
_Mark: TypeAlias = "tuple[Front, Instance]"


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
        #: What was done within the horizon, where late events correct it.
        self._history: OperatorHistory[_Mark] | None = None
        if spec.disorder is not None and spec.query.corrects:
            columns = spec.events, spec.bound.output, spec.disorder.time
            self._history = OperatorHistory(*columns)

    def step(self, stimulus: Stimulus) -> list[Instruction]:
        """Take what happened and return what is to be done; see `Front.step` for errors."""
        aside: list[Instruction] = []
        answers: list[Answer] = []
        begun, late = self.instance.begun, None
        self._mark()
        try:
            for message in self.front.step(stimulus):
                if isinstance(message, SetAside):
                    aside.append(message)
                elif isinstance(message, Deliver):
                    answers.append(self._deliver(message))
                elif isinstance(message, Correct):
                    late = message.rows
            emit = _emitted(self.spec.bound.output, answers)
            if self._history is not None:
                ended = isinstance(stimulus, SourceEnded) and stimulus.source is None
                emit = self._remember(self._history, emit, late, ended=ended)
            return [*aside, emit]
        except BaseException:
            if answers or self.instance.begun != begun:
                self.front.step(DeliveryFailed())
            raise

    def _deliver(self, message: Deliver) -> Answer:
        answer = self.instance.step(message)
        self.front.step(Delivered(0, answer))
        if self._history is not None:
            self._history.take(message.events.rows, message.watermark, message.arrived)
        return answer

    def _mark(self) -> None:
        """Note where the parts stand, so that they can go back there, if it is time to."""
        if self._history is not None and self._history.wants_mark:
            self._history.mark((self.front.mark(), self.instance.snapshot()))

    def _remember(
        self, history: OperatorHistory[_Mark], emit: Emit, late: pa.Table | None, *, ended: bool
    ) -> Emit:
        """Note what comes out; with late events, let come out what they change."""
        speculates = self.spec.query.speculates
        certain = _END if ended else self.front.certain
        if late is None:
            sure = history.make_certain(certain) if speculates else None
            given = history.give(emit.matches, certain)
            matches = [said(given.matches, 1, given.certain)] if speculates else [emit.matches]
        else:
            (front, instance), rows, before = history.go_back(late)
            sure = history.make_certain(certain) if speculates else None
            watermark = self.front.watermark
            self.front.step(Rewind(front))
            self.instance.become(instance.snapshot())
            rows = self._in_place(rows, late)
            again = self._replay(history, rows, watermark, certain, ended=ended)
            change = history.change(before, again)
            gone = said(change.gone, -1, np.zeros(len(change.gone), np.bool_))
            matches = [gone, said(change.come, 1, change.certain)]
            if speculates:
                matches.insert(1, said(change.confirmed, 0))
        if sure is not None and len(sure):
            matches.insert(0, said(sure, 0))
        history.forget(certain)
        return replace(emit, matches=WindowMatches.joined(self.spec.bound.output, matches))

    def _replay(
        self,
        history: OperatorHistory[_Mark],
        rows: pa.Table,
        watermark: int,
        certain: int,
        *,
        ended: bool,
    ) -> list[GivenMatches]:
        """Take rows once more, and note and return all matches that come of them."""
        found = []
        size = max(history.stretch_rows, rows.num_rows // STRETCHES)
        pieces = [rows.slice(begin, size) for begin in range(0, rows.num_rows, size)]
        for piece in pieces:
            self._mark()
            told = watermark if piece is pieces[-1] else int(NO_TIME)
            found.append(history.give(self._take_again(EventsReplayed(piece, told)), certain))
        if ended:
            last = self._take_again(EventsReplayed(rows.slice(0, 0), ended=True))
            found.append(history.give(last, certain))
        return found

    def _take_again(self, replay: EventsReplayed) -> WindowMatches:
        messages = self.front.step(replay)
        answers = [self._deliver(one) for one in messages if isinstance(one, Deliver)]
        found = [answer.matches for answer in answers]
        return WindowMatches.joined(self.spec.bound.output, found)

    def _in_place(self, rows: pa.Table, late: pa.Table) -> pa.Table:
        """Return rows in their order, with late ones among them."""
        spec = self.spec
        assert spec.disorder is not None
        order, both = TotalOrder(spec.bound, spec.disorder), pa.concat_tables([rows, late])
        if spec.sources is not None:
            # Among equals that of the lower source comes first, then that which came first.
            source = as_integers(both.column(EVENT_ID.name)) >> SEQUENCE_BITS
            both = both.take(np.argsort(source, kind="stable"))
        return order.without_ties(sorted_run(both, order.ticks(both)))

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        self.front.check()
        parts = {"front": self.front.state(), "instance": self.instance.state()}
        if self._history is not None and self._history.begun:
            front, instance = self._history.base
            parts["history"] = self._history.state()
            parts["base"] = front.mark_state()
            parts["base instance"] = instance.state()
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
        front, instance = Front(self.spec, self._place), Instance(self.spec)
        front.restore(state.part("front"))
        instance.restore(state.part("instance"), front)
        fresh = WholeOperator(self.spec, self._place)
        if fresh._history is not None and "history" in state.parts:
            base = Front(self.spec, self._place), Instance(self.spec)
            base[0].restore_mark(state.part("base"))
            base[1].restore(state.part("base instance"), base[0])
            fresh._history.restore(state.part("history"), base)
        self._history = fresh._history
        self.front.become(front)
        self.instance.become(instance)

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
