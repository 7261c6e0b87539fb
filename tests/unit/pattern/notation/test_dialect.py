"""The names of dialects: who names one that there is not hears which there are."""

import pytest

import outpace as op
from outpace.errors import UnsupportedError
from outpace.pattern.notation.dialect import check_dialect


@pytest.mark.parametrize("name", ["outpace", "Trino", "SPARK", "flink", "oracle", "snowflake"])
def test_dialects_are_known_in_any_case(name: str) -> None:
    assert check_dialect(name) == name.lower()


def test_a_query_is_read_and_written_in_known_dialects_alone() -> None:
    text = "ORDER BY ts PATTERN (A B+)"
    for name in ("klingon", ""):
        with pytest.raises(UnsupportedError, match=f"no dialect '{name}'") as error:
            op.Query.from_sql(text, dialect=name)
        assert "known dialects: " in str(error.value)
        assert "outpace" in str(error.value)
    with pytest.raises(UnsupportedError, match="did you mean 'trino'"):
        op.Query.from_sql(text, dialect="Trinno")
    query = op.Query.from_sql(text, dialect="Trino")
    assert query == op.Query.from_sql(query.to_sql(dialect="TRINO"), dialect="trino")
    with pytest.raises(UnsupportedError, match="no dialect 'klingon'"):
        query.to_sql(dialect="klingon")
