"""How far a streaming query is, read from the files of its Spark checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a query that reads one event log."""

    folder: Path

    @property
    def planned(self) -> int:
        """The last batch that was begun, or -1."""
        return _last(self.folder / "offsets")

    @property
    def committed(self) -> int:
        """The last batch that was finished, or -1."""
        return _last(self.folder / "commits")

    @property
    def read(self) -> int:
        """How many events of the log are in finished batches."""
        return self._end(self.committed)

    @property
    def ends(self) -> list[int]:
        """How many events of the log each batch leaves behind it."""
        return [self._end(batch) for batch in range(self.committed + 1)]

    def _end(self, batch: int) -> int:
        if batch < 0:
            return 0
        lines = (self.folder / "offsets" / str(batch)).read_text("utf-8").splitlines()
        return int(json.loads(lines[-1])["offset"])


def _last(folder: Path) -> int:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)
