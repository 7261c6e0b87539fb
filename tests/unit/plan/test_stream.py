import pyarrow as pa
import pytest

from outpace.local.background import Compilable
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
    matching = {spec.name: isinstance(spec.matcher(), Compilable) for spec in stages}
    split = {"order + split": False, "match": True, "merge": False}
    assert matching == (split if windowed else {"order + match": True})
    assert all(spec.matcher() is spec.matcher() for spec in stages)
