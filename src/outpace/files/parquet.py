"""Parquet files as input: what the user names, what the footers say, and how row groups are read.

`parquet` makes a value and opens nothing. `list_files` reads the footers once, on the driver, and
checks them: every file is Parquet and has the same columns. A `FileList` can be pickled and read in
any task; a read holds one row group at a time, and only the columns asked for. Errors name the file
and the row group.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from outpace.engine.event import EVENT_ID
from outpace.errors import DataError
from outpace.files.find import FilePlace, find_files
from outpace.pattern.argument import a_flag, a_path, listed, shown

#: Footers that are read at the same time; on object stores each waits for the network.
_FOOTERS_AT_ONCE: Final = 16

#: Rows of a batch of `FileList.batches`: small enough that the head of a row group stays cheap.
BATCH_ROWS: Final = 65_536

#: What Hive and Spark name a folder whose value is NULL.
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
#: Spark has signed numbers alone.
_SIGNED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_EPOCH: Final = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files to match; `parquet` makes one.

    Parameters
    ----------
    paths
        Files, folders, globs or addresses.
    ordered
        Whether the rows are declared to be in the query's order, file after file.
    filesystem
        Where the paths are; the local one, or what an address names, by default.
    """

    paths: tuple[str, ...]
    ordered: bool = False
    filesystem: fs.FileSystem | None = field(default=None, repr=False)


def parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    ordered: bool = False,
    filesystem: fs.FileSystem | None = None,
) -> ParquetFiles:
    """Name Parquet files as the input of `match`.

    Spark divides the row groups among its tasks; each task reads its own with PyArrow, only the
    columns that the query uses, and only matches go to Spark. Without a session this process reads
    them, part by part. Nothing is opened yet.

    Parameters
    ----------
    path
        A file, a folder (with the folders in it; names that start with `_` or `.` are left out), a
        glob (`**` crosses folders), an address that `pyarrow.fs` reads (`s3://bucket/events`), or a
        list of these. Folders named `column=value` below a folder are columns.
    ordered
        Declares that the rows are in the query's order, file after file in the order of their
        paths, row group after row group. Without it the order of row groups is taken from their
        statistics. Where the declaration does not hold, a warning says so and Spark sorts.
    filesystem
        The PyArrow file system that the paths are on.

    Examples
    --------
    >>> parquet("events/2024-*.parquet")
    ParquetFiles(paths=('events/2024-*.parquet',), ordered=False)
    """
    named = (path,) if isinstance(path, str | os.PathLike) else listed(path)
    if not named or not all(isinstance(one, str | os.PathLike) for one in named):
        raise DataError(
            "expected a path or a list of paths",
            detail=f"got {shown(path)}",
            hint="a path is a string or a pathlib.Path",
        )
    if filesystem is not None and not isinstance(filesystem, fs.FileSystem):
        raise DataError(
            f"expected a pyarrow.fs.FileSystem, not an object of type {type(filesystem).__name__}"
        )
    paths = tuple(a_path(one, "a path", error=DataError) for one in named)
    return ParquetFiles(paths, a_flag(ordered, "ordered", error=DataError), filesystem)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the footer says of a column in a row group; None where it does not.

    `least` and `greatest` are bounds as Python values: no value that is not NULL lies outside.
    NaN may be there all the same.
    """

    least: Any = None
    greatest: Any = None
    null_count: int | None = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of one file.

    Parameters
    ----------
    path, number, rows
        The file, the number of the row group in it, and how many rows it has.
    sizes
        The uncompressed bytes of each column.
    statistics
        What the footer says of each column; nested columns have none.
    constants
        The columns that the names of its folders give, `column=value`.
    place
        The place of its first row among the rows of all files, where rows bring theirs.
    """

    path: str
    number: int
    rows: int
    sizes: Mapping[str, int]
    statistics: Mapping[str, Statistics]
    constants: Mapping[str, Any]
    place: int = 0

    @property
    def name(self) -> str:
        """The row group as an error or `explain()` names it."""
        return f"row group {self.number} of {self.path}"


@dataclass(frozen=True)
class FileList:
    """The row groups of all files, in the order of the files' paths.

    Parameters
    ----------
    files
        What the user named.
    filesystem
        Where the files are.
    schema
        The columns that all files have, with those that folders give at the end. Types are ones
        that Spark has: dictionaries come as their values, extension types as what they store,
        times in microseconds, unsigned integers in the next larger signed type.
    groups
        The row groups that have rows.
    """

    files: ParquetFiles
    filesystem: fs.FileSystem
    schema: pa.Schema
    groups: tuple[RowGroup, ...]

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(group.rows for group in self.groups)

    def only(self, columns: Sequence[str]) -> FileList:
        """Return the list with what the footers say of some columns alone, to send to tasks."""
        names = [name for name in self.schema.names if name in set(columns)]
        groups = tuple(
            replace(
                group,
                sizes={name: group.sizes[name] for name in names},
                statistics={name: group.statistics[name] for name in names},
            )
            for group in self.groups
        )
        return replace(self, groups=groups)

    def with_places(self) -> FileList:
        """Return the list whose rows bring their places among all, as a column of its own."""
        if EVENT_ID.name in self.schema.names:
            return self
        groups, place = [], 0
        for group in self.groups:
            ends = Statistics(place, place + group.rows - 1, 0)
            groups.append(
                replace(
                    group,
                    sizes={**group.sizes, EVENT_ID.name: 8 * group.rows},
                    statistics={**group.statistics, EVENT_ID.name: ends},
                    place=place,
                )
            )
            place += group.rows
        return replace(self, schema=self.schema.append(EVENT_ID), groups=tuple(groups))

    def read(self, group: RowGroup, columns: Sequence[str]) -> pa.Table:
        """Read some columns of one row group, in the order asked for."""
        stored = _stored(group, columns)
        try:
            with self._open(group) as file:
                table = file.read_row_group(group.number, columns=stored, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(group, error) from error
        return self._complete(group, table, columns)

    def batches(
        self, group: RowGroup, columns: Sequence[str], rows: int = BATCH_ROWS
    ) -> Iterator[pa.Table]:
        """Read some columns of one row group in pieces; what is not asked for is not decoded."""
        stored, read = _stored(group, columns), 0
        try:
            with self._open(group) as file:
                pieces = file.iter_batches(
                    rows, row_groups=[group.number], columns=stored, use_threads=False
                )
                for piece in pieces:
                    table = pa.Table.from_batches([piece])
                    yield self._complete(group, table, columns, read)
                    read += table.num_rows
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(group, error) from error

    def _open(self, group: RowGroup) -> pq.ParquetFile:
        return pq.ParquetFile(self.filesystem.open_input_file(group.path), pre_buffer=False)

    def _complete(
        self, group: RowGroup, table: pa.Table, columns: Sequence[str], before: int = 0
    ) -> pa.Table:
        """Add places and the columns that folders give, and give each column its type.

        So many rows of the row group come before.
        """
        filled = []
        for name in columns:
            wanted = self.schema.field(name).type
            if name == EVENT_ID.name:
                first = group.place + before
                places = pa.array(np.arange(first, first + table.num_rows))
                filled.append(pa.chunked_array([places]))
                continue
            if name in group.constants:
                value = pa.scalar(group.constants[name], wanted)
                filled.append(pa.chunked_array([pa.repeat(value, table.num_rows)]))
                continue
            column = table.column(name)
            filled.append(column if column.type == wanted else column.cast(wanted, safe=False))
        fields = pa.schema([self.schema.field(name) for name in columns])
        if not columns:
            return table.select([])
        return pa.Table.from_arrays(filled, schema=fields)


def _stored(group: RowGroup, columns: Sequence[str]) -> list[str]:
    """Return the columns that are read of a file."""
    return [name for name in columns if name not in group.constants and name != EVENT_ID.name]


def list_files(files: ParquetFiles) -> FileList:
    """Find the files, read their footers and check that they go together.

    Raises
    ------
    DataError
        If a path or address has no files, or a file is not Parquet, is damaged, or has other
        columns than the first. The message names the file.
    """
    system, places = find_files(files.paths, files.filesystem)
    with ThreadPoolExecutor(min(_FOOTERS_AT_ONCE, len(places))) as pool:
        footers = list(pool.map(lambda place: _footer(system, place.path), places))
    schema = footers[0][0]
    for place, (other, _) in zip(places[1:], footers[1:], strict=True):
        check_same(f"'{places[0].path}'", schema, f"'{place.path}'", other)
    given = _folder_columns(places)
    fields = [*schema, *_constant_fields(schema, given)]
    groups = tuple(
        _row_group(place.path, metadata, number, schema, given[place.path])
        for place, (_, metadata) in zip(places, footers, strict=True)
        for number in range(metadata.num_row_groups)
        if metadata.row_group(number).num_rows
    )
    return FileList(files, system, pa.schema(fields), groups)


def _footer(system: fs.FileSystem, path: str) -> tuple[pa.Schema, pq.FileMetaData]:
    try:
        with pq.ParquetFile(system.open_input_file(path)) as file:
            schema, metadata = file.schema_arrow, file.metadata
        names = schema.names
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise DataError(
            f"cannot read '{path}' as Parquet",
            detail=str(error),
            hint="the file is of another format, or damaged or cut short",
        ) from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"column '{repeated[0]}' is twice in '{path}'")
    return pa.schema([_plain(field) for field in schema]), metadata


def _plain(column: pa.Field) -> pa.Field:
    """Return a column with the type that it has here: one that Spark has too."""
    kind = _stored_type(column.type)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", kind.tz)
    elif pa.types.is_time(kind):
        kind = pa.time64("us")
    return pa.field(column.name, _SIGNED.get(kind, kind))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values are stored in; it differs for extension types."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def check_same(first: str, schema: pa.Schema, path: str, other: pa.Schema) -> None:
    """Refuse a file whose columns are not those of the files before it; both are named."""
    for name in dict.fromkeys([*schema.names, *other.names]):
        one, two = schema.get_field_index(name), other.get_field_index(name)
        if one < 0 or two < 0:
            without, has = (first, path) if one < 0 else (path, first)
            raise DataError(f"column '{name}' is not in {without}", detail=f"it is in {has}")
        if schema.field(one).type != other.field(two).type:
            raise DataError(
                f"column '{name}' is {other.field(two).type} in {path}",
                detail=f"it is {schema.field(one).type} in {first}",
                hint="write the files with the same types",
            )


def _folder_columns(places: Sequence[FilePlace]) -> dict[str, dict[str, Any]]:
    """Return for each file the columns that its folders below the folder asked for give."""
    given = {place.path: folder_values(place.path[len(place.folder) :]) for place in places}
    names = dict.fromkeys(name for values in given.values() for name in values)
    for path, values in given.items():
        missing = [name for name in names if name not in values]
        if missing:
            raise DataError(
                f"the folders of '{path}' do not give column '{missing[0]}'",
                detail="the folders of other files do",
                hint="name every folder column=value, or name the files one by one",
            )
    for name in names:
        values_of = [values[name] for values in given.values()]
        if all(value is None or _INTEGER.fullmatch(value) for value in values_of):
            for values in given.values():
                values[name] = None if values[name] is None else int(values[name])
    return given


def folder_values(path: str) -> dict[str, Any]:
    """Return the columns that the folders of a path give, as text: `column=value`."""
    folders = path.strip("/").split("/")[:-1]
    pairs = [folder.partition("=") for folder in folders if "=" in folder]
    return {
        unquote(name): None if value == _NULL_FOLDER else unquote(value) for name, _, value in pairs
    }


def _constant_fields(
    schema: pa.Schema, given: Mapping[str, Mapping[str, Any]]
) -> Iterator[pa.Field]:
    for name in next(iter(given.values()), {}):
        if schema.get_field_index(name) >= 0:
            raise DataError(
                f"column '{name}' is in the files and in the names of their folders",
                hint="name the files one by one, then folders give no columns",
            )
        numbers = all(isinstance(values[name], int | None) for values in given.values())
        yield pa.field(name, pa.int64() if numbers else pa.string())


def _row_group(
    path: str,
    metadata: pq.FileMetaData,
    number: int,
    schema: pa.Schema,
    constants: Mapping[str, Any],
) -> RowGroup:
    group = metadata.row_group(number)
    sizes: dict[str, int] = {}
    statistics: dict[str, Statistics] = {}
    leaf = 0
    for column in schema:
        leaves = range(leaf, leaf + _leaves(column.type))
        leaf = leaves.stop
        sizes[column.name] = sum(group.column(i).total_uncompressed_size for i in leaves)
        nested = pa.types.is_nested(column.type)
        stored = None if nested else group.column(leaves.start).statistics
        statistics[column.name] = Statistics() if stored is None else _statistics(stored)
    for name, value in constants.items():
        sizes[name] = 0
        statistics[name] = Statistics(value, value, group.num_rows if value is None else 0)
    return RowGroup(path, number, group.num_rows, sizes, statistics, constants)


def _leaves(kind: pa.DataType) -> int:
    """Return how many columns of a Parquet file a column has."""
    kind = _stored_type(kind)
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _statistics(stored: pq.Statistics) -> Statistics:
    nulls = stored.null_count if stored.has_null_count else None
    if not stored.has_min_max:
        return Statistics(null_count=nulls)
    kind = json.loads(stored.logical_type.to_json())
    if kind.get("Type") not in ("Timestamp", "Time") or kind["timeUnit"] != "nanoseconds":
        try:
            return Statistics(stored.min, stored.max, nulls)
        except (OverflowError, ValueError):
            # Python's times end with the year 9999, those of Parquet do not.
            return Statistics(null_count=nulls)
    if kind["Type"] == "Time":
        return Statistics(null_count=nulls)
    # Python's times end at microseconds: the whole ones around nanoseconds bound them as well.
    zone = datetime.UTC if kind["isAdjustedToUTC"] else None
    least, greatest = (
        (_EPOCH + datetime.timedelta(microseconds=microseconds)).replace(tzinfo=zone)
        for microseconds in (stored.min_raw // 1000, -(-stored.max_raw // 1000))
    )
    return Statistics(least, greatest, nulls)


def _unreadable(group: RowGroup, error: Exception) -> DataError:
    return DataError(
        f"cannot read row group {group.number} of '{group.path}'",
        detail=str(error),
        hint="the file has changed since it was listed, or is damaged",
    )
