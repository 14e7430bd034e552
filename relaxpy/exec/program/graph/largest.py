"""Upper bounds of sizes that depend on data, for memory that is planned before they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.ir.arith.algebra.folding import operands_of_choice
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.ops import maximum, minimum

UPPER_BOUND: Final = "tir_var_upper_bound"
"""The attribute with the largest values of sizes by their names."""


def largest(size: PrimExpr, most: Mapping[Var, PrimExpr]) -> PrimExpr:
    """The largest value of a size whose variables in `most` are from 0 to these bounds.

    Errors:
        RefusedError: it is not known.
    """
    return simplify(_extreme(size, most, upper=True))


def _extreme(size: PrimExpr, most: Mapping[Var, PrimExpr], *, upper: bool) -> PrimExpr:
    """An upper or a lower bound of a size; dimensions, which are factors, are at least 0."""
    if not any(node in most for node in walk(size) if isinstance(node, Var)):
        return size
    match size:
        case Var():
            return _extreme(most[size], most, upper=True) if upper else IntImm("int64", 0)
        case tir.Add(a=a, b=b):
            return _extreme(a, most, upper=upper) + _extreme(b, most, upper=upper)
        case tir.Sub(a=a, b=b):
            return _extreme(a, most, upper=upper) - _extreme(b, most, upper=not upper)
        case tir.Mul(a=a, b=IntImm(value=factor) as b) | tir.Mul(a=IntImm(value=factor) as b, b=a):
            return _extreme(a, most, upper=upper == (factor >= 0)) * b
        case tir.Mul(a=a, b=b):
            return _factor(a, most, upper=upper) * _factor(b, most, upper=upper)
        case tir.FloorDiv(a=a, b=IntImm(value=divisor) as b) if divisor > 0:
            return _extreme(a, most, upper=upper) // b
        case tir.FloorMod(b=IntImm(value=divisor)) if divisor > 0:
            return IntImm("int64", divisor - 1 if upper else 0)
        case tir.Min(a=a, b=b) | tir.Max(a=a, b=b):
            return type(size)(_extreme(a, most, upper=upper), _extreme(b, most, upper=upper))
        case _ if choice := operands_of_choice(size):
            yes, no = (_extreme(value, most, upper=upper) for value in choice[1:])
            return maximum(yes, no) if upper else minimum(yes, no)
        case _:
            raise RefusedError(f"the largest value of {size}, which depends on data, is not known")


def _factor(size: PrimExpr, most: Mapping[Var, PrimExpr], *, upper: bool) -> PrimExpr:
    found = _extreme(size, most, upper=upper)
    return found if isinstance(found, Var) else maximum(found, IntImm("int64", 0))
