"""Signatures of functions and kernels, and the declared outputs and results of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from relaxpy.errors import CompileError
from relaxpy.exec.runtime.checks import Signature
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import is_of_relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.infer import callee_name
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func import PrimFunc

PublicFunctions: TypeAlias = Mapping[str, tuple[str, Signature]]
"""The names in a module and the signatures of its public functions by symbol."""


def public_signatures(module: IRModule) -> PublicFunctions:
    """The name in the module and the signature of each public function by symbol (TOP-3)."""
    signatures = {}
    for name, func in module.functions_by_name.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and not isinstance(func, rx.ExternFunc):
            signatures[str(symbol)] = (name, signature_of(func, str(symbol)))
    return signatures


def signature_of(func: rx.BaseFunc, name: str) -> Signature:
    """The signature of a Relax function, or that of a kernel from its buffers and scalars.

    The dimensions of a kernel's buffers become int64, whatever the datatype of its indices is.
    """
    if isinstance(func, rx.Function):
        return Signature.of(func, name)
    assert isinstance(func, PrimFunc)
    wide: dict[tir.Var, tir.PrimExpr] = {
        param: ops.cast_to(param, INT64)
        for param in func.params
        if func.buffer_of(param) is None and param.dtype.is_int
    }
    params = []
    for param in func.params:
        buffer = func.buffer_of(param)
        sinfo: rx.StructInfo = rx.ObjectStructInfo()
        if buffer is not None:
            shape = tuple(widened(size, wide) for size in buffer.shape)
            sinfo = rx.TensorStructInfo(rx.ShapeExpr(shape), buffer.dtype)
        elif param.dtype.family != "handle":
            sinfo = rx.PrimStructInfo(param.dtype, param)
        params.append(rx.Var(param.name, sinfo))
    return Signature(name, tuple(params), None, func.span)


def widened(size: tir.PrimExpr, wide: dict[tir.Var, tir.PrimExpr]) -> tir.PrimExpr:
    """`size` computed in int64, with the values `wide`, or new variables of the same names."""

    def rule(node: Node) -> Node | None:
        match node:
            case tir.Var():
                if node not in wide:
                    is_wide = node.dtype == INT64
                    wide[node] = node if is_wide else tir.Var(node.name, INT64)
                return wide[node]
            case tir.IntImm(dtype=dtype, value=value) if not dtype.is_bool:
                return tir.IntImm(INT64, value)
            case tir.Cast(dtype=dtype, value=value) if value.dtype == INT64 and dtype.is_int:
                return value
            case _:
                return None

    found = rewrite(size, rule)
    assert isinstance(found, tir.PrimExpr)
    return found


def closure_sinfo(func: rx.Function) -> rx.FuncStructInfo:
    """The derived struct info of a function if it has its parameters, or else its annotations."""
    match func.struct_info:
        case rx.FuncStructInfo(params=params) as derived if params is not None:
            if len(params) == len(func.params):
                return derived
    sinfos = (p.struct_info or rx.ObjectStructInfo() for p in func.params)
    return rx.FuncStructInfo(
        tuple(sinfos), func.ret_struct_info or rx.ObjectStructInfo(), func.is_pure
    )


def output_sinfos(call: rx.Call) -> tuple[rx.TensorStructInfo, ...]:
    """The struct info of each output of a call in destination-passing style (OP-3).

    Errors:
        CompileError: a datatype or shape is unknown.
    """
    [sinfo] = call.sinfo_args or (None,)
    operator = call.op.name if isinstance(call.op, Op) else call.op
    fields = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
    outputs = []
    for output in fields:
        known = isinstance(output, rx.TensorStructInfo) and output.shape is not None
        if not known or output.dtype.is_void:  # type: ignore[union-attr]
            raise CompileError(
                f"the output of {operator} needs a datatype and a shape, found {output}",
                rule="OP-3",
                span=call.span,
            )
        outputs.append(output)
    return tuple(outputs)  # type: ignore[arg-type]


def declared_result(call: rx.Expr) -> tuple[rx.StructInfo, str] | None:
    """The struct info that a user's function must return in a call, and its name in messages.

    It is None if the call declares nothing or allocates its outputs.
    """
    if not isinstance(call, rx.Call) or isinstance(call.struct_info, rx.ObjectStructInfo | None):
        return None
    callee: object = call.op
    if isinstance(callee, Op):
        kind, run = callee.record.calls, callee.record.runtime
        if kind is None and run is not None and not is_of_relaxpy(run):
            return call.struct_info, f"the result of {callee.name}"
        if not call.sinfo_args or kind is None or kind.has_outputs:
            return None
        callee = call.args[0] if call.args else callee
    elif not call.sinfo_args and not isinstance(callee, rx.ExternFunc):
        return None
    assert isinstance(callee, (rx.Expr, Op))
    name = callee.value if isinstance(callee, rx.StringImm) else callee_name(callee)
    return call.struct_info, f"the result of {name}"


def may_be_null(sinfo: rx.StructInfo, is_used: bool) -> bool:
    """Return whether a function may return None for a declared result: unit, or an unused one."""
    return not is_used or (isinstance(sinfo, rx.TupleStructInfo) and not sinfo.fields)


def packed_keywords(call: rx.Call) -> dict[str, object]:
    """The keyword arguments of a packed function, which do not include `pure` (LEG-15)."""
    return {name: value for name, value in call.attrs.items() if name != "pure"}
