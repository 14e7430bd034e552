"""The canonical form of integer expressions: equal expressions have the same form.

`Canonical.poly` maps an expression to a polynomial, operand by operand, so that two expressions
with the same polynomial are equal, and having the same polynomial is an equivalence (CMP-2).
Remainders are written by quotients, a % b = a - b * (a // b), and extrema by positive parts,
max(a, b) = b + max(a - b, 0), so that sums of them cancel by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from relaxpy.ir.arith.algebra import folding, poly, terms
from relaxpy.ir.arith.algebra.data import holds_data
from relaxpy.ir.arith.algebra.interval import Interval
from relaxpy.ir.arith.algebra.poly import Monomial, Poly
from relaxpy.ir.arith.algebra.residue import Residue
from relaxpy.ir.arith.algebra.terms import Positive, Quotient, weight, without_squares
from relaxpy.ir.arith.engine import Facts
from relaxpy.ir.arith.rules import boolean, bounds, casts, division, logic, sums, vectors
from relaxpy.ir.arith.stack import BAND, WORKING, from_below, is_nested, with_stack_space
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

K = TypeVar("K", bound=tir.PrimExpr)
P = ParamSpec("P")
T = TypeVar("T")
_MOST_ENTRIES = 1 << 11
_WEIGHT_LIMIT = 160
#: Beyond this, coefficients stay opaque: those of squares of squares double their digits.
_LARGEST_COEFFICIENT = 1 << 1024
#: The height up to which the values of a choice are simplified under its condition.
_HIGHEST_CHOICE = 8


def is_integer(dtype: DataType) -> bool:
    """True if values of `dtype` have a polynomial: scalar integers other than Bool."""
    return dtype.is_int and dtype.lanes == 1 and not dtype.is_bool


class Canonical:
    """Canonical forms under some facts; with none, they hold for all values of the variables.

    Results are cached in tables, and never depend on the state of the caches. Large tables are
    emptied between two queries, which limits the memory of an engine.
    """

    # Rules take the engine first, and so are methods of it.
    assume = boolean.assume
    below_zero = logic.below_zero
    bound_by_cases = bounds.by_cases
    bound_of_poly = bounds.of_poly
    extremum_of = division.extremum_of_polys
    fits = bounds.fits
    floor_by = division.floor_by
    is_exact = bounds.is_exact
    is_negative = bounds.is_negative
    is_nonzero = bounds.is_nonzero
    junction = boolean.simplify
    may_wrap = casts.may_wrap
    negation = logic.negation
    quotient = division.quotient
    residue = bounds.residue_of_expr
    residue_of_poly = bounds.residue_of_poly
    written = sums.written

    def __init__(
        self, facts: Facts | None = None, outer: Canonical | None = None, depth: int = 0
    ) -> None:
        self.facts = facts or Facts()
        self._outer = outer
        self._depth = depth
        self._entries = 0
        self._forget()

    def _forget(self) -> None:
        self._entries = 0
        self.__dict__.pop("_without_inequalities", None)
        self._engines: dict[tir.PrimExpr, Canonical] = {}
        self._polys: dict[tir.PrimExpr, Poly] = {}
        self._simple: dict[tir.PrimExpr, tir.PrimExpr] = {}
        self._bounds: dict[tir.PrimExpr, Interval] = {}
        self._kept: dict[tir.Cast, bool] = {}
        self.ranges: dict[tir.PrimExpr, tuple[Interval, bool]] = {}
        self.atom_bounds: dict[tir.PrimExpr, Interval] = {}
        self.atom_residues: dict[tir.PrimExpr, Residue] = {}

    @property
    def _root(self) -> Canonical:
        """The outermost engine; a reference to itself would keep it until cycles are collected."""
        return self if self._outer is None else self._outer._root

    @property
    def without_inequalities(self) -> Canonical:
        """Canonical forms under the same facts but for the inequalities between several terms."""
        return self._without_inequalities if self.facts.negative else self

    @late_property
    def _without_inequalities(self) -> Canonical:
        return Canonical(replace(self.facts, negative=()), self, self._depth)

    @late_property
    def _inequalities(self) -> dict[Monomial, list[int]]:
        """The positions of the assumed inequalities by their monomials."""
        positions: dict[Monomial, list[int]] = {}
        for position, inequality in enumerate(self.facts.negative):
            for monomial in inequality:
                if monomial:
                    positions.setdefault(monomial, []).append(position)
        return positions

    def inequalities_with(self, p: Poly) -> list[Poly]:
        """The polynomials assumed to be negative that share a term with p.

        Others prove nothing about p: p less such a polynomial is below 0 only where p already is.
        """
        positions = {k for monomial in p for k in self._inequalities.get(monomial, ())}
        return [self.facts.negative[k] for k in sorted(positions)]

    def run(self, work: Callable[[], T]) -> T:
        """Call `work`, with the same result at any depth of the stack and in any thread.

        Every query enters here, so that rules need not count their own depth.
        """
        if WORKING.band is not None:
            return work()
        for engine in (self._root, GENERAL):
            if engine._entries > _MOST_ENTRIES:
                engine._forget()
        return with_stack_space(work)

    def _prepare(self, expr: tir.PrimExpr) -> None:
        """Store the results for subexpressions of a nested expression, innermost first."""
        if not is_nested(expr):
            return
        outer = WORKING.band
        try:
            for node in from_below(expr, self._simple):
                WORKING.band = node.height // BAND
                if isinstance(node, (Positive, Quotient)):
                    bounds.of_atom(self, node)
                else:
                    self.simplify(node)
                    self.bound(node)
                    self.residue(node)
        finally:
            WORKING.band = outer

    def remember(self, table: dict[K, T], key: K, work: Callable[[K], T]) -> T:
        """Call `work` with `key`, which is not in `table`, and store the result there."""
        outer = WORKING.band
        if outer is None:
            return self.run(lambda: self.remember(table, key, work))
        band = key.height // BAND
        if band and band != outer:
            self._prepare(key)
            WORKING.band = band
            try:
                result = work(key)
            finally:
                WORKING.band = outer
        else:
            result = work(key)
        table[key] = result
        self._root._entries += 1
        return result

    def poly(self, expr: tir.PrimExpr) -> Poly:
        """The polynomial of a scalar integer expression; it has the value of data modulo 2**bits.

        Its atoms have their values, so that it may be added and multiplied, and nothing else.
        """
        result = self._polys.get(expr)
        return self.remember(self._polys, expr, self._new_poly) if result is None else result

    def exact(self, expr: tir.PrimExpr) -> Poly:
        """The polynomial that has the value of a scalar signed expression: an atom if it wraps."""
        if not bounds.data_may_wrap(self, expr):
            return self.poly(expr)
        simple = self.simplify(expr)
        return self.poly(simple) if isinstance(simple, tir.IntImm) else poly.atom(simple)

    def has_data(self, p: Poly) -> bool:
        """True if p holds data, so that an expression of it wraps around where it overflows."""
        return any(self.holds_data(factor) for monomial in p for factor in monomial)

    def holds_data(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` is computed from data; what a cast provably keeps is not."""
        return holds_data(expr, self.facts.data, self._keeps_value)

    def _keeps_value(self, expr: tir.Cast) -> bool:
        known = self._kept.get(expr)
        return self.remember(self._kept, expr, self._new_kept) if known is None else known

    def _new_kept(self, expr: tir.Cast) -> bool:
        return casts.keeps_value(self, expr)

    def _new_poly(self, expr: tir.PrimExpr) -> Poly:
        result = self._poly(expr)
        if expr.dtype.family == "uint":
            return _wrapped(result, expr.dtype.bits)
        has_data = self.holds_data(expr)
        if has_data and self.has_data(result):
            result = _wrapped(result, expr.dtype.bits)
        number = poly.constant_of(result)
        if number is not None and ops.wrap_int(number, expr.dtype) != number:
            # The sum of literals overflows, which sizes never do (PX-9).
            is_size = expr.dtype == INT64 and not has_data
            return poly.atom(expr) if is_size else poly.constant(ops.wrap_int(number, expr.dtype))
        if any(abs(coefficient) > _LARGEST_COEFFICIENT for coefficient in result.values()):
            return poly.atom(expr)
        return result

    def _poly(self, expr: tir.PrimExpr) -> Poly:
        match expr:
            case tir.IntImm(value=value):
                return poly.constant(value)
            case tir.Var():
                return self._variable(expr)
            case tir.Add() | tir.Sub():
                return self._sum(expr)
            case tir.Mul(a=a, b=b):
                return self._product(expr, self.poly(a), self.poly(b))
            case tir.Cast():
                return casts.cast(self, expr)
            case tir.Let():
                return self.poly(folding.inlined(expr))
            case tir.Select() | tir.Call():
                operands = folding.operands_of_choice(expr)
                if operands is not None:
                    return casts.choice(self, expr, operands)
                assert isinstance(expr, tir.Call)
                return casts.call(self, expr)
            case (
                tir.FloorMod(a=a, b=tir.IntImm(value=by)) | tir.Mod(a=a, b=tir.IntImm(value=by))
            ) if by > 0 and (expr.dtype.family == "uint" or self.facts.residues):
                modulus, base = self.residue(a)
                signed = expr.dtype.family == "int"
                if modulus % by == 0 and not (signed and isinstance(expr, tir.Mod) and base % by):
                    return poly.constant(base % by)
                return self._signed(expr) if signed else self.opaque(expr)
            case tir.BinaryOpExpr() if expr.dtype.family == "int":
                return self._signed(expr)
            case _:
                return self.opaque(expr)

    def _signed(self, expr: tir.BinaryOpExpr) -> Poly:
        polynomial = self._binary(expr)
        if polynomial is None or (
            self.has_data(polynomial) and self.written(polynomial, expr.dtype) is None
        ):
            return self.opaque(expr)
        # Remainders of remainders double at each step: beyond a limit they stay opaque.
        return polynomial if weight(polynomial) <= _WEIGHT_LIMIT else poly.atom(expr)

    def _binary(self, expr: tir.BinaryOpExpr) -> Poly | None:
        """Divisions and extrema of signed integers; None for any other operator."""
        match expr:
            case tir.Min() | tir.Max():
                return division.extremum(self, expr)
            case tir.FloorDiv() | tir.Div() | tir.FloorMod() | tir.Mod():
                p, q = self.exact(expr.a), self.exact(expr.b)
                floor = isinstance(expr, (tir.FloorDiv, tir.FloorMod))
                ratio = self.quotient(p, q, floor=floor)
                if ratio is None or isinstance(expr, (tir.FloorDiv, tir.Div)):
                    return ratio
                return poly.add(p, poly.multiply(q, ratio), -1)
            case _:
                return None

    def _variable(self, var: tir.Var) -> Poly:
        value = self.facts.values.get(var)
        if value is not None:
            return self.poly(value)
        bound = self.facts.bounds.get(var)
        if bound is not None and bound[0] == bound[1] and isinstance(bound[0], int):
            return poly.constant(bound[0])
        return poly.atom(var)

    def _sum(self, expr: tir.Add | tir.Sub) -> Poly:
        """A chain of sums at once, without recursion over its length."""
        out: dict[poly.Monomial, int] = {}
        for term, times in folding.terms(expr).items():
            if times:
                poly.accumulate(out, self.poly(term), times)
        return out

    def _product(self, expr: tir.PrimExpr, p: Poly, q: Poly) -> Poly:
        if poly.can_expand(p, q):
            result = poly.multiply(p, q)
            if poly.constant_of(p) is None and poly.constant_of(q) is None:
                return without_squares(result)
            return result
        sides = [terms.expression(side, expr.dtype, self.is_exact, exact=False) for side in (p, q)]
        match sorted((side for side in sides if side is not None), key=poly.atom_key):
            case [a, b]:
                return poly.atom(tir.Mul(a, b))
            case _:  # a literal is out of the range of the datatype
                return poly.atom(expr)

    def where(self, condition: tir.PrimExpr, *exprs: tir.PrimExpr) -> Canonical:
        """Canonical forms of `exprs` where `condition`, which is simplified, holds as well.

        The more conditions are assumed already, the less nested the expressions may be: every
        path of conditions has an engine of its own.
        """
        if any(expr.height > _HIGHEST_CHOICE >> self._depth for expr in exprs):
            return self
        engine = self._engines.get(condition)
        if engine is None:
            facts = self.assume(self.facts, condition)
            engine = self._engines[condition] = Canonical(facts, self, self._depth + 1)
            self._root._entries += 1
        return engine

    def opaque(self, expr: tir.PrimExpr) -> Poly:
        """The atom of an expression of which only the operands are simplified."""
        simple = self.over_simple_operands(expr)
        return poly.atom(simple) if type(simple) is type(expr) else self.poly(simple)

    def over_simple_operands(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` with its operands simplified."""
        if isinstance(expr, Reduce):
            return sums.simplify_reduction(self, expr)
        return folding.folded(map_children(self._simplify_node, expr))

    def _simplify_node(self, node: Node) -> Node:
        return self.simplify(node) if isinstance(node, tir.PrimExpr) else node

    def simplify(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` in canonical, readable form."""
        if isinstance(expr, tir.ConstExpr) or (self is GENERAL and isinstance(expr, tir.Var)):
            return expr
        result = self._simple.get(expr)
        return self.remember(self._simple, expr, self._simplify) if result is None else result

    def _simplify(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        result = self._rewritten(expr)
        if self.facts.bounds and expr.dtype.is_int and self.may_wrap(result):
            return self.over_simple_operands(expr)
        return result

    def _rewritten(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        if is_integer(expr.dtype):
            p = self.poly(expr)
            canonical = self.written(p, expr.dtype)
            if not self.holds_data(expr):
                return expr if canonical is None else canonical
            if canonical is None:
                return self.over_simple_operands(folding.inlined(expr))
            # Loop variables alone would be assumed not to overflow.
            loses_data = expr.dtype.family == "int" and not self.has_data(p)
            return expr if loses_data and bounds.data_may_wrap(self, expr) else canonical
        if expr.dtype.vector:
            return vectors.simplify(self, expr) if not isinstance(expr, tir.Var) else expr
        if expr.dtype.is_bool:
            return logic.simplify(self, expr)
        if isinstance(expr, tir.Var):
            return expr
        if isinstance(expr, tir.Let):
            return self.let(expr)
        operands = folding.operands_of_choice(expr)
        if operands is not None:
            return casts.simplify_choice(self, expr, operands)
        return self.over_simple_operands(expr)

    def let(self, expr: tir.Let) -> tir.PrimExpr:
        """A Let of floats or bools; literals, variables and values used once are inlined."""
        value = self.simplify(expr.value)
        is_leaf = isinstance(value, (tir.ConstExpr, tir.Var))
        if is_leaf or (folding.is_safe(value) and folding.uses(expr.body, expr.var) <= 1):
            return self.simplify(substitute(expr.body, {expr.var: value}))
        body = self
        if self.holds_data(value):
            body = Canonical(self.facts.with_data(expr.var), self, self._depth)
        return tir.Let(expr.var, value, body.simplify(expr.body))

    def bound(self, expr: tir.PrimExpr) -> Interval:
        """An interval that contains all values of an expression."""
        result = self._bounds.get(expr)
        if result is None:
            result = self.remember(self._bounds, expr, lambda expr: bounds.of_expr(self, expr))
        return result

    def prove_equal(self, a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
        """True: equal wherever the facts hold; False: nowhere; None: not known."""
        if a is b:
            return True
        if is_integer(a.dtype) and is_integer(b.dtype):
            return self.run(lambda: self._compare(a, b))
        if a.dtype != b.dtype:
            return None
        if isinstance(a, tir.FloatImm) and isinstance(b, tir.FloatImm):
            x, y = ops.exact(a), ops.exact(b)
            return False if x < y or x > y else None
        p, q = self.simplify(a), self.simplify(b)
        if p is q:
            return True
        literals = isinstance(p, tir.IntImm) and isinstance(q, tir.IntImm)
        return False if literals else None

    def _compare(self, a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
        p, q = self.poly(a), self.poly(b)
        if a.dtype == b.dtype:
            if p == q:
                return True
            if a.dtype.family == "uint" or self.has_data(p) or self.has_data(q):
                value = poly.constant_of(_wrapped(poly.add(p, q, -1), a.dtype.bits))
                if value is not None:
                    return value == 0
        if "uint" in (a.dtype.family, b.dtype.family):
            return True if p == q else None
        difference = poly.add(self.exact(a), self.exact(b), -1)
        return False if self.is_nonzero(difference) else None if difference else True


def _wrapped(terms: Poly, bits: int) -> Poly:
    """A polynomial modulo 2**bits, coefficients nearest to 0: unsigned arithmetic wraps around."""
    half, modulus = 1 << (bits - 1), 1 << bits
    if all(-half < c <= half for c in terms.values()):
        return terms
    reduced = {m: (c + half - 1) % modulus - half + 1 for m, c in terms.items()}
    return {m: c for m, c in reduced.items() if c}


GENERAL = Canonical()


def entry_point(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, which users call, with one result at any depth of the stack (`Canonical.run`)."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return GENERAL.run(lambda: function(*args, **kwargs))

    return user_facing(run)
