"""Numbers with units in the files of the simulator: durations, sizes, and what an event costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outpace.errors import ScenarioError, did_you_mean
from outpace.pattern.duration import parse_duration

_SIZES: Final[Mapping[str, int]] = {
    "B": 1,
    "bytes": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)},
}
_NUMBER = r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)"
_SIZE = re.compile(rf"{_NUMBER}\s*([^\W\d_]+)\s*")
_NANOSECONDS = re.compile(rf"{_NUMBER}\s*(?:ns|nanoseconds?)\s*")
_ON = re.compile(r"\s+on\s+")


def parse_seconds(text: str) -> float:
    """Return a duration in seconds.

    Examples
    --------
    >>> parse_seconds("5 min"), parse_seconds("1 min 30 s"), parse_seconds("250 ns")
    (300.0, 90.0, 2.5e-07)
    """
    short = _NANOSECONDS.fullmatch(text)
    if short is not None:
        return float(short[1]) / 1e9
    return parse_duration(text).total_seconds()


def parse_bytes(text: str) -> float:
    """Return a size in bytes.

    Examples
    --------
    >>> parse_bytes("64 MiB"), parse_bytes("1.5 kB"), parse_bytes("200 B")
    (67108864.0, 1500.0, 200.0)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ScenarioError(
            "expected a number and a unit of bytes", hint='write for example "2 GiB"'
        )
    if found[2] not in _SIZES:
        known = f"known units: {', '.join(_SIZES)}"
        hint = did_you_mean(found[2], _SIZES) or known
        raise ScenarioError(f"unknown unit of bytes {found[2]!r}", hint=hint)
    return float(found[1]) * _SIZES[found[2]]


def parse_cost(text: str, cores: Mapping[str, float]) -> float:
    """Return what an event costs, in instructions, given the time that a core takes for it.

    Parameters
    ----------
    text
        A duration, and the name of the core that takes so long; the name may be left out where
        there is one core.
    cores
        What each core does in a second, in million instructions.

    Examples
    --------
    >>> parse_cost("20 us on laptop", {"laptop": 3000.0, "server": 2500.0})
    60000.0
    >>> parse_cost("20 us", {"laptop": 3000.0})
    60000.0
    """
    duration, *names = _ON.split(text.strip(), maxsplit=1)
    seconds = parse_seconds(duration)
    name = names[0] if names else next(iter(cores), None)
    if name is None or (not names and len(cores) > 1):
        known = f"one of {', '.join(cores)}" if cores else "a table [cores] has what cores do"
        raise ScenarioError(
            "a cost as a time needs the name of a core", hint=f'"{text.strip()} on NAME": {known}'
        )
    if name not in cores:
        listed = f"known cores: {', '.join(cores)}" if cores else "a table [cores] has their MIPS"
        raise ScenarioError(f"unknown core {name!r}", hint=did_you_mean(name, cores) or listed)
    # 20e-6 · 3000e6 is a rounding error beside 60000.
    cost: float = seconds * cores[name] * 1e6
    return float(f"{cost:.12g}")
