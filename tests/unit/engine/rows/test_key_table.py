"""Keys have numbers, and those of keys that were forgotten are given again."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from outpace.engine.rows.key_table import KeyTable


def test_the_least_number_is_given_again_whenever_it_was_forgotten() -> None:
    schema = pa.schema({"key": pa.int64()})
    live, again = KeyTable(schema), KeyTable(schema)
    live.add(live.look_up(pa.table({"key": np.arange(100)})))
    free = np.random.default_rng(1).permutation(100)[:60]
    for number in free:
        live.forget(np.array([number]))
    again.restore(*live.tables())
    expected, first = [*sorted(free.tolist()), *range(100, 110)], 1000
    for count in (1, 3, 2, 40, 5, 19):
        for table in (live, again):
            found = table.look_up(pa.table({"key": np.arange(first, first + count)}))
            assert found.numbers.tolist() == expected[:count]
            table.add(found)
        expected, first = expected[count:], first + count
    assert not expected
    assert len(live.free) == 0


KINDS = {
    "integer": (pa.int64(), [None, 0, -1, 1, 2**62, -(2**63), 2**63 - 1]),
    "narrow": (pa.uint8(), [None, 0, 1, 7, 255]),
    "wide": (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    "time": (pa.timestamp("us"), [None, *map(datetime.datetime.fromtimestamp, (0, 1, 9, 10**9))]),
    "text": (pa.string(), [None, "", "a", "b"]),
    "float": (pa.float64(), [None, 0.0, 1.5, 2.5]),
}


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_numbers_are_those_that_a_dictionary_gives(name: str, data: st.DataObject) -> None:
    kind, values = KINDS[name]
    schema = pa.schema({"key": kind})
    table, known, free, room = KeyTable(schema), {}, [], 0
    others: list[tuple[KeyTable, dict[object, int]]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        keys = data.draw(st.lists(st.sampled_from(values), max_size=8))
        # A slice begins anywhere in its memory.
        rows = pa.table({"key": pa.array([None, *keys], kind)}).slice(1)
        found = table.look_up(rows)
        table.add(found)
        for key in keys:
            if key not in known:
                free.sort()
                known[key] = free.pop(0) if free else room
                room = max(room, known[key] + 1)
        assert found.numbers[found.codes].tolist() == [known[key] for key in keys]
        assert len(table) == len(known)
        assert table.numbers.tolist() == sorted(known.values())
        by_number = sorted(known, key=lambda key: known[key])
        assert table.keys.column("key").to_pylist() == by_number
        if data.draw(st.booleans()):
            others.append((table.snapshot(), dict(known)))
        if data.draw(st.booleans()):
            again = KeyTable(schema)
            again.restore(*table.tables())
            table = again
        gone = [key for key in known if data.draw(st.booleans())]
        numbers = [known.pop(key) for key in gone]
        table.forget(np.array(numbers, np.int64))
        free += numbers
    every = pa.table({"key": pa.array(values, kind)})
    for other, then in others:
        found = other.look_up(every)
        assert [found.numbers[n] for n in found.codes if n not in set(found.new)] == [
            then[key] for key in values if key in then
        ]


def test_many_keys_that_come_and_go_leave_little_behind() -> None:
    table = KeyTable(pa.schema({"key": pa.int64()}))
    for first in range(0, 200_000, 1000):
        found = table.look_up(pa.table({"key": np.arange(first, first + 1000)}))
        table.add(found)
        table.forget(found.numbers)
    assert len(table) == 0
    assert table.room == 1000
    # Only the index of sorted arrays has runs; nothing public tells how long they are.
    entries = sum(len(run.words) for run in table._index._runs)  # type: ignore[attr-defined]
    assert entries <= 4096
