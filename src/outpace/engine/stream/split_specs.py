"""The stages of a query over windows that several instances match: split, match, merge.

They are for windows without keys, and for windows with keys whose numbers count the events of all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from outpace.engine.match.contract import Matcher
from outpace.engine.stream.merge import MergeStage
from outpace.engine.stream.split import SplitStage
from outpace.engine.stream.stage import Stage, StageSpec
from outpace.engine.stream.windowed import WindowedStream
from outpace.engine.stream.windows import WindowStage


def split_specs(
    make: Callable[[], WindowedStream], count: int, identity: str
) -> tuple[StageSpec, StageSpec, StageSpec]:
    """Return the stages of a query over windows.

    Parameters
    ----------
    make
        Returns what they are made of. It is called where a stage runs, in every batch, so it must
        be something that travels, such as a `functools.partial` of a function of a module, and best
        something that gives the same object again.
    count
        How many instances match, as the query that is made says.
    identity
        What tells the states of different queries apart.
    """
    # What the one instance of a stage keeps depends on how many there are beside it.
    told = f"{identity} instances={count}"
    return (
        StageSpec("order + split", 1, partial(_make, SplitStage, make), told),
        StageSpec("match", count, partial(_make, WindowStage, make), told, partial(_matcher, make)),
        StageSpec("merge", 1, partial(_make, MergeStage, make), told),
    )


def _make(
    kind: Callable[[WindowedStream], Stage], make: Callable[[], WindowedStream], number: int
) -> Stage:
    return kind(make())


def _matcher(make: Callable[[], WindowedStream]) -> Matcher | None:
    return make().matcher
