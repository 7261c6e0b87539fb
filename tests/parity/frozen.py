"""The frozen results: a file for each group of cases, a line for each case."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from parity import order, patterns, volume, windows
from parity.case import Case
from parity.record import Record, record, text

import outpace as op

FOLDER: Final = Path(__file__).parent / "frozen"

#: Cases that are written out, by the name of their file.
CASES: Final[Mapping[str, Mapping[str, Case]]] = {
    "patterns": patterns.CASES,
    "windows": windows.CASES,
    "order": order.CASES,
}


def _record_assigned(name: str) -> Record:
    """Return the windows that events are in."""
    found: Record = {"name": name}
    for label, query in {"all": op.Query(), "by key": op.Query().partition_by("key")}.items():
        over = query.order_by("ts").over(windows.KINDS[name])
        assigned: pa.Table = op.windows.assign(windows.EVENTS, over)
        found[label] = [assigned.column_names, *zip(*assigned.to_pydict().values(), strict=True)]
    return found


#: What is recorded, by file and case.
RECORDED: Final[Mapping[str, Mapping[str, Callable[[], Record]]]] = {
    **{
        group: {name: partial(record, case) for name, case in cases.items()}
        for group, cases in CASES.items()
    },
    "assigned": {name: partial(_record_assigned, name) for name in windows.KINDS},
    "workloads": {name: partial(volume.record_workload, name) for name in volume.WORKLOADS},
    "runs": {name: partial(volume.record_run, name) for name in volume.RUNS},
}


def recorded(group: str, name: str) -> Record:
    """Ask a case now."""
    found: Record = json.loads(text(RECORDED[group][name]()))
    return found


def read(group: str) -> dict[str, Record]:
    """Return what is frozen of a group, by case."""
    lines = (FOLDER / f"{group}.jsonl").read_text().splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


def write(group: str, records: list[Record]) -> None:
    """Freeze a group."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.jsonl").write_text("".join(text(found) + "\n" for found in records))
