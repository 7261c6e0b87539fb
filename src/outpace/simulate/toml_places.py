"""Where in a TOML text each key, item and table stands.

`tomllib` reads values and forgets their places. This scanner finds the places of a text that
`tomllib` has read, so it expects a valid one, and gives a path for each: names of keys and numbers
of items, as one would index the parsed document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from outpace.errors import ScenarioError, Span

TomlPath = tuple[str | int, ...]

#: How deep brackets may be nested, and how many parts a key may have; a scenario needs six.
MOST_NESTED = 32
#: How many digits a number may have.
_MOST_DIGITS = 400

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)


_PIECE = re.compile(
    rf"{_STRING.pattern}|#[^\n]*|[0-9_]{{{_MOST_DIGITS},}}|[][{{}}.,=\n\"']", re.DOTALL
)


def check_nesting(text: str) -> None:
    r"""Refuse a text that `tomllib` would take very long for, or fail at.

    Examples
    --------
    >>> check_nesting("a.b = [[1], {c = 2.5}]")
    >>> check_nesting("a = 1\nb = " + "[" * 40)
    Traceback (most recent call last):
    ...
    outpace.errors.ScenarioError: [scenario] this is nested too deeply
      line 2, column 37
        b = [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
                                            ^
    """
    depth = parts = 0
    for found in _PIECE.finditer(text):
        piece, message = found.group(), None
        depth += (piece in ("[", "{")) - (piece in ("]", "}"))
        parts = parts + 1 if piece == "." else 0 if piece in tuple("[]{},=\n") else parts
        if max(depth, parts) > MOST_NESTED:
            message = "this is nested too deeply"
        elif piece in ("'", '"'):
            message = "this string is never closed"
        elif len(piece) >= _MOST_DIGITS and piece[0] in "0123456789_":
            message = "the number is too long"
        if message is not None:
            raise ScenarioError(message, span=Span(found.start(), found.start() + 1, text))


def toml_places(text: str) -> Mapping[TomlPath, Span]:
    r"""Return the place of everything in a TOML text, by path.

    Examples
    --------
    >>> text = 'tick = 0.1\n[[vms]]\nid = "a"\n[[vms]]\nid = "b"'
    >>> span = toml_places(text)["vms", 1, "id"]
    >>> text[span.start:span.end]
    'id = "b"'
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._places: dict[TomlPath, Span] = {}
        self._items: dict[TomlPath, int] = {}

    def scan(self) -> dict[TomlPath, Span]:
        table: TomlPath = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()
        return self._places

    def _header(self) -> TomlPath:
        start = self._at
        is_item = self._text.startswith("[[", start)
        self._at += 2 if is_item else 1
        *parents, last = self._keys()
        self._at = self._text.index("]", self._at) + (2 if is_item else 1)
        path: TomlPath = ()
        for name in parents:
            path = self._within((*path, name))
        path = (*path, last)
        if is_item:
            self._items[path] = self._items.get(path, -1) + 1
            path = (*path, self._items[path])
        self._places[path] = Span(start, self._at, self._text)
        return path

    def _within(self, path: TomlPath) -> TomlPath:
        """The path itself, or its last item where it is an array of tables."""
        return (*path, self._items[path]) if path in self._items else path

    def _pair(self, table: TomlPath) -> None:
        start = self._at
        path = (*table, *self._keys())
        self._skip()
        self._at += 1
        self._skip()
        self._value(path)
        self._places[path] = Span(start, self._at, self._text)

    def _keys(self) -> list[str]:
        """The dotted key that begins here."""
        keys = []
        while True:
            self._skip()
            found = _STRING.match(self._text, self._at) or _BARE_KEY.match(self._text, self._at)
            assert found is not None, "the text has been read before"
            self._at = found.end()
            keys.append(_key(found.group()))
            self._skip()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, path: TomlPath) -> None:
        if self._text.startswith("[", self._at):
            self._array(path)
        elif self._text.startswith("{", self._at):
            self._inline_table(path)
        else:
            found = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            assert found is not None, "a scalar may be empty"
            self._at += len(found.group().rstrip())

    def _array(self, path: TomlPath) -> None:
        self._at += 1
        item = 0
        while not self._ends("]"):
            start = self._at
            self._value((*path, item))
            self._places[(*path, item)] = Span(start, self._at, self._text)
            item += 1

    def _inline_table(self, path: TomlPath) -> None:
        self._at += 1
        while not self._ends("}"):
            self._pair(path)

    def _ends(self, bracket: str) -> bool:
        """Pass over blanks and a comma; whether the bracket follows, which is passed over too."""
        self._skip()
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip()
        if not self._text.startswith(bracket, self._at):
            return False
        self._at += 1
        return True

    def _skip(self) -> None:
        found = _BLANK.match(self._text, self._at)
        assert found is not None, "blanks may be none"
        self._at = found.end()


def _key(written: str) -> str:
    if written[0] == "'":
        return written[1:-1]
    if written[0] == '"':
        return re.sub(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", _unescape, written[1:-1])
    return written


def _unescape(escape: re.Match[str]) -> str:
    name = escape.group(1)
    if name[0] in "uU":
        return chr(int(name[1:], 16))
    return {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}.get(name, name)
