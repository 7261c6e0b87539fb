"""The two queries of the CEPSim paper (section 6.1, figures 9 and 10), as values for the simulator.

Both must come to about 21 000 events a second on a VM with two processors of 2500 MIPS, a pool of
5000 million instructions a second; so an event may cost 238 000 instructions in all. The paper's
values for each vertex are in an image, so these here are derived:

- DBConsumer takes 4.5 ms for an event (section 6.4.3): 5000e6 · 0.0045 = 22.5 million instructions
  (equation 11). One sensor sends 150 readings in a window of 15 s, which become one event: 150 000
  instructions for each reading. On a VM of its own DBConsumer keeps up with 33 000 readings a
  second; the paper's second VM is overloaded from 30 000 on (figure 13).
- What is left for q1, 88 000, and the 238 000 of q2 are divided among the other vertices in the
  proportions of the example programs that were published with the simulator: 1 : 18 : 18 for q1's
  spout, outlier detector and average; 1 : 41 : 25 : 31 : 17 : 1 for q2 from spout to consumer.

q1 comes to 20 990 events a second, q2 to 21 050.
"""

from __future__ import annotations

from outpace.simulate import (
    VM,
    Constant,
    Consumer,
    Edge,
    Operator,
    Producer,
    Query,
    Uniform,
    WindowedOperator,
)

#: Readings of one sensor in a second, and the part of them that is not an anomaly.
READINGS_PER_SECOND = 10
NORMAL = 0.95

#: Table 3: Storm's buffers of 1024 elements before and after each operator.
QUEUE = 2048


def worker(name: str = "worker") -> VM:
    """Return one of the paper's worker machines (table 3).

    Examples
    --------
    >>> worker().capacity
    5000
    """
    return VM(name, mips=2500, processors=2)


def cloud_worker(name: str = "worker") -> VM:
    """Return one of the machines on which four queries ran at once (section 6.4.3, table 4).

    Four copies of q1 with 10 000 events a second each came through on one of them, so it has twice
    the instructions. In the paper a query runs on one of a machine's two processors, so that a
    single one has the other to spare; here both processors are one pool.

    Examples
    --------
    >>> cloud_worker().capacity
    10000
    """
    return VM(name, mips=5000, processors=2)


def average_query(sensors: int) -> Query:
    """Return q1: readings without anomalies, their average over 15 s by sensor, to a database.

    Examples
    --------
    >>> [vertex.id for vertex in average_query(100).vertices]
    ['spout', 'outlier', 'average', 'database', 'consumer']
    """
    return Query(
        "q1",
        (
            Producer("spout", Uniform(sensors * READINGS_PER_SECOND), instructions=2_400),
            Operator("outlier", instructions=44_000),
            WindowedOperator(
                "average", instructions=44_000, window=15.0, combination=Constant(sensors)
            ),
            Operator("database", instructions=22_500_000),
            Consumer("consumer", instructions=2_400),
        ),
        (
            Edge("spout", "outlier"),
            Edge("outlier", "average", NORMAL),
            Edge("average", "database"),
            Edge("database", "consumer"),
        ),
    )


def convert_query(sensors: int) -> Query:
    """Return q2: readings parsed from JSON, validated, and written as XML.

    Examples
    --------
    >>> [vertex.id for vertex in convert_query(100).vertices]
    ['spout', 'parser', 'validate', 'xml', 'measurer', 'consumer']
    """
    return Query(
        "q2",
        (
            Producer("spout", Uniform(sensors * READINGS_PER_SECOND), instructions=2_100),
            Operator("parser", instructions=86_000),
            Operator("validate", instructions=52_000),
            Operator("xml", instructions=65_000),
            Operator("measurer", instructions=35_500),
            Consumer("consumer", instructions=2_000),
        ),
        (
            Edge("spout", "parser"),
            Edge("parser", "validate"),
            Edge("validate", "xml", NORMAL),
            Edge("xml", "measurer"),
            Edge("measurer", "consumer"),
        ),
    )
