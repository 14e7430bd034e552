"""AttachAttrLayoutFreeBuffers: which operands are listed, in which copies."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import AttachAttrLayoutFreeBuffers
from tests.ir.relax.texts import module


def program(
    *lines: str, num_input: str = '{"num_input": 1}', private: str = "private=True"
) -> IRModule:
    body = "\n            ".join(lines)
    return module(f"""
    @T.prim_func({private})
    def scale(x: f32[4], w: f32[4], y: f32[4]):
        for i in range(4):
            y[i] = x[i] * w[i]

    def main(x: f32[4], w: f32[4]):
        R.func_attr({num_input})
        out = R.Tensor((4,), "float32")
        with R.dataflow():
            {body}
        return y
    """)


def listed(mod: IRModule) -> dict[str, list[int]]:
    """The positions that the kernels list, by name."""
    return {
        name: list(func.attrs.get("layout_free_buffers", ()))
        for name, func in mod.functions_by_name.items()
        if name != "main"
    }


CALL = "R.call_tir(cls.scale, ({}), out)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"y = {CALL.format('x, w')}"], {"scale1": [1]}),
        ([f"y = {CALL.format('w, w')}"], {"scale1": [0, 1]}),
        (['c = R.const([1, 2, 3, 4], "float32")', f"y = {CALL.format('x, c')}"], {"scale1": [1]}),
        ([f"z = {CALL.format('x, w')}", f"y = {CALL.format('z, w')}"], {"scale1": [1]}),
        (
            [f"z = {CALL.format('x, w')}", f"y = {CALL.format('w, z')}"],
            {"scale1": [1], "scale2": [0]},
        ),
        (
            [f"z = {CALL.format('x, w')}", f"y = {CALL.format('x, z')}"],
            {"scale": [], "scale1": [1]},
        ),
    ],
)
def test_weights_and_constants_are_listed(lines: list[str], expected: dict[str, list[int]]) -> None:
    mod = program(*lines)
    after = AttachAttrLayoutFreeBuffers()(mod)
    assert listed(after) == expected
    assert check_well_formed(after, normal_form=True) == []
    assert AttachAttrLayoutFreeBuffers()(after) is after
    data = [np.arange(4, dtype="float32"), np.full(4, 3, "float32")]
    first, second = (relaxpy.compile(m)["main"](*data) for m in (mod, after))
    np.testing.assert_array_equal(first, second)


def test_a_public_kernel_stays() -> None:
    after = AttachAttrLayoutFreeBuffers()(program(f"y = {CALL.format('x, w')}", private=""))
    assert listed(after) == {"scale": [], "scale1": [1]}
    assert "global_symbol" not in after["scale1"].attrs


def test_without_weights_nothing_is_listed() -> None:
    mod = program(f"y = {CALL.format('x, w')}", num_input="{}")
    assert AttachAttrLayoutFreeBuffers()(mod) is mod
