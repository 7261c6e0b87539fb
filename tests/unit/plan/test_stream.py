import pyarrow as pa
import pytest

from outpace.engine.stage import restore_stage, save_stage
from outpace.errors import StateError
from outpace.hosts.background import Compilable
from outpace.pattern.operator import EventOperator
from outpace.pattern.query import Query
from outpace.pattern.windows import CountWindows
from outpace.plan.stream import plan_stream


@pytest.mark.parametrize("windowed", [False, True])
def test_stages_that_match_tell_with_what_so_that_it_can_be_compiled_early(windowed):
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="v > 1", B="v < 1").within(10)
    if windowed:
        query = query.over(CountWindows(100, 10)).instances(2)
    stages = plan_stream(query.measures(n="COUNT(*)"), schema, 2).stages
    matching = {spec.name: isinstance(spec.matcher, Compilable) for spec in stages}
    split = {"order + split": False, "match": True, "merge": False}
    assert matching == (split if windowed else {"order + match": True})
    assert all(spec.matcher is spec.matcher for spec in stages)


@pytest.mark.parametrize(
    ("measure", "shown"),
    [
        ("LAST(ts)", True),
        ("FIRST(A.ts)", True),
        ("NEXT(B.ts)", True),
        ("PREV(A.ts)", False),
        ("LAST(ts) - 500", False),
        ("COUNT(*)", False),
    ],
)
def test_time_is_told_in_columns_with_the_time_of_an_event_of_the_match(measure, shown):
    schema = pa.schema({"ts": pa.int64(), "v": pa.int64()})
    query = Query("q").order_by("ts").pattern("A -> B").define(A="v > 1", B="v < 1").within(10)
    plan = plan_stream(query.measures(at=measure), schema, 1)
    assert plan.shows_time_in("at") is shown
    if not shown:
        assert not plan.tells_time_in("at")


class Nothing(EventOperator):
    """Gives nothing."""

    output = pa.schema([("x", pa.int64())])

    def on_event(self, event: dict[str, object]) -> list[dict[str, object]]:
        return []


class NothingElse(Nothing):
    """Gives nothing, too, and is another one."""


def test_a_state_of_another_operator_of_the_user_is_refused():
    schema = pa.schema({"ts": pa.int64()})
    query = Query("q").order_by("ts").over(CountWindows(10, 10))
    one, other = (plan_stream(query.apply(it), schema, 1).stages for it in (Nothing, NothingElse))
    for before, after in zip(one, other, strict=True):
        with pytest.raises(StateError, match="belongs to another query"):
            restore_stage(after, save_stage(before, before.make()))
