"""When kernels are compiled, and when plain Python does their work."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest

from outpace.compiler import kernel
from outpace.compiler.kernel import Kernel, compiled_when_worth, head_start, load_numba


def test_larger_inputs_wait_for_numba_while_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the fix a thread went on in plain Python, which took longer than loading does."""
    monkeypatch.setattr(head_start, "left", 1_000_000)
    monkeypatch.setattr(Kernel, "__call__", lambda self, *arguments: "compiled")
    monkeypatch.setattr(kernel, "_on_load", [])
    draw = compiled_when_worth(lambda values: "plain")
    small, large = np.zeros(10), np.zeros(100_000)
    meanwhile = []

    def load(name: str) -> ModuleType:
        meanwhile.extend([draw(large), draw(small)])
        return ModuleType(name)

    monkeypatch.setattr(importlib, "import_module", load)
    assert draw(large) == "plain"
    load_numba()
    assert meanwhile == ["compiled", "plain"]
