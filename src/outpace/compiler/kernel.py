"""How kernels are compiled: once per machine, cached on disk, without the interpreter lock.

Programs, masks and bounds are data to a kernel, so one compiled kernel serves all queries and a
warm start loads it from the cache. Integer division follows NumPy, which needs no check for zero.

Numba itself is loaded when there is enough to do: a small input is done before that.

The loops of the simulator are compiled without calls and without counting references: a call that
passes many arrays costs as much as a vertex's whole step, and so does counting who holds them.

Functions that the engine writes as text are compiled when they are needed. The text stays in
memory; what is compiled of it is kept under the hash of the text.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from outpace.errors import MatchError

P = ParamSpec("P")
R = TypeVar("R")

#: Up to this many elements a loop in plain Python is done before a compiler has started.
_SMALL: Final = 20_000

#: As long as Numba is not loaded, so many: a larger input is worth the time that loading takes.
_SMALL_AT_FIRST: Final = 200_000

#: What makes matches fewer, whatever is asked of them.
FEWER: Final = "take some with .limit(n), or shorten WITHIN or the windows"


@dataclass
class HeadStart:
    """How many elements plain Python may see before Numba is loaded; less than 0 when it is."""

    left: int = 1_000_000


head_start = HeadStart()
_on_load: list[Callable[[], object]] = []


class Kernel(Generic[P, R]):
    """A function over arrays that is compiled when it is first called."""

    def __init__(self, function: Callable[P, R], **options: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        #: What this process has compiled, or loaded from the cache.
        self.overloads: dict[Any, Any] = {}
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function."""
        return cast("R", self.dispatcher(*args, **kwargs))

    @functools.cached_property
    def dispatcher(self) -> Any:
        """What Numba has for the function; where it may compile nothing, the function itself."""
        if is_disabled():
            return _uncompiled(self.py_func)
        numba = load_numba()
        from outpace.compiler.cache import add_cache

        options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": False}
        made = numba.njit(**options, **self._options)(self.py_func)
        add_cache(made, self.py_func)
        made._compile_for_args = functools.partial(compile_with, made._compile_for_args)
        # Threads that come here at once agree on one.
        agreed = vars(self).setdefault("dispatcher", made)
        self.overloads = agreed.overloads
        return agreed

    @property
    def _numba_type_(self) -> Any:
        """What a kernel is to others that call it."""
        return self.dispatcher._numba_type_


class _InnerKernel(Kernel[P, R]):
    """A kernel that only other kernels call; so Python comes to it where they are not compiled."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.py_func(*args, **kwargs)


def is_disabled() -> bool:
    """Say whether Numba is told to compile nothing, as under a debugger: all is done by twins."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function over arrays when it is first called; keep its type for the checker."""
    return Kernel(function)


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no arrays, so it need not count who holds those it works in."""
    return Kernel(function, _nrt=False, no_cfunc_wrapper=True)


def compiled_within(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only other kernels call, and that makes no arrays."""
    # Without the code for a call from Python.
    return _InnerKernel(function, _nrt=False, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def compiled_in_line(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function into those kernels that call it: for many arguments in a hot loop."""
    return _InnerKernel(
        function, _nrt=False, no_cfunc_wrapper=True, no_cpython_wrapper=True, forceinline=True
    )


def compiled_when_worth(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that is only called from Python.

    As long as Numba is not loaded, or the function is not compiled on this machine, small arguments
    are left to the function itself, so that the first answer waits for neither. Where many of them
    come, it is compiled all the same.
    """
    kernel = Kernel(function)
    plain = _uncompiled(function)
    # Looking into the cache takes longer than small arguments do, so it happens once.
    is_cached = functools.cache(is_compiled)
    #: How many elements were left to it.
    done = 0

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal done
        if not kernel.overloads:
            size = sum(map(_size, args))
            early = size <= min(head_start.left, _SMALL_AT_FIRST)
            small = size <= _SMALL and done <= _SMALL_AT_FIRST
            if early or (small and not is_cached(kernel)):
                head_start.left -= size
                done += size
                return plain(*args, **kwargs)
        return kernel(*args, **kwargs)

    return call


def compile_callback(function: Callable[..., object], signature: str) -> Any:
    """Compile a function that kernels call by its address, or load what was compiled of it."""
    load_numba()
    from numba.core.sigutils import normalize_signature

    from outpace.compiler.cache import Callback, add_cache

    types: Any = normalize_signature(signature)
    callback = Callback(function, types, {}, {"error_model": "numpy"})
    add_cache(callback, function)
    compile_with(callback.compile)
    return callback


@functools.cache
def caller() -> Any:
    """Return what calls a function of Python in compiled code, by its address (see `Called`).

    It takes the address, and a tuple of integers and pointers.
    """
    load_numba()
    # It has no types.
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import types
    from numba.extending import intrinsic

    def by_address(_: object, address: Any, numbers: Any) -> Any:
        def write(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
            word = ir.IntType(64)
            each = [
                builder.extract_value(given[1], place) for place in range(len(signature.args[1]))
            ]
            values = [one if one.type == word else builder.ptrtoint(one, word) for one in each]
            kind = ir.FunctionType(word, [word] * len(values))
            return builder.call(builder.inttoptr(given[0], kind.as_pointer()), values)

        return types.int64(address, numbers), write

    return intrinsic(by_address)


class Called:
    """A function of integers in Python that compiled code calls.

    Parameters
    ----------
    function
        Says 1 or 0.
    count
        How many integers it takes.

    Examples
    --------
    >>> called = Called(lambda one, other: one < other, 2)
    >>> called.address != 0
    True
    """

    def __init__(self, function: Callable[..., int], count: int) -> None:
        self._function = function
        word = ctypes.c_int64
        self._held = ctypes.CFUNCTYPE(word, *[word] * count)(self._call)
        #: Where compiled code finds it, as long as this object is held.
        self.address: int = ctypes.cast(self._held, ctypes.c_void_p).value or 0
        #: What it raised; compiled code has been told -1.
        self.error: BaseException | None = None

    def _call(self, *numbers: int) -> int:
        try:
            return self._function(*numbers)
        except BaseException as error:
            self.error = error
            return -1


def integers_at(address: int, count: int) -> list[int]:
    """Return so many integers of 64 bits that compiled code holds."""
    return (ctypes.c_int64 * count).from_address(address)[:]


def _size(value: object) -> int:
    """Return how many elements an argument has; a tuple holds arguments."""
    if isinstance(value, tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, Sized) else 0


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    # Compiled integers wrap around without a word, and kernels check for it themselves.
    return np.errstate(all="ignore")(function)


def load_numba() -> ModuleType:
    """Return Numba; from now on what is compiled is used."""
    # What others do meanwhile in plain Python would take longer than waiting for it.
    head_start.left = min(head_start.left, _SMALL)
    # Half of it would be of no use to the next who comes.
    numba = call(importlib.import_module, "numba")
    head_start.left = -1
    # What is done may load Numba again, and then finds nothing left to do.
    acts = _on_load.copy()
    _on_load.clear()
    for act in acts:
        act()
    return numba


def on_load(act: Callable[[], object]) -> None:
    """Do something when Numba is loaded, or now if it is."""
    if head_start.left < 0:
        act()
    else:
        _on_load.append(act)


class _Noting:
    """Takes a Ctrl-C down, for the handler that would have had it."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.noted: list[tuple[int, FrameType | None]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.noted.append((number, frame))


def call(kernel: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a kernel that returns arrays, or something else that Ctrl-C would leave half done.

    Numba hands them over with Python code of its own, and an exception there leaves holes in the
    result. So Ctrl-C is noted while a kernel runs, and acted upon when it has returned.
    """
    handler = signal.getsignal(signal.SIGINT)
    with fitting():
        if not callable(handler):
            return kernel(*args, **kwargs)
        noting = _Noting(handler)
        try:
            signal.signal(signal.SIGINT, noting)
        except ValueError:
            return kernel(*args, **kwargs)  # Signals arrive in the main thread alone.
        try:
            result = kernel(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, handler)
    if noting.noted:
        handler(*noting.noted[0])
    return result


@dataclass
class Compiler:
    """Who runs the compiler: by default the caller; a host may wait for it in its own way.

    LLVM calls back into Python, where an interrupt is lost and what it needs is missing. So an
    interrupt must not reach the thread that compiles.
    """

    run: Callable[[Callable[[], Any]], Any] = call


compiler = Compiler()


def compile_with(compile_it: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Have the compiler run; Ctrl-C may end the wait for it, as no kernel runs yet."""
    noting = signal.getsignal(signal.SIGINT)
    run = functools.partial(compiler.run, functools.partial(compile_it, *args, **kwargs))
    if not isinstance(noting, _Noting):
        return cast("R", run())
    try:
        signal.signal(signal.SIGINT, noting.handler)
    except ValueError:
        return cast("R", run())  # The main thread runs a kernel meanwhile.
    try:
        return cast("R", run())
    finally:
        signal.signal(signal.SIGINT, noting)


@contextmanager
def fitting(hint: str = FEWER) -> Iterator[None]:
    """Say in our words that matches do not fit into memory, and what to do about it."""
    try:
        yield
    except MemoryError as error:
        raise MatchError("the matches do not fit into memory", hint=hint) from error


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that allows no writing, as Arrow's do: kernels are compiled for one kind."""
    view = array.view()
    view.flags.writeable = False
    return view


def is_compiled(kernel: Callable[..., object]) -> bool:
    """Say whether a kernel has been compiled, by this process or, with its present text, before."""
    known: Any = kernel
    if is_disabled():
        return False
    if known.overloads:
        return True
    dispatcher = getattr(known, "dispatcher", known)
    from outpace.compiler.cache import is_kept

    return is_kept(dispatcher)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function as a part of each kernel that calls it."""
    kernel = load_numba().njit(inline="always", nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", kernel)


def compiled_without_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes, returns and keeps no arrays."""
    from outpace.compiler.cache import add_cache

    # Numba's types do not list the last option, which turns the counting of references off.
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
    kernel = load_numba().njit(nogil=True, **options)(function)
    add_cache(kernel, function)
    return cast("Callable[P, R]", kernel)


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
