"""Upper bounds of symbolic sizes, from the attributes of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from relaxpy.errors import TransformError
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.symbolic import defined_symbolic_vars
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range

_LARGEST = 2**62


class SizeBounds:
    """The bounds of shape variables, by name."""

    def __init__(
        self, upper: Mapping[str, int] | None = None, lower: Mapping[str, int] | None = None
    ) -> None:
        self._upper, self._lower = upper or {}, lower or {}

    @classmethod
    def of(cls, func: Function) -> Self:
        """The bounds that the attributes of a function declare.

        Errors:
            TransformError: an attribute is not a mapping from names to integers.
        """
        return cls(_bounds(func, "tir_var_upper_bound"), _bounds(func, "tir_var_lower_bound"))

    def largest(self, size: tir.PrimExpr) -> tir.PrimExpr:
        """The largest value of a size in bytes, as a constant, or the size if it has no bound."""
        variables = dict.fromkeys(v for v in walk(size) if isinstance(v, tir.Var))
        if not any(var.name in self._upper for var in variables):
            return size
        analyzer = Analyzer()
        for var in variables:
            low = self._lower.get(var.name, 0)
            if var.name in self._upper:
                extent = self._upper[var.name] - low + 1
                if extent < 1:
                    return size
                analyzer.bind(var, Range.from_min_extent(low, extent))
        bound = analyzer.const_int_bound(size).max_value
        return ops.const(bound, INT64) if 0 <= bound < _LARGEST else size


def upper_bounds(func: Function) -> dict[tir.Var, int]:
    """The upper bounds that the attribute `tir_var_upper_bound` declares, by shape variable.

    Errors:
        TransformError: it is not a mapping from names to integers.
    """
    bounds = _bounds(func, "tir_var_upper_bound")
    sizes = (v for v in defined_symbolic_vars(func) if v.name in bounds) if bounds else ()
    return {var: bounds[var.name] for var in sizes}


def _bounds(func: Function, name: str) -> dict[str, int]:
    """The bounds in the attribute `name` of a function.

    Errors:
        TransformError: it is not a mapping from names to integers.
    """
    bounds = func.attrs.get(name, {})
    if not isinstance(bounds, Mapping):
        raise TransformError(
            f"attribute {name} is a mapping from names to integers, found {bounds!r:.60}",
            span=func.span,
        )
    result: dict[str, int] = {}
    for key, value in bounds.items():
        number = value.value if isinstance(value, tir.IntImm) else value
        if not isinstance(key, str) or type(number) is not int:
            raise TransformError(
                f"attribute {name} maps names to integers, found {key!r:.40}: {value!r:.40}",
                span=func.span,
            )
        result[key] = number
    return result
