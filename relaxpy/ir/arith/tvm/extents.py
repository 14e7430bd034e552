"""Arithmetic on extents and scales, simplified under the Ranges of iterators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import NoneType

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import is_const


def analyzer_of(iters: Mapping[Var, Range], known: Analyzer | None = None) -> Analyzer:
    """An Analyzer with the facts that are `known` and the Ranges of the iterators.

    Errors:
        MisuseError: an iterator has no Range.
    """
    check_type(iters, Mapping, "expected a table of Ranges by tir.Var as input_iters")
    check_type(known, (Analyzer, NoneType), "expected an Analyzer of facts that are known")
    analyzer = Analyzer() if known is None else known.clone()
    for var, domain in iters.items():
        if not isinstance(var, Var) or not isinstance(domain, Range):
            raise MisuseError(
                f"expected a Range for each tir.Var in input_iters, "
                f"found {var!r:.60}: {domain!r:.60}",
                about=domain,
            )
        analyzer.bind(var, domain, allow_override=True)
    return analyzer


class Extents:
    """Arithmetic under the facts of `analyzer`."""

    analyzer: Analyzer

    def simple(self, value: PrimExpr) -> PrimExpr:
        """`value` simplified under the bounds of the iterators."""
        return value if isinstance(value, IntImm) else self.analyzer.simplify(value)

    def times(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b."""
        return self.simple(ops.mul(a, b))

    def quotient(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a / b, rounded down."""
        return self.simple(ops.floordiv(a, b))

    def remainder(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The remainder of `quotient`."""
        return self.simple(ops.floormod(a, b))

    def divides(self, divisor: PrimExpr, value: PrimExpr) -> bool:
        """Return whether `value` is known to be a multiple of `divisor`."""
        return not is_const(divisor, 0) and is_const(self.remainder(value, divisor), 0)

    def same(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Return whether the two are known to be equal."""
        return a is b or self.analyzer.can_prove_equal(a, b)

    def holds(self, condition: PrimExpr) -> bool:
        """Return whether `condition` is known to hold."""
        return self.analyzer.can_prove(condition)


def absolute(value: PrimExpr) -> PrimExpr:
    """The absolute value of a literal; any other value unchanged."""
    return ops.const(-value.value, value.dtype) if is_negative(value) else value  # type: ignore[attr-defined]


def is_negative(value: PrimExpr) -> bool:
    """Return whether `value` is a negative literal."""
    return isinstance(value, IntImm) and value.value < 0


def size_of(value: PrimExpr) -> float:
    """The absolute value of a literal; infinity for anything else."""
    return abs(value.value) if isinstance(value, IntImm) else math.inf
