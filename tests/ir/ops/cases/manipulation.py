"""Operators that move elements."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from tests.ir.ops.cases.case import Case, case, floats, same


def cases() -> Iterator[Case]:
    x = floats(2, 3, 4)
    matrix = floats(3, 4)
    single = floats(1, 3, 1)
    yield same("broadcast_to", "rows", (matrix,), np.broadcast_to, (2, 3, 4), needs=("numbers",))
    yield same("broadcast_to", "ones", (single,), np.broadcast_to, (2, 3, 2), needs=("numbers",))
    for shape in ((6, 4), (-1, 4), (0, -1), (24,), (1, 2, 3, 4, 1)):
        yield case(
            "reshape",
            str(shape),
            (x,),
            lambda v, s=shape: v.reshape((2, 12) if s == (0, -1) else s),
            shape,
            needs=("numbers", "shape") if 0 in shape else ("numbers",),
        )
    yield case(
        "reshape", "scalar", (x[:1, :1, 0],), lambda v: v.reshape(()), (), needs=("numbers",)
    )
    yield case(
        "reshape",
        "empty",
        (x[:0],),
        lambda v: v.reshape((0, 5)),
        rx.ShapeExpr((0, 5)),
        needs=("numbers",),
    )
    yield case("flatten", "cube", (x,), np.ravel)
    yield case("flatten", "scalar", (x[0, 0, 0].reshape(()),), np.ravel)
    for label, batch in {"cube": x, "matrix": matrix, "empty": x[:, :0]}.items():
        yield case(
            "nn.batch_flatten",
            label,
            (batch,),
            lambda v: v.reshape(v.shape[0], math.prod(v.shape[1:])),
        )
        yield case("size", label, (batch,), np.size)
    yield case("size", "scalar", (x[0, 0, 0].reshape(()),), np.size)
    for axis in (0, -1, [0, 2], [-1, 1]):
        yield same("expand_dims", str(axis), (matrix,), np.expand_dims, axis)
    for axis in (0, -1, [0, 2]):
        yield case(
            "squeeze",
            str(axis),
            (single,),
            lambda v, a=axis: np.squeeze(v, tuple(a) if isinstance(a, list) else a),
            axis,
            needs=("numbers",),
        )
    yield case("squeeze", "all", (single,), np.squeeze, needs=("numbers",))
    for axes in (None, (1, 2, 0), (0, -1, 1), (0, 1, 2)):
        yield same("permute_dims", str(axes), (x,), np.transpose, axes)
    other = floats(2, 5, 4, seed=7)
    yield Case(
        "relax.concat",
        "middle",
        (x, other, x),
        lambda *v: op.concat(v, 1),
        lambda *v: np.concatenate(v, 1),
    )
    yield Case(
        "relax.concat",
        "empty part",
        (x, x[:0]),
        lambda *v: op.concat(v, 0),
        lambda *v: np.concatenate(v, 0),
    )
    yield Case("relax.concat", "one", (x,), lambda *v: op.concat(v, -1), lambda *v: v[0])
    yield Case(
        "relax.concat",
        "flat",
        (x[0, 0], x[1, 1]),
        lambda *v: op.concat(v, None),
        lambda *v: np.concatenate(v),
    )
    for axis in (0, 1, -1):
        yield Case(
            "relax.stack",
            str(axis),
            (matrix, -matrix),
            lambda *v, a=axis: op.stack(v, a),
            lambda *v, a=axis: np.stack(v, a),
        )
    long = floats(2, 10)
    for cuts in ([3, 7], [0, 4], [4, 2], [12]):
        yield Case(
            "relax.split",
            str(cuts),
            (long,),
            lambda v, c=cuts: op.split(v, c, 1),
            lambda v, c=cuts: tuple(
                v[:, b:e] for b, e in zip([0, *c], [*c, v.shape[1]], strict=True)
            ),
            needs=("numbers",),
        )
    yield Case(
        "relax.split",
        "a cut in front of the axis",
        (long,),
        lambda v: op.split(v, [-3, 4], 1),
        lambda v: (v[:, :0], v[:, :4], v[:, 4:]),
        needs=("numbers",),
    )
    for parts, bounds in ((5, (0, 2, 4, 6, 8, 10)), (3, (0, 4, 8, 10)), (4, (0, 3, 6, 9, 10))):
        yield Case(
            "relax.split",
            f"{parts} parts",
            (long,),
            lambda v, p=parts: op.split(v, p, -1),
            lambda v, b=bounds: tuple(v[:, i:j] for i, j in pairwise(b)),
            needs=("numbers",),
            only=("shape",),
        )
    yield Case(
        "relax.split",
        "more parts than elements",
        (long[:, :5],),
        lambda v: op.split(v, 4, 1),
        lambda v: (v[:, :2], v[:, 2:4], v[:, 4:], v[:, :0]),
        needs=("numbers",),
        only=("shape",),
    )
    yield case("split", "one part", (long,), lambda v: v, 1, 1, needs=("numbers",))
