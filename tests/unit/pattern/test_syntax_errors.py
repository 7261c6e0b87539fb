"""Bad texts and their exact messages, from `tests/data/bad_syntax.txt`.

Each block there is `== notation`, the text, `--`, and the whole message.
"""

import re
from pathlib import Path

import pytest

from outpace.errors import OutpaceError, PatternSyntaxError
from outpace.pattern.duration import parse_duration
from outpace.pattern.notation.parse_expression import parse_expression
from outpace.pattern.notation.parse_match_recognize import parse_match_recognize
from outpace.pattern.notation.parse_pattern import parse_pattern
from outpace.pattern.notation.parse_type import parse_type

PARSERS = {
    "pattern": parse_pattern,
    "expression": parse_expression,
    "match_recognize": parse_match_recognize,
    "duration": parse_duration,
    "type": parse_type,
}
FILE = Path(__file__).parents[2] / "data" / "bad_syntax.txt"
BLOCKS = re.findall(
    r"^== (\w+)\n(.*?)\n--\n(.*?)(?=\n\n==|\n\Z)", FILE.read_text(), re.DOTALL | re.MULTILINE
)


def test_the_file_is_read_whole():
    assert len(BLOCKS) == FILE.read_text().count("== ") > 150


@pytest.mark.parametrize(
    ("notation", "text", "message"), BLOCKS, ids=[f"{kind} {text}" for kind, text, _ in BLOCKS]
)
def test_bad_text_is_refused_with_its_place(notation, text, message):
    with pytest.raises(OutpaceError) as caught:
        PARSERS[notation](text)
    assert str(caught.value) == message


def test_thousands_of_parentheses_are_refused():
    deep = "(" * 9_000
    with pytest.raises(PatternSyntaxError) as caught:
        parse_pattern(deep)
    assert caught.value.message == "groups are nested deeper than 64 levels"
    with pytest.raises(PatternSyntaxError) as caught:
        parse_expression(deep)
    assert caught.value.message == "expressions are nested deeper than 64 levels"
    with pytest.raises(PatternSyntaxError) as caught:
        parse_match_recognize(f"PATTERN ({deep}")
    assert caught.value.message == "groups are nested deeper than 64 levels"
    with pytest.raises(PatternSyntaxError) as caught:
        parse_match_recognize(f"PATTERN (a) DEFINE a AS {deep}")
    assert caught.value.message == "expressions are nested deeper than 64 levels"
