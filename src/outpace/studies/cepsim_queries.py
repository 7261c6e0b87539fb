"""The two queries of the CEPSim paper (section 6.1, figures 9 and 10), as values for the simulator.

The paper shows the cost of each vertex in an image (figure 10). The example programs that were
published with the simulator have the costs as numbers, and these are taken here. They agree with
the text:

- q1 with 10 000 events a second takes 10.08 s, and the author's thesis has 10.08 s for it in the
  same table as table 5 here (W. A. Higashino, Complex Event Processing as a Service in Multi-Cloud
  Environments, 2016, table 6.5);
- DBConsumer takes 4.5 ms for an event (section 6.4.3), which is 10.8 million instructions on the
  2400 MIPS of table 4, and 11.25 million on the 2500 MIPS of all others; the programs have 10.8 and
  11 million.

A machine of the authors is one physical processor (section 6.3; they model it as two that are no
faster together, of which a query is given one). A machine of Amazon EC2 has two, and each operator
runs on one of them at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outpace.simulate import (
    VM,
    ConstantOutput,
    Consumer,
    Edge,
    OperatorModel,
    Producer,
    QueryModel,
    Uniform,
    WindowedOperator,
)

#: Readings of one sensor in a second, and the part of them that is not an anomaly.
READINGS_PER_SECOND: Final = 10
NORMAL: Final = 0.95

#: Table 3: Storm's buffers of 1024 elements before and after each operator.
QUEUE: Final = 2048

#: What it costs to take an event in, and to count one at the end.
_ENDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AverageCosts:
    """What an event costs the operators of q1, in instructions."""

    outlier: float
    average: float
    database: float


#: On the authors' own machines, and on those of Amazon EC2 (table 4).
OWN_COSTS: Final = AverageCosts(outlier=18_000, average=18_000, database=11_000_000)
CLOUD_COSTS: Final = AverageCosts(outlier=12_500, average=10_500, database=10_800_000)


def worker(name: str = "worker") -> VM:
    """Return one of the authors' machines (table 3).

    Examples
    --------
    >>> worker().capacity
    2500
    """
    return VM(name, mips=2500)


def cloud_worker(name: str = "worker") -> VM:
    """Return a machine of Amazon EC2 (table 4).

    Examples
    --------
    >>> cloud_worker().capacity
    4800
    """
    return VM(name, mips=2400, processors=2)


def average_query(sensors: int, costs: AverageCosts = OWN_COSTS) -> QueryModel:
    """Return q1: readings without anomalies, their average over 15 s by sensor, to a database.

    Examples
    --------
    >>> [vertex.id for vertex in average_query(100).vertices]
    ['spout', 'outlier', 'average', 'database', 'consumer']
    """
    return QueryModel(
        "q1",
        (
            Producer("spout", Uniform(sensors * READINGS_PER_SECOND), instructions=_ENDS),
            OperatorModel("outlier", instructions=costs.outlier),
            WindowedOperator(
                "average",
                instructions=costs.average,
                window=15.0,
                combination=ConstantOutput(sensors),
            ),
            OperatorModel("database", instructions=costs.database),
            Consumer("consumer", instructions=_ENDS),
        ),
        (
            Edge("spout", "outlier"),
            Edge("outlier", "average", NORMAL),
            Edge("average", "database"),
            Edge("database", "consumer"),
        ),
    )


def convert_query(sensors: int) -> QueryModel:
    """Return q2: readings parsed from JSON, validated, and written as XML.

    Examples
    --------
    >>> [vertex.id for vertex in convert_query(100).vertices]
    ['spout', 'parser', 'validate', 'xml', 'measurer', 'consumer']
    """
    return QueryModel(
        "q2",
        (
            Producer("spout", Uniform(sensors * READINGS_PER_SECOND), instructions=_ENDS),
            OperatorModel("parser", instructions=41_250),
            OperatorModel("validate", instructions=25_000),
            OperatorModel("xml", instructions=31_250),
            OperatorModel("measurer", instructions=17_000),
            Consumer("consumer", instructions=_ENDS),
        ),
        (
            Edge("spout", "parser"),
            Edge("parser", "validate"),
            Edge("validate", "xml", NORMAL),
            Edge("xml", "measurer"),
            Edge("measurer", "consumer"),
        ),
    )
