"""The operator of the study `skip` beside loops in C, and with recovery beside without.

Run `python bench/recover.py`; `--help` lists the options. The query is `abcde` among ten types,
each step with the next event, in windows of 1000 events. Loops in C, compiled by `cc`, find matches
and keep their first and last events: `one` steps one automaton with each event, in windows that do
not overlap; `each` steps that of every window that an event is in, and finds the same matches. All
take turns, and the processor time counts. Prints a JSON object for each: nanoseconds an event in
the median, and the ratio to each other one: its median, least and greatest. The exit code is 1
where counts differ.

The operator with recovery is asked for a savepoint behind 16 384 events, as a stream does, which
acknowledges all matches.
"""

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from outpace.compiler.kernel import load_numba
from outpace.engine.message import EventsArrived, MatchesAcknowledged
from outpace.engine.operator import WholeOperator, matches_of
from outpace.engine.recover.recoverable import RecoverableOperator, savepoint_of
from outpace.hosts.local.recoverable import NOTICE_EVENTS
from outpace.studies.skip import SIZE, random_events, sequence_spec

LOOPS = """
#include <stdint.h>
#define STEPS 5
/* One automaton, which begins anew every `size` events. */
long one(const int8_t *type, long events, long size, int64_t *first, int64_t *last) {
    long found = 0, begun = 0, left = 0;
    int step = 0;
    for (long at = 0; at < events; at++) {
        if (left-- == 0) { left = size - 1; step = 0; }
        if (type[at] != step) continue;
        if (step == 0) begun = at;
        if (++step == STEPS) { first[found] = begun; last[found++] = at; step = 0; }
    }
    return found;
}
/* One automaton for each open window; the windows take their places in turn. */
long each(const int8_t *type, long events, long size, long slide, int64_t *first, int64_t *last) {
    long found = 0, open = 0, oldest = 0, places = (size + slide - 1) / slide + 1;
    int step[places];
    long begun[places], end[places];
    long next = -((size - 1) / slide) * slide;
    for (long at = 0; at < events; at++) {
        for (; next <= at; next += slide) {
            long place = (oldest + open++) % places;
            step[place] = 0;
            end[place] = next + size;
        }
        while (open && end[oldest] <= at) { oldest = (oldest + 1) % places; open--; }
        for (long place = oldest, left = open; left; left--) {
            if (type[at] == step[place]) {
                if (step[place] == 0) begun[place] = at;
                if (++step[place] == STEPS) {
                    first[found] = begun[place]; last[found++] = at; step[place] = 0;
                }
            }
            if (++place == places) place = 0;
        }
    }
    return found;
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="events")
    parser.add_argument("--slide", type=int, default=50)
    parser.add_argument("--block", type=int, default=65_536, help="events of a push")
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    load_numba()
    events = random_events(options.n, 1)
    ways = {
        "without recovery": lambda: pushed(WholeOperator, events, options),
        "with recovery": lambda: pushed(RecoverableOperator, events, options),
    }
    with tempfile.TemporaryDirectory() as folder:
        loops = compiled(Path(folder))
        if loops is not None:
            types = events["type"].to_numpy()
            ways["C, one window an event"] = lambda: looped(loops.one, types, SIZE)
            ways["C, each window"] = lambda: looped(loops.each, types, SIZE, options.slide)
        measured = {way: [] for way in ways}
        counts = {way: act()[1] for way, act in ways.items()}  # What is compiled is loaded.
        for _ in range(options.turns):
            for way, act in ways.items():
                measured[way].append(act()[0])
    for way, taken in measured.items():
        ratios = {
            f"of {other}": [
                round(statistics.median(these), 2),
                round(min(these), 2),
                round(max(these), 2),
            ]
            for other, those in measured.items()
            if other != way and not way.startswith("C,")
            for these in [[own / one for own, one in zip(taken, those, strict=True)]]
        }
        each = round(1e9 * statistics.median(taken) / options.n, 1)
        print(json.dumps({"way": way, "matches": counts[way], "ns_an_event": each, **ratios}))
    if len({count for way, count in counts.items() if way != "C, one window an event"}) > 1:
        sys.exit("counts differ")


def compiled(folder):
    """Return the loops; None where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("no loops in C: there is no cc", file=sys.stderr)
        return None
    source, library = folder / "loops.c", folder / "loops.so"
    source.write_text(LOOPS)
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def looped(loop, types, *sizes):
    """Return how long a loop takes, and how many matches it finds."""
    began = time.process_time()
    room = [np.empty(len(types), np.int64) for _ in range(2)]
    loop.restype = ctypes.c_long
    longs = [ctypes.c_long(one) for one in (len(types), *sizes)]
    found = loop(
        types.ctypes.data_as(ctypes.c_void_p),
        *longs,
        *(one.ctypes.data_as(ctypes.c_void_p) for one in room),
    )
    return time.process_time() - began, found


def pushed(kind, events, options):
    """Return how long an operator takes, and how many matches it finds."""
    operator, found, since = kind(sequence_spec(options.slide)), 0, 0
    began = time.process_time()
    for low in range(0, events.num_rows, options.block):
        piece = events.slice(low, options.block)
        found += matches_of(operator.step(EventsArrived(piece))).num_rows
        since += piece.num_rows
        if isinstance(operator, RecoverableOperator) and since >= NOTICE_EVENTS:
            savepoint_of(operator.step(MatchesAcknowledged(operator.last_match)))
            since = 0
    return time.process_time() - began, found


if __name__ == "__main__":
    main()
