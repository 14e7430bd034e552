"""Operators that repeat, reverse, shift or mask elements."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.ir import ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers, same


def cases() -> Iterator[Case]:
    yield from _repeated()
    yield from _moved()
    yield from _grids()
    yield from _triangles()
    yield from _sequences()


def _repeated() -> Iterator[Case]:
    x = floats(2, 3, 4)
    for axis in (None, 0, 1, -1):
        for count in (0, 1, 3):
            yield same("repeat", f"{count} along {axis}", (x,), np.repeat, count, axis)
    yield case("repeat", "ints", (integers(4),), lambda v: v.repeat(2), 2)
    yield case("repeat", "empty", (x[:0],), lambda v: v.repeat(2, 0), 2, 0)
    for reps in ((2,), (1, 2), (2, 1, 3), (3, 2, 1, 2), (), (0, 1), (1, 1, 1, 1, 2)):
        yield same("tile", str(reps), (x,), np.tile, reps)
    yield same("tile", "scalar", (np.float32(2).reshape(()),), np.tile, (2, 2))
    yield same("tile", "empty", (x[:, :0],), np.tile, (2, 2))
    yield same("tile", "bool", (x[0] > 0,), np.tile, 2)


def _moved() -> Iterator[Case]:
    x = floats(3, 5)
    for axis in (0, 1, -1):
        yield same("flip", str(axis), (x,), np.flip, axis)
    yield case("flip", "empty", (x[:0],), lambda v: v, 0)
    for shift, axis in ((2, None), (-7, None), (1, 0), (-1, -1), (12, 1), ((1, 2), (0, 1))):
        yield same("roll", f"{shift} along {axis}", (x,), np.roll, shift, axis)
    yield case("roll", "empty", (x[:0],), lambda v: v, 2, 0)
    yield same("roll", "vector", (x[0],), np.roll, 2)


def _grids() -> Iterator[Case]:
    vectors = floats(3), floats(4, seed=1), floats(2, seed=2)
    for count in (1, 2, 3):
        for indexing in ("ij", "xy"):
            yield Case(
                "relax.meshgrid",
                f"{count} {indexing}",
                vectors[:count],
                lambda *v, i=indexing: op.meshgrid(v, i),
                lambda *v, i=indexing: tuple(np.meshgrid(*v, indexing=i)),
            )
    indices = np.array([[0, 3, -1], [2, 7, 1]], "int64")

    def expected(v: Array, axis: int, on: Any, off: Any) -> Array:
        places = np.moveaxis(np.arange(4)[:, None, None] == v, 0, axis)
        return np.where(places, on, off)

    for axis in (-1, 0, 1):
        yield case(
            "one_hot",
            f"axis {axis}",
            (indices,),
            lambda v, a=axis: expected(v, a, 5.0, -1.0),
            rx.PrimValue(tir.FloatImm("float32", 5.0)),
            rx.PrimValue(tir.FloatImm("float32", -1.0)),
            4,
            axis,
        )
    yield Case(
        "relax.one_hot",
        "ints",
        (indices.astype("uint8"),),
        lambda v: op.one_hot(v, rx.PrimValue(1), rx.PrimValue(0), 4),
        lambda v: expected(v, -1, 1, 0),
    )


def _triangles() -> Iterator[Case]:
    x = floats(2, 3, 4)
    for name in ("tril", "triu"):
        make, function = getattr(op, name), getattr(np, name)
        for k in (0, 1, -2, 9):
            yield Case(
                f"relax.{name}",
                f"diagonal {k}",
                (x,),
                lambda v, k=k, make=make: make(v, k),
                lambda v, k=k, function=function: function(v, k),
            )
        yield Case(f"relax.{name}", "default", (integers(3, 3),), make, function)
        yield Case(f"relax.{name}", "special", (SPECIAL.reshape(3, 3),), make, function)
        yield Case(f"relax.{name}", "bool", (x[0] > 0,), make, function)


def _reversed(x: Array, lengths: Array, axis: int = 1, batch: int = 0) -> Array:
    """ONNX, ReverseSequence; lengths beyond the sequence are cut."""
    out = np.moveaxis(x.copy(), (batch, axis), (0, 1))
    for line, length in zip(out, lengths, strict=True):
        line[: max(length, 0)] = line[: max(length, 0)][::-1].copy()
    return np.moveaxis(out, (0, 1), (batch, axis))


def _sequences() -> Iterator[Case]:
    for label, lengths, axes, shape in (
        ("rows", [4, 2, 0], (), (3, 4)),
        ("beyond", [9, -3, 1], (), (3, 4)),
        ("columns", [2, 3, 1, 2], (0, -1), (3, 4)),
        ("last axis", [3, 5], (-1, 0), (2, 3, 5)),
    ):
        yield Case(
            "relax.reverse_sequence",
            label,
            (floats(*shape), np.array(lengths, "int64" if label == "rows" else "int32")),
            lambda v, n, a=axes: op.reverse_sequence(v, n, *a),
            lambda v, n, a=axes: _reversed(v, n, *a),
        )
