"""Stages: the parts of an operator as a host with micro-batches runs them, cells in and cells out.

In every batch that has any event, each instance of a stage takes one step with all cells that are
for it; so each hears how far time has come, even where no event is for it. A stage that goes by the
clock has one instance, which takes a step in a batch without events when its timer is due. A step
is a function of the state, the time of the batch and the cells, in whatever order these come: a
batch that is run again gives the same. Between two batches the state of an instance is one run of
bytes.

A stage is the whole operator, or one part of it: the front alone orders, numbers and splits events;
instances match windows; the back merges their matches. The operators of several queries are one
stage, too. Of an operator whose events come from a log the state need not be saved: its savepoint
is, and who has no more reads the events again that it needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import Cell, CellKind, add_reports, in_order
from outpace.engine.group_spec import GroupSpec
from outpace.engine.match.contract import Matcher
from outpace.engine.message import (
    HostLoad,
)
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.packing import Packing
from outpace.engine.replayed_stage import ReadLog, ReplayedStage
from outpace.engine.stage_parts import BackStage, EventStage, FrontStage, InstanceStage, WholeStage
from outpace.engine.state import State, reading
from outpace.errors import StateError


class StagePart(Enum):
    """Which part of the operator a stage is, by its name in `explain()` and in metrics."""

    WHOLE = "order + match"
    FRONT = "order + split"
    INSTANCE = "match"
    BACK = "merge"
    GROUP = "order + match of all"


@dataclass(frozen=True)
class LogReplay:
    """How an instance gets the events of a log again.

    Parameters
    ----------
    packing
        How rows are packed.
    log
        What tells the log from others.
    """

    packing: Packing
    log: int


@dataclass(frozen=True)
class StageSpec:
    """The specification of a stage, for the planner and for the host that runs it.

    Parameters
    ----------
    part
        Which part of the operator.
    instances
        How many there are.
    operator
        The operator, or those of several queries.
    identity
        A text that tells what it computes; a state is only read by a stage with the same.
    partitions
        Over how many partitions of the host its instances are spread.
    replay
        How an instance gets events again, where no state is saved but savepoints; None where the
        state is.
    """

    part: StagePart
    instances: int
    operator: OperatorSpec | GroupSpec
    identity: str
    partitions: int = 1
    replay: LogReplay | None = None

    @property
    def name(self) -> str:
        """What it is called: "order + match"."""
        return self.part.value

    @property
    def matcher(self) -> Matcher | None:
        """What its instances match with, so that it can be compiled before it is worth it."""
        matches = self.part in (StagePart.WHOLE, StagePart.INSTANCE, StagePart.GROUP)
        return self.operator.matcher if matches else None

    @property
    def clocked(self) -> bool:
        """Whether its instances go by the time of batches, and ask for timers."""
        if isinstance(self.operator, GroupSpec):
            return self.operator.clocked
        takes_events = self.part in (StagePart.WHOLE, StagePart.FRONT)
        disorder = self.operator.disorder
        return takes_events and disorder is not None and disorder.value.clocked

    @property
    def measured(self) -> bool:
        """Whether its instance wants to know what its steps take."""
        if isinstance(self.operator, GroupSpec):
            return self.operator.speculates
        orders = self.part in (StagePart.WHOLE, StagePart.FRONT)
        return orders and self.operator.query.speculates

    def make(self, number: int = 0) -> Stage:
        """Return a new instance, of a number."""
        if isinstance(self.operator, GroupSpec) or self.part is StagePart.WHOLE:
            if self.replay is None:
                return WholeStage(self.operator, number)
            assert isinstance(self.operator, OperatorSpec), "each query has savepoints of its own"
            return ReplayedStage(self.operator, number)
        return _STAGES[self.part](self.operator)


Stage: TypeAlias = WholeStage | FrontStage | InstanceStage | BackStage

_STAGES: dict[StagePart, Callable[[OperatorSpec], Stage]] = {
    StagePart.FRONT: FrontStage,
    StagePart.INSTANCE: InstanceStage,
    StagePart.BACK: BackStage,
}


def save_stage(spec: StageSpec, stage: Stage) -> bytes:
    """Return the state of an instance, with what tells whose it is."""
    state = stage.state() if isinstance(stage, ReplayedStage) else stage.part.state()
    return State(_header(spec), parts={"stage": state}).encode()


def restore_stage(
    spec: StageSpec,
    data: bytes | None,
    number: int = 0,
    read: ReadLog | None = None,
    soft: State | None = None,
    anchor: bytes = b"",
) -> Stage:
    """Return an instance of a stage, of a number, as it was saved; a new one where nothing was.

    Where savepoints are saved, `anchor` is that of `ReplayedStage.anchor` which was saved last, and
    `read` reads the log that the events came from, unless `soft` is what `ReplayedStage.soft` was.

    Raises
    ------
    StateError
        The state is damaged, or of another version, query or number of instances.
    """
    stage = spec.make(number)
    if data is None:
        return stage
    saved = State.decode(data)
    header = saved.numbers
    if (replayed := "log" in header) != (spec.replay is not None):
        raise StateError(
            f'the stream was started {"with" if replayed else "without"} recovery="replay"',
            hint="go on as it was started, or start with a new checkpoint folder from the "
            "retained input",
        )
    for name, value in _header(spec).items():
        if header.get(name) != value and name == "log":
            raise StateError(
                "the saved state of the stream belongs to another log",
                hint="go on with the log that it was started with, wherever that is now, or start "
                "with a new checkpoint folder",
            )
        if header.get(name) != value:
            raise StateError(
                f"the saved state of the stream belongs to another query ({name} differs)"
                if name not in ("instances", "partitions")
                else f"the stream was started with {header.get(name)} {name} of '{spec.name}', "
                f"not {value}",
                hint="go on with the query and the settings that it was started with, or start "
                "with a new checkpoint folder from the retained input",
            )
    if isinstance(stage, ReplayedStage):
        assert spec.replay is not None, "the stage was made by it"
        assert read is not None, "somebody reads the log"
        if soft is not None:
            with suppress(StateError):
                stage.recall(saved.part("stage"), anchor, soft)
                return stage
            stage = spec.make(number)
            assert isinstance(stage, ReplayedStage), "it is one"
        stage.rebuild(saved.part("stage"), anchor, spec.replay.packing, read)
        return stage
    with reading():
        stage.part.restore(saved.part("stage"))
    return stage


def run_step(
    stage: Stage,
    cells: Iterable[Cell],
    number: int,
    place: int,
    now: int = NO_TIME,
    load: HostLoad | None = None,
) -> list[Cell]:
    """Let instance `number` of the stage at a place in the chain (from 1 on) take a batch.

    `now` is the time of the batch, in microseconds, where the stage goes by it; `load` is what
    was measured before it, where something follows that.

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
        (mine if taken else reports if cell.kind is CellKind.REPORT else others).append(cell)
    taken_cells = in_order(mine)
    if isinstance(stage, EventStage):
        given = stage.step(taken_cells, now, load)
    else:
        given = stage.step(taken_cells)
    return [
        *others,
        *add_reports(reports),
        *(
            replace(cell, stage=place, sender=number, position=position)
            for position, cell in enumerate(given)
        ),
    ]


def _header(spec: StageSpec) -> dict[str, object]:
    header: dict[str, object] = {
        "stage": spec.name,
        "query": spec.identity,
        "instances": spec.instances,
        "partitions": spec.partitions,
    }
    if spec.replay is not None:
        # A savepoint is small, and so is what is beside it.
        header["query"] = hashlib.sha256(spec.identity.encode()).hexdigest()[:16]
        header["log"] = spec.replay.log
    return header
