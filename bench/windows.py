"""How fast events are told apart into windows, from one open window to 100 000.

Run `python bench/windows.py`; `--help` lists the options. Windows of 1 000 000 events, and of as
many units of time, start every 1 000 000, 1000 and 10 events. With `--keys` each key has windows of
its own, which hold its part of the events: as many windows are open over all keys, but at least one
for each. Events come in blocks that are made before. Measured is, in turn and many times, of which
the best counts:

- `split`: the splitter alone;
- `number`: rows become numbered events and are split, which is what every event pays;
- `read`: the same, and every column of the windows that open and close is read, more than what
  takes them does.

Prints a JSON object for each of them, each kind and slide: keys (0 without), events per second, the
ratio to one open window, the windows that are open at most, and the integers that are kept.
"""

import argparse
import json
import time

import numpy as np
import pyarrow as pa

from outpace import windows
from outpace.engine.window.contract import Events
from outpace.engine.window.feed import Feed
from outpace.engine.window.split import make_splitter
from outpace.pattern.bind import bind
from outpace.pattern.bind_windows import bind_windows
from outpace.pattern.query import Query

SIZE = 1_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4_000_000, help="the number of events")
    parser.add_argument("--block", type=int, default=65_536, help="events of a block")
    parser.add_argument("--slides", default="1000000,1000,10", help="numbers, with commas")
    parser.add_argument("--keys", type=int, default=0, help="how many keys take turns")
    parser.add_argument("--turns", type=int, default=25, help="how often each is measured")
    options = parser.parse_args()
    slides = [int(slide) for slide in options.slides.split(",")]
    keys = max(1, options.keys)
    stream = blocks(options.n, options.block, keys)
    specs = {
        # Events of a key are counted, and time is the same for all.
        "count": lambda slide: windows.count(SIZE // keys, slide=min(slide, SIZE // keys)),
        "time": lambda slide: windows.time(SIZE, slide=min(slide * keys, SIZE)),
    }
    cases = [(what, kind, slide) for what in MEASURED for kind in specs for slide in slides]
    found = {case: [] for case in cases}
    for _ in range(options.turns):
        for what, kind, slide in cases:
            query = Query().order_by("ts").pattern("A").measures(n="COUNT(*)")
            query = query.partition_by("key") if options.keys else query
            query = query.over(specs[kind](slide))
            found[what, kind, slide].append(measured(MEASURED[what], query, stream))
    for what, kind, slide in cases:
        seconds, most, kept = min(found[what, kind, slide])
        alone = min(found[what, kind, slides[0]])[0]
        result = {
            "measured": what,
            "kind": kind,
            "keys": options.keys,
            "slide": slide,
            "events_per_s": round(options.n / seconds),
            "ratio": round(alone / seconds, 2),
            "open_windows": most,
            "integers_kept": kept,
        }
        print(json.dumps(result))


def blocks(count, size, keys):
    """Make events of keys that take turns, at one unit of time each."""
    numbers = np.arange(count, dtype=np.int64)
    partition, ordinal = numbers % keys, numbers // keys
    rows = pa.table({"ts": numbers, "key": partition})
    return [
        Events(
            rows.slice(low, size),
            partition[low : low + size],
            ordinal[low : low + size],
            numbers[low : low + size],
            numbers[low : low + size],
        )
        for low in range(0, count, size)
    ]


def split(splitter, feed, events):
    """Split events that are numbered already."""
    return splitter.push(events)


def number(splitter, feed, events):
    """Number rows as events, and split them."""
    numbered = feed.number(events.rows)
    said = splitter.push(numbered)
    feed.take(numbered)
    return said


def read(splitter, feed, events):
    """Number and split events, and read all that is said of windows."""
    said = number(splitter, feed, events)
    return said.opened.columns, said.closed.columns


MEASURED = {"split": split, "number": number, "read": read}


def measured(take, query, stream):
    """Return the seconds that a splitter takes, the most open windows, and what it keeps."""
    schema = stream[0].rows.schema
    bound = bind_windows(query, schema)
    feed, splitter = Feed(bind(query, schema), bound), make_splitter(bound)
    most = 0
    begin = time.perf_counter()
    for events in stream:
        take(splitter, feed, events)
        most = max(most, splitter.open_windows)
    kept = splitter.integers_kept
    splitter.finish()
    return time.perf_counter() - begin, most, kept


if __name__ == "__main__":
    main()
