"""What is counted of the operators of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class NodeMetrics:
    """What is known of an operator or a sink.

    Parameters
    ----------
    events, matches
        How many events it has taken, and how many rows of matches came out, each counted once.
    retained_events, retained_bytes
        What it retains for those who read it.
    skipped
        How many of its events no match will use, told to who retains them before all before
        them were.
    saves, savepoint_age_s
        How many savepoints its process has given, and how old the last one is.
    doubles
        Events that came again and were dropped, and matches that its readers had already.
    refused
        Messages of peers that are none of the graph.
    replays, recover_s
        How often it was started again, and the seconds that took the last time: from the loss
        being noticed to its standing where it stood.
    """

    events: int = 0
    matches: int = 0
    retained_events: int = 0
    retained_bytes: int = 0
    skipped: int = 0
    saves: int = 0
    savepoint_age_s: float = 0.0
    doubles: int = 0
    refused: int = 0
    replays: int = 0
    recover_s: float = 0.0

    @property
    def skipped_share(self) -> float:
        """The part of its events that no match will use."""
        return self.skipped / self.events if self.events else 0.0


@dataclass
class GraphMetrics:
    """What is known of a graph.

    Parameters
    ----------
    operators
        By name.
    retained_events, retained_bytes
        What is retained of the sources.
    refused
        Messages of peers that are none of the graph, at the sockets of this process.
    """

    operators: dict[str, NodeMetrics] = field(default_factory=dict)
    retained_events: int = 0
    retained_bytes: int = 0
    refused: int = 0
