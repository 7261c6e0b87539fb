"""`outpace top`: the streaming queries of programs on this machine, live in the terminal.

It asks what `op.spark.metrics.watch`, and `watch` of a run, serve, every second, and keeps nothing.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live

from outpace.cli.top_view import view
from outpace.errors import OutpaceError
from outpace.hosts.spark.metrics_server import PORT, PORTS

_TIMEOUT_SECONDS: Final = 5.0
_ANSWER_BYTES_MAX: Final = 64 * 2**20
_SERVE: Final = "call op.spark.metrics.watch(spark) or run.watch() in the program"

Url = Annotated[
    list[str] | None,
    typer.Option(help="What watch(...).url says; by default all that listen on this machine."),
]
Once = Annotated[bool, typer.Option("--once", help="Show it once and end.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write what is served, a line each time.")]
Interval = Annotated[float, typer.Option(min=0.1, help="Seconds from one look to the next.")]


def top(
    url: Url = None, once: Once = False, as_json: AsJson = False, every: Interval = 1.0
) -> None:
    """Show the streaming queries and runs that programs watch, their stages, delays and times."""
    console = Console()
    answers = _ask(url)
    try:
        if as_json:
            _write_lines(answers, url, once=once, every=every)
        elif once or not console.is_terminal:
            console.print(view(answers, ascii_only=console.options.ascii_only))
        else:
            _show(console, answers, url, every)
    except KeyboardInterrupt:
        return


def _show(
    console: Console, answers: list[dict[str, Any]], urls: list[str] | None, every: float
) -> None:
    plain = console.options.ascii_only
    with Live(view(answers, ascii_only=plain), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            try:
                answers = _ask(urls)
            except OutpaceError:
                return  # what was watched has ended, and what it said last stays
            live.update(view(answers, ascii_only=plain), refresh=True)


def _write_lines(
    answers: list[dict[str, Any]], urls: list[str] | None, *, once: bool, every: float
) -> None:
    while True:
        typer.echo(json.dumps(answers))
        if once:
            return
        time.sleep(every)
        try:
            answers = _ask(urls)
        except OutpaceError:
            return


def _ask(urls: list[str] | None) -> list[dict[str, Any]]:
    """Return what the programs say that listen; where none is named, at least one has to."""
    if urls:
        return [metrics_at(url) for url in urls]
    answers = []
    for port in range(PORT, PORT + PORTS):
        try:
            answers.append(metrics_at(f"http://127.0.0.1:{port}"))
        except OutpaceError:
            continue
    if not answers:
        raise OutpaceError(
            "no program on this machine serves metrics of streaming queries",
            detail=f"nothing answers on 127.0.0.1, ports {PORT} to {PORT + PORTS - 1}",
            hint=f"{_SERVE}, or name its --url",
        )
    return answers


def metrics_at(url: str) -> dict[str, Any]:
    """Return what `op.spark.metrics.watch` serves at an address."""
    address = url.rstrip("/").removesuffix("/metrics").removesuffix("/metrics.json")
    if not address.startswith(("http://", "https://")):
        raise OutpaceError(f"'{url}' is no address", hint=f"write http://127.0.0.1:{PORT}")
    try:
        with urllib.request.urlopen(f"{address}/metrics.json", timeout=_TIMEOUT_SECONDS) as answer:
            content = json.loads(answer.read(_ANSWER_BYTES_MAX))
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        raise OutpaceError(
            f"nothing serves metrics at {address}",
            detail=str(getattr(error, "reason", error)),
            hint=f"{_SERVE}; its url says where",
        ) from error
    if not isinstance(content, dict) or not {"queries", "samples"} <= content.keys():
        raise OutpaceError(f"what {address} serves are no metrics of streaming queries")
    return content
