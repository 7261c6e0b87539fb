"""Find patterns in event streams: `match` on tables, `open` on streams, `sql` on databases.

The public names, nothing else:

- `Query` and the builders `step`, `permute`, `col`, `lit`, `prev`, `next`, `first`, `last`, `fn`:
  write a pattern in Python;
- `match`, `search`, `open`, `resume`, `run`, `sql`: run it; `replay`: run a recorded stream again;
- `graph`: operators whose matches are the events of others, each in a process of its own;
- `join` and `Join`: two tables or streams as one, also as the input of a query;
- `parquet`: name files as the input of `match`;
- `explain`: see how it runs;
- `windows`: which stretches of a stream a query looks at;
- `Operator`, `EventOperator`, `SharedOperator` with `WindowBlock` and `WindowRows`: what is run in
  windows in place of a pattern;
- `KSlack` and all other kinds of disorder (`outpace.pattern.disorder`): how far the events of a
  stream are out of order; `CurrentMatches`: what follows matches that are corrected;
  `checkpoints`: where the operator notes how it stands for that;
- `log`: events in files that streams are read from; `ingest`: the clocks of sources;
- `recover`: what retains the events of a stream that is recovered without saved state;
- `schedulers`: which instance matches a window; `sources`: where events of `run` come from;
- `spark.session`: a Spark session for scripts;
- `simulate`: what latency and throughput queries will have on which machines;
- `__version__`: which version this is.

A name is loaded when it is first used, so that the import itself takes no longer than Arrow's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from outpace.pattern.query import Query, QueryExplanation, register_explainer

if TYPE_CHECKING:
    from outpace import checkpoints as checkpoints
    from outpace import ingest as ingest
    from outpace import log as log
    from outpace import recover as recover
    from outpace import schedulers as schedulers
    from outpace import simulate as simulate
    from outpace import sources as sources
    from outpace import windows as windows
    from outpace.api import explain, join, match, search, sql
    from outpace.errors import (
        BindError,
        DataError,
        InstanceError,
        MatchError,
        OutpaceError,
        PatternSyntaxError,
        ScenarioError,
        StateError,
        UnsupportedError,
    )
    from outpace.files.parquet import parquet
    from outpace.hosts import spark as spark
    from outpace.hosts.graph.graph import Graph, graph
    from outpace.hosts.graph.graph_run import GraphRun
    from outpace.hosts.local.current import CurrentMatches
    from outpace.hosts.local.group import GroupMatcher
    from outpace.hosts.local.join import JoinStream
    from outpace.hosts.local.open import open_query as open
    from outpace.hosts.local.open import resume_query as resume
    from outpace.hosts.local.replay import Replay, ReplayedStep, replay
    from outpace.hosts.local.stream import StreamMatcher
    from outpace.hosts.local.table import Search
    from outpace.hosts.local.threads import set_threads
    from outpace.hosts.processes.control import RateControl
    from outpace.hosts.processes.run import Run, run
    from outpace.pattern.builder import (
        classifier,
        col,
        first,
        fn,
        last,
        lit,
        match_id,
        match_number,
        next,
        permute,
        prev,
        step,
    )
    from outpace.pattern.disorder import *  # noqa: F403  # every kind; the module lists them
    from outpace.pattern.group import QueryGroup, group
    from outpace.pattern.join import Join
    from outpace.pattern.operator import (
        EventOperator,
        Operator,
        SharedOperator,
        WindowBlock,
        WindowRows,
    )

    __version__: str

__all__ = [
    "BindError",
    "CurrentMatches",
    "DataError",
    "EventOperator",
    "Graph",
    "GraphRun",
    "GroupMatcher",
    "InstanceError",
    "Join",
    "JoinStream",
    "MatchError",
    "Operator",
    "OutpaceError",
    "PatternSyntaxError",
    "Query",
    "QueryGroup",
    "RateControl",
    "Replay",
    "ReplayedStep",
    "Run",
    "ScenarioError",
    "Search",
    "SharedOperator",
    "StateError",
    "StreamMatcher",
    "UnsupportedError",
    "WindowBlock",
    "WindowRows",
    "classifier",
    "col",
    "explain",
    "first",
    "fn",
    "graph",
    "group",
    "join",
    "last",
    "lit",
    "match",
    "match_id",
    "match_number",
    "next",
    "open",
    "parquet",
    "permute",
    "prev",
    "replay",
    "resume",
    "run",
    "search",
    "set_threads",
    "sql",
    "step",
]

#: Where public names live, by module; each module is loaded when one of its names is first used.
_HOMES: Final = {
    "outpace": (
        *("checkpoints", "ingest", "log", "recover"),
        *("schedulers", "simulate", "sources", "windows"),
    ),
    "outpace.hosts": ("spark",),
    "outpace.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "outpace.hosts.graph.graph": ("Graph", "graph"),
    "outpace.hosts.graph.graph_run": ("GraphRun",),
    "outpace.api": ("explain", "join", "match", "search", "sql"),
    "outpace.hosts.local.current": ("CurrentMatches",),
    "outpace.hosts.local.group": ("GroupMatcher",),
    "outpace.hosts.local.table": ("Search",),
    "outpace.hosts.local.threads": ("set_threads",),
    "outpace.hosts.processes.control": ("RateControl",),
    "outpace.hosts.processes.run": ("Run", "run"),
    "outpace.hosts.local.replay": ("Replay", "ReplayedStep", "replay"),
    "outpace.hosts.local.join": ("JoinStream",),
    "outpace.hosts.local.open": ("open", "resume"),
    "outpace.hosts.local.stream": ("StreamMatcher",),
    "outpace.pattern.builder": (
        *("classifier", "col", "first", "fn", "last", "lit", "match_id", "match_number", "next"),
        "permute",
        *("prev", "step"),
    ),
    "outpace.pattern.disorder": (
        *("AQKSlack", "InOrder", "KSlack", "LDOP", "MPKSlack", "Punctuation", "Quantile"),
        *("Sequence", "Speculative"),
    ),
    "outpace.pattern.group": ("QueryGroup", "group"),
    "outpace.pattern.join": ("Join",),
    "outpace.pattern.operator": (
        *("EventOperator", "Operator", "SharedOperator", "WindowBlock", "WindowRows"),
    ),
    "outpace.files.parquet": ("parquet",),
}
__all__ += _HOMES["outpace.pattern.disorder"]
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES: Final = frozenset(
    f"{home}.{name}" for home in ("outpace", "outpace.hosts") for name in _HOMES[home]
)
#: Names that would hide Python's own where they live.
_NAMES_THERE: Final = {"open": "open_query", "resume": "resume_query"}


def _explain(query: Query, data: object) -> QueryExplanation:
    from outpace.api import explain

    return explain(query, data)


register_explainer(_explain)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version

            return version("outpace")
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'outpace' has no attribute '{name}'")
        if f"{home}.{name}" in _SUBMODULES:
            return importlib.import_module(f"{home}.{name}")
        value = globals()[name] = getattr(
            importlib.import_module(home), _NAMES_THERE.get(name, name)
        )
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
