"""Elimination of checks of lowered programs that provably succeed (OPT-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.exec.lower.storages import is_runtime_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.vm import MatchShapeCode
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir


def certainly_succeeds(call: rx.Call, known: Callable[[rx.Expr], rx.StructInfo]) -> bool:
    """Return whether a call is a run-time check that the `known` struct info implies.

    Such a check stores no dimensions.
    """
    match call.args:
        case [value, rx.PrimValue(value=tir.IntImm(value=ndim)), rx.DataTypeImm(value=dtype), _]:
            if not is_runtime_function(call, "check_tensor_info"):
                return False
            return is_base_of(rx.TensorStructInfo(None, dtype, ndim=ndim), known(value))
        case [value, _, rx.PrimValue(value=tir.IntImm(value=ndim)), *codes, _]:
            if not is_runtime_function(call, "match_shape"):
                return False
            sinfo = known(value)
            shape = sinfo.shape if isinstance(sinfo, rx.TensorStructInfo) else None
            dims = shape.values if isinstance(shape, rx.ShapeExpr) else ()
            return len(dims) == ndim and _literals(dims) == _asserted(codes)
        case _:
            return False


def _literals(dims: Sequence[tir.PrimExpr]) -> list[int | None]:
    return [dim.value if isinstance(dim, tir.IntImm) else None for dim in dims]


def _asserted(codes: Sequence[rx.Expr]) -> list[int] | None:
    """The integers that dimensions are compared with; None if they are used otherwise."""
    numbers = [code.value.value for code in codes if _is_literal(code)]  # type: ignore[attr-defined]
    asserts = all(code == MatchShapeCode.ASSERT_EQUAL_TO_IMM for code in numbers[::2])
    return numbers[1::2] if asserts and len(numbers) == len(codes) else None


def _is_literal(code: rx.Expr) -> bool:
    return isinstance(code, rx.PrimValue) and isinstance(code.value, tir.IntImm)
