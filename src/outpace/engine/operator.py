"""The operator: order, number, split, schedule, match, merge, as three parts with one mutator each.

The front brings events into order, numbers them, says which windows they open and close, and which
instance gets them (`front`). Instances match the windows that they are given; a partition without
windows is the window that is always open (`instance`). The back puts their matches together, in
their order (`back`). `WholeOperator` is the three together: it knows
what becomes of each message between them. A host that has instances in places of their own carries
deliveries to them and answers back; the stages of a Spark stream are the parts apart (`stage`).
Each part is a state machine: a step is a function of its state and the message.

Memory: that of the parts, see there.
Paper: SPACE (Amann 2018) 2.3.4, figure 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from outpace.engine.back import Back
from outpace.engine.emission import ChangeCounters
from outpace.engine.front import Front, FrontCounters
from outpace.engine.instance import Instance
from outpace.engine.intake import Intake
from outpace.engine.message import (
    BatchBegun,
    Deliver,
    Delivered,
    DeliveryFailed,
    Emit,
    FrontMoved,
    Instruction,
    Move,
    OperatorInput,
    SetAside,
    TurnEnded,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.order.contract import OrderCounters
from outpace.engine.snapshot import Stateful
from outpace.engine.state import State, require
from outpace.engine.window_match.result import WindowMatches
from outpace.errors import (
    StateError,
)


class WholeOperator(Stateful):
    """Front and back, with all that is carried between them and the instances.

    Its one instance is beside them, and takes a delivery at once. Where several instances share the
    windows, they are elsewhere: a delivery is an instruction, and `Delivered` tells of the answer.

    Parameters
    ----------
    spec
        The operator.
    place
        Which one it is, where each of several has events of its own.
    block_size
        As in `Front`.

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

    CHANGED = ("front", "_instance", "back")

    def __init__(
        self,
        spec: OperatorSpec,
        place: int = 0,
        block_size: Callable[[pa.Table], int] | None = None,
    ) -> None:
        self.spec, self._place, self._block_size = spec, place, block_size
        self.front, self.back = Front(spec, place, block_size), Back(spec)
        self._instance = Instance(spec) if spec.instances is None else None

    def step(self, message: OperatorInput) -> list[Instruction]:
        """Take what happened and return what is to be done; see `Front.step` for errors.

        The last instruction is an `Emit`, all that is complete by now; `BatchBegun` has no answer.
        """
        match message:
            case Delivered():
                self._hear(message)
                return [*self.back.step(TurnEnded())]
            case FrontMoved():
                return self._carry(message.moves)
            case BatchBegun():
                self.front.step(message)
                return []
        return self._carry(self.front.step(message))

    def _carry(self, moves: Sequence[Move]) -> list[Instruction]:
        """Let instance and back take what the front said, and return what is to be done."""
        given: list[Instruction] = []
        instance, begun, answered = self._instance, self._begun, False
        try:
            for message in moves:
                match message:
                    case SetAside():
                        given.append(message)
                    case Deliver() if instance is not None:
                        answer = Delivered(0, instance.step(message))
                        answered = True
                        self.back.step(message)
                        self._hear(answer)
                    case Deliver():
                        self.back.step(message)
                        given.append(message)
                    case _:
                        self.back.step(message)
            return [*given, *self.back.step(TurnEnded())]
        except BaseException:
            if answered or self._begun != begun or self.front.has_lost:
                self.front.step(DeliveryFailed())
            raise

    def _hear(self, answer: Delivered) -> None:
        """Let front and back hear what an instance answered."""
        self.back.step(answer)  # Who refuses one that is not due.
        self.front.step(answer)

    @property
    def _begun(self) -> int:
        return 0 if self._instance is None else self._instance.begun

    @property
    def instance(self) -> Instance:
        """The instance that is beside front and back."""
        assert self._instance is not None, "instances that share windows are elsewhere"
        return self._instance

    @property
    def operators(self) -> list[WholeOperator]:
        """The operators of all queries: a host asks a single one as it asks those of a group."""
        return [self]

    @property
    def intake(self) -> Intake:
        """How events come in."""
        return self.front.intake

    @property
    def timer(self) -> int | None:
        """When `TimerFired` is due; None where never."""
        return self.front.timer

    @property
    def order(self) -> OrderCounters:
        """How it goes with the order of the events."""
        return self.front.intake.counters()

    @property
    def arrived(self) -> int:
        """How many events have had their turn."""
        return self.front.arrived

    @property
    def partitions(self) -> int:
        """How many partitions are known."""
        return self.front.partitions

    def counters(self) -> FrontCounters:
        """Return what there was, and what waits."""
        return self.front.counters()

    @property
    def alpha(self) -> float:
        """The part of K that events wait."""
        return self.front.alpha

    @property
    def changes(self) -> ChangeCounters:
        """What became of matches that may be taken back, since the operator was made."""
        return self.back.changes.plus(**vars(self.front.changes))

    @property
    def work(self) -> tuple[float, float]:
        """Seconds that an event takes, and a checkpoint; 0 where nobody has measured it."""
        return self.front.work

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        self.front.check()
        if self._instance is None:
            raise StateError(
                "an operator whose instances are elsewhere has no state of its own",
                hint="save its front, its back and each instance together, once all have answered",
            )
        parts = {"front": self.front.state(), "instance": self.instance.state()}
        if self.spec.corrects:
            parts["back"] = self.back.state()
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
        fresh = WholeOperator(self.spec, self._place, self._block_size)
        fresh.front.restore(state.part("front"))
        fresh.instance.restore(state.part("instance"), fresh.front)
        if self.spec.corrects:
            fresh.back.restore(state.part("back"))
            require(fresh.front.oldest == fresh.back.oldest, "parts stand at different marks")
        self.front.become(fresh.front)
        self.instance.become(fresh.instance)
        self.back.become(fresh.back)

    @property
    def _header(self) -> dict[str, object]:
        corrects = {} if self.spec.horizon is None else {"horizon": self.spec.horizon}
        corrects |= {"speculates": True} if self.spec.query.speculates else {}
        return {"windows": self.spec.windows is not None, **corrects}


def matches_of(instructions: Sequence[Instruction]) -> pa.Table:
    """Return the matches that became final with one stimulus."""
    return emit_of(instructions).matches.table


def emit_of(instructions: Sequence[Instruction]) -> Emit:
    """Return what became final with one stimulus."""
    (emit,) = [one for one in instructions if isinstance(one, Emit)]
    return emit


def joined_emit(emits: Sequence[Emit]) -> Emit:
    """Return what became final in several steps, of one query, as that of the last."""
    last = emits[-1]
    matches = [one.matches for one in emits if len(one.matches)]
    schema, timed_out = last.matches.table.schema, [one.timed_out for one in emits]
    joined = WindowMatches.joined(schema, matches)
    return replace(last, matches=joined, timed_out=pa.concat_tables(timed_out))
