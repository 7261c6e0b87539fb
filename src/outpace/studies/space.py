"""The study `space`: the experiments of a thesis on the splitter of a data-parallel operator.

`SOURCE` in `space_figures` names it. Every value is measured; where the machine cannot show what
the paper's cluster could, the figure's text says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from outpace.studies import space_split
from outpace.studies.report import Study
from outpace.studies.space_figures import FIGURES, SOURCE
from outpace.studies.space_serialise import serialisation


@dataclass(frozen=True, slots=True)
class Scale:
    """How much the study does.

    Parameters
    ----------
    seconds
        How long each rate is measured at least.
    events
        The events that a splitter takes at once, over and over.
    slides
        The slides of windows of a million events.
    instances, sources
        Their numbers.
    duplication_size, duplication_parts
        The size of windows that several instances share, and the parts of it that are slides.
    """

    seconds: float
    events: int
    slides: tuple[int, ...]
    instances: tuple[int, ...]
    sources: tuple[int, ...]
    duplication_size: int
    duplication_parts: tuple[int, ...]


#: The window size of figure 5.3.
OVERLAP_SIZE: Final = 1_000_000

QUICK: Final = Scale(
    seconds=0.2,
    events=1 << 19,
    slides=(1_000_000, 10_000, 100, 10),
    instances=(1, 16, 256),
    sources=(1, 4, 16, 64),
    duplication_size=100_000,
    duplication_parts=(1, 4),
)

WHOLE: Final = Scale(
    seconds=2.0,
    events=1 << 21,
    slides=(1_000_000, 100_000, 10_000, 1_000, 100, 50, 10),
    instances=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    sources=(1, 2, 4, 8, 16, 32, 64),
    duplication_size=1_000_000,
    duplication_parts=(1, 2, 4, 8, 16),
)


def space_study(scale: Scale) -> Study:
    """Return the study with its experiments set to a scale."""
    seconds, events = scale.seconds, scale.events
    slides = tuple(scale.duplication_size // parts for parts in scale.duplication_parts)
    return Study(
        name="space",
        title="The splitter of a data-parallel operator",
        source=SOURCE,
        figures=FIGURES,
        experiments=(
            ("5.1 serialisation", partial(serialisation, seconds)),
            ("5.2 maximum rate", partial(space_split.maximum, events, seconds)),
            (
                "5.3 overlap",
                partial(space_split.overlap, OVERLAP_SIZE, scale.slides, events, seconds),
            ),
            (
                "5.4.1 instances",
                partial(space_split.instances, scale.instances, events, seconds),
            ),
            ("5.4.2 sources", partial(space_split.sources, scale.sources, events, seconds)),
            (
                "5.4.3 duplication",
                partial(
                    space_split.duplication,
                    scale.duplication_size,
                    slides,
                    (1, 2, 4),
                    events,
                    seconds,
                ),
            ),
        ),
    )
