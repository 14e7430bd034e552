"""New tensors by the names that programs of TVM call: runtime.tensor and runtime.empty."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.relax import const
from relaxpy.relax.testing.vm import check_saved_func
from relaxpy.runtime import ShapeTuple, Tensor, convert, cpu, cuda, device, empty, tensor
from relaxpy.script import relax as R
from tests.ir.relax.texts import module


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        *[(np.arange(6, dtype="int8").reshape(2, 3), "int8"), ([[1.5, 2.0]], "float64")],
        *[(3, "int64"), (True, "bool"), (np.float32(2), "float32"), ((1, 2), "int64")],
        (np.ones(2, ml_dtypes.bfloat16), "bfloat16"),
    ],
)
@pytest.mark.parametrize("where", [None, cpu(), "cpu:0"])
def test_a_tensor_has_the_elements_and_memory_of_its_own(value, dtype, where) -> None:
    result = tensor(value, where)
    np.testing.assert_array_equal(result, np.array(value))
    assert (type(result), result.dtype.name) == (Tensor, dtype)
    assert not np.shares_memory(result, value)


def test_an_empty_tensor_has_the_shape_and_datatype() -> None:
    assert (empty((2, 3)).shape, empty((2, 3)).dtype.name) == ((2, 3), "float32")
    result = empty([4], dtype="bfloat16", device=cpu(dev_id=0))
    assert (result.shape, result.dtype) == ((4,), ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tensor([1], cuda(dev_id=1)), r"NumPy arrays on cpu:0, found device cuda:1"),
        (lambda: empty((1,), "float32", device(device_type="cuda")), "found device cuda:0"),
        (lambda: tensor([1], "gpu?"), r"gpu\?"),
        (lambda: tensor([[1], [2, 3]]), "expected an array, a list or a scalar"),
        (lambda: tensor("text"), "expected an array, a list or a scalar, found 'text'"),
        (lambda: tensor(object()), "expected an array, a list or a scalar"),
        (lambda: empty(3), "a shape is a list of integers, found 3"),
        (lambda: empty((2.5,)), "a shape holds integers, found 2.5"),
        (lambda: empty((2,), "flaot32"), "float32"),
        (lambda: empty((2,), "float32x4"), "no elements of datatype float32x4"),
        (lambda: const([1, 2], "int8x4"), "no elements of datatype int8x4"),
        (lambda: const(np.zeros(2), "bfloat16x2"), "no elements of datatype bfloat16x2"),
        (lambda: empty((2,), "float128"), "dtype 'float128' has no NumPy form"),
        (lambda: tensor(np.ones(2, ml_dtypes.bfloat16)).to_dlpack(), "of bfloat16 has no capsule"),
        (lambda: empty((-1,)), "no negative dimensions, found"),
    ],
)
def test_misuse_is_named(make: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()


def test_tensors_have_the_methods_of_those_of_tvm() -> None:
    x = tensor([[1, 2], [3, 4]])
    copy = x.numpy()
    assert (type(copy), copy.tolist()) == (np.ndarray, [[1, 2], [3, 4]])
    copy[:] = 0
    assert x.tolist() == [[1, 2], [3, 4]]
    assert x.device == cpu()
    assert x.copyfrom([[5, 6], [7, 8]]) is x
    target = np.zeros((2, 2), "float32")
    assert x.copyto(target) is target
    assert target.tolist() == [[5, 6], [7, 8]]
    other = x.copyto(cpu())
    assert not np.shares_memory(other, x)
    np.testing.assert_array_equal(other, x)
    with pytest.raises(MisuseError, match=r"expected elements of shape \(2, 2\), found \(2,\)"):
        x.copyfrom([1, 2])
    with pytest.raises(MisuseError, match=r"expected elements of shape \(3,\), found \(2, 2\)"):
        x.copyto(np.zeros(3))


def test_a_machine_returns_tensors_and_the_arguments_themselves() -> None:
    Module = module("""
    def main(x: f32[n], y: f32[n]):
        return (x, (R.add(x, y), y))
    """)

    machine = relaxpy.VirtualMachine(relaxpy.compile(Module))
    x, y = np.ones(2, "float32"), tensor(np.ones(2, "float32"))
    first, (total, second) = machine["main"](x, y)
    assert first is x
    assert second is y
    assert isinstance(total, Tensor)
    assert total.numpy().tolist() == [2, 2]
    assert machine["main"](y=y, x=y)[0] is y
    assert relaxpy.compile(Module)["main"](x, x)[0] is x


def test_the_functions_of_tests_are_registered() -> None:
    Module = module("""
    @impure
    def main(x: f32[1, 2], y: f32[1, 2]):
        a = R.call_packed("test.vm.add", x, y, sinfo_args=f32[1, 2])
        b = R.call_packed("test.vm.mul", a, y, sinfo_args=f32[1, 2])
        return R.call_dps_packed("test.vm.tile", b, f32[1, 4])
    """)

    machine = relaxpy.VirtualMachine(relaxpy.compile(Module))
    x, y = tensor(np.float32([[1, 2]])), tensor(np.float32([[3, 4]]))
    result = check_saved_func(machine, "main", x, y)
    assert result.numpy().tolist() == [[12, 24, 12, 24]]
    assert "main_saved" in machine


def test_the_data_of_a_constant_is_a_tensor_and_results_are_arrays() -> None:
    one = relax.const([1.0, 2.0], "float32")
    data = one.data.numpy()
    assert type(data) is np.ndarray
    assert data.flags.writeable
    np.testing.assert_array_equal(data, [1, 2])
    assert not one.data.flags.writeable
    assert relax.Constant(one.data).data is one.data
    assert relax.const(3).data.numpy()[()] == 3

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return (one, R.add(x, one), R.const(1))

    for target in ("numpy", "reference"):
        results = relaxpy.compile(main, target=target)["main"](data)
        assert {type(result) for result in results} == {np.ndarray}


def test_lists_are_converted_to_tuples() -> None:
    x = tensor([1, 2])
    assert convert([x, (len, [])]) == (x, (len, ()))
    shape = ShapeTuple([1, 2])
    assert convert(shape) is shape


CallsUsers = module("""
@impure
def main(x: f32[4], y: f32[4]):
    z = R.call_inplace_packed("test.tensors.add", x, y, inplace_indices=0, sinfo_args=[f32[4]])
    return (z, x)

@impure
def python(x: f32[4]):
    y = R.call_py_func(R.str("test.tensors.relu"), (x,), out_sinfo=f32[4])
    return y
""")


def test_packed_functions_of_a_machine_get_tensors() -> None:
    kinds = []

    def add(x, y):
        kinds.append(type(x))
        return x.copyfrom(x.numpy() + y.numpy()) if type(x) is Tensor else np.add(x, y, x)

    relaxpy.register_func("test.tensors.add", add, override=True)
    ex = relaxpy.compile(CallsUsers)
    data = np.arange(4, dtype="float32")
    vm = relaxpy.VirtualMachine(ex, relaxpy.cpu())
    first, second = vm["main"](data.copy(), data)
    assert np.shares_memory(first, second)
    np.testing.assert_array_equal(first, 2 * data)
    vm.set_input("main", data.copy(), data)
    vm.invoke_stateful("main")
    np.testing.assert_array_equal(vm.get_outputs("main")[0], 2 * data)
    mine = data.copy()
    assert ex["main"](mine, data)[0] is mine
    assert kinds == [Tensor, Tensor, np.ndarray]


def test_python_functions_that_a_builtin_enters() -> None:
    enter = relaxpy.get_global_func("vm.builtin.register_py_func")
    enter("test.tensors.relu", lambda x: relaxpy.runtime.tensor(np.maximum(x.numpy(), 0)))
    try:
        vm = relaxpy.VirtualMachine(relaxpy.compile(CallsUsers), relaxpy.cpu())
        data = np.array([-1, 0, 1, 2], "float32")
        np.testing.assert_array_equal(vm["python"](data), np.maximum(data, 0))
    finally:
        relaxpy.get_global_func("vm.builtin.clear_py_func_registry")()
    with pytest.raises(ValueError, match=r"test\.tensors\.relu"):
        vm["python"](data)


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_a_view_has_the_offset_and_the_memory_of_its_part(target: str) -> None:
    Mod = module("""
    def main(x: R.Tensor):
        return (x.byte_offset, x.elem_offset, x)

    def double(x: f32[2, 3]):
        return R.add(x, x)
    """)

    whole = tensor(np.arange(20, dtype="float32").reshape(4, 5))
    view = whole._create_view((2, 3), "float32", relative_byte_offset=16)
    np.testing.assert_array_equal(view, np.arange(4, 10).reshape(2, 3))
    assert np.shares_memory(view, whole)
    inner = view._create_view([4], "int16", 8)
    programs = relaxpy.compile(Mod, target)
    for array, offsets in ((whole, (0, 0)), (view, (16, 4)), (inner, (24, 12))):
        *found, same = programs["main"](array)
        assert tuple(found) == offsets
        assert np.shares_memory(same, array)
    np.testing.assert_array_equal(programs["double"](view), np.arange(8, 20, 2).reshape(2, 3))


@pytest.mark.parametrize(
    ("shape", "dtype", "offset"), [((21,), "float32", 0), ((2,), "float32", 2), ((2,), "int8", -1)]
)
def test_a_view_is_inside_of_its_tensor(shape: tuple[int, ...], dtype: str, offset: int) -> None:
    with pytest.raises(MisuseError, match="is not a part of a tensor of 80 bytes"):
        tensor(np.zeros((4, 5), "float32"))._create_view(shape, dtype, offset)
    with pytest.raises(MisuseError, match="is not a part of"):
        tensor(np.zeros((4, 5), "float32")).T._create_view((2,))
