"""SpecializePrimFuncBasedOnCallSite: kernels get the shapes and memory scopes of their operands."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import TransformError
from relaxpy.relax.transform import SpecializePrimFuncBasedOnCallSite
from relaxpy.script import from_source, ir as I, relax as R, tir as T


@I.ir_module
class Model:
    I.module_global_infos(
        {
            "vdevice": [
                I.vdevice({"device": "adreno", "kind": "opencl"}, 0, "global.texture-weight"),
                I.vdevice({"device": "adreno", "kind": "opencl"}, 0, "global"),
            ]
        }
    )

    @T.prim_func(private=True)
    def halves(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            B[i] = A[i] * T.float32(0.5)
            C[i] = A[i] - B[i]

    @R.function
    def main(x: R.Tensor((4,), "float32", "opencl:1:global")):
        cls = Model
        y = R.call_tir(
            cls.halves,
            (x,),
            out_sinfo=[
                R.Tensor((4,), "float32", "opencl:0:global.texture-weight"),
                R.Tensor((4,), "float32", "opencl:1:global"),
            ],
        )
        return y


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


def test_a_tensor_of_unknown_shape_is_an_error() -> None:
    mod = from_source(
        """
        @I.ir_module
        class Module:
            @T.prim_func(private=True)
            def same(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
                for i in range(4):
                    y[i] = x[i]

            @R.function
            def main(x: R.Tensor(ndim=1, dtype="float32")):
                cls = Module
                return R.call_tir(cls.same, (x,), out_sinfo=R.Tensor((4,), "float32"))
        """
    )
    with pytest.raises(TransformError, match=r"a tensor of known shape, found R\.Tensor"):
        SpecializePrimFuncBasedOnCallSite()(mod)


def test_a_device_with_another_memory_scope_is_an_error() -> None:
    text = Model.script().replace('"opencl:1:global"', '"opencl:1:global.texture"')
    text = text.replace('vdevice="opencl:1"', 'vdevice="opencl:1:local"')
    with pytest.raises(relaxpy.errors.ParseError, match="the memory of device 'opencl:1' is"):
        from_source(text)
