"""An operator that is recovered by a replay, whose windows several instances share.

One place has its front, its back and what savepoints are made of; instances are elsewhere.
All of them answer before the next step, so that what came out is complete when it is retained.
Which events a chain has used is known by its instance alone, so here those that fit a step count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outpace.engine.back import Back
from outpace.engine.front import Front
from outpace.engine.match.bits import with_bits
from outpace.engine.message import AllAnswered, Deliver, Emit, Instruction, Move, Routed, SetAside
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.event_needs import Use
from outpace.engine.recover.recoverable import RecoverableOperator


class SharedInstances(Protocol):
    """What has the instances of an operator, its front and its back."""

    front: Front
    back: Back

    def send_all(self, deliveries: Sequence[Deliver]) -> None:
        """Give instances the deliveries of one block."""

    def receive_all(self) -> None:
        """Wait until all have answered, and let front and back hear it."""


class SharedRecoverableOperator(RecoverableOperator):
    """A recoverable operator whose windows several instances share.

    Parameters
    ----------
    spec
        The operator, as if it were in one place.
    shared
        Its instances, new; their front and back are those of the operator.
    """

    def __init__(self, spec: OperatorSpec, shared: SharedInstances) -> None:
        super().__init__(spec)
        assert self._layout is not None, "instances share windows"
        self._shared = shared
        self.front, self.back = shared.front, shared.back
        if self._use is Use.MATCHED:
            assert spec.task is not None
            bits = with_bits(spec.task)
            fits = bits.drop_unused and spec.bound.within is None
            self._use, self._bits = (Use.FITTING, bits) if fits else (Use.EVERY, None)

    def _let_take(self, moves: Sequence[Move]) -> list[Instruction]:
        aside: list[Instruction] = []
        deliveries: list[Deliver] = []
        for message in moves:
            match message:
                case SetAside():
                    aside.append(message)
                case Deliver():
                    deliveries.append(message)
                case Routed():
                    self._shared.send_all(deliveries)
                    deliveries = []
        return [*aside, self._answered()]

    def _answer(self, deliveries: Sequence[Deliver]) -> Emit:
        self._shared.send_all(deliveries)
        return self._answered()

    def _answered(self) -> Emit:
        """Wait for all answers, and return what they found."""
        self._shared.receive_all()
        (emit,) = self.back.step(AllAnswered())
        return emit

    def _anew(self) -> RecoverableOperator:
        return self
