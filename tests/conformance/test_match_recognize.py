"""Trino's row-pattern cases through the in-process host: the same rows, or refused."""

import decimal
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from outpace.errors import OutpaceError
from outpace.local.sql import sql

FILE = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "match_recognize.jsonl"
CONNECTION = duckdb.connect()


def cases() -> Iterable[Any]:
    if not FILE.is_file():
        reason = "the folder ../shared is not here"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="missing")]
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]


def plain(value: object) -> object:
    """Return a value that can be hashed and compares by what it means, not by its width."""
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, plain(item)) for name, item in value.items())
    if isinstance(value, bool):
        return str(value)  # True equals 1 in Python
    if isinstance(value, decimal.Decimal) and value == value.to_integral_value():
        return int(value)
    return value


def rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize("case", cases())
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
        assert rows(found) == rows(sql(CONNECTION, case["expected_sql"], dialect="trino"))
