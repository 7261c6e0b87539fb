"""Every mistake has its exact message: `tests/data/bad_queries.txt` lists them.

`python tests/unit/pattern/test_bad_queries.py` writes the messages anew; read the difference.
"""

from pathlib import Path

import pyarrow as pa
import pytest

from outpace.errors import OutpaceError
from outpace.pattern.bind.query import bind
from outpace.pattern.query import Query

CASES = Path(__file__).resolve().parents[2] / "data" / "bad_queries.txt"
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("seq", pa.int64()),
        ("day", pa.date32()),
        ("symbol", pa.string()),
        ("price", pa.float64()),
        ("volume", pa.int32()),
        ("amount", pa.decimal128(10, 2)),
        ("open", pa.bool_()),
        ("quote", pa.struct([("bid", pa.float64()), ("ask", pa.float64())])),
        ("tags", pa.list_(pa.string())),
        ("moment", pa.timestamp("us", "UTC")),
    ]
)


def cases() -> list[tuple[str, list[str], str]]:
    """Return title, clauses and message of each case."""
    found = []
    for block in CASES.read_text().split("\n== ")[1:]:
        head, _, message = block.partition("\n---")
        title, *clauses = head.split("\n")
        found.append((title, clauses, message.strip("\n")))
    return found


def refuse(clauses: list[str]) -> str:
    """Build and bind the query of a case and return the message that it is refused with."""
    try:
        bind(_query(clauses), SCHEMA)
    except OutpaceError as problem:
        return str(problem)
    return "not refused"


def _query(clauses: list[str]) -> Query:
    query = Query().order_by("ts")
    for clause in clauses:
        key, _, value = clause.partition(":")
        query = _with(query, key.split(" ", 1), value.strip())
    return query


def _with(query: Query, key: list[str], value: str) -> Query:
    match key:
        case ["pattern"]:
            return query.pattern(value)
        case ["define", name]:
            return query.define({name: value})
        case ["measure", name]:
            return query.measures({name: value})
        case ["subset", name]:
            return query.subset(**{name: tuple(value.split(", "))})
        case ["partition", "by"]:
            return query.partition_by(*value.split(", "))
        case ["order", "by"]:
            return query.order_by(*value.split(", ")) if value else query.order_by()
        case ["within"]:
            return query.within(int(value) if value.isdigit() else value)
        case ["rows"]:
            return query.all_rows_per_match(unmatched=value == "unmatched")
        case ["select"]:
            return query.select(value)
        case ["skip", "to"]:
            return query.skip_to_last(value)
    raise ValueError(key)


@pytest.mark.parametrize(("title", "clauses", "message"), cases(), ids=[c[0] for c in cases()])
def test_message_of_a_bad_query(title: str, clauses: list[str], message: str) -> None:
    assert refuse(clauses) == message


def test_every_case_is_refused_with_a_place_or_a_clause() -> None:
    for title, clauses, message in cases():
        assert message.startswith("["), title
        assert message != "not refused", title
        assert clauses, title


def test_thousands_of_parentheses_are_refused() -> None:
    text = "(" * 9_000 + "price" + ")" * 9_000 + " > 1"
    with pytest.raises(OutpaceError, match="nested"):
        Query().pattern("A").define(A=text)


def test_long_chains_of_conditions_are_no_nesting() -> None:
    text = " and ".join(f"price <> {number}" for number in range(150))
    bound = bind(Query().order_by("ts").pattern("A").define(A=text).measures(n="count(*)"), SCHEMA)
    assert bound.predicates[0].expression is not None


if __name__ == "__main__":
    intro = CASES.read_text().split("\n== ")[0]
    blocks = [
        "\n".join([f"== {title}", *clauses, "---", refuse(clauses)])
        for title, clauses, _ in cases()
    ]
    CASES.write_text("\n".join([intro, *(f"{block}\n" for block in blocks)]))
