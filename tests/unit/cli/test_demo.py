"""`outpace demo`: what it prints, the page it writes, and how commands fail."""

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import outpace as op
from outpace.cli.demo_page import MOST_POINTS, page_of, thinned
from outpace.cli.demo_search import CHAINS, STAGES, Findings, deepest, find
from outpace.cli.main import CommandGroup, app
from outpace.testing.ticks import generate_ticks

ROWS = 1_500


@pytest.fixture(scope="module")
def found() -> Findings:
    return find(ROWS, lambda stage: None)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_the_demo_writes_a_page_and_says_where(tmp_path: Path) -> None:
    code, out, _ = run("demo", "--rows", str(ROWS), "--out", str(tmp_path / "deep" / "folder"))
    assert code == 0
    page = tmp_path / "deep" / "folder" / "demo.html"
    assert out.splitlines()[-1].endswith(str(page))
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_demo_shows_counts_and_a_plan(tmp_path: Path, found: Findings) -> None:
    _, out, _ = run("demo", "--rows", str(ROWS), "--out", str(tmp_path))
    assert f"{ROWS:,} trades" in out
    assert f"{found.dips.num_rows:,} dips" in out
    assert f"{found.chains:,} chains" in out
    assert "STRT DOWN+ UP+" in out


def test_the_demo_works_without_any_trade(tmp_path: Path) -> None:
    code, out, _ = run("demo", "--rows", "0", "--out", str(tmp_path))
    assert code == 0
    assert "0 trades" in out


def test_a_negative_number_of_rows_is_refused(tmp_path: Path) -> None:
    code, _, error = run("demo", "--rows", "-1", "--out", str(tmp_path))
    assert code == 2
    assert "--rows" in error


def test_dips_are_dips(found: Findings) -> None:
    dips = found.dips.to_pylist()
    assert len(dips) > 50
    assert all(dip["bottom"] < dip["top"] for dip in dips)
    assert all(dip["bottom"] < dip["recovered"] for dip in dips)
    assert all(dip["starts"] < dip["bottom_at"] < dip["ends"] for dip in dips)


def test_rotations_go_through_three_symbols(found: Findings) -> None:
    rotations = found.rotations.to_pylist()
    assert rotations
    assert all(len({m["first"], m["second"], m["third"]}) == 3 for m in rotations)


def test_chains_are_counted_as_if_listed() -> None:
    few = generate_ticks(150)
    assert op.search(few, CHAINS).count() == op.match(few, CHAINS).num_rows > 0


def test_the_deepest_dips_come_first(found: Findings) -> None:
    falls = [1 - dip["bottom"] / dip["top"] for dip in deepest(found.dips, 10).to_pylist()]
    every = sorted((1 - d["bottom"] / d["top"] for d in found.dips.to_pylist()), reverse=True)
    assert falls == pytest.approx(every[:10])


def test_every_stage_is_announced() -> None:
    stages: list[str] = []
    find(10, stages.append)
    assert len(stages) == STAGES


def test_the_page_loads_nothing_from_elsewhere(found: Findings) -> None:
    page = page_of(found)
    head, _, rest = page.partition("<div class=")
    loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=", page)
    assert "Plotly.newPlot" in rest
    assert "<title>" in head
    assert not loaded


def test_a_long_line_is_thinned_and_keeps_its_extremes() -> None:
    prices = generate_ticks(20 * MOST_POINTS)["price"].to_numpy()
    kept = thinned(prices)
    assert len(kept) <= MOST_POINTS
    assert sorted(set(kept)) == list(kept)
    assert prices[kept].min() == prices.min()
    assert prices[kept].max() == prices.max()


def test_an_error_of_outpace_is_printed_and_exits_with_2() -> None:
    group = typer.Typer(cls=CommandGroup)
    group.callback()(lambda: None)

    @group.command()
    def parse(pattern: str) -> None:
        op.Query().pattern(pattern)

    result = CliRunner().invoke(group, ["parse", "A{"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("[syntax] expected a quantifier bound")
