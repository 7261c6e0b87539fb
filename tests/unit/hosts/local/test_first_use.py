"""The first answer does not wait for a compiler, and the compiler works on behind it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outpace.hosts.background import CompileNotice, ToilNotice

SCRIPT = """
import sys
import outpace as op
from outpace.engine.kernels.count_rows import count_rows
from outpace.engine.kernels.chain import search_chain
from outpace.engine.kernels.search import search
from outpace.engine.kernels.strict import search_strict

table = {"ts": range(100), "kind": list("abcde") * 20, "v": [float(n % 7) for n in range(100)]}
windows = op.windows.count(20, slide=10)
base = op.Query("q").order_by("ts").within(10).define(A="kind = 'a'", B="kind = 'b'")
found = [
    op.match(table, base.pattern("A B").measures(n="COUNT(*)")).num_rows,
    op.match(table, base.pattern("A -> B").measures(n="SUM(v)")).num_rows,
    op.match(table, base.pattern("A -> B").define(B="v > AVG(A.v)").measures(at="B.ts")).num_rows,
    op.search(table, base.pattern("A ->> B").measures(at="B.ts")).count(),
    op.search(table, base.pattern("A ->> B").measures(at="B.ts").over(windows)).count(),
]
kernels = [count_rows, search_chain, search, search_strict]
assert "numba" not in sys.modules
sys.stdout.write(f"{found} {sum(len(kernel.overloads) for kernel in kernels)}")
"""


def test_nothing_is_compiled_before_the_first_answer(tmp_path: Path) -> None:
    caches = {"NUMBA_CACHE_DIR": str(tmp_path / "n"), "OUTPACE_CACHE_DIR": str(tmp_path / "o")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout == "[20, 20, 17, 39, 39] 0"


RACE = """
import sys, threading
import outpace as op

table = {"ts": range(300), "v": [float(n % 7) for n in range(300)]}
found, failed = [], []

def run(number):
    query = (
        op.Query("q").order_by("ts").pattern("A B").define(B=f"v > A.v + {number % 3}")
        .measures(at="B.ts")
    )
    try:
        for _ in range(200):
            found.append(op.match(table, query).num_rows)
    except Exception as error:
        failed.append(repr(error))

threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.stdout.write(f"{sorted(set(found))} {failed}")
"""


def test_threads_may_match_while_predicates_are_compiled(tmp_path: Path) -> None:
    """Before the fix a thread could see a generated module whose code was still running."""
    env = {**os.environ, "OUTPACE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", RACE], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[0, 129] []"


STREAMS = """
import gc, sys
import pyarrow as pa
import outpace as op
from outpace.compiler.kernel import load_numba
from outpace.engine.match.kernel import KernelMatcher

schema = pa.schema({"ts": pa.int64(), "v": pa.float64()})
query = op.Query("q").order_by("ts").pattern("A B").define(B="v > A.v").measures(at="B.ts")
held = [op.open(query, schema=schema) for _ in range(400)]
for _ in range(100):
    op.open(query, schema=schema)
gc.collect()
assert "numba" not in sys.modules
kept = sum(isinstance(one, KernelMatcher) for one in gc.get_objects())
load_numba()
sys.stdout.write(str(kept))
"""


def test_many_streams_may_be_opened_before_the_compiler_is_loaded() -> None:
    """Before the fix each stream stayed, and one was compiled inside another's loading."""
    done = subprocess.run(
        [sys.executable, "-c", STREAMS], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "400")


INTERRUPT = """
import io, signal, sys
import outpace as op
from pyarrow import csv

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
text = "ts,k,x\\n" + "".join(f"{{n}},a,{{n % 7}}\\n" for n in range({rows}))
table = csv.read_csv(io.BytesIO(text.encode()))
query = (
    op.Query("q").partition_by("k").order_by("ts").pattern("A B").define(B="x > PREV(x)")
    .measures(at="B.ts")
)
for _ in range(2):
    try:
        print(op.match(table, query).num_rows)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(
    ("module", "rows"), [("pandas.core.api", 7), ("numba.core.typing", 70_000)]
)
def test_an_interrupt_while_modules_load_is_neither_lost_nor_breaks_them(
    module: str, rows: int
) -> None:
    pytest.importorskip(module.partition(".")[0])
    program = INTERRUPT.format(module=module, rows=rows)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["interrupted", str(rows * 3 // 7)]


COMPILING = """
import signal
from outpace.compiler.kernel import compiled, load_numba

load_numba()
from numba.core.codegen import CPUCodeLibrary

has_compiled = CPUCodeLibrary._object_compiled_hook

def interrupt(*args):
    signal.raise_signal(signal.SIGINT)
    has_compiled(*args)

CPUCodeLibrary._object_compiled_hook = interrupt

@compiled
def twice(x):
    return 2 * x

try:
    twice(3)
except KeyboardInterrupt:
    print("interrupted", twice(3))
"""


def test_an_interrupt_while_a_kernel_is_compiled_is_not_lost(tmp_path: Path) -> None:
    env = {**os.environ, "OUTPACE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILING], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["interrupted", "6"]


WAITING = """
import signal, threading
from outpace.compiler.kernel import call, compiled, compiler, load_numba
from outpace.hosts.background import CompileNotice

load_numba()
from numba.core.compiler_lock import global_compiler_lock

compiler.run = CompileNotice(0.1)

@compiled
def twice(x):
    return 2 * x

twice.dispatcher
held, done = threading.Event(), threading.Event()

def compile_another():
    with global_compiler_lock:
        held.set()
        done.wait()

threading.Thread(target=compile_another, name="outpace-compile", daemon=True).start()
held.wait()

for start in (twice, lambda x: call(twice, x)):
    main = threading.main_thread().ident
    threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
    try:
        start(3)
    except KeyboardInterrupt:
        print("interrupted")
done.set()
print(twice(3))
"""


def test_who_waits_for_a_compiler_in_another_thread_is_told_and_may_interrupt(
    tmp_path: Path,
) -> None:
    """Before the fix Ctrl-C did nothing until the other thread was done, and nobody was told."""
    env = {**os.environ, "OUTPACE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WAITING],
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["interrupted", "interrupted", "6"]
    assert done.stderr.count("outpace: waiting for the compiler") == 1


@pytest.mark.parametrize(("patience_seconds", "times"), [(0, 1), (60, 0)])
def test_who_waits_for_the_compiler_is_told_once(
    capsys: pytest.CaptureFixture[str], patience_seconds: float, times: int
) -> None:
    run = CompileNotice(patience_seconds)
    for _ in range(2):
        assert run(lambda: time.sleep(0.05) or "compiled") == "compiled"
    assert capsys.readouterr().err.count("outpace: waiting for the compiler") == times


def test_something_is_called_while_someone_waits_for_the_compiler() -> None:
    called: list[int] = []
    run = CompileNotice(0, meanwhile=lambda: called.append(1))
    assert run(lambda: time.sleep(0.5) or "compiled") == "compiled"
    assert len(called) >= 2


def test_what_the_compiler_raises_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        CompileNotice()(lambda: 1 // 0)


@pytest.mark.parametrize(("patience_seconds", "times"), [(0, 1), (60, 0)])
def test_who_waits_for_a_search_that_grows_is_told_once(
    capsys: pytest.CaptureFixture[str], patience_seconds: float, times: int
) -> None:
    told = ToilNotice("dips", patience_seconds)
    for _ in range(3):
        told()
    said = capsys.readouterr().err
    assert said.count("outpace: the search for 'dips'") == said.count("WITHIN") == times
