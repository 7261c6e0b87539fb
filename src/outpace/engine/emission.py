"""The rows that come out where matches may be taken back: all changes, or some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.engine.match.identity import MatchIds
from outpace.engine.speculate.history import Saying, ShownColumns, with_sayings
from outpace.engine.window_match.result import WindowMatches
from outpace.pattern.query import Emission, Query


@dataclass(frozen=True)
class ChangeCounters:
    """The counts of matches that came, were confirmed and were taken back.

    Parameters
    ----------
    tentative, confirmed, retracted
        Matches that came and might be taken back; of which it was said that nothing takes them back
        any more, when they came or later; that were taken back.
    rollbacks, replayed
        How often the operator went back, and how many events it took once more.
    checkpoints, checkpoint_bytes
        How often it noted how it stood, to go back there, and how many bytes its parts copied for
        that; what they keep is shared.
    deliveries, redeliveries
        How many pieces of events, windows and time went to instances, and how many of these in
        steps that went back.
    tentative_wait, confirmed_wait
        How far time had come behind what decided tentative matches when they came, and confirmed
        ones when that was said, in units of time, added up.
    full
        How often events had to wait longer than alpha says as `memory` was used up.
    """

    tentative: int = 0
    confirmed: int = 0
    retracted: int = 0
    rollbacks: int = 0
    replayed: int = 0
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    deliveries: int = 0
    redeliveries: int = 0
    tentative_wait: int = 0
    confirmed_wait: int = 0
    full: int = 0

    @property
    def tentative_latency(self) -> float:
        """How far time had come, on average, behind what decided a tentative match as it came."""
        return self.tentative_wait / self.tentative if self.tentative else 0.0

    @property
    def confirmed_latency(self) -> float:
        """As `tentative_latency`, for matches as they were confirmed."""
        return self.confirmed_wait / self.confirmed if self.confirmed else 0.0

    @property
    def share_retracted(self) -> float:
        """Matches that were taken back, as a part of those that might be."""
        return self.retracted / self.tentative if self.tentative else 0.0

    def after(self, sayings: Sequence[Saying], now: int) -> ChangeCounters:
        """Return the counters after a step that said so, when the greatest time was this.

        A match of which no row is shown does not count.
        """
        gone = come = come_wait = sure = sure_wait = 0
        for one in sayings:
            for certain, count, wait in one.counts(now):
                if one.diff < 0:
                    gone += count
                elif certain:
                    sure, sure_wait = sure + count, sure_wait + wait
                elif one.diff:
                    come, come_wait = come + count, come_wait + wait
        return self.plus(
            retracted=gone,
            confirmed=sure,
            confirmed_wait=sure_wait,
            tentative=come,
            tentative_wait=come_wait,
        )

    def plus(self, **more: int) -> ChangeCounters:
        """Return the counters with more of some, by their names.

        Examples
        --------
        >>> ChangeCounters(rollbacks=1).plus(rollbacks=2, replayed=5)
        ChangeCounters(tentative=0, confirmed=0, retracted=0, rollbacks=3, replayed=5, ...)
        """
        # What `dataclasses.replace` does takes several times as long.
        twin = object.__new__(type(self))
        known = vars(twin)
        known.update(vars(self))
        for name, count in more.items():
            known[name] += count
        return twin

    def since(self, before: ChangeCounters) -> dict[str, int]:
        """Return by how much the counters grew, by their names."""
        known = vars(before)
        return {name: value - known[name] for name, value in vars(self).items()}


@dataclass(frozen=True)
class SpeculationCounters(ChangeCounters):
    """How it goes with matches that may be taken back, and with what makes them come early.

    Parameters
    ----------
    alpha, slack
        The part of K that events wait now, and K in units of time: how long, at least, until a
        match is confirmed.
    event_seconds, checkpoint_seconds
        What an event takes, and a checkpoint, as far as it is measured.
    latency
        How long events waited for their turn on average, in units of time, and so did the
        tentative matches that they complete.
    """

    alpha: float = 1.0
    slack: int = 0
    latency: float = 0.0
    event_seconds: float = 0.0
    checkpoint_seconds: float = 0.0


def emitted(query: Query, columns: ShownColumns, sayings: Sequence[Saying]) -> WindowMatches:
    """Return what a query lets come out of all that one step says of matches.

    In a step a match is taken back at most once, then confirmed or new at most once.
    """
    if query.emission is Emission.CHANGES:
        return with_sayings(columns.output, sayings)
    if query.emission is Emission.CONFIRMED:
        sayings = [sure for one in sayings if len(sure := one.sure)]
        matches = with_sayings(columns.output, sayings)
        # One that comes out for the first time is new, whether it was there before or not.
        matches = matches.shown_as(matches.table, None)
    else:
        matches = with_sayings(columns.output, [one for one in sayings if one.diff])
    # A match of which no row is shown says nothing.
    there = np.ones(len(matches), np.bool_) if columns.one_row else np.diff(matches.offsets) > 0
    if query.emission is Emission.LATEST:
        gone, come = (np.flatnonzero(there & (matches.diff == diff)) for diff in (-1, 1))
        if len(come) and len(gone):
            ids = matches.ids.array
            replaced = pc.is_in(ids.take(pa.array(gone)), ids.take(pa.array(come)))
            there[gone[replaced.to_numpy(zero_copy_only=False)]] = False
    return matches if there.all() else matches.take(np.flatnonzero(there))


def emitted_together(query: Query, parts: Sequence[WindowMatches]) -> list[WindowMatches]:
    """Return what several steps let come out, as if they were one: of the latest, the last."""
    if query.emission is not Emission.LATEST or len(parts) == 1:
        return list(parts)
    later, found = MatchIds.joined([]).array, list[WindowMatches]()
    for part in reversed(parts):
        again = pc.is_in(part.ids.array, later).to_numpy(zero_copy_only=False)
        found.insert(0, part.take(np.flatnonzero(~again)))
        later = pa.concat_arrays([later, part.ids.array])
    return found
