"""Plots over time show what the history has, and at most so many curves."""

from __future__ import annotations

import numpy as np
from support.simulated import chain

from outpace.report.plots import CURVES, plots_over_time
from outpace.simulate import VM, Consumer, OperatorModel, Producer, Scenario, Uniform, simulate


def scenario(copies: int, warm_up: float = 0.0) -> Scenario:
    queries = tuple(
        chain(Producer("in", Uniform(10 + n)), OperatorModel("op", 1e6), Consumer("out")).copy(
            str(n)
        )
        for n in range(copies)
    )
    return Scenario(queries, (VM("worker", mips=50 * copies),), duration=6, warm_up=warm_up)


def test_curves_are_the_history() -> None:
    result = simulate(scenario(2))
    plots = dict(plots_over_time(result))
    history = result.consumer_history().to_pydict()
    for title, column, scale in (("Latency", "latency", 1000), ("Throughput", "throughput", 1)):
        plot = plots[f"{title} by consumer"]
        assert [curve.name for curve in plot.data] == ["0/out", "1/out"]
        for curve in plot.data:
            rows = [n for n, name in enumerate(history["consumer"]) if name == curve.name]
            assert list(curve.x) == [history["time"][n] for n in rows]
            shown = np.array(curve.y, float)
            np.testing.assert_allclose(shown, [scale * history[column][n] for n in rows])
    assert [curve.name for curve in plots["Utilisation by VM"].data] == ["worker"]
    operators = {curve.name: curve for curve in plots["Utilisation by vertex"].data}
    assert set(operators) == {f"{n}/{vertex}" for n in range(2) for vertex in ("in", "op", "out")}
    # 10 and 11 events of a million instructions in each second, of 100 million.
    shown = [list(operators[f"{n}/op"].y)[-1] for n in range(2)]
    np.testing.assert_allclose(shown, [10, 11], rtol=0.01)


def test_only_the_greatest_of_many_curves_are_shown() -> None:
    copies = CURVES + 3
    plots = dict(plots_over_time(simulate(scenario(copies))))
    plot = plots[f"Throughput by consumer, {CURVES} of {copies}"]
    assert [curve.name for curve in plot.data] == [f"{n}/out" for n in range(3, copies)]
    looks = {(curve.line.color, curve.line.dash) for curve in plot.data}
    assert len(looks) == CURVES


def test_the_warm_up_is_marked() -> None:
    plain, marked = (dict(plots_over_time(simulate(scenario(1, w)))) for w in (0.0, 2.0))
    assert not plain["Queue by vertex"].layout.shapes
    assert marked["Queue by vertex"].layout.shapes[0].x1 == 2.0
