"""The figures of the study `cepsim`: what the paper did and found, and what is done here.

What stands here of the paper is what its text says in words and numbers; numbers that only a curve
or a table in an image shows are not read off it, and count as not given. The numbers of table 5 are
those that the author's thesis has in the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outpace.studies.report import Figure, PlotKind

SOURCE: Final = (
    "After W. A. Higashino, M. A. M. Capretz and L. F. Bittencourt: CEPSim: Modelling and "
    "simulation of Complex Event Processing systems in cloud environments, Future Generation "
    "Computer Systems, 2016. Its queries q1 (averages of sensor readings, written to a database) "
    "and q2 (JSON to XML) run on Apache Storm and on CEPSim. Here they run on Outpace's simulator. "
    "The paper gives the costs of their operators in an image; the costs here are those of the "
    "example programs that were published with CEPSim. A VM of the authors has one physical "
    "processor, and so it is here; those of Amazon EC2 have two, of which an operator uses one."
)

_VALIDATION: Final = (
    "A processor of 2500 MIPS, queues of 2048 events, a producer discards what does not fit. The "
    "first third of a run is not counted."
)

Q1_LATENCY: Final = Figure(
    name="11a",
    title="latency of q1 by rate",
    axis="input (events/s)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="The simulated latency is within 1 % of Storm's up to 1,000 events/s and within 7.5 % up "
    "to 20,000. At 22,500 Storm is overloaded and slower than simulated.",
    here=_VALIDATION,
)

Q1_THROUGHPUT: Final = Figure(
    name="11b",
    title="throughput of q1 by rate",
    axis="input (events/s)",
    quantity="throughput",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="Almost no error up to 20,000 events/s; the highest throughput is around 21,000.",
    here=_VALIDATION
    + " With the published costs the processor is full at 22,800 events/s. From 20,480 on a "
    "window has more results than the queue of the database operator has room for. The window "
    "keeps the rest, and takes nothing in until they are gone, so that the queues before it fill.",
)

Q2_LATENCY: Final = Figure(
    name="12a",
    title="latency of q2 by rate",
    axis="input (events/s)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="Measured values span five orders of magnitude. From 100 events/s up to the overload at "
    "22,500 the simulated latency is close to Storm's; after it the simulated one stays level, "
    "as queues are bounded and events are discarded.",
    here=_VALIDATION,
    log=True,
)

Q2_THROUGHPUT: Final = Figure(
    name="12b",
    title="throughput of q2 by rate",
    axis="input (events/s)",
    quantity="throughput",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="The throughput has very small errors; the highest is approximately 21,000 events/s.",
    here=_VALIDATION + " With the published costs the processor is full at 21,900 events/s.",
)

_NETWORKED: Final = (
    "The database operator on a second VM, 1 ms between the two, ticks of 10 ms. " + _VALIDATION
)

NETWORKED_LATENCY: Final = Figure(
    name="13a",
    title="latency of q1 on two VMs by rate",
    axis="input (events/s)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="Within 7 % of Storm's up to 27,500 events/s; at 30,000 Storm begins to overload.",
    here=_NETWORKED,
)

NETWORKED_THROUGHPUT: Final = Figure(
    name="13b",
    title="throughput of q1 on two VMs by rate",
    axis="input (events/s)",
    quantity="throughput",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="No error in the whole experiment.",
    here=_NETWORKED + " As in figure 11, a window keeps the results that the queue of the database "
    "operator has no room for, which bounds the throughput.",
)

PLACEMENTS: Final = Figure(
    name="Table 4",
    title="average latency of four copies of q1, by placement",
    axis="placement",
    quantity="latency",
    unit="ms",
    kind=PlotKind.BARS,
    said="1: all on one VM; 2: two on each of two VMs; 3: the four database operators on one VM, "
    "the rest on another; 4: each on a VM of its own. 10,000 events/s for each query, on Amazon "
    "EC2, with a database operator that computes for 4.5 ms. Two queries on a VM are hardly slower "
    "than one; four can overload it. The throughput is right, 10,000 events/s, in all four.",
    here="The same placements on VMs of two processors of 2400 MIPS, with the costs that the "
    "published programs have for them: 10.8 million instructions, which are the 4.5 ms, for a "
    "database write. Each operator has one processor at a time. Two queries on a VM write at the "
    "same time, each on a processor; four use 80 % of it, and wait for each other's writes. "
    "Placement 3 has ticks of 10 ms, as it has a network. "
    "The throughput is in the table of numbers.",
)

TIME_ONE: Final = Figure(
    name="14a",
    title="time to simulate n copies of q2 on one VM",
    axis="queries",
    quantity="time to simulate",
    unit="s",
    kind=PlotKind.STEPS,
    said="5 simulated minutes, 100 events/s for each query: approximately 7 s for 100 queries, "
    "growing less than in proportion, on a Xeon E5-2630.",
    here="The same setting, in a process that has simulated one query before.",
    log=True,
)

MEMORY_ONE: Final = Figure(
    name="14b",
    title="memory to simulate n copies of q2 on one VM",
    axis="queries",
    quantity="memory",
    unit="MB",
    kind=PlotKind.STEPS,
    said="Less than 40 MB for 100 queries.",
    here="By how much the simulation raises the peak of the memory that the process takes.",
)

TIME_MANY: Final = Figure(
    name="15a",
    title="time to simulate copies of q2 on many VMs",
    axis="queries",
    quantity="time to simulate",
    unit="s",
    kind=PlotKind.STEPS,
    said="10 or 100 queries on each VM, 5 simulated minutes; approximately 7 minutes for 10,000 "
    "queries, whichever way they are placed.",
    here="The same setting, in a process that has simulated one query before.",
    log=True,
)

MEMORY_MANY: Final = Figure(
    name="15b",
    title="memory to simulate copies of q2 on many VMs",
    axis="queries",
    quantity="memory",
    unit="MB",
    kind=PlotKind.STEPS,
    said="Less than 1 GB for 10,000 queries.",
    here="By how much the simulation raises the peak of the memory that the process takes.",
)

_STRATEGIES: Final = (
    "q1 on one VM, with simple (the paper: default) and dynamic scheduling, and uniform and "
    "weighted allocation."
)

STRATEGY_LATENCY: Final = Figure(
    name="16a",
    title="latency of q1 by scheduling and allocation",
    axis="input (events/s)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="Simple scheduling gives too long a latency at high rates, more so with weighted "
    "allocation; dynamic scheduling comes close to Storm, but weighted allocation makes it too "
    "fast at 10,000 events/s.",
    here=_STRATEGIES + " With simple and uniform, at 10,000 events/s, the database operator gets "
    "more than it can write, and its latency grows for as long as the run lasts; with simple and "
    "weighted almost all readings are discarded before they come to it.",
)

STRATEGY_THROUGHPUT: Final = Figure(
    name="16b",
    title="throughput of q1 by scheduling and allocation",
    axis="input (events/s)",
    quantity="throughput",
    unit="events/s",
    kind=PlotKind.STEPS,
    said="Simple scheduling gives much too low a throughput at high rates: the database operator "
    "is given instructions in every tick and needs them only after a window.",
    here=_STRATEGIES,
)

TICK_LATENCY: Final = Figure(
    name="Table 5",
    title="latency of q1 by length of a tick",
    axis="tick (ms)",
    quantity="latency",
    unit="ms",
    kind=PlotKind.STEPS,
    said="A longer tick is less exact, above all with a network: what is sent to a VM that has had "
    "its turn waits for the next tick.",
    here="q1 with 10,000 events/s, on one VM and, as in figure 13, on two. The paper does not give "
    "the rate here; at this one the latencies are those of its table.",
)

TICK_TIME: Final = Figure(
    name="Table 5, time",
    title="time to simulate copies of q1 for 5 minutes, by length of a tick",
    axis="tick (ms)",
    quantity="time to simulate",
    unit="s",
    kind=PlotKind.STEPS,
    said="A longer tick is simulated in much less time (100 copies, the average of 10 runs).",
    here="The median of three runs; each copy has VMs of its own.",
    log=True,
)

FIGURES: Final = (
    Q1_LATENCY,
    Q1_THROUGHPUT,
    Q2_LATENCY,
    Q2_THROUGHPUT,
    NETWORKED_LATENCY,
    NETWORKED_THROUGHPUT,
    PLACEMENTS,
    TIME_ONE,
    MEMORY_ONE,
    TIME_MANY,
    MEMORY_MANY,
    STRATEGY_LATENCY,
    STRATEGY_THROUGHPUT,
    TICK_LATENCY,
    TICK_TIME,
)

#: What table 5 covers: the number of queries that are timed, and their simulated time.
TICK_QUERIES: Final = 100
TICK_SECONDS: Final = 300.0

#: Table 5, as the thesis has it (table 6.5), by where q1 runs and the length of a tick in ms: the
#: latency in ms, and the time to simulate the copies in s.
TICKS: Final[Mapping[tuple[str, int], tuple[float, float]]] = {
    ("one VM", 10): (10_078.43, 63.40043),
    ("one VM", 100): (10_140.53, 9.64523),
    ("one VM", 1000): (10_415.02, 2.81164),
    ("two VMs", 10): (9_730.00, 66.38591),
    ("two VMs", 100): (9_865.01, 10.05858),
    ("two VMs", 1000): (12_636.47, 3.10690),
}
