"""The patterns that match independently of others, so that one attempt per expression suffices."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.relax.dpl.pattern import DFPattern, StructInfoPattern, all_subpatterns, subpatterns
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars


def independent_patterns(roots: Sequence[DFPattern]) -> frozenset[DFPattern]:
    """The patterns under `roots` whose subpatterns and shape variables occur nowhere else.

    Whether such a pattern matches depends on the expression alone, and the first way in which it
    does is as good as any other. The roots count as used from outside.

    Rule:
        A pattern is independent if it dominates everything below it: every path from the roots
        leads through it. Dominators by Cooper, Harvey and Kennedy, A Simple, Fast Dominance
        Algorithm, 2001.
    """
    order = all_subpatterns(roots)
    operands: dict[DFPattern, list[object]] = {}
    for pattern in order:
        operands[pattern] = list(subpatterns(pattern))
        if isinstance(pattern, StructInfoPattern):
            operands[pattern] += free_shape_vars(pattern.struct_info)
    entry = object()
    users: dict[object, list[object]] = {root: [entry] for root in roots}
    for pattern in order:
        for operand in operands[pattern]:
            users.setdefault(operand, []).append(pattern)
    depth: dict[object, int] = {entry: 0}
    dominator: dict[object, object] = {entry: entry}
    for node in [*reversed(order), *users]:
        if node in depth:
            continue
        nearest, *others = users[node]
        for other in others:
            while nearest is not other:
                if depth[nearest] < depth[other]:
                    nearest, other = other, nearest
                nearest = dominator[nearest]
        dominator[node], depth[node] = nearest, depth[nearest] + 1
    independent = set()
    lowest: dict[object, int] = {}  # the least depth of a dominator of anything below
    for pattern in order:
        below = [min(depth[dominator[n]], lowest.get(n, depth[n])) for n in operands[pattern]]
        lowest[pattern] = min(below, default=depth[pattern])
        if lowest[pattern] >= depth[pattern]:
            independent.add(pattern)
    return frozenset(independent)
