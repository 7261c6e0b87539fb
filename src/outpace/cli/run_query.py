"""Query files: SQL, or a Python program that builds one query.

SQL is parsed, never evaluated. A Python file is the user's own program: it runs because the user
names it on the command line, as `python query.py` would. Errors name the file and the line.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from outpace.errors import (
    BindError,
    DataError,
    OutpaceError,
    Span,
    UnsupportedError,
    did_you_mean,
)
from outpace.files.small_file import read_small
from outpace.pattern.group import QueryGroup
from outpace.pattern.join import Join
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.pattern.query import Query
from outpace.statement.dialect import OWN
from outpace.statement.split import MOST_NESTED, Statement, split

Result = TypeVar("Result")

#: How large a file with a statement may be.
_BYTES_MAX: Final = 2**22


@dataclass(frozen=True, slots=True)
class SqlText:
    """A whole statement and where it comes from."""

    text: str
    dialect: str
    path: Path

    def located(self, error: OutpaceError) -> OutpaceError:
        """Say in an error of the statement which file it stands in, and return it."""
        if error.text == self.text:
            error.where = str(self.path)
        return error

    @property
    def written(self) -> str:
        """The dialect around MATCH_RECOGNIZE: that of Spark, on every host, where none is named."""
        return "spark" if self.dialect.lower() == OWN else self.dialect

    def statement(self) -> Statement:
        """Return the statement with its MATCH_RECOGNIZE clauses apart, in the dialect of Spark."""
        try:
            return _split(self.text, self.written)
        except OutpaceError as error:
            raise self.located(error) from error.__cause__

    def column_place(self, column: str) -> Span | None:
        """Return where a column is named first outside MATCH_RECOGNIZE."""
        clauses = [step.span for step in self.statement().steps]
        for token in tokenize(SourceText(self.text, dialect=self.written)):
            inside = any(one.start <= token.start < one.end for one in clauses)
            if token.is_name and token.value.lower() == column.lower() and not inside:
                return token.span
        return None

    def table_place(self, table: str) -> Span | None:
        """Return where a table is read first."""
        tokens = tokenize(SourceText(self.text, dialect=self.dialect))
        places = [
            token.span
            for before, token in pairwise(tokens)
            if before.key in ("FROM", "JOIN") and token.value.lower() == table.lower()
        ]
        return places[0] if places else None


@dataclass(frozen=True, slots=True)
class QueryFiles:
    """Queries over one stream, and the files that they come from."""

    files: tuple[tuple[Path, Query], ...]

    def each(self, look: Callable[[Query], Result]) -> list[Result]:
        """Return what is found out of each query; an error says which file it is of."""
        found = []
        for path, query in self.files:
            try:
                found.append(look(query))
            except OutpaceError as error:
                error.where = f"{path}: {error.where}" if error.where else str(path)
                raise
        return found

    def changed(self, change: Callable[[Query], Query]) -> QueryFiles:
        """Return the queries, each changed."""
        paths = (path for path, _ in self.files)
        return QueryFiles(tuple(zip(paths, self.each(change), strict=True)))


@lru_cache(maxsize=1)
def _split(text: str, dialect: str) -> Statement:
    return split(text, dialect, database="spark")


def read_query(path: Path, *, name: str | None = None, dialect: str = "outpace") -> Query | SqlText:
    """Read a query file.

    Parameters
    ----------
    path
        A file that ends in .sql (a statement, or a MATCH_RECOGNIZE clause alone) or in .py.
    name
        Which query of a Python file is meant, by variable or by its own name.
    dialect
        What SQL is written in.
    """
    if path.suffix.lower() not in (".sql", ".py"):
        raise BindError(f"'{path}' is no query file", hint="a query file ends in .sql or in .py")
    if not path.is_file():
        raise DataError(f"there is no query file '{path}'")
    if path.suffix.lower() == ".py":
        return _from_python(path, name)
    if name is not None:
        raise BindError("--name chooses a query of a Python file", hint="SQL has only one")
    return _from_sql(path, dialect)


def read_queries(
    paths: Sequence[Path], *, name: str | None = None, dialect: str = "outpace"
) -> Query | SqlText | QueryFiles:
    """Read the query file, or several for one stream, which give a query each.

    Parameters
    ----------
    paths
        The files.
    name, dialect
        As in `read_query`.
    """
    first, *others = paths
    if not others:
        return read_query(first, name=name, dialect=dialect)
    if name is not None:
        raise BindError("--name goes with one query file", hint="leave it out, or the other files")
    files: dict[str, tuple[Path, Query]] = {}
    for path in paths:
        query = read_query(path, dialect=dialect)
        if isinstance(query, SqlText):
            raise UnsupportedError(
                "a statement does not run together with other queries",
                where=str(path),
                hint="write the MATCH_RECOGNIZE clause alone, or run it by itself",
            )
        if query.name in files:
            raise BindError(
                f"'{files[query.name][0]}' and '{path}' have queries of one name, '{query.name}'",
                hint="results come by name: SQL has that of its file, Python that of op.Query",
            )
        files[query.name] = path, query
    return QueryFiles(tuple(files.values()))


def _from_sql(path: Path, dialect: str) -> Query | SqlText:
    text = read_small(path, _BYTES_MAX)
    statement = SqlText(text, dialect, path)
    try:
        first = tokenize(SourceText(text, where=str(path), dialect=dialect), MOST_NESTED)[0]
        if first.key == "MATCH_RECOGNIZE":
            return Query.from_sql(text, dialect=dialect, name=path.stem)
    except OutpaceError as error:
        raise statement.located(error) from error.__cause__
    return statement


def _from_python(path: Path, name: str | None) -> Query:
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        namespace = runpy.run_path(str(path), run_name="outpace_query")
    except OutpaceError as error:
        place = f"{path}, line {_line(error, path)}"
        error.where = f"{place}: {error.where}" if error.where else place
        raise
    except (Exception, SystemExit) as error:
        message = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        raise BindError(
            "the query file failed", where=f"{path}, line {_line(error, path)}", detail=message
        ) from error
    finally:
        sys.path.remove(folder)
    return _chosen(namespace, path, name)


def _line(error: BaseException, path: Path) -> int:
    """Return the line of a file that an error comes from."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path) and frame.lineno]
    return lines[-1] if lines else 1


def _refuse(one: object, path: Path) -> None:
    """Refuse what is more than a query, and say how the shell takes it."""
    if isinstance(one, Join):
        raise UnsupportedError(
            "the file defines a join, not a query",
            where=str(path),
            hint="write it in SQL: SELECT * FROM a JOIN b ON … WITHIN … BETWEEN …",
        )
    if isinstance(one, QueryGroup):
        raise UnsupportedError(
            "the file defines a group, not a query",
            where=str(path),
            hint="give each query a file: outpace stream a.py b.py",
        )


def _chosen(namespace: dict[str, object], path: Path, name: str | None) -> Query:
    queries = {key: value for key, value in namespace.items() if isinstance(value, Query)}
    if name is not None:
        named = {query.name: query for query in queries.values()} | queries
        if name in named:
            return named[name]
        raise BindError(
            f"there is no query '{name}'", where=str(path), hint=did_you_mean(name, named)
        )
    if "query" in queries:
        return queries["query"]
    if (one := namespace.get("query")) is not None:
        _refuse(one, path)
    distinct = list(dict.fromkeys(queries.values()))
    if len(distinct) == 1:
        return distinct[0]
    if not queries:
        for one in namespace.values():
            _refuse(one, path)
        raise BindError(
            "the file defines no query", where=str(path), hint='query = op.Query("name")...'
        )
    raise BindError(
        f"the file defines {len(queries)} queries",
        where=str(path),
        detail=", ".join(queries),
        hint="call one of them query, or choose with --name",
    )
