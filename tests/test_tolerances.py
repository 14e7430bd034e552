"""`check_targets` accepts what rounding may change, for any condition, and nothing else."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule, testing
from relaxpy.relax import transform
from relaxpy.script import ir as I, relax as R, tir as T
from relaxpy.transform import PassContext, module_pass

Array = np.ndarray
Oracle = Callable[..., Any]


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def in_float64(function: Oracle) -> Oracle:
    def compute(*args: Array) -> Any:
        return function(*(a.astype("float64") if a.dtype.kind not in "biu" else a for a in args))

    return compute


@I.ir_module
class Classifier:
    @R.function
    def main(
        x: R.Tensor(("n", 12), "float32"),
        w1: R.Tensor((12, 16), "float32"),
        w2: R.Tensor((16, 4), "float32"),
    ):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w1))
            y = R.nn.softmax(R.matmul(h, w2))
            R.output(y)
        return y


@I.ir_module
class Powers:
    """Errors of logits are multiplied by the powers, which are large."""

    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), w: R.Tensor((16, 3), "float32")):
        with R.dataflow():
            y = R.exp(R.matmul(x, w))
            R.output(y)
        return y


@I.ir_module
class Variance:
    """The mean of squares less the square of the mean, which cancels."""

    @R.function
    def main(x: R.Tensor(("n", 32), "float32")):
        with R.dataflow():
            mean = R.mean(x, axis=-1)
            y = R.subtract(R.mean(R.multiply(x, x), axis=-1), R.multiply(mean, mean))
            R.output(y)
        return y


@I.ir_module
class Quantised:
    """Integers that change where a float is near the middle of two."""

    @R.function
    def main(x: R.Tensor(("n", 24), "float16"), w: R.Tensor((24, 8), "float16")):
        with R.dataflow():
            y = R.matmul(x, w)
            q = R.astype(R.round(R.multiply(y, R.const(8.0, "float16"))), "int8")
            R.output(y, q)
        return (q, y)


@I.ir_module
class Summed:
    """A kernel by hand, whose partial sums are much larger than the sum."""

    @T.prim_func(private=True)
    def total(x: T.handle, y: T.handle):
        n = T.int64()
        X = T.match_buffer(x, (n, 64), "float32")
        Y = T.match_buffer(y, (n,), "float32")
        for i, k in T.grid(n, 64):
            with T.block("total"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Y[vi] = T.float32(0)
                Y[vi] = Y[vi] + X[vi, vk]

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")):
        n = T.int64()
        cls = Summed
        with R.dataflow():
            y = R.call_tir(cls.total, (x,), out_sinfo=R.Tensor((n,), "float32"))
            z = R.nn.softmax(y)
            R.output(z)
        return z


def normal(*shapes: tuple[int, ...], seed: int, dtype: str = "float32") -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def classifier_args(seed: int) -> tuple[Array, ...]:
    return normal((3, 12), (12, 16), (16, 4), seed=seed)


def powers_args(seed: int) -> tuple[Array, ...]:
    x, w = normal((3, 16), (16, 3), seed=seed)
    return x * 4, w


def variance_args(seed: int) -> tuple[Array, ...]:
    [x] = normal((3, 32), seed=seed)
    return (x + np.float32(100),)


def quantised_args(seed: int) -> tuple[Array, ...]:
    return normal((5, 24), (24, 8), seed=seed, dtype="float16")


def summed_args(seed: int) -> tuple[Array, ...]:
    [x] = normal((3, 32), seed=seed)
    x *= 1000
    [noise] = normal((3, 32), seed=seed + 1)
    return (np.concatenate([x, noise - x], axis=1),)


def classify(x: Array, w1: Array, w2: Array) -> Array:
    return softmax(np.maximum(x @ w1, 0) @ w2)


def quantise(x: Array, w: Array) -> tuple[Array, Array]:
    y = x @ w
    return np.round(y * 8).astype("int8"), y


#: A program, arguments that are badly conditioned, its definition, and definitions with a fault.
CASES = {
    "classifier": (
        Classifier,
        classifier_args,
        classify,
        [
            lambda x, a, b: classify(x, a, b) * 1.001,
            lambda x, a, b: classify(x, a[:, ::-1], b),
            lambda x, a, b: softmax((x @ a) @ b),
            lambda x, a, b: softmax(np.maximum(x @ a, 0)[:, :-1] @ b[:-1]),
        ],
    ),
    "powers": (
        Powers,
        powers_args,
        lambda x, w: np.exp(x @ w),
        [
            lambda x, w: np.exp(x @ w) * 1.001,
            lambda x, w: np.exp(x[:, 1:] @ w[1:]),
            lambda x, w: np.exp2(x @ w),
        ],
    ),
    "variance": (
        Variance,
        variance_args,
        lambda x: x.var(-1),
        [lambda x: x.var(-1) + 1, lambda x: (x * x).mean(-1), lambda x: x.var(-1, ddof=1) * 1.2],
    ),
    "quantised": (
        Quantised,
        quantised_args,
        quantise,
        [
            lambda x, w: quantise(x, w + 0.25),
            lambda x, w: (quantise(x, w)[0] + np.int8(3), x @ w),
            lambda x, w: (quantise(x, w)[0], x @ w * 1.5),
        ],
    ),
    "summed": (
        Summed,
        summed_args,
        lambda x: softmax(x.sum(-1)),
        [lambda x: softmax(x[:, 1:].sum(-1)), lambda x: softmax(x.sum(-1) * 0.5)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rounding_is_accepted_for_any_condition(case: str) -> None:
    module, draw, definition, _ = CASES[case]
    testing.check_targets(module, *draw(0), oracle=in_float64(definition))
    testing.check_targets(module, *draw(1))
    testing.check_targets(module, oracle=in_float64(definition), seed=7)


@pytest.mark.parametrize(
    ("case", "fault"), [(case, number) for case in CASES for number in range(len(CASES[case][3]))]
)
def test_faults_are_found_for_any_condition(case: str, fault: int) -> None:
    module, draw, _, faults = CASES[case]
    oracle = in_float64(faults[fault])
    given: dict[str, Any] = {"oracle": oracle, "targets": ["numpy"]}
    with pytest.raises(AssertionError, match="expected"):
        testing.check_targets(module, *draw(0), **given)
    if fault == 0:
        with pytest.raises(AssertionError, match="expected"):
            testing.check_targets(module, sizes={"n": 3}, **given)


def test_badly_conditioned_cases_need_more_than_a_fixed_tolerance() -> None:
    for case in ("variance", "quantised", "summed"):
        module, draw, definition, _ = CASES[case]
        oracle = in_float64(definition)
        with pytest.raises(AssertionError):  # noqa: PT012
            for args in map(draw, range(3)):
                testing.check_targets(module, *args, oracle=oracle, targets=["numpy"], rtol=4e-6)


def test_the_tolerance_is_in_the_message() -> None:
    oracle = in_float64(lambda x: x.var(-1) + 1)
    for options, line in (
        ({}, r"3\.81e-06 times the largest element, or by what random rounding changes; rtol="),
        ({"rtol": 1e-3}, r"0\.001 \(rtol\) times the largest element$"),
    ):
        with pytest.raises(AssertionError) as caught:
            testing.check_targets(Variance, oracle=oracle, targets=["numpy"], **options)
        assert re.search(rf"^floats may differ by {line}", str(caught.value), re.M)


def test_weights_are_drawn_so_that_results_are_as_large_as_inputs() -> None:
    @R.function
    def main(
        x: R.Tensor(("n", 8, 16, 16), "float32"),
        k: R.Tensor((12, 8, 3, 3), "float32"),
        w: R.Tensor(("m", 3072), "float16"),
        rows: R.Tensor(("r", "m"), "float32"),
    ):
        n = T.int64()
        with R.dataflow():
            c = R.nn.conv2d(x, k, padding=1)
            f = R.reshape(c, (n, 3072))
            y = R.matmul(f, R.astype(R.permute_dims(w), "float32"))
            z = R.matmul(y, R.permute_dims(rows))
            R.output(z)
        return z

    x, k, w, rows = testing.random_inputs(main, {"n": 2, "m": 50, "r": 40})
    assert w.dtype == np.float16
    for array, deviation in ((x, 1), (k, 1 / 72**0.5), (w, 1 / 3072**0.5), (rows, 1 / 50**0.5)):
        assert abs(array.astype("float64").std() / deviation - 1) < 0.1


def regrouped(mod: IRModule, context: PassContext) -> IRModule:
    """The variance with a sum in another order, which is as exact."""
    name = "main"

    @R.function
    def main(x: R.Tensor(("n", 32), "float32")):
        with R.dataflow():
            y = R.flip(x, axis=1)
            mean = R.mean(y, axis=-1)
            z = R.subtract(R.mean(R.multiply(y, y), axis=-1), R.multiply(mean, mean))
            R.output(z)
        return z

    return IRModule({name: main})


def test_a_pass_that_changes_roundings_is_not_wrong() -> None:
    reorder = module_pass(regrouped, opt_level=0, name="Regroup")
    for seed in range(3):
        assert transform.bisect(Variance, reorder, *variance_args(seed)) is None
    fixed = transform.bisect(Variance, reorder, *variance_args(0), rtol=1e-7)
    assert fixed is not None
    assert "(rtol) times the largest element" in fixed.problem
