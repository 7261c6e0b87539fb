"""The event log: an append-only folder of Arrow segments that streams are read from.

`create` makes one, `Log.writer` appends, `read` gives a table, and on Spark
`spark.readStream.format("outpace.log")` reads it as rows or as blocks.

Examples
--------
>>> import tempfile
>>> import pyarrow as pa
>>> import outpace as op
>>> folder = tempfile.TemporaryDirectory()
>>> log = op.log.create(folder.name, pa.schema({"ts": pa.int64(), "kind": pa.string()}))
>>> with log.writer() as writer:
...     writer.append(pa.table({"ts": [1, 2], "kind": ["a", "b"]}))
range(0, 2)
>>> op.log.read(folder.name)["kind"].to_pylist()
['a', 'b']
>>> folder.cleanup()
"""

from __future__ import annotations

from outpace.ingest.log import Behind, Damage, Log, Recovered, Writer, create, open, read

__all__ = ["Behind", "Damage", "Log", "Recovered", "Writer", "create", "open", "read"]
