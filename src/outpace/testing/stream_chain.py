"""A chain of stages, run batch by batch as a host with micro-batches does, with crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from outpace.engine.arrays import NO_TIME
from outpace.engine.codec.cell import Cell, CellKind, Counters, cell_batch, read_cells
from outpace.engine.codec.table import read_table
from outpace.engine.replayed_stage import ReadLog, ReplayedStage
from outpace.engine.stage import (
    Stage,
    StageSpec,
    restore_stage,
    run_step,
    save_stage,
)

#: The saved state of each instance of each stage.
States = list[list[bytes | None]]


@dataclass(frozen=True)
class BatchOutput:
    """What a batch gave.

    Parameters
    ----------
    cells
        All cells that came out of the last stage.
    counters
        For each stage those of its instances.
    """

    cells: list[Cell]
    counters: list[list[Counters]]

    def tables(self, kind: CellKind) -> list[pa.Table]:
        """The content of the cells of a kind."""
        return [read_table(cell.block) for cell in self.cells if cell.kind is kind]

    @property
    def own_cells(self) -> list[Cell]:
        """The cells that stages made, without those that they handed on."""
        return [cell for cell in self.cells if cell.stage]

    @property
    def pulse(self) -> int:
        """How far time has come for what reads the matches."""
        (pulse,) = (cell.watermark for cell in self.cells if cell.kind is CellKind.PULSE)
        return pulse


class Chain:
    """Stages whose states are bytes between two batches, each in a new object in every batch.

    Parameters
    ----------
    specs
        The stages.
    read
        Reads the log of those that save no state.
    """

    def __init__(self, specs: Sequence[StageSpec], read: ReadLog | None = None) -> None:
        self.specs = specs
        self._read = read
        self.states: States = [[None] * spec.instances for spec in specs]
        #: The anchors of stages that save no state, by what is saved beside them.
        self._anchors: dict[tuple[int, bytes | None], bytes] = {}

    @property
    def state_bytes(self) -> int:
        """How large all states are together."""
        return sum(len(state or b"") for states in self.states for state in states)

    def run(self, cells: Sequence[Cell]) -> BatchOutput:
        """Run a batch for good."""
        given, self.states = self.crash(cells)
        return given

    @property
    def timer(self) -> int | None:
        """When a batch is due though no cells come; the first stage alone goes by the clock."""
        return self._restore(self.specs[0], self.states[0][0], 0).timer

    def _restore(self, spec: StageSpec, state: bytes | None, number: int) -> Stage:
        anchor = self._anchors.get((number, state), b"")
        return restore_stage(spec, state, number, self._read, anchor=anchor)

    def _save(self, spec: StageSpec, stage: Stage, number: int) -> bytes:
        if not isinstance(stage, ReplayedStage):
            return save_stage(spec, stage)
        stage.acknowledge()
        saved = save_stage(spec, stage)
        self._anchors[number, saved] = stage.anchor
        return saved

    def crash(self, cells: Sequence[Cell], now: int = NO_TIME) -> tuple[BatchOutput, States]:
        """Run a batch of which nothing is kept, and return what it gave and the states after.

        Parameters
        ----------
        cells
            What comes; nothing where the timer alone is due.
        now
            The time of the batch, in microseconds, where a stage goes by the clock.
        """
        states: States = []
        counters: list[list[Counters]] = []
        for place, (spec, saved) in enumerate(zip(self.specs, self.states, strict=True), 1):
            states.append([])
            counters.append([])
            after: list[Cell] = []
            for number, state in enumerate(saved):
                stage = self._restore(spec, state, number)
                mine = [cell for cell in _travelled(cells) if cell.instance == number]
                due = stage.timer is not None and stage.timer <= now
                hears = due or any(cell.kind in stage.takes for cell in mine)
                assert hears, "every instance hears"
                after += run_step(stage, mine, number, place, now if spec.clocked else NO_TIME)
                states[-1].append(self._save(spec, stage, number))
                counters[-1].append(stage.counters)
            cells = after
        return BatchOutput(list(cells), counters), states


def _travelled(cells: Sequence[Cell]) -> list[Cell]:
    return list(read_cells(cell_batch(cells)))
