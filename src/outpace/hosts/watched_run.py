"""A run in processes whose counts can be served while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outpace.hosts.run_watch import RunWatch


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
        from outpace.hosts.run_watch import RunWatch

        return RunWatch(self._name, self._counted, host, port)

    @property
    @abstractmethod
    def _name(self) -> str:
        """What the run is called."""

    @abstractmethod
    def _counted(self) -> Mapping[str, Mapping[str, float]]:
        """Return what is counted of its operators now, by their names."""
