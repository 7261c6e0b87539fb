"""Generated sources: simple events, stocks, football positions and readings of a building.

The same arguments give the same events on every machine and for every size of batches: an event is
a function of its number, by splitmix64 and integer arithmetic; only the prices of stocks go on from
the event before, for one day of trade. So reading may begin at any event. A generator holds one
batch.
"""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Integers, pooled
from outpace.engine.kernels.hashing import draw_below
from outpace.engine.rows.partition import gather
from outpace.errors import DataError
from outpace.ingest.rate import SECOND_US, Rate
from outpace.ingest.source import BATCH_ROWS, SEQUENCE, Source
from outpace.ingest.workloads import splitmix64, walk_by_key
from outpace.pattern.argument import a_whole_number, some_names

#: The time of a generator's first event.
BEGINNING: Final = datetime.datetime(2024, 1, 2, 9, 30, tzinfo=datetime.UTC)

_TIME: Final = pa.timestamp("us", tz="UTC")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
BEGINNING_US: Final = (BEGINNING - _EPOCH) // datetime.timedelta(microseconds=1)
#: Random numbers that an event may use; the streams of different seeds do not meet.
_STREAMS: Final = 16

#: A day of so many events begins with nothing from the one before.
_DAY_EVENTS: Final = 10 * BATCH_ROWS
_FIRST_CENTS: Final = 10_000
_LEAST_CENTS: Final = 100

#: The field of a football match in millimetres, and how high the ball flies.
_PITCH_MM: Final = (105_000, 68_000, 8_000)
#: How fast a sensor moves along each axis at most, in millimetres a second.
_SPEED_MM: Final = (6_000, 4_000, 1_000)
_QUANTITIES: Final = ("co2", "humidity", "motion", "power", "temperature")
_DAY_S: Final = 86_400


def simple_events(
    events: int,
    *,
    seed: int = 1,
    types: Sequence[str] = tuple("abcdefghij"),
    keys: int | None = None,
    rate: int = 1000,
    id: str = "simple",
) -> SimpleEvents:
    """Make the SimpleEvents of SPACE (Amann 2018): a time, a sequence number, one character.

    Parameters
    ----------
    events
        How many.
    seed
        Another seed gives other events.
    types
        What the column `type` may be, each with the same chance.
    keys
        How many values a column `key` has, each with the same chance; without it there is none.
    rate
        Events per second of their time; above a million, several have the same time.
    id
        The source's identifier.

    Examples
    --------
    >>> simple_events(3, types="ab").table().select(["seq", "type"]).to_pylist()
    [{'seq': 0, 'type': 'a'}, {'seq': 1, 'type': 'b'}, {'seq': 2, 'type': 'a'}]
    """
    named = list(types) if isinstance(types, str) else types
    return SimpleEvents(id, events, seed, rate, some_names(named, "types"), keys)


def stock_events(
    events: int,
    *,
    seed: int = 1,
    symbols: int = 100,
    rate: int = 1000,
    id: str = "stock",
) -> StockEvents:
    """Make the StockEvents of SPACE (Amann 2018): a symbol of three letters, and four prices.

    The price of a symbol is a random walk; an event opens where the one before it closed. A day of
    trade has 600 000 events, and all prices begin anew with it.

    Parameters
    ----------
    events, seed, rate, id
        As for `simple_events`.
    symbols
        How many stocks there are, each with the same chance.

    Examples
    --------
    >>> stock_events(2, symbols=1).table().drop_columns(["ts", "seq"]).to_pylist()
    [{'symbol': 'AAA', 'open': 100.0, 'high': 100.05, 'low': 99.94, 'close': 99.94},
     {'symbol': 'AAA', 'open': 99.94, 'high': 100.0, 'low': 99.81, 'close': 99.88}]
    """
    symbols = a_whole_number(symbols, "the number of symbols", error=DataError)
    if not 1 <= symbols <= 26**3:
        raise DataError(f"there are 1 to {26**3} symbols of three letters", detail=f"got {symbols}")
    return StockEvents(id, events, seed, rate, symbols)


def football(
    events: int,
    *,
    seed: int = 1,
    sensors: int = 36,
    rate: int | None = None,
    id: str = "football",
) -> FootballPositions:
    """Make positions of players and balls, with the columns of the DEBS 2013 challenge.

    `sid` is the sensor; `x`, `y`, `z` its place in millimetres; `vx`, `vy`, `vz` its velocity and
    `v` its speed in millimetres a second. Sensors go straight and turn at the edges of the field.

    Parameters
    ----------
    events, seed, id
        As for `simple_events`.
    sensors
        How many sensors report in turn.
    rate
        Events per second; 200 of each sensor by default.

    Examples
    --------
    >>> football(2, sensors=2).table().schema.names
    ['ts', 'seq', 'sid', 'x', 'y', 'z', 'v', 'vx', 'vy', 'vz']
    """
    sensors = a_whole_number(sensors, "the number of sensors", least=1, error=DataError)
    return FootballPositions(id, events, seed, 200 * sensors if rate is None else rate, sensors)


def building(
    events: int,
    *,
    seed: int = 1,
    rooms: int = 50,
    rate: int = 100,
    id: str = "building",
) -> BuildingReadings:
    """Make readings of a smart building: a room, what is measured, and the value.

    `quantity` is co2 (ppm), humidity (%), motion (0 or 1), power (W) or temperature (°C); values
    follow the time of day.

    Parameters
    ----------
    events, seed, rate, id
        As for `simple_events`.
    rooms
        How many rooms there are; each reading is of any of them.

    Examples
    --------
    >>> building(2).table().select(["room", "quantity", "value"]).to_pylist()
    [{'room': 28, 'quantity': 'co2', 'value': 752.9},
     {'room': 30, 'quantity': 'motion', 'value': 0.0}]
    """
    rooms = a_whole_number(rooms, "the number of rooms", least=1, error=DataError)
    return BuildingReadings(id, events, seed, rate, rooms)


@dataclass(frozen=True)
class GeneratedSource(Source):
    """A source whose events are functions of their numbers.

    Parameters
    ----------
    events, seed, rate
        As for `simple_events`.
    beginning_us
        The time of the first event, in microseconds since 1970.
    burst
        When the rate is higher for a while: "10x 5 s every 60 s".

    Examples
    --------
    >>> [part["seq"].to_pylist() for part in simple_events(9).between(4, 9, rows=3)]
    [[4, 5, 6], [7, 8]]
    """

    events: int
    seed: int
    rate: int
    beginning_us: int = field(default=BEGINNING_US, kw_only=True)
    burst: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("events", 0), ("rate", 1), ("seed", None)):
            self._check_number(name, least)
        Rate.of(self.rate, self.burst)

    def _check_number(self, name: str, least: int | None) -> None:
        value = a_whole_number(getattr(self, name), name, least=least, error=DataError)
        object.__setattr__(self, name, value)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield all events from the beginning, at most `rows` at a time."""
        return self.between(0, self.events, rows)

    def between(self, first: int, stop: int, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the events from number `first` to before `stop`, at most `rows` at a time."""
        spread, memory = Rate.of(self.rate, self.burst), self._memory(first)
        while first < stop:
            next_day = (first // _DAY_EVENTS + 1) * _DAY_EVENTS
            end = min(first + rows, stop, next_day)
            numbers = np.arange(first, end, dtype=np.int64)
            elapsed_us = spread.times(numbers)
            columns = {
                self.time: pa.array(self.beginning_us + elapsed_us).view(_TIME),
                SEQUENCE: pa.array(numbers),
                **self._columns(numbers, elapsed_us, memory),
            }
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            if end == next_day:
                memory = self._memory(end)
            first = end

    def _memory(self, first: int) -> Integers:
        """Return what events before this one of the day leave to it; most kinds need nothing."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def _columns(
        self, numbers: Integers, elapsed_us: Integers, memory: Integers
    ) -> Mapping[str, pa.Array]:
        """Return the payload of the events with these numbers, so long after the beginning."""

    def _draw(self, which: int, numbers: Integers, below: int) -> Integers:
        """Return for each event a number from 0 to `below` - 1; `which` tells draws apart."""
        stream = np.array([self.seed * _STREAMS + which], np.int64).view(np.uint64)
        drawn = pooled(len(numbers), np.int64)
        draw_below(splitmix64(stream)[0], int(numbers[0]), below, drawn)
        return drawn


@dataclass(frozen=True)
class SimpleEvents(GeneratedSource):
    """See `simple_events`."""

    types: tuple[str, ...]
    keys: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.types:
            raise DataError("simple events need a type")
        if self.keys is not None:
            self._check_number("keys", 1)

    def _columns(
        self, numbers: Integers, elapsed_us: Integers, memory: Integers
    ) -> Mapping[str, pa.Array]:
        types = {"type": _texts(self.types, self._draw(0, numbers, len(self.types)))}
        if self.keys is None:
            return types
        return {**types, "key": pa.array(self._draw(1, numbers, self.keys).astype(np.int32))}


@dataclass(frozen=True)
class StockEvents(GeneratedSource):
    """See `stock_events`."""

    symbols: int

    def _memory(self, first: int) -> Integers:
        cents = np.full(self.symbols, _FIRST_CENTS, np.int64)
        day = first // _DAY_EVENTS * _DAY_EVENTS
        if first > day:
            self._walk(np.arange(day, first, dtype=np.int64), cents)
        return cents

    def _walk(self, numbers: Integers, cents: Integers) -> tuple[Integers, Integers, Integers]:
        """Return which stock each event is of, how its price moves, and where to."""
        which = self._draw(0, numbers, self.symbols)
        moves = self._draw(1, numbers, 41) - 20
        return which, moves, walk_by_key(which, moves, cents)

    def _columns(
        self, numbers: Integers, elapsed_us: Integers, memory: Integers
    ) -> Mapping[str, pa.Array]:
        which, moves, walked = self._walk(numbers, memory)
        first, close = _reflected(walked - moves), _reflected(walked)
        high = np.maximum(first, close) + self._draw(2, numbers, 10)
        low = np.minimum(first, close) - self._draw(3, numbers, 10)
        cents = {"open": first, "high": high, "low": low, "close": close}
        return {
            "symbol": _texts(_symbols(self.symbols), which),
            **{name: pa.array(value / 100) for name, value in cents.items()},
        }


@dataclass(frozen=True)
class FootballPositions(GeneratedSource):
    """See `football`."""

    sensors: int

    def _columns(
        self, numbers: Integers, elapsed_us: Integers, memory: Integers
    ) -> Mapping[str, pa.Array]:
        sensor = numbers % self.sensors
        places, velocities = [], []
        every = np.arange(self.sensors, dtype=np.int64)
        for axis, (length, fastest) in enumerate(zip(_PITCH_MM, _SPEED_MM, strict=True)):
            speed = 1 + self._draw(2 * axis, every, fastest)[sensor]
            phase = self._draw(2 * axis + 1, every, 2 * length)[sensor]
            # To the end of the field and back again, at an even pace.
            travelled = (phase + elapsed_us * speed // SECOND_US) % (2 * length)
            places.append(np.minimum(travelled, 2 * length - travelled))
            velocities.append(np.where(travelled < length, speed, -speed))
        speed = np.sqrt(sum(part * part for part in velocities)).astype(np.int64)
        values = [sensor, *places, speed, *velocities]
        names = ["sid", "x", "y", "z", "v", "vx", "vy", "vz"]
        return {
            name: pa.array(value.astype(np.int32))
            for name, value in zip(names, values, strict=True)
        }


@dataclass(frozen=True)
class BuildingReadings(GeneratedSource):
    """See `building`."""

    rooms: int

    def _columns(
        self, numbers: Integers, elapsed_us: Integers, memory: Integers
    ) -> Mapping[str, pa.Array]:
        second = (self.beginning_us + elapsed_us) // SECOND_US % _DAY_S
        # From 0 at midnight to 1000 at noon.
        light = np.minimum(second, _DAY_S - second) * 2000 // _DAY_S
        quantity = self._draw(0, numbers, len(_QUANTITIES))
        noise = self._draw(1, numbers, 1000)
        tenths = np.choose(
            quantity,
            [
                4000 + 4 * light + noise,
                500 - light // 10 + noise // 10,
                np.where(noise < light // 4, 10, 0),
                500 + 2 * light + noise,
                190 + light // 20 + noise // 50,
            ],
        )
        return {
            "room": pa.array(self._draw(2, numbers, self.rooms).astype(np.int32)),
            "quantity": _texts(_QUANTITIES, quantity),
            "value": pa.array(tenths / 10),
        }


def _texts(names: Sequence[str], which: Integers) -> pa.Array:
    """Return names by their numbers."""
    return gather(pa.array(names, pa.string()), which)


def _reflected(cents: Integers) -> Integers:
    """Return prices that turn before they reach zero."""
    return _LEAST_CENTS + np.abs(cents - _LEAST_CENTS)


def _symbols(count: int) -> list[str]:
    """Return the first symbols of three letters: AAA, BAA, CAA and so on."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [letters[n % 26] + letters[n // 26 % 26] + letters[n // 676] for n in range(count)]
