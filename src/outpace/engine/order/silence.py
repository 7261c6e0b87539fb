"""Which of several sources are silent: they have said nothing for longer than others wait for them.

Time is that of the clock by which events arrive. A source speaks with its events and heartbeats.
Whether one is silent at a moment is seen after all that came at that moment: when something arrives
behind it, or a timer fires. So what arrives together counts together, however it is cut. Where
every source has been silent, nobody is behind the others: the next word begins a new count for all
that have spoken in the last one, and those that have not stay silent.

Memory: a number for each source.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import ClassVar, Final

import numpy as np

from outpace.engine.arrays import NO_TIME, Integers
from outpace.engine.state import ANY, SavedPart, State, integer, require

#: As long as nobody waits.
_NEVER: Final = 1 << 62


class Silence(SavedPart):
    """Tells which sources are silent.

    Parameters
    ----------
    sources
        Their identifiers.
    patience
        How long others wait for a source that says nothing, in microseconds: for any, or for each
        of some; the others are never silent.

    Examples
    --------
    >>> silence = Silence(["east", "west"], 10)
    >>> _ = silence.hear({"east": 0, "west": 0}, 0)
    >>> _ = silence.hear({"east": 9}, 9)
    >>> silence.timer(), silence.find(10), silence.silent
    (10, True, {'west'})
    """

    CHANGED = ("_heard", "silent", "_open")
    NUMBERS: ClassVar = {"now": ("now", ANY), "began": ("_began", ANY)}

    def __init__(self, sources: Iterable[str], patience: int | Mapping[str, int]) -> None:
        #: The sources that have not ended.
        self._open = dict.fromkeys(sources, True)
        each = patience if isinstance(patience, Mapping) else dict.fromkeys(self._open, patience)
        self._patience = {source: each.get(source, _NEVER) for source in self._open}
        #: How far the clock has come, and where the count began.
        self.now = self._began = int(NO_TIME)
        #: When each source spoke last, of those that have since the count began.
        self._heard: dict[str, int] = {}
        self.silent: set[str] = set()

    @property
    def live(self) -> list[str]:
        """The sources that others wait for."""
        return [source for source in self._open if source not in self.silent]

    def timer(self, missing: Container[str] = ()) -> int | None:
        """Return when the next source is silent, if it does not speak, but those that wait."""
        patient = [one for one in self.live if self._patience[one] != _NEVER and one not in missing]
        return min(map(self._ends, patient), default=None) if self._counts else None

    def find(self, clock: int, missing: Container[str] = ()) -> bool:
        """Find out who is silent at a time, but those that wait; say whether any has become so."""
        self.now = max(self.now, clock)
        if not self._counts:
            return False
        found = {one for one in self.live if self._ends(one) <= self.now and one not in missing}
        self.silent |= found
        return bool(found)

    def changes(self, spoken: dict[str, Integers], until: int, waits: dict[str, int]) -> bool:
        """Say whether it may change who is silent that sources speak, each at some times.

        Parameters
        ----------
        spoken
            When each one speaks, rising.
        until
            How far the clock comes.
        waits
            Sources that wait for events of their own, and how long.
        """
        if not self._counts or not self.silent.isdisjoint(spoken):
            return True
        for source in self.live:
            patience = self._patience[source]
            at = np.concatenate([[self._ends(source) - patience], spoken.get(source, [])])
            alone = source not in spoken and waits.get(source, int(NO_TIME)) > until
            if not alone and (np.diff(np.append(at, until)) >= patience).any():
                return True
        return False

    def hear(self, spoken: dict[str, int], clock: int, missing: Container[str] = ()) -> set[str]:
        """Let sources speak, the first of them at a time; return those that were silent before.

        Where all were silent, a new count begins; those that wait for missing events are not.
        """
        if clock == NO_TIME and not self._counts:
            return set()
        before, self.now = self.silent, max(self.now, clock, *spoken.values())
        if not spoken:
            return set()
        if not self._counts:
            self._began = clock
        elif all(self._ends(one) <= clock and one not in missing for one in self.live):
            self.silent = {one for one in self._open if one not in self._heard}
            self._began, self._heard = clock, {}
        self.silent = self.silent - set(spoken)
        self._heard.update(spoken)
        return before - self.silent

    def end(self, source: str) -> None:
        """Let nobody wait any more for a source that has ended."""
        self._open.pop(source, None)
        self.silent.discard(source)

    def state(self) -> State:
        """Return all that is kept, for `restore`."""
        return super().state().plus(State({"heard": self._heard, "silent": sorted(self.silent)}))

    def restore(self, state: State, finished: Iterable[str] = ()) -> None:
        """Go on from what `state` returned, where some sources have ended."""
        super().restore(state)
        numbers = state.numbers
        heard, silent = numbers.get("heard", {}), numbers.get("silent", [])
        require(isinstance(heard, dict) and isinstance(silent, list), "nobody knows who spoke")
        known = {*self._open}
        require(known >= {*heard, *silent}, "a source is unknown")
        self._heard = {source: integer(heard, source) for source in heard}
        self.silent = set(silent)
        for source in finished:
            self.end(source)

    @property
    def _counts(self) -> bool:
        return self._began != NO_TIME

    def _ends(self, source: str) -> int:
        """Return when a source is silent, if it does not speak."""
        return self._heard.get(source, self._began) + self._patience[source]
