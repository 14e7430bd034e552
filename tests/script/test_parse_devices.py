"""Programs that say where their tensors live."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError, ParseError
from relaxpy.ir import load_json, save_json, structural_equal
from relaxpy.ir.core.device import Device
from relaxpy.ir.global_info import VDevice
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.script.marked import check_line, rejected


def same_again(program: IRModule | relax.Function) -> None:
    for copy in (from_source(program.script()), load_json(save_json(program))):
        assert structural_equal(copy, program)


@I.ir_module
class Moved:
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0), I.vdevice("cuda", 3)]}
    )

    @R.function
    def main(x: R.Tensor(("n",), "float32", "llvm")) -> R.Tensor(("n",), "float32", "cuda:1"):
        n = T.int64()
        a: R.Tensor((n,), "float32", "cuda:0") = R.to_vdevice(x, "cuda:0")
        b = R.to_vdevice(a, dst_vdevice="cuda:1")
        c = R.to_vdevice(b, I.lookup_vdevice("cuda", 1))
        d = R.hint_on_device(c, R.cuda(2))
        e = R.hint_on_device(d, R.cpu(), "global")
        return R.add(e, e)


def test_tensors_are_moved_between_the_devices_of_the_module() -> None:
    main = Moved["main"]
    moved = [b.value for block in main.body.blocks for b in block.bindings]
    assert [c.attrs["dst_vdevice"] for c in moved[:5]] == [
        VDevice("cuda", 0),
        VDevice("cuda", 3),
        VDevice("cuda", 3),
        Device("cuda", 2),
        Device("cpu", 0),
    ]
    assert main.ret_struct_info.vdevice == VDevice("cuda", 3)
    assert [b.var.struct_info.vdevice.vdevice_id for b in main.body.blocks[0].bindings][:2] == [
        0,
        3,
    ]
    same_again(Moved)
    assert "dst_vdevice=R.cuda(2)" in Moved.script()


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_there_is_one_memory(target: str) -> None:
    x = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(relaxpy.compile(Moved, target)["main"](x), x + x)


def test_without_a_list_a_number_is_that_of_the_device() -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32", "cuda:1"):
        y = R.to_vdevice(x, "cuda:1")
        return y

    assert main.ret_struct_info.vdevice == VDevice("cuda", 1)
    same_again(main)
    call = relax.op.to_vdevice(relax.Var("x", relax.TensorStructInfo((4,))), "rocm:2")
    assert call.struct_info.vdevice == VDevice("rocm", 2)
    assert structural_equal(
        relax.op.hint_on_device(call.args[0], "cuda:1"),
        relax.op.hint_on_device(call.args[0], R.cuda(1)),
        map_free_vars=True,
    )
    assert R.device("cuda:1") == R.device("cuda", 1) == Device("cuda", 1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('R.to_vdevice(x, "cuda:1")', r"the module lists no device 'cuda:1'; it lists llvm, cuda"),
        ("R.to_vdevice(x, 3)", r"dst_vdevice is VDevice, found 3"),
        ("R.to_vdevice(x, R.cuda(0))", r"dst_vdevice is VDevice"),
        ('R.to_vdevice(x, "cuda:one")', r"a device is its kind and number, found 'cuda:one'"),
        ('R.to_vdevice((x, x), "llvm")', r"data is a tensor, found R\.Tuple"),
        ('R.to_vdevice(x, I.lookup_vdevice("rocm", 0))', r"the module lists no device 'rocm:0'"),
        ("R.to_vdevice(x, I.lookup_vdevice(3, 0))", r"a device's kind is a string, found 3"),
        ("R.hint_on_device(x, 3)", r"dst_vdevice is Device or VDevice, found 3"),
        ("R.hint_on_device(x, R.cuda(-1))", r"devices are numbered from 0, found -1"),
        ('R.hint_on_device(x, R.device("cud"))', r"no kind of device is called 'cud'"),
        ("R.hint_on_device(x, R.cuda(0), 5)", r"memory_scope is str, found 5"),
    ],
)
def test_devices_that_there_are_not(body: str, message: str) -> None:
    text = f"""
@I.ir_module
class Module:
    I.module_global_infos({{"vdevice": [I.vdevice("llvm"), I.vdevice("cuda", 0)]}})
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = {body}
        return y
"""
    check_line(text, 7, message, (ParseError, relaxpy.errors.StructInfoError))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: R.cuda(True), "numbered from 0"),
        (lambda: R.device("gpu"), "no kind of device"),
        (lambda: R.device("cuda:"), "kind and number"),
        (lambda: I.lookup_vdevice("cuda", "0"), "a device has a number"),
    ],
)
def test_devices_in_python_code(make: Callable[[], object], message: str) -> None:
    with rejected(MisuseError, message):
        make()
