"""Scenarios as TOML: what is written is read again, and what is wrong is shown with its line."""

from __future__ import annotations

import math
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.simulated import chain, scenarios

from outpace.errors import ScenarioError
from outpace.simulate import (
    VM,
    Bandwidth,
    Bursty,
    Cloud,
    ConstantDelay,
    Consumer,
    Datacentre,
    FirstFit,
    Host,
    Increasing,
    LoadBalanced,
    NetworkAware,
    OperatorModel,
    Optimised,
    Producer,
    RandomFailures,
    RecordedTimes,
    Scenario,
    SimpleScheduling,
    Tiers,
    Uniform,
    WeightedAllocation,
    parse_scenario,
    placed,
    read_catalogue,
    read_scenario,
    scenario_text,
    write_scenario,
)
from outpace.simulate.placement_choice import PlacementRule
from outpace.simulate.toml_places import toml_places

TEXT = """\
duration = 60
scheduling = "dynamic"

[network]
kind = "constant"
seconds = 0.001

[placement]
in = "one"
"out" = "two"

[[vms]]
id = "one"
mips = 2500

[[vms]]
id = "two"
mips = 2500

[[queries]]
name = "alarms"
vertices = [
    { kind = "producer", id = "in", generator = { kind = "uniform", rate = 10 } }, # ten
    { kind = "consumer", id = "out" },
]
edges = [
    { source = "in", target = "out", selectivity = 0.5 },
]

[[changes]]
kind = "fail"
at = 20
vm = "two"
"""


def test_a_file_is_a_scenario() -> None:
    scenario = parse_scenario(TEXT)
    assert scenario.vms == (VM("one", 2500), VM("two", 2500))
    assert scenario.placement == {"in": "one", "out": "two"}
    assert scenario.network == ConstantDelay(0.001)
    assert scenario.queries[0].edges[0].selectivity == 0.5


UNPLACED = TEXT.replace('[placement]\nin = "one"\n"out" = "two"\n', "").replace(
    'id = "out" }', 'id = "out", instructions = 3e8 }'
)


@pytest.mark.parametrize(
    ("written", "choice"),
    [
        ('"first-fit"', FirstFit()),
        ('"balanced"', LoadBalanced()),
        ('{ kind = "network-aware", fill = 0.8 }', NetworkAware(0.8)),
        ('{ kind = "optimised", seconds = 2, steps = 3 }', Optimised(2.0, steps=3)),
    ],
)
def test_a_strategy_may_stand_for_a_placement(written: str, choice: PlacementRule) -> None:
    assert "[placement]" not in UNPLACED
    scenario = parse_scenario(f"placement = {written}\n{UNPLACED}")
    # Five events a second for the consumer: 1500 of 2500 MIPS.
    assert scenario == placed(scenario, choice)
    assert set(scenario.placement) == {"in", "out"}
    # What is asked for here is stronger than what the text says.
    assert parse_scenario(f'placement = "no"\n{UNPLACED}', placement=choice) == scenario
    assert parse_scenario(TEXT, placement=FirstFit()).placement == {"in": "one", "out": "one"}


def test_strategies_in_a_file_differ_as_they_do_in_python() -> None:
    both = UNPLACED.replace('id = "in", generator', 'id = "in", instructions = 1e8, generator')
    found = {
        name: parse_scenario(f'placement = "{name}"\n{both}').placement
        for name in ("first-fit", "balanced")
    }
    assert found["first-fit"] == {"in": "one", "out": "one"}
    assert found["balanced"] == {"in": "two", "out": "one"}


def test_a_vertex_may_be_called_kind() -> None:
    text = TEXT.replace('in = "one"', 'kind = "one"').replace('id = "in"', 'id = "kind"')
    text = text.replace('source = "in"', 'source = "kind"')
    assert parse_scenario(text).placement == {"kind": "one", "out": "two"}


@pytest.mark.parametrize(
    ("written", "line", "parts"),
    [
        ('"balancd"', 1, ["unknown kind 'balancd'", "did you mean 'balanced'?"]),
        ('{ kind = "balanced", fil = 1 }', 1, ["unknown key 'fil'", "did you mean 'fill'?"]),
        ('{ kind = "balanced", fill = 2 }', 1, ["a machine is filled"]),
        ('"optimised"', 1, ["the key 'seconds' is missing"]),
        ('{ kind = "optimised", seconds = 2, steps = -1 }', 1, ["the steps of a search"]),
        ('{ kind = "optimised", seconds = 1e-6 }', 1, ["no placement was found", "the best one"]),
        ('{ kind = "balanced", fill = 0.5 }', 22, ["no VM has room", "vertex 'out'", "1500 MIPS"]),
        ("7", 1, ["a table is expected here"]),
    ],
)
def test_what_is_wrong_with_a_strategy_is_shown_with_its_line(
    written: str, line: int, parts: list[str]
) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"placement = {written}\n{UNPLACED}")
    for part in (f"line {line},", *parts):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("duration = 60", "duration = 0", "the duration is not"),
        ('target = "out"', 'target = "uot"', "unknown vertex 'uot'"),
        ('id = "two"', 'id = "one"', "two VMs of this name"),
    ],
)
def test_all_else_is_checked_before_vertices_are_placed(old: str, new: str, said: str) -> None:
    assert old in UNPLACED
    with pytest.raises(ScenarioError, match=said):
        parse_scenario('placement = "balanced"\n' + UNPLACED.replace(old, new, 1))


@examples(60)
@given(scenarios())
def test_a_scenario_is_read_as_it_was_written(scenario: Scenario) -> None:
    assert parse_scenario(scenario_text(scenario)) == scenario


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
def test_any_name_can_be_written(name: str) -> None:
    query = chain(Producer(name, Uniform(1)), Consumer(name + "-out"), name=name)
    scenario = Scenario((query,), (VM(name, 100), VM("b", 9)), 10, {name: name, name + "-out": "b"})
    assert parse_scenario(scenario_text(scenario)) == scenario


def test_every_kind_of_value_can_be_written(tmp_path: Path) -> None:
    query = chain(
        Producer("in", Increasing(100, over=5, start=2), 1e-7, queue=math.inf), Consumer("out")
    )
    delay = ConstantDelay(1e-5)
    clouds = (
        Cloud("c1", (Datacentre("d1", (Host("h1", 10, 4, "space"), Host("h2", 10))),)),
        Cloud("c2", (Datacentre("d2", (Host("h3", 10),)),)),
    )
    scenario = Scenario(
        (query,),
        (VM("v1", 10, 2), VM("v2", 10, host="h3")),
        1e3,
        {"in": "v1", "out": "v2"},
        clouds,
        Tiers(delay, delay, Bandwidth(0.01, 1e9, 100), ConstantDelay(0.05)),
        SimpleScheduling(),
        WeightedAllocation(),
        tick=0.05,
        queue=2048,
        overflow="discard",
        warm_up=5,
        sample=math.inf,
    )
    path = tmp_path / "scenario.toml"
    write_scenario(scenario, path)
    assert read_scenario(path) == scenario


def test_a_trace_is_read_from_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0.25\n0.5\n")
    path = tmp_path / "scenario.toml"
    path.write_text(
        TEXT.replace('{ kind = "uniform", rate = 10 }', '{ kind = "trace", file = "times.txt" }')
    )
    producer = read_scenario(path).queries[0].vertices[0]
    assert isinstance(producer, Producer)
    assert producer.generator == RecordedTimes((0.25, 0.5))


def test_own_classes_cannot_be_written() -> None:
    @dataclass(frozen=True)
    class Own:
        def totals(self, times: Any) -> Any:
            return np.zeros(len(times), np.int64)

    query = chain(Producer("in", Own()), Consumer("out"))
    with pytest.raises(ScenarioError, match="own classes cannot be written"):
        scenario_text(Scenario((query,), (VM("v", 10),), 10))


@pytest.mark.parametrize(
    ("old", "new", "line", "parts"),
    [
        ("duration = 60", "durration = 60", 1, ["unknown key 'durration'", "'duration'"]),
        ("duration = 60", "duration = 0", 1, ["the duration is not", "simulation 'duration'"]),
        ("duration = 60", 'duration = "1 hor"', 1, ["no unit of time"]),
        ('"dynamic"', '"dynamik"', 2, ["unknown kind 'dynamik'", "did you mean 'dynamic'?"]),
        ('"dynamic"', "7", 2, ["a table is expected here"]),
        ('kind = "constant"\n', "", 4, ["the key 'kind' is missing", '"bandwidth"']),
        ("seconds = 0.001", "seconds = -1", 4, ["the network's delay"]),
        ('in = "one"', 'inn = "one"', 9, ["unknown vertex 'inn'", "did you mean 'in'?"]),
        ('in = "one"\n', "", 22, ["the vertex is on no VM", "vertex 'in'"]),
        ('"out" = "two"', '"out" = "tree"', 10, ["unknown vm 'tree'"]),
        ('"out" = "two"', '"out" = 2', 10, ["a text is expected here"]),
        ("mips = 2500\n\n[[queries", "\n[[queries", 16, ["the key 'mips' is missing"]),
        ("mips = 2500\n\n[[queries", "mips = 0\n[[queries", 16, ["the mips", "vm 'two'"]),
        ("mips = 2500", "mips = true", 14, ["a number is expected here"]),
        ("mips = 2500", "mips = 2500\nprocessors = 1.5", 15, ["a whole number is expected"]),
        ('id = "two"', 'id = "one"', 16, ["two VMs of this name", "vm 'one'"]),
        ('kind = "producer"', 'kind = "source"', 23, ["unknown kind 'source'", "one of"]),
        ("rate = 10", "rate = -10", 23, ["a generator's rate"]),
        ("rate = 10", "rate = 10, seed = 1", 23, ["unknown key 'seed'"]),
        ("selectivity = 0.5", "selectivity = -0.5", 27, ["selectivity", "edge 'in' -> 'out'"]),
        ('target = "out"', 'target = "uot"', 27, ["unknown vertex 'uot'", "'out'"]),
        ('id = "out" },', 'id = "out" },\n    { kind = "operator", id = "f" },', 25, ["'f'"]),
        ('vm = "two"\n', 'vm = "to"\n', 30, ["unknown vm 'to'", "did you mean 'two'?"]),
        ("at = 20", "at = -20", 30, ["a change is at no time"]),
        ("[[changes]]", "[changes]", 30, ["a list is expected here"]),
        ("rate = 10", "rate = 10, file = 1", 23, ["unknown key 'file'"]),
        (
            'kind = "uniform", rate = 10',
            'kind = "trace", file = "no.txt"',
            23,
            ["a trace in a file needs a scenario in a file"],
        ),
    ],
)
def test_what_is_wrong_is_shown_with_its_line(
    old: str, new: str, line: int, parts: list[str]
) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, where="plan.toml")
    message = str(caught.value)
    assert "plan.toml" in message
    assert f"line {line}," in message
    for part in parts:
        assert part in message


def test_what_is_no_toml_says_so() -> None:
    with pytest.raises(ScenarioError, match="the scenario is not TOML") as caught:
        parse_scenario("duration = \n")
    assert "line 1" in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_scenario(tmp_path / "none.toml")


def test_a_missing_trace_is_shown_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT.replace('kind = "uniform", rate = 10', 'kind = "trace", file = "no.txt"'))
    with pytest.raises(ScenarioError, match=r"no\.txt' cannot be read") as caught:
        read_scenario(path)
    assert "scenario.toml, line 23" in str(caught.value)


TOML = r'''
title = "a \" # ] quoted"   # a comment = 1
"odd \u00e9 key".'inner' = 1979-05-27 07:32:00
text = """
[not] = "a table"
"""
raw = \'\'\'it's = [raw]\'\'\'
list = [ 1, # one
  [2, 3], { a.b = "x", c = [{ d = 1 }] },
]
[one.two]
x = 1
[[many]]
x = 1
[[many.inner]]
y = 2
[[many]]
[many.table]
z = 3
'''.replace(r"\'", "'")


def test_every_place_of_a_text_is_found() -> None:
    places = toml_places(TOML)
    document = tomllib.loads(TOML)

    def walk(value: Any, path: tuple[str | int, ...]) -> None:
        if path and not (isinstance(value, list | dict) and path not in places):
            span = places[path]
            shown = TOML[span.start : span.end]
            if isinstance(value, int):
                assert shown.endswith(f"{value}")
            assert "\n" not in shown[:1]
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, (*path, key))
        if isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, (*path, number))

    walk(document, ())
    assert TOML[places["many", 0, "inner", 0, "y"].start :].startswith("y = 2")
    assert TOML[places["list", 2, "c", 0, "d"].start :].startswith("d = 1")
    assert TOML[places["odd é key", "inner"].start :].startswith('"odd')
    assert TOML[places["many", 1, "table"].start :].startswith("[many.table]")


@examples(40)
@given(scenarios())
def test_every_scalar_of_a_written_scenario_has_a_place(scenario: Scenario) -> None:
    text = scenario_text(scenario)
    places = toml_places(text)

    def walk(value: Any, path: tuple[str | int, ...]) -> None:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            if isinstance(item, dict | list):
                walk(item, (*path, key))
            else:
                assert (*path, key) in places

    walk(tomllib.loads(text), ())


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("tick = 1\nx = " + "[" * 100_000, "nested too deeply", 2),
        ("x = " + "{a = " * 100_000, "nested too deeply", 1),
        ("x = " + "[" * 100_000 + "]" * 100_000, "nested too deeply", 1),
        ("\n\n" + ".".join(["a"] * 50_000) + " = 1", "nested too deeply", 3),
        ("[" + ".".join(["a"] * 50_000) + "]", "nested too deeply", 1),
        ("x = 1\n" + " . ".join(['"a"'] * 50_000) + " = 1", "nested too deeply", 2),
        ("x = 1\ny = 1" + "0" * 100_000, "the number is too long", 2),
        (TEXT.replace("60", f"6{'0' * 350}"), "the number is out of range", 1),
        ("x = 1\x00", "not TOML", 1),
        ('x = "' + "a" * 500_000, "never closed", 1),
        ('x = """' + '\\"' * 200_000, "never closed", 1),
        ("x = 2026-99-99", "not TOML", 1),
    ],
    ids=range(12),
)
def test_a_text_that_would_take_long_is_refused_with_its_line(
    text: str, said: str, line: int
) -> None:
    with pytest.raises(ScenarioError, match=said) as raised:
        parse_scenario(text)
    assert f"line {line}" in str(raised.value)


@pytest.mark.parametrize("name", ["../secret.txt", "/dev/zero", "/etc/passwd", "link", "a\\u0000b"])
def test_a_trace_is_in_the_folder_of_the_scenario(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "scenario"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("1.5\n")
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    text = TEXT.replace('kind = "uniform", rate = 10', f'kind = "trace", file = "{name}"')
    with pytest.raises(
        ScenarioError, match=r"not in the folder of the scenario|null byte"
    ) as raised:
        parse_scenario(text, folder=folder)
    assert "line" in str(raised.value)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "bytes"])
def test_a_scenario_is_a_regular_file_of_some_size(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "scenario.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff" if kind == "bytes" else b"#" * (2**20 + 1))
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_scenario(path)
    with pytest.raises(ScenarioError, match=r"cannot be read|is not a time"):
        RecordedTimes.read(path)


WORDS = """\
duration = "1 min"
warm_up = "500 ms"

[cores]
laptop = 3000
server = 2000

[[machines]]
name = "small"
mips = 1000
processors = 2
memory = "1 GiB"
price = 0.25

[[vertices]]
kind = "producer"
id = "in"
generator = { kind = "bursty", rate = 10, on = "2 s", off = "0.5 min" }

[[vms]]
id = "one"
machine = "small"

[[vms]]
id = "two"
machine = "small"
processors = 4

[placement]
in = "one"
parse = "one"
count = "two"
first = "two"
second = "two"

[[queries]]
name = "a"
vertices = [
    "in",
    { kind = "operator", id = "parse", instructions = "20 us on laptop", state_bytes = "64 MiB" },
    { kind = "consumer", id = "first" },
]
edges = [{ source = "in", target = "parse" }, { source = "parse", target = "first" }]

[[queries]]
name = "b"
vertices = [
    "in",
    { kind = "window", id = "count", window = "10 s", instructions = "500 ns on server" },
    { kind = "consumer", id = "second" },
]
edges = [{ source = "in", target = "count" }, { source = "count", target = "second" }]

[scaling]
most = 3
every = "1 min"

[[changes]]
kind = "failures"
at = "10 s"
vm = "two"
per_hour = 3
repair = "5 min"
"""


def test_a_file_may_have_units_shared_vertices_and_types_of_machines() -> None:
    scenario = parse_scenario(WORDS.replace('[scaling]\nmost = 3\nevery = "1 min"\n', ""))
    assert (scenario.duration, scenario.warm_up) == (60, 0.5)
    assert scenario.vms == (
        VM("one", 1000, 2, memory=2**30, price=0.25),
        VM("two", 1000, 4, memory=2**30, price=0.25),
    )
    vertices = scenario.vertices()
    assert vertices["in"] == Producer("in", Bursty(10, on=2, off=30))
    assert vertices["parse"] == OperatorModel("parse", 60_000, state_bytes=2**26)
    assert vertices["count"].instructions == 1000
    assert scenario.changes == (RandomFailures(10, "two", 3, 300),)


def test_what_several_queries_have_is_written_once() -> None:
    scenario = parse_scenario(WORDS)
    text = scenario_text(scenario)
    assert text.count('id = "in"') == 1
    assert parse_scenario(text) == scenario


@pytest.mark.parametrize(
    ("old", "new", "shown", "parts"),
    [
        ('"1 min"', '"1 mni"', "duration", ["'mni' is no unit of time"]),
        ('"1 min"', '"five"', "duration", ["expected a number and a unit"]),
        ('"1 GiB"', '"1 GB b"', "memory", ["a number and a unit of bytes"]),
        ('"1 GiB"', '"1 Gib"', "memory", ["unknown unit of bytes 'Gib'", "'GiB'"]),
        ("us on laptop", "us on labtop", "{ kind", ["unknown core 'labtop'", "'laptop'"]),
        ("us on laptop", "us", "{ kind", ["needs the name of a core", "laptop, server"]),
        ("laptop = 3000", "laptop = 0", "laptop", ["the MIPS of a core"]),
        ('= "small"\np', '= "smal"\np', "machine", ["unknown type of machine", "'small'"]),
        ("price = 0.25", "price = -1", "[[machines]]", ["the price of an hour", "'small'"]),
        (
            '"in",\n    { kind = "op',
            '"im",\n    { kind = "op',
            '"im",',
            ["unknown vertex 'im'", "[[vertices]]"],
        ),
        ('id = "in"', 'id = "inn"', '"in",', ["unknown vertex 'in'", "'inn'"]),
        ('    "in",\n', '    { kind = "consumer", id = "in" },\n', "{ kind", ["in"]),
        ("[[vms]]", '[[vertices]]\nid = "x"\n[[vms]]', "[[vertices]]", ["no query has", "'x'"]),
        ("most = 3", "most = 0", "most", ["the most instances are not 1 to 1000: 0"]),
        ("per_hour = 3", "per_hour = -3", "[[changes]]", ["the failures per hour"]),
        ("price = 0.25", "cores = 2", "cores = 2", ["unknown key 'cores'", "known keys"]),
    ],
)
def test_what_is_wrong_in_such_a_file_is_shown_with_its_line(
    old: str, new: str, shown: str, parts: list[str]
) -> None:
    assert old in WORDS
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(WORDS.replace(old, new, 1), where="plan.toml")
    place, line = str(caught.value).splitlines()[1:3]
    assert place.startswith("  plan.toml")
    assert line.strip().startswith(shown)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_catalogue_lies_beside_the_scenario(tmp_path: Path) -> None:
    begin, rest = WORDS.split("[[machines]]\n")
    machine, rest = rest.split("[[vertices]]", 1)
    path = tmp_path / "plan.toml"
    path.write_text(f'machines = "types.toml"\n{begin}[[vertices]]{rest}')
    (tmp_path / "types.toml").write_text(f'currency = "EUR"\n[[machines]]\n{machine}')
    assert read_scenario(path) == parse_scenario(WORDS)
    catalogue = read_catalogue(tmp_path / "types.toml")
    assert (catalogue.currency, catalogue.machine("small").price) == ("EUR", 0.25)
    (tmp_path / "types.toml").write_text("[[machines]]\nname = 3\nmips = 1\n")
    with pytest.raises(ScenarioError, match=r"a text is expected here\n  types\.toml, line 2"):
        read_scenario(path)
    path.write_text(path.read_text().replace("types.toml", "../types.toml"))
    with pytest.raises(ScenarioError, match="not in the folder of the scenario"):
        read_scenario(path)
