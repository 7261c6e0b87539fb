"""Where compiled code is kept on disk, and that nobody else wrote what is read from there.

Numba unpickles what it finds in its cache, so whoever writes there runs code as the user. A folder
is used only if it belongs to the user, nobody else may write to it, and nobody else can put another
in its place; a file in it, only if that is the user's own as well, and whole. Kernels are kept in
`NUMBA_CACHE_DIR`, beside their source, in the user's cache folder or in a temporary one, whichever
is the first that can be used. Where none can, every process compiles for itself.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any, Final

from numba.core import caching, config
from numba.core.ccallback import CFunc
from numba.core.types import FunctionType
from numba.core.typing.typeof import typeof_impl

#: Where the conditions of queries are kept, in the user's cache folder.
CONDITIONS: Final = "conditions"


class Callback(CFunc):
    """A function that kernels call by its address."""

    @cached_property
    def numba_type(self) -> Any:
        """Its type, which takes longer to make than a short call to a kernel takes."""
        known: Any = self
        return FunctionType(known._sig)


@typeof_impl.register(Callback)
def _type_of(callback: Callback, _: object) -> Any:
    return callback.numba_type


def add_cache(kernel: Any, function: Callable[..., object]) -> None:
    """Let Numba keep what it compiles of a function, where there is a place for it."""
    try:
        kernel._cache = _Cache(function)
    except RuntimeError:
        # Without a place, what is compiled lives as long as the process.
        kernel._cache = caching.NullCache()


def is_kept(kernel: Any) -> bool:
    """Say whether something is kept that was compiled of a function with its present text."""
    return isinstance(kernel._cache, _Cache) and kernel._cache.has_any


def own_folder(name: str) -> Path | None:
    """Return a folder that nobody but the user may enter, or None where there can be none.

    It is in the user's cache folder (`OUTPACE_CACHE_DIR`, else the usual one), or where that cannot
    be used in the folder for temporary files.
    """
    folders = (root / name for root in _roots())
    return next((folder for folder in folders if _is_usable(folder, 0o700)), None)


def _roots() -> Iterator[Path]:
    chosen, caches = (os.environ.get(name) for name in ("OUTPACE_CACHE_DIR", "XDG_CACHE_HOME"))
    # Who is not in the list of users may have no home.
    with suppress(RuntimeError):
        yield Path(chosen) if chosen else Path(caches or Path.home() / ".cache") / "outpace"
    # There may be no place for temporary files either.
    with suppress(OSError):
        yield Path(tempfile.gettempdir()) / f"outpace-{_user()}"


def _folder_of(file: str) -> Path | None:
    """Return where the kernels of a file of source are kept."""
    if file.startswith("<"):
        return own_folder(CONDITIONS)
    name = str(caching._CacheLocator.get_suitable_cache_subpath(file))
    chosen = vars(config)["CACHE_DIR"]
    given = [Path(chosen) / name] if chosen else []
    for folder in (*given, Path(file).parent / "__pycache__"):
        if _is_usable(folder, 0o755):
            return folder
    return own_folder(name)


@lru_cache
def _is_usable(folder: Path, mode: int) -> bool:
    """Make a folder where there is none, and say whether it can be used and is the user's alone."""
    try:
        folder.parent.mkdir(mode, parents=True, exist_ok=True)
        folder.mkdir(mode, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        return _is_private(folder.resolve(strict=True))
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    """Say whether nobody else can write to a folder or put another in its place."""
    if not hasattr(os, "geteuid"):
        return True  # Where users have no numbers, their folders are closed to others.
    known = [place.stat() for place in folder.parents]
    trusted = {os.geteuid(), 0, known[-1].st_uid}
    return _is_own(folder) and all(
        # In a sticky folder, such as that for temporary files, nobody can rename what others have.
        one.st_uid in trusted and (not _is_open(one) or one.st_mode & stat.S_ISVTX)
        for one in known
    )


def _is_own(place: Path) -> bool:
    """Say whether a file or folder is the user's, and nobody else may write to it."""
    if not hasattr(os, "geteuid"):
        return True
    known = place.lstat()
    return known.st_uid == os.geteuid() and not _is_open(known)


def _is_open(known: os.stat_result) -> bool:
    return bool(known.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "user"


@lru_cache
def _stamp(file: str, read: Callable[[str], bytes]) -> bytes:
    return hashlib.sha256(read(file)).digest()


class _Locator(caching._CacheLocator):
    """The place of one function."""

    def __init__(self, folder: Path, stamp: bytes, line: int) -> None:
        self._folder, self._stamp, self._line = folder, stamp, line

    @classmethod
    def from_function(cls, function: Any, file: str) -> _Locator | None:
        """Find a place for a function, whose source is in a folder, in an archive or generated."""
        folder = _folder_of(file)
        if folder is None:
            return None
        if file.startswith("<"):
            stamp = file.encode()  # Generated text is named by its content.
        else:
            try:
                stamp = _stamp(file, function.__globals__["__loader__"].get_data)
            except (OSError, KeyError, AttributeError):
                return None
        return cls(folder, stamp, function.__code__.co_firstlineno)

    def ensure_cache_path(self) -> None:
        # What cleans the folder for temporary files up may have taken it meanwhile.
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        if not _is_own(self._folder):
            raise PermissionError(f"others may write to {self._folder}")

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> bytes:
        return self._stamp

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CompiledResults(caching.CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012  # as Numba has it


class _FunctionFiles(caching.IndexDataCacheFile):
    """The files of one function, each with its checksum at the end, where Numba does not look.

    One that others may have written or that is damaged is not read, and so written again; nor is
    one of an earlier version, with classes that are gone or have another name now.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            readable = _is_readable(Path(self._index_path))
        except FileNotFoundError:
            return {}
        try:
            return dict(super()._load_index()) if readable else {}
        except (AttributeError, ImportError):
            return {}

    def _load_data(self, name: str) -> Any:
        if not _is_readable(Path(self._data_path(name))):
            raise PermissionError(f"{name} is damaged, or others may have written it")
        try:
            return super()._load_data(name)
        except (AttributeError, ImportError) as error:
            raise OSError(f"{name} is of an earlier version") from error

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[IO[bytes]]:
        with super()._open_for_write(path) as file:
            Path(file.name).chmod(0o600)
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_readable(file: Path) -> bool:
    if not _is_own(file):
        return False
    content = file.read_bytes()
    size = len(content) - hashlib.sha256().digest_size
    return size > 0 and hashlib.sha256(content[:size]).digest() == content[size:]


class _Cache(caching.FunctionCache):
    _impl_class = _CompiledResults

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        impl = self._impl
        self._cache_file = _FunctionFiles(
            self._cache_path, impl.filename_base, impl.locator.get_source_stamp()
        )

    @property
    def has_any(self) -> bool:
        """Whether anything is kept."""
        with suppress(OSError):
            return bool(self._cache_file._load_index())
        return False

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        # What cannot be read is compiled again, and what cannot be kept lives with the process.
        with suppress(OSError):
            yield
