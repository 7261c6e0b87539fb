"""How it goes with recovery by a replay: what is retained, and what replays did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecoveryCounters:
    """What a stream that is recovered by a replay has retained, and what replays did.

    Parameters
    ----------
    retained, retained_bytes
        The events that a replay would need, and the bytes that they take: in memory, or in the
        files of a folder, where what is skipped goes with its segment.
    skipped_share
        The part of all events that came which is not retained any more.
    savepoint_age_s
        Seconds since the last savepoint was taken.
    replays, recover_s
        1 where the stream began with a replay, else 0; and the seconds that this took.
    doubles
        Matches that the replay gave once more and that were dropped, as they were acknowledged.

    Examples
    --------
    >>> RecoveryCounters(retained=20, skipped_share=0.8).skipped_share
    0.8
    """

    retained: int = 0
    retained_bytes: int = 0
    skipped_share: float = 0.0
    savepoint_age_s: float = 0.0
    replays: int = 0
    recover_s: float = 0.0
    doubles: int = 0
