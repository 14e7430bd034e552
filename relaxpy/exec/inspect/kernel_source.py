"""The source of one kernel of an executable, in a chosen form."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import get_args

from relaxpy.errors import MisuseError, UnknownNameError, close_names, unexpected
from relaxpy.exec.api.executable import Program, SourceKind
from relaxpy.exec.native.trees.text import tree_text
from relaxpy.exec.program.lower.python_module import Backend
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.pysource import render


def source_of_kernel(program: Program, name: str, kind: SourceKind) -> str:
    """The source of the kernel `name` of a program, which is compiled once more for it."""
    return kernel_source(program.module, program.form().new_backend, name, kind)


def kernel_source(
    module: IRModule, new_backend: Callable[[], Backend] | None, name: str, kind: SourceKind
) -> str:
    """The source of the kernel `name` of `module`, which is compiled once more for it.

    Errors:
        UnknownNameError: there is no such kernel.
        MisuseError: the kind is unknown, or the kernel has no source of this kind.
    """
    if kind not in get_args(SourceKind):
        known = ", ".join(map(repr, get_args(SourceKind)))
        raise unexpected(kind, f"the kind of a source is one of {known}")
    func = module.functions_by_name.get(name) if isinstance(name, str) else None
    if not isinstance(func, PrimFunc):
        kernels = [n for n, f in module.functions_by_name.items() if isinstance(f, PrimFunc)]
        hint = close_names(str(name), kernels)
        if func is not None:
            hint = f"{name!r} is a function of the graph level; `source` has its Python text"
        listed = ", ".join(kernels) or "none"
        raise UnknownNameError(
            f"the executable has no kernel {name!r:.60}; it has {listed}", hint=hint, about=name
        )
    if new_backend is None:
        raise MisuseError(
            f"the kernel {name!r} has no {kind} source: the reference evaluator runs its text",
            hint='compile for target="numpy" or "native"',
        )
    backend = new_backend()
    names = {other: other for other in backend.program(module).functions_by_name}
    kernel = backend.compile_kernel(func, name, f"{name}_unchecked", names)
    if kind == "tree":
        return tree_text(backend.loops(func, kernel))
    if kind == "python":
        return render(ast.Module([kernel.tree], []))
    code = backend.machine_code(name, kind)
    if code is None:
        reason = next((f": {row.reason}" for row in kernel.report if row.reason), "")
        raise MisuseError(
            f"the kernel {name!r} has no {kind} source: it runs on NumPy{reason}",
            hint='kind="python" shows its text',
        )
    return code
