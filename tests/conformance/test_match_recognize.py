"""Trino's row-pattern cases through the in-process host: the same rows, or refused."""

from typing import Any

import duckdb
import pytest
from support.statements import answer, public_cases

from outpace.errors import OutpaceError
from outpace.hosts.local.sql import sql

CONNECTION = duckdb.connect()


@pytest.mark.parametrize("case", public_cases())
def test_case(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(OutpaceError) as caught:
            sql(CONNECTION, case["sql"], dialect="trino")
        for kind, message in case["error"]:
            if kind.startswith("hasMessage"):
                assert message.lower() in str(caught.value).lower()
        return
    found = sql(CONNECTION, case["sql"], dialect="trino")
    if case.get("expected_empty"):
        assert found.num_rows == 0
    else:
        assert answer(found) == answer(sql(CONNECTION, case["expected_sql"], dialect="trino"))
