"""DecomposeOpsForInference and DecomposeOpsForTraining."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, TransformError, UnknownNameError
from relaxpy.relax.analysis import well_formed
from relaxpy.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining
from relaxpy.script import from_source
from tests.ir.passes.before_after import check, leaves, stays
from tests.ir.relax.texts import module

BOTH = (DecomposeOpsForInference, DecomposeOpsForTraining)
TARGETS = ("numpy", "reference")


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


Norm = module("""
def main(x: f32[n, 3, 4], gamma: f32[3], beta: f32[3], mean: f32[3], var: f32[3]):
    with R.dataflow():
        y = R.nn.batch_norm(x, gamma, beta, mean, var, axis=-2, epsilon=0.001, momentum=0.25)
    return y

def plain(x: f32[5, 3], gamma: f32[3], beta: f32[3], mean: f32[3], var: f32[3]):
    y = R.nn.batch_norm(
        x, gamma, beta, mean, var, axis=1, epsilon=0.001, center=False, scale=False
    )
    z = y[0]
    return z
""")

VECTORS = [numbers(3, seed=1), numbers(3, seed=2), numbers(3, seed=3), numbers(3, seed=4) ** 2]


@pytest.mark.parametrize("target", TARGETS)
def test_batch_normalisation_in_inference(target: str) -> None:
    after = DecomposeOpsForInference()(Norm)
    assert "batch_norm" not in after.script()
    x = numbers(2, 3, 4)
    gamma, beta, mean, var = (v[:, None].astype("float64") for v in VECTORS)
    executable = relaxpy.compile(after, target=target)
    found = executable["main"](x, *VECTORS)
    expected = (x - mean) / np.sqrt(var + 1e-3) * gamma + beta
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(found[1:], VECTORS[2:], strict=True):
        np.testing.assert_array_equal(one, other)
    plain = executable["plain"](x[0].T[:5].repeat(2, 0)[:5], *VECTORS)
    data = x[0].T[:5].repeat(2, 0)[:5]
    expected = (data - VECTORS[2]) / np.sqrt(VECTORS[3] + 1e-3)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_batch_normalisation_in_training(target: str) -> None:
    after = DecomposeOpsForTraining("main")(Norm)
    assert "batch_norm" not in after["main"].script()
    assert "batch_norm" in after["plain"].script()
    x = numbers(2, 3, 4)
    found = relaxpy.compile(after, target=target)["main"](x, *VECTORS)
    gamma, beta, *moving = (v.astype("float64") for v in VECTORS)
    mean, var = x.mean((0, 2), dtype="float64"), x.var((0, 2), dtype="float64")
    centered = (x - mean[:, None]) / np.sqrt(var + 1e-3)[:, None]
    expected = centered * gamma[:, None] + beta[:, None]
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    for one, old, now in zip(found[1:], moving, (mean, var), strict=True):
        np.testing.assert_allclose(one, 0.75 * old + 0.25 * now, rtol=1e-5, atol=1e-6)


def same_values(step: Any, mod: Any, *args: Any) -> None:
    """The pass removes a norm, and leaves the values as they are, up to rounding."""
    after = step(mod)
    assert "_norm" not in after.script()
    rtol = max(2 * float(ml_dtypes.finfo(args[0].dtype).eps), 1e-5)
    for target in TARGETS:
        found, expected = (relaxpy.compile(m, target=target)["main"](*args) for m in (after, mod))
        for one, other in zip(leaves(found), leaves(expected), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(
                one.astype("float64"), other.astype("float64"), rtol=rtol, atol=rtol
            )


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "axes", "center"),
    [
        ((2, 3, 4), [-2, -1], False),
        ((3, 3), [0], True),
        ((3, 3), [1, 0], True),
        ((2, 4, 3), [1], True),
        ((2, 4, 3), [2, -3], True),
        ((3, 1), [-2], True),
    ],
)
def test_layer_normalisation_in_training(shape, axes, center, dtype) -> None:
    mod = from_source(f"""
@I.ir_module
class Mod:
    @R.function
    def main(
        x: R.Tensor({shape}, "{dtype}"),
        gamma: R.Tensor({tuple(shape[axis] for axis in axes)}, "{dtype}"),
        beta: R.Tensor({tuple(shape[axis] for axis in axes)}, "{dtype}"),
    ):
        y = R.nn.layer_norm(x, gamma, beta, axes={axes}, epsilon=1e-3, center={center})
        return y
""")
    sizes = [shape[axis] for axis in axes]
    args = 1000 * numbers(*shape), numbers(*sizes, seed=1), numbers(*sizes, seed=2)
    same_values(DecomposeOpsForTraining(), mod, *(a.astype(dtype) for a in args))
    stays(DecomposeOpsForInference(), mod)


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("step", "training"),
    [
        (DecomposeOpsForInference, False),
        (DecomposeOpsForTraining, False),
        (DecomposeOpsForTraining, True),
    ],
)
def test_batch_normalisation_of_narrow_floats_computes_in_float32(step, training, dtype) -> None:
    vector = f'R.Tensor((3,), "{dtype}")'
    mod = from_source(f"""
@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((2, 3), "{dtype}"), g: {vector}, b: {vector}, m: {vector}, v: {vector}):
        y = R.nn.batch_norm(x, g, b, m, v, axis=1, epsilon=1e-8, training={training})
        return y
""")
    x = np.array([[1e-2, 3000, 1], [1e-2, -3000, 1]])
    vectors = [1, 1, 1], [0, 0.5, 0], [0, 1, 0], [0, 1, 0]
    same_values(step(), mod, *(np.array(a, dtype) for a in (x, *vectors)))


@pytest.mark.parametrize("step", BOTH)
@pytest.mark.parametrize(
    "moment", ['R.Tensor(dtype="float32")', 'R.Tensor(ndim=1, dtype="float32")']
)
@pytest.mark.parametrize("place", [0, 1])
def test_moments_of_unknown_shape_are_not_decomposed(step: Any, moment: str, place: int) -> None:
    vector = 'R.Tensor((3,), "float32")'
    mean, var = (moment if k == place else vector for k in (0, 1))
    mod = from_source(f"""
@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), g: {vector}, b: {vector}, m: {mean}, v: {var}):
        y = R.nn.batch_norm(x, g, b, m, v, axis=1, training=False)
        return y
""")
    stays(step(), mod)


@pytest.mark.parametrize("step", BOTH)
def test_a_tensor_becomes_a_shape_by_a_packed_function(step: Any) -> None:
    Before = module("""
    def main(x: i64[2]):
        s = R.tensor_to_shape(x)
        return s
    """)
    After = module("""
    def main(x: i64[2]):
        n, m = (T.int64(), T.int64())
        p = R.call_pure_packed("vm.builtin.tensor_to_shape", x, sinfo_args=R.Shape(ndim=2))
        y = R.match_cast(p, R.Shape([n, m]))
        s = R.shape([n, m])
        return s
    """)
    check(step(), Before, After)
    for target in TARGETS:
        shape = relaxpy.compile(step()(Before), target=target)["main"](np.array([3, 4]))
        assert tuple(shape) == (3, 4)


@pytest.mark.parametrize("target", TARGETS)
def test_a_shape_from_a_tensor_in_a_dataflow_block_and_a_branch(target: str) -> None:
    Mod = module("""
    def main(x: f32[6], t: i64[2], c: bool):
        with R.dataflow():
            s = R.tensor_to_shape(t)
            y = R.reshape(x, s)
        if c:
            u = R.tensor_to_shape(t)
            z = R.reshape(x, u)
        else:
            z = R.reshape(y, s)
        return z
    """)
    after = DecomposeOpsForInference()(Mod)
    assert well_formed(after)
    x = numbers(6)
    for c in (True, False):
        found = relaxpy.compile(after, target=target)["main"](x, np.array([2, 3]), np.array(c))
        np.testing.assert_array_equal(found, x.reshape(2, 3))


@pytest.mark.parametrize("step", BOTH)
def test_a_normalisation_of_unknown_rank_or_of_two_datatypes_stays(step: Any) -> None:
    Mod = module("""
    def main(
        x: R.Tensor(dtype="float32"), gamma: f32[3], beta: f32[3], mean: f32[3], var: f32[3]
    ):
        y = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1)
        return y
    """)
    stays(step(), Mod)


@pytest.mark.parametrize("step", BOTH)
def test_the_function_must_be_there(step: Any) -> None:
    name = step.__name__
    with pytest.raises(UnknownNameError, match=f"{name}: the module has no function 'mian'"):
        step("mian")(Norm)
    with pytest.raises(MisuseError):
        step(3)(Norm)

    Kernel = module("""
    @T.prim_func
    def kernel(x: f32[1]):
        x[0] = T.float32(1)
    """)
    with pytest.raises(TransformError, match="kernel is not a Relax function"):
        step("kernel")(Kernel)
