"""RealizeVDevice: devices spread to what is computed together, hints become copies."""

import re

import pytest

from relaxpy import IRModule
from relaxpy.errors import StructInfoError, TransformError
from relaxpy.relax.transform import RealizeVDevice
from relaxpy.script import from_source
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import module, pair

DEVICES = 'I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]})'


def listing(text: str) -> IRModule:
    """The module of a text that lists two devices; `on_cuda` is a tensor on one of them."""
    tensors = re.sub(r"\bon_(llvm|cuda)\b", r'R.Tensor((2, 3), "float32", "\1")', text)
    return module(f"{DEVICES}\n{tensors}")


Operands, OperandsAfter = pair(
    """
-def main(x: f32[2, 3], y: on_llvm, z: R.Tensor((2, 3))) -> R.Tuple(f32[2, 3], R.Tensor((2, 3))):
+def main(x: on_llvm, y: on_llvm, z: R.Tensor((2, 3))) -> R.Tuple(
+    on_llvm, R.Tensor((2, 3), None, "cuda")
+):
    with R.dataflow():
        a = x
        b = R.add(a, y)
        c = R.abs(b)
        d = R.to_vdevice(z, "cuda")
    return (c, d)
""",
    listing,
)


def test_devices_spread_to_operands_and_results_but_not_through_copies() -> None:
    check(RealizeVDevice(), Operands, OperandsAfter)
    stays(RealizeVDevice(), OperandsAfter)


Annotated, AnnotatedAfter = pair(
    """
-def main(x: f32[2, 3], y: f32[2, 3]) -> R.Tuple(f32[2, 3], on_llvm):
+def main(x: on_cuda, y: on_llvm) -> R.Tuple(on_cuda, on_llvm):
    a = R.exp(x)
-   b: on_cuda = R.abs(a)
+   b = R.abs(a)
    c = R.exp(y)
    return (b, c)
""",
    listing,
)


def test_annotations_of_variables_and_results_place_values() -> None:
    check(RealizeVDevice(), Annotated, AnnotatedAfter)
    stays(RealizeVDevice(), AnnotatedAfter)


@pytest.mark.rule("DER-18")
def test_an_annotation_does_not_move_a_value_to_another_device() -> None:
    with pytest.raises(StructInfoError, match="device llvm:0 is not cuda:0"):
        listing("""
def main(x: on_llvm):
    y: on_cuda = R.abs(x)
    return y
""")


Hints, HintsAfter = pair(
    """
-def main(x: f32[2, 3], y: f32[2, 3], z: f32[2, 3]) -> f32[2, 3]:
+def main(x: on_llvm, y: on_llvm, z: on_cuda) -> on_cuda:
    with R.dataflow():
-       a = R.hint_on_device(y, R.cpu())
+       a = y
        b = R.add(x, a)
-       c = R.hint_on_device(b, R.cuda())
+       c = R.to_vdevice(b, "cuda")
        d = R.add(c, c)
-       e = R.hint_on_device(z, R.cuda())
+       e = z
        f = R.multiply(d, e)
    return f
""",
    listing,
)


@pytest.mark.parametrize("virtual", [False, True])
def test_hints_become_copies_or_aliases(virtual: bool) -> None:
    text = Hints.script()
    if virtual:
        text = text.replace("R.cpu(0)", 'I.vdevice("llvm")')
        text = text.replace("R.cuda(0)", 'I.vdevice("cuda")')
    hinted = from_source(text)
    assert hinted.script().count("I.vdevice") == (5 if virtual else 2)
    check(RealizeVDevice(), hinted, HintsAfter)
    stays(RealizeVDevice(), HintsAfter)


Unlisted = listing("""
def main(x: f32[2, 3]):
    y = R.hint_on_device(x, R.cuda(1))
    return y
""")


def test_a_hint_names_a_device_of_the_module() -> None:
    with pytest.raises(TransformError, match="the module lists no device cuda:1") as caught:
        RealizeVDevice()(Unlisted)
    assert caught.value.diagnostic.span is not None
    virtual = from_source(Unlisted.script().replace("R.cuda(1)", 'I.vdevice("cuda", 1)'))
    with pytest.raises(TransformError, match="the module lists no device cuda:1"):
        RealizeVDevice()(virtual)


Nothing = module("""
def main(x: f32[2, 3]):
    y = R.exp(x)
    return y
""")


def test_a_module_without_devices_stays() -> None:
    stays(RealizeVDevice(), Nothing)
