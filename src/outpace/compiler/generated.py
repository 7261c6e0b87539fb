"""Functions that the engine writes as text, compiled when they are needed.

The text stays in memory; what is compiled of it is kept under the hash of the text.
"""

from __future__ import annotations

import hashlib
import sys
from types import ModuleType
from typing import Final

#: Modules whose code has run to its end; `sys.modules` has them before.
_loaded: Final[dict[str, ModuleType]] = {}


def load_text(text: str) -> ModuleType:
    """Run a text that the engine wrote; nothing but what was compiled of it comes from a file."""
    name = module_name(text)
    if name in _loaded:
        return _loaded[name]
    module = ModuleType(name)
    # Numba names what it caches by the module, so it must be known before its code runs.
    sys.modules[name] = module
    try:
        # The text was written of an expression tree a moment ago, it is never users' text.
        exec(compile(text, f"<{name}>", "exec"), vars(module))  # noqa: S102
    except BaseException:
        sys.modules.pop(name, None)
        raise
    _loaded[name] = module
    return module


def is_text_compiled(text: str) -> bool:
    """Say whether the functions of a text have been compiled on this machine."""
    name = module_name(text)
    if name in _loaded:
        return True
    from outpace.compiler.cache import CONDITIONS, own_folder

    folder = own_folder(CONDITIONS)
    return folder is not None and any(folder.glob(f"{name}.*.nbi"))


def module_name(text: str) -> str:
    """Return the name of the module that a text becomes: its own hash."""
    return f"outpace_step_{hashlib.sha256(text.encode()).hexdigest()[:40]}"
