"""Sums and products in the order of a written expression."""

from __future__ import annotations

from functools import reduce

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rewrite, walk
from relaxpy.ir.tir.expr import Add, IntImm, Mul, PrimExpr, Sub, Var


def ordered_as(expr: PrimExpr, written: PrimExpr) -> PrimExpr:
    """`expr` with the terms and factors of integers in the order that `written` has them in.

    A term that `written` does not have is placed by its first variable; literals come last, and a
    sum starts with a negative term only if all its terms are negative.
    """
    if expr is written:
        return expr
    positions = _positions(written)

    def position(part: PrimExpr) -> int:
        if isinstance(part, IntImm):
            return len(positions) + 1
        result = positions.get(part)
        if result is not None:
            return result
        below = (positions[v] for v in walk(part) if isinstance(v, Var) and v in positions)
        return min(below, default=len(positions))

    def rule(node: Node) -> Node | None:
        if not isinstance(node, (Add, Sub, Mul)) or not node.dtype.is_int:
            return None
        if isinstance(node, Mul):
            factors = _factors(node)
            wanted = sorted(factors, key=position)
            same = all(a is b for a, b in zip(factors, wanted, strict=True))
            return None if same else reduce(Mul, wanted)
        terms = _terms(node)
        result = sorted(terms, key=lambda term: position(term[0]))
        first = next((i for i, (_, negative) in enumerate(result) if not negative), 0)
        result.insert(0, result.pop(first))
        same = all(a[0] is b[0] for a, b in zip(terms, result, strict=True))
        if same or result[0][1]:
            return None
        return reduce(
            lambda total, term: (Sub if term[1] else Add)(total, term[0]), result[1:], result[0][0]
        )

    after = rewrite(expr, rule)
    assert isinstance(after, PrimExpr)
    return after


def _positions(written: PrimExpr) -> dict[Node, int]:
    """The position of each subexpression, counted from the left, parents before children."""
    positions: dict[Node, int] = {}
    stack = [written]
    while stack:
        node = stack.pop()
        if node not in positions:
            positions[node] = len(positions)
            stack += reversed([part for part in children(node) if isinstance(part, PrimExpr)])
    return positions


def _factors(product: PrimExpr) -> list[PrimExpr]:
    result: list[PrimExpr] = []
    stack = [product]
    while stack:
        node = stack.pop()
        if isinstance(node, Mul):
            stack += [node.b, node.a]
        else:
            result.append(node)
    return result


def _terms(total: PrimExpr) -> list[tuple[PrimExpr, bool]]:
    """The terms of a sum, each with whether it is subtracted."""
    result: list[tuple[PrimExpr, bool]] = []
    stack = [(total, False)]
    while stack:
        node, negative = stack.pop()
        if isinstance(node, (Add, Sub)):
            stack += [(node.b, negative != isinstance(node, Sub)), (node.a, negative)]
        else:
            result.append((node, negative))
    return result
