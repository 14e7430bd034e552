"""Compiles modules of LLVM IR to functions in this process, which may use the thread pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final

from relaxpy.exec.native.calls.interpreter import PYTHON, connect_python
from relaxpy.exec.native.llvm.function import MEMORY
from relaxpy.exec.native.llvm.module import Module
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.exec.native.machine_code.objects import Library, compile_object, link_object
from relaxpy.exec.native.threads.memory import connect_memory, memory
from relaxpy.exec.native.threads.parallel import POOL
from relaxpy.exec.native.threads.pool import connect

__all__ = ["Library", "compile_module", "link"]


def compile_module(
    module: Module, exports: Collection[str], machine: Machine | None = None
) -> Library:
    """The addresses of the functions of `module` that `exports` names.

    No optimiser pass runs. By default the code is for this machine.
    """
    machine = machine or host()
    if not machine.has_loader:
        return link(compile_object(module.text(), machine=machine), exports)
    fast, slow = module.parts()
    code = compile_object(fast.text(), slow.text() if slow.functions else "", machine=machine)
    return link(code, exports)


def link(code: bytes, exports: Collection[str]) -> Library:
    """The addresses of the functions of an object that `exports` names.

    Its parallel loops run on the thread pool of this process, and entries use its Python. When it
    is no longer there, memory that is kept for later use goes back to the system.
    """
    found = [name for name in _CONNECTED if f"\0{name}\0".encode() in code]
    library = link_object(code, [*exports, *found])
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
