"""The options with which an event log is read as a stream, by Spark or in process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from outpace.errors import BindError, DataError, did_you_mean
from outpace.ingest.log.frame import LIMIT
from outpace.ingest.log.reader import Log, OnDamage
from outpace.pattern.argument import one_of, shown

#: A micro-batch takes at most so many events, and so many bytes, where neither is said.
EVENTS_PER_TRIGGER: Final = 2**22
BYTES_PER_TRIGGER: Final = 2**26

_OPTIONS: Final = (
    "path", "form", "maxEventsPerTrigger", "maxBytesPerTrigger", "startingOffset", "endingOffset",
    "partitions", "onDamage", "offsetColumn",
)  # fmt: skip


class Form(Enum):
    """What a row is."""

    ROWS = "rows"
    BLOCKS = "blocks"


@dataclass(frozen=True)
class LogOptions:
    """The options, checked."""

    path: str
    form: Form = Form.ROWS
    events_max: int | None = None
    bytes_max: int | None = None
    start: str | int = "earliest"
    stop: int | None = None
    partitions: int = 2
    on_damage: OnDamage = OnDamage.FAIL
    offset_column: str | None = None


def read_options(options: Mapping[str, str]) -> LogOptions:
    """Check the options of the data source.

    Examples
    --------
    >>> read_options({"path": "ticks.log", "form": "blocks", "partitions": "1"}).form
    <Form.BLOCKS: 'blocks'>
    """
    known = {name.lower(): name for name in _OPTIONS}
    given = {}
    for name, value in options.items():
        if name.lower() not in known:
            hint = did_you_mean(name, _OPTIONS) or f"there are {', '.join(_OPTIONS)}"
            raise BindError(f"outpace.log has no option '{name}'", hint=hint)
        given[known[name.lower()]] = value
    if not given.get("path"):
        raise BindError("outpace.log needs a path", hint='.load("ticks.log")')
    start = given.get("startingOffset", "earliest").lower()
    events = _number(given, "maxEventsPerTrigger", 1)
    size = _number(given, "maxBytesPerTrigger", 1)
    if events is None and size is None:
        events, size = EVENTS_PER_TRIGGER, BYTES_PER_TRIGGER
    form = one_of(Form, given.get("form", "rows").lower(), "the option 'form'")
    if form is Form.BLOCKS and "offsetColumn" in given:
        raise BindError(
            "blocks have their offsets in 'first' and 'stop'",
            hint="leave out the option 'offsetColumn', or read form=\"rows\"",
        )
    return LogOptions(
        given["path"],
        form,
        events,
        size,
        start if start in ("earliest", "latest") else _needed(given, "startingOffset", 0),
        _number(given, "endingOffset", 0),
        _number(given, "partitions", 1) or 2,
        one_of(OnDamage, given.get("onDamage", "fail").lower(), "the option 'onDamage'"),
        given.get("offsetColumn"),
    )


def first_offset(log: Log, options: LogOptions) -> int:
    """Return where a new reader begins."""
    if options.start == "earliest":
        return log.first
    if options.start == "latest":
        return log.stop
    check_start(log, int(options.start))
    return int(options.start)


def check_start(log: Log, offset: int) -> None:
    """Refuse an offset that the log has not come to."""
    if offset > log.stop:
        raise DataError(
            f"the log ends at offset {log.stop}, before offset {offset}",
            detail=str(log.folder.path),
            hint="was the log made anew? then start with a new checkpoint folder",
        )


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    return _needed(given, name, least) if name in given else None


def _needed(given: Mapping[str, str], name: str, least: int) -> int:
    text = given[name]
    known = text.isascii() and text.isdigit() and len(text) <= len(str(LIMIT))
    if not known or not least <= int(text) < LIMIT:
        raise BindError(
            f"the option '{name}' is an integer from {least} on, not {shown(text)}",
            detail="it is below 2^62",
        )
    return int(text)
