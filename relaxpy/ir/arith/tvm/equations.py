"""Systems of linear equations over the integers, by the Smith normal form of their matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from relaxpy.ir.arith.algebra import poly, writer
from relaxpy.ir.arith.algebra.poly import Poly
from relaxpy.ir.arith.canonical import GENERAL, entry_point
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.constraints import IntConstraints, IntConstraintsTransform, unsolvable
from relaxpy.ir.arith.tvm.patterns import linear_row
from relaxpy.ir.core.dtype import BOOL, DataType
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions, substitute

Row = list[int]


@entry_point
def solve_linear_equations(
    equations: IntConstraints | Sequence[ExprLike],
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
) -> IntConstraintsTransform:
    """Rewrite the system over as few new variables n0, n1, … as the equations leave free.

    Relations that are not linear equations of the variables remain, over the new variables.
    Without solutions the new system is the relation False; without variables, or where the
    coefficients outgrow the datatype, it is the old one.

    Errors:
        MisuseError (also TypeError): not all are integer variables, Ranges and conditions.
    """
    system = IntConstraints.of(equations, variables, ranges)
    if not system.variables:
        return IntConstraintsTransform(system, system, {}, {})
    matrix, values, others = _read(system)
    smith = _Smith(matrix, values, len(system.variables))
    smith.run()
    solution = _Solution(system, smith, others)
    return solution.transform()


def _read(system: IntConstraints) -> tuple[list[Row], list[Poly], list[PrimExpr]]:
    """The matrix and the right sides of the linear equations, and the other relations."""
    matrix, values, others = [], [], []
    for relation in system.relations:
        row = _row(relation, system.variables)
        if row is None:
            others.append(relation)
        else:
            matrix.append(row[0])
            values.append(row[1])
    return matrix, values, others


def _row(relation: PrimExpr, variables: Sequence[Var]) -> tuple[Row, Poly] | None:
    match relation:
        case tir.EQ(a=a, b=b) if a.dtype.family == "int" and not a.dtype.vector:
            p = poly.add(GENERAL.poly(a), GENERAL.poly(b), -1)
        case _:
            return None
    linear = linear_row(p, variables)
    if linear is None:
        return None
    row = [poly.constant_of(c) for c in linear[0]]
    if any(number is None for number in row):
        return None
    return [number or 0 for number in row], poly.scaled(linear[1], -1)


class _Smith:
    """Reduces `matrix` to a diagonal one by steps that keep it equivalent.

    `columns` maps the new variables to the old ones, and `inverse` maps them back; `values`
    follow the rows.
    """

    def __init__(self, matrix: list[Row], values: list[Poly], width: int) -> None:
        self.matrix = matrix
        self.values = values
        self.width = width
        self.columns = [[int(i == j) for j in range(width)] for i in range(width)]
        self.inverse = [list(row) for row in self.columns]
        self.rank = 0

    def run(self) -> None:
        while self.rank < min(len(self.matrix), self.width) and self.pivot(self.rank):
            self.clear(self.rank)
            self.rank += 1

    def pivot(self, k: int) -> bool:
        """Move a coefficient other than 0 to the diagonal; return whether there is one."""
        for j in range(k, self.width):
            for i in range(k, len(self.matrix)):
                if self.matrix[i][j]:
                    self.matrix[k], self.matrix[i] = self.matrix[i], self.matrix[k]
                    self.values[k], self.values[i] = self.values[i], self.values[k]
                    for row in (*self.matrix, *self.columns):
                        row[k], row[j] = row[j], row[k]
                    self.inverse[k], self.inverse[j] = self.inverse[j], self.inverse[k]
                    return True
        return False

    def clear(self, k: int) -> None:
        while True:
            below = [i for i in range(k + 1, len(self.matrix)) if self.matrix[i][k]]
            right = [j for j in range(k + 1, self.width) if self.matrix[k][j]]
            if not below and not right:
                return
            for i in below:
                self.combine_rows(k, i)
            for j in right:
                if self.matrix[k][j]:
                    self.combine_columns(k, j)

    def combine_rows(self, k: int, i: int) -> None:
        a, b = self.matrix[k][k], self.matrix[i][k]
        common, p, q = _bezout(a, b)
        upper, lower = self.matrix[k], self.matrix[i]
        self.matrix[k] = _mixed(upper, lower, p, q)
        self.matrix[i] = _mixed(upper, lower, b // common, -(a // common))
        first, second = self.values[k], self.values[i]
        self.values[k] = _sum(((p, first), (q, second)))
        self.values[i] = _sum(((b // common, first), (-(a // common), second)))

    def combine_columns(self, k: int, j: int) -> None:
        a, b = self.matrix[k][k], self.matrix[k][j]
        common, p, q = _bezout(a, b)
        for row in (*self.matrix, *self.columns):
            row[k], row[j] = (p * row[k] + q * row[j], b // common * row[k] - a // common * row[j])
        upper, lower = self.inverse[k], self.inverse[j]
        self.inverse[k] = _mixed(upper, lower, a // common, b // common)
        self.inverse[j] = _mixed(upper, lower, q, -p)


def _mixed(a: Row, b: Row, p: int, q: int) -> Row:
    return [p * x + q * y for x, y in zip(a, b, strict=True)]


def _bezout(a: int, b: int) -> tuple[int, int, int]:
    """(g, p, q) with p*a + q*b = g, a common divisor; `a` itself where it divides b."""
    p, q, r, s = 1, 0, 0, 1
    while b % a:
        times = b // a
        a, b, p, q, r, s = b - times * a, a, r - times * p, s - times * q, p, q
    return a, p, q


def _sum(terms: Iterable[tuple[int, Poly]]) -> Poly:
    """The sum of multiples."""
    total: dict[poly.Monomial, int] = {}
    for factor, term in terms:
        poly.accumulate(total, term, factor)
    return total


class _Solution:
    def __init__(self, system: IntConstraints, smith: _Smith, others: list[PrimExpr]) -> None:
        self.system = system
        self.smith = smith
        self.relations = others
        self.outgrown = False
        self.analyzer = Analyzer()

    def transform(self) -> IntConstraintsTransform:
        system, smith = self.system, self.smith
        dtype = max((var.dtype for var in system.variables), key=lambda d: d.bits)
        fresh = [Var(f"n{k}", dtype) for k in range(len(system.variables) - smith.rank)]
        new_values = [*self.diagonal(dtype), *map(poly.atom, fresh)]
        forth = self.written(system.variables, smith.columns, new_values)
        old_values = list(map(poly.atom, system.variables))
        back = self.written(fresh, smith.inverse[smith.rank :], old_values)
        nothing = IntConstraintsTransform(system, unsolvable(), {}, {})
        if forth is None or back is None or self.outgrown:
            same: dict[Var, PrimExpr] = {var: var for var in system.variables}
            return IntConstraintsTransform(system, system, same, same)
        ranges = self.ranges(back)
        for var, domain in ranges.items():
            self.analyzer.bind(var, domain)
        relations = self.over(forth)
        if relations is None:
            return nothing
        return IntConstraintsTransform(
            system, IntConstraints(fresh, ranges, relations), forth, back
        )

    @staticmethod
    def written(
        variables: Sequence[Var], rows: list[Row], values: list[Poly]
    ) -> dict[Var, PrimExpr] | None:
        """The value of each variable by its row; None where its datatype is too narrow."""
        values_by_var = {}
        for var, row in zip(variables, rows, strict=True):
            total = _sum(zip(row, values, strict=True))
            value = writer.expression(total, var.dtype)
            if value is None:
                return None
            values_by_var[var] = value
        return values_by_var

    def diagonal(self, dtype: DataType) -> list[Poly]:
        """The variables that the equations fix; conditions on parameters become relations."""
        solved: list[Poly] = []
        for k, value in enumerate(self.smith.values):
            if k >= self.smith.rank:
                self.require(value, dtype)
                continue
            number = self.smith.matrix[k][k]
            if number < 0:
                number, value = -number, poly.scaled(value, -1)
            quotient = value if number == 1 else GENERAL.floor_by(value, number)
            self.require(poly.add(value, quotient, -number), dtype)
            solved.append(quotient)
        return solved

    def require(self, p: Poly, dtype: DataType) -> None:
        """Add the relation that p is 0."""
        number = poly.constant_of(p)
        value = writer.expression(p, dtype)
        if number is not None:
            self.relations.append(ops.const(number == 0, BOOL))
        elif value is None:
            self.outgrown = True
        else:
            self.relations.append(ops.compare(tir.EQ, value, 0))

    def ranges(self, back: Mapping[Var, PrimExpr]) -> dict[Var, Range]:
        """The ranges of the new variables, where they follow from those of the old ones."""
        ranges = {}
        for var, expr in back.items():
            covered = self.analyzer.int_set(expr, self.system.ranges)
            ends = (covered.min_value, covered.max_value)
            bounded = covered.has_lower_bound() and covered.has_upper_bound()
            if bounded and not any(mentions(end, self.system.variables) for end in ends):
                extent = simplify(ops.add(ops.sub(covered.max_value, covered.min_value), 1))
                ranges[var] = Range.from_min_extent(covered.min_value, extent)
        return ranges

    def over(self, forth: Mapping[Var, PrimExpr]) -> list[PrimExpr] | None:
        """The relations over the new variables that may be false; None if one always is."""
        conditions = [substitute(relation, forth) for relation in self.relations]
        for var in self.system.variables:
            domain = self.system.ranges.get(var)
            if domain is not None:
                conditions.append(ops.compare(tir.LE, domain.min, forth[var]))
                conditions.append(ops.compare(tir.LT, forth[var], domain.stop))
        relations: list[PrimExpr] = []
        for condition in conditions:
            simple = self.analyzer.simplify(condition)
            if isinstance(simple, tir.IntImm):
                if not simple.value:
                    return None
            elif simple not in relations:
                relations.append(simple)
        return relations
