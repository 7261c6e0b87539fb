"""What the server that starts instances loads once, so that no instance has to.

Importing this module matches a small table: that loads the library, Numba and the kernels that most
queries run. Instances are copies of the server, which has no threads.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.whole import match_whole
from outpace.hosts.processes import worker as worker
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows

_ROWS = pa.table({"ts": [1, 2, 3, 4, 5], "x": [1, 2, 1, 2, 1]})
_QUERY = (
    Query("preload")
    .order_by("ts")
    .pattern("A B")
    .define(A="x = 1", B="x > A.x")
    .measures(at="A.ts")
    .over(CountWindows(size=4, slide=2))
)

pa.set_cpu_count(1)
# A server that fails here would start no process of anybody; instances tell what is wrong.
with suppress(Exception):
    match_whole(OperatorSpec(_QUERY, _ROWS.schema), _ROWS)
