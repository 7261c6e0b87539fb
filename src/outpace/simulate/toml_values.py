"""Make values of the tables of a TOML text; what is wrong is shown with its line.

A table mirrors a frozen dataclass: what is a field there is a key here, and the field's annotation
says what it holds. Numbers of seconds, instructions and bytes may be texts with a unit (`units`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final

from outpace.errors import DataError, OutpaceError, ScenarioError, Span, did_you_mean
from outpace.files.small_file import read_small
from outpace.pattern.argument import a_path
from outpace.simulate import toml_places
from outpace.simulate.scenario_text import KINDS, TABLES, TEXTS
from outpace.simulate.units import parse_bytes, parse_cost, parse_seconds

#: How large a file may be, and a whole number in it.
_BYTES_MAX: Final = 2**20
_INTEGER_LIMIT: Final = 2**63

#: Keys of tables that are no fields of the value: what a reader makes fields of.
BESIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "Scenario": ("vertices", "cores", "machines", "currency", "calibration"),
    "VM": ("machine",),
    "RecordedTimes": ("file",),
}

_UNITS: Final = {
    "Seconds": 'a number of seconds, or a text such as "5 min"',
    "Bytes": 'a number of bytes, or a text such as "64 MiB"',
    "Instructions": 'a number of instructions, or a time such as "20 us on NAME", of a core',
}


def read_text(path: str | Path, what: str) -> tuple[Path, str]:
    """Return a path and the text of its file; `what` is what errors call it: "scenario"."""
    path = Path(a_path(path, f"the path of a {what}", error=ScenarioError))
    try:
        return path, read_small(path, _BYTES_MAX)
    except (OSError, DataError) as error:
        detail = str(error) if isinstance(error, OSError) else error.message
        raise ScenarioError(f"the {what} {str(path)!r} cannot be read", detail=detail) from None


def parse_document(text: str, where: str, what: str = "scenario") -> dict[str, Any]:
    """Return the tables of a text; `where` is what errors call it."""
    try:
        toml_places.check_nesting(text)
        return tomllib.loads(text)
    except ScenarioError as error:
        raise error.located(text, where) from None
    except ValueError as error:
        raise ScenarioError(f"the {what} is not TOML", where=where, detail=str(error)) from None


class TomlValues:
    """The values of a document.

    Parameters
    ----------
    document, text
        The tables, and the text that they are of.
    where
        What errors call it.
    """

    def __init__(self, document: dict[str, Any], text: str, where: str) -> None:
        self._document = document
        self._places = toml_places.toml_places(text)
        self._where = where
        #: What a core that a cost names does in a second, in million instructions.
        self._cores: dict[str, float] = {}

    def build(self, kind: type[Any], table: Mapping[str, Any], path: toml_places.TomlPath) -> Any:
        """Make a value of a table."""
        return self._made(kind, self._arguments(kind, table, path), path)

    def _made(
        self, kind: type[Any], arguments: Mapping[str, Any], path: toml_places.TomlPath
    ) -> Any:
        try:
            return kind(**arguments)
        except ScenarioError as error:
            raise self._located(error, path) from None

    def _arguments(
        self, kind: type[Any], table: Mapping[str, Any], path: toml_places.TomlPath
    ) -> dict[str, Any]:
        """Make the fields of a value from the keys of a table."""
        known = {field.name: field for field in fields(kind)}
        allowed = (*known, *BESIDES.get(kind.__name__, ()))
        for key in table:
            if key not in allowed:
                hint = did_you_mean(key, known) or did_you_mean(key, allowed)
                hint = hint or f"known keys: {', '.join(allowed)}"
                raise self._error(f"unknown key {key!r}", (*path, key), hint)
        arguments = {}
        for name, field in known.items():
            if name in table:
                arguments[name] = self._value(str(field.type), table[name], (*path, name))
            elif _is_required(field):
                raise self._error(f"the key {name!r} is missing", path)
        return arguments

    def _value(self, annotation: str, raw: Any, path: toml_places.TomlPath) -> Any:
        """Make what a field of this type holds."""
        annotation = annotation.removesuffix(" | None")
        if annotation.startswith("tuple["):
            if not isinstance(raw, list):
                raise self._error("a list is expected here", path)
            inner = annotation.removeprefix("tuple[").removesuffix(", ...]")
            return tuple(self._value(inner, item, (*path, n)) for n, item in enumerate(raw))
        if annotation in KINDS:
            return self._kind(KINDS[annotation], raw, path)
        if annotation in TABLES:
            return self.build(TABLES[annotation], self._table(raw, path), path)
        if annotation.startswith("Mapping["):
            table = self._table(raw, path)
            return {key: self._value("str", item, (*path, key)) for key, item in table.items()}
        return self._scalar(annotation, raw, path)

    def _scalar(self, annotation: str, raw: Any, path: toml_places.TomlPath) -> Any:
        if annotation in _UNITS:
            return self._quantity(annotation, raw, path)
        if annotation in TEXTS:
            if not isinstance(raw, str):
                raise self._error("a text is expected here", path, 'write it in quotes: "..."')
            return raw
        if isinstance(raw, bool) or not isinstance(
            raw, int if annotation == "int" else int | float
        ):
            whole = "whole " if annotation == "int" else ""
            raise self._error(f"a {whole}number is expected here", path)
        if isinstance(raw, int) and abs(raw) > _INTEGER_LIMIT:
            raise self._error("the number is out of range", path)
        return raw

    def _quantity(self, annotation: str, raw: Any, path: toml_places.TomlPath) -> float:
        """Make a number of what may have a unit."""
        if not isinstance(raw, str):
            if isinstance(raw, bool) or not isinstance(raw, int | float):
                raise self._error("a number is expected here", path, _UNITS[annotation])
            number: float = self._scalar("float", raw, path)
            return number
        try:
            match annotation:
                case "Seconds":
                    return parse_seconds(raw)
                case "Bytes":
                    return parse_bytes(raw)
                case _:
                    return parse_cost(raw, self._cores)
        except OutpaceError as error:
            lines = [error.message, error.hint or _UNITS[annotation]]
            raise self._error(lines[0], path, lines[1]) from None

    def _kind(self, kinds: Mapping[str, type[Any]], raw: Any, path: toml_places.TomlPath) -> Any:
        """Make a value of one of several kinds; its name alone stands for a table with it."""
        table = {"kind": raw} if isinstance(raw, str) else self._table(raw, path)
        if "kind" not in table:
            raise self._error("the key 'kind' is missing", path, _one_of(kinds))
        name = table["kind"]
        if not isinstance(name, str) or name not in kinds:
            place = path if isinstance(raw, str) else (*path, "kind")
            hint = did_you_mean(str(name), kinds) or _one_of(kinds)
            raise self._error(f"unknown kind {name!r}", place, hint)
        rest = {key: value for key, value in table.items() if key != "kind"}
        return self.build(kinds[name], rest, path)

    def _table(self, raw: Any, path: toml_places.TomlPath) -> Mapping[str, Any]:
        if not isinstance(raw, dict):
            raise self._error("a table is expected here", path)
        return raw

    def _error(
        self, message: str, path: toml_places.TomlPath, hint: str | None = None
    ) -> ScenarioError:
        return self._located(ScenarioError(message, hint=hint), path)

    def _located(self, error: ScenarioError, path: toml_places.TomlPath) -> ScenarioError:
        """Add the place to an error: that of its subject, else that of the path."""
        if error.span is None:
            found = self._subject_path(error.subject)
            error.span = self._span(path if found is None else found)
            error.text = error.span.text if error.span else None
            error.where = self._where if error.where is None else f"{self._where}: {error.where}"
        return error

    def _span(self, path: toml_places.TomlPath) -> Span | None:
        """The place of a path, or of the next thing around it that has one."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path)

    def _subject_path(self, subject: tuple[str, ...]) -> toml_places.TomlPath | None:
        """Where the file has what an error is about; the last place if there are several."""
        found: toml_places.TomlPath | None = None
        match subject:
            case ("simulation", name) if name in self._document:
                found = (name,)
            case ("scaling", name):
                found = ("scaling", name)
            case ("network",) if "network" in self._document:
                found = ("network",)
            case ("placement", vertex):
                found = ("placement", vertex)
            case ("change", number):
                found = ("changes", int(number) - 1)
            case (kind, *names):
                for path, table in all_tables(self._document):
                    if _is_subject(kind, names, path, table):
                        found = path
        return found


def all_tables(
    value: Any, path: toml_places.TomlPath = ()
) -> Iterable[tuple[toml_places.TomlPath, dict[str, Any]]]:
    """All tables of a document, with their paths."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from all_tables(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from all_tables(inner, (*path, number))


_SUBJECTS = {
    "query": ("queries", ("name",)),
    "vertex": ("vertices", ("id",)),
    "edge": ("edges", ("source", "target")),
    "vm": ("vms", ("id",)),
    "cloud": ("clouds", ("id",)),
    "datacentre": ("datacentres", ("id",)),
    "host": ("hosts", ("id",)),
    "machine": ("machines", ("name",)),
}


def _is_subject(
    kind: str, names: list[str], path: toml_places.TomlPath, table: Mapping[str, Any]
) -> bool:
    if kind not in _SUBJECTS or len(path) < 2:
        return False
    among, keys = _SUBJECTS[kind]
    return path[-2] == among and [table.get(key) for key in keys] == names


def _one_of(kinds: Iterable[str]) -> str:
    return "one of " + ", ".join(f'"{name}"' for name in kinds)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
