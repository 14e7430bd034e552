"""FoldBatchnormToConv2D: values before and after, and normalisations that stay."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import BindParams, FoldBatchnormToConv2D
from relaxpy.script import from_source
from tests.ir.relax.texts import graph, module

DEFAULT = relaxpy.get_pipeline("default")
CONV = "R.nn.conv2d(x, w)"
VECTORS = "gamma: f32[4], beta: f32[4], mean: f32[4], var: f32[4]"
NORM = "R.nn.batch_norm(conv, gamma, beta, mean, var, axis=1, training=False)"


def program(
    conv: str = CONV,
    norm: str = NORM,
    shapes: str = '("n", 4, 6, 6), (4, 4, 3, 3)',
    *more: str,
    result: str = "y",
) -> IRModule:
    x, w = (s.strip(" ()").replace('"', "") for s in shapes.split("), ("))
    extra = "".join(f"        {line}\n" for line in more)
    return graph(f"""
    def main(x: f32[{x}], w: f32[{w}], {VECTORS}):
        conv = {conv}
        norm = {norm}
        y = norm[0]
{extra}        return {result}
    """)


def data(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = [rng.standard_normal(4) for _ in range(3)] + [rng.random(4) + 0.5]
    return [a.astype("float32") for a in (*(rng.standard_normal(s) for s in shapes), *vectors)]


@pytest.mark.parametrize(
    ("conv", "norm", "shapes"),
    [
        (CONV, NORM, ((2, 4, 6, 6), (4, 4, 3, 3))),
        (CONV, NORM.replace("axis=1", "axis=-3, epsilon=0.5"), ((2, 4, 6, 6), (4, 4, 3, 3))),
        (CONV, NORM.replace("axis=1", "axis=1, scale=False"), ((2, 4, 6, 6), (4, 4, 3, 3))),
        (CONV, NORM.replace("axis=1", "axis=1, center=False"), ((2, 4, 6, 6), (4, 4, 3, 3))),
        ("R.nn.conv2d(x, w, strides=2, padding=1, groups=2)", NORM, ((2, 4, 6, 6), (4, 2, 3, 3))),
        (
            'R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO")',
            NORM.replace("axis=1", "axis=3"),
            ((2, 6, 6, 4), (3, 3, 4, 4)),
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_value_is_that_of_the_normalisation(conv, norm, shapes, dtype) -> None:
    before = program(conv, norm, ", ".join(map(str, shapes)))
    before = from_source(before.script().replace("float32", dtype))
    after = FoldBatchnormToConv2D()(before)
    assert "batch_norm" not in after.script()
    assert check_well_formed(after, normal_form=True) == []
    assert after["main"].struct_info == before["main"].struct_info
    assert FoldBatchnormToConv2D()(after) is after
    inputs = [array.astype(dtype) for array in data(*shapes)]
    first, second = (relaxpy.compile(m)["main"](*inputs) for m in (before, after))
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)

    names = ["w", "gamma", "beta", "mean", "var"]
    bound = BindParams("main", dict(zip(names, inputs[1:], strict=True)))(before)
    assert FoldBatchnormToConv2D(constants_only=True)(before) is before
    for folded in (FoldBatchnormToConv2D(constants_only=True)(bound), DEFAULT(bound)):
        assert "batch_norm" not in folded.script()
        assert check_well_formed(folded, normal_form=True) == []
        assert folded["main"].struct_info == bound["main"].struct_info
        third = relaxpy.compile(folded, relax_pipeline="legalize")["main"](inputs[0])
        np.testing.assert_allclose(third, second, rtol=1e-4, atol=1e-4)
    assert "batch_norm" in DEFAULT(before).script()


@pytest.mark.parametrize("part", ["var", "gamma", "w"])
def test_constants_whose_products_are_not_finite_stay(part: str) -> None:
    values = dict(zip(("w", "gamma", "beta", "mean", "var"), data((4, 4, 3, 3)), strict=True))
    values[part][1] = -1.0 if part == "var" else np.inf
    bound = BindParams("main", values)(program(norm=NORM))
    assert FoldBatchnormToConv2D(constants_only=True)(bound) is bound
    assert "batch_norm" in DEFAULT(bound).script()


def test_a_normalisation_in_a_branch_is_folded() -> None:
    mod = module(f"""
    def main(x: f32[1, 4, 6, 6], w: f32[4, 4, 3, 3], {VECTORS}, c: bool):
        if c:
            conv = {CONV}
            norm = {NORM}
            y = norm[0]
        else:
            y = {CONV}
        return y
    """)
    after = FoldBatchnormToConv2D()(mod)
    assert "batch_norm" not in after.script()
    for condition in (True, False):
        inputs = [*data((1, 4, 6, 6), (4, 4, 3, 3)), np.array(condition)]
        first, second = (relaxpy.compile(m)["main"](*inputs) for m in (mod, after))
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4)


NARROW = 'R.nn.conv2d(R.astype(x, "float16"), R.astype(w, "float16"), out_dtype="float32")'
STATIC = "(1, 4, 6, 6), (4, 4, 3, 3)"


@pytest.mark.parametrize(
    "mod",
    [
        program(CONV, NORM, STATIC, "z = R.exp(conv)", result="y, z"),
        program(CONV, NORM, STATIC, "z = norm[1]", result="y, z"),
        program(CONV, NORM, "(1, 4, 6, 6), (4, 4, 3, 3)", result="norm"),
        program(CONV, NORM.replace("axis=1", "axis=2"), "(1, 4, 6, 6), (4, 4, 3, 3)"),
        program('R.nn.conv2d(x, w, out_layout="NCHW4c")', NORM.replace("axis=1", "axis=4"), STATIC),
        program("R.nn.relu(x)", NORM, STATIC),
        program(CONV, NORM.replace("training=False", "training=True"), STATIC),
        program(CONV, NORM.replace(", training=False", ""), STATIC),
        program(NARROW, NORM, STATIC),
    ],
    ids=[
        "used twice",
        "second result",
        "whole",
        "axis",
        "blocks",
        "operator",
        "training",
        "default",
        "datatype",
    ],
)
def test_other_normalisations_stay(mod: IRModule) -> None:
    assert FoldBatchnormToConv2D()(mod) is mod


def test_narrow_floats_are_not_folded() -> None:
    mod = from_source(program().script().replace("float32", "float16"))
    assert isinstance(mod, IRModule)
    assert FoldBatchnormToConv2D()(mod) is mod


def test_an_unknown_datatype_is_not_folded() -> None:
    text = program(CONV, NORM, STATIC).script().replace(', dtype="float32"', "")
    mod = from_source(text)
    assert isinstance(mod, IRModule)
    assert FoldBatchnormToConv2D()(mod) is mod
