"""Operators that create tensors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import Array, Case, case, floats, integers, same


def cases() -> Iterator[Case]:
    x = integers(2, 3)
    nothing: tuple[Array, ...] = ()
    yield case("zeros", "shape", nothing, lambda: np.zeros((2, 3)), (2, 3), "float32")
    yield case("ones", "empty", nothing, lambda: np.ones((0, 3)), (0, 3), "int64")
    yield case("zeros_like", "dtype", (x,), np.zeros_like, "bool")
    yield case("zeros_like", "default", (x,), np.zeros_like)
    yield case("ones_like", "dtype", (x,), np.ones_like)
    yield same("full", "number", nothing, np.full, (2,), 2.5)
    yield Case(
        "relax.full",
        "tensor",
        (np.float32(3.5).reshape(()),),
        lambda v: op.full((2, 2), v, "int32"),
        lambda v: np.full((2, 2), v).astype("int32"),
        needs=("rank",),
    )
    yield same("full_like", "number", (x,), np.full_like, 7)
    yield case(
        "full_like",
        "tensor",
        (floats(2, 3), np.float32(3.5).reshape(())),
        np.full_like,
        needs=("rank",),
    )
    ranges: tuple[tuple[Any, ...], ...] = (
        (5,),
        (2, 9, 3),
        (9, 2, -2),
        (0, 1, 0.25),
        (3, 3),
        (4, 1),
    )
    for bounds in ranges:
        yield Case(
            "relax.arange",
            str(bounds),
            nothing,
            lambda b=bounds: op.arange(*b),
            lambda b=bounds: np.arange(*b),
        )
    for n, m, k in ((3, None, 0), (3, 4, 1), (4, 2, -1), (0, 2, 0), (2, 3, 7)):
        yield same("eye", str((n, m, k)), nothing, np.eye, n, m, k)
        yield Case(
            "relax.eye_like",
            str((n, m, k)),
            (np.zeros((n, m or n), "float32"),),
            lambda v, k=k: op.eye_like(v, k, "int32"),
            lambda v, k=k: np.eye(*v.shape, k),
        )
    yield case("eye", "bool", nothing, lambda: np.eye(2), 2, dtype="bool")
    yield case("eye_like", "default", (floats(2, 2),), lambda v: np.eye(*v.shape))
    for size, periodic in ((7, False), (8, True), (1, False), (1, True)):
        yield Case(
            "relax.hamming_window",
            str((size, periodic)),
            nothing,
            lambda n=size, p=periodic: op.hamming_window(n, p, 0.54, 0.46, "float32"),
            lambda n=size, p=periodic: np.hamming(n + p)[:n] if n > 1 else np.ones(1),
        )
    yield Case(
        "relax.hamming_window",
        "other coefficients",
        nothing,
        lambda: op.hamming_window(6, False, 0.5, 0.25, "float64"),
        lambda: 0.5 - 0.25 * np.cos(2 * np.pi * np.arange(6) / 5),
    )
