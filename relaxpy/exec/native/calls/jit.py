"""Compiles modules of LLVM IR to functions in this process, which may use the thread pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

from relaxpy.exec.machine.tuning import CodeSize
from relaxpy.exec.native.calls.interpreter import PYTHON, connect_python
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import MEMORY
from relaxpy.exec.native.machine_code.machine import Machine, current, is_current_here
from relaxpy.exec.native.machine_code.objects import (
    Library,
    compile_object,
    link_object,
    record,
    recorded,
)
from relaxpy.exec.native.threads.code import POOL
from relaxpy.exec.native.threads.freed_memory import connect_memory, memory
from relaxpy.exec.native.threads.pool import connect
from relaxpy.support.progress import stage

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Library", "compile_code", "compile_module", "link"]


class PartsAhead:
    """Parts of a module that a thread compiles while Python writes the functions that follow.

    LLVM takes a third of the time of a compilation, and holds no lock of Python meanwhile. The
    name of a kernel, which follows from its text, decides whether a part ends after it: most parts
    of a program that was changed a little are as before, and on disk.
    """

    def __init__(self) -> None:
        self.functions: set[str] = set()
        """The names of the functions of the parts."""
        self._waiting: list[str] = []
        self._length = 0
        self._thread: ThreadPoolExecutor | None = None
        self._compiled: list[Future[tuple[bytes, Mapping[str, bytes]]]] = []

    def add(self, module: Module, names: Sequence[str]) -> None:
        """Add the complete functions of a kernel of `module`, the first of which has its name.

        Those that only run tasks may not be needed later.
        """
        before = self._length
        for name in names:
            if module.functions[name].only_tasks() is None:
                self._waiting.append(name)
                self._length += len(module.functions[name])
        # From three quarters of PART on, a part ends by chance, after half of PART on average.
        is_chosen = crc32(names[0].encode()) / 2**33 * CodeSize.PART < self._length - before
        least, most = 0.75 * CodeSize.PART, 2 * CodeSize.PART
        if self._length < (least if is_chosen else most):
            return
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor  # it is imported as slowly as NumPy

            self._thread = ThreadPoolExecutor(1, "relaxpy-llvm")
        parts = module.parts(self._waiting, has_variables=False)
        self._compiled.append(self._thread.submit(_compiled_ahead, *parts, current()))
        self.functions.update(self._waiting)
        self._waiting, self._length = [], 0

    def code(self) -> bytes:
        """The objects of the parts, one after the other; this waits for the last of them."""
        with stage(_GENERATION):
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
            parts = [compiled.result() for compiled in self._compiled]
        for _, objects in parts:
            record(objects)
        return b"".join(code for code, _ in parts)


_GENERATION: Final = "code generation by LLVM"


def _compiled_ahead(
    fast: Module, slow: Module, machine: Machine
) -> tuple[bytes, Mapping[str, bytes]]:
    with recorded() as objects:
        return _compiled(fast, slow, machine), objects


def _compiled(fast: Module, slow: Module, machine: Machine) -> bytes:
    return compile_object(fast.text(), slow.text() if slow.functions else "", machine=machine)


def compile_module(
    module: Module,
    exports: Collection[str],
    machine: Machine | None = None,
    ahead: PartsAhead | None = None,
) -> Library:
    """The addresses of the functions of `module` that `exports` names, after `compile_code`."""
    return link(compile_code(module, machine, ahead), exports)


def compile_code(
    module: Module, machine: Machine | None = None, ahead: PartsAhead | None = None
) -> bytes:
    """The machine code of `module`, by default for the current machine.

    That of the parts that were compiled `ahead` is not generated again.
    """
    machine = machine or current()
    ahead = ahead or PartsAhead()
    parts = module.parts(name for name in module.functions if name not in ahead.functions)
    with stage(_GENERATION):
        rest = _compiled(*parts, machine)
    return ahead.code() + rest


def link(code: bytes, exports: Collection[str]) -> Library:
    """The addresses of the functions of an object that `exports` names.

    Its parallel loops run on the thread pool of this process, and entries use its Python. When it
    is no longer there, memory that is kept for later use goes back to the system. Code for another
    machine is not connected to these.
    """
    found = [name for name in _CONNECTED if f"\0{name}\0".encode() in code]
    with stage("linking"):
        library = link_object(code, [*exports, *found])
    if not is_current_here():
        return library
    for name in found:
        _CONNECTED[name](library[name])
    if MEMORY in found:
        weakref.finalize(library, memory().trim).atexit = False
    return library


_CONNECTED: Final[Mapping[str, Callable[[int], None]]] = {
    MEMORY: connect_memory,
    POOL: connect,
    PYTHON: connect_python,
}
"""The variables of modules that are set when they are linked."""
