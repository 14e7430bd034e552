"""The Analyzer: simplification, bounds and proofs under facts about the variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum, IntFlag
from functools import wraps
from math import inf
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.algebra import interval, poly
from relaxpy.ir.arith.algebra.folding import divides_by_zero
from relaxpy.ir.arith.algebra.interval import Interval
from relaxpy.ir.arith.algebra.residue import least
from relaxpy.ir.arith.canonical import Canonical, is_integer
from relaxpy.ir.arith.engine import AND_OF_ORS, BRANCHES, TRANSITIVE, Facts
from relaxpy.ir.arith.tvm.intset import IntervalSet, evaluate_set
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.dataclass import dataclass, replace

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConstIntBound:
    """Both ends of an interval, `POS_INF` and `NEG_INF` where it is open."""

    POS_INF: ClassVar[int] = (1 << 63) - 1
    NEG_INF: ClassVar[int] = -POS_INF
    min_value: int
    max_value: int

    def __post_init__(self) -> None:
        for name in ("min_value", "max_value"):
            object.__setattr__(self, name, ops.as_int(getattr(self, name)))

    @classmethod
    def of(cls, bound: Interval) -> ConstIntBound:
        """The interval `bound`, saturated."""
        low, high = (int(max(cls.NEG_INF, min(end, cls.POS_INF))) for end in bound)
        return cls(low, high)

    @property
    def interval(self) -> Interval:
        """The interval with its open ends."""
        return (
            -inf if self.min_value <= self.NEG_INF else self.min_value,
            inf if self.max_value >= self.POS_INF else self.max_value,
        )


@dataclass(frozen=True, slots=True)
class ModularSet:
    """The integers that are `base` modulo `coeff`; `coeff` 0 means `base` alone."""

    coeff: int
    base: int

    def __post_init__(self) -> None:
        for name in ("coeff", "base"):
            object.__setattr__(self, name, ops.as_int(getattr(self, name)))


class ProofStrength(IntEnum):
    """The proof strength of `can_prove`: the second also uses symbolic bounds of variables."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(IntFlag):
    """Optional families of rules, as TVM names them; comparing products and sums is always on."""

    NoExtensions = 0
    TransitivelyProveInequalities = TRANSITIVE
    ConvertBooleanToAndOfOrs = AND_OF_ORS
    ApplyConstraintsToBooleanBranches = BRANCHES
    ComparisonOfProductAndSum = 8


class CompareResult(IntEnum):
    """The known relation of two values, by the names of TVM."""

    INCONSISTENT = 0
    EQ = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    NE = 6
    UNKNOWN = 7


@dataclass(frozen=True, slots=True)
class RewriteSimplifyStats:
    """Counts of simplified expressions, of steps and effective steps, and of assumed conditions."""

    nodes_visited: int = 0
    constraints_entered: int = 0
    rewrites_attempted: int = 0
    rewrites_performed: int = 0


#: Stronger relations come first.
_COMPARISONS = {
    CompareResult.EQ: tir.EQ,
    CompareResult.LT: tir.LT,
    CompareResult.GT: tir.GT,
    CompareResult.LE: tir.LE,
    CompareResult.GE: tir.GE,
    CompareResult.NE: tir.NE,
}


def _query(method: Callable[Concatenate[Analyzer, P], T]) -> Callable[Concatenate[Analyzer, P], T]:
    """`method`, with one result at any depth of the stack (`Canonical.run`)."""

    @wraps(method)
    def run(self: Analyzer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._engine.run(lambda: method(self, *args, **kwargs))

    return run


class Analyzer:
    """Integer reasoning under declared facts: bounds, residues, values and conditions.

    A result holds for all values of the variables that satisfy the facts. Sums and products of
    variables are assumed not to overflow, as in TVM; those of elements of buffers, and of variables
    that `declare_data` names, wrap around.
    """

    def __init__(self) -> None:
        self._engine = Canonical()
        self._domains: dict[tir.Var, IntervalSet | Range] = {}
        self._declared: list[Callable[[], None]] | None = None
        self._visited = self._entered = self._attempted = self._performed = 0
        self._extensions = Extension.NoExtensions

    def clone(self) -> Analyzer:
        """An Analyzer with the same facts and extensions, whose counts are 0."""
        other = Analyzer()
        other._domains, other._extensions = self._domains, self._extensions
        other._facts = self._facts
        return other

    @property
    def enabled_extensions(self) -> Extension:
        """The optional families of rules that are on."""
        return self._extensions

    @enabled_extensions.setter
    def enabled_extensions(self, flags: Extension | int) -> None:
        try:
            self._extensions = Extension(flags)
        except (TypeError, ValueError):
            raise unexpected(flags, "expected an Extension") from None
        self._facts = replace(self._facts, extensions=int(self._extensions))
        if self._declared is not None:
            self._declared.append(lambda: setattr(self, "enabled_extensions", flags))

    @property
    def _facts(self) -> Facts:
        return self._engine.facts

    @_facts.setter
    def _facts(self, facts: Facts) -> None:
        # Stored results under other facts may be wrong now, or less precise than they could be.
        self._engine = Canonical(facts)

    @_query
    def simplify(self, expr: tir.ExprLike, steps: int = 2) -> tir.PrimExpr:
        """`expr` in canonical, readable form; a second step starts from the result of the first.

        Errors:
            MisuseError: `expr` divides a vector by zero in every lane.
        """
        result = ops.convert(expr)
        if divides_by_zero(result):
            raise MisuseError(f"division of `{result.a}` by zero", rule="PX-3")
        for _ in range(max(1, ops.as_int(steps))):
            before, result = result, self._engine.simplify(result)
            self._attempted += 1
            self._performed += result is not before
            if result is before or isinstance(result, tir.ConstExpr):
                break
        self._visited += 1
        return result

    def canonical_simplify(self, expr: tir.ExprLike) -> tir.PrimExpr:
        """`expr` simplified once. Errors: MisuseError as `simplify`."""
        return self.simplify(expr, 1)

    def rewrite_simplify(self, expr: tir.ExprLike) -> tir.PrimExpr:
        """As `canonical_simplify`: there is one simplified form. Errors: MisuseError as there."""
        return self.simplify(expr, 1)

    @property
    def rewrite_simplify_stats(self) -> RewriteSimplifyStats:
        """The counts since the Analyzer was created, or since the last reset."""
        return RewriteSimplifyStats(self._visited, self._entered, self._attempted, self._performed)

    def reset_rewrite_simplify_stats(self) -> None:
        """Set the counts to 0."""
        self._visited = self._entered = self._attempted = self._performed = 0

    @_query
    def const_int_bound(self, expr: tir.ExprLike) -> ConstIntBound:
        """An interval that contains all values of `expr`."""
        value = ops.convert(expr)
        bound = self._engine.bound(value)
        if is_integer(value.dtype) and value.dtype.family == "int":
            bound = interval.meet(bound, self._stated_bound(self._engine.exact(value)))
        return ConstIntBound.of(bound)

    def _stated_bound(self, terms: poly.Poly) -> Interval:
        """The limits of `terms` in the facts, as those of `x % 8` in `1 <= x % 8`."""
        low, high = interval.EVERYTHING
        monomials = terms.keys() - {poly.ONE}
        for negative in self._facts.negative:
            if negative.keys() - {poly.ONE} != monomials:
                continue
            below = poly.constant_of(poly.add(terms, negative, -1))
            above = poly.constant_of(poly.add(terms, negative))
            high = high if below is None else min(high, below - 1)
            low = low if above is None else max(low, above + 1)
        return low, high

    def const_int_bound_is_bound(self, var: tir.Var) -> bool:
        """True if `var` has declared bounds or a value."""
        ops.check_variable(var, "a bound")
        return var in self._facts.bounds or var in self._facts.values

    @_query
    def modular_set(self, expr: tir.ExprLike) -> ModularSet:
        """The residue class of all values of `expr`."""
        value, engine = ops.convert(expr), self._engine
        return ModularSet(*engine.residue(value))

    @_query
    def int_set(
        self, expr: tir.ExprLike, dom_map: Mapping[tir.Var, IntervalSet | Range] | None = None
    ) -> IntervalSet:
        """An interval, possibly symbolic, that contains `expr` as variables run through `dom_map`.

        Without `dom_map`, they run through the Ranges that they are bound to.
        """
        domains = self._domains if dom_map is None else dom_map
        return evaluate_set(self._engine, ops.convert(expr), domains)

    @_query
    def can_prove(
        self, expr: tir.ExprLike, strength: ProofStrength = ProofStrength.DEFAULT
    ) -> bool:
        """True if the condition `expr` is always true; False where it is not known."""
        result = self.simplify(expr)
        if isinstance(result, tir.IntImm):
            return result.value != 0
        return strength == ProofStrength.SYMBOLIC_BOUND and self._holds_by_bounds(result)

    def _holds_by_bounds(self, condition: tir.PrimExpr) -> bool:
        """True if an ordering holds by the symbolic interval of the difference of its sides."""
        if not isinstance(condition, (tir.LT, tir.LE)) or condition.a.dtype.family != "int":
            return False
        difference = condition.b - condition.a
        if difference.dtype.vector:
            return False
        covered = self.int_set(difference)
        if not covered.has_lower_bound():
            return False
        return self.can_prove(type(condition)(ops.const(0, difference.dtype), covered.min_value))

    def can_prove_equal(self, lhs: tir.ExprLike, rhs: tir.ExprLike) -> bool:
        """True if the two are always equal; False where it is not known."""
        return self.prove_equal(lhs, rhs) is True

    @_query
    def prove_equal(self, a: tir.ExprLike, b: tir.ExprLike) -> bool | None:
        """True if the two are always equal, False if they never are, None if unknown."""
        x, y = ops.match_dtypes(a, b)
        result = self._engine.prove_equal(x, y)
        if result is None and is_integer(x.dtype) and x.dtype.family == "int":
            difference = self._engine.simplify(tir.Sub(x, y))
            return difference.value == 0 if isinstance(difference, tir.IntImm) else None
        return result

    def try_compare(
        self, lhs: tir.ExprLike, rhs: tir.ExprLike, propagate_inequalities: bool = True
    ) -> CompareResult:
        """The strongest known relation of two values, also by chains if inequalities propagate."""
        known = self.clone()
        chains = Extension.TransitivelyProveInequalities
        known.enabled_extensions = (
            self._extensions | chains if propagate_inequalities else self._extensions & ~chains
        )
        for result, comparison in _COMPARISONS.items():
            if known.can_prove(ops.compare(comparison, lhs, rhs)):
                return result
        return CompareResult.UNKNOWN

    @_query
    def can_prove_greater_equal(self, expr: tir.ExprLike, lower_bound: int) -> bool:
        """True if `expr` is never below `lower_bound`."""
        return self._below(expr, lower_bound) is False

    @_query
    def can_prove_less(self, expr: tir.ExprLike, upper_bound: int) -> bool:
        """True if `expr` is always below `upper_bound`."""
        return self._below(expr, upper_bound) is True

    @_query
    def can_prove_less_equal_than_symbolic_shape_value(
        self, lhs: tir.ExprLike, shape: tir.ExprLike
    ) -> bool:
        """True if `lhs` is never above `shape`."""
        return self.can_prove(ops.compare(tir.LE, lhs, shape))

    def _below(self, expr: tir.ExprLike, limit: int) -> bool | None:
        value, limit = ops.convert(expr), ops.as_int(limit)
        if not is_integer(value.dtype) or value.dtype.family == "uint":
            low, high = self._engine.bound(value)
            return True if high < limit else False if low >= limit else None
        difference = poly.add(self._engine.exact(value), poly.constant(-limit))
        return self._engine.is_negative(difference)

    def bind(self, var: tir.Var, expr: tir.ExprLike | Range, allow_override: bool = False) -> None:
        """Declare that `var` is `expr`, or that it runs through a Range.

        Errors:
            MisuseError: another value or Range is declared already and `allow_override` is not set.
        """
        ops.check_variable(var, "a binding")
        self._bind(var, expr, allow_override)
        if self._declared is not None:
            self._declared.append(lambda: self.bind(var, expr, True))

    @_query
    def _bind(self, var: tir.Var, expr: tir.ExprLike | Range, allow_override: bool) -> None:
        if isinstance(expr, Range):
            self._bind_range(var, expr, allow_override)
            return
        value = ops.cast_to(ops.convert(expr), var.dtype)
        bound = self._facts.values.get(var)
        if bound is not None and not allow_override and not self.can_prove_equal(bound, value):
            raise MisuseError(
                f"cannot bind {var.name} to `{value}`: it is already bound to `{bound}`"
            )
        simplified = self.simplify(value)
        self._facts = self._cleared(var).with_value(var, simplified)

    def _bind_range(self, var: tir.Var, domain: Range, allow_override: bool) -> None:
        low, extent = self.simplify(domain.min), self.simplify(domain.extent)
        if isinstance(extent, tir.IntImm) and extent.value == 1:
            self._bind(var, low, allow_override)
            return
        self._domains = {**self._domains, var: domain}
        least, _ = self._engine.bound(low)
        _, greatest = self._engine.bound(low + extent)
        if least < greatest:
            self._update(var, ConstIntBound.of((least, greatest - 1)), allow_override)
            if isinstance(extent, tir.IntImm) and extent.value == greatest - least:
                return  # implied by the bounds
        value = ops.cast_to(var, low.dtype)
        if not (isinstance(low, tir.IntImm) and least < greatest):  # the bounds say it otherwise
            self._facts = self._engine.assume(self._facts, value >= low)
        upper = value < low + extent
        self._facts = self._engine.assume(self._facts, upper)

    def update(
        self, var: tir.Var, info: ConstIntBound | ModularSet | IntervalSet, override: bool = False
    ) -> None:
        """Declare that `var` lies in a ConstIntBound, in a ModularSet, or in an IntervalSet.

        Errors:
            MisuseError (also TypeError): another one is declared already and `override` is not set,
                or `info` is of another type.
        """
        ops.check_variable(var, "an update")
        self._update(var, info, override)
        if self._declared is not None:
            self._declared.append(lambda: self.update(var, info, True))

    @_query
    def _update(
        self, var: tir.Var, info: ConstIntBound | ModularSet | IntervalSet, override: bool
    ) -> None:
        if isinstance(info, IntervalSet):
            self._domains = {**self._domains, var: info}
            low, high = self._engine.bound(info.min_value)[0], self._engine.bound(info.max_value)[1]
            ends = (
                low if info.has_lower_bound() else -inf,
                high if info.has_upper_bound() else inf,
            )
            self._update(var, ConstIntBound.of(ends), override)
            return
        if isinstance(info, ModularSet):
            if info.coeff < 0:
                raise MisuseError(f"expected a modulus of at least 0, found {info.coeff}")
            residue = least(info.coeff, info.base)
            declared_residue = self._facts.residues.get(var)
            if declared_residue is not None and not override and declared_residue != residue:
                raise MisuseError(f"{var.name} already has another residue")
            self._facts = replace(self._facts, residues={**self._facts.residues, var: residue})
            return
        check_type(info, ConstIntBound, "expected a ConstIntBound, ModularSet or IntervalSet")
        declared = self._facts.bounds.get(var)
        if declared is not None and not override and declared != info.interval:
            raise MisuseError(f"{var.name} already has other bounds: {ConstIntBound.of(declared)}")
        if info.min_value > info.max_value:
            raise MisuseError(f"no value lies between {info.min_value} and {info.max_value}")
        self._facts = replace(self._facts, bounds={**self._facts.bounds, var: info.interval})

    def _cleared(self, var: tir.Var) -> Facts:
        bounds = {a: b for a, b in self._facts.bounds.items() if a is not var}
        residues = {a: r for a, r in self._facts.residues.items() if a is not var}
        return replace(self._facts, bounds=bounds, residues=residues)

    @property
    def data(self) -> frozenset[tir.Var]:
        """The variables that are declared to be data."""
        return self._facts.data

    def declare_data(self, *variables: tir.Var) -> None:
        """Declare that variables may have any value, as the scalar arguments of kernels have.

        Arithmetic on them wraps around, where that on loop variables and sizes is assumed not to.
        """
        for var in variables:
            ops.check_variable(var, "a declaration of data")
        if not self._facts.data.issuperset(variables):
            self._facts = self._facts.with_data(*variables)
        if self._declared is not None:
            self._declared.append(lambda: self.declare_data(*variables))

    @contextmanager
    def constraint_scope(self, constraint: tir.ExprLike) -> Iterator[None]:
        """Assume `constraint` in a `with` statement; what is declared there holds after it."""
        outer, declared = self._engine, self._declared
        self._entered += 1
        self._facts = outer.run(lambda: outer.assume(outer.facts, ops.truth(constraint)))
        inside: list[Callable[[], None]] = []
        self._declared = inside
        try:
            yield
        finally:
            self._engine, self._declared = outer, declared
            for declare in inside:
                declare()
