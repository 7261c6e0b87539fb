"""Write docs/reference/api.md, and the tables of scenario.md there, from the docstrings.

The first has every public name with its parameters, the tables have every key of scenario files.
Run it after a change of a public name or docstring: `.venv/bin/python scripts/write_api.py`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from outpace.simulate.catalogue import Catalogue
from outpace.simulate.scenario import Scenario
from outpace.simulate.scenario_text import KINDS, PLACEMENTS, TABLES
from outpace.simulate.toml_values import BESIDES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.md"
#: The public modules, as users write them.
MODULES = {
    "op": "outpace",
    "op.windows": "outpace.windows",
    "op.schedulers": "outpace.schedulers",
    "op.checkpoints": "outpace.checkpoints",
    "op.recover": "outpace.recover",
    "op.sources": "outpace.sources",
    "op.log": "outpace.log",
    "op.ingest": "outpace.ingest",
    "op.spark": "outpace.hosts.spark",
    "op.spark.current": "outpace.hosts.spark.current",
    "op.spark.metrics": "outpace.hosts.spark.metrics",
    "op.spark.postgres": "outpace.hosts.spark.postgres",
    "op.simulate": "outpace.simulate",
    "outpace.testing": "outpace.testing",
}
#: The page of the keys of scenario files, whose tables are made.
SCENARIO_PAGE = PAGE.with_name("scenario.md")
#: What the tables of scenario files mirror, by the names of the values.
SCENARIO_VALUES: dict[str, type] = {
    kind.__name__: kind
    for kinds in (TABLES, PLACEMENTS, *KINDS.values())
    for kind in (*kinds.values(), Scenario, Catalogue)
}
#: What keys hold that are no fields.
_BESIDES = {
    ("Scenario", "vertices"): ("list of vertices", "Vertices that queries name by their ids."),
    ("Scenario", "cores"): ("table", "The MIPS of cores, by the names that costs give them."),
    ("Scenario", "machines"): ("list, or text", "Types of machines, or a catalogue's file."),
    ("Scenario", "currency"): ("text", "What the prices of these types are in."),
    ("Scenario", "calibration"): ("table", "What `calibrate` measured; the simulator skips it."),
    ("VM", "machine"): ("text", "A type of machine, whose values hold unless others are written."),
    ("RecordedTimes", "file"): ("text", "In the place of times: a file with one in each line."),
}
_HOLDS = {
    "Seconds": "duration",
    "Bytes": "size",
    "Instructions": "cost",
    "float": "number",
    "int": "whole number",
    "str": "text",
    "Sharing": "text",
    "Overflow": "text",
    "Mapping[str, str]": "table, or a strategy",
}
#: A comment that names a table, and the table below it.
_PLACE = re.compile(r"(?<=^<!-- keys: )(\w+)( -->\n)(?:\|.*\n)*", re.MULTILINE)
_HEAD = """# Python API

Every public name; `op` is `import outpace as op`. `scripts/write_api.py` makes this page from the
docstrings. Other pages of the reference say more of [queries](query.md),
[expressions](expressions.md), the [event log](log.md) and [errors](errors.md).
"""
#: A heading of a docstring: a line with dashes below it.
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_OBJECT = re.compile(r"<.*? at 0x[0-9a-f]+>|<(?:class|factory)[^>]*>")


def written() -> str:
    """Return the page."""
    parts = [_HEAD]
    for prefix, values in _public().items():
        parts.append(f"## {prefix}\n")
        parts += [_entry(f"{prefix}.{name}", value) for name, value in values.items()]
    return "\n".join(parts)


def scenario_written(page: str) -> str:
    """Return the page of scenario files with the tables that the docstrings give."""
    return _PLACE.sub(lambda place: place[1] + place[2] + _keys(place[1]), page)


def _keys(name: str) -> str:
    """Return the table of the keys of a value."""
    kind: Any = SCENARIO_VALUES[name]
    rows = [("key", "holds", "without it", ""), ("---",) * 4]
    for field in dataclasses.fields(kind):
        rows.append(
            (f"`{field.name}`", _holds(str(field.type)), _default(field), _about(kind, field.name))
        )
    for key in BESIDES.get(name, ()):
        rows.append((f"`{key}`", _BESIDES[name, key][0], "", _BESIDES[name, key][1]))
    lines = ("| " + " | ".join(map(_cell, row)) + " |\n" for row in rows)
    return "".join(line.replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def _holds(annotation: str) -> str:
    inner = annotation.removesuffix(" | None")
    if inner.startswith("tuple["):
        return f"list: {_holds(inner.removeprefix('tuple[').removesuffix(', ...]'))}"
    if inner in _HOLDS:
        return _HOLDS[inner]
    if inner in KINDS:
        return ", ".join(f"`{name}`" for name in KINDS[inner])
    return f"table ({inner})"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "an error"
    value = field.default
    if value is dataclasses.MISSING:
        value = field.default_factory() if callable(field.default_factory) else None
    for kinds in KINDS.values():
        for name, kind in kinds.items():
            if type(value) is kind:
                return f"`{name}`"
    if value is None or value in ((), {}):
        return ""
    return f"`{json.dumps(value) if isinstance(value, str) else f'{value:g}'}`"


def _about(kind: Any, name: str) -> str:
    """Return what a docstring says of a parameter, also where it names another class for it."""
    for names, about in _documented(kind):
        if name in _names(names):
            other = re.fullmatch(r"As for `(\w+)`\.", about)
            return about if other is None else _about(SCENARIO_VALUES[other[1]], name)
    return ""


def undocumented() -> dict[str, list[str]]:
    """Return the parameters of which no docstring says anything, by the name of what has them."""
    found = {}
    for prefix, values in _public().items():
        for name, value in values.items():
            if not callable(value) or _is_error(value):
                continue
            lacks = {f"{prefix}.{name}": _lacking(value, _documented(value))}
            for member, one in _members(value) if inspect.isclass(value) else ():
                if not isinstance(one, property):
                    lacks[f"{prefix}.{name}.{member}"] = _lacking(one, _documented(one, value))
            found.update({label: names for label, names in lacks.items() if names})
    return found


def _public() -> dict[str, dict[str, object]]:
    """Return the public names that are no modules, with their values, by the prefix of a module."""
    found: dict[str, dict[str, object]] = {}
    for prefix, name in MODULES.items():
        module = importlib.import_module(name)
        values = {one: getattr(module, one) for one in sorted(module.__all__)}
        found[prefix] = {
            one: value for one, value in values.items() if not isinstance(value, ModuleType)
        }
    return found


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: object) -> str:
    lines = [f"### `{name}`", ""]
    error = _is_error(value)
    if callable(value) and not error:
        lines += [f"`{name}{_signature(value)}`", ""]
    lines += _described(value)
    if inspect.isclass(value) and not error:
        methods = [_member(member, one, value) for member, one in _members(value)]
        if methods:
            lines += ["| | |", "|---|---|", *methods, ""]
    return "\n".join(lines)


def _signature(value: object) -> str:
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]  # asked of what is callable
    except ValueError:
        return "(...)"
    text = re.sub(r"\bself(, )?", "", text).replace("'", "")
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)
    text = re.sub(r"<\w+\.\w+: ([^>]+)>", r'"\1"', text)
    return _OBJECT.sub("...", text).replace(" -> None", "")


def _described(value: object) -> list[str]:
    """Return what a docstring says, with its parameters as a table."""
    text, sections = _sections(value)
    lines = [" ".join(paragraph.split()) + "\n" for paragraph in _paragraphs(text)]
    given = _documented(value)
    if given:
        rows = [f"| {_cell(name)} | {_cell(about)} |" for name, about in given]
        lines += ["| parameter | |", "|---|---|", *rows, ""]
    raised = list(_items(sections.get("Raises", "")))
    if raised:
        lines += ["Raises " + "; ".join(f"{name}: {about}" for name, about in raised), ""]
    return lines


def _sections(value: object) -> tuple[str, dict[str, str]]:
    """Return what a docstring says before its sections, and these by their headings."""
    text, *others = _SECTION.split(inspect.getdoc(value) or "")
    return text, dict(zip(others[::2], others[1::2], strict=True))


def _documented(value: object, owner: type | None = None) -> list[tuple[str, str]]:
    """Return the parameters that docstrings tell of, and what they say of each.

    Those that its own docstring leaves out are those of what it extends: of the bases of a class,
    and of the method of that name in a base of the class that owns it.
    """
    said = list(_items(_sections(value)[1].get("Parameters", "")))
    above: list[object] = []
    if inspect.isclass(value) and not _is_error(value):
        above = list(value.__mro__[1:])
    if owner is not None:
        name = getattr(value, "__name__", "")
        above = [vars(base)[name] for base in owner.__mro__ if name in vars(base)]
    for one in above:
        lacking = _lacking(value, said)
        for names, about in _items(_sections(one)[1].get("Parameters", "")):
            if {*_names(names)} & {*lacking}:
                said.append((names, about))
    return said


def _lacking(value: object, said: list[tuple[str, str]]) -> list[str]:
    """Return the parameters that are not among those that docstrings tell of."""
    if getattr(value, "_is_protocol", False):
        return []  # Nobody makes one.
    try:
        known = inspect.signature(value).parameters  # type: ignore[arg-type]  # as in `_signature`
    except ValueError:
        return []
    told = {name for names, _ in said for name in _names(names)}
    return [name for name in known if name[0] != "_" and name not in {"self", "cls", *told}]


def _names(item: str) -> list[str]:
    """Return the names that an item of a section tells of: `first, stop`."""
    return [name.strip(" *`") for name in item.split(",")]


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs before the first example."""
    return [part for part in text.strip().split("\n\n") if part and ">>>" not in part]


def _items(section: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a section of a docstring, and what it says of each."""
    for found in re.finditer(
        r"^(\S[^\n]*)\n((?:(?:    [^\n]*)?\n?)+)", section + "\n", re.MULTILINE
    ):
        yield f"`{found[1].strip()}`", " ".join(found[2].split())


def _members(value: type) -> Iterator[tuple[str, object]]:
    for name, member in inspect.getmembers(value):
        known = (
            inspect.isfunction(member) or inspect.ismethod(member) or isinstance(member, property)
        )
        if known and not name.startswith("_") and inspect.getdoc(member):
            yield name, member


def _member(name: str, member: object, owner: type) -> str:
    shown = name if isinstance(member, property) else f"{name}{_signature(member)}"
    first = _paragraphs(_sections(member)[0])[:1]
    said = [" ".join(" ".join(first).split())]
    if not isinstance(member, property):
        said += [f"{names}: {about}" for names, about in _documented(member, owner)]
    return f"| `{_cell(shown)}` | {_cell('<br>'.join(said))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    page = SCENARIO_PAGE.read_text(encoding="utf-8")
    SCENARIO_PAGE.write_text(scenario_written(page), encoding="utf-8")
