"""A graph of operators, as a value: which queries read which sources and which other queries.

A cycle, an unknown input, two nodes of one name and a query that cannot be an operator of a graph
are refused when the graph is made; unknown columns, when the columns of its sources are known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.recover.arrivals import is_put_in_order, retained_schema
from outpace.engine.recover.graph_operator import CountedOperator
from outpace.errors import BindError, OutpaceError, UnsupportedError, did_you_mean
from outpace.hosts.graph.placement import Placement, place
from outpace.hosts.local.open import check_stream
from outpace.ingest.source import SEQUENCE, Source
from outpace.pattern.argument import (
    a_number,
    a_path,
    a_text,
    a_whole_number,
    listed,
    shown,
    some_names,
)
from outpace.pattern.bind.disorder import BoundDisorder, bind_disorder, disorder_text
from outpace.pattern.disorder import AdaptiveSlack, Disorder, InOrder, Invalid, KSlack, Late
from outpace.pattern.node import Node
from outpace.pattern.notation.print_query import print_identity
from outpace.pattern.query import Query
from outpace.pattern.types import is_instant, is_integer, value_type

if TYPE_CHECKING:
    from outpace.hosts.graph.graph_run import GraphRun

#: How many events are on their way over a link at most, before who sends them waits.
QUEUE_EVENTS: Final = 1 << 16
#: How long an operator may be silent before it counts as stuck.
PATIENCE_S: Final = 30.0

#: What the names of the processes of sinks begin with, before that of the operator.
SINK_OF: Final = "sink of "

#: What takes matches: a function, or the folder of an event log.
Sink: TypeAlias = "Callable[[pa.Table], None] | str | os.PathLike[str]"


@dataclass(frozen=True)
class Graph:
    """A graph of operators; see `outpace.graph`.

    Parameters
    ----------
    sources
        The sources.
    nodes
        The operators by their names.
    sinks
        What takes the matches of operators, by their names; None: the run gives them.
    queue_events, patience_s
        See `outpace.graph`.
    placement
        Which operators run on which machines.

    Examples
    --------
    >>> import outpace as op
    >>> rise = op.Query("rise").order_by("ts").pattern("A B").define(B="x > A.x")
    >>> ticks = op.sources.simple_events(10)
    >>> built = op.graph(ticks, {"rise": rise, "again": rise.of("rise")})
    >>> built.inputs("again"), built.readers("rise"), built.order
    (('rise',), ('again',), ('rise', 'again'))
    """

    sources: tuple[Source, ...]
    nodes: Mapping[str, Node]
    sinks: Mapping[str, Sink | None]
    queue_events: int = QUEUE_EVENTS
    patience_s: float = PATIENCE_S
    placement: Placement = field(default_factory=Placement)

    def __repr__(self) -> str:
        names = ", ".join(self.nodes)
        return f"graph of {names} over {', '.join(one.id for one in self.sources)}"

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of what an operator reads.

        Parameters
        ----------
        name
            The operator.
        """
        return self.nodes[name].inputs or tuple(one.id for one in self.sources)

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the names of the operators that read a source or an operator.

        Parameters
        ----------
        name
            The source or the operator.
        """
        return tuple(one for one in self.nodes if name in self.inputs(one))

    def run(self, folder: str | os.PathLike[str] | None = None) -> GraphRun:
        """Start the operators, each in a process of its own, and return what comes out.

        A graph on several machines is run so on the first, and served on the others.

        Parameters
        ----------
        folder
            For the newest savepoints: a run that is lost as a whole goes on when the graph is run
            again with it. Logs of sinks then have each match once; matches that come out here may
            come again.

        Returns
        -------
        GraphRun
            An iterator of pairs of an operator's name and a table of its matches, in order. As a
            context manager it ends all processes on leaving.
        """
        from outpace.hosts.graph.graph_run import GraphRun

        return GraphRun(self, folder)

    def serve(self, machine: str) -> None:
        """Run the operators of a machine beside the first, until the run has ended.

        A machine that is lost goes on when it is served again, and one whose first machine is lost
        waits for that to run again.

        Parameters
        ----------
        machine
            Its name.
        """
        from outpace.hosts.graph.served_machine import ServedMachine

        ServedMachine(self, machine).work()

    def identity(self, *, placed: bool = False) -> str:
        """Return what tells the graph from others.

        Parameters
        ----------
        placed
            Whether its operators run on the same machines, too.
        """
        lines = [f"source {one.id} {one.time}" for one in self.sources]
        lines += [
            f"operator {name} of {self.inputs(name)}: {print_identity(node.query)}"
            for name, node in self.nodes.items()
        ]
        logs = (name for name, one in self.sinks.items() if one and not callable(one))
        lines += [f"log of {name}" for name in logs]
        if placed:
            lines += [f"machine {name} at {one}" for name, one in self.placement.machines.items()]
            lines += [f"{name} on {one}" for name, one in self.placement.places.items()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    @property
    def order(self) -> tuple[str, ...]:
        """The names of the operators, each behind those that it reads."""
        wanted = {name: self.inputs(name) for name in self.nodes}
        return tuple(one for one in TopologicalSorter(wanted).static_order() if one in self.nodes)

    def waits_safely(self, name: str) -> bool:
        """Say whether an operator may let its inputs wait for each other.

        Events of an input that waits for another one keep what feeds it waiting. Where that feeds
        the other one, too, whatever the way, nobody would ever go on.

        Parameters
        ----------
        name
            The operator.
        """
        # Sources that wait for each other already: each group is apart from the others.
        groups = [{one.id} for one in self.sources]
        for other in self.nodes.keys() - self._reached_from(name):
            fed = self._fed_by(other)
            apart = [one for one in groups if not one & fed]
            groups = [*apart, set().union(*(one for one in groups if one & fed))]
        feeding = [self._fed_by(given) for given in self.inputs(name)]
        return all(sum(bool(one & fed) for fed in feeding) <= 1 for one in groups)

    def _fed_by(self, name: str) -> set[str]:
        """Return the sources that feed a node."""
        if name not in self.nodes:
            return {name}
        return {one for given in self.inputs(name) for one in self._fed_by(given)}

    def followers(self, name: str) -> frozenset[str]:
        """Return the operators that the matches of one come to, whatever the way.

        Parameters
        ----------
        name
            The operator.
        """
        return frozenset(self._reached_from(name) - {name})

    def _reached_from(self, name: str) -> set[str]:
        return {name}.union(*(self._reached_from(one) for one in self.readers(name)))


def graph(
    sources: Source | Sequence[Source],
    operators: Mapping[str, Query | Node] | Iterable[tuple[str, Query | Node]],
    sinks: Mapping[str, Sink] | Sequence[str] | None = None,
    *,
    queue_events: int = QUEUE_EVENTS,
    patience_s: float = PATIENCE_S,
    machines: Mapping[str, str] | None = None,
    places: Mapping[str, str] | None = None,
    keys: str | os.PathLike[str] | None = None,
) -> Graph:
    """Put operators together: the matches of one are the events of others.

    Each operator runs in a process of its own. One that is lost, or stuck, is started again and
    rebuilt from what those before it retained, while the others go on; what comes out is the same,
    row for row.

    Parameters
    ----------
    sources
        Where events come from.
    operators
        The queries by their names. A query reads all sources, or what `Query.of` names: sources by
        their identifiers, operators by their names. Events of several inputs are put in the order
        of the query: by time, sequence number (of a source with a column `seq`; else events are
        counted) and name. Events out of order are, too, with a `Query.disorder` that goes by events
        alone: `KSlack`, `MPKSlack`, `Quantile`, `AQKSlack` or `LDOP`.
    sinks
        The operators whose matches come out, beside those that no other reads: their names, or
        what takes the matches of each, a function that is called with tables here, or a folder for
        an event log.
    queue_events
        How many events are on their way between two operators at most; then the earlier one waits.
    patience_s
        For how many seconds an operator may be silent before it is started again; its start may
        take a minute.
    machines
        The machines by their names, each with an address `tcp://host:port`; it takes that port and
        those behind it, one for each of its operators. The first one has the sources, the sinks and
        the monitor, and takes two ports more: there the graph is run, and on the others served
        (`Graph.serve`). None: all is on this machine.
    places
        The machines of operators, by name; the others run on the first.
    keys
        The file with the keys of the graph, see `outpace graph keys`. Without one, only addresses
        that no other machine can reach are taken.

    Examples
    --------
    >>> import outpace as op
    >>> falls = (op.Query("falls").order_by("ts").pattern("A B").define(B="close < A.close")
    ...          .measures(at="B.ts", low="B.close"))
    >>> lower = (op.Query("lower").order_by("at").pattern("A B").define(B="low < A.low")
    ...          .measures(at="B.at"))
    >>> ticks = op.sources.stock_events(100)
    >>> graph(ticks, {"falls": falls, "alarm": lower.of("falls")})
    graph of falls, alarm over stock
    """
    given = (sources,) if isinstance(sources, Source) else listed(sources)
    if not given or not all(isinstance(one, Source) for one in given):
        raise BindError("sources are expected to run on", hint="see outpace.sources")
    nodes: dict[str, Node] = {}
    pairs = operators.items() if isinstance(operators, Mapping) else listed(operators) or ()
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BindError(
                f"an operator is a name and a query, not {shown(pair)}",
                hint='write {"falls": query}',
            )
        name = a_text(pair[0], "the name of an operator", hint='write {"falls": query}')
        if not name or name.startswith(SINK_OF):
            raise BindError(
                f"no operator is named '{name}'",
                detail=f"what begins with '{SINK_OF}' is the process of a sink" if name else None,
                hint="give the operator another name",
            )
        if name in nodes:
            raise BindError(f"two operators are named '{name}'", hint="give each a name of its own")
        nodes[name] = pair[1] if isinstance(pair[1], Node) else Node(pair[1])
    if not nodes:
        raise BindError("a graph has one operator at least", hint='write {"falls": query}')
    names: set[str] = set()
    for source in given:
        if source.id in names or source.id in nodes:
            other = "a source" if source.id in names else "an operator"
            raise BindError(
                f"a source and {other} are named '{source.id}'", hint="give each its own name"
            )
        names.add(source.id)
    result = Graph(
        tuple(given),
        nodes,
        {},
        a_whole_number(queue_events, "queue_events", least=1),
        a_number(patience_s, "patience_s", above=0),
    )
    _check_inputs(result)
    for name, node in nodes.items():
        with naming_operator(name):
            _check_query(node.query)
    placed = place(nodes, machines, places, keys)
    return replace(result, sinks=_sinks(result, sinks), placement=placed)


@contextmanager
def naming_operator(name: str) -> Iterator[None]:
    """Let errors say which operator they are of."""
    try:
        yield
    except OutpaceError as error:
        place = f"operator '{name}'"
        error.where = place if error.where is None else f"{place}: {error.where}"
        raise


def _check_inputs(graph: Graph) -> None:
    known = [*(one.id for one in graph.sources), *graph.nodes]
    for name, node in graph.nodes.items():
        for given in node.inputs:
            if given not in known:
                raise BindError(
                    f"operator '{name}' reads '{given}', which is neither a source nor an operator",
                    hint=did_you_mean(given, known) or f"there are {', '.join(known)}",
                )
    try:
        _ = graph.order
    except CycleError as error:
        round_trip = " -> ".join(error.args[1])
        raise BindError(
            "the graph has a cycle, so that an operator would wait for itself",
            detail=round_trip,
            hint="let no operator read what comes of its own matches",
        ) from None
    for source in graph.sources:
        if not graph.readers(source.id):
            raise BindError(
                f"no operator reads source '{source.id}'",
                hint="leave it out, or name it in of(...)",
            )


def _check_query(query: Query) -> None:
    check_stream(query, None, timeouts=False)
    if query.join is not None:
        raise UnsupportedError(
            "an operator of a graph matches a pattern", hint="run the join by itself"
        )
    if (disorder := query.order_of_arrival) is not None:
        _check_disorder(disorder)
    if query.instance_count > 1:
        raise UnsupportedError(
            "an operator of a graph is one process",
            hint="leave instances out, or divide the query into several operators",
        )


def _check_disorder(disorder: Disorder) -> None:
    """Refuse disorder of which a replay would decide otherwise, or of which nobody would hear."""
    by_events = isinstance(disorder, InOrder | KSlack | AdaptiveSlack)
    if not by_events or disorder.clocked or disorder.patience is not None:
        raise UnsupportedError(
            "an operator of a graph puts events in order by nothing but events, so that it does "
            "the same when it is rebuilt",
            detail=disorder_text(disorder),
            hint="use op.KSlack, op.MPKSlack, op.Quantile, op.AQKSlack or op.LDOP, and no patience",
        )
    if disorder.late is not Late.DROP or disorder.invalid is not Invalid.FAIL:
        raise UnsupportedError(
            "an operator of a graph drops late events, and nobody takes what it sets aside",
            hint="leave late and invalid out",
        )


def _sinks(
    graph: Graph, sinks: Mapping[str, Sink] | Sequence[str] | None
) -> dict[str, Sink | None]:
    chosen: dict[str, Sink | None] = {}
    items: Iterable[tuple[object, Sink | None]]
    if isinstance(sinks, Mapping):
        items = sinks.items()
    else:
        names = () if sinks is None else some_names(sinks, "sinks", hint='write ["alarm"]')
        items = ((one, None) for one in names)
    for name, sink in items:
        if not isinstance(name, str) or name not in graph.nodes:
            raise BindError(
                f"there is no operator {shown(name)} whose matches could come out",
                hint=did_you_mean(str(name), graph.nodes) or f"there are {', '.join(graph.nodes)}",
            )
        if sink is not None and not callable(sink):
            a_path(sink, f"the sink of '{name}'")
        chosen[name] = sink
    last = {name: None for name in graph.nodes if not graph.readers(name)}
    return last | chosen


@dataclass(frozen=True)
class BoundNode:
    """An operator whose columns are known.

    Parameters
    ----------
    name, spec
        The operator.
    inputs
        The names of what it reads.
    schema
        The columns of the events that it takes: those that go over each link.
    waits
        Whether inputs that are ahead are kept waiting.
    """

    name: str
    spec: OperatorSpec
    inputs: tuple[str, ...]
    schema: pa.Schema
    waits: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it takes."""
        return tuple(self.schema.names)

    def source(self, name: str) -> str | None:
        """Return what the operator knows an input by; None where it is the only one."""
        return None if self.spec.sources is None else name


def bind(graph: Graph, schemas: Mapping[str, pa.Schema]) -> dict[str, BoundNode]:
    """Return the operators for the columns of sources, each behind those that it reads.

    A source without events has no columns, and what reads nothing else has no events either: such
    operators are left out.
    """
    known, bound = dict(schemas), dict[str, BoundNode]()
    for name in graph.order:
        inputs = [one for one in graph.inputs(name) if one in known]
        if not inputs:
            continue
        with naming_operator(name):
            schema = _common([known[one] for one in inputs])
            if not schema.names:
                raise BindError(
                    f"{' and '.join(inputs)} have no column of one name and type in common",
                    hint="read one of them, or give their measures the same names",
                )
            spec = _spec(graph, bound, name, inputs, schema)
            CountedOperator(spec)  # refuses what cannot be rebuilt
        kept = spec.schema if is_put_in_order(spec) else retained_schema(spec)
        waits = graph.waits_safely(name)
        bound[name] = BoundNode(name, spec, tuple(inputs), kept, waits)
        known[name] = spec.bound.output
    return bound


def _spec(
    graph: Graph,
    bound: Mapping[str, BoundNode],
    name: str,
    inputs: Sequence[str],
    schema: pa.Schema,
) -> OperatorSpec:
    """Return what an operator is made from: several inputs are the sources of its front."""
    query = graph.nodes[name].query
    plain = OperatorSpec(query, schema)
    merges = any(len(graph.inputs(one)) > 1 for one in graph.readers(name))
    if len(inputs) == 1 and query.order_of_arrival is None:
        return replace(plain, event_driven=merges)
    disorder = None if query.order_of_arrival is None else bind_disorder(query, schema)
    times = {one.id: one.time for one in graph.sources}
    wanted, sequence = {*retained_schema(plain).names}, None
    if len(inputs) > 1:
        _check_order(graph, bound, inputs, times, plain, disorder)
        if all(one in times for one in inputs):
            sequence = SEQUENCE
            wanted.add(SEQUENCE)
    wanted.update(() if disorder is None else disorder.columns)
    return OperatorSpec(
        query,
        pa.schema([field for field in schema if field.name in wanted]),
        disorder=disorder,
        sources=tuple(inputs) if len(inputs) > 1 else None,
        event_driven=True,
        sequence=sequence,
    )


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns that all have, of one type."""
    first, *others = schemas
    return pa.schema(
        [
            field.remove_metadata()
            for field in first
            if all(
                one.get_field_index(field.name) >= 0 and one.field(field.name).type == field.type
                for one in others
            )
        ]
    )


def _check_order(
    graph: Graph,
    bound: Mapping[str, BoundNode],
    inputs: Sequence[str],
    times: Mapping[str, str],
    spec: OperatorSpec,
    disorder: BoundDisorder | None,
) -> None:
    """Refuse several inputs that nobody could put in order."""
    order = spec.query.order
    if not order or order[0].descending or len(order) > 1:
        raise BindError(
            "the events of several inputs are ordered by their time",
            hint='write order_by("ts") with the one column of their times',
        )
    time = spec.bound.order_by[0]
    kind = value_type(spec.schema.field(time).type)
    if not (is_instant(kind) or is_integer(kind)):
        raise BindError(
            f"'{time}' is {kind}, and the events of several inputs are ordered by their time",
            hint="order by timestamps, dates or integers",
        )
    for one in inputs:
        if one in times and times[one] != time:
            raise BindError(
                f"the query is ordered by '{time}', and the time of source '{one}' is another",
                detail=f"the time of the source is '{times[one]}'",
                hint=f'write order_by("{times[one]}")',
            )
        if one not in times and disorder is None and not tells_time(bound[one].spec, time):
            raise BindError(
                f"operator '{one}' does not tell how far its times have come",
                detail=f"events of {', '.join(inputs)} are put in order by '{time}'",
                hint=f"give '{one}' windows or within(...), and let '{time}' be the time of an "
                "event: measures(at='LAST(ts)')",
            )


def tells_time(spec: OperatorSpec, column: str) -> bool:
    """Say whether it is known how far the times in a column of the matches have come."""
    bounded = spec.reach is not None or spec.windows is not None
    return bounded and bool(spec.bound.order_by) and spec.shows_time_in(column)
