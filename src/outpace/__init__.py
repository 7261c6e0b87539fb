"""Find patterns in event streams: `match` on tables, `open` on streams, `sql` on databases.

The public names, nothing else:

- `Query` and the builders `step`, `permute`, `col`, `lit`, `prev`, `next`, `first`, `last`, `fn`:
  write a pattern in Python;
- `match`, `search`, `open`, `resume`, `run`, `sql`: run it;
- `parquet`: name files as the input of `match`;
- `explain`: see how it runs;
- `windows`: which stretches of a stream a query looks at;
- `InOrder`, `KSlack`, `Watermark`: how far the events of a stream are out of order;
- `log`: events in files that streams are read from;
- `schedulers`: which instance matches a window; `sources`: where events of `run` come from;
- `spark.session`: a Spark session for scripts;
- `simulate`: what latency and throughput queries will have on which machines;
- `__version__`: which version this is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace import log as log
from outpace import schedulers as schedulers
from outpace import simulate as simulate
from outpace import sources as sources
from outpace import spark as spark
from outpace import windows as windows
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
from outpace.host import explain, match, search, sql
from outpace.local.match import Search
from outpace.local.parallel.control import RateControl
from outpace.local.parallel.host import Run, run
from outpace.local.stream import StreamMatcher
from outpace.local.stream import open_query as open
from outpace.local.stream import resume_query as resume
from outpace.pattern.builder import (
    classifier,
    col,
    first,
    fn,
    last,
    lit,
    match_number,
    next,
    permute,
    prev,
    step,
)
from outpace.pattern.disorder import InOrder, KSlack, Watermark
from outpace.pattern.operator import EventOperator, Operator
from outpace.pattern.query import Query
from outpace.plan.files import parquet

__all__ = [
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

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        # Only who asks for the version waits for the package's metadata.
        if name == "__version__":
            from importlib.metadata import version

            return version("outpace")
        raise AttributeError(f"module 'outpace' has no attribute '{name}'")
