"""RealizeVDevice: devices spread to what is computed together, hints become copies."""

import pytest

from relaxpy.errors import TransformError
from relaxpy.relax.transform import RealizeVDevice
from relaxpy.script import from_source, ir as I, relax as R
from tests.ir.relax.texts import module
from tests.ir.relax.transform.before_after import check, stays

DEVICES = {"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]}


@I.ir_module
class Operands:
    I.module_global_infos(DEVICES)

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32", "llvm"), z: R.Tensor((2, 3))
    ) -> R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2, 3))):
        with R.dataflow():
            a = x
            b = R.add(a, y)
            c = R.abs(b)
            d = R.to_vdevice(z, "cuda")
            R.output(c, d)
        return (c, d)


@I.ir_module
class OperandsAfter:
    I.module_global_infos(DEVICES)

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32", "llvm"),
        y: R.Tensor((2, 3), "float32", "llvm"),
        z: R.Tensor((2, 3)),
    ) -> R.Tuple(R.Tensor((2, 3), "float32", "llvm"), R.Tensor((2, 3), None, "cuda")):
        with R.dataflow():
            a = x
            b = R.add(a, y)
            c = R.abs(b)
            d = R.to_vdevice(z, "cuda")
            R.output(c, d)
        return (c, d)


def test_devices_spread_to_operands_and_results_but_not_through_copies() -> None:
    check(RealizeVDevice(), Operands, OperandsAfter)
    stays(RealizeVDevice(), OperandsAfter)


@I.ir_module
class Hints:
    I.module_global_infos(DEVICES)

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"),
        y: R.Tensor((2, 3), "float32"),
        z: R.Tensor((2, 3), "float32"),
    ) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.hint_on_device(y, R.cpu())
            b = R.add(x, a)
            c = R.hint_on_device(b, R.cuda())
            d = R.add(c, c)
            e = R.hint_on_device(z, R.cuda())
            f = R.multiply(d, e)
            R.output(f)
        return f


@I.ir_module
class HintsAfter:
    I.module_global_infos(DEVICES)

    @R.function
    def main(
        x: R.Tensor((2, 3), "float32", "llvm"),
        y: R.Tensor((2, 3), "float32", "llvm"),
        z: R.Tensor((2, 3), "float32", "cuda"),
    ) -> R.Tensor((2, 3), "float32", "cuda"):
        with R.dataflow():
            a = y
            b = R.add(x, a)
            c = R.to_vdevice(b, "cuda")
            d = R.add(c, c)
            e = z
            f = R.multiply(d, e)
            R.output(f)
        return f


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


@I.ir_module
class Unlisted:
    I.module_global_infos(DEVICES)

    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        y = R.hint_on_device(x, R.cuda(1))
        return y


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
