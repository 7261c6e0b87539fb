"""A football match as its sensors tell it, and how its events come out of order.

Fields, sensors and rates are those of the DEBS 2013 grand challenge, from which the paper took its
events (section 5.1 and table 5.1). Movements are drawn from a seed: every coordinate is a sum of
waves, so velocities and accelerations are exact. Disorder is drawn too: a profile has the numbers
of table 5.2 and the delays that the text names for figures 5.2 to 5.5. Where in the stream long
delays lie the text does not say; here they are put so that MP-K-slack waits about as long as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from outpace.engine.arrays import Floats, Integers

#: The sensors of balls, of the players' legs, and of the goalkeepers' arms.
BALLS: Final = (4, 8, 10, 12)
LEGS: Final = (
    *(13, 14, 47, 16, 49, 88, 19, 52, 53, 54, 23, 24, 57, 58, 59, 28),
    *(61, 62, 63, 64, 65, 66, 67, 68, 69, 38, 71, 40, 73, 74, 75, 44),
)
ARMS: Final = (97, 98, 99, 100)

#: Positions in a second: of a ball, of a leg or an arm, and of all.
BALL_RATE: Final = 2000
PLAYER_RATE: Final = 200
RATE: Final = len(BALLS) * BALL_RATE + (len(LEGS) + len(ARMS)) * PLAYER_RATE

#: When the match starts, in picoseconds; and how many of them a microsecond has.
KICKOFF: Final = 10_753_295_594_424_116
PICOSECONDS: Final = 1_000_000

#: The field in millimetres: the middle of each coordinate, and how far it goes from there.
_MIDDLE: Final = np.array([26_240.0, 0.0, 1_200.0])
_REACH: Final = np.array([26_000.0, 33_500.0, 1_100.0])

#: The waves of a coordinate: swings in a second, and parts of the reach.
_SWINGS: Final = np.array([0.0005, 0.002, 0.006])
_PARTS: Final = np.array([0.6, 0.3, 0.1])

#: The length of the vectors that tell directions.
_DIRECTION: Final = 10_000.0

SCHEMA: Final = pa.schema(
    [("sid", pa.int32()), ("ts", pa.int64())]
    + [(name, pa.int32()) for name in ("x", "y", "z")]
    + [(name, pa.int64()) for name in ("v_abs", "a_abs")]
    + [(name, pa.int32()) for name in ("vx", "vy", "vz", "ax", "ay", "az")]
    + [("seqNum", pa.int64())]
)

#: When an event arrives, in microseconds since the start of the match.
ARRIVED: Final = "arrived"


@dataclass(frozen=True, slots=True)
class Peak:
    """Events one after the other that come much later than the rest.

    Parameters
    ----------
    at
        Where in the stream, as a part of it.
    events
        How many.
    late
        By how many milliseconds.
    """

    at: float
    events: int
    late: float


@dataclass(frozen=True, slots=True)
class Profile:
    """How the events of a dataset come out of order.

    Parameters
    ----------
    name
        As the paper calls the dataset.
    events, disordered
        Its events, and those of them that come behind a later one: table 5.2.
    least, most
        Bounds of the delays of most of these, in milliseconds.
    peaks
        The others.
    """

    name: str
    events: int
    disordered: int
    least: float
    most: float
    peaks: tuple[Peak, ...]

    @property
    def usual(self) -> float:
        """No delay but those of peaks is longer than this, in milliseconds."""
        # An event is behind the two that follow it at least, however short its delay.
        return max(self.most, 0.5)

    def scaled(self, part: float) -> Profile:
        """Return the profile of a shorter stream."""
        events, disordered = int(self.events * part), int(self.disordered * part)
        return Profile(self.name, events, disordered, self.least, self.most, self.peaks)


def _single_peaks(seed: int, count: int, least: float, most: float) -> tuple[Peak, ...]:
    """Draw single late events all over a stream, of which the first one is the latest."""
    random = np.random.default_rng(seed)
    places = np.sort(random.uniform(0.02, 0.98, count))
    late = [most, *random.uniform(least, most, count - 1)]
    return tuple(Peak(float(at), 1, float(ms)) for at, ms in zip(places, late, strict=True))


#: The three of table 5.2.
PROFILES: Final = (
    Profile("Dataset 1", 499_982, 62_473, 0.1, 0.3, (Peak(0.53, 3, 750.0), Peak(0.78, 2, 1000.0))),
    Profile("Dataset 2", 499_499, 62_409, 0.1, 0.9, _single_peaks(2, 18, 200.0, 1800.0)),
    Profile("Dataset 3", 999_499, 83_212, 1.0, 7.0, _single_peaks(3, 16, 1000.0, 30_000.0)),
)


def football(events: int, seed: int = 1) -> pa.Table:
    """Return the first events of a match, in the order of their times.

    Examples
    --------
    >>> match = football(1000)
    >>> match.num_rows, match.schema.equals(SCHEMA), match["ts"][0].as_py() >= KICKOFF
    (1000, True, True)
    """
    random = np.random.default_rng(seed)
    sensors = (*BALLS, *LEGS, *ARMS)
    seconds = events / RATE + 1 / PLAYER_RATE
    times, own = [], []
    for place, sensor in enumerate(sensors):
        rate = BALL_RATE if sensor in BALLS else PLAYER_RATE
        times.append((np.arange(int(seconds * rate)) + random.random()) * (1e6 / rate))
        own.append(np.full(len(times[-1]), place))
    micros, which = np.concatenate(times), np.concatenate(own)
    order = np.argsort(micros, kind="stable")[:events]
    micros, which = micros[order], which[order]
    phases = random.uniform(0, 2 * np.pi, (len(sensors), 3, len(_SWINGS)))
    moves = [_moves(micros / 1e6, phases[:, axis][which], axis) for axis in range(3)]
    position, velocity, acceleration = np.stack(moves, axis=1)
    speed, push = np.linalg.norm(velocity, axis=0), np.linalg.norm(acceleration, axis=0)
    columns = [
        np.array(sensors)[which],
        KICKOFF + (micros * PICOSECONDS).astype(np.int64),
        *position,
        # Millimetres to micrometres.
        speed * 1e3,
        push * 1e3,
        *(velocity / speed * _DIRECTION),
        *(acceleration / push * _DIRECTION),
        np.arange(len(order)),
    ]
    made = [
        pa.array(values.astype(field.type.to_pandas_dtype()))
        for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.table(made, schema=SCHEMA)


def arriving(events: pa.Table, profile: Profile, seed: int = 1) -> pa.Table:
    """Return events in the order in which they arrive, with the column that says when.

    Examples
    --------
    >>> stream = arriving(football(2000), Profile("some", 2000, 250, 0.1, 0.3, ()))
    >>> disordered(stream["ts"].to_numpy())
    250
    """
    times = (events["ts"].to_numpy() - KICKOFF) // PICOSECONDS
    arrival, random = times.copy(), np.random.default_rng(seed)
    # One event of each stretch of the same length: behind the two that follow it at least, so that
    # those which are drawn come behind one that is not.
    count = profile.disordered - sum(one.events for one in profile.peaks)
    length = (len(times) - 3) / count
    drawn = (np.arange(count) * length).astype(np.int64) + random.integers(0, int(length), count)
    late = random.uniform(profile.least * 1e3, profile.most * 1e3, count).astype(np.int64)
    arrival[drawn] += np.maximum(late, times[drawn + 2] - times[drawn] + 1)
    for peak in profile.peaks:
        first = int(peak.at * len(times))
        # The stream goes on for a while after its late events have come.
        room = int(0.8 * (times[-1] - times[first]))
        arrival[first : first + peak.events] = times[first : first + peak.events] + min(
            int(peak.late * 1e3), room
        )
    order = np.lexsort([times, arrival])
    return events.take(pa.array(order)).append_column(ARRIVED, pa.array(arrival[order]))


def disordered(times: Integers) -> int:
    """Return how many events come behind one with a later time.

    Examples
    --------
    >>> disordered(np.array([1, 3, 2, 2, 4]))
    2
    """
    return int((np.maximum.accumulate(times) > times).sum())


def _moves(seconds: Floats, phases: Floats, axis: int) -> Floats:
    """Return a coordinate of each event, its velocity and its acceleration: rows of a matrix."""
    found = np.zeros((3, len(seconds)))
    found[0] = _MIDDLE[axis]
    for wave, (swings, part) in enumerate(zip(_SWINGS, _PARTS, strict=True)):
        turn, size = 2 * np.pi * swings, _REACH[axis] * part
        angle = turn * seconds + phases[:, wave]
        sine, cosine = np.sin(angle), np.cos(angle)
        found += size * np.stack([sine, turn * cosine, -turn * turn * sine])
    return found
