"""Products of bytes with zero points are products of the bytes themselves, and stay exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.transform.fusion.fuse_zero_points import FuseZeroPoints
from relaxpy.ir.tir.expr import Var

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = Sequence[int]
RNG = np.random.default_rng(0)


def drawn(shape: Sizes, dtype: str) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def product(
    a: Array, p: Array | None, b: Array, q: Array | None, *, constant: bool, symbolic: bool
) -> tuple[relaxpy.IRModule, list[Array]]:
    """`(a - p) @ (b - q)`, of which the second factor may be constant, and its arguments."""
    builder, arrays = BlockBuilder(), [x for x in (a, p) if x is not None]
    rows = Var("m", "int64")

    def variable(name: str, x: Array) -> rx.Expr:
        sizes: list[Any] = list(x.shape)
        if symbolic and len(sizes) > 1 and (x is a or x is p):
            sizes[-2] = rows
        return rx.Var(name, rx.TensorStructInfo(sizes, str(x.dtype)))

    names = {id(x): variable(n, x) for n, x in zip("ap", arrays, strict=False)}
    for name, x in (("b", b), ("q", q)):
        if x is not None:
            names[id(x)] = rx.const(x) if constant else variable(name, x)
            arrays += [] if constant else [x]
    params = [v for v in names.values() if isinstance(v, rx.Var)]
    with builder.function("main", params):
        with builder.dataflow():
            factors = []
            for x, zero in ((a, p), (b, q)):
                wide = builder.emit(op.astype(names[id(x)], "int32"))
                if zero is not None:
                    point = builder.emit(op.astype(names[id(zero)], "int32"))
                    wide = builder.emit(op.subtract(wide, point))
                factors.append(wide)
            result = builder.emit_output(op.matmul(*factors, "int32"))
        builder.emit_func_output(result)
    return builder.finalize(), arrays


def names_of(mod: relaxpy.IRModule) -> set[str]:
    return {var.name_hint for var in mod.functions}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    ("left", "p", "right", "q"),
    [
        ((3, 18), (), (18, 9), ()),
        ((3, 18), (3, 1), (18, 9), (9,)),
        ((3, 18), (1,), (18, 9), None),
        ((3, 18), None, (18, 9), (1, 9)),
        ((3, 18), None, (18, 9), None),
        ((2, 3, 18), (1, 3, 1), (2, 18, 9), (2, 1, 9)),
        ((2, 3, 18), (), (18, 9), (9,)),
    ],
)
def test_products_are_exact(
    left: Sizes, p: Sizes | None, right: Sizes, q: Sizes | None, *, constant: bool, symbolic: bool
) -> None:
    for kinds in (("uint8", "int8"), ("int8", "uint8")):
        a, b = drawn(left, kinds[0]), drawn(right, kinds[1])
        zeros = [None if s is None else drawn(s, k) for s, k in zip((p, q), kinds, strict=True)]
        mod, arrays = product(a, zeros[0], b, zeros[1], constant=constant, symbolic=symbolic)
        assert "matmul_of_bytes" in names_of(FuseZeroPoints()(mod))
        factors = [
            x.astype("int64") - (0 if z is None else z) for x, z in zip((a, b), zeros, strict=True)
        ]
        for target in ("native", "reference"):
            found = relaxpy.compile(mod, target=target)["main"](*arrays)
            np.testing.assert_array_equal(found, factors[0] @ factors[1])


def test_zeros_of_constant_zero_points_take_nothing_away() -> None:
    a, b = drawn((3, 18), "int8"), drawn((18, 9), "int8")
    mod, _ = product(a, None, b, np.zeros(9, "int8"), constant=True, symbolic=False)
    assert "subtract" not in FuseZeroPoints()(mod).script()


@pytest.mark.parametrize(
    ("left", "p", "right", "kind"),
    [
        ((3, 18), (18,), (18, 9), "int8"),  # a zero point for each term of the sum
        ((3, 18), (2, 3, 1), (18, 9), "int8"),  # it has more rows than the matrix
        ((3, 18), (), (18, 9), "int16"),  # these are no bytes
        ((18,), (), (18, 9), "int8"),
    ],
)
def test_other_products_stay(left: Sizes, p: Sizes, right: Sizes, kind: str) -> None:
    a, zero, b = drawn(left, kind), drawn(p, kind), drawn(right, kind)
    mod, arrays = product(a, zero, b, None, constant=False, symbolic=False)
    assert FuseZeroPoints()(mod) is mod
    expected = (a.astype("int64") - zero) @ b.astype("int64")
    found = relaxpy.compile(mod, target="native")["main"](*arrays)
    np.testing.assert_array_equal(found, expected.astype("int32"))
