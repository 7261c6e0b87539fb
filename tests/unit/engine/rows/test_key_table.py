"""Numbers of keys that were forgotten are given again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

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
