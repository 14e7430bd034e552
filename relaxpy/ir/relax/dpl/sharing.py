"""Which patterns match by themselves, so that it need not be tried twice whether they do."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.relax.dpl.pattern import DFPattern, StructInfoPattern, all_parts, parts
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars


def independent_patterns(roots: Sequence[DFPattern]) -> frozenset[DFPattern]:
    """The patterns under `roots` whose parts occur, shape variables included, nowhere else.

    Whether one matches an expression depends on these two alone, and of all the ways in which it
    does the first will do. The roots themselves occur elsewhere.

    Rule:
        Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm, 2001: a pattern dominates
        its parts if no way to one of them, from the roots, avoids it.
    """
    order = all_parts(roots)
    below: dict[DFPattern, list[object]] = {}
    for pattern in order:
        below[pattern] = list(parts(pattern))
        if isinstance(pattern, StructInfoPattern):
            below[pattern] += free_shape_vars(pattern.struct_info)
    top = object()
    above: dict[object, list[object]] = {root: [top] for root in roots}
    for pattern in order:
        for part in below[pattern]:
            above.setdefault(part, []).append(pattern)
    depth: dict[object, int] = {top: 0}
    over: dict[object, object] = {top: top}
    downwards: list[object] = [*reversed(order), *above]
    for part in downwards:
        if part in depth:
            continue
        nearest, *others = above[part]
        for other in others:
            while nearest is not other:
                if depth[nearest] < depth[other]:
                    nearest, other = other, nearest
                nearest = over[nearest]
        over[part], depth[part] = nearest, depth[nearest] + 1
    found = set()
    least: dict[object, int] = {}
    for pattern in order:
        inside = [min(depth[over[part]], least.get(part, depth[part])) for part in below[pattern]]
        least[pattern] = min(inside, default=depth[pattern])
        if least[pattern] >= depth[pattern]:
            found.add(pattern)
    return frozenset(found)
