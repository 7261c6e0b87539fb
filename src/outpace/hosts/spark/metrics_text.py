"""Samples of metrics, and the text in which Prometheus reads them (exposition format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from outpace.hosts.spark.metrics_names import METRICS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a metric.

    Parameters
    ----------
    name
        The metric.
    labels
        What tells it apart from others of the metric.
    value
        The value.
    """

    name: str
    labels: Mapping[str, str]
    value: float


def prometheus_text(samples: Iterable[Sample]) -> str:
    r"""Return samples as text, those of a metric together, each metric with what it says.

    Examples
    --------
    >>> print(prometheus_text([Sample("outpace_batches_total", {"query": 'a "b"\n'}, 3)]), end="")
    # HELP outpace_batches_total Batches that were completed.
    # TYPE outpace_batches_total counter
    outpace_batches_total{query="a \"b\"\n"} 3
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for metric in METRICS:
        if metric.name in by_name:
            lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.sort.value}")
            lines += [_line(sample) for sample in by_name[metric.name]]
    return "".join(f"{line}\n" for line in lines)


def _line(sample: Sample) -> str:
    labels = ",".join(
        f'{name}="{_escaped(value, quotes=True)}"' for name, value in sample.labels.items()
    )
    return f"{sample.name}{{{labels}}} {_number(sample.value)}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
