"""What `import outpace as op` offers: exactly these names, each documented with an example."""

import doctest
import importlib.metadata
import inspect
import subprocess
import sys
import types

import pytest

import outpace

NAMES = [
    "BindError",
    "DataError",
    "EventOperator",
    "InOrder",
    "InstanceError",
    "KSlack",
    "MatchError",
    "Operator",
    "OutpaceError",
    "PatternSyntaxError",
    "Query",
    "RateControl",
    "Run",
    "ScenarioError",
    "Search",
    "StateError",
    "StreamMatcher",
    "UnsupportedError",
    "Watermark",
    "classifier",
    "col",
    "explain",
    "first",
    "fn",
    "last",
    "lit",
    "match",
    "match_number",
    "next",
    "open",
    "parquet",
    "permute",
    "prev",
    "resume",
    "run",
    "search",
    "sql",
    "step",
]


def public_names() -> list[str]:
    """What a user sees: no private names, no submodules, not the `annotations` of the future."""
    return sorted(
        name
        for name, value in vars(outpace).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name not in ("annotations", "TYPE_CHECKING")
    )


def test_exactly_these_names_are_public() -> None:
    assert public_names() == NAMES


def test_type_checkers_see_the_same_names() -> None:
    assert sorted(outpace.__all__) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented_with_an_example(name: str) -> None:
    value = getattr(outpace, name)
    target = value if inspect.isclass(value) or inspect.isfunction(value) else type(value)
    text = inspect.getdoc(target)
    assert text
    assert doctest.DocTestParser().get_examples(text)


def test_the_version_is_that_of_the_package() -> None:
    assert outpace.__version__ == importlib.metadata.version("outpace")
    with pytest.raises(AttributeError, match="no attribute 'vesrion'"):
        getattr(outpace, "vesrion")  # noqa: B009 - type checkers know that it is not there


def test_the_import_loads_no_pandas() -> None:
    """Arrow loads it, where it is installed, for the first value that is made: half a second."""
    program = "import sys, outpace; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
