"""When instances are added to a scenario while it runs, and when they go again.

The rule looks at intervals of equal length. If the busiest VM of the instances that take events was
used to more than `above`, instances are added, which take events after their `startup`; if to less
than `below`, as many go: they get no more events and finish what they have. The events are
divided equally among the instances that take them.

What a rule decides follows from what ran before, so its run is one simulation for each decision and
one more; the memory is that of one simulation of as many instances as there are at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outpace.errors import ScenarioError
from outpace.simulate.fields import Seconds, check_fields

#: The most instances that a rule may start.
INSTANCES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """How many instances of a scenario run, by how busy they are.

    Parameters
    ----------
    most, least
        The most and the least instances; the run begins with the least.
    above, below
        The utilisation of the busiest VM, from 0 to 1, beyond which instances are added, and below
        which they go.
    every
        How often it is looked at, in seconds; the mean since the last time counts.
    startup
        The time from the decision until a new instance takes events, in seconds.
    step
        How many instances come or go at a time.

    Examples
    --------
    >>> Autoscaling(most=4).above
    0.7
    """

    most: int
    least: int = 1
    above: float = 0.7
    below: float = 0.3
    every: Seconds = 60.0
    startup: Seconds = 60.0
    step: int = 1

    def __post_init__(self) -> None:
        check_fields(self, "scaling")
        for name in ("least", "step"):
            if getattr(self, name) < 1:
                raise _error(name, f"the {name} is not a whole number from 1 on", self)
        if not self.least <= self.most <= INSTANCES_MAX:
            raise _error(
                "most", f"the most instances are not {self.least} to {INSTANCES_MAX}", self
            )
        if not 0 <= self.below < self.above < 1:
            raise _error("above", "the utilisations are not 0 <= below < above < 1", self)
        if not 0 < self.every < math.inf:
            raise _error("every", "the interval is not longer than 0 s", self)
        if not 0 <= self.startup < math.inf:
            raise _error("startup", "the time of a start is not from 0 s on", self)


def _error(name: str, message: str, rule: Autoscaling) -> ScenarioError:
    return ScenarioError(f"{message}: {getattr(rule, name)}", subject=("scaling", name))
