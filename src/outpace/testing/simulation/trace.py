"""What a simulated run did, step by step, and the error of one that went wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field


class SimulationError(AssertionError):
    """A simulated run did not give what it must give; `trace` has the steps up to there."""

    trace: tuple[str, ...] = ()


@dataclass
class RunTrace:
    """The steps of a run as lines of text."""

    lines: list[str] = field(default_factory=list)
    #: How often something was lost and made again.
    crashes: int = 0

    def say(self, text: str) -> None:
        """Note a step."""
        self.lines.append(text)

    def crash(self, text: str) -> None:
        """Note a step in which something is lost."""
        self.crashes += 1
        self.say(text)

    @property
    def digest(self) -> str:
        """A hash of all steps: two runs with the same one did the same."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


def check_same(what: str, found: Sequence[object], expected: Sequence[object]) -> None:
    """Refuse other values than those expected, and show the first that differs."""
    if found == expected:
        return
    places = range(max(len(found), len(expected)))
    at = next(n for n in places if found[n : n + 1] != expected[n : n + 1])
    raise SimulationError(
        f"{what}: {len(found)} for {len(expected)}, the first that differs is number {at}\n"
        f"  found    {[*found[at : at + 3]]}\n"
        f"  expected {[*expected[at : at + 3]]}"
    )


def check(holds: object, what: str) -> None:
    """Refuse what does not hold."""
    if not holds:
        raise SimulationError(what)
