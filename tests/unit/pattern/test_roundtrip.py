"""Every notation reads back what it writes, for random trees and for a file of statements."""

import ast as python_ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies

import outpace as op
from outpace.pattern.expression import Binary, Expression, Name, walk
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.notation.print_expression import print_expression
from outpace.pattern.notation.print_pattern import print_pattern
from outpace.pattern.notation.print_query import print_fluent, print_match_recognize
from outpace.pattern.query import Query

DATA = Path(__file__).parents[2] / "data"
STATEMENTS = [
    block.strip() for block in (DATA / "statements.sql").read_text().split(";") if block.strip()
]


def built(code: str) -> Query:
    """Run the fluent calls in `code`; only calls on the query and of `op` are known."""

    def value(node: python_ast.expr) -> Any:
        match node:
            case python_ast.Name(id="op"):
                return op
            case python_ast.Attribute(value=owner, attr=name):
                return getattr(value(owner), name)
            case python_ast.Call(func=called, args=arguments, keywords=keywords):
                named: dict[str, Any] = {}
                for keyword in keywords:
                    given = value(keyword.value)
                    named.update(given if keyword.arg is None else {keyword.arg: given})
                return value(called)(*map(value, arguments), **named)
            case _:
                return python_ast.literal_eval(node)

    result = value(python_ast.parse(code, mode="eval").body)
    assert isinstance(result, Query)
    return result


@given(strategies.patterns(("A", "b", "order", "x y", "UNTIL", "permute")))
def test_pattern_text_reads_back(pattern):
    text = print_pattern(pattern)
    assert parse_pattern(text) == pattern
    assert print_pattern(parse_pattern(text)) == text


@given(strategies.expressions())
def test_expression_text_reads_back(node):
    text = print_expression(node)
    assert parse_expression(text) == node
    assert print_expression(parse_expression(text)) == text


def with_integer_division(node: Expression) -> bool:
    return not any(isinstance(n, Binary) and n.operator == "/" for n in walk(node))


@given(strategies.expressions().filter(with_integer_division), st.sampled_from(["trino", "spark"]))
def test_expression_text_reads_back_in_other_dialects(node, dialect):
    assert parse_expression(print_expression(node, dialect), dialect=dialect) == node


@given(strategies.queries())
def test_match_recognize_reads_back(query):
    text = print_match_recognize(query)
    assert parse_match_recognize(text) == query
    assert print_match_recognize(parse_match_recognize(text)) == text


@given(strategies.queries())
def test_fluent_code_reads_back(query):
    code = print_fluent(query)
    assert built(code) == query
    assert print_fluent(built(code)) == code


@pytest.mark.parametrize("statement", STATEMENTS, ids=range(len(STATEMENTS)))
@pytest.mark.parametrize("dialect", ["outpace", "trino", "spark", "duckdb"])
def test_statements_read_back(statement, dialect):
    if dialect == "spark":
        statement = statement.replace('"', "`")
    query = parse_match_recognize(statement, dialect=dialect)
    text = print_match_recognize(query, dialect)
    assert parse_match_recognize(text, dialect=dialect) == query
    assert print_match_recognize(parse_match_recognize(text, dialect=dialect), dialect) == text
    assert built(print_fluent(query)) == query


@pytest.mark.parametrize("length", [2, 31, 32, 33, 64, 65, 1000])
@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_long_chains_read_back(length, operator):
    node = parse_expression(f" {operator} ".join(f"c{i}" for i in range(length)))
    assert parse_expression(print_expression(node)) == node
    columns = [n.parts[0] for n in walk(node) if isinstance(n, Name)]
    assert columns == [f"c{i}" for i in range(length)]


@pytest.mark.parametrize("length", [31, 32, 33, 100])
def test_long_chains_built_by_hand_read_back(length):
    node: Expression = Name(("c",))
    for _ in range(length):
        node = Binary("and", node, Name(("c",)))
    assert parse_expression(print_expression(node)) == node
