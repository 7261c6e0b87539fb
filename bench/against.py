"""Whether this tree is as fast as an older commit, measured in turns, and its state as small.

Run `python bench/against.py REV`; `--help` lists the options, `--list` the names. Each measurement
has a process of its own, first of one tree and then of the other, next time the other way round, so
that what else runs on the machine meets both. The older commit is checked out below `build/against`
for as long as this runs; its compiled kernels stay there. Before anything counts, each tree
compiles all kernels, as its Makefile says, and measures once for what only its queries need.

A ratio is new to old, as rates: 1.1 is a tenth faster, whether events per second, microseconds or
bytes were measured. It is the median of the ratios of all turns; beside it stand the least and the
greatest, which tell how noisy the machine was. What is below `--least` after all turns is measured
as often again before it counts. The exit code is 1 where a ratio is below `--least`, or where saved
state has grown.

Only public names of the library are used, since all else may differ between the commits; what the
older one has no names for is left out. Where one core does all, processor time is measured and not
the time on the wall.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
KEPT = PROJECT / "build" / "against"

#: Events of a block where rates are measured.
BLOCK = 65_536


# --- What is measured, in a process of its own --------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A figure; `better` says whether a higher or a lower one is."""

    name: str
    value: float
    unit: str
    better: str = "higher"


def rate_of(run: Callable[[], Any], events: int, repeat: int = 5) -> float:
    """Return events per second of processor time, the median of some runs after one."""
    run()
    wait_for_compiler()
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return events / statistics.median(seconds)


def wait_for_compiler() -> None:
    """Let what is compiled in the background be done, and be in the cache for the next process."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(timeout=120)


def chain(**more: str) -> Any:
    import outpace as op

    query = op.Query("chain").order_by("ts").pattern("A -> B -> C")
    query = query.define({"A": "type = 0", "B": "type = 1", "C": "type = 2", **more})
    return query.measures(first="A.ts", last="C.ts")


def nothing() -> Any:
    """Return a query that no event begins to match, so that what is before matching is measured."""
    import outpace as op

    return op.Query("nothing").order_by("ts").pattern("A").define(A="ts < 0").measures(n="COUNT(*)")


def events(size: int, keys: int = 1000, seed: int = 1) -> Any:
    import numpy as np
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": np.arange(size),
            "key": rng.integers(0, keys, size),
            "type": rng.integers(0, 10, size),
            "value": rng.integers(0, 1000, size),
        }
    )


def delayed(table: Any, most: int) -> Any:
    """Return events out of order, none behind one that is more than `most` later."""
    import numpy as np
    import pyarrow as pa

    late = np.random.default_rng(2).integers(0, most + 1, table.num_rows)
    return table.take(pa.array(np.argsort(table["ts"].to_numpy() + late, kind="stable")))


def blocks_of(table: Any, size: int) -> list[Any]:
    return [table.slice(first, size) for first in range(0, table.num_rows, size)]


def push_all(query: Any, blocks: Iterable[Any]) -> None:
    import outpace as op

    stream = op.open(query)
    for block in blocks:
        stream.push(block)


def bench(host: str, names: list[str], *options: str) -> Iterator[dict[str, Any]]:
    """Run `outpace bench` on workloads and yield the objects that it prints."""
    code = "from outpace_command import main; main()"
    command = [sys.executable, "-c", code, "bench", "--host", host, "--json", *options]
    done = subprocess.run(
        [*command, "--workload", ",".join(names)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"outpace bench failed:\n{done.stderr[-2000:]}")
    yield from map(json.loads, done.stdout.splitlines())


def local(names: list[str]) -> Iterator[Measured]:
    """`op.match` of tables with a million events."""
    for found in bench("local", names, "--n", "1000000", "--repeat", "5"):
        rate = found["n"] / found["processor_seconds"]
        yield Measured(found["workload"], rate, "events/s")


def count(names: list[str]) -> Iterator[Measured]:
    """Counting all matches of a pattern without listing them."""
    import outpace as op

    table = events(1_000_000)
    query = op.Query("chain").order_by("ts").pattern("A ->> B ->> C ->> D").within(1000)
    query = query.define({name: f"type = {number}" for number, name in enumerate("ABCD")})
    for name in names:
        yield Measured(name, rate_of(op.search(table, query).count, 1_000_000), "events/s")


def windows(names: list[str]) -> Iterator[Measured]:
    """Events into windows of a million, with few and many open: as a stream, and only assigned."""
    import outpace as op

    size = 1_000_000
    table = events(size + size // 2, keys=10)
    for name in names:
        alone = name.removeprefix("assign-")
        kind, opened, *keyed = alone.split("-", 2)
        keys = 10 if keyed else 1
        slide = size // int(opened)
        if kind == "count":
            over = op.windows.count(size // keys, slide=slide)
        else:
            over = op.windows.time(size, slide=min(size, slide * keys))
        query = nothing().over(over)
        query = query.partition_by("key") if keyed else query
        run = partial(push_all, query, blocks_of(table, BLOCK))
        run = partial(op.windows.assign, table, query) if alone != name else run
        yield Measured(name, rate_of(run, table.num_rows, repeat=3), "events/s")


def operator(names: list[str]) -> Iterator[Measured]:
    """An operator of a user over windows, of which few or many are open."""
    import pyarrow as pa

    import outpace as op

    class Counted(op.Operator):
        output = pa.schema([("n", pa.int64())])

        def __init__(self) -> None:
            self.events = 0

        def process(self, events: pa.Table) -> None:
            self.events += events.num_rows

        def close(self) -> dict[str, list[int]]:
            return {"n": [self.events]}

    size = 100_000
    for name in names:
        table = events(size)
        over = op.windows.count(10_000, slide=10_000 // int(name))
        query = op.Query("counted").order_by("ts").apply(Counted).over(over)
        run = partial(push_all, query, blocks_of(table, 10_000))
        yield Measured(name, rate_of(run, size, repeat=3), "events/s")


def order(names: list[str]) -> Iterator[Measured]:
    """Bringing events into order: of sources that send at the same times, and with slack."""
    import numpy as np
    import pyarrow as pa

    import outpace as op

    size = 1_920_000

    @dataclass(frozen=True)
    class Listed(op.sources.Source):
        """Batches that are made before."""

        made: tuple[pa.RecordBatch, ...] = ()

        def batches(self, rows: int = 60_000) -> Iterator[pa.RecordBatch]:
            yield from self.made

    def sources(number: int) -> list[Listed]:
        times = np.arange(size // number) * number
        table = pa.table({"ts": times, "seq": np.arange(len(times)), "x": times % 7})
        made = tuple(table.to_batches(max_chunksize=60_000))
        return [Listed(f"s{each:04}", made=made) for each in range(number)]

    def merge(listed: list[Listed]) -> None:
        assert sum(part.num_rows for part in op.sources.merged(listed)) == size

    def push(listed: list[Listed]) -> None:
        stream = op.open(nothing(), sources=[source.id for source in listed])
        for round in zip(*(source.made for source in listed), strict=True):
            for source, batch in zip(listed, round, strict=True):
                stream.push(pa.Table.from_batches([batch]), source=source.id)

    late = delayed(events(size), 1000)
    for name in names:
        what, *more = name.split("-", 1)
        if what == "slack":
            query = nothing().disorder(op.KSlack(1000))
            query = query.partition_by("key") if more else query
            run = partial(push_all, query, blocks_of(late, BLOCK))
        else:
            run = partial(merge if what == "merge" else push, sources(int(more[0])))
        yield Measured(name, rate_of(run, size), "events/s")


#: By name: how many blocks of which size are pushed, the first tenth of which does not count.
PUSHES = {"1": 600, "100": 300, "10000": 40}


def pushed_queries() -> dict[str, Any]:
    import outpace as op

    within = chain().within(1000)
    path = chain(C="type = 2 AND value > A.value").within(1000)
    return {
        "plain": within,
        "keyed": within.partition_by("key"),
        "path": path,
        "any": within.pattern("A ->> B").within(20).measures(last="B.ts"),
        "windows": chain().over(op.windows.count(1000, slide=100)),
        "keyed-windows": chain().partition_by("key").over(op.windows.time(10_000, slide=2_000)),
        "slack": within.disorder(op.KSlack(50)),
        "keyed-slack": within.partition_by("key").disorder(op.KSlack(50)),
        "sources": within,
    }


def push(names: list[str]) -> Iterator[Measured]:
    """What one push of a block costs, which is how long its matches take to come."""
    import pyarrow as pa

    import outpace as op

    queries = pushed_queries()
    for name in names:
        kind, size = name.rsplit("-", 1)
        count = PUSHES[size]
        table = events(int(size) * count)
        table = delayed(table, 50) if "slack" in kind else table
        turns: Any = cycle((None,))
        stream = op.open(queries[kind])
        if kind == "sources":
            stream = op.open(queries[kind], sources=["a", "b", "c", "d"])
            turns = cycle("abcd")
        cost = []
        # Made before: tables of one chunk, as they come from outside.
        blocks = [pa.concat_tables([block]) for block in blocks_of(table, int(size))]
        for number, (block, source) in enumerate(zip(blocks, turns, strict=False)):
            if number == count // 10:
                wait_for_compiler()
            started = time.process_time_ns()
            stream.push(block, source)
            cost.append(time.process_time_ns() - started)
        yield Measured(name, statistics.median(cost[count // 10 :]) / 1000, "us/push", "lower")


def run(names: list[str]) -> Iterator[Measured]:
    """`op.run`: sources into windows that two processes match, by the clock on the wall."""
    import outpace as op

    size = 2_000_000
    query = op.Query("pairs").order_by("ts").pattern("A B").define(A="type = 'a'", B="type = 'b'")
    query = query.measures(at="A.seq").over(op.windows.count(1000, slide=500)).instances(2)
    for name in names:
        many = int(name.split("-")[0])
        sources = [
            op.sources.simple_events(size // many, seed=seed, types="abcdefghij", id=f"s{seed:02}")
            for seed in range(many)
        ]
        started = time.perf_counter()
        with op.run(query, sources, rate_control=None) as matches:
            assert sum(table.num_rows for table in matches)
        yield Measured(name, size / (time.perf_counter() - started), "events/s")


def graph(names: list[str]) -> Iterator[Measured]:
    """`op.graph`: operators in processes of their own, from the first match to the last."""
    import numpy as np
    import pyarrow as pa

    import outpace as op

    if not hasattr(op, "graph"):
        return

    @dataclass(frozen=True)
    class Letters(op.sources.Source):
        """Letters that are drawn before."""

        rows: pa.Table = field(default_factory=lambda: pa.table({}))

        def batches(self, rows: int = 8192) -> Iterator[pa.RecordBatch]:
            yield from self.rows.to_batches(max_chunksize=rows)

    over = op.windows.count(30, slide=11)

    def pairs(first: str, second: str) -> Any:
        query = op.Query(first + second).order_by("ts").pattern("A -> B")
        query = query.define(A=f"k = '{first}'", B=f"k = '{second}'")
        return query.measures(at="B.ts", v="B.v").over(over, duplicates=True)

    rise = op.Query("rise").order_by("at").pattern("A -> B").define(A="v < 50", B="v >= 50")
    rise = rise.measures(at="B.at", v="A.v").over(over, duplicates=True)
    change = op.Query("change").order_by("at").pattern("A B").define(B="B.v <> A.v")
    graphs = {
        "chain": {
            "pairs": pairs("a", "b"),
            "rise": rise.of("pairs"),
            "change": change.measures(at="B.at").of("rise"),
        },
        "diamond": {
            "left": pairs("a", "b").of("letters"),
            "right": pairs("c", "d").of("letters"),
            "both": rise.of("left", "right"),
        },
    }
    size = 1_000_000
    rng = np.random.default_rng(1)
    letters = pa.table(
        {
            "ts": np.cumsum(rng.integers(0, 3, size)),
            "k": pa.array(rng.choice(list("abcdefgh"), size)),
            "v": rng.integers(0, 100, size),
        }
    )
    for name in names:
        began = None
        with op.graph(Letters("letters", rows=letters), graphs[name]).run() as matches:
            for _ in matches:
                began = began or time.perf_counter()
        assert began is not None, "matches come"
        yield Measured(name, size / (time.perf_counter() - began), "events/s")


def spark(names: list[str]) -> Iterator[Measured]:
    """Whole jobs on Spark, from Parquet files and from a DataFrame."""
    yield from on_spark("spark", names, "4000000", "2")


def stream(names: list[str]) -> Iterator[Measured]:
    """Whole streaming queries on Spark, from blocks of the log."""
    yield from on_spark("stream", names, "8000000", "1")


def on_spark(host: str, names: list[str], n: str, repeat: str) -> Iterator[Measured]:
    for kind in dict.fromkeys(name.split("-")[0] for name in names):
        workloads = [name.split("-")[1] for name in names if name.split("-")[0] == kind]
        data = os.environ["AGAINST_DATA"]
        options = ("--input", kind, "--n", n, "--repeat", repeat, "--data", data)
        for found in bench(host, workloads, *options):
            name = f"{kind}-{found['workload']}"
            yield Measured(name, found["events_per_s_plain"], "events/s")


def stated_queries() -> dict[str, Any]:
    import outpace as op

    windows = op.windows
    keyed = chain().partition_by("key")
    absent = op.Query("absent").order_by("ts").pattern("A -> !B").define(A="type = 0", B="type = 1")
    strict = op.Query("falls").order_by("ts").pattern("S D{5,}").define(D="value < PREV(value)")
    return {
        "plain": chain().within(10_000),
        "all-rows": chain().within(10_000).all_rows_per_match(),
        "path": chain(C="type = 2 AND value > A.value + 900").within(10_000),
        "any": chain().pattern("A ->> B ->> C").within(60),
        "keyed": keyed.within(10_000),
        "keyed-strict": strict.partition_by("key").measures(at="LAST(ts)"),
        "absence": absent.within(500).measures(at="A.ts").partition_by("key"),
        "count-windows": chain().over(windows.count(5_000, slide=10)),
        "time-windows": chain().over(windows.time(5_000, slide=10), numbered=True),
        "keyed-windows": keyed.over(windows.time(5_000, slide=500)),
        "sessions": keyed.over(windows.session(700)),
        "content-windows": chain().over(
            windows.between(open="value = 1", close="value = 2"), duplicates=True
        ),
        "slack": keyed.within(10_000).disorder(op.KSlack(2_000)),
        "windows-with-slack": keyed.over(windows.time(5_000, slide=500)).disorder(op.KSlack(2_000)),
        "sources": keyed.within(10_000),
    }


def state(names: list[str]) -> Iterator[Measured]:
    """The size of saved state after a fixed stream."""
    import outpace as op

    queries = stated_queries()
    table = events(20_000)
    for name in names:
        query = queries[name]
        if name == "sources":
            opened = op.open(query, sources=["a", "b"])
            opened.push(table, "a")
            opened.push(table.slice(0, 15_000), "b")
        else:
            opened = op.open(query)
            for block in blocks_of(delayed(table, 1000) if "slack" in name else table, 1000):
                opened.push(block)
        wait_for_compiler()
        yield Measured(name, len(opened.state()), "bytes", "lower")


#: Programs that print the seconds of what they time.
STARTS = {
    "import": "import outpace",
    "first-match": (
        "import outpace as op; op.match({'ts': [1, 2], 'x': [3, 4]}, op.Query().order_by('ts')"
        ".pattern('A B').define(B='x > A.x').measures(at='B.ts'))"
    ),
}


def start(names: list[str]) -> Iterator[Measured]:
    """How long `import outpace` takes beyond Arrow and NumPy, and the first answer of a process."""
    for name in names:
        timed = f"import time, pyarrow, numpy; t = time.process_time(); {STARTS[name]}"
        program = [sys.executable, "-c", f"{timed}; print(time.process_time() - t)"]
        seconds = [
            float(subprocess.run(program, capture_output=True, check=True).stdout) for _ in range(7)
        ]
        yield Measured(name, 1000 * statistics.median(seconds), "ms", "lower")


@dataclass(frozen=True)
class Group:
    """Measurements that share a process."""

    measure: Callable[[list[str]], Iterator[Measured]]
    names: tuple[str, ...]
    #: Whether it is bound to one core; else it has all.
    pinned: bool = True
    #: Whether a first measurement is thrown away; others warm up by themselves.
    warmed: bool = True
    #: Whether every measurement of a tree gives the same.
    exact: bool = False


LOCAL = ("w1", "w1n", "w1k", "w2", "w2k", "w3a", "w3b", "w4s", "w4r", "w5t", "w5c", "w5k")
PUSHED = ("plain", "keyed", "path", "any", "windows", "keyed-windows", "slack", "keyed-slack")
STATED = (
    *("plain", "all-rows", "path", "any", "keyed", "keyed-strict", "absence", "count-windows"),
    *("time-windows", "keyed-windows", "sessions", "content-windows", "slack"),
    *("windows-with-slack", "sources"),
)
OPENED = ("1", "100000", "100000-by-key")
GROUPS = {
    "local": Group(local, LOCAL, pinned=False),
    "count": Group(count, ("all-matches",)),
    "windows": Group(
        windows,
        tuple(
            f"{way}{kind}-{opened}"
            for way in ("", "assign-")
            for kind in ("count", "time")
            for opened in OPENED
        ),
    ),
    "operator": Group(operator, ("1", "1000")),
    "order": Group(order, ("merge-1", "merge-16", "merge-64", "push-16", "slack", "slack-by-key")),
    "push": Group(
        push, tuple(f"{kind}-{size}" for kind in (*PUSHED, "sources") for size in PUSHES)
    ),
    "run": Group(run, ("1-source", "16-sources"), pinned=False),
    "graph": Group(graph, ("chain", "diamond"), pinned=False),
    "state": Group(state, STATED, exact=True),
    "start": Group(start, tuple(STARTS)),
    "spark": Group(
        spark,
        tuple(
            f"{kind}-{name}" for kind in ("parquet", "dataframe") for name in ("w1", "w2k", "w3b")
        ),
        pinned=False,
        warmed=False,
    ),
    "stream": Group(stream, ("blocks-w1", "blocks-w2k"), pinned=False, warmed=False),
}


def measure(names: list[str]) -> None:
    """Measure some names of one group here, and print what was measured, a JSON object a line."""
    group = names[0].split("/")[0]
    if GROUPS[group].pinned:
        import pyarrow as pa

        pa.set_cpu_count(1)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for found in GROUPS[group].measure([name.split("/", 1)[1] for name in names]):
        print(json.dumps({**vars(found), "name": f"{group}/{found.name}"}), flush=True)


# --- Measuring two trees in turns ---------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A checkout, and where its compiled kernels and its data are."""

    label: str
    folder: Path
    kernels: Path
    data: Path

    def compile(self) -> None:
        """Compile every kernel; small blocks are not left to Python where it is done already."""
        module = re.search(r"-m (outpace\S*)", (self.folder / "Makefile").read_text())
        if module is None:
            sys.exit(f"the Makefile in {self.folder} does not say how kernels are compiled")
        say(f"{self.label}: compiling")
        self.python("-m", module[1])

    def measure(self, names: list[str]) -> dict[str, Measured]:
        """Measure some names of one group in a new process."""
        output = self.python(str(Path(__file__).resolve()), "--measure", ",".join(names))
        found = [Measured(**json.loads(line)) for line in output.splitlines()]
        return {each.name: each for each in found}

    def python(self, *arguments: str) -> str:
        """Run Python with this tree's library, and return what it prints."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder / "src"),
            "NUMBA_CACHE_DIR": str(self.kernels),
            "OUTPACE_CACHE_DIR": str(self.kernels / "own"),
            "PYSPARK_PYTHON": sys.executable,
            "AGAINST_DATA": str(self.data),
        }
        with tempfile.TemporaryDirectory(prefix="outpace-against-") as folder:
            return run_alone([sys.executable, *arguments], environment, Path(folder))


def run_alone(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """Run a program and return what it prints; whatever it started ends with this one."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} failed in {folder}:\n{errors.read()[-3000:]}")
    return output


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Tree]:
    """Check an older commit out for as long as it is measured."""
    home = KEPT / commit[:12]
    # A stable place and time: Numba looks compiled kernels up by the path of their source, and
    # takes none that are older.
    folder = home / "tree"
    committed = int(git("show", "--no-patch", "--format=%ct", commit))
    leave(folder)
    home.mkdir(parents=True, exist_ok=True)
    try:
        git("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit)
        for source in (folder / "src").rglob("*.py"):
            os.utime(source, (committed, committed))
        yield Tree("old", folder, home / "numba", home / "data")
    finally:
        leave(folder)


def leave(folder: Path) -> None:
    if folder.exists():
        git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass
class Compared:
    """The figures of one name, turn by turn."""

    name: str
    unit: str = ""
    better: str = "higher"
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)

    def add(self, old: Measured, new: Measured) -> None:
        self.unit, self.better = new.unit, new.better
        self.old.append(old.value)
        self.new.append(new.value)

    @property
    def ratios(self) -> list[float]:
        pairs = zip(self.old, self.new, strict=True)
        return [new / old if self.better == "higher" else old / new for old, new in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def least(self, least: float) -> float:
        return 1.0 if GROUPS[self.name.split("/")[0]].exact else least

    def is_good(self, least: float) -> bool:
        return self.ratio >= self.least(least)

    def shown(self, least: float) -> dict[str, Any]:
        return {
            **vars(self),
            "ratio": round(self.ratio, 4),
            "spread": [round(min(self.ratios), 4), round(max(self.ratios), 4)],
            "good": self.is_good(least),
        }


def compare(old: Tree, new: Tree, names: list[str], turns: int, least: float) -> list[Compared]:
    """Measure all names of a group in turns, and once again as often where one is too slow."""
    group = GROUPS[names[0].split("/")[0]]
    trees = {"old": old, "new": new}
    if group.warmed:
        for tree in trees.values():
            say(f"{names[0].split('/')[0]}: {tree.label}, to warm up")
            there = tree.measure(names)
            names = [name for name in names if name in there]
            if not names:
                say(f"{tree.label} has nothing of the kind")
                return []
    compared = {name: Compared(name) for name in names}
    rounds = 1 if group.exact else turns
    for turn in range(2 * rounds):
        if turn == rounds:
            names = [name for name in names if not compared[name].is_good(least)]
            if group.exact or not names:
                break
            say(f"below {least}, so measured again: {', '.join(names)}")
        found = {}
        for label in ("old", "new") if turn % 2 == 0 else ("new", "old"):
            say(f"{names[0].split('/')[0]}: {label}, turn {turn + 1}")
            found[label] = trees[label].measure(names)
        for name in names:
            compared[name].add(found["old"][name], found["new"][name])
    return list(compared.values())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


HEAD = ("name", "old", "new", "", "ratio", "spread", "")


def table(compared: list[Compared], least: float) -> str:
    rows = [HEAD]
    for each in compared:
        low, high = min(each.ratios), max(each.ratios)
        rows.append(
            (
                each.name,
                figure(statistics.median(each.old)),
                figure(statistics.median(each.new)),
                each.unit,
                f"{each.ratio:.2f}",
                f"{low:.2f} to {high:.2f}",
                "" if each.is_good(least) else f"below {each.least(least):.2f}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in (1, 2, 4) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def figure(value: float) -> str:
    if value >= 10_000_000:
        return f"{value / 1e6:.0f} M"
    if value >= 1_000_000:
        return f"{value / 1e6:.2f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def chosen(text: str | None) -> dict[str, list[str]]:
    """Return the names to be measured by group; a group stands for all of its names."""
    known = {group: [f"{group}/{name}" for name in each.names] for group, each in GROUPS.items()}
    if text is None:
        return known
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in known and not any(name in names for names in known.values()):
            sys.exit(f"there is no measurement '{name}': see --list")
    kept = {
        group: [name for name in names if name in wanted or group in wanted]
        for group, names in known.items()
    }
    return {group: names for group, names in kept.items() if names}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rev", nargs="?", metavar="REV", help="the older commit")
    parser.add_argument("--only", help="groups or names, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="turns; 3 by default")
    parser.add_argument("--least", type=float, default=0.95, help="the least ratio; 0.95")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--list", action="store_true", help="list the names")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.rev or options.list or options.measure):
        parser.error("name the older commit")
    if options.repeat < 1:
        parser.error("there must be a turn at least")
    return options


def main() -> None:
    options = parse()
    if options.measure:
        measure(options.measure.split(","))
        return
    groups = chosen(options.only)
    if options.list:
        print("\n".join(name for names in groups.values() for name in names))
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    commit = git("rev-parse", "--verify", f"{options.rev}^{{commit}}")
    kernels = Path(os.environ.get("NUMBA_CACHE_DIR", PROJECT / "build" / "numba"))
    new = Tree("new", PROJECT, kernels, PROJECT / "build" / "bench")
    load = os.getloadavg()[0]
    compared: list[Compared] = []
    interrupted = False
    try:
        with checked_out(commit) as old:
            for tree in (old, new):
                tree.compile()
            for names in groups.values():
                compared += compare(old, new, names, options.repeat, options.least)
    except KeyboardInterrupt:
        interrupted = True
    if not compared:
        sys.exit(130)
    print(table(compared, options.least))
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        results = [each.shown(options.least) for each in compared]
        about = {"old": commit, "new": git("describe", "--always", "--dirty"), "load": load}
        options.json.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    if interrupted:
        sys.exit(130)
    sys.exit(0 if all(each.is_good(options.least) for each in compared) else 1)


if __name__ == "__main__":
    main()
