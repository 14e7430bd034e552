"""Gradients where formulas divide by 0, or subtract infinities; and numbers in wide datatypes."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax, tir
from relaxpy.errors import RuntimeCheckError, StructInfoError
from relaxpy.script import relax as R
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import graph

INF = np.inf


def gradients(function: Any, *operands: Any) -> Any:
    """The gradients of the sum of a call, by all operands of floats."""
    with np.errstate(all="ignore"):
        return [g.tolist() for g in weighted_gradients(function, 1, *operands)]


def weighted_gradients(function: Any, weight: float, *operands: Any) -> Any:
    """The gradients of a multiple of the sum of a call, by all operands of floats."""

    def body(*params: relax.Var) -> relax.Expr:
        total = R.sum(function(*params))
        return total if weight == 1 else R.multiply(total, weight)

    arrays = map(np.asarray, operands)
    program = returning(body, *(tensor(*x.shape, dtype=str(x.dtype)) for x in arrays))
    floats = [p for p in program["main"].params if p.struct_info.dtype.is_float]
    module = relax.transform.Gradient("main", floats)(program)
    return relaxpy.compile(module)["main_adjoint"](*operands)[1]


def test_log_add_exp_of_infinities() -> None:
    x = np.array([INF, 1.0, -INF, 0.0]), np.array([5.0, INF, 2.0, 0.0])
    assert gradients(R.log_add_exp, *x) == [[1, 0, 0, 0.5], [0, 1, 1, 0.5]]


def test_remainders_of_a_quotient_that_rounds_to_an_integer() -> None:
    assert gradients(R.floor_mod, np.array([1.0]), np.array([0.1])) == [[1], [-9]]
    assert gradients(R.mod, np.array([-1.0]), np.array([0.1])) == [[1], [9]]


def test_the_standard_deviation_of_equal_elements() -> None:
    assert gradients(R.std, np.ones(3)) == [[0, 0, 0]]


def test_a_product_of_scattered_zeros() -> None:
    data, updates = np.array([2.0, 3.0]), np.array([0.0, 5.0, 0.0, 0.0, 7.0])
    indices = np.array([0, 0, 1, 1, 1])
    found = gradients(
        lambda x, i, u: R.scatter_elements(x, i, u, reduction="mul"), data, indices, updates
    )
    assert found == [[0, 0], [10, 0, 0, 0, 0]]


def test_what_a_later_slice_overwrites_has_no_gradient() -> None:
    x, u, v = np.zeros(6), np.ones(3), np.full(4, 2.0)
    found = gradients(
        lambda x, u, v: R.slice_scatter(R.slice_scatter(x, u, 0, 3), v, 2, 6), x, u, v
    )
    assert found == [[0] * 6, [1, 1, 0], [1] * 4]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_of_repeated_updates_only_the_last_one_has_a_gradient(target: str) -> None:
    indices = np.array([[4, -4, -2], [1, 4, 1]])

    def body(i: Any, u: Any) -> Any:
        return R.sum(R.scatter_elements(R.zeros((2, 5), "float32"), i, u, axis=1))

    program = returning(body, tensor(2, 3, dtype="int64"), tensor(2, 3))
    module = relax.transform.Gradient("main", [program["main"].params[1]])(program)
    main = relaxpy.compile(module, target)["main_adjoint"]
    found = main(indices, np.ones((2, 3), "float32"))[1]
    assert found[0].tolist() == [[1, 1, 1], [0, 1, 1]]


def test_scattered_extremes_that_are_equal_share_the_gradient() -> None:
    data, updates = np.array([2.0, 3.0]), np.array([2.0, 2.0, 1.0, 4.0])
    indices = np.array([0, 0, 1, 1])
    found = gradients(
        lambda x, i, u: R.scatter_elements(x, i, u, reduction="max"), data, indices, updates
    )
    assert found == [[1 / 3, 0], [1 / 3, 1 / 3, 0, 1]]


def test_selu_in_float64() -> None:
    [found] = gradients(R.nn.selu, np.array([1.0]))
    assert found == [1.0507009873554805]


def test_taking_nothing_of_nothing() -> None:
    call = lambda x, i: R.take(x, i, axis=0, mode="wrap")  # noqa: E731
    assert gradients(call, np.zeros((0, 2)), np.zeros((0,), "int64")) == [[]]


@pytest.mark.parametrize("axis", [0, 1])
def test_taking_outside_of_any_axis(axis: int) -> None:
    x, outside = np.arange(4.0).reshape(2, 2), np.array([-1, 1, 2, 1], "int64")
    [found] = gradients(lambda x, i: R.take(x, i, axis=axis, mode="nan"), x, outside)
    np.testing.assert_array_equal(np.moveaxis(np.array(found), axis, 0), [[0, 0], [2, 2]])


def test_scatter_nd_at_an_unknown_number_of_positions() -> None:
    program = graph("""
    def main(x: f32[2, 3], i: i64[4, k], u: R.Tensor(ndim=2, dtype="float32")):
        total = R.sum(R.scatter_nd(x, i, u))
        return total
    """)
    x, _, u = program["main"].params
    with pytest.raises(StructInfoError, match="needs the number of positions"):
        relax.transform.Gradient("main", [x, u])(program)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: R.full_like(x, 0.1), [0.1]),
        (lambda x: R.full((1,), 0.1, "float64"), [0.1]),
        (lambda x: R.where(R.less(x, 1.0), 0.1, x), [0.1]),
        (lambda x: R.where(R.less(x, 1.0), x, 0.1), [0.0]),
        (lambda x: relax.op.masked_fill(x, R.less(x, 1.0), 0.1), [0.1]),
        (lambda x: R.nn.pad(x, [1, 0], pad_value=0.1), [0.1, 0.0]),
        (lambda x: R.arange(0.1, 0.3, 0.1, "float64"), [0.1, 0.2]),
        (lambda x: R.full((1,), 2**53 + 1, "int64"), [2**53 + 1]),
        (lambda x: R.nn.pad(R.astype(x, "int64"), [0, 1], pad_value=2**40), [0, 2**40]),
    ],
)
def test_a_number_keeps_its_digits(function: Any, expected: list[Any]) -> None:
    main = relaxpy.compile(returning(function, tensor(1, dtype="float64")))["main"]
    assert main(np.zeros(1)).tolist() == expected


COUNT = 70_000
ZEROS = R.const(np.zeros(COUNT, "int64"))


def as_scores(x: Any) -> Any:
    return R.reshape(x, (COUNT, 1))


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("function", "count", "slope"),
    [
        (R.mean, COUNT, 1 / COUNT),
        (R.max, COUNT, 1 / COUNT),
        (R.min, COUNT, 1 / COUNT),
        (R.median, COUNT, 1 / COUNT),
        (R.std, COUNT, 0),
        (R.prod, COUNT, 1),
        (R.nn.softmax, COUNT, 0),
        (lambda x: R.nn.nll_loss(as_scores(x), ZEROS), COUNT, -1 / COUNT),
        (
            lambda x: R.nn.cross_entropy_with_logits(as_scores(x), as_scores(R.ones_like(x))),
            COUNT,
            -1 / COUNT,
        ),
        (lambda x: R.nn.avg_pool1d(R.reshape(x, (1, 1, COUNT)), COUNT), COUNT, 1 / COUNT),
        (lambda x: R.take(x, ZEROS, axis=0), 1, COUNT),
        (lambda x: R.gather_elements(R.broadcast_to(x, (COUNT,)), ZEROS), 1, COUNT),
        (lambda x: R.gather_nd(x, R.expand_dims(ZEROS, 1)), 1, COUNT),
        (lambda x: R.index_tensor(x, (ZEROS,)), 1, COUNT),
        (lambda x: R.broadcast_to(x, (COUNT,)), 1, COUNT),
        (lambda x: R.tile(x, COUNT), 1, COUNT),
        (lambda x: R.repeat(x, COUNT), 1, COUNT),
        (lambda x: R.add(x, R.zeros((COUNT,), x.struct_info.dtype)), 1, COUNT),
        (lambda x: R.multiply(x, R.ones((COUNT,), x.struct_info.dtype)), 1, COUNT),
        (lambda x: R.where(R.full((COUNT,), True, "bool"), x, x), 1, COUNT),
        (
            lambda x: R.scatter_elements(
                x, R.const(np.zeros(COUNT, "int64")), R.ones_like(x), reduction="mean"
            ),
            COUNT,
            None,
        ),
    ],
)
def test_counts_that_are_no_narrow_floats(function, count, slope, dtype) -> None:
    weight = 0.5 if slope is not None and slope > 1 else 1000.0
    x = np.ones(count, dtype)
    [found] = weighted_gradients(function, weight, x)
    if slope is None:
        [expected] = weighted_gradients(function, weight, x.astype("float32"))
    else:
        expected = np.full(count, slope * weight)
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(found.astype("float64"), expected, rtol=eps, atol=eps**2)


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
@pytest.mark.parametrize(
    ("function", "x", "slopes"),
    [
        (R.abs, [-1, -0.0, 0, 2], [-1, 0, 0, 1]),
        (R.nn.relu, [-1, -0.0, 0, 2], [0, 0, 0, 1]),
        (lambda x: R.clip(x, -1, 2), [-2, -1, 0, 2, 3], [0, 1, 1, 1, 0]),
        (R.nn.relu6, [-1, 0, 6, 7], [0, 1, 1, 0]),
        (lambda x: R.nn.leakyrelu(x, 0.25), [-1, 0, 1], [0.25, 0.25, 1]),
        (lambda x: R.maximum(x, R.ones_like(x)), [0, 1, 2], [0, 0.5, 1]),
        (lambda x: R.minimum(x, R.ones_like(x)), [0, 1, 2], [1, 0.5, 0]),
        (lambda x: R.maximum(x, x), [0, 1], [1, 1]),
        (R.max, [1, 1, 0, 1, 1], [0.25, 0.25, 0, 0.25, 0.25]),
        (R.min, [1, 0, 0], [0, 0.5, 0.5]),
        (R.median, [1, 0, 0], [0, 0.5, 0.5]),
        (R.sqrt, [0, 4], [INF, 0.25]),
        (
            lambda x: R.power(x, R.const([1, 2, 3, 0], x.struct_info.dtype)),
            [0, 0, 0, 0],
            [1, 0, 0, 0],
        ),
        (lambda x: R.power(R.zeros_like(x), x), [-1, -0.0, 0, 2], [-INF, 0, 0, 0]),
        (R.prod, [2, 0, 3], [0, 6, 0]),
        (lambda x: R.atan2(x, R.zeros_like(x)), [-0.0, 0, 2, INF], [0, 0, 0, 0]),
        (lambda x: R.atan2(R.zeros_like(x), x), [-0.0, 0, 2, -INF], [0, 0, 0, 0]),
    ],
)
def test_gradients_at_kinks_are_those_of_pytorch(function, x, slopes, dtype) -> None:
    assert gradients(function, np.array(x, dtype)) == [slopes]


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "function", [R.nn.gelu, R.nn.gelu_tanh, R.nn.silu, R.nn.selu, R.nn.softplus]
)
def test_slopes_of_activations_far_from_zero(function: Any, dtype: str) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    right = 1.0507009873554805 if function is R.nn.selu else 1
    [found] = gradients(function, np.array([-INF, -largest, -60000, 60000, largest, INF], dtype))
    np.testing.assert_allclose(found, [0, 0, 0, right, right, right], rtol=1e-2)


def test_slopes_at_infinity() -> None:
    x = np.array([-INF, INF, np.nan])
    np.testing.assert_array_equal(gradients(R.asinh, x), [[0, 0, np.nan]])
    found = gradients(R.atan2, x, np.ones(3))
    np.testing.assert_array_equal(found, [[0, 0, np.nan]] * 2)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_of_ignored_targets_alone(reduction: str) -> None:
    loss = lambda p, t, w: R.nn.nll_loss(p, t, w, reduction, 1)  # noqa: E731
    found = gradients(loss, np.ones((2, 3)), np.array([1, 1]), np.ones(3))
    assert found == [[[0, 0, 0]] * 2, [0, 0, 0]]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_a_broadcast_that_run_time_decides(target: str) -> None:
    n = tir.Var("n", "int64")
    program = returning(lambda x: R.sum(R.broadcast_to(x, (2, 3))), tensor(n, dtype="float64"))
    module = relax.transform.Gradient("main")(program)
    adjoint = relaxpy.compile(module, target=target)["main_adjoint"]
    assert [adjoint(np.ones(k))[1][0].tolist() for k in (1, 3)] == [[6], [2, 2, 2]]
    with pytest.raises(RuntimeCheckError, match=r"dimension 0 of x \(2,\) is 2"):
        adjoint(np.ones(2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_slopes_whose_squares_overflow(dtype: str) -> None:
    limits = ml_dtypes.finfo(dtype)
    large, eps = float(limits.max) / 64, float(limits.eps)
    x = np.array([-large, large], dtype)
    for function, slope in ((R.asinh, 1 / large), (R.acosh, 1 / large)):
        [found] = gradients(function, abs(x))
        np.testing.assert_allclose(found, [slope, slope], rtol=2 * eps, atol=float(limits.tiny))
    found = gradients(R.atan2, x, abs(x))
    half = 0.5 / large
    expected = [[half, half], [half, -half]]
    np.testing.assert_allclose(found, expected, rtol=2 * eps, atol=float(limits.tiny))
