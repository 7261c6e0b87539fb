"""What happens in one run of the chaos tests, decided by its seed alone."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from chaos.streams import NAMES


class Victim(Enum):
    """What is killed."""

    WORKER = "worker"
    """A Python process that runs tasks."""
    EXECUTOR = "executor"
    """A Java process with its Python workers."""
    DRIVER = "driver"
    """The program and its Java; executors go on until they notice."""
    MACHINE = "machine"
    """Every process of the program at once."""


class Sink(Enum):
    """Where matches go."""

    FILES = "files"
    """Parquet files: by Spark's own sink, or those of the matches that are there."""
    POSTGRES = "postgres"


@dataclass(frozen=True)
class Kill:
    """A kill: who, how many batches after the kill before it, and how far into the batch."""

    victim: Victim
    batches: int
    part: float


@dataclass(frozen=True)
class Scenario:
    """A stream, a sink, and the kills."""

    seed: int
    query: str
    sink: Sink
    form: str
    kills: tuple[Kill, ...]
    executors: int = 2

    @property
    def master(self) -> str:
        """Where Spark runs: with executors of their own where one is killed, or outlives others."""
        apart = {Victim.EXECUTOR, Victim.DRIVER} & {kill.victim for kill in self.kills}
        cluster = f"local-cluster[{self.executors},{2 // self.executors},1024]"
        return cluster if apart else "local[2]"

    @property
    def pieces(self) -> int:
        """How many pieces the stream comes in: a batch takes one, and no kill comes after them."""
        return sum(kill.batches + 1 for kill in self.kills) + 2


#: So many runs, from seed 0 on, go through all queries and sinks.
ALL: Final = len(NAMES) * len(Sink)


def make_scenario(seed: int, kills: int) -> Scenario:
    """Return the run of a seed; consecutive seeds go through all queries and sinks.

    A join tells its sides apart by a column, so it reads rows.

    Examples
    --------
    >>> runs = [make_scenario(seed, kills=5) for seed in range(ALL)]
    >>> len({(run.query, run.sink) for run in runs}) == ALL
    True
    """
    rng = random.Random(seed)
    # Every kind is killed once before one is twice.
    rounds = [rng.sample(list(Victim), len(Victim)) for _ in range(0, kills, len(Victim))]
    victims = list(itertools.chain(*rounds))[:kills]
    name, form = NAMES[seed % len(NAMES)], rng.choice(["rows", "blocks"])
    form = "rows" if name == "join" else form
    return Scenario(
        seed,
        name,
        list(Sink)[seed // len(NAMES) % len(Sink)],
        form,
        tuple(Kill(victim, rng.randint(1, 3), rng.uniform(0, 1.1)) for victim in victims),
    )
