"""Compiled code is kept where nobody else can write, and where there is no such place, nowhere."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pytest

from outpace.compiler import kernel
from outpace.compiler.cache import CONDITIONS, _stamp, own_folder
from outpace.compiler.kernel import module_name
from outpace.engine.match.codegen import plan_path
from outpace.engine.match.task import prepare
from outpace.pattern.query import Query

NOBODY = 65534

as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user"
)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A cache folder, and another one for temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("OUTPACE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / CONDITIONS


def _plan(number):
    query = Query().order_by("ts").pattern("A B").define(B=f"B.ts - A.ts < {number}")
    return plan_path(prepare(query.measures(n="COUNT(*)"), pa.schema({"ts": pa.int64()})))


def _again(plan):
    """Load a plan as another process would."""
    kernel._loaded.pop(module_name(plan.source))
    return plan.step()


def test_what_was_compiled_is_found_again(folder):
    plan = _plan(104729)
    assert plan.step().cache_hits == 0
    assert plan.compiled
    assert _again(plan).cache_hits == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_nothing_in_the_folder_is_imported(folder):
    plan = _plan(104743)
    name = module_name(plan.source)
    planted = folder / f"{name}.py"
    (folder / "__pycache__").mkdir(parents=True)
    planted.write_text("raise SystemExit('this must not run')")
    for compiled in (folder / f"{name}.pyc", None):
        py_compile.compile(
            str(planted),
            cfile=compiled and str(compiled),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    assert plan.step().cache_hits == 0
    assert _again(plan).cache_hits == 1


class _Planted:
    def __reduce__(self):
        return sys.exit, ("this must not run",)


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_that_others_may_write_to_is_not_read(folder, kind):
    plan = _plan(104759 if kind == "nbi" else 104761)
    plan.step()
    (file,) = folder.glob(f"*.{kind}")
    planted = pickle.dumps(_Planted())
    file.write_bytes(planted + hashlib.sha256(planted).digest())
    file.chmod(0o666)
    assert _again(plan).cache_hits == 0
    assert _again(plan).cache_hits == 1


def test_a_damaged_file_is_written_again(folder):
    plan = _plan(104779)
    plan.step()
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (b"", whole[:middle], b"x" * len(whole), flipped):
            file.write_bytes(damaged)
            assert _again(plan).cache_hits == 0
            assert _again(plan).cache_hits == 1


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_with_a_class_that_is_gone_is_written_again(folder, kind):
    plan = _plan(104789 if kind == "nbi" else 104801)
    plan.step()
    (file,) = folder.glob(f"*.{kind}")
    # An index begins with the version of Numba, which is that of the rest.
    begin = pickle.dumps(numba.__version__) if kind == "nbi" else b""
    stale = begin + b"coutpace.errors\nGoneError\n."
    file.write_bytes(stale + hashlib.sha256(stale).digest())
    assert _again(plan).cache_hits == 0
    assert _again(plan).cache_hits == 1


def test_what_is_kept_belongs_to_a_text_whenever_that_was_written(monkeypatch, tmp_path):
    """Before the fix files older than a new check-out of the same source were not looked for."""
    monkeypatch.setitem(vars(numba.config), "CACHE_DIR", str(tmp_path / "kernels"))
    source = tmp_path / "kernels_of_a_test.py"

    def loaded(step, changed):
        source.write_text(f"def grow(values):\n    values += {step}\n")
        os.utime(source, (changed, changed))
        name = f"kernels_of_a_test_{step}"
        spec = importlib.util.spec_from_file_location(name, source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _stamp.cache_clear()  # As another process would.
        return kernel.Kernel(module.grow)

    first = loaded(1, changed=1e9)
    assert not kernel.is_compiled(first)
    values = np.zeros(2, np.int64)
    first(values)
    assert values.tolist() == [1, 1]
    assert kernel.is_compiled(first)
    assert kernel.is_compiled(loaded(1, changed=time.time() + 1e6))
    assert not kernel.is_compiled(loaded(2, changed=1e9))


def test_a_folder_that_others_may_write_to_is_passed_over(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert own_folder(CONDITIONS) == Path(
        tempfile.gettempdir(), f"outpace-{os.geteuid()}", CONDITIONS
    )


def test_a_folder_in_one_that_others_may_write_to_is_passed_over(folder):
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o777)
    assert own_folder(CONDITIONS).is_relative_to(tempfile.gettempdir())


@as_root
def test_a_folder_of_another_user_is_passed_over(folder):
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    taken = Path(tempfile.gettempdir(), f"outpace-{os.geteuid()}")
    assert own_folder(CONDITIONS) == taken / CONDITIONS
    assert taken.stat().st_mode & 0o777 == 0o700


def test_without_any_folder_conditions_are_compiled_all_the_same(folder, monkeypatch):
    monkeypatch.setenv("OUTPACE_CACHE_DIR", "/dev/null/cache")
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    plan = _plan(104773)
    assert own_folder(CONDITIONS) is None
    assert plan.step().cache_hits == 0
    assert plan.compiled
    assert _again(plan).cache_hits == 0


SCRIPT = """
import sys
import pyarrow as pa
import outpace as op
from outpace.engine.kernels.search import search
from outpace.engine.match.codegen import plan_path
from outpace.engine.match.task import prepare

rises = op.Query().order_by("ts").pattern("A B").define(B="x > A.x").measures(at="B.ts")
table = pa.table({"ts": [1, 2, 3], "x": [1, 3, 2]})
found = op.match(table, rises).to_pylist()
step = plan_path(prepare(rises, table.schema)).step()
sys.stdout.write(f"{found} {search.dispatcher.stats.cache_path} {step._cache.cache_path}")
"""


def _without_places(tmp_path, command):
    """Run the script with a library that has no room for a cache, and no home."""
    copied = tmp_path / "library" / "outpace"
    source = Path(kernel.__file__).parents[1]
    shutil.copytree(source, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for package in {file.parent for file in copied.rglob("*.py")}:
        (package / "__pycache__").touch()  # Even root can make no folder here.
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o1777)
    environment = {"PYTHONPATH": str(tmp_path / "library"), "HOME": "/dev/null"}
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT],
        env={**kept, **environment, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    found, kernels, conditions = done.stdout.rsplit(" ", 2)
    assert found == "[{'at': 2}]"
    return Path(kernels), Path(conditions)


def test_without_a_home_the_cache_is_a_temporary_folder(tmp_path):
    for place in _without_places(tmp_path, []):
        assert place.is_relative_to(tmp_path / "temporary" / f"outpace-{os.geteuid()}")


@as_root
def test_a_user_who_may_write_nowhere_else_has_a_temporary_folder(tmp_path):
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("acting as another user needs setpriv")
    # Nobody reads what root may read, so that the interpreter is found, and writes nothing of it.
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    nobody = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *reads]
    if subprocess.run([*nobody, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this root may not act as another user")
    for place in _without_places(tmp_path, nobody):
        assert place.is_relative_to(tmp_path / "temporary" / f"outpace-{NOBODY}")
        assert place.stat().st_uid == NOBODY
        assert place.stat().st_mode & 0o777 == 0o700
