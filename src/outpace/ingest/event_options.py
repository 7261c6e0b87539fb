"""The options with which generated events are made as a stream, by Spark or in process."""

from __future__ import annotations

import datetime
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from outpace.errors import BindError, did_you_mean
from outpace.ingest.event_stream import EventStream, stream_of
from outpace.ingest.log.options import EVENTS_PER_TRIGGER
from outpace.pattern.duration import parse_duration


@dataclass(frozen=True)
class EventSettings:
    """What the options say.

    Parameters
    ----------
    stream
        The events.
    partitions
        How many tasks make them.
    events_max
        The most events of one micro-batch.
    blocks
        Whether a row is a block of events.
    paced
        Whether events are offered by the clock; else all of them are there from the beginning.
    from_now
        Whether the first event has the time at which the stream began.
    """

    stream: EventStream
    partitions: int = 1
    events_max: int = EVENTS_PER_TRIGGER
    blocks: bool = False
    paced: bool = True
    from_now: bool = True

    @property
    def identity(self) -> int:
        """A number that tells streams of other events apart."""
        settings = asdict(self.stream)
        if self.from_now:
            del settings["beginning_us"]
        return zlib.crc32(json.dumps(settings, sort_keys=True).encode())


def read_options(options: Mapping[str, str]) -> EventSettings:
    """Return what options say.

    Examples
    --------
    >>> read_options({"kind": "stock", "rate": "50", "disorder": "2 s"}).stream.delay_us
    2000000
    """
    given = {name.lower(): value for name, value in options.items() if name.lower() != "path"}
    for name in given:
        if name not in _OPTIONS:
            raise BindError(
                f"outpace.events has no option '{name}'",
                hint=did_you_mean(name, _OPTIONS) or f"it has {', '.join(_OPTIONS)}",
            )
    read = {_OPTIONS[name][0]: _value(name, text) for name, text in given.items()}
    own = {name: read.pop(name) for name in _OWN if name in read}
    settings = EventSettings(stream_of(read), **own, from_now="beginning_us" not in read)
    if not settings.paced and settings.stream.limit is None:
        raise BindError(
            "events that are all there at once need an end", hint='set the option "limit"'
        )
    return settings


def _value(name: str, text: str) -> Any:
    try:
        return _OPTIONS[name][1](text)
    except ValueError as error:
        raise BindError(f"the option '{name}' is {_OPTIONS[name][2]}, not '{text}'") from error


def _natural(text: str) -> int:
    number = int(text)
    if not 1 <= number < 1 << 53:
        raise ValueError(text)
    return number


def _seed(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 32:
        raise ValueError(text)
    return number


def _duration_us(text: str) -> int:
    return parse_duration(text, where="option disorder") // datetime.timedelta(microseconds=1)


def _moment_us(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1)


def _one_of(*choices: str) -> Callable[[str], bool]:
    """Return what reads one of two words as whether it is the second."""

    def read(text: str) -> bool:
        if text.lower() not in choices:
            raise ValueError(text)
        return choices.index(text.lower()) == 1

    return read


#: For each option: the setting, what reads it, and what it is.
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any], str]]] = {
    "kind": ("kind", str, "a kind of events"),
    "rate": ("rate", _natural, "a whole number of events a second"),
    "burst": ("burst", str, 'written as "10x 5 s every 60 s"'),
    "seed": ("seed", _seed, "a whole number from 0 on"),
    "disorder": ("delay_us", _duration_us, "a duration"),
    "delayed": ("delayed", float, "a share from 0 to 1"),
    "keys": ("keys", _natural, "a whole number"),
    "types": ("types", str, "characters"),
    "limit": ("limit", _natural, "a whole number of events"),
    "start": ("beginning_us", _moment_us, "a time such as 2024-01-02T09:30:00"),
    "partitions": ("partitions", _natural, "a whole number"),
    "maxeventspertrigger": ("events_max", _natural, "a whole number of events"),
    "form": ("blocks", _one_of("rows", "blocks"), "rows or blocks"),
    "paced": ("paced", _one_of("false", "true"), "true or false"),
}
_OWN: Final = ("partitions", "events_max", "blocks", "paced")
