"""Write docs/reference/api.md: every public name with its parameters, from the docstrings.

Run it after a change of a public name or docstring: `.venv/bin/python scripts/write_api.py`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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
    "op.simulate": "outpace.simulate",
}
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
    for prefix, name in MODULES.items():
        module = importlib.import_module(name)
        parts.append(f"## {prefix}\n")
        public = {one: getattr(module, one) for one in sorted(module.__all__)}
        parts += [
            _entry(f"{prefix}.{one}", value)
            for one, value in public.items()
            if not isinstance(value, ModuleType)
        ]
    return "\n".join(parts)


def _entry(name: str, value: object) -> str:
    lines = [f"### `{name}`", ""]
    error = inspect.isclass(value) and issubclass(value, Exception)
    if callable(value) and not error:
        lines += [f"`{name}{_signature(value)}`", ""]
    lines += _described(value)
    if inspect.isclass(value) and not error:
        methods = [_member(member, one) for member, one in _members(value)]
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
    text = inspect.getdoc(value) or ""
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = [" ".join(paragraph.split()) + "\n" for paragraph in _paragraphs(parts[0])]
    given = list(_items(sections.get("Parameters", "")))
    if given:
        rows = [f"| {_cell(name)} | {_cell(about)} |" for name, about in given]
        lines += ["| parameter | |", "|---|---|", *rows, ""]
    raised = list(_items(sections.get("Raises", "")))
    if raised:
        lines += ["Raises " + "; ".join(f"`{name}`: {about}" for name, about in raised), ""]
    return lines


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


def _member(name: str, member: object) -> str:
    shown = name if isinstance(member, property) else f"{name}{_signature(member)}"
    first = _paragraphs(_SECTION.split(inspect.getdoc(member) or "")[0])[:1]
    return f"| `{_cell(shown)}` | {_cell(' '.join(' '.join(first).split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
