"""Least upper bounds (LUB) and greatest lower bounds (GLB) of struct info."""

from __future__ import annotations

from collections.abc import Container

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.compatibility import is_base_of
from relaxpy.ir.relax.relations.mapping import matched_pairs
from relaxpy.ir.relax.relations.shape_vars import (
    alpha_rename,
    alpha_rename_clashes,
    bound_shape_vars,
    extended,
    free_shape_vars,
    substitute_info,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing


@user_facing
def struct_info_lca(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo:
    """The least upper bound ("unification"): the most specific base of both.

    Rule:
        SUB-20, SUB-21, SUB-22, SUB-23, SUB-24, SUB-25, SUB-26, SUB-27.
        `shape_vars` are in scope at both.
    """
    lhs, rhs = rx.as_struct_info(lhs), rx.as_struct_info(rhs)
    if is_base_of(rhs, lhs, shape_vars):
        return rhs
    if is_base_of(lhs, rhs, shape_vars):
        return lhs
    match lhs, rhs:
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return rx.TensorStructInfo(
                lhs.shape if _same_shape(lhs, rhs) else None,
                lhs.dtype if lhs.dtype == rhs.dtype else VOID,
                lhs.vdevice if lhs.vdevice == rhs.vdevice else None,
                lhs.ndim if lhs.ndim == rhs.ndim else -1,
            )
        case rx.ShapeStructInfo(), rx.ShapeStructInfo():
            return rx.ShapeStructInfo(None, lhs.ndim if lhs.ndim == rhs.ndim else -1)
        case rx.PrimStructInfo(), rx.PrimStructInfo() if lhs.dtype == rhs.dtype:
            return rx.PrimStructInfo(lhs.dtype)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            return rx.TupleStructInfo(
                tuple(struct_info_lca(x, y, shape_vars) for x, y in zip(p, q, strict=True))
            )
        case DTensorStructInfo(), DTensorStructInfo() if lhs.is_placed_like(rhs):
            tensor = struct_info_lca(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return replace(lhs, tensor_sinfo=tensor)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _callable_lub(lhs, rhs, shape_vars) or rx.ObjectStructInfo()
        case _:
            return rx.ObjectStructInfo()


@user_facing
def struct_info_glb(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo | None:
    """The greatest lower bound: the least specific struct info of which both are bases, or None.

    Rule:
        SUB-31, SUB-32, SUB-33, SUB-34, SUB-35. `shape_vars` are in scope at both.
    """
    lhs, rhs = rx.as_struct_info(lhs), rx.as_struct_info(rhs)
    if is_base_of(rhs, lhs, shape_vars):
        return lhs
    if is_base_of(lhs, rhs, shape_vars):
        return rhs
    match lhs, rhs:
        case rx.TensorStructInfo(), rx.TensorStructInfo():
            return _tensor_glb(lhs, rhs)
        case rx.TupleStructInfo(fields=p), rx.TupleStructInfo(fields=q) if len(p) == len(q):
            fields = [struct_info_glb(x, y, shape_vars) for x, y in zip(p, q, strict=True)]
            known = tuple(f for f in fields if f is not None)
            return rx.TupleStructInfo(known) if len(known) == len(fields) else None
        case DTensorStructInfo(), DTensorStructInfo() if lhs.is_placed_like(rhs):
            tensor = struct_info_glb(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return None if tensor is None else replace(lhs, tensor_sinfo=tensor)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _callable_glb(lhs, rhs, shape_vars)
        case _:
            return None


def _same_shape(a: rx.TensorStructInfo, b: rx.TensorStructInfo) -> bool:
    if a.shape is None or b.shape is None:
        return False
    if a.shape is b.shape:
        return True
    p, q = a.get_shape(), b.get_shape()
    if p is None or q is None or len(p) != len(q):
        return False
    return all(x is y or prove_equal(x, y) is True for x, y in zip(p, q, strict=True))


def _tensor_glb(a: rx.TensorStructInfo, b: rx.TensorStructInfo) -> rx.TensorStructInfo | None:
    """SUB-33: a property that one operand leaves unknown is that of the other."""
    if a.shape is not None and b.shape is not None and not _same_shape(a, b):
        return None
    dtypes = {d for d in (a.dtype, b.dtype) if not d.is_void}
    ranks = {n for n in (a.ndim, b.ndim) if n != -1}
    devices = [d for d in (a.vdevice, b.vdevice) if d is not None]
    if len(dtypes) > 1 or len(ranks) > 1 or (len(devices) == 2 and devices[0] != devices[1]):
        return None
    shape = a.shape if a.shape is not None else b.shape
    ndim = ranks.pop() if ranks else -1
    return rx.TensorStructInfo(
        shape, dtypes.pop() if dtypes else VOID, devices[0] if devices else None, ndim
    )


def _callable_lub(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> rx.FuncStructInfo | None:
    """SUB-28, SUB-29, SUB-30 if neither is a base of the other; None means Object."""
    if a.params is None and b.params is None:
        purity = a.purity and b.purity
        return rx.FuncStructInfo(None, rx.ObjectStructInfo(), purity, derive_func=rx.EMPTY_DERIVE)
    return _closure_bound(a, b, scope, upper=True)


def _callable_glb(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> rx.FuncStructInfo | None:
    """SUB-36, SUB-37, SUB-38 if neither is a base of the other."""
    if a.params is None and b.params is None:
        purity = a.purity or b.purity
        if b.derive_func == rx.EMPTY_DERIVE:
            return replace(a, purity=purity)
        return replace(b, purity=purity) if a.derive_func == rx.EMPTY_DERIVE else None
    return _closure_bound(a, b, scope, upper=False)


def _closure_bound(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var], *, upper: bool
) -> rx.FuncStructInfo | None:
    """The LUB (`upper`) or GLB of Callables with parameters, or None if there is none.

    Callables are contravariant in their parameters, so these get the opposite bound.
    """
    if a.params is None or b.params is None or len(a.params) != len(b.params):
        return None
    a, renamed = _aligned(a, b, scope)
    bound = (*bound_shape_vars(a, scope), *bound_shape_vars(renamed, scope))
    inner = extended(scope, bound)
    assert a.params is not None
    assert renamed.params is not None
    of_result, of_params = struct_info_lca, struct_info_glb
    if not upper:
        of_result, of_params = of_params, of_result  # type: ignore[assignment]
    ret = of_result(a.ret, renamed.ret, inner)
    params = [of_params(p, q, inner) for p, q in zip(a.params, renamed.params, strict=True)]
    if ret is None or any(param is None for param in params):
        return None
    purity = (a.purity and b.purity) if upper else (a.purity or b.purity)
    result = rx.FuncStructInfo(params, ret, purity)  # type: ignore[arg-type]
    if any(var in bound for var in free_shape_vars(result, scope)):
        return None
    pairs = [(result, a), (result, b)] if upper else [(a, result), (b, result)]
    sound = not bound or all(is_base_of(base, derived, scope) for base, derived in pairs)
    return result if sound else None


def _aligned(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Container[tir.Var]
) -> tuple[rx.FuncStructInfo, rx.FuncStructInfo]:
    """`a` and `b`, with the bound variables of `b` renamed to those of `a` at the same positions.

    A variable is paired with the first one that it meets and that has no partner yet, so that the
    result does not depend on the order of the operands (SUB-20).
    """
    a = alpha_rename_clashes(a, b, scope)
    renamed = alpha_rename(b, scope)
    assert a.params is not None
    assert renamed.params is not None
    unpaired = set(bound_shape_vars(a, scope))
    table: dict[tir.Var, tir.PrimExpr] = {}
    for var, image in matched_pairs(renamed.params, a.params, scope):
        if image in unpaired and var not in table:
            table[var] = image
            unpaired.discard(image)
    return a, substitute_info(renamed, table)
