"""SpecializePrimFuncBasedOnCallSite: kernels get the shapes and memory scopes of their operands."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.relax.transform import LegalizeOps, SpecializePrimFuncBasedOnCallSite
from relaxpy.script import from_source
from relaxpy.transform import PassContext
from tests.ir.relax.texts import module

Model = module("""
I.module_global_infos(
    {
        "vdevice": [
            I.vdevice({"device": "adreno", "kind": "opencl"}, 0, "global.texture-weight"),
            I.vdevice({"device": "adreno", "kind": "opencl"}, 0, "global"),
        ]
    }
)

@kernel
def halves(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i in range(n):
        B[i] = A[i] * T.float32(0.5)
        C[i] = A[i] - B[i]

def main(x: R.Tensor((4,), "float32", "opencl:1:global")):
    y = R.call_tir(
        cls.halves,
        (x,),
        out_sinfo=[
            R.Tensor((4,), "float32", "opencl:0:global.texture-weight"),
            R.Tensor((4,), "float32", "opencl:1:global"),
        ],
    )
    return y
""")


def test_buffers_get_scopes_and_shapes() -> None:
    after = SpecializePrimFuncBasedOnCallSite()(Model)
    kernel = after["halves"]
    buffers = [kernel.buffer_map[param] for param in kernel.params]
    scopes = [buffer.data.type_annotation.storage_scope for buffer in buffers]
    assert scopes == ["global", "global.texture-weight", "global"]
    assert [[int(size) for size in buffer.shape] for buffer in buffers] == [[4]] * 3
    assert kernel.attrs["scoped"] == 1
    assert Model["halves"].attrs.get("scoped") is None
    x = np.arange(4, dtype="float32")
    for found in relaxpy.compile(after)["main"](x):
        np.testing.assert_array_equal(found, x / 2)


def test_functions_of_a_group_are_not_callers() -> None:
    grouped = Model.clone()
    grouped["main"] = Model["main"].with_attr("Primitive", 1)
    assert SpecializePrimFuncBasedOnCallSite()(grouped)["halves"].attrs.get("scoped") is None


KERNEL = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def same(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n,), "float32")
        y = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            y[i] = x[i]

    @T.prim_func(private=True)
    def numbers(b: T.handle, n: T.int64):
        y = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            y[i] = T.Cast("float32", i)

    @R.function
    def main(x: R.Tensor((4,), "float32"), v: R.Tensor(ndim=1, dtype="float32")):
        cls = Module
        {}
        return y
"""
ONE = "z = R.call_tir(cls.same, (x,), out_sinfo=R.Tensor((4,), 'float32'))"
CALL = 'R.call_tir(cls.same, ({},), out_sinfo=R.Tensor(({},), "float32"))'


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize(
    ("body", "specialised"),
    [
        ([f"y = {CALL.format('x', 4)}"], True),
        ([ONE, f"y = {CALL.format('z', 4)}"], True),
        ([f"y = {CALL.format('v', 4)}"], False),
        ([ONE, "w = R.concat((x, z))", f"y = {CALL.format('w', 8)}"], False),
        ([ONE, "y = (z, cls.same)"], False),
        (
            [
                'y = R.call_tir(cls.numbers, R.tuple(), out_sinfo=R.Tensor((4,), "float32"),'
                " tir_vars=R.shape([4]))"
            ],
            False,
        ),
    ],
)
def test_kernels_are_specialised_where_all_calls_agree(body: list[str], specialised: bool) -> None:
    mod = from_source(KERNEL.format("\n        ".join(body)))
    x = np.arange(4, dtype="float32")
    with PassContext(check="values", check_inputs={"main": (x, x)}):
        after = SpecializePrimFuncBasedOnCallSite()(mod)
    assert ("scoped" in after.script()) == specialised


@pytest.mark.parametrize(
    "call", ["R.split(x, 3, axis=1)", "R.split(x, [1], axis=1)", "R.flatten(x)"]
)
def test_shapes_computed_from_shape_variables_are_specialised(call: str) -> None:
    mod = from_source(
        f'@R.function\ndef main(x: R.Tensor((2, "n"), "float32")):\n    return {call}'
    )
    legal = LegalizeOps()(IRModule.from_expr(mod))
    with PassContext(check="values"):
        assert "scoped" in SpecializePrimFuncBasedOnCallSite()(legal).script()


def test_a_size_that_no_dimension_gives_stays_that_of_the_kernel() -> None:
    mod = from_source(
        KERNEL.format("""m = T.int64()
        w = R.match_cast(v, R.Tensor((m,), "float32"))
        z = R.concat((w, w))
        y = R.call_tir(cls.same, (z,), out_sinfo=R.Tensor((m * 2,), "float32"))""")
    )
    x = np.arange(4, dtype="float32")
    with PassContext(check="values", check_inputs={"main": (x, x)}):
        after = SpecializePrimFuncBasedOnCallSite()(mod)
    assert "scoped" in after.script()
    found = relaxpy.compile(after, relax_pipeline="zero")["main"](x, x)
    np.testing.assert_array_equal(found, [*x, *x])


def test_a_device_with_another_memory_scope_is_an_error() -> None:
    text = Model.script().replace('"opencl:1:global"', '"opencl:1:global.texture"')
    text = text.replace('vdevice="opencl:1"', 'vdevice="opencl:1:local"')
    with pytest.raises(relaxpy.errors.ParseError, match="the memory of device 'opencl:1' is"):
        from_source(text)
