"""Read scenarios and catalogues of machines from TOML files; what is wrong is shown with its line.

The text is data: nothing in it is run. The reference "Scenario files" has all keys. Beside the
fields of a `Scenario` a file may have `[[vertices]]` that several queries name, `[cores]` whose
times are costs, and types of `machines`, or the name of a catalogue. In the place of a placement it
may have how to make one: a name, or a table with a `kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpace.errors import ScenarioError, did_you_mean
from outpace.pattern.argument import a_text
from outpace.simulate.catalogue import Catalogue
from outpace.simulate.cloud import VM
from outpace.simulate.generators import RecordedTimes
from outpace.simulate.placement_choice import PlacementRule, placed
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_text import PLACEMENTS
from outpace.simulate.toml_places import TomlPath
from outpace.simulate.toml_values import TomlValues, all_tables, parse_document, read_text


def read_scenario(path: str | Path, placement: PlacementRule | None = None) -> Scenario:
    """Read a scenario from a file.

    Parameters
    ----------
    path
        A TOML file. Traces and catalogues that it names are in its folder.
    placement
        How to place the vertices, whatever the file says; as it says if not given.
    """
    place, text = read_text(path, "scenario")
    return parse_scenario(text, place.name, place.parent, placement)


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
        Where traces and catalogues are; None if it may name none.
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
    document = parse_document(text, where)
    return _ScenarioReader(document, text, where, folder).scenario(placement)


def read_catalogue(path: str | Path) -> Catalogue:
    """Read a catalogue of machine types from a TOML file.

    Parameters
    ----------
    path
        The file: tables `[[machines]]`, and a `currency`.
    """
    place, text = read_text(path, "catalogue")
    return parse_catalogue(text, place.name)


def parse_catalogue(text: str, where: str = "catalogue") -> Catalogue:
    """Read a catalogue of machine types from a text.

    Parameters
    ----------
    text
        TOML.
    where
        What errors call it.

    Examples
    --------
    >>> catalogue = parse_catalogue('''
    ... currency = "EUR"
    ... [[machines]]
    ... name = "small"
    ... mips = 2500
    ... memory = "4 GiB"
    ... price = 0.05
    ... ''')
    >>> catalogue.machines[0].memory
    4294967296.0
    """
    a_text(text, "the text of a catalogue", error=ScenarioError)
    document = parse_document(text, where, "catalogue")
    found: Catalogue = TomlValues(document, text, where).build(Catalogue, document, ())
    return found


def machines_of(path: str | Path) -> Catalogue | None:
    """Return the types of machines that a scenario file has or names; None if there are none."""
    place, text = read_text(path, "scenario")
    document = parse_document(text, place.name)
    return _ScenarioReader(document, text, place.name, place.parent).catalogue


class _ScenarioReader(TomlValues):
    def __init__(
        self, document: dict[str, Any], text: str, where: str, folder: Path | None
    ) -> None:
        super().__init__(document, text, where)
        self._folder = folder
        self.catalogue = self._machines()
        self._cores = self._named_cores()
        self._shared = {
            table["id"]: number
            for number, table in enumerate(self._listed("vertices"))
            if isinstance(table, dict) and isinstance(table.get("id"), str)
        }
        self._unnamed = set(self._shared)

    def scenario(self, choice: PlacementRule | None) -> Scenario:
        choice = self._choice() if choice is None else choice
        if choice is None:
            scenario: Scenario = self.build(Scenario, self._document, ())
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
            for path, table in all_tables(self._document)
        )
        if isinstance(raw, str) or (isinstance(raw, dict) and "kind" in raw and not names_vertex):
            choice: PlacementRule = self._kind(PLACEMENTS, raw, ("placement",))
            return choice
        return None

    def _arguments(
        self, kind: type[Any], table: Mapping[str, Any], path: TomlPath
    ) -> dict[str, Any]:
        if kind is VM and "machine" in table:
            table = self._of_its_type(table, path)
        arguments = super()._arguments(kind, table, path)
        if kind is Scenario and self._unnamed:
            name = min(self._unnamed, key=self._shared.__getitem__)
            place = ("vertices", self._shared[name])
            raise self._error(f"no query has the vertex {name!r}", place)
        return arguments

    def _of_its_type(self, table: Mapping[str, Any], path: TomlPath) -> Mapping[str, Any]:
        """Give the table of a VM what its type of machine has; what it has itself is stronger."""
        place = (*path, "machine")
        name = self._scalar("str", table["machine"], place)
        if self.catalogue is None:
            hint = 'write [[machines]] with their names, or machines = "catalogue.toml"'
            raise self._error("the file has no types of machines", place, hint)
        try:
            machine = self.catalogue.machine(name)
        except ScenarioError as error:
            raise self._error(error.message, place, error.hint) from None
        own = {key: value for key, value in table.items() if key != "machine"}
        given = {"mips": machine.mips, "processors": machine.processors, "price": machine.price}
        if machine.memory is not None:
            given["memory"] = machine.memory
        return {**given, **own}

    def _value(self, annotation: str, raw: Any, path: TomlPath) -> Any:
        if annotation == "Vertex" and isinstance(raw, str):
            if raw not in self._shared:
                hint = did_you_mean(raw, self._shared) or "[[vertices]] has those that are named"
                raise self._error(f"unknown vertex {raw!r}", path, hint)
            self._unnamed.discard(raw)
            number = self._shared[raw]
            return self._value(annotation, self._document["vertices"][number], ("vertices", number))
        return super()._value(annotation, raw, path)

    def _machines(self) -> Catalogue | None:
        """The types of machines of the file, or of the catalogue that it names."""
        raw = self._document.get("machines")
        if raw is None:
            return None
        if not isinstance(raw, str):
            table = {"machines": raw, "currency": self._document.get("currency", "")}
            found: Catalogue = self.build(Catalogue, table, ())
            return found
        file = self._beside(raw, ("machines",), "catalogue")
        try:
            return read_catalogue(file)
        except ScenarioError as error:
            if error.span is not None:
                raise
            raise self._located(error, ("machines",)) from None

    def _named_cores(self) -> dict[str, float]:
        """What the cores of `[cores]` and of the types of machines do in a second."""
        table = self._table(self._document.get("cores", {}), ("cores",))
        cores: dict[str, float] = {}
        for name, raw in table.items():
            cores[name] = float(self._scalar("float", raw, ("cores", name)))
            if not 0 < cores[name] < float("inf"):
                raise self._error("the MIPS of a core are not above 0", ("cores", name))
        machines = self.catalogue.machines if self.catalogue else ()
        return cores or {machine.name: machine.mips for machine in machines}

    def _listed(self, name: str) -> list[Any]:
        raw = self._document.get(name, [])
        if not isinstance(raw, list):
            raise self._error("a list is expected here", (name,))
        return raw

    def _kind(self, kinds: Mapping[str, type[Any]], raw: Any, path: TomlPath) -> Any:
        if isinstance(raw, dict) and raw.get("kind") == "trace" and "file" in raw:
            return self._trace(raw, path)
        return super()._kind(kinds, raw, path)

    def _trace(self, table: Mapping[str, Any], path: TomlPath) -> RecordedTimes:
        name = self._scalar("str", table["file"], (*path, "file"))
        if set(table) != {"kind", "file"}:
            raise self._error("a trace has times or a file, one of the two", path)
        try:
            return RecordedTimes.read(self._beside(name, (*path, "file"), "trace"))
        except ScenarioError as error:
            raise self._located(error, (*path, "file")) from None

    def _beside(self, name: str, path: TomlPath, what: str) -> Path:
        """The place of another file that the scenario names: in its folder."""
        if self._folder is None:
            raise self._error(f"a {what} in a file needs a scenario in a file", path)
        try:
            file = (self._folder / name).resolve()
        except (OSError, ValueError) as error:
            message = f"the {what} {name!r} cannot be read"
            raise self._located(ScenarioError(message, detail=str(error)), path) from None
        if not file.is_relative_to(self._folder.resolve()):
            hint = f"a scenario reads no other files of yours: copy the {what} there"
            raise self._error(f"the {what} is not in the folder of the scenario", path, hint)
        return file
