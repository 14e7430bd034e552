"""Checks kernels for features that the reference evaluator does not support."""

from __future__ import annotations

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.kernel.nest.intrinsics import check_datatypes
from relaxpy.exec.runtime.scalar import is_evaluated, launched, unsupported
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, stmt as st
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_name


def check_supported(func: PrimFunc, name: str) -> None:
    """Check that a kernel can run.

    Errors:
        CompileError: the kernel has an unsupported intrinsic, a datatype that NumPy lacks, or uses
        GPU threads.
    """
    check_datatypes(func, name)
    unknown_calls = []
    threads = []
    for node in walk(func):
        match node:
            case tir.Call(op=Op()) if not is_evaluated(node):
                unknown_calls.append(node)
            case st.AttrStmt(attr_key="thread_extent"):
                threads.append(node)
            case Buffer(dtype=dtype) if dtype.lanes != 1:
                message = f"{name}: buffer {node.name} holds vectors of {dtype}"
                raise CompileError(message, span=func.span)
            case tir.Cast(dtype=dtype) | Buffer(dtype=dtype):
                try:
                    dtype.numpy()
                except MisuseError as error:
                    raise CompileError(error.diagnostic).located(func.span) from None
            case _:
                pass
    if unknown_calls:  # report an external kernel rather than the intrinsics of its launch
        reported = max(unknown_calls, key=lambda call: kernel_name(call) is not None)
        raise unsupported(reported, name).located(func.span)
    for statement in threads:
        raise launched(name, statement)
