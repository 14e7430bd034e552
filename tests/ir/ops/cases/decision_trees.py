"""Walks of decision trees."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.ir.ops.cases.case import Array, Case, case


def table(dtype: str, trees: int, depth: int) -> tuple[Array, Array, Array]:
    """Observations at and beside limits, nodes of drawn trees that share some, and roots."""
    rng, kind = np.random.default_rng(depth), np.dtype(dtype)
    values = np.array(
        [-np.inf, -1, -0.0, 0.0, 0.5, np.nextafter(kind.type(0.5), 1), np.inf, np.nan]
    )
    count = 5 * trees * (depth + 1)
    index = np.dtype(f"int{8 * kind.itemsize}")
    # A node is nearer to the end than those before it, where all are leaves.
    level = np.arange(count) // (count // (depth + 1))
    later = np.searchsorted(level, np.minimum(level + 1, depth))
    stride = count - later
    after = [later + rng.integers(0, 2**30, count) % stride for _ in range(2)]
    is_leaf = (level >= depth) | (rng.random(count) < 0.1)
    after = [np.where(is_leaf, np.arange(count), a) for a in after]
    limit = rng.choice(values, count).astype(kind).view(index)
    nodes = np.stack([rng.integers(0, 3, count), limit, *after], 1).astype(index)
    return rng.choice(values, (7, 3)).astype(kind), nodes, np.arange(trees).astype(index)


def leaves(x: Array, nodes: Array, roots: Array, depth: int) -> Array:
    found = np.empty((len(x), len(roots)), roots.dtype)
    for row, tree in product(range(len(x)), range(len(roots))):
        node = roots[tree]
        for _ in range(depth):
            feature, limit, above, below = nodes[node]
            bound = np.array(limit, nodes.dtype).view(f"float{8 * nodes.itemsize}")
            node = below if x[row, feature] <= bound else above
        found[row, tree] = node
    return found


def cases() -> Iterator[Case]:
    for dtype, trees, depth in (
        ("float32", 1, 0),
        ("float32", 10, 8),
        ("float64", 9, 3),
        ("float64", 3, 14),
    ):
        x, nodes, roots = table(dtype, trees, depth)
        yield case(
            "tree_leaves",
            f"{trees} of depth {depth} in {dtype}",
            (x, nodes, roots),
            lambda x, n, r, d=depth: leaves(x, n, r, d),
            depth,
            only=("dtype",),
            literal=((1, 1), (2, 0)),
        )
