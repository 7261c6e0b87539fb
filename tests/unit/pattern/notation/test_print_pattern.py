import pytest

from outpace.errors import BindError
from outpace.pattern.ast import Repeat, Var
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.notation.print_pattern import print_pattern


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("((A))", "A"),
        ("(A B) (C)", "A B C"),
        ("A->B->>C", "A -> B ->> C"),
        ("A|(B|C) D", "A | (B | C) D"),
        ("(A B)|C", "A B | C"),
        ("(A|B)+", "(A | B)+"),
        ("(A){1,}?", "A+?"),
        ("A{0,1}+ B{0,} C{2,2} D{0,3} E{2,5}", "A?+ B* C{2} D{,3} E{2,5}"),
        ("(A+)+", "(A+)+"),
        ("A -> B(->)+", "A -> B+"),
        ("A -> B(.)+", "A -> B(.)+"),
        ("A B(->>)+", "A B(->>)+"),
        ("A -> (B+ C)+", "A -> (B+ C)+"),
        ("A -> (B(->)+ C)+", "A -> (B(->)+ C)+"),
        ('"A" `b` "c d" "order" "permute"', 'A b "c d" "order" "permute"'),
        ("{-A-} permute(A,B) ^ $ () !B", "{- A -} PERMUTE(A, B) ^ $ () !B"),
        ("(A+ UNTIL b)", "A+ UNTIL b"),
    ],
)
def test_prints_no_more_than_needed(text, shortest):
    assert print_pattern(parse_pattern(text)) == shortest


def test_a_tree_that_is_too_deep_is_refused():
    tree = Var("A")
    for _ in range(5_000):
        tree = Repeat(tree, 1, None)
    with pytest.raises(BindError, match="nested deeper"):
        print_pattern(tree)
