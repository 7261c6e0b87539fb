"""A stage of a stream: cells in, cells out, and a state of bytes between two batches.

In every batch that has any event, each instance of a stage takes one step with all cells that are
for it; so each hears how far time has come, even where no event is for it. A step is a function of
the state and the cells, in whatever order these come: a batch that is run again gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from outpace.engine.match.contract import Matcher
from outpace.engine.state import pack, parts, reading, unpack
from outpace.engine.stream.cell import Cell, Counters, Kind, add_reports, in_order
from outpace.errors import StateError


class Stage(Protocol):
    """One instance of a stage."""

    @property
    def takes(self) -> frozenset[Kind]:
        """The kinds of cells that it is for; others are handed on as they are."""
        ...

    def step(self, cells: list[Cell]) -> list[Cell]:
        """Take the cells of a batch, ordered by sender and position, and return new ones.

        The stage sets kind, instance, block, watermark and spans; the rest is set by who runs it.
        """
        ...

    @property
    def counters(self) -> Counters:
        """What the last step did, and what is held after it; sizes and times are left at 0."""
        ...

    def state(self) -> bytes:
        """Return all that is kept, as bytes for `restore`."""
        ...

    def restore(self, data: bytes) -> None:
        """Go on from bytes that `state` returned."""
        ...


def no_matcher() -> Matcher | None:
    """Say that a stage matches nothing."""
    return None


@dataclass(frozen=True)
class StageSpec:
    """What a stage is, for the planner and for who runs it.

    Parameters
    ----------
    name
        What it is called in `explain()` and in metrics: "order + match".
    instances
        How many there are.
    make
        Makes the instance of a number.
    identity
        A text that tells what it computes; a state is only read by a stage with the same.
    matcher
        Returns what its instances match with, so that it can be compiled before it is worth it.
    partitions
        Over how many partitions of the host its instances are spread.
    """

    name: str
    instances: int
    make: Callable[[int], Stage]
    identity: str
    matcher: Callable[[], Matcher | None] = no_matcher
    partitions: int = 1


def save_stage(spec: StageSpec, stage: Stage) -> bytes:
    """Return the state of an instance, with what tells whose it is."""
    return pack(_header(spec), [pa.table({"state": pa.array([stage.state()], pa.binary())})])


def restore_stage(spec: StageSpec, number: int, data: bytes | None) -> Stage:
    """Return an instance of a stage as it was saved; a new one where nothing was.

    Raises
    ------
    StateError
        The state is damaged, or of another version, query or number of instances.
    """
    stage = spec.make(number)
    if data is None:
        return stage
    header, (saved,) = unpack(data, 1)
    for name, value in _header(spec).items():
        if header.get(name) != value:
            raise StateError(
                f"the saved state of the stream belongs to another query ({name} differs)"
                if name not in ("instances", "partitions")
                else f"the stream was started with {header.get(name)} {name} of '{spec.name}', "
                f"not {value}",
                hint="go on with the query and the settings that it was started with, or start "
                "with a new checkpoint folder from the retained input",
            )
    with reading():
        stage.restore(*parts(saved, 1, "state"))
    return stage


def run_step(stage: Stage, cells: Iterable[Cell], number: int, place: int) -> list[Cell]:
    """Let instance `number` of the stage at a place in the chain (from 1 on) take a batch.

    Returns
    -------
    list of Cell
        The cells that it is not for, reports added up, and its own, numbered. Its own report is for
        the caller to add.
    """
    mine: list[Cell] = []
    others: list[Cell] = []
    reports: list[Cell] = []
    for cell in cells:
        taken = cell.kind in stage.takes
        (mine if taken else reports if cell.kind is Kind.REPORT else others).append(cell)
    given = stage.step(in_order(mine))
    return [
        *others,
        *add_reports(reports),
        *(
            replace(cell, stage=place, sender=number, position=position)
            for position, cell in enumerate(given)
        ),
    ]


def _header(spec: StageSpec) -> dict[str, object]:
    return {
        "stage": spec.name,
        "query": spec.identity,
        "instances": spec.instances,
        "partitions": spec.partitions,
    }
