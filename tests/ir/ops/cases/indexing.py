"""Operators that select elements."""

from collections.abc import Iterator

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import Case, case, floats


def cases() -> Iterator[Case]:
    yield from _dynamic_slices()
    x = floats(3, 4)
    places = np.array([[2, 0], [1, 1]], "int64")
    yield case("take", "rows", (x, places), lambda v, i: v[i], 0)
    yield case("take", "last axis", (x, places.astype("int32")), lambda v, i: v[:, i], -1)
    yield case("take", "no axis", (x[0], places), lambda v, i: v[i], needs=("rank",))
    yield case("take", "prim", (x,), lambda v: v[2], 2, 0)
    yield case("take", "scalar", (x, places[0, 0].reshape(())), lambda v, i: v[:, i], 1)
    outside = np.array([-5, -1, 1, 3, 7], "int64")
    for mode in ("clip", "wrap"):
        yield case(
            "take", mode, (x, outside), lambda v, i, m=mode: np.take(v, i, 0, mode=m), 0, mode
        )
    yield Case(
        "relax.take",
        "nan",
        (x, outside),
        lambda v, i: op.take(v, i, 0, "nan"),
        lambda v, i: np.stack([v[k] if 0 <= k < len(v) else np.full_like(v[0], np.nan) for k in i]),
        smooth=False,
    )
    yield Case(
        "relax.take",
        "nothing of nothing",
        (x[:0], places[:0]),
        lambda v, i: op.take(v, i, 0, "wrap"),
        lambda v, i: np.zeros((0, 2, 4)),
        only=("shape",),
    )
    for label, (begin, end, step) in {
        "plain": (1, 3, 1),
        "strided": (0, 9, 3),
        "negative": (-5, -1, 2),
        "backwards": (8, 1, -3),
        "all backwards": (-1, -20, -1),
        "beyond": (4, 99, 1),
        "nothing": (5, 2, 1),
    }.items():
        yield Case(
            "relax.strided_slice",
            label,
            (floats(2, 10),),
            lambda v, b=begin, e=end, s=step: op.strided_slice(v, [1], [b], [e], [s]),
            lambda v, b=begin, e=end, s=step: v[:, b:e:s],
        )
    yield case(
        "strided_slice", "two axes", (floats(4, 6),), lambda v: v[1:3, 2:6], [0, -1], [1, 2], [3, 6]
    )
    yield Case(
        "relax.strided_slice",
        "inside",
        (floats(4, 6),),
        lambda v: op.strided_slice(v, [0], [1], [3], assume_inbound=True),
        lambda v: np.take(v, [1, 2], 0),  # elsewhere it is not defined
    )


def _dynamic_slices() -> Iterator[Case]:
    x = floats(4, 5)
    for begin, end, strides in (
        ((0, 0), (4, 5), (1, 1)),
        ((1, -3), (9, -1), (2, 1)),
        ((-1, 3), (-9, 0), (-1, -2)),
        ((3, 0), (1, 5), (1, 1)),
        ((0, 4), (0, -100), (1, -1)),
    ):
        yield case(
            "dynamic_strided_slice",
            f"{begin} to {end} by {strides}",
            (x, *(np.array(bound, "int64") for bound in (begin, end, strides))),
            lambda v, b, e, s: v[b[0] : e[0] : s[0], b[1] : e[1] : s[1]],
        )
    none = np.zeros(0, "int64")
    yield case(
        "dynamic_strided_slice",
        "scalar",
        (x[0, 0].reshape(()), none, none, none),
        lambda v, b, e, s: v,
        needs=("numbers",),
    )
