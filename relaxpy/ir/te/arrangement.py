"""Sums, products and comparisons arranged as in an original expression."""

from __future__ import annotations

from functools import reduce

from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT32, INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.orders import preorder, reached
from relaxpy.ir.core.traverse import children, rewrite, walk
from relaxpy.ir.tir import expr as tir


def ordered_as(expr: tir.PrimExpr, original: tir.PrimExpr) -> tir.PrimExpr:
    """Reorder the simplified `expr` like `original`, where that is as simple.

    Integer terms and factors are in the order in which they occur in `original`. A term that it
    does not have is ordered by its first variable; literals come last, and a sum starts with a
    negative term only if all its terms are negative. A comparison keeps its sides and its operator.
    """
    if expr is original:
        return expr
    positions = _positions(original)

    def position(node: tir.PrimExpr) -> int:
        if isinstance(node, tir.IntImm):
            return len(positions) + 1
        known = positions.get(node)
        if known is not None:
            return known
        below = (positions[v] for v in walk(node) if isinstance(v, tir.Var) and v in positions)
        return min(below, default=len(positions))

    comparisons = [(c, simplify(c)) for c in walk(original) if isinstance(c, tir.CmpExpr)]

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.CmpExpr):
            return next((_arranged(node, c) for c, form in comparisons if form.same_as(node)), None)
        if not isinstance(node, (tir.Add, tir.Sub, tir.Mul)) or not node.dtype.is_int:
            return None
        if isinstance(node, tir.Mul):
            factors = _factors(node)
            ordered = sorted(factors, key=position)
            same = all(a is b for a, b in zip(factors, ordered, strict=True))
            return None if same else reduce(tir.Mul, ordered)
        terms = _terms(node)
        signed = sorted(terms, key=lambda term: position(term[0]))
        first = next((i for i, (_, negative) in enumerate(signed) if not negative), 0)
        signed.insert(0, signed.pop(first))
        same = all(a[0] is b[0] for a, b in zip(terms, signed, strict=True))
        if same or signed[0][1]:
            return None
        return reduce(
            lambda total, term: (tir.Sub if term[1] else tir.Add)(total, term[0]),
            signed[1:],
            signed[0][0],
        )

    rewritten = rewrite(expr, rule)
    assert isinstance(rewritten, tir.PrimExpr)
    return rewritten


def _positions(root: tir.PrimExpr) -> dict[tir.PrimExpr, int]:
    """The position of each subexpression, counted from the left, parents before children."""
    return {node: position for position, node in enumerate(reached([root], _operands))}


def _operands(expr: tir.PrimExpr) -> list[tir.PrimExpr]:
    return [child for child in children(expr) if isinstance(child, tir.PrimExpr)]


def _arranged(simplified: tir.CmpExpr, original: tir.CmpExpr) -> tir.CmpExpr:
    """The original with its sides simplified and their literals on one side, if no terms cancel.

    As in TVM, `>` and `>=` become `<` and `<=`, literals that are added are positive, and one that
    is 1 changes the operator: `a < b + 1` becomes `a <= b`.
    """
    left, right = original.a, original.b
    if isinstance(original, (tir.GT, tir.GE)):
        left, right = right, left
    a, b = (ordered_as(simplify(side), side) for side in (left, right))
    if _leaves(a) + _leaves(b) != _leaves(simplified.a) + _leaves(simplified.b):
        return simplified
    if isinstance(original, (tir.EQ, tir.NE)):
        return simplified if _literal(a) and _literal(b) else type(original)(a, b)
    is_strict = isinstance(original, (tir.LT, tir.GT))
    if a.dtype not in (INT32, INT64):  # others may wrap around
        return tir.LT(a, b) if is_strict else tir.LE(a, b)
    shift = _literal(b) - _literal(a)
    a, b = (ordered_as(simplify(side - _literal(side)), side) for side in (a, b))
    bounds = isinstance(a, tir.IntImm) or isinstance(b, tir.IntImm)
    if shift == (1 if is_strict else -1) and not bounds:  # a < b + 1, or a + 1 <= b
        return tir.LE(a, b) if is_strict else tir.LT(a, b)
    if isinstance(a, tir.IntImm) or (shift < 0 and not isinstance(b, tir.IntImm)):
        a = ordered_as(simplify(a - shift), a)
    else:
        b = ordered_as(simplify(b + shift), b)
    return tir.LT(a, b) if is_strict else tir.LE(a, b)


def _leaves(expr: tir.PrimExpr) -> int:
    """The number of occurrences of anything but literals in a sum."""
    return sum(not isinstance(term, tir.IntImm) for term, _ in _terms(expr))


def _literal(expr: tir.PrimExpr) -> int:
    """The literals in a sum, added up."""
    literals = ((term.value, sub) for term, sub in _terms(expr) if isinstance(term, tir.IntImm))
    return sum(-value if sub else value for value, sub in literals)


def _factors(product: tir.PrimExpr) -> list[tir.PrimExpr]:
    nodes = preorder([product], lambda node: (node.a, node.b) if isinstance(node, tir.Mul) else ())
    return [node for node in nodes if not isinstance(node, tir.Mul)]


def _terms(total: tir.PrimExpr) -> list[tuple[tir.PrimExpr, bool]]:
    """The terms of a sum, each with whether it is subtracted."""
    terms: list[tuple[tir.PrimExpr, bool]] = []
    stack = [(total, False)]
    while stack:
        node, negative = stack.pop()
        if isinstance(node, (tir.Add, tir.Sub)):
            stack += [(node.b, negative != isinstance(node, tir.Sub)), (node.a, negative)]
        else:
            terms.append((node, negative))
    return terms
