"""Read scenarios from TOML files; what is wrong is shown with its line.

The text is data: nothing in it is run; the how-to "Plan capacity" says how a file looks.
In the place of a placement a file may have how to make one: a name, or a table with a `kind`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final

from outpace.errors import DataError, ScenarioError, Span, did_you_mean
from outpace.files.small_file import read_small
from outpace.pattern.argument import a_path, a_text
from outpace.simulate import toml_places
from outpace.simulate.generators import RecordedTimes
from outpace.simulate.placement_choice import PlacementRule, placed
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_text import KINDS, PLACEMENTS, TABLES, TEXTS

#: How large a scenario may be, and a whole number in it.
_BYTES_MAX: Final = 2**20
_INTEGER_LIMIT: Final = 2**63


def read_scenario(path: str | Path, placement: PlacementRule | None = None) -> Scenario:
    """Read a scenario from a file.

    Parameters
    ----------
    path
        A TOML file. Traces that it names are in its folder.
    placement
        How to place the vertices, whatever the file says; as it says if not given.
    """
    path = Path(a_path(path, "the path of a scenario", error=ScenarioError))
    try:
        text = read_small(path, _BYTES_MAX)
    except (OSError, DataError) as error:
        detail = str(error) if isinstance(error, OSError) else error.message
        raise ScenarioError(f"the scenario {str(path)!r} cannot be read", detail=detail) from None
    return parse_scenario(text, path.name, path.parent, placement)


def parse_scenario(
    text: str,
    where: str = "scenario",
    folder: Path | None = None,
    placement: PlacementRule | None = None,
) -> Scenario:
    """Make a scenario of the text of a file.

    Parameters
    ----------
    text
        TOML.
    where
        What errors call it.
    folder
        Where traces are; None if it may name none.
    placement
        How to place the vertices, whatever the text says; as it says if not given.

    Examples
    --------
    >>> scenario = parse_scenario('''
    ... duration = 60
    ... [[vms]]
    ... id = "worker"
    ... mips = 2500
    ... [[queries]]
    ... name = "alarms"
    ... vertices = [
    ...     { kind = "producer", id = "in", generator = { kind = "uniform", rate = 10 } },
    ...     { kind = "consumer", id = "out" },
    ... ]
    ... edges = [{ source = "in", target = "out", selectivity = 0.5 }]
    ... ''')
    >>> scenario.queries[0].edges
    (Edge(source='in', target='out', selectivity=0.5),)
    """
    a_text(text, "the text of a scenario", error=ScenarioError)
    try:
        toml_places.check_nesting(text)
        document = tomllib.loads(text)
    except ScenarioError as error:
        raise error.located(text, where) from None
    except ValueError as error:
        raise ScenarioError("the scenario is not TOML", where=where, detail=str(error)) from None
    # How a scenario was measured is for those who measure again.
    document.pop("calibration", None)
    return _ScenarioReader(document, text, where, folder).scenario(placement)


class _ScenarioReader:
    def __init__(
        self, document: dict[str, Any], text: str, where: str, folder: Path | None
    ) -> None:
        self._document = document
        self._places = toml_places.toml_places(text)
        self._where = where
        self._folder = folder

    def scenario(self, choice: PlacementRule | None) -> Scenario:
        choice = self._choice() if choice is None else choice
        if choice is None:
            scenario: Scenario = self._build(Scenario, self._document, ())
            return scenario
        # All else is checked first, with all vertices on the first VM.
        unplaced = {key: raw for key, raw in self._document.items() if key != "placement"}
        arguments = self._arguments(Scenario, unplaced, ())
        vertices = [vertex.id for query in arguments["queries"] for vertex in query.vertices]
        arguments["placement"] = {
            vertex: vm.id for vm in arguments["vms"][:1] for vertex in vertices
        }
        scenario = self._made(Scenario, arguments, ())
        try:
            return placed(scenario, choice)
        except ScenarioError as error:
            raise self._located(error, ("placement",)) from None

    def _choice(self) -> PlacementRule | None:
        """Make what the file has in the place of a placement; None if it has a placement."""
        raw = self._document.get("placement", {})
        names_vertex = any(
            path[-2:-1] == ("vertices",) and table.get("id") == "kind"
            for path, table in _tables(self._document, ())
        )
        if isinstance(raw, str) or (isinstance(raw, dict) and "kind" in raw and not names_vertex):
            choice: PlacementRule = self._kind(PLACEMENTS, raw, ("placement",))
            return choice
        return None

    def _build(self, kind: type[Any], table: Mapping[str, Any], path: toml_places.TomlPath) -> Any:
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
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known) or f"known keys: {', '.join(known)}"
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
            return self._build(TABLES[annotation], self._table(raw, path), path)
        if annotation.startswith("Mapping["):
            table = self._table(raw, path)
            return {key: self._value("str", item, (*path, key)) for key, item in table.items()}
        return self._scalar(annotation, raw, path)

    def _scalar(self, annotation: str, raw: Any, path: toml_places.TomlPath) -> Any:
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
        if kinds[name] is RecordedTimes and "file" in rest:
            return self._trace(rest, path)
        return self._build(kinds[name], rest, path)

    def _trace(self, table: Mapping[str, Any], path: toml_places.TomlPath) -> RecordedTimes:
        name = self._scalar("str", table["file"], (*path, "file"))
        if set(table) != {"file"}:
            raise self._error("a trace has times or a file, one of the two", path)
        if self._folder is None:
            raise self._error("a trace in a file needs a scenario in a file", (*path, "file"))
        try:
            file = (self._folder / name).resolve()
            if not file.is_relative_to(self._folder.resolve()):
                raise ScenarioError(
                    "the trace is not in the folder of the scenario",
                    hint="a scenario reads no other files of yours: copy the trace there",
                )
            return RecordedTimes.read(file)
        except (OSError, ValueError) as error:
            message = f"the trace {name!r} cannot be read"
            raise self._located(ScenarioError(message, detail=str(error)), path) from None
        except ScenarioError as error:
            raise self._located(error, (*path, "file")) from None

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
            case ("network",) if "network" in self._document:
                found = ("network",)
            case ("placement", vertex):
                found = ("placement", vertex)
            case ("change", number):
                found = ("changes", int(number) - 1)
            case (kind, *names):
                for path, table in _tables(self._document, ()):
                    if _is_subject(kind, names, path, table):
                        found = path
        return found


def _tables(
    value: Any, path: toml_places.TomlPath
) -> Iterable[tuple[toml_places.TomlPath, dict[str, Any]]]:
    """All tables of a document, with their paths."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from _tables(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _tables(inner, (*path, number))


_SUBJECTS = {
    "query": ("queries", ("name",)),
    "vertex": ("vertices", ("id",)),
    "edge": ("edges", ("source", "target")),
    "vm": ("vms", ("id",)),
    "cloud": ("clouds", ("id",)),
    "datacentre": ("datacentres", ("id",)),
    "host": ("hosts", ("id",)),
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
