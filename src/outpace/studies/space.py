"""The study `space`: the experiments of a thesis on the splitter of a data-parallel operator.

`SOURCE` in `space_figures` names it. Every value is measured; where the machine cannot show what
the paper's cluster could, the figure's text says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from outpace.studies import space_load, space_split
from outpace.studies.report import Study
from outpace.studies.space_figures import FIGURES, SOURCE
from outpace.studies.space_serialise import serialisation


@dataclass(frozen=True, slots=True)
class SpaceScale:
    """How much the study does.

    Parameters
    ----------
    seconds, run_seconds, stability_seconds
        How long each rate is measured: of work in this process, of runs with instances in processes
        of their own, and of the one run over time.
    events
        The events that a splitter takes at once, over and over.
    slides
        The slides of windows of a million events.
    instances, sources, run_sources
        Their numbers; the last for runs with an instance in a process of its own.
    processes, duplicating, waiting, computing
        Numbers of instances in processes: that discard events, without overlap of windows and with
        it, that wait, and that compute.
    overloading
        The numbers of sources that offer those twice what they can do.
    duplication_size, duplication_parts
        The size of windows that several instances share, and the parts of it that are slides.
    """

    seconds: float
    run_seconds: float
    stability_seconds: float
    events: int
    slides: tuple[int, ...]
    instances: tuple[int, ...]
    sources: tuple[int, ...]
    run_sources: tuple[int, ...]
    processes: tuple[int, ...]
    duplicating: tuple[int, ...]
    waiting: tuple[int, ...]
    computing: tuple[int, ...]
    overloading: tuple[int, ...]
    duplication_size: int
    duplication_parts: tuple[int, ...]


QUICK: Final = SpaceScale(
    seconds=0.15,
    run_seconds=0.7,
    stability_seconds=6.0,
    events=1 << 19,
    slides=(1_000_000, 10_000, 100, 10),
    instances=(1, 16, 256),
    sources=(1, 4, 16, 64),
    run_sources=(1, 16),
    processes=(1, 2),
    duplicating=(2,),
    waiting=(1, 4),
    computing=(1,),
    overloading=(1,),
    duplication_size=100_000,
    duplication_parts=(1, 4),
)

WHOLE: Final = SpaceScale(
    seconds=2.0,
    run_seconds=8.0,
    stability_seconds=300.0,
    events=1 << 20,
    slides=(1_000_000, 100_000, 10_000, 1_000, 100, 50, 10),
    instances=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    sources=(1, 2, 4, 8, 16, 32, 64),
    run_sources=(1, 2, 4, 8, 16, 32, 64),
    processes=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    duplicating=(1, 2, 4),
    waiting=(1, 2, 4, 8, 16, 32),
    computing=(1, 2, 4),
    overloading=(1, 2),
    duplication_size=1_000_000,
    duplication_parts=(1, 2, 4, 8, 16),
)

#: The window size of figure 5.3.
OVERLAP_SIZE: Final = 1_000_000

#: The numbers of instances of figure 5.7, without processes.
DUPLICATING: Final = (1, 2, 4)


def space_study(scale: SpaceScale) -> Study:
    """Return the study with its experiments set to a scale."""
    seconds, run_seconds, events = scale.seconds, scale.run_seconds, scale.events
    size = scale.duplication_size
    slides = tuple(size // parts for parts in scale.duplication_parts)
    interval = max(1.0, scale.stability_seconds / 60)
    return Study(
        name="space",
        title="The splitter of a data-parallel operator",
        source=SOURCE,
        figures=FIGURES,
        experiments=(
            ("5.1 serialisation", partial(serialisation, seconds)),
            ("5.2 the splitter", partial(space_split.maximum, events, seconds)),
            ("5.2 the whole way", partial(space_load.maximum, run_seconds)),
            (
                "5.3 the splitter",
                partial(space_split.overlap, OVERLAP_SIZE, scale.slides, events, seconds),
            ),
            (
                "5.3 the whole way",
                partial(space_load.overlap, OVERLAP_SIZE, scale.slides, run_seconds),
            ),
            (
                "5.3.3 stability",
                partial(space_load.stability, scale.stability_seconds, interval),
            ),
            (
                "5.4.1 the splitter",
                partial(space_split.instances, scale.instances, events, seconds),
            ),
            (
                "5.4.1 the whole way",
                partial(space_load.instances, scale.processes, run_seconds),
            ),
            ("5.4.2 the splitter", partial(space_split.sources, scale.sources, events, seconds)),
            ("5.4.2 the whole way", partial(space_load.sources, scale.run_sources, run_seconds)),
            (
                "5.4.3 the splitter",
                partial(space_split.duplication, size, slides, DUPLICATING, events, seconds),
            ),
            (
                "5.4.3 the whole way",
                partial(space_load.duplication, size, slides, scale.duplicating, run_seconds),
            ),
            (
                "5.4.4 busy instances",
                partial(
                    space_load.busy_instances,
                    scale.waiting,
                    scale.computing,
                    scale.overloading,
                    2 * run_seconds,
                ),
            ),
        ),
    )
