"""From a module to an Executable, for one of the targets."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from relaxpy.errors import MisuseError, close_names
from relaxpy.exec.checks import Signature
from relaxpy.exec.executable import EntryPoint, Executable
from relaxpy.exec.reference import ReferenceEvaluator, check_runnable
from relaxpy.exec.report import ExecutionReport, ReportRow
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.function import PrimFunc

Target: TypeAlias = Literal["numpy", "reference"]


def compile(mod: IRModule | rx.BaseFunc, target: str = "numpy") -> Executable:
    """An executable of every function of `mod` that has a `global_symbol`.

    A function by itself becomes a module of that name, or else named `main`.

    Errors:
        CompileError: something in the module cannot run on this target; all of it is named.
        MisuseError (also TypeError, ValueError): `mod` is no module, or there is no such target.
    """
    module = _as_module(mod)
    if target not in get_args(Target):
        raise MisuseError(
            f"there is no target {target!r}; targets are {', '.join(get_args(Target))}",
            hint=close_names(str(target), get_args(Target)),
        )
    check_runnable(module)
    return _for_reference(module)


def _as_module(mod: object) -> IRModule:
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, rx.BaseFunc):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    raise MisuseError(f"compile takes an IRModule or a function, found {type(mod).__name__}")


def public_signatures(module: IRModule) -> dict[str, tuple[str, Signature]]:
    """For each symbol that can be called from outside (TOP-3): the module's name, the signature."""
    found = {}
    for name, func in module.functions_by_name.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and not isinstance(func, rx.ExternFunc):
            found[str(symbol)] = (name, signature_of(func, str(symbol)))
    return found


def signature_of(func: rx.BaseFunc, name: str) -> Signature:
    """The signature of a Relax function, or that of a kernel, read off its buffers and scalars."""
    if isinstance(func, rx.Function):
        return Signature.of(func, name)
    assert isinstance(func, PrimFunc)
    params = []
    for param in func.params:
        buffer = func.buffer_of(param)
        info: rx.StructInfo = rx.ObjectStructInfo()
        if buffer is not None:
            info = rx.TensorStructInfo(rx.ShapeExpr(buffer.shape), buffer.dtype)
        elif param.dtype.family != "handle":
            info = rx.PrimStructInfo(param.dtype, param)
        params.append(rx.Var(param.name, info))
    return Signature(name, tuple(params), None, func.span)


def _for_reference(module: IRModule) -> Executable:
    evaluator = ReferenceEvaluator(module)
    public = public_signatures(module)
    entries = {
        symbol: EntryPoint(signature, evaluator.global_value(module.get_global_var(name)))
        for symbol, (name, signature) in public.items()
    }
    names = {name for name, _ in public.values()}
    rows = tuple(
        ReportRow(name, "(all)", "reference evaluator", "target is reference")
        for name, func in module.functions_by_name.items()
        if isinstance(func, PrimFunc)
    )
    return Executable(
        entries,
        target="reference",
        source=module.script,
        report=ExecutionReport(rows),
        private_names=module.functions_by_name.keys() - names,
    )
