"""Systems of linear inequalities over the integers, by Fourier-Motzkin elimination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.arith.algebra import poly, writer
from relaxpy.ir.arith.algebra.affine import linear_terms
from relaxpy.ir.arith.algebra.poly import ONE, Poly
from relaxpy.ir.arith.canonical import GENERAL, entry_point
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.constraints import (
    IntConstraints,
    IntConstraintsTransform,
    IntGroupBounds,
    unsolvable,
)
from relaxpy.ir.arith.tvm.patterns import at_most_zero
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import substitute

_LIMIT = 2000


class InfeasibleError(Exception):
    """No integers satisfy the system."""


@entry_point
def solve_linear_inequalities(
    equations: IntConstraints | Sequence[ExprLike],
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
    deskew_range: bool = False,
) -> IntConstraints | IntConstraintsTransform:
    """Solve for ranges of the variables, each over later ones, and the relations not implied.

    With `deskew_range` the variables run from 0: the system is over new ones, which are the old
    ones less their lower bounds. A system without solutions has the relation False, and no
    variables.

    Errors:
        MisuseError (also TypeError): not all are integer variables, Ranges and conditions.
    """
    system = IntConstraints.of(equations, variables, ranges)
    try:
        solved = _solved(system)
    except InfeasibleError:
        nothing = unsolvable()
        return IntConstraintsTransform(system, nothing, {}, {}) if deskew_range else nothing
    return _deskewed(system, solved) if deskew_range else solved


@dataclass(frozen=True, slots=True)
class _Row:
    """terms <= 0, or (`equal`) terms == 0."""

    terms: Poly
    equal: bool

    @property
    def key(self) -> frozenset[tuple[poly.Monomial, int]]:
        return frozenset((m, c) for m, c in self.terms.items() if m)


def _tight(terms: Poly, *, equal: bool) -> _Row | None:
    """The row in least terms, rounded to integers; None if it always holds."""
    number = terms.get(ONE, 0)
    common = poly.content(terms, with_constant=False)
    if common == 0:
        if number > 0 or (equal and number):
            raise InfeasibleError
        return None
    if equal and number % common:
        raise InfeasibleError
    reduced = {m: c // common for m, c in terms.items() if m}
    rounded = -(-number // common)
    return _Row({**reduced, ONE: rounded} if rounded else reduced, equal)


def _rows(conditions: Sequence[PrimExpr]) -> tuple[list[_Row], list[PrimExpr]]:
    """The comparisons of signed integers in `conditions` as rows, and the other conditions."""
    rows: list[_Row] = []
    others: list[PrimExpr] = []
    for condition in conditions:
        if isinstance(condition, tir.EQ) and condition.a.dtype.family == "int":
            p = poly.add(GENERAL.poly(condition.a), GENERAL.poly(condition.b), -1)
            tight = [_tight(p, equal=True)]
        else:
            polynomials = list(at_most_zero(condition))
            if None in polynomials:
                others.append(condition)
                continue
            tight = [_tight(p[0], equal=False) for p in polynomials if p is not None]
        rows += [row for row in tight if row is not None]
    return rows, others


def _sharpest(rows: Sequence[_Row]) -> list[_Row]:
    """Each row once; of inequalities that differ in the constant only the sharpest.

    Two that are opposite make an equation.
    """
    sharpest: dict[object, _Row] = {}
    for row in rows:
        number = row.terms.get(ONE, 0)
        key = (row.key, number) if row.equal else row.key
        previous = sharpest.get(key)
        if previous is None or previous.terms.get(ONE, 0) < number:
            sharpest[key] = row
    merged: list[_Row] = []
    for row in sharpest.values():
        opposite = poly.scaled(row.terms, -1)
        mirrored = sharpest.get(frozenset((m, c) for m, c in opposite.items() if m))
        if row.equal or mirrored is None or mirrored.terms != opposite:
            merged.append(row)
        elif poly.leading(row.terms)[1] > 0:
            merged.append(_Row(row.terms, True))
    return merged


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Lower bounds, upper bounds and values of some multiples of one variable."""

    lower: list[tuple[int, Poly]]
    upper: list[tuple[int, Poly]]
    equal: list[tuple[int, Poly]]

    def group(self, dtype: DataType) -> IntGroupBounds:
        """All bounds of one multiple."""
        factors = [
            factor for bounds in (self.lower, self.equal, self.upper) for factor, _ in bounds
        ]
        coef = lcm(*factors)
        scaled = [
            [_written(poly.scaled(p, coef // factor), dtype) for factor, p in bounds]
            for bounds in (self.lower, self.equal, self.upper)
        ]
        return IntGroupBounds(_written(poly.constant(coef), dtype), *scaled)

    def conditions(self, var: Var) -> list[tuple[Poly, bool]]:
        """The same as polynomials that are at most, or equal to, 0."""
        variable = poly.atom(var)
        return [
            *((poly.add(p, variable, -factor), False) for factor, p in self.lower),
            *((poly.add(poly.scaled(variable, factor), p, -1), False) for factor, p in self.upper),
            *((poly.add(poly.scaled(variable, factor), p, -1), True) for factor, p in self.equal),
        ]


def _written(p: Poly, dtype: DataType) -> PrimExpr:
    """p as an expression, of 64 bits where a literal needs them."""
    for kind in (dtype, INT64):
        result = writer.expression(p, kind)
        if result is not None:
            return result
    raise MisuseError("the coefficients of the system outgrow 64 bits")


def _eliminated(rows: list[_Row], var: Var) -> tuple[_Bounds, list[_Row]]:
    """The bounds of `var`, and rows without it that follow from them beside the other rows."""
    bounds = _Bounds([], [], [])
    others: list[_Row] = []
    for row in rows:
        linear = linear_terms(row.terms, [var])
        number = linear and poly.constant_of(linear[0].get(var, poly.ZERO))
        if linear is None or not number:
            others.append(row)
        elif row.equal:
            sign = -1 if number > 0 else 1
            bounds.equal.append((abs(number), poly.scaled(linear[1], sign)))
        elif number > 0:
            bounds.upper.append((number, poly.scaled(linear[1], -1)))
        else:
            bounds.lower.append((-number, linear[1]))
    derived: list[_Row | None] = []
    lower, upper = bounds.lower + bounds.equal, bounds.upper + bounds.equal
    if len(lower) * len(upper) <= _LIMIT:  # beyond, only bounds are less sharp
        for position, (a, p) in enumerate(lower):
            for index, (b, q) in enumerate(upper):
                both = position >= len(bounds.lower) and index >= len(bounds.upper)
                if both and position - len(bounds.lower) >= index - len(bounds.upper):
                    continue
                terms = poly.add(poly.scaled(p, b), q, -a)
                derived.append(_tight(terms, equal=both))
    return bounds, _sharpest([*others, *(row for row in derived if row is not None)])


def _solved(system: IntConstraints) -> IntConstraints:
    conditions = list(system.relations)
    for var in system.variables:
        domain = system.ranges.get(var)
        if domain is not None:
            conditions.append(ops.compare(tir.LE, domain.min, var))
            conditions.append(ops.compare(tir.LT, var, domain.stop))
    rows, others = _rows(conditions)
    groups: dict[Var, _Bounds] = {}
    rows = _sharpest(rows)
    for var in system.variables:
        groups[var], rows = _eliminated(rows, var)
    solved = set(system.variables)
    parameters = {var: domain for var, domain in system.ranges.items() if var not in solved}
    domains: dict[Var, Range] = {}
    analyzer = Analyzer()
    for var, domain in parameters.items():
        analyzer.bind(var, domain)
    for var in reversed(system.variables):
        if any((groups[var].lower, groups[var].upper, groups[var].equal)):
            best = groups[var].group(var.dtype).find_best_range({**parameters, **domains})
            if best is not None:
                domains[var] = Range.from_min_extent(
                    analyzer.simplify(ops.cast_to(best.min, var.dtype)),
                    analyzer.simplify(ops.cast_to(best.extent, var.dtype)),
                )
                analyzer.bind(var, domains[var])
    relations = []
    dtype = max((var.dtype for var in system.variables), key=lambda d: d.bits, default=INT64)
    for var in system.variables:
        for terms, equal in groups[var].conditions(var):
            relations.append(_condition(terms, dtype, equal=equal, simple=True))
    relations += [_condition(r.terms, dtype, equal=r.equal, simple=False) for r in rows]
    return IntConstraints(system.variables, domains, _open(analyzer, [*relations, *others]))


def _condition(terms: Poly, dtype: DataType, *, equal: bool, simple: bool) -> PrimExpr:
    terms_expr = _written(terms, dtype)
    result = (tir.EQ if equal else tir.LE)(terms_expr, ops.const(0, terms_expr.dtype))
    return simplify(result) if simple else result


def _open(analyzer: Analyzer, relations: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The relations that `analyzer` cannot prove, each once."""
    undecided: list[PrimExpr] = []
    for relation in relations:
        decided = analyzer.simplify(relation)
        if isinstance(decided, tir.IntImm):
            if not decided.value:
                raise InfeasibleError
        elif relation not in undecided:
            undecided.append(relation)
    return undecided


def _deskewed(system: IntConstraints, solved: IntConstraints) -> IntConstraintsTransform:
    """The solved system over variables that run from 0."""
    forth: dict[Var, PrimExpr] = {}
    back: dict[Var, PrimExpr] = {}
    variables: list[Var] = []
    ranges: dict[Var, Range] = {}
    analyzer = Analyzer()
    for var in reversed(solved.variables):
        domain = solved.ranges.get(var)
        if domain is None:
            forth[var] = back[var] = var
            variables.append(var)
            continue
        begin = simplify(substitute(domain.min, forth))
        if isinstance(domain.extent, tir.IntImm) and domain.extent.value == 1:
            forth[var] = begin
            continue
        fresh = Var(f"{var.name}_shifted", var.dtype)
        forth[var] = simplify(ops.add(fresh, begin))
        back[fresh] = simplify(ops.sub(var, domain.min))
        ranges[fresh] = Range.from_min_extent(
            ops.const(0, var.dtype), simplify(substitute(domain.extent, forth))
        )
        analyzer.bind(fresh, ranges[fresh])
        variables.append(fresh)
    shifted = [simplify(substitute(relation, forth)) for relation in solved.relations]
    try:
        relations = _open(analyzer, shifted)
    except InfeasibleError:
        return IntConstraintsTransform(system, unsolvable(), {}, {})
    return IntConstraintsTransform(
        system, IntConstraints(variables[::-1], ranges, relations), forth, back
    )
