"""Systems of integer constraints, and bijections between their solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.intset import IntervalSet, domains_of
from relaxpy.ir.arith.tvm.patterns import check_variables
from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions


@dataclass(frozen=True, slots=True)
class IntConstraints:
    """`relations` between `variables`, some of which run through `ranges`.

    Other variables in the relations are parameters.

    Errors:
        MisuseError (also TypeError): the fields have other types.
    """

    variables: Sequence[Var]
    ranges: Mapping[Var, Range]
    relations: Sequence[PrimExpr]

    def __post_init__(self) -> None:
        check_type(self.ranges, Mapping, "expected a table of ranges by tir.Var")
        ranges = dict(self.ranges)
        for var, domain in ranges.items():
            ops.check_variable(var, "a table of ranges")
            check_type(domain, Range, "expected a Range for each tir.Var in ranges")
        variables = tuple(check_variables(self.variables))
        for var in variables:
            if var.dtype.family != "int" or var.dtype.vector:
                raise MisuseError(f"expected integer variables, found {var.dtype}")
        check_type(self.relations, (list, tuple), "expected a list of relations")
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "ranges", MappingProxyType(ranges))
        object.__setattr__(self, "relations", tuple(ops.truth(r) for r in self.relations))

    @staticmethod
    def of(
        relations: IntConstraints | Sequence[ExprLike],
        variables: Sequence[Var] | None,
        ranges: Mapping[Var, Range] | None,
    ) -> IntConstraints:
        """The system that a solver is called with: an IntConstraints, or its fields.

        Errors:
            MisuseError (also TypeError): variables or ranges are specified twice.
        """
        if not isinstance(relations, IntConstraints):
            return IntConstraints(
                [] if variables is None else variables,
                {} if ranges is None else ranges,
                relations,  # type: ignore[arg-type]
            )
        if variables is not None or ranges is not None:
            raise MisuseError("an IntConstraints already has variables and ranges")
        return relations


@dataclass(frozen=True, slots=True)
class IntConstraintsTransform:
    """Two systems, and the bijection between their solutions: variables by those of the other."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: Mapping[Var, PrimExpr]
    dst_to_src: Mapping[Var, PrimExpr]


def unsolvable() -> IntConstraints:
    """The system without solutions: its relation is False."""
    return IntConstraints([], {}, [ops.const(False, BOOL)])


@dataclass(frozen=True, slots=True)
class IntGroupBounds:
    """Lower bounds, upper bounds and values that all apply to `coef` times a variable."""

    coef: PrimExpr
    lower: Sequence[PrimExpr] = field(default_factory=tuple)
    equal: Sequence[PrimExpr] = field(default_factory=tuple)
    upper: Sequence[PrimExpr] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coef", ops.convert(self.coef))
        for name in ("lower", "equal", "upper"):
            object.__setattr__(self, name, ops.convert_all(getattr(self, name)))
        coef = self.coef
        if not coef.dtype.is_int or (isinstance(coef, tir.IntImm) and coef.value <= 0):
            raise MisuseError(
                f"expected a positive integer coefficient, found `{coef}`", about=coef
            )

    @staticmethod
    def from_range(rng: Range) -> IntGroupBounds:
        """The bounds of a variable that runs through a Range.

        Errors:
            MisuseError (also TypeError): it is not a Range.
        """
        check_type(rng, Range, "expected a Range")
        one = ops.const(1, rng.min.dtype)
        analyzer = Analyzer()
        if isinstance(rng.extent, tir.IntImm) and rng.extent.value == 1:
            return IntGroupBounds(one, [], [analyzer.simplify(rng.min)], [])
        last = analyzer.simplify(ops.sub(rng.stop, 1))
        return IntGroupBounds(one, [analyzer.simplify(rng.min)], [], [last])

    @entry_point
    def find_best_range(self, vranges: Mapping[Var, Range] | None = None) -> Range | None:
        """The shortest Range between a lower and an upper bound; None if there is none.

        An extent is the greatest one while the variables in `vranges` run through their Ranges. The
        Range of an equation has one value, which the coefficient need not divide exactly.
        """
        ranges = {} if vranges is None else domains_of(vranges)
        analyzer = Analyzer()
        coef = self.coef
        if self.equal:
            value = analyzer.simplify(ops.floordiv(self.equal[0], coef))
            return Range.from_min_extent(value, ops.const(1, value.dtype))
        best: Range | None = None
        for lower in self.lower:
            first = analyzer.simplify(ops.ceildiv(lower, coef))
            for upper in self.upper:
                last = ops.floordiv(upper, coef)
                length = analyzer.simplify(ops.add(ops.sub(last, first), 1))
                longest = _greatest(analyzer, length, ranges)
                if longest is None:
                    continue
                if isinstance(longest, tir.IntImm) and longest.value < 0:
                    longest = ops.const(0, longest.dtype)
                if best is None or shorter(longest, best.extent):
                    best = Range.from_min_extent(first, longest)
        return best


def _greatest(
    analyzer: Analyzer, value: PrimExpr, ranges: Mapping[Var, IntervalSet]
) -> PrimExpr | None:
    """The greatest value of `value`; None where it has no bound."""
    if not mentions(value, ranges):
        return value
    covered = analyzer.int_set(value, ranges)
    return analyzer.simplify(covered.max_value) if covered.has_upper_bound() else None


def shorter(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether the extent `a` is known to be less than `b`; a literal counts as less."""
    if isinstance(a, tir.IntImm) and not isinstance(b, tir.IntImm):
        return True
    return Analyzer().can_prove(ops.compare(tir.LT, a, b))
