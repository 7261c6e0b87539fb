"""The page of the Python API is what the docstrings give, and leaves no public name out."""

import dataclasses
import importlib
import runpy
from pathlib import Path
from types import ModuleType

import outpace as op

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "write_api.py"


def test_the_page_is_what_the_docstrings_give() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert page == script["written"](), f"run {SCRIPT.name} and look at what it changed"
    assert all(f"### `op.{name}`\n" in page for name in op.__all__)
    for prefix, name in script["MODULES"].items():
        module = importlib.import_module(name)
        for public in module.__all__:
            if isinstance(getattr(module, public), ModuleType):
                assert f"## {prefix}.{public}\n" in page
            else:
                assert f"### `{prefix}.{public}`\n" in page


def test_the_keys_of_scenario_files_are_what_the_docstrings_give() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["SCENARIO_PAGE"].read_text(encoding="utf-8")
    assert page == script["scenario_written"](page), f"run {SCRIPT.name}"
    for name, kind in script["SCENARIO_VALUES"].items():
        if dataclasses.fields(kind):
            assert f"<!-- keys: {name} -->" in page
    for kinds in (*script["KINDS"].values(), script["PLACEMENTS"]):
        assert all(f"`{name}`" in page for name in kinds)


def test_every_argument_of_a_public_name_is_documented() -> None:
    assert runpy.run_path(str(SCRIPT))["undocumented"]() == {}


def test_an_argument_without_a_word_is_found() -> None:
    script = runpy.run_path(str(SCRIPT))

    class Base:
        """A base.

        Parameters
        ----------
        one, two
            Its settings.
        """

        def __init__(self, one: int, two: int) -> None: ...

        def act(self, how: str, *, why: str) -> None:
            """Act.

            Parameters
            ----------
            how
                In which way.
            """

    class Other(Base):
        """Another one."""

        def __init__(self, two: int, three: int, _own: int) -> None: ...

        def act(self, how: str, *, why: str) -> None:
            """Act otherwise."""

    documented, lacking = script["_documented"], script["_lacking"]
    assert lacking(Base, documented(Base)) == []
    assert lacking(Other, documented(Other)) == ["three"]
    assert documented(Other) == [("`one, two`", "Its settings.")]
    assert lacking(Other.act, documented(Other.act, Other)) == ["why"]
