"""Matching Parquet files in process, row group by row group: they may be larger than memory.

Rows that are in the query's order are read in parts, and matched where they are read. Keyed rows
are packed by key first, in a temporary file where they are many, and matched bucket by bucket. Only
rows in no known order are read as a whole.

Memory: for each thread what a task has on Spark (`files.match`), packed rows up to `HELD_BYTES`,
and the matches.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Final

import pyarrow as pa

from outpace.engine.codec.pack import unpack
from outpace.engine.cores import cores
from outpace.engine.match.contract import Progress
from outpace.errors import DataError
from outpace.files.match import match_part, parts_apart, read_unit
from outpace.files.parquet import ParquetFiles, list_files
from outpace.files.plan import FileDivision, Way, broken_order, for_tasks, packer_of, plan_apart
from outpace.hosts.local.table import search
from outpace.hosts.local.threads import in_threads, thread_count
from outpace.pattern.query import Query
from outpace.plan.plan import Plan
from outpace.plan.window_task import WindowTask
from outpace.report.progress import show_progress

#: Packed rows that are not written to a temporary file.
HELD_BYTES: Final = 256 << 20

#: So many parts for each thread: each has to find where its search enters, but none is long.
_PARTS_EACH: Final = 8


def match_files(
    files: ParquetFiles,
    query: Query,
    *,
    progress: bool | Progress = False,
    threads: int | None = None,
) -> pa.Table:
    """Find the matches of a query in files, as `outpace.match` says."""
    count = thread_count(threads)
    plan = plan_files_here(files, query)
    division = plan.division
    with show_progress(progress, query.name) as on_progress, in_threads(count):
        if division.way is Way.ROWS:
            listing, columns = division.files, plan.crossing.columns
            rows = [listing.read(group, columns) for group in listing.groups]
            return search(
                pa.concat_tables(rows), query, progress=on_progress, threads=count
            ).table()
        plan = for_tasks(plan)
        with ExitStack() as stack:
            if division.way is Way.PACKED:
                packed = stack.enter_context(_packed_rows(plan))
                found = cores().each(packed.match, range(division.buckets))
            else:
                found = _in_parts(plan, parts_apart(plan, _PARTS_EACH * count), on_progress)
    return pa.concat_tables([plan.bound.output.empty_table(), *found])


def plan_files_here(files: ParquetFiles, query: Query) -> Plan[FileDivision]:
    """Plan a query over files in process."""
    plan = plan_apart(list_files(files), query, ordered=files.ordered)
    if files.ordered and (broken := broken_order(plan)):
        warnings.warn(broken, stacklevel=4)
    return plan


def _in_parts(
    plan: Plan[FileDivision], parts: list[range], progress: Progress | None
) -> list[pa.Table]:
    done = 0

    def match(number: int) -> pa.Table:
        nonlocal done
        found = list(match_part(plan, parts[number]))
        if not cores().turn(1):
            done += 1
            told(done)
        return pa.concat_tables([plan.bound.output.empty_table(), *found])

    def told(matched: int) -> None:
        if progress is not None:
            progress(plan.division.files.rows * matched // len(parts), plan.division.files.rows)

    return cores().each(match, range(len(parts)), told)


class _PackedRows:
    """Rows packed by bucket of keys, the first ones in memory and the others in a file.

    Parameters
    ----------
    plan
        The plan.
    file
        An empty file.
    """

    def __init__(self, plan: Plan[FileDivision], file: IO[bytes]) -> None:
        self._plan = plan
        self._file = file
        self._held = 0
        #: By bucket: where rows were read, and their block, or where it is in the file.
        self._blocks: dict[int, list[tuple[int, pa.Buffer | tuple[int, int]]]] = defaultdict(list)

    def fill(self) -> None:
        """Read all rows."""
        packer = packer_of(self._plan)

        def pack(number: int) -> pa.RecordBatch:
            return packer.pack(read_unit(self._plan, number), number)

        units, at_once = len(self._plan.division.units), cores().count
        for first in range(0, units, at_once):
            for packed in cores().each(pack, range(first, min(first + at_once, units))):
                self._take(packed)

    def _take(self, packed: pa.RecordBatch) -> None:
        columns = (packed[name] for name in ("bucket", "position", "block"))
        for bucket, position, block in zip(*columns, strict=True):
            buffer = block.as_buffer()
            place: pa.Buffer | tuple[int, int] = buffer
            if self._held + buffer.size > HELD_BYTES:
                try:
                    place = self._file.tell(), self._file.write(buffer)
                except OSError as error:
                    raise DataError(
                        "the rows cannot be packed by key into a temporary file",
                        detail=str(error),
                        hint=f"make room in {tempfile.gettempdir()}, or name another folder"
                        " in TMPDIR",
                    ) from error
            else:
                self._held += buffer.size
            self._blocks[bucket.as_py()].append((position.as_py(), place))

    def match(self, bucket: int) -> pa.Table:
        """Return the matches of the keys of a bucket."""
        task = WindowTask(self._plan)
        blocks = [(position, self._read(place)) for position, place in self._blocks[bucket]]
        if not blocks:
            return self._plan.bound.output.empty_table()
        return task.work().whole(unpack(blocks, task.rows))

    def _read(self, place: pa.Buffer | tuple[int, int]) -> pa.Buffer:
        if isinstance(place, pa.Buffer):
            return place
        begin, size = place
        return pa.py_buffer(os.pread(self._file.fileno(), size, begin))


@contextmanager
def _packed_rows(plan: Plan[FileDivision]) -> Iterator[_PackedRows]:
    with tempfile.TemporaryFile(buffering=0) as file:
        rows = _PackedRows(plan, file)
        rows.fill()
        yield rows
