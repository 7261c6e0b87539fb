"""Checkpoint models as values: where an operator that may go back notes how it stands.

`outpace.checkpoints` holds the names for users; `outpace.engine.speculate.stretches` runs them.
Where checkpoints lie changes what is matched again and what is copied, never the result. Paper:
Sardar 2018, 4.7 and 9.1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from outpace.pattern.setting import Number, check_settings, setting


@dataclass(frozen=True, slots=True)
class CheckpointWork:
    """What a model knows of the work that checkpoints make and save.

    Parameters
    ----------
    since, coming
        How many events went on since the last checkpoint, and how many go on now, all at once
        where no checkpoint cuts them.
    certain
        Of all these, how many nothing came before any more when they went on; they are the first of
        them. Nobody goes back there.
    kept
        How many events are kept to go back to.
    event, checkpoint
        Seconds that one more event takes, and one more checkpoint with what stops there. They are
        estimated from what the host measures; a first guess where it does not.
    apart
        How many events go on between two times that the operator goes back, recently; those that
        go on once more count, too.
    missed
        Which part of the events between two checkpoints it went back behind, recently, though
        they lay before the late one.

    Examples
    --------
    >>> known = CheckpointWork(since=40, coming=1000, event=1e-6, checkpoint=1e-3)
    >>> Every(100).interval(known), Adaptive().interval(known)
    (100, 1000)
    """

    since: int = 0
    coming: int = 0
    certain: int = 0
    kept: int = 0
    event: float = 1e-6
    checkpoint: float = 1e-3
    apart: float = 1e6
    missed: float = 0.5


class CheckpointModel(ABC):
    """Says how many events lie between checkpoints; own ones are subclasses.

    Examples
    --------
    >>> class Tenth(CheckpointModel):
    ...     '''Ten checkpoints among all events that may have to be matched again.'''
    ...     def interval(self, work):
    ...         return max(100, work.kept // 10)
    >>> work = CheckpointWork(kept=5000)
    >>> Tenth().interval(work)
    500
    """

    @abstractmethod
    def interval(self, work: CheckpointWork) -> int:
        """Return after how many events, from the last checkpoint on, the next one lies.

        It is asked anew for each piece of events that goes on, and may decide otherwise then.

        Parameters
        ----------
        work
            What is known of the work since the last checkpoint, and of what checkpoints cost.
        """


@dataclass(frozen=True, slots=True)
class Every(CheckpointModel):
    """A checkpoint before each so many events; in place of it the number alone will do.

    Sardar 2018, 4.7, the first model.

    Parameters
    ----------
    events
        How many.

    Examples
    --------
    >>> Every(100).interval(CheckpointWork(coming=5000))
    100
    """

    events: int = field(metadata=setting(Number(least=1, whole=True)))

    def __post_init__(self) -> None:
        check_settings(self, "op.checkpoints.Every")

    def interval(self, work: CheckpointWork) -> int:
        """Return the number."""
        return self.events


@dataclass(frozen=True, slots=True)
class EverySpeculative(CheckpointModel):
    """A checkpoint before each so many events that are speculation; certain ones do not count.

    The first of them has one, too, as nobody goes back before it.

    Sardar 2018, 4.7, the second model: with 1 it is that of Mutschler and Philippsen.

    Parameters
    ----------
    events
        How many.
    most
        No more events than this lie between two checkpoints, whatever they are.

    Examples
    --------
    >>> EverySpeculative(50).interval(CheckpointWork(coming=5000, certain=300))
    300
    >>> EverySpeculative(50).interval(CheckpointWork(since=320, coming=5000, certain=300))
    350
    """

    events: int = field(metadata=setting(Number(least=1, whole=True)))
    most: int = field(default=1000, kw_only=True, metadata=setting(Number(least=1, whole=True)))

    def __post_init__(self) -> None:
        check_settings(self, "op.checkpoints.EverySpeculative")

    def interval(self, work: CheckpointWork) -> int:
        """Return the number, and so many certain events more; or these, where they come first."""
        if work.certain and work.certain >= work.since:
            return min(self.most, work.certain)
        return min(self.most, work.certain + self.events)


@dataclass(frozen=True, slots=True)
class Adaptive(CheckpointModel):
    """A checkpoint as soon as to match the events again would take longer than the checkpoint.

    Sardar 2018, equation 4.1. It takes each checkpoint for one that is gone back to: as much time
    goes into them as into events, also where nothing is late.

    Examples
    --------
    >>> Adaptive().interval(CheckpointWork(coming=5000, event=1e-6, checkpoint=1e-3))
    1000
    """

    def interval(self, work: CheckpointWork) -> int:
        """Return how many events take as long as a checkpoint."""
        return max(1, round(work.checkpoint / work.event))


@dataclass(frozen=True, slots=True)
class LeastWork(CheckpointModel):
    """As many checkpoints as make the least work in all: theirs, and that of going back.

    A checkpoint costs each time. Without it more events are matched again that lie before the late
    one, but only when the operator goes back. So it follows how often it does, too: where nothing
    is late checkpoints are rare, and where much is there are many. What goes on at once is cut only
    where it has more than one and a half intervals, or behind what is certain of it where going
    back before that would likely take longer than a checkpoint.

    Sardar 2018, 9.1 asks for a model that is aware of how often speculation succeeds.

    Parameters
    ----------
    share
        Checkpoints take this part of the time where nothing is late, so that the first late event
        finds one.
    most
        The next checkpoint lies behind at least this part of the events that are kept, with 256 one
        in 256, or 0.7 of it. So among as many events as ever lie 1.4 times so many checkpoints at
        most; while they become more, and behind what is certain, more of them do.

    Examples
    --------
    >>> LeastWork().interval(CheckpointWork(coming=5000, event=1e-6, checkpoint=1e-3, apart=20))
    200
    """

    share: float = field(default=0.01, kw_only=True, metadata=setting(Number(least=0.0001, most=1)))
    most: int = field(default=256, kw_only=True, metadata=setting(Number(least=1, whole=True)))

    def __post_init__(self) -> None:
        check_settings(self, "op.checkpoints.LeastWork")

    def interval(self, work: CheckpointWork) -> int:
        """Return the n at which checkpoint / n + event * missed * n / apart is least, or so."""
        ratio = work.checkpoint / work.event
        best = min(math.sqrt(work.apart * ratio / work.missed), ratio / self.share)
        best = max(best, work.kept / self.most, 1)
        dear = ratio * work.apart
        before = min(work.certain, work.since)
        if work.since >= best / math.sqrt(2) or before * min(work.apart, work.since) > dear:
            # A checkpoint before what goes on now cuts nothing, and these may be as many as since.
            return work.since
        whole, sure = work.since + work.coming, work.certain - before
        if sure * min(work.apart, work.coming) > dear:
            # The next time that it goes back, these would be matched once more for nothing.
            return max(1, round(min(best, work.certain)))
        return whole if whole < 1.5 * best else round(best)
