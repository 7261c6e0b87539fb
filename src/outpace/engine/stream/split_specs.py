"""The stages of a query over windows that several instances match: split, match, merge.

They are for windows without keys, and for windows with keys whose numbers count the events of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from outpace.engine.match.contract import Task
from outpace.engine.stream.merge import MergeStage
from outpace.engine.stream.split import SplitStage
from outpace.engine.stream.stage import Stage, StageSpec
from outpace.engine.stream.windowed import WindowedStream
from outpace.engine.stream.windows import WindowStage
from outpace.pattern.bind_disorder import BoundDisorder
from outpace.pattern.bound import BoundQuery


class Layout(Protocol):
    """What the events of a query look like on their way; see `WindowedStream`."""

    @property
    def bound(self) -> BoundQuery:
        """The query."""
        ...

    @property
    def task(self) -> Task | None:
        """The pattern as it is matched; None for a user-defined operator."""
        ...

    @property
    def disorder(self) -> BoundDisorder:
        """How far events are out of order."""
        ...

    @property
    def events(self) -> pa.Schema:
        """The columns of the events that travel."""
        ...


def split_specs(
    lay_out: Callable[[], Layout], count: int, identity: str
) -> tuple[StageSpec, StageSpec, StageSpec]:
    """Return the stages of a query over windows.

    Parameters
    ----------
    lay_out
        Returns what they are made of. It is called where a stage runs, so it must be something that
        travels: a function of a module, or a `functools.partial` of one.
    count
        How many instances match, whatever the query says.
    identity
        What tells the states of different queries apart.
    """
    told = f"{identity} instances={count}"
    return (
        StageSpec("order + split", 1, partial(_make, SplitStage, lay_out, count), told),
        StageSpec("match", count, partial(_make, WindowStage, lay_out, count), told),
        StageSpec("merge", 1, partial(_make, MergeStage, lay_out, count), told),
    )


def _make(
    kind: Callable[[WindowedStream], Stage], lay_out: Callable[[], Layout], count: int, number: int
) -> Stage:
    layout = lay_out()
    query = replace(layout.bound.query, instance_count=count)
    return kind(WindowedStream(query, layout.task, layout.disorder, layout.events))
