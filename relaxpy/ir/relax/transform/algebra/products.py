"""Helpers of the passes over matmuls."""

from __future__ import annotations

from typing import cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.compile_time import computable_at_compile_time
from relaxpy.ir.relax.nodes import Call, Expr, Function
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import tensor_sinfo
from relaxpy.ir.tir import expr as tir


def known_at_compile_time(mod: IRModule) -> set[Expr]:
    """The lifted variables, which functions can compute from weights before they are called."""
    functions = mod.functions_by_name.values()
    known: set[Expr] = set()
    for func in functions:
        if isinstance(func, Function) and "num_input" in func.attrs:
            known.update(computable_at_compile_time(func))
    return known


def have_one_dtype(*tensors: Expr) -> bool:
    """Return whether operands and matmuls have one datatype, so that all round and wrap alike.

    If none of them is known, no matmul declares its own, and operands have to agree.
    """
    [dtype, *others] = {
        None if sinfo is None else sinfo.dtype for sinfo in map(tensor_sinfo, tensors)
    }
    return not others and dtype is not None


def shape_of(expr: Expr) -> tuple[tir.PrimExpr, ...] | None:
    """The sizes of a tensor, if they are known."""
    sinfo = tensor_sinfo(expr)
    shape = None if sinfo is None else sinfo.get_shape()
    return None if shape is None else tuple(shape)


def have_same_shape(x: Expr, y: Expr) -> bool:
    """Return whether two tensors certainly have one shape."""
    a, b = shape_of(x), shape_of(y)
    if a is None or b is None or len(a) != len(b):
        return False
    return all(prove_equal(m, n) for m, n in zip(a, b, strict=True))


def permutation_of(call: Call) -> tuple[int, ...] | None:
    """The axes of a `permute_dims`, if they are known."""
    axes = call.attrs["axes"]
    sinfo = tensor_sinfo(call.args[0])
    if axes is not None:
        axes = cast("tuple[int, ...]", axes)
        return tuple(axis % len(axes) for axis in axes)
    return None if sinfo is None or sinfo.ndim < 0 else tuple(reversed(range(sinfo.ndim)))


def is_transposition(call: Call) -> bool:
    """Return whether a `permute_dims` exchanges the last two axes."""
    axes = permutation_of(call)
    if axes is None or len(axes) < 2:
        return False
    first = tuple(range(len(axes)))
    return axes == (*first[:-2], first[-1], first[-2])


def transposed(expr: Expr) -> Expr:
    """A stack of matrices of a known rank, each transposed."""
    sinfo = tensor_sinfo(expr)
    assert sinfo is not None
    ndim = sinfo.ndim
    axes = None if ndim == 2 else (*range(ndim - 2), ndim - 1, ndim - 2)
    return cast("Expr", R.permute_dims(expr, axes))
