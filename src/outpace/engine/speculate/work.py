"""The cost of going back and how often it happens, estimated, so that checkpoints lie well.

A host measures how long it worked for some events and checkpoints together. The seconds of each of
the two follow from several such sums, which differ in how many there were of both: least squares,
in which old sums count less. Nothing here reads a clock, so a run that is replayed decides the
same.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

from outpace.engine.state import SavedPart

#: Seconds that an event takes, and a checkpoint, as long as nobody has measured it. The second
#: counts as much as all that is measured: it decides where sums are alike in their shares of both.
EVENT_S: Final = 1e-7
CHECKPOINT_S: Final = 5e-4
#: What of the sums is left when the next one comes.
_KEPT: Final = 0.95
#: And where it is so many times what was expected, or so many times less: what compiles or waits
#: once in a while says little of the next events, and neither do these of what changes.
_FAR: Final = 4.0
_KEPT_FAR: Final = 0.5
#: How many events lie between two times of going back at most, and at first.
_APART_MOST: Final = 10_000_000.0
#: How much the last time counts among these.
_NEWS: Final = 0.75
_MISSED_LEAST: Final = 0.01
#: The least that an event takes, in seconds, and as a part of what it would if pieces took nothing.
_LEAST: Final = 1e-9
_LEAST_PART: Final = 0.1

_NAMES: Final = ("events", "pieces", "ee", "ep", "pp", "et", "pt", "apart", "since", "missed")


class WorkEstimate(SavedPart):
    """The seconds that an event and a checkpoint take, and how often the operator goes back.

    Examples
    --------
    >>> estimate = WorkEstimate()
    >>> for events, pieces in ((1000, 1), (1000, 20), (500, 5)) * 10:
    ...     for _ in range(pieces):
    ...         estimate.take(events // pieces)
    ...     estimate.measured(events * 2e-6 + pieces * 5e-4)
    >>> event, checkpoint = estimate.costs
    >>> round(1e6 * event, 1), round(1e3 * checkpoint, 2)
    (2.0, 0.5)
    """

    NUMBERS: ClassVar = {name: (f"_{name}", float) for name in _NAMES}

    def __init__(self) -> None:
        #: Events and pieces of them that went on since something was measured.
        self._events = self._pieces = 0.0
        #: Sums of products: events, pieces and time.
        self._ee = self._ep = self._pp = self._et = self._pt = 0.0
        #: How far apart the operator went back lately, and how many events went on since, those
        #: that did so once more among them: they are cut for checkpoints as well.
        self._apart, self._since = _APART_MOST, 0.0
        #: Which part of a stretch lay before the late event.
        self._missed = 0.5

    def take(self, events: int) -> None:
        """Count a piece of events that goes on."""
        self._events += events
        self._pieces += 1
        self._since += events

    def go_back(self, missed: float) -> None:
        """Count that the operator goes back, behind a part of a stretch before the late event."""
        # Of rates, not of distances: once two lie near each other it happens often.
        self._apart = 1 / (_NEWS / max(1.0, self._since) + (1 - _NEWS) / self._apart)
        self._missed += _NEWS * (max(_MISSED_LEAST, missed) - self._missed)
        self._since = 0.0

    def measured(self, seconds: float) -> None:
        """Take how long the host worked for all that went on since it said so before."""
        events, pieces = self._events, self._pieces
        self._events = self._pieces = 0.0
        if pieces and math.isfinite(seconds):
            event, checkpoint = self.costs
            expected = events * event + pieces * checkpoint
            kept = _KEPT if expected / _FAR <= seconds <= _FAR * expected else _KEPT_FAR
            self._ee = kept * self._ee + events * events
            self._ep = kept * self._ep + events * pieces
            self._pp = kept * self._pp + pieces * pieces
            self._et = kept * self._et + events * seconds
            self._pt = kept * self._pt + pieces * seconds

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return self._ee > 0

    @property
    def costs(self) -> tuple[float, float]:
        """Seconds that an event takes, and a checkpoint with the piece that it ends."""
        if not self.is_known:
            return EVENT_S, CHECKPOINT_S
        pp, pt = 2 * self._pp, self._pt + self._pp * CHECKPOINT_S
        event = (pp * self._et - self._ep * pt) / (self._ee * pp - self._ep * self._ep)
        # Neither is nothing, so the other one is not all.
        whole = max(self._et / self._ee, _LEAST)
        event = min(max(event, _LEAST_PART * whole), whole)
        checkpoint = min((pt - event * self._ep) / pp, self._pt / self._pp)
        return event, max(checkpoint, event)

    @property
    def apart(self) -> float:
        """How many events lie between two times that the operator goes back."""
        return min(_APART_MOST, max(self._apart, self._since))

    @property
    def missed(self) -> float:
        """Which part of a stretch it goes back behind though it lies before the late event."""
        return self._missed
