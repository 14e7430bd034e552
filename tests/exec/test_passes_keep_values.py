"""Every pass keeps the values of programs in each datatype, at the ends of its range, too.

The products of floats have operands that are small whole numbers, so that no order of a sum rounds.
Networks have normalisations, losses and convolutions: passes that rewrite these round otherwise.
"""

import random
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.exec.api.compile import compile
from relaxpy.plugins.cli.named_passes import public_passes
from tests.exec.passes import REWRITING, ROWS
from tests.exec.signatures import SIGNATURES
from tests.fuzz.seed import SEED
from tests.ir.relax.texts import module

#: Why a pass has no row.
WITHOUT_ROWS: dict[str, str] = {
    "Gradient": "it adds a function (test_gradient_differences.py, test_narrow_gradients.py)",
    "QuantizeWeights": "it rounds weights (tests/ir/passes/test_quantize_weights.py)",
    "SetupTrainer": "it adds functions for training (tests/plugins/training/test_trainer.py)",
    "IPCAllReduceRewrite": ("it leaves every module as it is (tests/tvm/test_unaffected.py)"),
}


def test_every_pass_has_a_row() -> None:
    rows = {name.partition("(")[0] for name in (*ROWS, *SIGNATURES)}
    passes = {
        name
        for name, kind in public_passes().items()
        if kind.__module__.startswith("relaxpy.ir.passes.")
        and ".distributed." not in kind.__module__
    }
    assert passes - rows - WITHOUT_ROWS.keys() == set()
    assert not rows & WITHOUT_ROWS.keys()


MOVES = """
p0 = R.permute_dims(x)
p1 = R.permute_dims(a)
p2 = R.concat((p0, p1), axis=1)
p3 = R.take(p2, i, axis=1)
p4 = R.reshape(p3, (3, 2))
p5 = R.expand_dims(x, axis=[0])
p6 = R.squeeze(p5, axis=[0])
p7 = R.where(R.equal(x, x), x, a)
"""
NUMBERS = """
q0 = R.maximum(x, R.subtract(x, a))
q1 = R.multiply(R.add(x, a), x)
q2 = R.minimum(R.negative(x), x)
q3 = R.nn.relu(x)
q4 = R.add(x, x)
q5 = R.add(x, x)
q6 = R.multiply(q4, q5)
q7 = R.sum(x, axis=[1])
"""
PRODUCTS = """
r0 = R.matmul(b, c)
r1 = R.matmul(a, r0)
r2 = R.add(b, c)
r3 = R.matmul(a, r2)
r4 = R.matmul(a, b)
r5 = R.matmul(a, c)
r6 = R.take(r4, i, axis=1)
r7 = R.matmul(r4, R.permute_dims(c))
"""
#: The datatypes, and the statements that each admits.
DTYPES = {
    **dict.fromkeys(("bool", "float8_e4m3fn", "float8_e5m2"), MOVES),
    **dict.fromkeys(("int8", "uint8", "int32", "int64"), MOVES + NUMBERS + PRODUCTS),
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), MOVES + NUMBERS + PRODUCTS),
}


#: Statements of networks, on which passes for convolutions, normalisations and losses work.
NETWORK = """
n0 = R.nn.conv2d(d, w, padding=1)
n1 = R.nn.batch_norm(n0, g, h, g, v, axis=1, training=False)
n2 = n1[0]
n3 = R.nn.relu(R.add(n2, R.reshape(g, (1, 2, 1, 1))))
n4 = R.nn.max_pool2d(n3, (2, 2))
n5 = R.nn.layer_norm(d, g, h, axes=[-3])
n6 = R.nn.group_norm(n3, g, h, num_groups=2, channel_axis=1, axes=[2, 3])
n7 = R.nn.instance_norm(n3, g, h, axes=[2, 3], channel_axis=1)
n8 = R.nn.rms_norm(y, g, axes=[-1])
n9 = R.nn.softmax(n8, axis=-1)
m0 = R.matmul(n8, z, out_dtype="float32")
m1 = R.matmul(y, z)
m2 = R.matmul(y, R.add(z, z))
m3 = R.matmul(R.matmul(y, z), g)
m4 = R.matmul(y, R.permute_dims(z))
m5 = R.nn.gelu(R.add(m1, g))
m6 = R.nn.log_softmax(m5)
m7 = R.nn.nll_loss(m6, i)
m8 = R.nn.dropout(m5)[0]
k0 = R.gather_elements(y, R.expand_dims(i, 1), axis=1)
k1 = R.scatter_elements(y, R.expand_dims(i, 1), k0, axis=1)
k2 = R.take(R.matmul(y, z), i, axis=1)
k3 = R.gather_nd(y, R.expand_dims(i, 1))
k4 = R.layout_transform(y, index_map=lambda a, b: (b, a))
k5 = R.layout_transform(k4, index_map=lambda a, b: (b, a))
k6 = R.quantize(m0, R.const(0.5, "float32"), R.const(1, "int8"), axis=-1, out_dtype="int8")
k7 = R.dequantize(k6, R.const(0.5, "float32"), R.const(1, "int8"), axis=-1, out_dtype="float32")
k8 = R.concat((R.permute_dims(y), R.permute_dims(m1)), axis=1)
k9 = R.sum(R.exp(m2), axis=[0], keepdims=True)
j0 = R.cumsum(y, axis=0)
j1 = R.sort(y)
j2 = R.variance(y, axis=[0])
"""
NETWORK_SHAPES = ((1, 2, 3, 3), (2, 2, 2, 2), (2,), (2,), (2,), (3, 2), (2, 2))
NETWORKS = ("bfloat16", "float32")


def written(params: str, statements: str) -> IRModule:
    lines = [line for line in statements.splitlines() if line]
    results = ", ".join(line.partition(" = ")[0] for line in lines if "batch_norm" not in line)
    body = "\n    ".join(lines)
    return module(f"def main({params}):\n    {body}\n    return ({results},)")


def program(dtype: str) -> IRModule:
    shapes = dict(zip("xabc", ((2, 3), (2, 3), (3, 3), (3, 3)), strict=True))
    params = ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())
    return written(f'{params}, i: R.Tensor((2,), "int64")', DTYPES[dtype])


def network(dtype: str) -> IRModule:
    shapes = zip("dwghvyz", NETWORK_SHAPES, strict=True)
    params = ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes)
    return written(f'{params}, i: R.Tensor((3,), "int64")', NETWORK)


def network_arguments(dtype: str) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Small whole numbers, and positive variances."""
    draw = np.random.default_rng(0)
    arrays = [draw.integers(-2, 3, shape).astype(dtype) for shape in NETWORK_SHAPES]
    arrays[4] = np.abs(arrays[4]) + np.ones(2, dtype)
    return [*arrays, np.array([0, 1, 0])]


def arguments(dtype: str) -> list[np.ndarray]:  # type: ignore[type-arg]
    """The ends of the range in x, and small whole numbers; of integers, ends everywhere."""
    draw = np.random.default_rng(0)
    shapes = ((2, 3), (2, 3), (3, 3), (3, 3))
    if dtype == "bool":
        arrays = [draw.integers(0, 2, shape).astype(dtype) for shape in shapes]
    elif "int" in dtype:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        ends = np.array([low, low + 1, 0, 1, high - 1, high], dtype)
        arrays = [draw.choice(ends, shape) for shape in shapes]
    else:
        info = ml_dtypes.finfo(dtype)
        ends = np.array([info.max, info.min, info.smallest_subnormal, -0.0, np.nan, np.inf], dtype)
        whole = (draw.integers(-2, 3, shape).astype(dtype) for shape in shapes[1:])
        arrays = [ends.reshape(2, 3), *whole]
    return [*arrays, np.array([1, 0])]


Value = list[np.ndarray]  # type: ignore[type-arg]


def value_of(mod: IRModule, args: Value) -> Value:
    with np.errstate(all="ignore"):
        result = compile(mod, target="reference")["main"](*args)
    return [np.asarray(field) for field in result]


def value_after(name: str, mod: IRModule, args: Value) -> Value:
    if name in ROWS:
        return value_of(ROWS[name](mod), args)
    with np.errstate(all="ignore"):
        return [np.asarray(field) for field in SIGNATURES[name](mod, args)]


def is_same(one: np.ndarray, other: np.ndarray, rtol: float) -> bool:  # type: ignore[type-arg]
    """Whether the bits are the same, but all NaN are one; or the difference is below `rtol`."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if rtol:
        wide = (np.asarray(a, "float64") for a in (one, other))
        return np.allclose(*wide, rtol=rtol, atol=rtol, equal_nan=True)
    fields = [(a[a == a].tobytes(), (a != a).tobytes()) for a in (one, other)]
    return fields[0] == fields[1]


def tolerance(name: str, dtype: str) -> float:
    """The relative error of a network after a pass: of some ten roundings in a row."""
    pass_name = name.partition("(")[0]
    if pass_name not in REWRITING:
        return 0.0
    return 16 * max(
        float(ml_dtypes.finfo(kind).eps) for kind in (dtype, REWRITING[pass_name] or dtype)
    )


SUBJECTS: dict[str, tuple[IRModule, Value, str]] = {
    **{dtype: (program(dtype), arguments(dtype), dtype) for dtype in DTYPES},
    **{
        f"network of {dtype}": (network(dtype), network_arguments(dtype), dtype)
        for dtype in NETWORKS
    },
}


@pytest.mark.rule("OPT-1")
@pytest.mark.filterwarnings("ignore")
def test_values_are_the_same_after_each_pass(request: pytest.FixtureRequest) -> None:
    before = cache(lambda name: value_of(*SUBJECTS[name][:2]))
    everything = request.config.getoption("--whole-table")
    wrong = []
    for name in (*ROWS, *SIGNATURES):
        count = len(SUBJECTS) if everything else 1
        for subject in random.Random(f"{SEED} {name}").sample([*SUBJECTS], count):
            mod, args, dtype = SUBJECTS[subject]
            rtol = tolerance(name, dtype) if "network" in subject else 0.0
            try:
                after = value_after(name, mod, args)
            except BaseException as error:
                error.add_note(f"{name} in {subject}")
                raise
            pairs = enumerate(zip(before(subject), after, strict=True))
            differ = [k for k, (old, new) in pairs if not is_same(old, new, rtol)]
            wrong += [f"{name} in {subject}: results {differ}"] if differ else []
    assert not wrong, "\n".join(wrong)
