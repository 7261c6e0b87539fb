"""`outpace demo --local`: what it prints, the page it writes, and how commands fail."""

import os
import re
import subprocess
import sysconfig
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import outpace as op
from outpace.cli.demo import MEAN_GAP_MS
from outpace.cli.main import CommandGroup, app
from outpace.demo.page import MOST_POINTS, page_of, thinned
from outpace.demo.search import LARGE, Findings, deepest, find, local_host
from outpace.ingest.ticks import generate_ticks

ROWS = 4_000


@pytest.fixture(scope="module")
def found() -> Findings:
    ticks = generate_ticks(ROWS, mean_gap_ms=MEAN_GAP_MS)
    return find(ticks, local_host(ticks, nullcontext))


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def demo(rows: int, out: Path) -> tuple[int, str, str]:
    return run("demo", "--local", "--rows", str(rows), "--out", str(out))


def test_the_demo_writes_a_page_and_says_where(tmp_path: Path) -> None:
    code, out, _ = demo(ROWS, tmp_path / "deep" / "folder")
    assert code == 0
    page = tmp_path / "deep" / "folder" / "demo.html"
    assert out.splitlines()[-1].endswith(str(page))
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_demo_shows_counts_and_a_query(tmp_path: Path, found: Findings) -> None:
    _, out, _ = demo(ROWS, tmp_path)
    assert f"{ROWS:,} trades, searched in process" in out
    assert f"{found.dips.num_rows:,} dips" in out
    assert f"{found.rotations.num_rows:,} rotations" in out
    assert "STRT DOWN+ UP+" in out
    # The matches are in sight; the plan is on the page.
    assert out.index("trades, searched") < out.index("dips; the deepest")
    assert len(out.split("trades, searched")[0].splitlines()) < 25
    assert "automaton" not in out
    assert "automaton" in (tmp_path / "demo.html").read_text(encoding="utf-8")
    assert "on Spark" not in out


def test_a_table_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    _, out, _ = demo(ROWS, tmp_path)
    tables = out.split("trades, searched")[1].split("The trades:")[0]
    assert "dips; the deepest" in tables  # the matches come last
    assert "…" not in tables
    assert max(map(len, tables.splitlines())) <= 80


def test_the_demo_works_without_any_trade(tmp_path: Path) -> None:
    code, out, _ = demo(0, tmp_path)
    assert code == 0
    assert "0 trades" in out


def test_a_negative_number_of_rows_is_refused(tmp_path: Path) -> None:
    code, _, error = demo(-1, tmp_path)
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


def test_sell_offs_are_large_trades_with_two_falls_behind_them(found: Findings) -> None:
    counted = {row["symbol"]: row["sell_offs"] for row in found.sell_offs.to_pylist()}
    expected: dict[str, int] = {}
    for symbol in set(found.ticks["symbol"].to_pylist()):
        mine = [tick for tick in found.ticks.to_pylist() if tick["symbol"] == symbol]
        at = 0
        while at + 2 < len(mine):
            end = at
            while end + 1 < len(mine) and mine[end + 1]["price"] < mine[end]["price"]:
                end += 1
            if mine[at]["volume"] >= LARGE and end >= at + 2:
                expected[symbol] = expected.get(symbol, 0) + 1
                at = end
            at += 1
    assert counted == expected
    assert counted


def test_without_java_the_demo_searches_in_process(tmp_path: Path) -> None:
    script = Path(sysconfig.get_path("scripts")) / "outpace"
    own = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_REMOTE")}
    done = [
        subprocess.run(
            [str(script), "demo", "--rows", "10", "--out", str(tmp_path), *more],
            env=own | {"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        for more in ([], ["--master", "local[1]"])
    ]
    assert [one.returncode for one in done] == [0, 2]
    assert "10 trades, searched in process" in done[0].stdout
    assert "in process: Spark needs Java 17" in done[0].stderr
    assert "needs Java 17" in done[1].stderr


def test_the_deepest_dips_come_first(found: Findings) -> None:
    falls = [1 - dip["bottom"] / dip["top"] for dip in deepest(found.dips, 10).to_pylist()]
    every = sorted((1 - d["bottom"] / d["top"] for d in found.dips.to_pylist()), reverse=True)
    assert falls == pytest.approx(every[:10])


def test_the_page_loads_nothing_from_elsewhere(found: Findings) -> None:
    page = page_of(found)
    head, _, rest = page.partition("<section>")
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
