"""Helpers of the patterns of kernel libraries: conditions, and workspaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.dpl.graph import PatternCheckContext
from relaxpy.ir.relax.op.definition.registry import with_all_attributes
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace
from relaxpy.tvm.lowering.allocate_workspace import AllocateWorkspace

Dims: TypeAlias = Sequence[tir.PrimExpr]

SYMBOLIC_WORKSPACE: Final = 8
"""The bytes of the workspace of a function whose result has symbolic dimensions."""


def has_leaking_intermediate_variables(context: PatternCheckContext) -> bool:
    """Return whether a variable of the match, other than its result, may be used outside of it."""
    result = context.value_to_bound_var[context.matched_expr]
    return any(
        not isinstance(var, rx.DataflowVar)
        or any(user not in context.matched_bindings for user in context.var_usages.get(var, ()))
        for var in context.matched_bindings
        if var is not result
    )


def dtype_of(expr: rx.Expr) -> str:
    """The datatype of a tensor; "" if it is not known."""
    sinfo = expr.struct_info
    return str(sinfo.dtype) if isinstance(sinfo, rx.TensorStructInfo) else ""


def dims_of(expr: rx.Expr) -> Dims | None:
    """The dimensions of a tensor, if they are known."""
    sinfo = expr.struct_info
    shape = sinfo.shape if isinstance(sinfo, rx.TensorStructInfo) else None
    return shape.values if isinstance(shape, rx.ShapeExpr) else None


def rank_of(expr: rx.Expr) -> int:
    """The rank of a tensor; -1 if it is not known."""
    sinfo = expr.struct_info
    return sinfo.ndim if isinstance(sinfo, rx.TensorStructInfo) else -1


def is_multiple(dim: tir.PrimExpr, factor: int) -> bool:
    """Return whether a dimension is a literal, and a multiple of a factor."""
    return isinstance(dim, tir.IntImm) and dim.value % factor == 0


def product(dims: Dims) -> tir.PrimExpr:
    """The product of dimensions."""
    result: tir.PrimExpr = ops.const(1, "int64")
    for dim in dims:
        result = ops.mul(result, dim)
    return result


def same_dims(one: Dims, other: Dims) -> bool:
    """Return whether two shapes are provably equal."""
    return len(one) == len(other) and all(
        prove_equal(a, b) for a, b in zip(one, other, strict=True)
    )


def is_stacked_along(context: PatternCheckContext, axis: int) -> bool:
    """True if the operands of attention are neighbours along this last axis of their tensor."""
    named = context.annotated_expr
    if has_leaking_intermediate_variables(context) or rank_of(named["stacked_qkv"]) != axis + 1:
        return False
    if "split" in named:
        split = with_all_attributes(cast("rx.Call", named["split"]))
        return split.attrs["axis"] in (axis, -1)
    start = 0
    for name in ("query", "key", "value"):
        _, *operands = cast("rx.Call", named[f"strided_slice_{name}"]).args
        axes, begin, end, strides = (_integers(operand) for operand in (*operands, None)[:4])
        if axes != [axis] or begin != [start] or strides not in ([1], []) or len(end) != 1:
            return False
        start = end[0]
    return True


def _integers(operand: rx.Expr | None) -> list[int]:
    """The literals of a tuple; others are left out."""
    fields = operand.fields if isinstance(operand, rx.Tuple) else ()
    values = [field.value for field in fields if isinstance(field, rx.PrimValue)]
    return [value.value for value in values if isinstance(value, tir.IntImm)]


def with_workspaces(mod: IRModule, library: str) -> IRModule:
    """The module with a workspace for each function of a library that computes attention."""

    def annotated(func: rx.Function) -> rx.Function:
        size = _workspace(func, library)
        if size is not None:
            return func.with_attr("WorkspaceSize", size)
        if func.attrs.get("Codegen") != library:
            return func
        first, *others = func.body.blocks
        binding, *rest = first.bindings
        inner = binding.value
        size = _workspace(inner, library) if isinstance(inner, rx.Function) else None
        if (
            size is None
            or not isinstance(inner, rx.Function)
            or not isinstance(binding, rx.VarBinding)
        ):
            return func
        binding = replace(binding, value=inner.with_attr("WorkspaceSize", size))
        blocks = (replace(first, bindings=(binding, *rest)), *others)
        body = rebuild(func.body, blocks=blocks)
        return rebuild(func, body=body).with_attr("WorkspaceSize", size)

    return AllocateWorkspace()(map_functions(mod, rx.Function, annotated))


def _workspace(func: rx.Function, library: str) -> int | None:
    """The bytes that a composite function needs; None if it needs none."""
    name = func.attrs.get("Composite")
    if not isinstance(name, str) or "attention" not in name or not name.startswith(library):
        return None
    sinfo = func.body.struct_info
    dims = dims_of(func.body)
    if dims is None or not isinstance(sinfo, rx.TensorStructInfo):
        return SYMBOLIC_WORKSPACE
    size = product(dims)
    return size.value * sinfo.dtype.itemsize if isinstance(size, tir.IntImm) else SYMBOLIC_WORKSPACE
