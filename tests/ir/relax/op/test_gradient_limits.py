"""Gradients where formulas divide by 0, or subtract infinities; and numbers in wide datatypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import StructInfoError
from relaxpy.script import relax as R

INF = np.inf


def gradients(function: Any, *operands: Any) -> Any:
    """The gradients of the sum of a call, by all operands of floats."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{k}", R.Tensor(np.shape(x), str(np.asarray(x).dtype)))
        for k, x in enumerate(operands)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(R.sum(builder.emit(function(*params))))
        builder.emit_func_output(out)
    floats = [p for p in params if p.struct_info.dtype.is_float]  # type: ignore[union-attr]
    module = relax.transform.Gradient("main", floats)(builder.get())
    _, grads = relaxpy.compile(module)["main_adjoint"](*operands)
    return [g.tolist() for g in grads]


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


def test_scatter_nd_at_an_unknown_number_of_positions() -> None:
    x = relax.Var("x", R.Tensor((2, 3), "float32"))
    i = relax.Var("i", R.Tensor((4, relaxpy.tir.Var("k", "int64")), "int64"))
    u = relax.Var("u", R.Tensor(ndim=2, dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, i, u]):
        with builder.dataflow():
            out = builder.emit_output(R.sum(builder.emit(R.scatter_nd(x, i, u))))
        builder.emit_func_output(out)
    with pytest.raises(StructInfoError, match="needs the number of positions"):
        relax.transform.Gradient("main", [x, u])(builder.get())


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
    x = relax.Var("x", R.Tensor((1,), "float64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(function(x))
        builder.emit_func_output(out)
    assert relaxpy.compile(builder.get())["main"](np.zeros(1)).tolist() == expected
