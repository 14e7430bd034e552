"""Compiles modules of LLVM IR to functions in this process, which may use the thread pool."""

from __future__ import annotations

from collections.abc import Collection

from relaxpy.exec.native.machine import Machine, host
from relaxpy.exec.native.module import Module
from relaxpy.exec.native.objects import Library, compile_object, link_object
from relaxpy.exec.native.parallel import POOL
from relaxpy.exec.native.pool import connect

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

    Its parallel loops run on the thread pool of this process.
    """
    if f"\0{POOL}\0".encode() not in code:
        return link_object(code, exports)
    library = link_object(code, [*exports, POOL])
    connect(library[POOL])
    return library
