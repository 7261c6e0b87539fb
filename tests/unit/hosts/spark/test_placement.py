"""Where the instances of a stage are: a restart finds them there, or says that it cannot."""

from dataclasses import replace

import pyarrow as pa
import pytest

from outpace.engine.stage import restore_stage, save_stage
from outpace.errors import StateError
from outpace.hosts.spark.stages import labels, partition_of
from outpace.pattern.query import Query
from outpace.plan.stream_plan import plan_stream


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 8, 200])
@pytest.mark.parametrize("instances", [1, 2, 3, 7])
def test_instances_are_spread_and_the_first_one_stays_where_it_is(instances, partitions):
    found = labels(instances, partitions)
    assert found[0] == labels(1, 1)[0]
    assert len(set(found)) == instances
    places = [partition_of(label, partitions) for label in found]
    assert places == [number % partitions for number in range(instances)]


def test_a_state_that_was_spread_over_other_partitions_is_refused():
    query = Query("q").partition_by("key").order_by("ts").pattern("A B").within(5)
    schema = pa.schema({"ts": pa.int64(), "key": pa.string()})
    [spec] = plan_stream(query.measures(n="COUNT(*)"), schema, 3).division.stages
    saved = save_stage(replace(spec, partitions=2), spec.make())
    with pytest.raises(StateError, match=r"started with 2 partitions of 'order . match'"):
        restore_stage(replace(spec, partitions=4), saved)
