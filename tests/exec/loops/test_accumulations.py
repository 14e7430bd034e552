"""Accumulations of every kind and datatype have the results of the scalar program."""

import warnings

import ml_dtypes
import numpy as np
import pytest

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import (
    GE,
    GT,
    LT,
    Add,
    BinaryOpExpr,
    Cast,
    CmpExpr,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from tests.exec.loops.support import check

KINDS = (
    *("int8", "int64", "uint8", "uint64", "int4", "uint4", "bool"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
)
COMBINES: tuple[type[BinaryOpExpr], ...] = (Add, Sub, Mul, Min, Max)
i, j, k = (Var(name, "int64") for name in "ijk")


def size(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def loops(body: Stmt, *extents: tuple[Var, int]) -> Stmt:
    for var, extent in reversed(extents):
        body = For(var, size(0), size(extent), ForKind.SERIAL, body)
    return body


class Buffers:
    """X[4, 3], Y[4, 3] and S[4] of one datatype, and indices P[4]."""

    def __init__(self, kind: str) -> None:
        self.x = decl_buffer([size(4), size(3)], kind, "X")
        self.y = decl_buffer([size(4), size(3)], kind, "Y")
        self.s = decl_buffer([size(4)], kind, "S")
        self.p = decl_buffer([size(4)], "int32", "P")


def combined(
    combine: type[BinaryOpExpr], target: Buffer, places: list[PrimExpr], x: Buffer
) -> Stmt:
    return BufferStore(target, combine(target[tuple(places)], x[i, j]), places)


def reduced(combine: type[BinaryOpExpr], b: Buffers) -> PrimFunc:
    return PrimFunc([b.x, b.s], loops(combined(combine, b.s, [i], b.x), (i, 4), (j, 3)))


def started(combine: type[BinaryOpExpr], b: Buffers) -> PrimFunc:
    start = BufferStore(b.s, ops.const(1, b.s.dtype), [i])
    body = SeqStmt((start, loops(combined(combine, b.s, [i], b.x), (j, 3))))
    return PrimFunc([b.x, b.s], loops(body, (i, 4)))


def masked(combine: type[BinaryOpExpr], b: Buffers) -> PrimFunc:
    test = LT(b.x[i, j], ops.const(1, b.s.dtype))
    body = IfThenElse(test, combined(combine, b.s, [i], b.x))
    return PrimFunc([b.x, b.s], loops(body, (i, 4), (j, 3)))


def scanned(combine: type[BinaryOpExpr], b: Buffers) -> PrimFunc:
    store = BufferStore(b.y, combine(b.y[i, j], b.x[i, j]), [i, ops.add(j, size(1))])
    return PrimFunc([b.x, b.y], loops(store, (i, 4), (j, 2)))


def scattered(combine: type[BinaryOpExpr], b: Buffers) -> PrimFunc:
    place = Cast("int64", BufferLoad(b.p, [i]))
    return PrimFunc([b.x, b.p, b.s], loops(combined(combine, b.s, [place], b.x), (i, 4), (j, 3)))


def extreme(better: type[CmpExpr], b: Buffers) -> PrimFunc:
    stores = BufferStore(b.s, b.x[i, j], [i]), BufferStore(b.p, Cast("int32", j), [i])
    body = IfThenElse(better(b.x[i, j], b.s[i]), SeqStmt(stores))
    return PrimFunc([b.x, b.s, b.p], loops(body, (i, 4), (j, 3)))


def numbers(dtype: DataType, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape))
    if dtype.is_float:
        found = rng.standard_normal(shape)
        found.flat[:3] = np.nan, -0.0, 0.0
        return found.astype(dtype.numpy())
    low, high = (0, 1) if dtype.is_bool else ops.int_range(dtype)
    wide = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    return rng.integers(low, high, shape, wide, endpoint=True).astype(dtype.numpy())


def agrees(func: PrimFunc) -> None:
    args = [
        np.array([0, 2, 2, 1], np.int32)
        if buffer.name == "P"
        else numbers(buffer.dtype, *(int(n) for n in buffer.shape))
        for buffer in func.buffer_map.values()
    ]
    dtype = func.buffer_map[func.params[0]].dtype
    # The order is free: each of up to four terms below 4 adds a rounding.
    close = 4 * float(ml_dtypes.finfo(dtype.numpy()).eps) if dtype.is_float else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(func, *args, rtol=close, atol=4 * close)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [reduced, started, masked, scanned, scattered])
def test_an_accumulation_is_that_of_its_datatype(kind, make) -> None:
    for combine in COMBINES:
        agrees(make(combine, Buffers(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_of_products_is_that_of_its_datatype(kind: str) -> None:
    b = Buffers(kind)
    product = Mul(b.x[i, k], b.y[j, k])
    result = decl_buffer([size(4), size(4)], kind, "Z")
    store = BufferStore(result, Add(result[i, j], product), [i, j])
    agrees(PrimFunc([b.x, b.y, result], loops(store, (i, 4), (j, 4), (k, 3))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("better", [GT, LT, GE])
def test_an_extreme_and_its_place_are_those_of_its_datatype(kind, better) -> None:
    agrees(extreme(better, Buffers(kind)))


@pytest.mark.parametrize("source", KINDS)
def test_a_conversion_is_that_of_scalars(source: str) -> None:
    b = Buffers(source)
    for kind in KINDS:
        if DataType(source).is_float and DataType(kind).is_int and kind != "bool":
            continue  # What becomes of NaN is left to the machine.
        y = Buffers(kind).y
        value = b.x[i, j] if kind == source else Cast(kind, b.x[i, j])
        agrees(PrimFunc([b.x, y], loops(BufferStore(y, value, [i, j]), (i, 4), (j, 3))))
        single = b.x[2, 1] if kind == source else Cast(kind, b.x[2, 1])
        agrees(PrimFunc([b.x, y], BufferStore(y, single, [size(0), size(1)])))


@pytest.mark.parametrize("none", [-1, 0, 1, 2, 100])
@pytest.mark.parametrize("begin", [-1, 0, 1, 100])
@pytest.mark.parametrize("start", [0, 1])
def test_the_least_of_selected_places_is_that_of_the_text(none, begin, start) -> None:
    x, y = decl_buffer([size(5), size(3)], "bool", "X"), decl_buffer([size(5)], "int64", "Y")
    chosen = Min(y[i], Select(x[i, k], k, size(none)))
    least = For(k, size(start), size(3 - start), ForKind.SERIAL, BufferStore(y, chosen, [i]))
    body = SeqStmt([BufferStore(y, size(begin), [i]), least])
    truths = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]], "bool")
    check(PrimFunc([x, y], loops(body, (i, 5))), truths, np.zeros(5, "int64"))
