"""The interval of one variable in which a comparison holds."""

from __future__ import annotations

from collections.abc import Mapping

from relaxpy.ir.arith.algebra import folding
from relaxpy.ir.arith.canonical import GENERAL, entry_point
from relaxpy.ir.arith.tvm.analyzer import Analyzer, ConstIntBound
from relaxpy.ir.arith.tvm.intset import NOTHING, IntervalSet, domains_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions

Domains = Mapping[Var, "IntervalSet | Range"]


@entry_point
def deduce_bound(var: Var, cond: ExprLike, hint_map: Domains, relax_map: Domains) -> IntervalSet:
    """The values of `var` for which `cond` holds for all values of the variables in `relax_map`.

    `hint_map` has intervals of variables, which decide signs. The interval is empty where the
    comparison cannot be solved for `var`, which must occur in it exactly once.

    Errors:
        MisuseError (also TypeError): `var` is not a variable, or a domain not an interval.
    """
    ops.check_variable(var, "deduce_bound")
    relaxed = domains_of(relax_map)
    hints = {**relaxed, **domains_of(hint_map)}
    analyzer = _with_hints(hints)
    compared = _with_var_on_left(ops.convert(cond), var)
    if compared is None:
        return NOTHING
    kind, left, right = compared
    if kind is tir.EQ:
        value = _Solver(analyzer, var, relaxed, tir.EQ).solve(left, right)
        if value is None or mentions(value, relaxed):
            return NOTHING
        return IntervalSet(value, value)
    solver = _Solver(analyzer, var, relaxed, kind)
    limit = solver.solve(left, right)
    end = None if limit is None else solver.strictest(limit)
    if end is None:
        return NOTHING
    return IntervalSet(None, end) if solver.kind is tir.LE else IntervalSet(end, None)


def _with_hints(hints: Mapping[Var, IntervalSet]) -> Analyzer:
    analyzer = Analyzer()
    for var, domain in hints.items():
        low, high = (
            end.value if isinstance(end, tir.IntImm) else None
            for end in (domain.min_value, domain.max_value)
        )
        if domain.is_nothing():
            continue
        least = ConstIntBound.NEG_INF if low is None else low
        analyzer.update(var, ConstIntBound(least, ConstIntBound.POS_INF if high is None else high))
    return analyzer


def _with_var_on_left(
    condition: PrimExpr, var: Var
) -> tuple[type[tir.CmpExpr], PrimExpr, PrimExpr] | None:
    """Rewrite a comparison as left <=, >= or == right, with `var` on the left."""
    if not isinstance(condition, tir.CmpExpr) or condition.a.dtype.family != "int":
        return None
    a, b = condition.a, condition.b
    if a.dtype.vector or folding.uses(condition, var) != 1:
        return None
    one = ops.const(1, a.dtype)
    match condition:
        case tir.LT():
            kind: type[tir.CmpExpr] = tir.LE
            a, b = (a, tir.Sub(b, one)) if mentions(a, (var,)) else (tir.Add(a, one), b)
        case tir.GT():
            kind = tir.GE
            a, b = (a, tir.Add(b, one)) if mentions(a, (var,)) else (tir.Sub(a, one), b)
        case tir.LE() | tir.GE() | tir.EQ():
            kind = type(condition)
        case _:
            return None
    if mentions(a, (var,)):
        return kind, a, b
    mirrored: dict[type[tir.CmpExpr], type[tir.CmpExpr]] = {tir.LE: tir.GE, tir.GE: tir.LE}
    return mirrored.get(kind, kind), b, a


class _Solver:
    """Solves a comparison for `var` by moving operands to the other side; `kind` is LE, GE or EQ.

    Nodes are built unfolded: folded in their datatype, literals could wrap around.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        var: Var,
        relaxed: Mapping[Var, IntervalSet],
        kind: type[tir.CmpExpr],
    ) -> None:
        self.analyzer = analyzer
        self.var = var
        self.relaxed = relaxed
        self.kind = kind

    def turn(self) -> None:
        self.kind = {tir.LE: tir.GE, tir.GE: tir.LE}.get(self.kind, self.kind)

    def solve(self, left: PrimExpr, right: PrimExpr) -> PrimExpr | None:
        """The upper bound, lower bound or value of `var`, by `kind`; None if it is not known."""
        while left is not self.var:
            match left:
                case tir.Add(a=a, b=b):
                    left, operand = (a, b) if self.inside(a) else (b, a)
                    right = tir.Sub(right, operand)
                case tir.Sub(a=a, b=b) if self.inside(a):
                    left, right = a, tir.Add(right, b)
                case tir.Sub(a=a, b=b):
                    left, right = b, tir.Sub(a, right)
                    self.turn()
                case tir.Mul(a=a, b=b):
                    left, operand = (a, b) if self.inside(a) else (b, a)
                    moved = self.divided(right, operand)
                    if moved is None:
                        return None
                    right = moved
                case tir.FloorDiv(a=a, b=b) if self.inside(a):
                    moved = self.opened(right, b)
                    if moved is None:
                        return None
                    left, right = a, moved
                case _:
                    return None
        return GENERAL.written(GENERAL.poly(right), right.dtype)

    def inside(self, expr: PrimExpr) -> bool:
        return mentions(expr, (self.var,))

    def sign(self, factor: PrimExpr) -> int:
        bound = self.analyzer.const_int_bound(factor)
        return (bound.min_value > 0) - (bound.max_value < 0)

    def strictest(self, limit: PrimExpr) -> PrimExpr | None:
        """The strictest value of `limit` as the relaxed variables run."""
        if not mentions(limit, self.relaxed):
            return limit
        covered = self.analyzer.int_set(limit, self.relaxed)
        if self.kind is tir.LE:
            return covered.min_value if covered.has_lower_bound() else None
        return covered.max_value if covered.has_upper_bound() else None

    def divided(self, right: PrimExpr, factor: PrimExpr) -> PrimExpr | None:
        """`x * factor` compared with `right`, as x compared with the result."""
        sign = self.sign(factor)
        if sign == 0:
            return None
        if self.kind is not tir.EQ:
            strictest = self.strictest(right)
            if strictest is None or mentions(factor, self.relaxed):
                return None
            right = strictest
        exact = self.analyzer.can_prove(tir.FloorMod(right, factor).equal(0))
        quotient = tir.FloorDiv(right, factor)
        if self.kind is tir.EQ:
            return quotient if exact else None
        if sign < 0:
            self.turn()
        # x <= right / factor is rounded down, x >= right / factor up.
        if self.kind is tir.LE or exact:
            return quotient
        return tir.Add(quotient, ops.const(1, right.dtype))

    def opened(self, right: PrimExpr, divisor: PrimExpr) -> PrimExpr | None:
        """`x // divisor` compared with `right`, as x compared with the result."""
        sign = self.sign(divisor)
        if sign == 0 or self.kind is tir.EQ:
            return None
        strictest = self.strictest(right)
        if strictest is None or mentions(divisor, self.relaxed):
            return None
        if self.kind is tir.GE:
            limit: PrimExpr = tir.Mul(strictest, divisor)
        else:
            one, last = ops.const(1, right.dtype), ops.const(sign, right.dtype)
            limit = tir.Sub(tir.Mul(tir.Add(strictest, one), divisor), last)
        if sign < 0:
            self.turn()
        return limit
