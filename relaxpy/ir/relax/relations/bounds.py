"""Least upper and greatest lower bounds of infos under `<<:`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from relaxpy.entry import user_facing
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

Scope = Container[tir.Var]


@user_facing
def struct_info_lca(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo:
    """The least info that is above both ("unify").

    Rule:
        SUB-20, SUB-21, SUB-22, SUB-23, SUB-24, SUB-25, SUB-26, SUB-27.
        `shape_vars` are in scope around both.
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
        case DTensorStructInfo(), DTensorStructInfo() if _alike(lhs, rhs):
            whole = struct_info_lca(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return replace(lhs, tensor_sinfo=whole)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _function_lub(lhs, rhs, shape_vars) or rx.ObjectStructInfo()
        case _:
            return rx.ObjectStructInfo()


def _alike(a: DTensorStructInfo, b: DTensorStructInfo) -> bool:
    """Whether two tensors are spread over the same devices in the same way."""
    return a.device_mesh == b.device_mesh and a.placement == b.placement


@user_facing
def struct_info_glb(
    lhs: rx.StructInfo, rhs: rx.StructInfo, shape_vars: Container[tir.Var] = ()
) -> rx.StructInfo | None:
    """The greatest info that is below both, or None where there is none.

    Rule:
        SUB-31, SUB-32, SUB-33, SUB-34, SUB-35. `shape_vars` are in scope around both.
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
        case DTensorStructInfo(), DTensorStructInfo() if _alike(lhs, rhs):
            part = struct_info_glb(lhs.tensor_sinfo, rhs.tensor_sinfo, shape_vars)
            return None if part is None else replace(lhs, tensor_sinfo=part)  # type: ignore[arg-type]
        case rx.FuncStructInfo(), rx.FuncStructInfo():
            return _function_glb(lhs, rhs, shape_vars)
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
    """SUB-33: what is unknown on one side gives way to the other; a conflict has no bound."""
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


def _aligned(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Scope
) -> tuple[rx.FuncStructInfo, rx.FuncStructInfo]:
    """Both, the own variables of `b` called as those of `a` that stand in their places.

    A variable goes with the first one that it meets and that goes with no other, so that which of
    the two comes first does not matter (SUB-20).
    """
    a = alpha_rename_clashes(a, b, scope)
    renamed = alpha_rename(b, scope)
    assert a.params is not None
    assert renamed.params is not None
    free = set(bound_shape_vars(a, scope))
    table: dict[tir.Var, tir.PrimExpr] = {}
    for var, image in matched_pairs(renamed.params, a.params, scope):
        if image in free and var not in table:
            table[var] = image
            free.discard(image)
    return a, substitute_info(renamed, table)


def _function_lub(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Scope
) -> rx.FuncStructInfo | None:
    """SUB-28, SUB-29, SUB-30, where neither is below the other; None stands for Object."""
    purity = a.purity and b.purity
    if a.params is None and b.params is None:
        return rx.FuncStructInfo(None, rx.ObjectStructInfo(), purity, derive_func=rx.EMPTY_DERIVE)
    if a.params is None or b.params is None or len(a.params) != len(b.params):
        return None
    a, other = _aligned(a, b, scope)
    own = (*bound_shape_vars(a, scope), *bound_shape_vars(other, scope))
    inner = extended(scope, own)
    assert a.params is not None
    assert other.params is not None
    params = [struct_info_glb(p, q, inner) for p, q in zip(a.params, other.params, strict=True)]
    known = tuple(p for p in params if p is not None)
    if len(known) != len(params):
        return None
    found = rx.FuncStructInfo(known, struct_info_lca(a.ret, other.ret, inner), purity)
    if own and not (is_base_of(found, a, scope) and is_base_of(found, b, scope)):
        return None
    return found


def _function_glb(
    a: rx.FuncStructInfo, b: rx.FuncStructInfo, scope: Scope
) -> rx.FuncStructInfo | None:
    """SUB-36, SUB-37, SUB-38, where neither is below the other."""
    purity = a.purity or b.purity
    if a.params is None and b.params is None:
        if b.derive_func == rx.EMPTY_DERIVE:
            return replace(a, purity=purity)
        return replace(b, purity=purity) if a.derive_func == rx.EMPTY_DERIVE else None
    if a.params is None or b.params is None or len(a.params) != len(b.params):
        return None
    a, other = _aligned(a, b, scope)
    own = (*bound_shape_vars(a, scope), *bound_shape_vars(other, scope))
    inner = extended(scope, own)
    assert a.params is not None
    assert other.params is not None
    params = [struct_info_lca(p, q, inner) for p, q in zip(a.params, other.params, strict=True)]
    ret = struct_info_glb(a.ret, other.ret, inner)
    if ret is None:
        return None
    found = rx.FuncStructInfo(tuple(params), ret, purity)
    if any(var in own for var in free_shape_vars(found, scope)):
        return None
    if own and not (is_base_of(a, found, scope) and is_base_of(b, found, scope)):
        return None
    return found
