"""Products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relaxpy.ir.relax import op
from tests.ir.relax.op.cases.case import Case, floats, integers


def cases() -> Iterator[Case]:
    shapes = (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((2, 3, 4), (4,)),
        ((0, 4), (4, 2)),
        ((2, 0), (0, 3)),
    )
    for a, b in shapes:
        yield Case(
            "relax.matmul",
            f"{a} {b}",
            (floats(*a), floats(*b, seed=2)),
            lambda v, w: v @ w,
            np.matmul,
            roundings=32,
        )
    narrow = floats(2, 3, dtype="float16"), floats(3, 2, dtype="float16", seed=2)
    yield Case(
        "relax.matmul", "out_dtype", narrow, lambda v, w: op.matmul(v, w, "float32"), np.matmul
    )
    truths = np.array([[True, False], [True, True]])
    yield Case("relax.matmul", "bool", (truths, truths), op.matmul, np.matmul)
    mixed = (truths, floats(2, 3))  # of which the product holds Booleans
    yield Case("relax.matmul", "bool and float", mixed, op.matmul, np.matmul, smooth=False)
    yield Case("relax.matmul", "ints", (integers(2, 3), integers(3, 2)), op.matmul, np.matmul)
