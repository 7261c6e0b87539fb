"""The value of a graph: what is refused, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.graphs import WINDOWS, chain, diamond, pairs, values

import outpace as op
from outpace.hosts.graph.graph import bind
from outpace.pattern.disorder import Disorder
from outpace.pattern.node import Node
from outpace.pattern.query import Query

EVENTS = op.sources.simple_events(10, id="events")
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.string(), "key": pa.int64(), "v": pa.int64()})


def refused(*operators: tuple[str, Query | Node], sinks: object = None) -> str:
    with pytest.raises(op.BindError) as caught:
        op.graph(EVENTS, operators, sinks)  # type: ignore[arg-type]  # also what is no graph
    return str(caught.value)


def test_a_cycle_is_refused_and_shown() -> None:
    one, two = values(None).of("two"), values(None).of("one")
    told = refused(("first", pairs("a", "b", None)), ("one", one), ("two", two))
    assert "the graph has a cycle" in told
    assert "one -> two -> one" in told or "two -> one -> two" in told


def test_an_unknown_input_is_refused_with_the_name_that_was_meant() -> None:
    told = refused(("falls", pairs("a", "b", None)), ("alarm", values(None).of("fals")))
    assert "operator 'alarm' reads 'fals', which is neither a source nor an operator" in told
    assert "falls" in told.split("hint")[1]


def test_two_operators_of_one_name_are_refused() -> None:
    told = refused(("falls", pairs("a", "b", None)), ("falls", values(None)))
    assert "two operators are named 'falls'" in told


def test_an_operator_and_a_source_of_one_name_are_refused() -> None:
    assert "are named 'events'" in refused(("events", pairs("a", "b", None)))


@pytest.mark.parametrize("name", ["", "sink of falls"])
def test_an_operator_that_would_be_taken_for_a_sink_is_refused(name: str) -> None:
    told = refused(("falls", pairs("a", "b", None)), (name, values(None).of("falls")))
    assert f"no operator is named '{name}'" in told


def test_a_source_that_nobody_reads_is_refused() -> None:
    other = op.sources.simple_events(10, id="other")
    with pytest.raises(op.BindError, match="no operator reads source 'other'"):
        op.graph([EVENTS, other], {"falls": pairs("a", "b", None).of("events")})


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        (["alarm"], "there is no operator 'alarm'"),
        ("falls", "sinks is a list of names"),
        ({"falls": 3}, "the sink of 'falls'"),
    ],
)
def test_sinks_that_do_not_fit_are_refused(sinks: object, message: str) -> None:
    assert message in refused(("falls", pairs("a", "b", None)), sinks=sinks)


@pytest.mark.parametrize(
    ("disorder", "message"),
    [
        (op.Punctuation(), "by nothing but events"),
        (op.Sequence("1 s"), "by nothing but events"),
        (op.KSlack(3, patience="1 s"), "by nothing but events"),
        (op.Speculative(3), "by nothing but events"),
        (op.KSlack(3, late="side"), "drops late events"),
        (op.KSlack(3, invalid="quarantine"), "drops late events"),
    ],
)
def test_disorder_that_a_replay_would_decide_otherwise_is_refused_by_name(
    disorder: Disorder, message: str
) -> None:
    told = refused(("falls", pairs("a", "b", None).disorder(disorder)))
    assert message in told
    assert "operator 'falls'" in told


def test_several_inputs_are_the_sources_of_the_front() -> None:
    bound = bind(op.graph(EVENTS, diamond(WINDOWS["count"])), {"events": SCHEMA})
    assert bound["join"].spec.sources == ("right", "left")
    assert (bound["join"].source("left"), bound["left"].source("events")) == ("left", None)
    # Its matches may have a column `seq` that does not rise.
    assert bound["join"].spec.sequence is None


def test_instances_are_refused_by_name() -> None:
    told = refused(("falls", pairs("a", "b", WINDOWS["count"]).instances(2)))
    assert "an operator of a graph is one process" in told
    assert "operator 'falls'" in told


@pytest.mark.parametrize("operators", [3, [3], {"falls": "A B"}, {3: pairs("a", "b", None)}, {}])
def test_what_is_no_operator_is_refused(operators: object) -> None:
    with pytest.raises(op.BindError):
        op.graph(EVENTS, operators)  # type: ignore[arg-type]  # also what is no graph


def test_a_query_reads_something_once() -> None:
    with pytest.raises(op.BindError, match="has a name"):
        values(None).of()
    with pytest.raises(op.BindError, match="twice"):
        values(None).of("a", "a")


def test_unknown_columns_are_refused_by_operator() -> None:
    graph = op.graph(EVENTS, chain(None))
    with pytest.raises(op.BindError) as caught:
        bind(graph, {"events": SCHEMA.remove(1)})
    assert "operator 'one'" in str(caught.value)
    wrong = values(None).measures(at="B.at", x="B.price").of("one")
    graph = op.graph(EVENTS, {"one": pairs("a", "b", None), "two": wrong})
    with pytest.raises(op.BindError, match="unknown column 'price'") as caught:
        bind(graph, {"events": SCHEMA})
    assert "operator 'two'" in str(caught.value)


def test_inputs_that_do_not_tell_their_time_are_refused() -> None:
    operators = diamond(WINDOWS["count"]) | {"left": pairs("a", "b", None).of("events")}
    with pytest.raises(op.BindError, match="operator 'left' does not tell how far"):
        bind(op.graph(EVENTS, operators), {"events": SCHEMA})


def test_inputs_that_are_ordered_by_text_are_refused() -> None:
    schema = SCHEMA.set(0, pa.field("ts", pa.string()))
    with pytest.raises(op.BindError, match="'at' is string, and the events of several") as caught:
        bind(op.graph(EVENTS, diamond(WINDOWS["count"])), {"events": schema})
    assert "operator 'join'" in str(caught.value)


def test_columns_that_inputs_have_in_common_go_over_the_links() -> None:
    bound = bind(op.graph(EVENTS, diamond(WINDOWS["count"])), {"events": SCHEMA})
    assert set(bound["left"].columns) == {"ts", "k", "v"}
    assert bound["join"].inputs == ("right", "left")
    assert set(bound["join"].columns) == {"at", "begin", "v"}


def test_an_operator_without_events_is_left_out() -> None:
    assert bind(op.graph(EVENTS, chain(None)), {}) == {}


def test_inputs_wait_for_each_other_where_nothing_feeds_both() -> None:
    east, west = (op.sources.simple_events(10, id=name) for name in ("east", "west"))
    apart = op.graph([east, west], {"both": pairs("a", "b", None)})
    assert apart.waits_safely("both")
    joined = op.graph(EVENTS, diamond(WINDOWS["count"]))
    assert not joined.waits_safely("join")
    window = WINDOWS["count"]
    crossed = op.graph(
        [east, west],
        {
            "one": pairs("a", "b", window),
            "left": pairs("a", "b", window).of("east"),
            "right": pairs("a", "b", window).of("west"),
            "join": values(window).of("left", "right"),
        },
        ["one", "join"],
    )
    # What feeds them waits for each other at another place.
    assert not crossed.waits_safely("join")


def test_a_graph_says_what_it_is(tmp_path: Path) -> None:
    graph = op.graph(EVENTS, chain(None), {"three": tmp_path / "log", "one": print})
    assert repr(graph) == "graph of one, two, three over events"
    assert graph.order == ("one", "two", "three")
    assert op.graph(EVENTS, chain(None), ["one"]).sinks == {"three": None, "one": None}
    assert graph.followers("one") == {"two", "three"}
