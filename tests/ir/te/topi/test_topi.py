"""Functions of tensors that no operator of Relax reaches, and what they refuse."""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.module import IRModule
from relaxpy.ir.te import tensor as te, topi
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import broadcast_shapes, ravel, split_bounds, total, unravel
from relaxpy.ir.te.topi.transform import slice_bounds
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.substitution import substitute

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
N, M, K = (tir.Var(name, "int64") for name in ("n", "m", "k"))


def evaluate(function: Callable[..., Tensor], *arrays: Array) -> Array:
    """What the kernel of `function` writes, on either target."""
    [found] = evaluate_all(function, *arrays)
    return found


def evaluate_all(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    """The tensors that the kernel of `function` writes, the same on both targets."""
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
    made = function(*inputs)
    results = made if isinstance(made, list) else [made]
    func = create_prim_func([*inputs, *results], "int64")
    found = []
    for target in ("reference", "numpy"):
        outs = [np.zeros([int(n) for n in t.shape], t.dtype.numpy()) for t in results]
        compile(IRModule({"main": func}), target)["main"](*arrays, *outs)
        found.append(outs)
    for first, second in zip(*found, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5)
    return found[0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (topi.log2, np.log2),
        (topi.log10, np.log10),
        (topi.identity, np.copy),
        (lambda x: topi.full_like(x, 2), lambda x: np.full_like(x, 2)),
        (lambda x: topi.add(x, 1), lambda x: x + 1),
        (lambda x: topi.power(2.0, x), lambda x: 2**x),
        (lambda x: topi.strided_slice(x, [1], [3]), lambda x: x[1:3]),
        (lambda x: x + x, lambda x: x + x),
        (lambda x: 2 - x / x * 3.0, lambda x: 2 - x / x * 3),
        (lambda x: -x, np.negative),
        (lambda x: x.astype("int32"), lambda x: x.astype("int32")),
    ],
)
def test_functions_of_one_tensor(function, expected) -> None:
    x = np.abs(X) + np.float32(0.5)
    np.testing.assert_allclose(evaluate(function, x), expected(x), rtol=1e-5)


@pytest.mark.parametrize("widths", [(2, 1), (0, 3), (3, 0), (-1, 2)])
def test_mirror_images(widths: tuple[int, int]) -> None:
    low, high = widths
    added = np.pad(X, ((0, 0), (max(low, 0), high)), mode="symmetric")
    for mode, expected in (
        ("SYMMETRIC", added),
        ("REFLECT", np.pad(X, ((0, 0), (max(low, 0), high)), mode="reflect")),
    ):
        found = evaluate(lambda x, m=mode: topi.nn.mirror_pad(x, [0, low], [0, high], m), X)
        np.testing.assert_array_equal(found, expected[:, max(-low, 0) :])


def test_roots_of_integers_are_floats() -> None:
    squares = np.array([0, 1, 4, 9], "int32")
    np.testing.assert_array_equal(evaluate(topi.sqrt, squares), np.sqrt(squares))


def test_any_and_all_of_booleans() -> None:
    truths = X > 0
    for axis in (0, 1, None):
        assert (evaluate(lambda t, a=axis: topi.any(t, a), truths) == truths.any(axis)).all()
        assert (evaluate(lambda t, a=axis: topi.all(t, a), truths) == truths.all(axis)).all()


def test_the_last_of_equal_extremes() -> None:
    tied = np.array([[1, 3, 3], [2, 2, 0]], "int32")
    last = evaluate(lambda t: topi.argmax(t, 1, select_last_index=True), tied)
    assert last.tolist() == [2, 1]
    assert evaluate(lambda t: topi.argmin(t, 1, select_last_index=True), tied).tolist() == [0, 2]


def test_products_of_matrices_turned_and_shifted() -> None:
    a, b = np.arange(6, dtype="float32").reshape(3, 2), np.ones((4, 3), "float32")
    bias = np.arange(4, dtype="float32")
    found = evaluate(
        lambda x, y, z: topi.nn.matmul(x, y, z, transpose_a=True, transpose_b=True), a, b, bias
    )
    np.testing.assert_array_equal(found, a.T @ b.T + bias)
    np.testing.assert_array_equal(evaluate(topi.nn.matmul, b, a), b @ a)
    wide = evaluate(lambda x, y: topi.nn.matmul(x, y, out_dtype="float64"), b, a)
    assert wide.dtype == np.float64


def test_integer_powers_wrap_and_invert() -> None:
    base = np.array([2, 3, -1, -1, 0, 5, -7, 1], "int64")
    power = np.array([62, 39, 101, 100, 70, -2, -1, -5], "int64")
    expected = [2**62, 3**39, -1, 1, 0, 0, 0, 1]
    assert evaluate(topi.power, base, power).tolist() == expected
    small = np.arange(5, dtype="uint8")
    assert evaluate(lambda t: topi.power(t, 5), small).tolist() == (small**5).tolist()
    assert evaluate(lambda t: topi.power(t, 0), small).tolist() == [1] * 5
    assert evaluate(lambda t: topi.power(3, t), small).tolist() == [1, 3, 9, 27, 81]


@pytest.mark.parametrize("kind", ["int", "uint"])
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integer_powers_wrap_for_all_exponents(kind: str, bits: int) -> None:
    dtype, modulus = f"{kind}{bits}", 1 << bits
    limits = np.iinfo(dtype)
    bases = [limits.min, limits.max, *(b for b in (-7, -1, 0, 1, 2, 3) if b >= limits.min)]
    exponents = [e for k in (0, 5, 6, 7, bits - 2) for e in (2**k - 1, 2**k + 1) if e <= limits.max]
    pairs = [(b, e) for b in bases for e in exponents]
    base, exponent = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    wrapped = [pow(b, e, modulus) for b, e in pairs]
    expected = np.array(wrapped, "uint64").astype(f"uint{bits}").view(dtype)
    np.testing.assert_array_equal(evaluate(topi.power, base, exponent), expected)


def test_places_outside_give_nan_where_that_is_asked_for() -> None:
    where = np.array([-1, 0, 2, 3], "int64")
    found = evaluate(lambda x, i: topi.take(x, i, 0, mode="nan"), X, where)
    np.testing.assert_array_equal(found, np.vstack([X[:1] * np.nan, X[0], X[2], X[:1] * np.nan]))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_any_number_of_tensors_is_joined(count: int) -> None:
    parts = [np.full((k % 3, 2), k, "int32") for k in range(1, count + 1)]
    found = evaluate(lambda *tensors: topi.concatenate(tensors), *parts)
    np.testing.assert_array_equal(found, np.concatenate(parts))


def test_joining_many_tensors_stays_shallow() -> None:
    count = sys.getrecursionlimit() + 100
    tensors = [te.placeholder((1,), name=f"x{k}") for k in range(count)]
    assert len(create_prim_func([*tensors, topi.concatenate(tensors)]).params) == count + 1


def test_scalars_alone_give_scalars() -> None:
    assert topi.add(ops.const(2), ops.const(3)) is ops.const(5)
    assert isinstance(topi.less(N, 3), tir.LT)


def test_rank_0_tensors_are_scalars_among_scalars() -> None:
    def scaled(x: Tensor, factor: Tensor) -> Tensor:
        return te.compute(x.shape, lambda i, j: factor * x[i, j] + factor)  # type: ignore[no-any-return]

    factor = np.float32(3).reshape(())
    np.testing.assert_allclose(evaluate(scaled, X, factor), factor * X + factor, rtol=1e-5)


REFUSED: list[tuple[Callable[[Tensor], object], str]] = [
    (lambda x: topi.add(x, te.placeholder((3,))), "shapes \\(.*4\\) and \\(3,\\) do not broadcast"),
    (lambda x: topi.sum(x, 2), "axis 2 is out of range for rank 2"),
    (lambda x: topi.broadcast_to(x, (3, 5)), "do not broadcast"),
    (lambda x: topi.strided_slice(x, [0], [1], [0]), "a stride is a literal other than 0"),
    (lambda x: topi.strided_slice(x, [0], [1], [N]), "a stride is a literal other than 0"),
    (lambda x: topi.bitwise_and(x, x), "needs integers, found float32"),
    (lambda x: topi.negative(topi.isnan(x)), "a Boolean has no negative"),
    (lambda x: topi.cast(x, "int32") / 2, "the rounding of / on integers is ambiguous"),
    (lambda x: topi.sum(x, "rows"), "an axis is an integer, found 'rows'"),
    (lambda x: topi.transpose(x, (0, 0)), r"each of 2 axes once, found \(0, 0\)"),
    (lambda x: topi.transpose(x, (1,)), r"each of 2 axes once, found \(1,\)"),
    (lambda x: topi.reshape(x, (5,)), r"shape \(3, 4\) cannot have shape \(5,\)"),
    (lambda x: topi.concatenate([]), "at least one tensor"),
    (lambda x: topi.stack([]), "at least one tensor"),
    (lambda x: topi.concatenate([x, te.placeholder((3,))]), r"\(3, 4\) and \(3,\) do not join"),
    (lambda x: topi.concatenate([x, te.placeholder((3, 5))]), "do not join along axis 0"),
    (lambda x: topi.matmul(x, x), r"\(3, 4\) and \(3, 4\) do not multiply"),
    (lambda x: topi.matmul(x, te.placeholder(())), "found a tensor of rank 0"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(make: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make(te.placeholder((3, 4)))


def at(size: tir.PrimExpr, **values: int) -> int:
    """The value of a size."""
    table = {var: values.get(var.name, 0) for var in (N, M, K)}
    found = substitute(size, {v: ops.const(x, "int64") for v, x in table.items()})
    return int(ops_value(found))


def ops_value(size: tir.PrimExpr) -> int:
    found = simplify(size)
    assert isinstance(found, tir.IntImm)
    return found.value


BOUNDS = [-7, -3, -1, 0, 1, 2, 5, 9]


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slices_are_pythons_at_every_size(step: int) -> None:
    for begin in BOUNDS:
        for end in BOUNDS:
            first, length = slice_bounds(
                N, ops.const(begin, "int64"), ops.const(end, "int64"), step, inbound=False
            )
            for n in range(6):
                meant = range(n)[begin:end:step]
                assert at(length, n=n) == len(meant)
                if meant:
                    assert at(first, n=n) == meant[0]


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_symbolic_bounds_have_pythons_meaning(step: int) -> None:
    first, length = slice_bounds(N, M, K, step, inbound=False)
    for n, m, k in itertools.product(range(4), range(-5, 6), range(-5, 6)):
        meant = range(n)[m:k:step]
        assert at(length, n=n, m=m, k=k) == len(meant)
        if meant:
            assert at(first, n=n, m=m, k=k) == meant[0]


def test_promised_bounds_are_taken_as_they_are() -> None:
    promised = slice_bounds(N, M, N, 1, inbound=True)
    assert at(promised[1], n=5, m=2) == 3


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("multiple", [1, 2, 12])
def test_parts_cover_an_axis_of_any_size(parts: int, multiple: int) -> None:
    size = ops.mul(N, multiple)
    bounds = split_bounds(size, parts)
    for n in range(9):
        sizes = [at(s, n=n) for _, s in bounds]
        assert sum(sizes) == n * multiple
        assert all(s >= 0 for s in sizes)
        ends = np.cumsum([0, *sizes])
        assert all(at(b, n=n) == e for (b, s), e in zip(bounds, ends, strict=False) if at(s, n=n))


def test_symbolic_cuts_stay_inside() -> None:
    bounds = split_bounds(N, [2, M])
    for n in range(6):
        for m in range(6):
            pieces = [range(n)[b:e] for b, e in ((0, 2), (2, m), (m, n))]
            assert [at(s, n=n, m=m) for _, s in bounds] == [len(p) for p in pieces]


def test_broadcasting_of_sizes() -> None:
    one, three = ops.const(1, "int64"), ops.const(3, "int64")
    assert broadcast_shapes((N, one), (three,)) == (N, three)
    assert broadcast_shapes((N,), (three,)) == (three,)
    assert broadcast_shapes((N,), (M,)) == (ops.maximum(N, M),)
    assert total([N, N, N]) is ops.mul(N, 3)


def test_places_in_row_major_order() -> None:
    shape = [ops.const(s, "int64") for s in (2, 3, 4)]
    for place, index in enumerate(np.ndindex(2, 3, 4)):
        where = ravel([ops.const(i, "int64") for i in index], shape)
        assert ops_value(where) == place
        assert tuple(ops_value(i) for i in unravel(ops.const(place, "int64"), shape)) == index
