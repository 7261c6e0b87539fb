"""Options that several commands have, and how their values are read."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final

import typer

from outpace.errors import BindError

#: Whether the query of the command that runs is written in Python.
WRITTEN_IN_PYTHON: Final = ContextVar("written_in_python", default=False)

QueryPaths = Annotated[
    list[Path], typer.Argument(help="A .sql or .py file; several are run over one stream.")
]
QueryFile = Annotated[Path, typer.Argument(help="A .sql or .py file.")]
Dialect = Annotated[str, typer.Option(help="What the SQL is written in.")]
QueryName = Annotated[str | None, typer.Option(help="Which query of a .py file is meant.")]
Schema = Annotated[str | None, typer.Option(help='Types of columns: "ts bigint, price double".')]
Delimiter = Annotated[str, typer.Option(help="What separates the values of CSV.")]
Header = Annotated[bool, typer.Option(help="Whether CSV begins with names.")]
OnSpark = Annotated[bool, typer.Option("--spark", help="Run on Spark even if it is small.")]
Master = Annotated[str | None, typer.Option(help="Where Spark runs; local[*] by default.")]
Remote = Annotated[str | None, typer.Option(help="A Spark Connect server, sc://HOST.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, KEY=VALUE.")]


def one_character(delimiter: str) -> str:
    """Return what separates the values of CSV."""
    meant = "\t" if delimiter == "\\t" else delimiter
    if len(meant) != 1 or ord(meant) > 127:
        raise BindError(f"the delimiter is one character, not {delimiter!r}")
    return meant


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Return what an option that is given as KEY=VALUE says.

    Examples
    --------
    >>> pairs(["subscribe=ticks"], "--option")
    {'subscribe': 'ticks'}
    """
    read = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BindError(f"'{text}' is no setting", hint=f"{option} KEY=VALUE")
        read[key.strip()] = value.strip()
    return read
