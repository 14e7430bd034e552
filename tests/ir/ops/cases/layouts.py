"""Tensors in other layouts."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.tir.analysis.index_map import IndexMap
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers

Map = Callable[..., tuple[Any, ...]]


def _moved(x: Array, function: Map, shape: tuple[int, ...], padding: float = 0.0) -> Array:
    out = np.full(shape, padding, x.dtype)
    for index in np.ndindex(*x.shape):
        out[function(*index)] = x[index]
    return out


def cases() -> Iterator[Case]:
    x = floats(3, 10)
    rows: list[tuple[str, Array, Map, tuple[int, ...]]] = [
        ("identity", x, lambda i, j: (i, j), (3, 10)),
        ("transposed", x, lambda i, j: (j, i), (10, 3)),
        ("blocks", x, lambda i, j: (i, j // 5, j % 5), (3, 2, 5)),
        ("blocks with padding", x, lambda i, j: (j // 4, i, j % 4), (3, 3, 4)),
        ("blocks of both", x, lambda i, j: (i // 2, j // 4, i % 2, j % 4), (2, 3, 2, 4)),
        ("one axis", x, lambda i, j: (i * 10 + j,), (30,)),
        ("a new axis", x, lambda i, j: (i, 0, j), (3, 1, 10)),
        ("padding in front", x[0], lambda i: ((i + 1) // 4, (i + 1) % 4), (3, 4)),
        ("gaps", x[0], lambda i: (i * 2,), (19,)),
        ("empty", x[:0], lambda i, j: (i, j // 4, j % 4), (0, 3, 4)),
        ("empty blocks", x[:, :0], lambda i, j: (i, j // 4, j % 4), (3, 0, 4)),
        ("special numbers", SPECIAL.astype("float16"), lambda i: (i // 4, i % 4), (3, 4)),
        (
            "integers",
            integers(3, 5, dtype="uint8", low=0),
            lambda i, j: (j // 2, j % 2, i),
            (3, 2, 3),
        ),
        ("Booleans", x > 0, lambda i, j: (j // 4, j % 4, i), (3, 4, 3)),
    ]
    literal = ("one axis",)
    for label, data, function, shape in rows:
        yield case(
            "layout_transform",
            label,
            (data,),
            lambda v, f=function, s=shape: _moved(v, f, s),
            function,
            needs=("numbers",) if label in literal else (),
            only=("shape",),
        )
    for value in (1.5, -np.inf):
        yield Case(
            "relax.layout_transform",
            f"padding of {value}",
            (x,),
            lambda v, n=value: op.layout_transform(v, lambda i, j: (i, j // 4, j % 4), n, [1], [1]),
            lambda v, n=value: _moved(v, lambda i, j: (i, j // 4, j % 4), (3, 3, 4), n),
            only=("shape",),
            smooth=np.isfinite(value),
        )
    yield case(
        "layout_transform",
        "an inverse",
        (x[0],),
        lambda v: v[::-1],
        IndexMap.from_func(lambda i: 9 - i, inverse_index_map=lambda i: 9 - i),
        needs=("numbers",),
        only=("shape",),
    )
    yield case(
        "layout_transform", "scalar", (x[0, 0].reshape(()),), lambda v: v.reshape(1), lambda: (0,)
    )
