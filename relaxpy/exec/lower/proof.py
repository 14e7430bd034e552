"""Calls of kernels whose arguments are known to fit, so that no check is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.substitution import substitute

Sizes = Mapping[tir.Var, tir.PrimExpr]


def sizes_of_fitting(
    callee: GlobalCallee,
    inputs: Sequence[rx.StructInfo],
    outputs: Sequence[rx.StructInfo],
    scalars: Sequence[tir.PrimExpr],
) -> Sizes | None:
    """What the kernel's size variables are, if arguments of these infos surely fit, else None.

    The outputs are new tensors: inputs that the kernel may write are not known to fit.
    """
    kernel, infos = callee.prim_func, (*inputs, *outputs)
    assert kernel is not None
    if len(infos) + len(scalars) != len(kernel.params):
        return None
    if any(index < len(inputs) for index in callee.written):
        return None
    own: dict[tir.Var, tir.PrimExpr] = {}
    wide: dict[tir.Var, tir.PrimExpr] = {}
    for param, scalar in zip(kernel.params[len(infos) :], scalars, strict=True):
        if kernel.buffer_of(param) is not None or param.dtype != scalar.dtype:
            return None
        own[param] = wide[param] = scalar
    waiting: list[tuple[tir.PrimExpr, tir.PrimExpr]] = []
    buffers = [kernel.buffer_of(param) for param in kernel.params[: len(infos)]]
    wanted_infos = [param.struct_info for param in callee.signature.params[: len(infos)]]
    for buffer, wanted, found in zip(buffers, wanted_infos, infos, strict=True):
        sizes = _sizes_if_alike(wanted, found)
        if buffer is None or sizes is None:
            return None
        for size, (expected, actual) in zip(buffer.shape, sizes, strict=True):
            if isinstance(size, tir.Var) and isinstance(expected, tir.Var) and size not in own:
                own[size] = wide[expected] = actual
            else:
                waiting.append((expected, actual))
    fits = all(prove_equal(substitute(a, wide), b) is True for a, b in waiting)
    return own if fits else None


def sizes_in_signature(callee: GlobalCallee) -> Mapping[tir.Var, tir.Var]:
    """For each variable that a size of the kernel's buffers is, that which its signature has."""
    assert callee.prim_func is not None
    found: dict[tir.Var, tir.Var] = {}
    for param, wide in zip(callee.prim_func.params, callee.signature.params, strict=True):
        buffer, info = callee.prim_func.buffer_of(param), wide.struct_info
        if buffer is None:
            found[param] = param
        elif isinstance(info, rx.TensorStructInfo) and isinstance(info.shape, rx.ShapeExpr):
            pairs = zip(buffer.shape, info.shape.values, strict=True)
            found.update(
                (a, b) for a, b in pairs if isinstance(a, tir.Var) and isinstance(b, tir.Var)
            )
    return found


def _sizes_if_alike(
    wanted: rx.StructInfo | None, found: rx.StructInfo
) -> list[tuple[tir.PrimExpr, tir.PrimExpr]] | None:
    """The sizes of two tensors side by side, if datatype and rank are the same."""
    if not isinstance(wanted, rx.TensorStructInfo) or not isinstance(found, rx.TensorStructInfo):
        return None
    if not isinstance(wanted.shape, rx.ShapeExpr) or not isinstance(found.shape, rx.ShapeExpr):
        return None
    if wanted.dtype != found.dtype or wanted.ndim != found.ndim:
        return None
    return list(zip(wanted.shape.values, found.shape.values, strict=True))
