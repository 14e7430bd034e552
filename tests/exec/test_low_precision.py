"""Sums in 16 bits accumulate in float32 and are rounded once; means of integers do not overflow."""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxpy.errors import StructInfoTypeError
from relaxpy.exec.api.compile import compile
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source

Array = np.ndarray[Any, Any]
#: The terms of a sum: few for the evaluator, which computes each by itself.
COUNTS = {"native": 600, "numpy": 600, "reference": 80}
TARGETS = pytest.mark.parametrize("target", COUNTS)


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)  # type: ignore[no-any-return]


def normalized(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)  # type: ignore[no-any-return]


COMPUTED: dict[str, Callable[[Array], Array]] = {
    "R.sum(x, axis=1)": lambda x: x.sum(1),
    "R.mean(x, axis=1)": lambda x: x.mean(1),
    "R.variance(x, axis=1)": lambda x: x.var(1),
    "R.std(x, axis=1)": lambda x: x.std(1),
    "R.prod(x / x, axis=1)": lambda x: np.ones(2),
    "R.nn.softmax(x)": softmax,
    "R.nn.log_softmax(x)": lambda x: np.log(softmax(x)),
    "R.nn.layer_norm(x, R.ones((COUNT,), DTYPE), R.zeros((COUNT,), DTYPE), axes=-1)": normalized,
    "R.nn.rms_norm(x, R.ones((COUNT,), DTYPE))": lambda x: (
        x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    ),
    "R.matmul(x, R.permute_dims(x))": lambda x: x @ x.T,
    "R.nn.gelu(x)": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "R.nn.gelu_tanh(x)": lambda x: (
        x / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "R.nn.silu(x)": lambda x: x / (1 + np.exp(-x)),
}


def run(value: str, x: Array, target: str) -> Any:
    dtype = x.dtype.name
    value = value.replace("DTYPE", repr(dtype)).replace("COUNT", str(x.shape[-1]))
    func = from_source(
        f'@R.function\ndef main(x: R.Tensor({x.shape}, "{dtype}")):\n'
        f"    y = {value}\n    return y\n"
    )
    return compile(IRModule({"main": func}), target)["main"](x)  # type: ignore[arg-type]


@pytest.mark.each_choice
@TARGETS
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("value", COMPUTED)
def test_the_result_is_rounded_once(value: str, dtype: Any, target: str) -> None:
    count = COUNTS[target]
    x = (np.random.default_rng(4).random((2, count)) + 0.5).astype(dtype)
    found = run(value, x, target)
    exact = COMPUTED[value](x.astype("float64"))
    assert found.dtype == x.dtype
    # Half a unit in the last place for the one rounding, and one of float32 for each term.
    last = float(ml_dtypes.finfo(dtype).eps)
    scale = max(1.0, float(np.abs(exact).max())) if "layer" in value else np.abs(exact)
    allowed = (0.5 * last + count * 2.0**-24) * scale + float(ml_dtypes.finfo(dtype).tiny)
    assert (np.abs(found.astype("float64") - exact) <= allowed).all()


@pytest.mark.each_choice
@TARGETS
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_means_of_integers_do_not_overflow_on_the_way(dtype: str, target: str) -> None:
    info = np.iinfo(dtype)
    low = max(-100, info.min)
    x = np.random.default_rng(5).integers(low, 100, (2, COUNTS[target])).astype(dtype)
    extreme = np.full((2, COUNTS[target]), info.max, dtype)
    assert run("R.mean(x)", extreme, target) == info.max
    for value, function in (("mean", np.mean), ("std", np.std)):
        exact = function(x.astype("float64"), axis=1)
        assert np.abs(run(f"R.{value}(x, axis=1)", x, target) - exact).max() <= 1
    spread = np.array([[3, 5, 7, 9]], dtype)
    assert run("R.variance(x)", spread, target) == 5


@pytest.mark.parametrize("name", ["mean", "variance", "std"])
def test_means_of_booleans_are_refused_with_a_hint(name: str) -> None:
    with pytest.raises(StructInfoTypeError, match=r'R\.astype\(x, "float32"\)'):
        run(f"R.{name}(x)", np.ones((2, 3), "bool"), "numpy")


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "R.nn.softplus(x)": lambda x: np.logaddexp(x, 0),
    "R.sigmoid(x)": lambda x: 1 / (1 + np.exp(-x)),
    "R.nn.silu(x)": lambda x: x / (1 + np.exp(-x)),
}


@TARGETS
@pytest.mark.parametrize("value", ACTIVATIONS)
def test_activations_are_finite_where_exp_overflows(value: str, target: str) -> None:
    x = np.array([[-16, -12, -11.25, -3, 0, 3, 11.25, 12, 19.5]], "float16")
    found, exact = run(value, x, target), ACTIVATIONS[value](x.astype("float64"))
    np.testing.assert_allclose(found.astype("float64"), exact, rtol=3e-3, atol=1e-6)
