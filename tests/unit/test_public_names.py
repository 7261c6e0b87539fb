"""What `import outpace as op` offers: each name is documented with an example.

Which names there are shows `docs/reference/api.md`, which a test compares.
"""

import doctest
import importlib.metadata
import inspect
import os
import subprocess
import sys

import pytest

import outpace


def test_all_public_names_are_listed_once() -> None:
    names = outpace.__all__
    assert len(names) == len(set(names))
    assert set(names) <= set(dir(outpace))


@pytest.mark.parametrize("name", outpace.__all__)
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


@pytest.mark.parametrize("program", ["import outpace", "from outpace.api import match"])
def test_nothing_is_loaded_before_it_is_used(program: str) -> None:
    """Arrow loads pandas, where it is installed, for the first value that is made."""
    heavy = ["pandas", "pyspark", "duckdb"]
    if program == "import outpace":
        heavy += ["numba", "outpace.simulate", "outpace.engine", "rich", "sqlglot"]
    told = f"import sys; {program}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_names_of_spark_are_documented() -> None:
    assert sorted(outpace.spark.__all__) == [
        "current",
        "metrics",
        "needed",
        "postgres",
        "session",
        "with_schema",
    ]
    assert all(inspect.getdoc(getattr(outpace.spark, name)) for name in outpace.spark.__all__)


FRESH = """
import os
import pyarrow.compute
import outpace

# The names of a module are found alike once it is loaded; those of a package may be modules.
packages = ("outpace", "outpace.hosts")
names = [n for home, all in outpace._HOMES.items() for n in (all if home in packages else all[:1])]
for name in names:
    # Each is asked for in a process that has loaded nothing else of outpace.
    if not (child := os.fork()):
        try:
            getattr(outpace, name)
        except BaseException as error:
            print(name, repr(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fresh process for each name takes too long")
def test_every_public_name_is_found_whatever_was_loaded_before() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert done.stdout == ""
