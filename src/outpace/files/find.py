"""Finding files by path, folder, glob or address, on any file system that PyArrow reads.

Files come sorted by path, each once. Names that start with `_` or `.` are left out of folders and
of globs that do not spell that character, as the writers of Parquet folders expect. Nothing is
opened, only listed; the memory is that of the paths.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from outpace.errors import DataError

_MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class FilePlace:
    """A file that was found, and the folder that was asked for (its own where none was)."""

    path: str
    folder: str


def find_files(
    paths: Sequence[str], filesystem: fs.FileSystem | None
) -> tuple[fs.FileSystem, tuple[FilePlace, ...]]:
    """Return the file system and the files of the paths, sorted; an error names what is missing."""
    found: dict[str, FilePlace] = {}
    common: fs.FileSystem | None = filesystem
    for path in paths:
        try:
            system, inner = _resolve(path, filesystem)
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            raise DataError(f"cannot read the address '{path}'", detail=str(error)) from error
        if common is not None and not system.equals(common):
            raise DataError(
                "the files are on different file systems",
                detail=f"{path} is not where {paths[0]} is",
                hint="match each file system on its own",
            )
        common = system
        try:
            places = list(_expand(system, inner))
        except (OSError, UnicodeError, pa.ArrowException) as error:
            raise DataError(f"cannot list '{path}'", detail=str(error)) from error
        if not places:
            raise DataError(
                f"no files in '{path}'" if not _is_glob(path) else f"no file matches '{path}'",
                hint="names that start with '_' or '.' are left out",
            )
        for place in places:
            found.setdefault(place.path, place)
    if common is None:
        raise DataError("there are no paths", hint="give a path, a folder, a glob or a list")
    return common, tuple(found[path] for path in sorted(found))


def _resolve(path: str, filesystem: fs.FileSystem | None) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or address, and the path there."""
    if filesystem is not None:
        return filesystem, path
    if "://" not in path:
        # Tasks run in other folders than the caller.
        return fs.LocalFileSystem(), Path(path).expanduser().absolute().as_posix()
    fixed = path
    rest = ""
    while any(character in fixed for character in "*[") and "/" in fixed:
        # An address is parsed strictly, so the part with wildcards is put back afterwards.
        fixed, _, last = fixed.rpartition("/")
        rest = f"/{last}{rest}"
    system, inner = fs.FileSystem.from_uri(fixed)
    return system, inner + rest


def _expand(system: fs.FileSystem, path: str) -> Iterator[FilePlace]:
    info = system.get_file_info(path)
    if info.type is fs.FileType.NotFound and _is_glob(path):
        head, segments = _split(path)
        for match in sorted(_matches(system, head, segments)):
            yield from _inside(system, system.get_file_info(match))
        return
    if info.type is fs.FileType.NotFound:
        raise DataError(f"there is no file or folder '{path}'")
    yield from _inside(system, info)


def _inside(system: fs.FileSystem, info: fs.FileInfo) -> Iterator[FilePlace]:
    """Yield a file, or the files of a folder and the folders in it."""
    if info.type is fs.FileType.Unknown:
        # A pipe or a device may never end.
        raise DataError(f"'{info.path}' is neither a file nor a folder")
    if info.type is fs.FileType.File:
        yield FilePlace(info.path, posixpath.dirname(info.path))
        return
    folder = info.path.rstrip("/")
    if isinstance(system, fs.LocalFileSystem):
        below = [entry for _, entries in _walk(system, folder) for entry in entries]
    else:
        below = system.get_file_info(fs.FileSelector(folder, recursive=True))
    for entry in below:
        parts = entry.path[len(folder) :].strip("/").split("/")
        if entry.type is fs.FileType.File and not any(map(_hidden, parts)):
            yield FilePlace(entry.path, folder)


def _walk(system: fs.FileSystem, folder: str) -> Iterator[tuple[str, list[fs.FileInfo]]]:
    """Yield a folder and those below it, each once, with what is in them; no hidden ones below."""
    local = isinstance(system, fs.LocalFileSystem)
    # A link may lead to a folder above it.
    known = set(map(str, Path(folder).resolve().parents)) if local else set()
    folders = [folder]
    while folders:
        inner = folders.pop()
        real = os.path.realpath(inner) if local else inner
        if real in known:
            continue
        known.add(real)
        entries = system.get_file_info(fs.FileSelector(inner or "/", allow_not_found=True))
        below = (entry for entry in entries if entry.type is fs.FileType.Directory)
        folders += sorted((e.path for e in below if not _hidden(e.base_name)), reverse=True)
        yield inner, entries


def _is_glob(path: str) -> bool:
    return not _MAGIC.isdisjoint(path)


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _split(path: str) -> tuple[str, list[str]]:
    """Split a glob into the folder before the first wildcard and the segments from there."""
    segments = path.split("/")
    first = next(index for index, segment in enumerate(segments) if _is_glob(segment))
    return "/".join(segments[:first]) or "/", segments[first:]


def _matches(system: fs.FileSystem, folder: str, segments: list[str]) -> Iterable[str]:
    """Yield the paths below a folder that match the segments of a glob, one by one."""
    segment, rest = segments[0], segments[1:]
    if not _is_glob(segment):
        path = posixpath.join(folder, segment)
        known = system.get_file_info(path).type is not fs.FileType.NotFound
        yield from ([] if not known else _matches(system, path, rest) if rest else [path])
        return
    if segment == "**":
        # It stands for no folder or for any number of them.
        while rest[:1] == ["**"]:
            rest = rest[1:]
        for inner, entries in _walk(system, folder):
            files = (entry for entry in entries if entry.type is fs.FileType.File)
            yield from (
                _matches(system, inner, rest)
                if rest
                else (entry.path for entry in files if not _hidden(entry.base_name))
            )
        return
    for entry in system.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        name = entry.base_name
        spelled = _hidden(segment) and segment[0] == name[0]
        if not fnmatch.fnmatchcase(name, segment) or (_hidden(name) and not spelled):
            continue
        is_folder = entry.type is fs.FileType.Directory
        if not rest:
            yield entry.path
        elif is_folder:
            yield from _matches(system, entry.path, rest)
