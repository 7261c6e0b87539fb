"""The command `outpace`: one Typer application, one module for each of its commands.

A command's module is loaded when the command is asked for, since most of them need what others do
not.

Any `OutpaceError`, also one that was raised in a task of Spark, becomes its message on standard
error and exit code 2, for every command; so does what Spark itself says of a failed job, what the
system says of a file that cannot be opened or written, and what does not fit into memory. A
character that standard output cannot show becomes a plain one or a question mark; rows are written
as bytes, and stay as they are.
"""

from __future__ import annotations

import codecs
import importlib
import io
import sys
from functools import lru_cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from outpace.cli.options import WRITTEN_IN_PYTHON
from outpace.errors import OutpaceError

#: The commands: the module of each, and its function or its own application there.
_COMMANDS: Final = {
    "demo": "demo",
    "bench": "bench",
    "run": "run",
    "stream": "stream",
    "replay": "replay",
    "graph": "graphs",
    "top": "top",
    "log": "log",
    "clock": "clock",
    "simulate": "simulations",
    "study": "studies",
}


#: Signs of ours that a terminal may not have, and what it shows instead.
_PLAIN: Final = {"–": "-", "…": "...", "×": "x", "·": "*", "µ": "u", "∞": "inf", "█": "#"}


def _shown_plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in missing), error.end


codecs.register_error("outpace_plain", _shown_plainly)


class CommandGroup(TyperGroup):
    """The commands, with errors of Outpace turned into exit code 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; whatever a command says, the terminal can show."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="outpace_plain")
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command."""
        return _load(cmd_name) if cmd_name in _COMMANDS else super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        WRITTEN_IN_PYTHON.set(False)
        try:
            return super().invoke(ctx)
        except OutpaceError as error:
            # Who has written Python is told what to write there.
            told = error if WRITTEN_IN_PYTHON.get() else error.in_sql()
            typer.echo(str(told), err=True)
            raise typer.Exit(2) from error
        except BrokenPipeError:
            raise  # who reads has read enough, which is no failure
        except OSError as error:
            typer.echo(str(_system_error(error)), err=True)
            raise typer.Exit(2) from error
        except MemoryError as error:
            hint = "take less at once: fewer rows, a shorter time, or one part after the other"
            typer.echo(str(OutpaceError("this does not fit into memory", hint=hint)), err=True)
            raise typer.Exit(2) from error
        except Exception as error:
            from outpace.hosts.spark.failure import comes_from_spark, spark_error

            if not comes_from_spark(error):
                raise
            typer.echo(str(spark_error(error)), err=True)
            raise typer.Exit(2) from error


def _system_error(error: OSError) -> OutpaceError:
    message = error.strerror or str(error)
    place = "" if error.filename is None else f": '{error.filename}'"
    return OutpaceError(f"{message[:1].lower()}{message[1:]}{place}")


app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import outpace

        typer.echo(f"outpace {outpace.__version__}")
        raise typer.Exit


@app.callback()
def outpace(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Find patterns in event streams."""


@lru_cache
def _load(name: str) -> Any:
    found = getattr(importlib.import_module(f"outpace.cli.{name}"), _COMMANDS[name])
    home = typer.Typer(add_completion=False, rich_markup_mode=None)
    home.callback()(outpace)
    if isinstance(found, typer.Typer):
        home.add_typer(found, name=name)
    else:
        home.command(name)(found)
    group: Any = typer.main.get_command(home)
    return group.commands[name]
