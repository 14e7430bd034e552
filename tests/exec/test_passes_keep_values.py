"""Every pass keeps the values of programs in each datatype, at the ends of its range, too.

The products of floats have operands that are small whole numbers, so that no order of a sum rounds.
"""

import random
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.cli.passes import public_passes
from relaxpy.exec.compile import compile
from relaxpy.relax import transform
from relaxpy.script import from_source
from tests.exec.test_passes_preserve import PASSES, explicit, in_dataflow
from tests.fuzz.seed import SEED

Step = Callable[[IRModule], IRModule]
_SIMPLE = (
    *("AdjustMatmulOrder", "AttachAttrLayoutFreeBuffers", "BundleModelParams"),
    *("DecomposeOpsForInference", "DecomposeOpsForTraining", "ExpandMatmulOfSum"),
    *("FoldBatchnormToConv2D", "LowerGPUIPCAllocStorage", "NormalizeGlobalVar"),
    *("OptimizeLayoutTransform", "RealizeVDevice", "ReorderPermuteDimsAfterConcat"),
    *("ReorderTakeAfterMatmul", "ShareSums", "ToMixedPrecision"),
)


def in_blocks(step: Step) -> Step:
    return lambda mod: step(in_dataflow(mod))


ROWS: dict[str, Step] = {
    **PASSES,
    **{name: in_blocks(getattr(transform, name)()) for name in _SIMPLE},
    "ConvertLayout": in_blocks(transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})),
    "RewriteCUDAGraph": lambda mod: transform.RewriteCUDAGraph()(
        transform.StaticPlanBlockMemory()(explicit(mod))
    ),
    "RunCodegen": transform.RunCodegen(),
    "SpecializePrimFuncBasedOnCallSite": lambda mod: transform.SpecializePrimFuncBasedOnCallSite()(
        transform.LegalizeOps()(mod)
    ),
    "SplitLayoutRewritePreproc": lambda mod: transform.SplitLayoutRewritePreproc()(
        transform.LegalizeOps()(mod)
    ),
}
_SIGNATURE = "it changes the parameters or results of functions (tests of its own)"
_NOTHING = "it leaves every module as it is (tests/ir/relax/transform/test_unaffected.py)"
#: Why a pass has no row.
WITHOUT_ROWS: dict[str, str] = {
    **dict.fromkeys(("AlterOpImpl",), "it calls kernels that its options have"),
    **dict.fromkeys(("UpdateVDevice",), "it changes where values are, and needs devices"),
    **dict.fromkeys(
        (
            *("BindParams", "BindSymbolicVars", "Gradient", "LazyGetInput", "LazySetOutput"),
            *("LazyTransformParams", "LiftTransformParams", "UpdateParamStructInfo"),
        ),
        _SIGNATURE,
    ),
    **dict.fromkeys(("AppendLoss", "SetupTrainer"), "it adds functions for training"),
    **dict.fromkeys(
        (
            *(
                "FewShotTuning",
                "IPCAllReduceRewrite",
                "MetaScheduleApplyDatabase",
                "MetaScheduleTuneIRMod",
            ),
            "MetaScheduleTuneTIR",
        ),
        _NOTHING,
    ),
}


def test_every_pass_has_a_row() -> None:
    rows = {name.partition("(")[0] for name in ROWS}
    passes = {
        name
        for name, kind in public_passes().items()
        if kind.__module__.startswith("relaxpy.ir.relax.transform.")
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


def program(dtype: str) -> IRModule:
    lines = [line for line in DTYPES[dtype].splitlines() if line]
    results = ", ".join(line.partition(" = ")[0] for line in lines)
    body = "\n        ".join(lines)
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "{dtype}"), a: R.Tensor((2, 3), "{dtype}"),
             b: R.Tensor((3, 3), "{dtype}"), c: R.Tensor((3, 3), "{dtype}"),
             i: R.Tensor((2,), "int64")):
        {body}
        return ({results},)
""")  # type: ignore[return-value]


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


def value_of(mod: IRModule, dtype: str) -> list[tuple[str, bytes, bytes]]:
    """The results, bit by bit, but all NaN are one."""
    with np.errstate(all="ignore"):
        result = compile(mod, target="reference")["main"](*arguments(dtype))
    fields = [np.asarray(field) for field in result]
    return [(str(f.dtype), f[f == f].tobytes(), (f != f).tobytes()) for f in fields]


@pytest.mark.rule("OPT-1")
@pytest.mark.filterwarnings("ignore")
def test_values_are_the_same_after_each_pass(request: pytest.FixtureRequest) -> None:
    subjects = {dtype: program(dtype) for dtype in DTYPES}
    before = {dtype: value_of(mod, dtype) for dtype, mod in subjects.items()}
    count = len(DTYPES) if request.config.getoption("--whole-table") else 1
    wrong = []
    for name, step in ROWS.items():
        for dtype in random.Random(f"{SEED} {name}").sample([*DTYPES], count):
            try:
                after = value_of(step(subjects[dtype]), dtype)
            except BaseException as error:
                error.add_note(f"{name} in {dtype}")
                raise
            pairs = enumerate(zip(before[dtype], after, strict=True))
            differ = [k for k, (old, new) in pairs if old != new]
            wrong += [f"{name} in {dtype}: results {differ}"] if differ else []
    assert not wrong, "\n".join(wrong)
