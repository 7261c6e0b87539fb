"""Joins for tests: what one is, by nested loops over the ordered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Rows = list[dict[str, Any]]

LEFT = pa.schema({"id": pa.int64(), "ts": pa.int64(), "v": pa.int64(), "a": pa.string()})
RIGHT = pa.schema({"ts": pa.int64(), "id": pa.int64(), "v": pa.int64()})


def joined(left: Rows, right: Rows, within: int, how: str, uncertain: int | None = None) -> Rows:
    """Return the join of rows on `id` by `ts`, with the columns `v` of both and `a` of the left."""
    if uncertain is not None:
        rows = joined(left, right, within + uncertain, how)
        for row in rows:
            apart = 0 if row["ts_right"] is None else abs(row["ts_left"] - row["ts_right"])
            row["confidence"] = "CONFIRMED" if apart <= within - uncertain else "UNCERTAIN"
        return rows
    numbered = [(row["ts"], row.get("seq", 0), side, row) for side, rows in enumerate((left, right))
                for row in rows]  # fmt: skip
    ordered = sorted(numbered, key=lambda one: one[:3])
    found = []
    lonely = {id(row): row for row in left} if how == "left" else {}
    for place, (time, _, side, later) in enumerate(ordered):
        for before, (since, _, other, earlier) in enumerate(ordered[:place]):
            same = later["id"] is not None and later["id"] == earlier["id"]
            if side != other and same and time - since <= within:
                pair = (earlier, later) if side else (later, earlier)
                lonely.pop(id(pair[0]), None)
                found.append(((time, 0, place, before), *pair))
    for place, (time, _, side, row) in enumerate(ordered):
        if not side and id(row) in lonely:
            found.append(((time + within, 1, place, 0), row, None))
    return [_result(key[0], first, second) for key, first, second in sorted(found, key=_key)]


def _key(one: Any) -> Any:
    return one[0]


def _result(time: int, left: dict[str, Any], right: dict[str, Any] | None) -> dict[str, Any]:
    partner = right or {"ts": None, "v": None}
    return {
        "id": left["id"], "ts": time, "ts_left": left["ts"], "v_left": left["v"], "a": left["a"],
        "ts_right": partner["ts"], "v_right": partner["v"],
    }  # fmt: skip


def some_rows(seed: int, size: int, side: int, ids: int = 3, end: int = 40) -> Rows:
    """Return rows of one side in order of time."""
    rng = np.random.default_rng([seed, side])
    times = np.sort(rng.integers(0, end, size)).tolist()
    keys = rng.integers(0, ids + 1, size).tolist()
    more: list[dict[str, Any]] = [{"a": f"a{number}"} if not side else {} for number in range(size)]
    return [
        {"id": key if key < ids else None, "ts": time, "v": number, **own}
        for number, (key, time, own) in enumerate(zip(keys, times, more, strict=True))
    ]
