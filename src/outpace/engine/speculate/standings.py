"""The marks that instances hear of, with the next delivery that each gets.

An instance that gets no delivery does not change. So the message can wait: a mark that is set later
stands for those before it, and of several marks to go back to the first one counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from outpace.engine.arrays import NO_TIME
from outpace.engine.snapshot import Stateful


@dataclass(frozen=True)
class Standing:
    """Where an instance is to stand when it takes a delivery, where late events correct.

    Parameters
    ----------
    bound
        With the delivery, all that came lies before this time, and time has not come further.
    back_to
        A mark to go back to first; None: nowhere.
    mark
        The number of a mark that is to be set then; None: of none.
    oldest
        Nobody goes back to a mark before this one.
    """

    bound: int
    back_to: int | None = None
    mark: int | None = None
    oldest: int = 0


_NOTHING: Final = Standing(int(NO_TIME))


class Standings(Stateful):
    """The marks that each of some instances is to hear of, and which of its answers are of use.

    Parameters
    ----------
    instances
        How many there are.
    """

    CHANGED = ("_next", "_sent")

    def __init__(self, instances: int) -> None:
        self._next = [_NOTHING] * instances
        #: For each instance the last mark before each delivery without an answer, None where the
        #: front has gone back since.
        self._sent: list[deque[int | None]] = [deque() for _ in range(instances)]

    def set_mark(self, number: int) -> None:
        """Let all set a mark."""
        self._next = [replace(standing, mark=number) for standing in self._next]

    def go_back(self, number: int) -> None:
        """Let all go back to a mark, and set it again; what was sent since is of no use.

        Who had no delivery since has not set it yet, as it had not changed.
        """
        for instance, standing in enumerate(self._next):
            first = number if standing.back_to is None else min(standing.back_to, number)
            self._next[instance] = replace(standing, back_to=first, mark=number)
        self._sent = [
            deque(None if one is not None and one >= number else one for one in sent)
            for sent in self._sent
        ]

    @property
    def are_heard(self) -> bool:
        """Whether every instance has heard of all marks, or will with what is on its way to it."""
        return self._next == [_NOTHING] * len(self._next)

    def goes_back(self, instance: int) -> bool:
        """Say whether an instance is to go back."""
        return self._next[instance].back_to is not None

    def send(self, instance: int, bound: int, oldest: int, newest: int) -> Standing:
        """Return what an instance hears with a delivery: see `Standing`, and the newest mark."""
        standing, self._next[instance] = self._next[instance], _NOTHING
        self._sent[instance].append(newest)
        return Standing(bound, standing.back_to, standing.mark, oldest)

    def take_answer(self, instance: int) -> int | None:
        """Return the last mark before the delivery that is answered; None where it is of no use."""
        return self._sent[instance].popleft()
