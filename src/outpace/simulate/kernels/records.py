"""The state of a run as arrays of records: what the compiled loops read and write.

Vertices, their queues, the machines and so on are numbered anew for the loops, so that what runs
together lies together; `number` and `place` say where a record's results belong. The queues of a
vertex follow each other in the order of its predecessors; a producer has one queue of its own. A
queue is a ring of event sets in `Stores.sets`: cardinality, timestamp, latency, spread, and the
totals of the producers that the set's source has. A set takes 8 bytes for each of these numbers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Records = NDArray[Any]
Marks = NDArray[np.uint8]


class VertexKind(IntEnum):
    """What a vertex is."""

    PRODUCER = 0
    OPERATOR = 1
    WINDOWED = 2
    CONSUMER = 3
    BATCH = 4


class Combining(IntEnum):
    """How a window combines."""

    CONSTANT = 0
    SHARE = 1
    PAIRS = 2


#: What the processor fetches at once. Records are laid out, and arrays begin, accordingly.
LINE = 64


def _record(*fields: tuple[str, str]) -> np.dtype[np.void]:
    """Return a record of whole lines."""
    names = [name for name, _ in fields]
    formats = [np.dtype(form) for _, form in fields]
    ends = np.cumsum([form.itemsize for form in formats]).tolist()
    return np.dtype(
        {
            "names": names,
            "formats": formats,
            "offsets": [0, *ends[:-1]],
            "itemsize": -(-ends[-1] // LINE) * LINE,
        }
    )


def zeros(count: int, dtype: Any) -> Records:
    """Return an array of zeros that begins with a line."""
    size = count * np.dtype(dtype).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + size].view(dtype)


#: `detail` is the number of the window, the batch or the consumer, or the row of a producer's new
#: events. The first line is what every step needs, and `delay` and `done` of the second. `free` is
#: when its last slice beside others ends, `setup` what its batches cost by themselves.
VERTEX = _record(
    ("cost", "f8"),
    ("bound", "f8"),
    ("processed", "f8"),
    ("sample_processed", "f8"),
    ("kind", "i4"),
    ("first_queue", "i4"),
    ("end_queue", "i4"),
    ("first_out", "i4"),
    ("end_out", "i4"),
    ("width", "i4"),
    ("detail", "i4"),
    ("home", "i4"),
    ("delay", "f8"),
    ("done", "f8"),
    ("dropped", "f8"),
    ("sample_dropped", "f8"),
    ("number", "i8"),
    ("free", "f8"),
    ("parallelism", "i4"),
    ("discards", "i4"),
    ("setup", "f8"),
)

#: `bound` is how many events are open to the target, `travelling` how many are on their way to it
#: from another machine, `base` where the ring begins, `mask` its length less one, `link` the way
#: that sets take (negative inside of a machine), `places` where the set's totals are among those of
#: the target.
QUEUE = np.dtype(
    [
        ("selectivity", "f8"),
        ("bound", "f8"),
        ("cardinality", "f8"),
        ("travelling", "f8"),
        ("base", "i8"),
        ("head", "i4"),
        ("count", "i4"),
        ("mask", "i4"),
        ("width", "i4"),
        ("target", "i4"),
        ("runs", "i4"),
        ("link", "i4"),
        ("places", "i4"),
    ]
)

WINDOW = np.dtype(
    [
        ("origin", "f8"),
        ("period", "f8"),
        ("uncounted_events", "f8"),
        ("value", "f8"),
        ("periods", "i8"),
        ("combining", "i8"),
        ("slots", "i8"),
        ("index", "i8"),
        ("first_slot", "i8"),
        ("first_total", "i8"),
    ]
)

#: What a batch operator is and what it works on; `event` and `setup` are what these cost,
#: `intervals` how many have been used, `owed` what the batch still needs. Totals are among those of
#: windows.
BATCH = np.dtype(
    [
        ("origin", "f8"),
        ("interval", "f8"),
        ("setup", "f8"),
        ("event", "f8"),
        ("most", "f8"),
        ("events", "f8"),
        ("timestamp", "f8"),
        ("latency", "f8"),
        ("spread", "f8"),
        ("owed", "f8"),
        ("owed_setup", "f8"),
        ("intervals", "i8"),
        ("first_total", "i8"),
    ]
)

CONSUMER = _record(
    ("events", "f8"),
    ("latency", "f8"),
    ("sample_events", "f8"),
    ("sample_delay", "f8"),
    ("sample_totals", "f8"),
    ("first_total", "i8"),
    ("place", "i8"),
)

#: `first` and `end` say which places of the placement are its own, `inbox` is the first set that
#: arrives (negative for none), `cost` is that of an event of each of its vertices together.
MACHINE = np.dtype(
    [
        ("speed", "f8"),
        ("used", "f8"),
        ("sample_used", "f8"),
        ("first", "i8"),
        ("end", "i8"),
        ("first_producer", "i8"),
        ("end_producer", "i8"),
        ("up", "i8"),
        ("inbox", "i8"),
        ("number", "i8"),
        ("processors", "i8"),
        ("dynamic", "i8"),
        ("weighted", "i8"),
        ("cost", "f8"),
    ]
)

LINK = np.dtype([("latency", "f8"), ("seconds_per_event", "f8"), ("free", "f8")])

#: A set on its way, in a heap by time of arrival and order of sending, or in the list of free ones.
FLIGHT = np.dtype(
    [
        ("time", "f8"),
        ("cardinality", "f8"),
        ("timestamp", "f8"),
        ("latency", "f8"),
        ("spread", "f8"),
        ("sent", "i8"),
        ("queue", "i8"),
        ("left", "i8"),
        ("right", "i8"),
    ]
)


class RunState(NamedTuple):
    """All records but those that grow; `outs` lists the queues that a vertex sends to.

    Parameters
    ----------
    slots
        Cardinality, timestamp and latency of each window, slot and predecessor. [n, 3]
    batches, uncounted, consumed
        Batch operators; totals of windows since their last output and of batches; of consumers.
    paths
        From each producer of a consumer, aligned with `consumed`.
    placement, producers
        The vertices that run on each machine, and the producers among them.
    new_events
        For each tick, by row.
    holds
        0 for vertices without windows and batches whose queues are empty: there is nothing to look
        at.
    """

    vertices: Records
    queues: Records
    outs: Integers
    places: Integers
    windows: Records
    slots: Floats
    batches: Records
    uncounted: Floats
    consumers: Records
    consumed: Floats
    paths: Floats
    machines: Records
    links: Records
    placement: Integers
    producers: Integers
    new_events: Integers
    holds: Marks


#: Places of `Stores.marks`: how much of the sets is used, the first free flight, how many are free,
#: how many sets were sent, whether room must be made, how many queues are full; after these their
#: numbers.
USED, FREE_FLIGHT, FREE_FLIGHTS, SENT, ROOM, FULL = range(6)


class Stores(NamedTuple):
    """What grows: rings of sets, and sets on their way with their totals.

    The first places of `sets`, as many as the greatest number of totals, are those at hand.
    """

    sets: Floats
    flights: Records
    flight_totals: Floats
    marks: Integers


class Settings(NamedTuple):
    """What is the same for all ticks."""

    tick: float
    ticks: int
    warm_up_ticks: int
    ticks_per_sample: int


class History(NamedTuple):
    """The arrays of a `Recording` that are filled while the loops run."""

    histogram: Floats
    consumer_events: Floats
    consumer_delay: Floats
    consumer_totals: Floats
    vertex_processed: Floats
    vertex_dropped: Floats
    vertex_queue: Floats
    vm_instructions: Floats
