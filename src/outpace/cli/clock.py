"""`outpace clock`: compare clocks from the shell: serve sources that ask, and ask as one."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import asdict
from typing import Annotated, Final

import typer

from outpace.engine.message import ClockExchange
from outpace.engine.order.drift import ClockReading, SourceClock
from outpace.errors import DataError
from outpace.ingest.clock import PORT, PORT_MAX, SOURCES_MAX, ClockClient, ClockSync

clock = typer.Typer(no_args_is_help=True, help="Compare the clocks of sources with this one.")

#: How long it waits for an exchange before it looks whether it is to end.
_TURN_S: Final = 0.2


@clock.callback()
def group() -> None:
    """Compare the clocks of sources with this one."""


@clock.command()
def serve(
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.")] = PORT,
    source: Annotated[
        list[str] | None,
        typer.Option(help="A source that is served; may be repeated. By default all that ask."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End after so long; by default with Ctrl-C.")
    ] = None,
) -> None:
    """Answer sources that ask what time it is, and write a line for each exchange."""
    known: OrderedDict[str, SourceClock] = OrderedDict()
    end = None if seconds is None else time.monotonic() + seconds
    with ClockSync(source, host=host, port=port) as sync:
        typer.echo("serving clocks on {}, port {}".format(*sync.address), err=True)
        try:
            while end is None or time.monotonic() < end:
                for exchange in sync.wait(_TURN_S):
                    typer.echo(_line(exchange.source, compared_with(known, exchange)))
        except KeyboardInterrupt:
            pass
        typer.echo(json.dumps(asdict(sync.counters)), err=True)


@clock.command()
def ask(
    address: Annotated[str, typer.Argument(help="The server: host:port.")],
    source: Annotated[str, typer.Option(help="Who asks.")],
    times: Annotated[int, typer.Option(min=1, help="How often.")] = 10,
    every: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds from one to the next.")
    ] = 0.1,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for an answer.")] = 1.0,
) -> None:
    """Ask a server what time it is, and write how far the clock here is from its own."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or len(port) > len(str(PORT_MAX)):
        raise DataError(f"'{address}' is no address", hint=f"write 127.0.0.1:{PORT}")
    compared, lost = SourceClock(), 0
    place = host.removeprefix("[").removesuffix("]"), int(port)
    with ClockClient(place, source, timeout=timeout) as client:
        for turn in range(times):
            if turn:
                time.sleep(every)
            exchange = client.ask()
            if exchange is None:
                lost += 1
            else:
                compared.compare(exchange)
    if lost == times:
        raise DataError(
            f"nobody answers at {address}", hint="start one there: outpace clock serve --host ..."
        )
    typer.echo(_line(source, compared.reading, lost=lost))


def compared_with(known: OrderedDict[str, SourceClock], exchange: ClockExchange) -> ClockReading:
    """Return what an exchange tells, with those before it of the sources that asked last.

    Whoever reaches the port may ask in any name, so no more are remembered than the server does.
    """
    compared = known.setdefault(exchange.source, SourceClock())
    known.move_to_end(exchange.source)
    if len(known) > SOURCES_MAX:
        known.popitem(last=False)
    compared.compare(exchange)
    return compared.reading


def _line(source: str, reading: ClockReading, **others: int) -> str:
    told = {
        "source": source,
        "drift_us": reading.drift,
        "bound_us": reading.bound,
        "exchanges": reading.exchanges,
        "refused": reading.refused,
        "jumps": reading.jumps,
    }
    return json.dumps({**told, **others})
