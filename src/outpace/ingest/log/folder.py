"""The folder of an event log: what it says of the log, and which segments it has.

`log.json` has the format's name and version, the schema, the time column, the size of segments and
a checksum of all that.
A segment that begins with offset n is `n.events`, its index `n.index`, with n in twenty digits.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from outpace.errors import DataError, did_you_mean
from outpace.files.small_file import read_small, sync_folder
from outpace.ingest.log.frame import LIMIT
from outpace.pattern.argument import a_path, a_text, a_whole_number, an_instance
from outpace.pattern.types import is_instant, type_name

VERSION: Final = 1
SEGMENT_BYTES: Final = 256 * 2**20
_FORMAT: Final = "outpace.log"
_ABOUT: Final = "log.json"
_ABOUT_BYTES_MAX: Final = 2**24
_SEGMENT: Final = re.compile(r"([0-9]{20})\.(?:events|index)")


@dataclass(frozen=True)
class Folder:
    """A log's folder and what `log.json` says.

    Parameters
    ----------
    path
        The folder.
    schema, time
        The columns of the events, and which of them has their times.
    segment_bytes
        A segment is closed before it grows larger than this.
    salt
        What the checksums of this log start from.
    """

    path: Path
    schema: pa.Schema
    time: str
    segment_bytes: int
    salt: int

    def bases(self) -> list[int]:
        """Return the offsets that segments begin with, rising; an index alone tells of one, too."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except OSError as error:
            raise DataError(f"cannot read '{self.path}'", detail=str(error)) from error
        bases = {int(found[1]) for name in names if (found := _SEGMENT.fullmatch(name))}
        if max(bases, default=0) >= LIMIT:
            raise DataError(f"the log has no offset {max(bases)}", where=str(self.path))
        return sorted(bases)

    def events_file(self, base: int) -> Path:
        """Return the file with the frames of a segment."""
        return self.path / f"{base:020d}.events"

    def index_file(self, base: int) -> Path:
        """Return the file with the headers of a segment."""
        return self.path / f"{base:020d}.index"

    @property
    def lock_file(self) -> Path:
        """The file that the writer locks."""
        return self.path / "writer.lock"

    @property
    def rejected(self) -> Path:
        """The folder of the log that rejected events go to."""
        return self.path / "rejected"

    def sync(self) -> None:
        """Make names of files durable."""
        sync_folder(self.path)


def create_folder(
    path: str | os.PathLike[str], schema: pa.Schema, time: str, segment_bytes: int
) -> Folder:
    """Make the folder of a new log."""
    place = Path(a_path(path, "the path of a log", error=DataError)).absolute()
    hint = 'write pa.schema({"ts": pa.int64(), "price": pa.float64()})'
    an_instance(schema, pa.Schema, "a schema of Arrow", hint=hint, error=DataError)
    checked = _checked_schema(schema, a_text(time, "the time column", error=DataError))
    segment_bytes = a_whole_number(segment_bytes, "segment_bytes", least=1, error=DataError)
    folder = Folder(place, checked, time, segment_bytes, secrets.randbits(32))
    about: dict[str, object] = {
        "format": _FORMAT,
        "version": VERSION,
        "schema": base64.b64encode(checked.serialize()).decode(),
        "time": time,
        "segment_bytes": segment_bytes,
        "salt": folder.salt,
    }
    write_about(folder.path, _ABOUT, about, "log")
    return folder


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Read what a log's folder says of it."""
    place = Path(a_path(path, "the path of a log", error=DataError)).absolute()
    about = place / _ABOUT
    hint = "op.log.create(path, schema) makes one"
    content = read_about(about, _FORMAT, VERSION, "event log", hint)
    try:
        schema, time, segment_bytes, salt = (
            content[name] for name in ("schema", "time", "segment_bytes", "salt")
        )
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema, validate=True)))
        for name, number in (("segment_bytes", segment_bytes), ("salt", salt)):
            if type(number) is not int or not 0 <= number < LIMIT:
                raise ValueError(f"{name} is {number!r}")
        if not isinstance(time, str) or _checked_schema(schema, time) != schema or salt >= 2**32:
            raise ValueError("no release writes what it says")
    except (KeyError, TypeError, ValueError, RecursionError, pa.ArrowException, OSError) as error:
        raise DataError(f"'{about}' is damaged", detail=repr(error)[:200]) from error
    except DataError as error:
        error.where = error.where or str(about)
        raise
    return Folder(place, schema, time, segment_bytes, salt)


def write_about(folder: Path, name: str, about: Mapping[str, object], thing: str) -> None:
    """Make a folder and a small file in it that says what it is, durably, with a checksum.

    Parameters
    ----------
    folder, name
        The folder, new or empty, and the name of the file.
    about
        What it says, with a format and a version.
    thing
        What the folder is, in a word.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise DataError(f"'{folder}' is not empty", hint=f"a new {thing} needs a new folder")
        part = folder / f"{name}.part"
        with part.open("w", encoding="utf-8") as file:
            json.dump({**about, "checksum": _checksum(about)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.rename(folder / name)
        for one in (folder, folder.absolute().parent):
            sync_folder(one)
    except OSError as error:
        raise DataError(f"cannot make a {thing} in '{folder}'", detail=str(error)) from error


def read_about(path: Path, format: str, version: int, thing: str, hint: str) -> dict[str, Any]:
    """Return what a file says that `write_about` wrote.

    Parameters
    ----------
    path
        The file.
    format, version
        What it has to say of itself.
    thing, hint
        What its folder is, in a word or two, and what makes one.
    """
    try:
        content = json.loads(read_small(path, _ABOUT_BYTES_MAX))
    except FileNotFoundError:
        raise DataError(
            f"'{path.parent}' is no {thing}", detail=f"there is no {path.name}", hint=hint
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read '{path}'", detail=str(error)) from error
    if not isinstance(content, dict) or content.get("format") != format:
        article = "an" if thing[0] in "aeiou" else "a"
        raise DataError(f"'{path}' is not of {article} {thing}")
    if content.get("version") != version:
        found = str(content.get("version"))[:20]
        raise DataError(
            f"the {thing.split()[-1]} has version {found}, this release reads version {version}",
            where=str(path),
        )
    try:
        whole = content.pop("checksum", None) == _checksum(content)
    except RecursionError:
        whole = False
    if not whole:
        raise DataError(f"'{path}' is damaged", detail="it is not what its checksum says")
    return content


def _checksum(about: Mapping[str, object]) -> int:
    """Return the checksum of what `log.json` says."""
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def _checked_schema(schema: pa.Schema, time: str) -> pa.Schema:
    """Return the schema that a log stores: dictionaries are stored as their values."""
    repeated = [name for name in schema.names if schema.names.count(name) > 1]
    if repeated:
        raise DataError(f"column '{repeated[0]}' is twice in the schema")
    if time not in schema.names:
        raise DataError(
            f"the schema has no time column '{time}'",
            hint=did_you_mean(time, schema.names) or 'name it: time="column"',
        )
    kind = schema.field(time).type
    if not (pa.types.is_integer(kind) or is_instant(kind)):
        raise DataError(
            f"the time column '{time}' is of type {type_name(kind)}",
            hint="times are integers, dates or timestamps",
        )
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )
