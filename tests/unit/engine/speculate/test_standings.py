"""What instances hear of marks, and which of their answers are of use."""

from __future__ import annotations

import pyarrow as pa

import outpace as op
from outpace.engine.event import no_events
from outpace.engine.instance import Instance
from outpace.engine.message import NO_SPLIT, Deliver
from outpace.engine.operator_spec import OperatorSpec
from outpace.engine.speculate.standings import Standing, Standings
from outpace.pattern.bind.disorder import bind_disorder


def test_what_an_instance_is_to_hear_waits_for_its_next_delivery() -> None:
    standings = Standings(2)
    standings.set_mark(0)
    assert standings.send(0, bound=5, oldest=0, newest=0) == Standing(5, mark=0)
    standings.set_mark(1)
    assert standings.send(0, bound=7, oldest=0, newest=1) == Standing(7, mark=1)
    # The other one has not changed since the first mark, so the second stands for both.
    assert standings.send(1, bound=9, oldest=0, newest=1) == Standing(9, mark=1)
    assert standings.send(1, bound=9, oldest=1, newest=1) == Standing(9, oldest=1)


def test_of_several_marks_to_go_back_to_the_first_counts() -> None:
    standings = Standings(1)
    standings.set_mark(3)
    standings.go_back(3)
    standings.go_back(1)
    assert standings.goes_back(0)
    standings.go_back(2)
    standings.set_mark(4)
    assert standings.send(0, bound=9, oldest=0, newest=4) == Standing(9, back_to=1, mark=4)
    assert not standings.goes_back(0)


def test_who_was_idle_at_a_mark_sets_it_when_it_goes_back_there() -> None:
    standings = Standings(1)
    standings.set_mark(1)
    standings.set_mark(2)
    standings.go_back(1)
    assert standings.send(0, bound=9, oldest=0, newest=1) == Standing(9, back_to=1, mark=1)


def test_answers_to_what_was_sent_since_a_mark_are_of_no_use() -> None:
    standings = Standings(1)
    for newest in (0, 1, 1, 2):
        standings.send(0, bound=9, oldest=0, newest=newest)
    standings.go_back(1)
    standings.send(0, bound=9, oldest=0, newest=1)
    assert [standings.take_answer(0) for _ in range(5)] == [0, None, None, None, 1]


def test_an_instance_that_goes_back_has_no_later_marks() -> None:
    query, schema = op.Query().order_by("ts").pattern("A"), pa.schema([("ts", pa.int64())])
    query = query.measures(at="A.ts").disorder(op.Speculative(9))
    instance = Instance(spec := OperatorSpec(query, schema, disorder=bind_disorder(query, schema)))
    marks = (Standing(number, mark=number) for number in (3, 5, 7))
    for standing in (*marks, Standing(5, back_to=4)):
        instance.step(
            Deliver(0, no_events(spec.events), None, NO_SPLIT, arrived=0, standing=standing)
        )
    # It was idle between 4 and 5, so that one stands for both.
    assert instance.state().numbers == {"oldest": 3, "newest": 5}
