"""AttachGlobalSymbol, RemovePurityChecking, reshapes, and struct info and devices of parameters."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError, StructInfoError, TransformError
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import transform
from relaxpy.script import ir as I
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import graph, module, pair

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")

Kernels = module("""
I.module_attrs({"system_lib_prefix": "lib_"})

@kernel
def kernel(a: f32[4], b: f32[4]):
    for i in range(4):
        b[i] = a[i] * T.float32(2)

def main(x: f32[4]):
    y = R.call_tir(cls.kernel, (x,), f32[4])
    return y
""")


def test_kernels_get_the_prefix_of_the_library() -> None:
    after = transform.AttachGlobalSymbol()(Kernels)
    symbols = {v.name_hint: f.attrs["global_symbol"] for v, f in after.items()}
    assert symbols == {"lib_kernel": "lib_kernel", "main": "main"}
    assert transform.AttachGlobalSymbol()(after) is after
    np.testing.assert_array_equal(relaxpy.compile(after, target="reference")["main"](X), X * 2)


Pure, PureAfter = pair("""
def main(x: f32[4]):
-   with R.dataflow():
-       y = R.call_pure_packed("tests.double", x, sinfo_args=f32[4])
+   R.func_attr({"relax.force_pure": True})
+   y = R.call_packed("tests.double", x, sinfo_args=f32[4])
    return y

@impure
def impure(x: f32[4]):
    def inner(z: f32[4]) -> f32[4]:
-       w = R.call_pure_packed("tests.double", z, sinfo_args=f32[4])
+       R.func_attr({"relax.force_pure": True})
+       w = R.call_packed("tests.double", z, sinfo_args=f32[4])
        return w
    y = inner(x)
    return y
""")


def test_calls_that_are_declared_pure_become_plain() -> None:
    relaxpy.register_func("tests.double", lambda x: x * 2, override=True)
    check(transform.RemovePurityChecking(), transform.ToNonDataflow()(Pure), PureAfter, X)
    stays(transform.RemovePurityChecking(), PureAfter)


def test_a_dataflow_block_keeps_its_declarations() -> None:
    with pytest.raises(TransformError, match=r"relax\.call_pure_packed is in a dataflow block"):
        transform.RemovePurityChecking()(Pure)


Reshapes, ReshapesAfter = pair("""
@impure
def main(x: f32[2, 6]):
-   a = R.reshape(x, (3, 4))
-   b = R.reshape(a, (2, 6))
-   c = R.exp(b)
+   c = R.exp(x)
    d = R.reshape(x, (12,))
-   e = R.reshape(d, (12,))
+   e = R.reshape(x, (12,))
    _ = R.call_packed("tests.clear", x, sinfo_args=R.Object)
    f = R.reshape(d, (6, 2))
    return (c, e, f)
""")

SameReshape, SameReshapeAfter = pair(
    """
def main(x: f32[2, 6]):
-   a = R.reshape(x, (12,))
-   b = R.reshape(a, (12,))
+   b = R.reshape(x, (12,))
    return b
""",
    graph,
)


def test_the_last_of_equal_reshapes_remains() -> None:
    after = transform.RemoveRedundantReshape()(SameReshape)
    relaxpy.ir.assert_structural_equal(after, SameReshapeAfter)


@pytest.mark.rule("OPT-11")
def test_reshapes_are_shortened_where_no_mutation_shows_it() -> None:
    data = np.arange(12, dtype="float32").reshape(2, 6)

    def clear(x: np.ndarray) -> None:
        x[:] = 0

    relaxpy.register_func("tests.clear", clear, override=True)
    after = transform.RemoveRedundantReshape()(Reshapes)
    relaxpy.ir.assert_structural_equal(after, ReshapesAfter)
    before, found = (
        relaxpy.compile(mod, target="reference")["main"](data.copy()) for mod in (Reshapes, after)
    )
    for one, other in zip(before, found, strict=True):
        np.testing.assert_array_equal(one, other)
    stays(transform.RemoveRedundantReshape(), ReshapesAfter)


Weights, WeightsAfter = pair("""
-def main(x: f32[n], w: f32[32, 16]) -> f32[32]:
-   y: f32[32] = R.sum(w, axis=1)
+def main(x: f32[n], w: f32[64, 16]) -> f32[64]:
+   y: f32[64] = R.sum(w, axis=1)
    return y

def other(x: f32[3]):
    return x
""")


def test_struct_info_of_parameters_reaches_bindings_and_results() -> None:
    def wider(param: rx.Var) -> rx.StructInfo | None:
        return rx.TensorStructInfo((64, 16), "float32") if param.name_hint == "w" else None

    check(transform.UpdateParamStructInfo(wider), Weights, WeightsAfter)
    stays(transform.UpdateParamStructInfo(wider), WeightsAfter)


def test_struct_info_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(StructInfoError):
        transform.UpdateParamStructInfo(
            lambda p: rx.ShapeStructInfo((2,)) if p.name_hint == "w" else None
        )(Weights)
    with pytest.raises(TransformError, match="sinfo_func returned 5 for parameter x"):
        transform.UpdateParamStructInfo(lambda p: 5)(Weights)  # type: ignore[arg-type,return-value]
    with pytest.raises(MisuseError, match="sinfo_func is a function"):
        transform.UpdateParamStructInfo(None)  # type: ignore[arg-type]


Devices = module("""
I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})

def main(x: R.Tensor((4,), "float32", "cuda:0"), y: R.Tensor((4,), "float32", "llvm")):
    a = R.to_vdevice(y, "cuda:0")
    b = R.add(x, a)
    return b
""")

DevicesAfter = module("""
I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("metal", 0)]})

def main(x: R.Tensor((4,), "float32", "metal:0"), y: R.Tensor((4,), "float32", "llvm")):
    a = R.to_vdevice(y, "metal:0")
    b = R.add(x, a)
    return b
""")


def test_a_device_is_replaced_wherever_it_occurs() -> None:
    check(transform.UpdateVDevice(I.vdevice("metal", 0), 1), Devices, DevicesAfter)
    stays(transform.UpdateVDevice(I.vdevice("metal", 0), 1), DevicesAfter)
    for func in transform.UpdateVDevice(I.vdevice("metal", 0), 1)(Devices).functions.values():
        for node in (n for n in relax.analysis.get_var2val(func).values()):
            assert "cuda" not in str(node.struct_info)


def test_the_number_of_a_device_is_one_of_the_module() -> None:
    with pytest.raises(MisuseError, match="there is no number 2"):
        transform.UpdateVDevice(I.vdevice("metal"), 2)(Devices)
    with pytest.raises(MisuseError, match="new_vdevice is a VDevice"):
        transform.UpdateVDevice("metal", 0)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="index is a number from 0 on"):
        transform.UpdateVDevice(I.vdevice("metal"), -1)
