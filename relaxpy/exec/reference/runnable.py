"""The check that a module can run, on any target."""

from __future__ import annotations

import inspect

from relaxpy.errors import CompileError, Diagnostic, counted
from relaxpy.exec.runtime.dynamic import is_dynamic
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.tir.prim_func import PrimFunc


def check_runnable(module: IRModule, *, kernels: bool) -> None:
    """Check that the module can run; with `kernels`, also by the reference evaluator.

    Errors:
        CompileError: the module has operators without a lowering, undefined global functions or
            unsupported intrinsics; all of them are reported.
    """
    diagnostics: list[Diagnostic] = []
    for name, func in module.functions_by_name.items():
        if isinstance(func, PrimFunc):
            if kernels:
                from relaxpy.exec.reference.kernel import check_supported

                check_supported(func, name)
            continue
        for node in walk(func):
            error = _unsupported(node, name, module)
            if error is not None:
                diagnostics += error.diagnostics
    if diagnostics:
        raise CompileError(diagnostics)


def _unsupported(node: object, name: str, module: IRModule) -> CompileError | None:
    if isinstance(node, rx.GlobalVar) and node not in module:
        return CompileError(
            f"{name} uses the global function {node.name_hint}, which the module does not have",
            rule="SC-1",
            span=node.span,
        )
    if isinstance(node, DTensorStructInfo):
        return CompileError(
            f"{name} has tensors spread over several devices, which no target runs",
            span=node.span,
            hint="write R.Tensor for tensors that are in one memory",
        )
    if not isinstance(node, rx.Call) or not isinstance(node.op, Op):
        return None
    if node.op.record.calls in (None, CallKind.LOCAL_KERNEL):
        import relaxpy.exec.runtime.operators  # noqa: F401 - which adds implementations to records
    operator, record = node.op.name, node.op.record
    if record.runtime is not None:
        try:
            inspect.signature(record.runtime).bind(*node.args, **node.attrs)
        except TypeError as error:
            return CompileError(f"{operator}: {error} (in {name})", rule="DER-36", span=node.span)
        except ValueError:  # a function in C may have no signature
            pass
        return None
    if record.calls not in (None, CallKind.LOCAL_KERNEL):
        least, most = record.calls.operand_range
        if least <= len(node.args) <= most:
            return None
        problem = f"{operator} does not take {counted(len(node.args), 'operand')} (in {name})"
        return CompileError(problem, rule="DER-36", span=node.span)
    if is_dynamic(node):
        return None
    return CompileError(
        f"operator {operator} has no lowering (in {name})",
        span=node.span,
        hint="register a legalisation or an implementation: legalize=... or runtime=...",
    )
