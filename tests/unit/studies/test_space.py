"""The study `space`: its experiments on a very small scale, and what they are made of."""

import time
from itertools import pairwise

import pytest

from outpace.hosts.processes.metrics import Metrics
from outpace.pattern.schedulers import Batches, RoundRobin, Scheduler
from outpace.pattern.windows import CountWindows
from outpace.studies import space_load, space_split
from outpace.studies.report import Row
from outpace.studies.space import QUICK, WHOLE, space_study
from outpace.studies.space_figures import FIGURES
from outpace.studies.space_processes import Busy, RateProgress, TimedSource, discarding
from outpace.studies.space_serialise import json_codec, protobuf_codec, serialisation
from outpace.studies.space_stream import SplitStream, blocks_of, events_of


def values(rows: list[Row]) -> dict[tuple[str, str], float]:
    found = {(row.figure, row.setting): row.value for row in rows}
    assert len(found) == len(rows), "a setting tells its row from all others"
    assert all(value > 0 for value in found.values())
    return found


def test_blocks_are_smaller_than_the_papers_events() -> None:
    found = values(list(serialisation(seconds=0)))
    for size in ("1,000", "10,000"):
        assert found["5.1b", f"SimpleEvent, blocks of {size}"] <= 12
        assert found["5.1b", f"StockEvent, blocks of {size}"] <= 24
    assert ("5.1a", "StockEvent, read, blocks of 1,000") in found
    assert ("5.1a", "StockEvent, write, JSON text") in found


def test_codecs_of_single_events_keep_every_value() -> None:
    event = {"seq": 70_000, "ts": -3, "source": 1, "symbol": "ÄBC", "open": 1.5}
    codec = json_codec()
    assert codec.read(codec.write(event)) == event
    buffers = protobuf_codec(("seq", "ts", "source"), {"symbol": "string", "open": "float"})
    if buffers is None:
        pytest.skip("Protocol Buffers are not installed")
    read = buffers.read(buffers.write(event))
    inner = read.event.payload  # type: ignore[attr-defined]  # the class is made at run time
    assert (read.seq, read.ts, read.source) == (70_000, -3, 1)  # type: ignore[attr-defined]
    assert (inner.symbol, inner.open) == ("ÄBC", 1.5)


def test_the_splitter_is_measured_in_every_setting() -> None:
    rows = [
        *space_split.maximum(1000, 0),
        *space_split.overlap(2000, (2000, 20), 1000, 0),
        *space_split.instances((1, 3), 1000, 0),
        *space_split.sources((1, 16), 32_000, 0),
    ]
    found = values(rows)
    assert ("5.2", "SimpleEvent, the splitter") in found
    assert ("5.3", "slide 20: 100 open windows, the splitter") in found
    assert ("5.3", "slide 2,000: 1 open window, with a user's operator") in found
    assert found["5.3", "slide 20 to slide 2,000, with a user's operator"] > 0
    assert ("5.5b", "3 instances, the splitter") in found
    assert ("5.5a", "3 instances to 1, the splitter") in found
    assert ("5.6", "StockEvent, 16 sources to 1, the splitter") in found
    assert ("5.6", "SimpleEvent, 16 sources, all columns read") in found


def test_what_an_instance_is_told_of_windows_does_not_grow_with_their_number() -> None:
    rows = space_split.overlap(100_000, (100_000, 10), 10_000, 0)
    one, many = (row.value for row in rows if row.unit == "bytes/event")
    assert many <= 2 * one


def test_in_turn_an_event_goes_to_each_instance_that_has_a_window_open() -> None:
    rows = list(space_split.duplication(4000, (4000, 1000), (1, 2, 4), 2000, 0.05))
    found = values(rows)
    for slide, most in (("4,000", 1), ("1,000", 4)):
        for count in ("1 instance", "2 instances", "4 instances"):
            sent = found["5.7", f"slide {slide}, {count}, in turn: sent"]
            assert sent == pytest.approx(min(most, int(count[0])))
    assert found["5.7", "slide 4,000, 4 instances, in batches: sent"] == 1


@pytest.mark.parametrize(
    ("scheduler", "copies"), [(RoundRobin(), 4), (Batches(size=3), 2), (Batches(size=6), 1.5)]
)
def test_a_stream_goes_on_over_the_same_blocks(scheduler: Scheduler, copies: float) -> None:
    # Batches of b windows: 1 + (size - slide) / (b * slide).
    query = discarding().over(CountWindows(400, 100)).instances(5, schedule=scheduler)
    stream = SplitStream(query, blocks_of("SimpleEvent", 300))
    stream.run_until(9_000)
    before = stream.front.counters()
    stream.run_until(18_000)
    after = stream.front.counters()
    assert after.events == 18_000
    assert (after.sent - before.sent) / (18_000 - before.events) == pytest.approx(copies)


def test_a_timed_source_numbers_its_events_and_repeats_their_payload() -> None:
    batches = list(TimedSource("s", "StockEvent", seconds=0).batches(10))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert all(one["ts"] < two["ts"] for one, two in pairwise(rows))
    assert [row["symbol"] for row in rows[10:20]] == [row["symbol"] for row in rows[:10]]
    assert batches[0].schema.equals(events_of("StockEvent", 1).schema)


@pytest.mark.parametrize("computes", [True, False])
def test_a_busy_operator_spends_its_time(computes: bool) -> None:
    clock = time.thread_time if computes else time.perf_counter
    started = clock()
    Busy(rate=10_000, computes=computes).process(events_of("SimpleEvent", 200))
    assert clock() - started >= 0.02


def test_progress_adds_up_instances_and_counts_an_event_once() -> None:
    metrics = Metrics.of(["s"], instances=2)
    for second in range(1, 11):
        metrics.instances[0].events = 60 * second
        metrics.instances[1].events = 140 * second
        metrics.operator.events, metrics.operator.sent = 100 * second, 200 * second
        metrics.sample(float(second))
    progress = RateProgress.of(metrics)
    assert progress.rate() == pytest.approx(100)
    ends, rates = progress.rates(4.0)
    assert ends.tolist() == [4.0, 8.0]
    assert rates.tolist() == pytest.approx([100, 100])


def test_progress_of_a_very_short_run_is_its_mean_rate() -> None:
    metrics = Metrics.of(["s"], instances=1)
    metrics.instances[0].events = metrics.operator.events = metrics.operator.sent = 50
    metrics.sample(0.5)
    assert RateProgress.of(metrics).rate() == pytest.approx(100)


@pytest.mark.soak
def test_instances_in_processes_are_measured_in_every_setting() -> None:
    rows = [
        *space_load.maximum(0.1),
        *space_load.overlap(2000, (2000, 20), 0.1),
        *space_load.instances((2,), 0.1),
        *space_load.sources((1, 16), 0.1),
        *space_load.duplication(2000, (500,), (2,), 0.1),
        *space_load.stability(3.0, 1.0),
        *space_load.busy_instances((1,), (1,), (2,), 0.3),
    ]
    found = values(rows)
    assert ("5.2", "StockEvent, the whole way") in found
    assert ("5.3", "slide 20 to slide 2,000, the whole way") in found
    assert ("5.5a", "2 instances, the whole way") in found
    assert ("5.6", "SimpleEvent, 16 sources to 1, the whole way") in found
    assert ("5.7", "slide 500, 2 instances, in batches, the whole way") in found
    assert ("5.4", "mean rate to that") in found
    assert ("5.8-5.10", "slide 250, 1 waiting") in found
    assert ("5.8-5.10", "slide 500, 1 computing, double load, 2 sources") in found


@pytest.mark.parametrize("scale", [QUICK, WHOLE])
def test_the_study_has_the_papers_figures_and_sections(scale) -> None:
    study = space_study(scale)
    assert study.figures == FIGURES
    sections = {words.split()[0] for words, _ in study.experiments}
    assert sections == {"5.1", "5.2", "5.3", "5.3.3", "5.4.1", "5.4.2", "5.4.3", "5.4.4"}
    assert 10 in scale.slides
    assert 16 in scale.sources
