"""Query files: SQL, or a Python program that builds a query, a join or a group of queries.

SQL is parsed, never evaluated. A Python file is the user's own program: it runs because the user
names it on the command line, as `python query.py` would. Errors name the file and the line.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from outpace.cli.options import WRITTEN_IN_PYTHON
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
from outpace.pattern.notation.dialect import OWN
from outpace.pattern.notation.lexer import SourceText, tokenize
from outpace.pattern.query import Query
from outpace.statement.split import MOST_NESTED, split
from outpace.statement.step import Statement

Output = TypeVar("Output")

#: What a Python file defines.
Definition: TypeAlias = Query | Join | QueryGroup

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

    def each(self, look: Callable[[Query], Output]) -> list[Output]:
        """Return what is found out of each query; an error says which file it is of."""
        found = []
        for path, query in self.files:
            try:
                found.append(look(query))
            except OutpaceError as error:
                several = [one for one, _ in self.files].count(path) > 1
                place = f"{path}, query '{query.name}'" if several else str(path)
                error.where = f"{place}: {error.where}" if error.where else place
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
    """Read a query file where one query is meant; others are refused.

    Parameters
    ----------
    path, name, dialect
        As in `read_definition`.
    """
    found = read_definition(path, name=name, dialect=dialect, kinds=(Query,))
    assert isinstance(found, Query | SqlText), "other kinds are refused"
    return found


def read_definition(
    path: Path,
    *,
    name: str | None = None,
    dialect: str = "outpace",
    kinds: tuple[type[Definition], ...] = (Query, Join, QueryGroup),
) -> Definition | SqlText:
    """Read a query file.

    Parameters
    ----------
    path
        A file that ends in .sql (a statement, or a MATCH_RECOGNIZE clause alone) or in .py.
    name
        Which query of a Python file is meant, by variable or by its own name.
    dialect
        What SQL is written in.
    kinds
        What a Python file may define.
    """
    if path.suffix.lower() not in (".sql", ".py"):
        raise BindError(f"'{path}' is no query file", hint="a query file ends in .sql or in .py")
    if not path.is_file():
        raise DataError(f"there is no query file '{path}'")
    if path.suffix.lower() == ".py":
        return _chosen(_run(path), path, name, kinds)
    if name is not None:
        raise BindError("--name chooses a query of a Python file", hint="SQL has only one")
    return _from_sql(path, dialect)


def read_queries(
    paths: Sequence[Path], *, name: str | None = None, dialect: str = "outpace"
) -> Query | Join | SqlText | QueryFiles:
    """Read the query file, or several for one stream, which give a query or a group each.

    Parameters
    ----------
    paths
        The files.
    name, dialect
        As in `read_definition`.
    """
    if len(paths) > 1 and name is not None:
        raise BindError("--name goes with one query file", hint="leave it out, or the other files")
    files: dict[str, tuple[Path, Query]] = {}
    for path in paths:
        found = read_definition(path, name=name, dialect=dialect)
        if len(paths) == 1 and not isinstance(found, QueryGroup):
            return found
        if isinstance(found, SqlText | Join):
            statement = isinstance(found, SqlText)
            raise UnsupportedError(
                f"a {'statement' if statement else 'join'} does not run together with others",
                where=str(path),
                hint="write the MATCH_RECOGNIZE clause alone, or run it by itself"
                if statement
                else "run it by itself",
            )
        for query in found.queries if isinstance(found, QueryGroup) else (found,):
            if query.name in files:
                other = files[query.name][0]
                raise BindError(
                    f"'{other}' and '{path}' have queries of one name, '{query.name}'",
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


def _run(path: Path) -> dict[str, object]:
    """Run a Python file and return what its names stand for."""
    WRITTEN_IN_PYTHON.set(True)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name="outpace_query")
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


def _line(error: BaseException, path: Path) -> int:
    """Return the line of a file that an error comes from."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path) and frame.lineno]
    return lines[-1] if lines else 1


def _chosen(
    namespace: dict[str, object],
    path: Path,
    name: str | None,
    kinds: tuple[type[Definition], ...],
) -> Definition:
    """Return what the names of a file mean: the one that is chosen, `query`, or the only one."""
    found = {
        key: one for key, one in namespace.items() if isinstance(one, Query | Join | QueryGroup)
    }
    named = {one.name: one for one in found.values() if not isinstance(one, QueryGroup)} | found
    if name is not None:
        if name not in named:
            hint = did_you_mean(name, named)
            raise BindError(f"there is no query '{name}'", where=str(path), hint=hint)
        return _allowed(named[name], path, kinds)
    if "query" in found:
        return _allowed(found["query"], path, kinds)
    distinct = _apart({key: one for key, one in found.items() if isinstance(one, kinds)} or found)
    if len(distinct) == 1:
        return _allowed(found[distinct[0]], path, kinds)
    if not found:
        raise BindError(
            "the file defines no query", where=str(path), hint='query = op.Query("name")...'
        )
    raise BindError(
        f"the file defines {len(distinct)} queries",
        where=str(path),
        detail=", ".join(distinct),
        hint="call one of them query, or choose with --name",
    )


def _apart(found: Mapping[str, Definition]) -> list[str]:
    """Return the names of what a file defines, each once, without what a group of it holds."""
    groups = [one for one in found.values() if isinstance(one, QueryGroup)]
    held = {query for group in groups for query in group.queries}
    names: dict[Definition, str] = {}
    for key, one in found.items():
        if one not in held:
            names.setdefault(one, key)
    return list(names.values())


def _allowed(one: Definition, path: Path, kinds: tuple[type[Definition], ...]) -> Definition:
    if isinstance(one, kinds):
        return one
    raise UnsupportedError(
        f"the file defines a {'join' if isinstance(one, Join) else 'group'}, not a query",
        where=str(path),
        hint=f"outpace stream {path} --from LEFT --from RIGHT runs it"
        if isinstance(one, Join)
        else f"outpace stream {path} runs it, or choose a query with --name",
    )
