"""Which conditions Spark computes: those that mean the same there and take no longer."""

import pyarrow as pa
import pytest

from outpace.pattern.bind.query import bind
from outpace.pattern.query import Query
from outpace.plan.crossing import catalyst_text


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s LIKE 'a%'", "(`s` LIKE 'a%')"),
        ("s LIKE '%a_c%'", "(`s` LIKE '%a_c%')"),
        ("s LIKE '%a%b%'", None),
        ("s LIKE 'a%b'", None),
        ("regexp_like(s, 'a')", None),
        ("ts > TIMESTAMP '2024-01-01 00:00:00'", None),
    ],
)
def test_patterns_that_java_would_try_out_stay_in_python(
    condition: str, expected: str | None
) -> None:
    schema = pa.schema([("s", pa.string()), ("ts", pa.timestamp("us"))])
    bound = bind(Query().pattern("A").define(A=condition).measures(n="COUNT(*)"), schema)
    expression = bound.predicates[0].expression
    assert expression is not None
    assert catalyst_text(expression) == expected
