"""What is counted of a run in processes, served for `outpace top` and for Prometheus."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from outpace.hosts.spark.metrics import VERSION
from outpace.hosts.spark.metrics_names import OPERATOR
from outpace.hosts.spark.metrics_server import MetricsServer
from outpace.hosts.spark.metrics_text import Sample, prometheus_text

#: Of operators by name: what `OPERATOR` names, as far as it is known.
Counts = Mapping[str, Mapping[str, float]]

_NUMBERS: Final = itertools.count()


class RunWatch:
    """Serves what is counted of a run, see `Run.watch` and `GraphRun.watch`.

    Parameters
    ----------
    name
        That of the run.
    counted
        Returns what is counted of its operators now.
    host, port
        Where to listen; 0 is any free port, and None the first free one that `outpace top` looks
        at.

    Examples
    --------
    >>> with RunWatch("pairs", lambda: {"pairs": {"events": 7}}, "127.0.0.1", 0) as watch:
    ...     watch.values()["samples"][0]["name"], watch.url.startswith("http://127.0.0.1:")
    ('outpace_operator_events_total', True)
    """

    def __init__(
        self, name: str, counted: Callable[[], Counts], host: str, port: int | None
    ) -> None:
        self._name, self._counted = name, counted
        self._id = f"{os.getpid()}-{next(_NUMBERS)}"
        self._server = MetricsServer(self.text, self.values, host, port)

    @property
    def url(self) -> str:
        """Where the metrics are: add `/metrics` or `/metrics.json`."""
        return self._server.url

    def text(self) -> str:
        """Return all metrics as Prometheus reads them."""
        return prometheus_text(self._samples())

    def values(self) -> dict[str, Any]:
        """Return all metrics as JSON has them."""
        run = {"id": self._id, "name": self._name, "running": True, "error": None, "history": []}
        samples = [
            {"name": one.name, "labels": dict(one.labels), "value": one.value}
            for one in self._samples()
        ]
        return {"version": VERSION, "queries": [run], "samples": samples}

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def __enter__(self) -> RunWatch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _samples(self) -> Iterator[Sample]:
        for operator, counted in self._counted().items():
            labels = {"query": self._name, "id": self._id, "operator": operator}
            for key, metric in OPERATOR.items():
                if key in counted:
                    yield Sample(metric.name, labels, float(counted[key]))


class WatchedRun(ABC):
    """What `Run` and `GraphRun` have in common: somebody may watch them."""

    def watch(self, *, port: int | None = None, host: str = "127.0.0.1") -> RunWatch:
        """Serve what is counted, for `outpace top` and Prometheus, until it is closed.

        Parameters
        ----------
        port
            Where to listen. By default the first free one of ten from 9468 on, which is where
            `outpace top` looks; 0 is any free one.
        host
            The address to listen on; whoever reaches it reads the metrics.
        """
        return RunWatch(self._name, self._counted, host, port)

    @property
    @abstractmethod
    def _name(self) -> str:
        """What the run is called."""

    @abstractmethod
    def _counted(self) -> Counts:
        """Return what is counted of its operators now, by their names."""
