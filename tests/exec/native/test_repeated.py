"""Sums of products with elements of which several iterations read the same one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relaxpy
from relaxpy import DataType, IRModule, te, tir
from relaxpy.exec.native.loops import run_loops
from relaxpy.exec.native.trees import strategy
from relaxpy.exec.native.trees.product import Product
from relaxpy.exec.native.trees.repeated import RepeatedLoads
from tests.exec.loops.written import native
from tests.ir.relax.texts import DTYPES

Array = NDArray[Any]
INIT = "with T.init(): O[vi, vj] = T.float32(2)"


def packed(integers: Array, bits: int, stored: str) -> Array:
    """Rows of integers of few bits, several in each word of a datatype, the first one lowest."""
    rows, size = integers.shape
    word = per_word(bits, stored)
    found = np.zeros((rows, -(-size // word)), stored)
    for k in range(size):
        found[:, k // word] |= integers[:, k].astype(stored) << np.array(k % word * bits, stored)
    return found


def per_word(bits: int, stored: str) -> int:
    """How many integers of so many bits a word has."""
    return int(stored.strip("uint")) // bits


def kernel(
    shape: tuple[int, int], bits: int, group: int, stored: str, scales: str, zero: float = 1.0
) -> tir.PrimFunc:
    """`o[i] = 1 + sum(x[k] * (integer(i, k) - zero) * s[i, k // group])`."""
    n, size = shape
    word = per_word(bits, stored)
    x = te.placeholder((size,), "float32", "x")
    q = te.placeholder((n, -(-size // word)), stored, "q")
    s = te.placeholder((n, -(-size // group)), scales, "s")
    k = te.reduce_axis((0, size), "k")

    def weight(i: tir.PrimExpr, j: tir.PrimExpr) -> tir.PrimExpr:
        shift = (j % word).astype(stored) * tir.const(bits, stored)
        integer = (q[i, j // word] >> shift) & tir.const((1 << bits) - 1, stored)
        number = integer.astype("float32") - tir.const(zero, "float32")
        return number * s[i, j // group].astype("float32")

    o = te.compute((n,), lambda i: te.sum(x[k] * weight(i, k), k), "o")
    more = te.compute((n,), lambda i: o[i] + tir.const(1.0, "float32"), "more")
    return te.create_prim_func([x, q, s, more])


@pytest.mark.each_choice
@pytest.mark.parametrize("scales", ["float16", "float32"])
@pytest.mark.parametrize(
    ("bits", "group", "stored"),
    [
        (4, 32, "uint32"),
        (8, 32, "uint32"),
        (3, 40, "uint32"),
        (2, 16, "uint32"),
        (1, 64, "uint32"),
        (4, 32, "uint8"),
        (4, 64, "uint16"),
        (4, 8, "uint8"),
        (4, 32, "uint64"),
    ],
)
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (5, 3), (70, 64), (3, None), (6, 9.25)])
def test_packed_weights_give_the_sums_of_their_integers(rows, groups, bits, group, stored, scales):
    size = group + 5 if groups is None else int(groups * group)
    func = kernel((rows, size), bits, group, stored, scales).with_attr("global_symbol", "main")
    rng = np.random.default_rng(rows)
    x = rng.integers(-2, 3, size).astype("float32")
    integers = rng.integers(0, 1 << bits, (rows, size))
    scale = np.ldexp(1.0, rng.integers(-2, 2, (rows, -(-size // group)))).astype(scales)
    found, stored_weights = np.empty(rows, "float32"), packed(integers, bits, stored)
    run = relaxpy.compile(IRModule({"main": func}), target="native")["main"]
    run(x, stored_weights, scale, found)
    weights = (integers - 1.0) * np.repeat(scale.astype("float64"), group, 1)[:, :size]
    np.testing.assert_array_equal(found, weights @ x + 1)


@pytest.mark.parametrize("zero", [0.0, 0.5, -3.0, 1e30, np.inf, np.nan])
def test_zero_points_may_be_any_floats(zero: float) -> None:
    func = kernel((3, 64), 4, 32, "uint32", "float32", zero).with_attr("global_symbol", "main")
    weights = np.full((3, 8), 0x76543210, "uint32")
    x, scale = np.ones(64, "float32"), np.ones((3, 2), "float32")
    found = np.empty(3, "float32")
    relaxpy.compile(IRModule({"main": func}), target="native")["main"](x, weights, scale, found)
    expected = 1 + 8 * (np.arange(8.0) - np.float32(zero)).sum()
    np.testing.assert_allclose(found, np.full(3, expected), rtol=1e-6)


def product(
    shape: tuple[int, int, int],
    bits: int,
    stored: str,
    *,
    init: str = INIT,
    x: str = "f32",
    weights: str = "float32",
    zero: float | None = None,
    start: int = 0,
    numbers: str | None = None,
) -> Callable[..., None]:
    """`o[i, j] += sum(x[i, k] * (integer(j, k) - zero) * s[j, k // group])`, after `init`.

    The lowest integer of a word is `start` bits above its end.
    """
    size, columns, group = shape
    word = per_word(bits, stored)
    integer = "Q[vj, vk]"
    if word > 1:
        shift = f'T.Cast("{stored}", vk % {word} * {bits} + {start})'
        mask = f"T.{stored}({(1 << bits) - 1})"
        integer = f"T.bitwise_and(T.shift_right(Q[vj, vk // {word}], {shift}), {mask})"
    number = f'T.Cast("{numbers or weights}", {integer})'
    if zero is not None:
        number = f"({number} - T.{numbers or weights}({zero}))"
    if numbers:
        number = f'T.Cast("{weights}", {number})'
    factors = [
        value if dtype in ("f32", "float32") else f'T.Cast("float32", {value})'
        for value, dtype in (("X[vi, vk]", x), ("weight", weights))
    ]
    short = {long: name for name, long in DTYPES.items()}
    return native(f"""
def main(
    X: {x}[n, {size}],
    Q: {short[stored]}[{columns}, {size} // {word}],
    S: {short[weights]}[{columns}, {size} // {group}],
    O: f32[n, {columns}],
):
    for i, j, k in SSR(n, {columns}, {size}):
        {init}
        weight = {number} * S[vj, vk // {group}]
        O[vi, vj] = O[vi, vj] + {" * ".join(factors)}
""")


@pytest.mark.each_choice
@pytest.mark.parametrize("init", [INIT, ""], ids=["alone", "added"])
@pytest.mark.parametrize(
    ("bits", "group", "stored", "size", "columns"),
    [
        (4, 32, "uint32", 32, 1),
        (4, 32, "uint32", 1024 + 64, 7),
        (8, 32, "uint32", 3 * 1024 + 32, 70),
        (3, 40, "uint32", 1080, 65),
        (8, 24, "uint32", 96, 64),
        (4, 16, "uint8", 2064, 66),
        (8, 96, "int8", 96, 3),
        (8, 1056, "int8", 1056, 129),
        (8, 1050, "int8", 1050, 9),
    ],
)
def test_rows_have_decoded_weights_in_common(bits, group, stored, size, columns, init) -> None:
    run = product((size, columns, group), bits, stored, init=init)
    rng = np.random.default_rng(columns)
    integers = rng.integers(0, 1 << bits, (columns, size))
    scale = np.ldexp(1.0, rng.integers(-2, 2, (columns, size // group))).astype("float32")
    words = packed(integers, bits, stored)
    if stored == "int8":
        integers = words.astype("int64")
    weights = integers * np.repeat(scale.astype("float64"), group, 1)
    for rows in (0, 1, 2, 3, 5, 8, 13, 41):
        x = rng.integers(-2, 3, (rows, size)).astype("float32")
        found = rng.integers(-9, 9, (rows, columns)).astype("float32")
        before = np.full_like(found, 2) if init else found.copy()
        run(x, words, scale, found)
        np.testing.assert_array_equal(found, before + x @ weights.T)


@pytest.mark.each_choice
@pytest.mark.parametrize("zero", [0, 7, 15, -1, 0.5])
@pytest.mark.parametrize(
    ("bits", "group", "stored", "size", "columns"),
    [
        (4, 32, "uint32", 32, 1),
        (4, 32, "uint32", 1024 + 64, 13),
        (4, 32, "uint32", 7 * 32, 5),
        (4, 64, "uint8", 192, 3),
        (4, 128, "uint32", 3 * 128, 3),
        (4, 32, "uint32", 4096 + 32, 65),
        (4, 64, "uint8", 192, 70),
        (4, 16, "uint32", 64, 9),
        (8, 32, "uint32", 96, 5),
    ],
)
def test_bytes_times_packed_weights_are_exact_sums(bits, group, stored, size, columns, zero):
    run = product((size, columns, group), bits, stored, x="i8", zero=zero)
    rng = np.random.default_rng(columns)
    integers = rng.choice([0, 2**bits - 1], (columns, size))
    scale = np.ldexp(1.0, rng.integers(-2, 2, (columns, size // group))).astype("float32")
    words = packed(integers, bits, stored)
    weights = (integers - zero) * np.repeat(scale.astype("float64"), group, 1)
    for rows in (0, 1, 2, 3, 4, 5, 7, 8, 11, 24, 29):
        x = rng.choice(np.array([-128, -127, 0, 127], "int8"), (rows, size))
        found = np.empty((rows, columns), "float32")
        run(x, words, scale, found)
        exact = x.astype("float64")
        most = (np.abs(exact) @ np.abs(weights).T).max(initial=1)
        np.testing.assert_allclose(found, 2 + exact @ weights.T, rtol=0, atol=1e-6 * most)


@pytest.mark.parametrize(
    ("bits", "stored", "start", "numbers", "zero"),
    [
        (4, "int32", 2, "float32", 8),  # the sign is a part of the last integer
        (4, "uint32", 3, "float32", 8),
        (4, "uint32", 0, "bfloat16", -512),  # the datatype has not all of these
        (2, "uint32", 0, "float8_e5m2", 1),
    ],
)
def test_packed_integers_at_any_bits_and_in_datatypes_without_them(
    bits: int, stored: str, start: int, numbers: str, zero: int
) -> None:
    run = product((64, 3, 32), bits, stored, zero=zero, start=start, numbers=numbers)
    rng = np.random.default_rng(start)
    words = rng.integers(-(1 << 31), 1 << 31, (3, 2 * bits)).astype(stored)
    k, word, dtype = np.arange(64), 32 // bits, DataType(numbers).numpy()
    shifts = (k % word * bits + start).astype(stored)
    integers = words[:, k // word] >> shifts & ((1 << bits) - 1)
    weights = (integers.astype(dtype) - np.array(zero, dtype)).astype("float32")
    found = np.empty((1, 3), "float32")
    x = rng.integers(-2, 3, (1, 64)).astype("float32")
    run(x, words, np.ones((3, 2), "float32"), found)
    np.testing.assert_array_equal(found, 2 + x @ weights.T)


@pytest.mark.parametrize(
    ("bits", "group", "stored", "size", "columns"),
    [(4, 32, "uint32", 96, 66), (2, 32, "uint32", 64, 5), (3, 40, "uint32", 120, 7)],
)
def test_weights_are_rounded_to_their_datatype_before_the_products(
    bits: int, group: int, stored: str, size: int, columns: int
) -> None:
    run = product((size, columns, group), bits, stored, weights="float16", zero=3)
    rng = np.random.default_rng(size)
    integers = rng.integers(0, 1 << bits, (columns, size))
    scale = rng.standard_normal((columns, size // group)).astype("float16")
    words = packed(integers, bits, stored)
    weights = (integers.astype("float16") - np.float16(3)) * np.repeat(scale, group, 1)
    for rows in (1, 2, 5):
        # Each product is exact: a power of two times a weight.
        x = np.ldexp(1, rng.integers(-3, 3, (rows, size))).astype("float32")
        x[:, rng.integers(0, size, size - 1)] = 0
        found = np.empty((rows, columns), "float32")
        run(x, words, scale, found)
        exact = 2 + x.astype("float64") @ weights.T.astype("float64")
        np.testing.assert_allclose(found, exact, rtol=0, atol=4e-7 * np.abs(exact).max())


def test_each_of_several_matrices_of_packed_weights_is_decoded_for_all_its_rows(monkeypatch):
    """The proof that loads are inside needs the bounds of the loops around a task, too."""
    chosen: list[object] = []

    def strategy_of(*args: Any) -> object:
        chosen.append(strategy.strategy_of(*args))
        return chosen[-1]

    monkeypatch.setattr(run_loops, "strategy_of", strategy_of)
    run = native("""
def main(
    X: f32[e, n, 96],
    Q: u32[e, 200, 12],
    S: f32[e, 200, 3],
    O: f32[e, n, 200],
):
    for h, i, j, k in SSSR(e, n, 200, 96):
        with T.init(): O[vh, vi, vj] = T.float32(2)
        shift = T.Cast("uint32", vk % 8 * 4)
        number = T.bitwise_and(T.shift_right(Q[vh, vj, vk // 8], shift), T.uint32(15))
        weight = T.Cast("float32", number) * S[vh, vj, vk // 32]
        O[vh, vi, vj] = O[vh, vi, vj] + X[vh, vi, vk] * weight
""")
    assert any(isinstance(x, RepeatedLoads) for x in chosen)
    assert all(isinstance(x, (RepeatedLoads, Product)) for x in chosen)
    rng = np.random.default_rng(0)
    for experts, rows in ((1, 1), (3, 2), (2, 41), (0, 4)):
        integers = rng.integers(0, 16, (experts, 200, 96))
        scale = np.ldexp(1.0, rng.integers(-2, 2, (experts, 200, 3))).astype("float32")
        words = packed(integers.reshape(-1, 96), 4, "uint32").reshape(experts, 200, 12)
        x = rng.integers(-2, 3, (experts, rows, 96)).astype("float32")
        found = np.empty((experts, rows, 200), "float32")
        run(x, words, scale, found)
        weights = integers * np.repeat(scale.astype("float64"), 32, 2)
        np.testing.assert_array_equal(found, 2 + x @ weights.transpose(0, 2, 1))
