"""Files of graphs: TOML with sources, operators and sinks, read as data; nothing in it is run.

    patience_s = 10                  # settings of `op.graph`, both optional
    queue_events = 65536

    keys = "graph.key"               # of a graph on several machines, from `outpace graph keys`

    [machines]                       # the first has sources, sinks and monitor; none: this one
    north = "tcp://10.0.0.1:7000"

    [sources.ticks]
    path = "ticks.csv"               # files, a folder or a glob
    time = "ts"                      # the default; also format, schema, delimiter, header

    [operators.falls]
    sql = "MATCH_RECOGNIZE (...)"    # or file = "falls.sql", which may be a .py with a query
    of = ["ticks"]                   # all sources by default
    machine = "north"                # the first by default

    [sinks]
    falls = "falls.log"              # a folder for an event log

Paths are relative to the file. What is wrong is shown with its line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from outpace.cli.run_input import DataFormat, format_named, format_of
from outpace.cli.run_query import SqlText, read_query
from outpace.errors import BindError, DataError, OutpaceError, Span, did_you_mean
from outpace.files.small_file import read_small
from outpace.hosts.graph.graph import Graph, graph
from outpace.ingest.files import csv, json_lines, parquet
from outpace.ingest.source import Source
from outpace.pattern.node import Node
from outpace.pattern.query import Query
from outpace.simulate.toml_places import check_nesting, toml_places

_BYTES_MAX: Final = 2**20
_SETTINGS: Final = ("patience_s", "queue_events")
_TOP: Final = {"sources", "operators", "sinks", "machines", "keys", *_SETTINGS}
_SOURCE: Final = {"path", "time", "format", "schema", "delimiter", "header"}
_OPERATOR: Final = {"sql", "file", "of", "dialect", "machine"}


def read_graph(path: Path) -> Graph:
    """Read a graph from a file."""
    try:
        text = read_small(path, _BYTES_MAX)
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'") from None
    try:
        check_nesting(text)
        document = tomllib.loads(text)
    except OutpaceError as error:
        raise BindError(error.message, span=error.span, text=text, where=str(path)) from None
    except ValueError as error:
        raise BindError(f"'{path}' is not TOML", detail=str(error)) from None
    return _GraphReader(document, text, path).graph()


class _GraphReader:
    def __init__(self, document: dict[str, Any], text: str, path: Path) -> None:
        self._document, self._text, self._path = document, text, path
        self._places = toml_places(text)

    def graph(self) -> Graph:
        self._check_keys(self._document, _TOP, ())
        sources = [
            self._source(name, table) for name, table in self._tables("sources", "path").items()
        ]
        operators = {
            name: self._operator(name, table)
            for name, table in self._tables("operators", "sql").items()
        }
        sinks = self._sinks()
        settings = {key: self._document[key] for key in _SETTINGS if key in self._document}
        try:
            return graph(sources, operators, sinks, **settings, **self._placement())
        except OutpaceError as error:
            raise self._located(error, self._guess(error)) from None

    def _placement(self) -> dict[str, Any]:
        """Return the settings of `op.graph` that say what runs where."""
        found: dict[str, Any] = {"machines": self._document.get("machines")}
        tables = self._document["operators"]
        places = {name: one["machine"] for name, one in tables.items() if "machine" in one}
        if places:
            found["places"] = places
        if "keys" in self._document:
            keys = self._document["keys"]
            found["keys"] = self._path.parent / keys if isinstance(keys, str) else keys
        return found

    def _sinks(self) -> dict[str, Path]:
        """Return the folders of logs that take matches."""
        given = self._document.get("sinks", {})
        if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
            raise self._wrong("sinks are names of operators with folders", ("sinks",))
        return {name: self._path.parent / folder for name, folder in given.items()}

    def _source(self, name: str, table: Mapping[str, Any]) -> Source:
        place = ("sources", name)
        self._check_keys(table, _SOURCE, place)
        texts = {key: table.get(key) for key in ("path", "time", "format", "schema", "delimiter")}
        for key, value in texts.items():
            if value is not None and not isinstance(value, str):
                raise self._wrong(f"{key} is a text", (*place, key))
        header = table.get("header", True)
        if not isinstance(header, bool):
            raise self._wrong("header is true or false", (*place, "header"))
        path, time = texts["path"], texts["time"] or "ts"
        if path is None:
            raise self._wrong(f"source '{name}' has no path", place)
        found = path if "://" in path else str(self._path.parent / path)
        try:
            kind = format_of(path) if texts["format"] is None else format_named(texts["format"])
            if kind is None:
                raise BindError(f"the ending of '{path}' tells no format", hint='format = "csv"')
            if kind is DataFormat.PARQUET:
                return parquet(found, time=time, id=name)
            if kind is DataFormat.CSV:
                delimiter = texts["delimiter"] or ","
                return csv(
                    found,
                    time=time,
                    id=name,
                    schema=texts["schema"],
                    delimiter=delimiter,
                    header=header,
                )
            return json_lines(found, time=time, id=name, schema=texts["schema"])
        except OutpaceError as error:
            raise self._located(error, place) from None

    def _operator(self, name: str, table: Mapping[str, Any]) -> Node:
        place = ("operators", name)
        self._check_keys(table, _OPERATOR, place)
        for key in ("sql", "file", "dialect"):
            if not isinstance(table.get(key, ""), str):
                raise self._wrong(f"{key} is a text", (*place, key))
        if ("sql" in table) == ("file" in table):
            raise self._wrong(f"operator '{name}' has either sql or file", place)
        inputs = table.get("of", [])
        inputs = [inputs] if isinstance(inputs, str) else inputs
        if not isinstance(inputs, list) or not all(isinstance(one, str) for one in inputs):
            raise self._wrong("of is a list of names", (*place, "of"))
        try:
            return Node(self._query(name, table), tuple(inputs))
        except OutpaceError as error:
            if error.span is not None or error.where is not None:
                prefix = f"{self._path}, operator '{name}'"
                error.where = prefix if error.where is None else f"{prefix}: {error.where}"
                raise
            raise self._located(error, place) from None

    def _query(self, name: str, table: Mapping[str, Any]) -> Query:
        dialect = table.get("dialect", "outpace")
        if "sql" in table:
            return Query.from_sql(table["sql"], dialect=dialect, name=name)
        read = read_query(self._path.parent / table["file"], dialect=dialect)
        if isinstance(read, SqlText):
            raise BindError(
                "an operator is a MATCH_RECOGNIZE clause alone, not a statement",
                hint="write what comes around it as another operator, or leave it out",
            )
        return read

    def _tables(self, key: str, example: str) -> dict[str, dict[str, Any]]:
        tables = self._document.get(key)
        if not isinstance(tables, dict) or not tables:
            raise BindError(
                f"the graph has no {key}", where=str(self._path), hint=f"write [{key}.name]"
            )
        for name, table in tables.items():
            if not isinstance(table, dict):
                hint = f'write [{key}.{name}] and {example} = "..."'
                raise self._wrong(f"'{name}' is a table", (key, name), hint)
        return tables

    def _check_keys(
        self, table: Mapping[str, Any], known: set[str], place: tuple[str, ...]
    ) -> None:
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known) or f"there are {', '.join(sorted(known))}"
                raise self._wrong(f"unknown key '{key}'", (*place, key), hint)

    def _guess(self, error: OutpaceError) -> tuple[str, ...]:
        """Return where a setting, an operator, a sink or a source stands that an error names."""
        for key in _SETTINGS:
            if error.message.startswith(key):
                return (key,)
        told = f"{error.message} {error.where}"
        for table in ("operators", "sinks", "sources", "machines"):
            named = self._document.get(table)
            for name in named if isinstance(named, dict) else ():
                if f"'{name}'" in told or f"{error.detail}".startswith(f"{name} -> "):
                    return table, name
        return ()

    def _wrong(self, message: str, place: tuple[str, ...], hint: str | None = None) -> BindError:
        error = BindError(message, hint=hint)
        self._located(error, place)
        return error

    def _located(self, error: OutpaceError, place: tuple[str, ...]) -> OutpaceError:
        """Say where in the file it is."""
        span = self._places.get(place)
        if span is not None and error.span is None:
            line = self._text[: span.start].rfind("\n") + 1
            end = self._text.find("\n", span.start)
            error.span = Span(
                max(span.start, line), span.end if end < 0 else min(span.end, end), self._text
            )
            error.text = self._text
        error.where = str(self._path) if error.where is None else f"{self._path}: {error.where}"
        return error
