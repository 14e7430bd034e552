"""Signatures of functions and kernels, which of them are public, and what calls put out."""

from __future__ import annotations

from relaxpy.errors import CompileError
from relaxpy.exec.runtime.checks import Signature
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.infer import callee_name
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func.function import PrimFunc


def public_signatures(module: IRModule) -> dict[str, tuple[str, Signature]]:
    """For each symbol that can be called from outside (TOP-3): the module's name, the signature."""
    found = {}
    for name, func in module.functions_by_name.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and not isinstance(func, rx.ExternFunc):
            found[str(symbol)] = (name, signature_of(func, str(symbol)))
    return found


def signature_of(func: rx.BaseFunc, name: str) -> Signature:
    """The signature of a Relax function, or that of a kernel, read off its buffers and scalars.

    The sizes of a kernel's buffers are 64-bit there, whatever the kernel computes indices in.
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
        info: rx.StructInfo = rx.ObjectStructInfo()
        if buffer is not None:
            shape = tuple(_widened(size, wide) for size in buffer.shape)
            info = rx.TensorStructInfo(rx.ShapeExpr(shape), buffer.dtype)
        elif param.dtype.family != "handle":
            info = rx.PrimStructInfo(param.dtype, param)
        params.append(rx.Var(param.name, info))
    return Signature(name, tuple(params), None, func.span)


def _widened(size: tir.PrimExpr, wide: dict[tir.Var, tir.PrimExpr]) -> tir.PrimExpr:
    """`size` computed in 64 bits; its variables become 64-bit ones of the same names."""

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

    widened = rewrite(size, rule)
    assert isinstance(widened, tir.PrimExpr)
    return widened


def function_info(func: rx.Function) -> rx.FuncStructInfo:
    """The info of a function: the derived one if it is one of such functions, or its signature."""
    match func.struct_info:
        case rx.FuncStructInfo(params=params) as derived if params is not None:
            if len(params) == len(func.params):
                return derived
    infos = (p.struct_info or rx.ObjectStructInfo() for p in func.params)
    return rx.FuncStructInfo(
        tuple(infos), func.ret_struct_info or rx.ObjectStructInfo(), func.is_pure
    )


def output_infos(call: rx.Call) -> tuple[rx.TensorStructInfo, ...]:
    """The infos of the tensors that a call in destination-passing style writes (OP-3).

    Errors:
        CompileError: they do not say datatype and shape.
    """
    [info] = call.sinfo_args or (None,)
    operator = call.op.name if isinstance(call.op, Op) else call.op
    fields = info.fields if isinstance(info, rx.TupleStructInfo) else (info,)
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
    """What a call declares a function outside the program to return, and what messages call it.

    None where it declares nothing, and for calls whose outputs are allocated here.
    """
    if not isinstance(call, rx.Call) or isinstance(call.struct_info, rx.ObjectStructInfo | None):
        return None
    callee: object = call.op
    if isinstance(callee, Op):
        kind = callee.record.calls
        if not call.sinfo_args or kind is None or kind.has_outputs:
            return None
        callee = call.args[0] if call.args else callee
    elif not call.sinfo_args and not isinstance(callee, rx.ExternFunc):
        return None
    assert isinstance(callee, (rx.Expr, Op))
    name = callee.value if isinstance(callee, rx.StringImm) else callee_name(callee)
    return call.struct_info, f"the result of {name}"


def packed_keywords(call: rx.Call) -> dict[str, object]:
    """What a packed function is given by name; that a call is pure says nothing to it (LEG-15)."""
    return {name: value for name, value in call.attrs.items() if name != "pure"}
