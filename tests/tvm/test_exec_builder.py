"""Executables that `ExecBuilder` describes by instructions."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import BuilderStateError, MisuseError, RuntimeCheckError
from relaxpy.relax.testing.vm import check_saved_func
from relaxpy.runtime import DataType, ShapeTuple

A, B = np.arange(4.0), np.full(4, 3.0)


def machine(builder: relax.ExecBuilder) -> relax.VirtualMachine:
    return relax.VirtualMachine(builder.get(), relaxpy.cpu())


def binary(builder: relax.ExecBuilder, name: str, function: str) -> None:
    """Define a function of two arguments that calls a packed one."""
    with builder.function(name, num_inputs=2):
        builder.emit_call(function, args=[builder.r(0), builder.r(1)], dst=builder.r(2))
        builder.emit_ret(builder.r(2))


def test_functions_call_packed_functions() -> None:
    ib = relax.ExecBuilder()
    binary(ib, "sum", "test.vm.add")
    binary(ib, "product", "test.vm.mul")
    vm = machine(ib)
    np.testing.assert_array_equal(check_saved_func(vm, "sum", A, B), A + B)
    np.testing.assert_array_equal(check_saved_func(vm, "product", A, B), A * B)
    with pytest.raises(RuntimeCheckError, match="sum takes 2 arguments, found 1"):
        vm["sum"](A)


def test_functions_call_functions_of_the_executable() -> None:
    ib = relax.ExecBuilder()
    binary(ib, "sum", "test.vm.add")
    binary(ib, "main", "sum")
    np.testing.assert_array_equal(machine(ib)["main"](A, B), A + B)


def test_integers_may_be_negative() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("test.vm.add_scalar", args=[ib.imm(-3), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    assert [machine(ib)["main"](x) for x in (1, -3)] == [-2, -6]


def test_objects_pass_through() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("test.vm.get_device_id", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    assert machine(ib)["main"](relaxpy.cpu(3)) == 3


def test_equal_constants_are_one() -> None:
    ib = relax.ExecBuilder()
    assert ib.convert_constant("a") == ib.convert_constant("a") == ib.c(0)
    assert ib.convert_constant(ShapeTuple([1, 2])) == ib.convert_constant((1, 2)) == ib.c(1)
    assert ib.convert_constant((1, 3)) != ib.c(1)
    array = np.array([1, 2], "int32")
    assert ib.convert_constant(array) == ib.convert_constant(array.copy())
    assert ib.convert_constant(array.astype("int64")) != ib.convert_constant(array)
    assert ib.convert_constant(0.0) != ib.convert_constant(-0.0)
    assert ib.convert_constant(1) != ib.convert_constant(True)
    with pytest.raises(TypeError, match="a constant is an array, a tuple of integers"):
        ib.convert_constant(object())


def test_constants_do_not_change_with_their_arrays() -> None:
    ib = relax.ExecBuilder()
    array = np.ones(2)
    with ib.function("main"):
        ib.emit_call("test.vm.add", args=[array, array], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    array[:] = 5
    assert machine(ib)["main"]().tolist() == [2, 2]


def test_registers_are_numbered_in_the_order_of_their_use() -> None:
    def described(first: int, second: int) -> str:
        ib = relax.ExecBuilder()
        with ib.function("main", num_inputs=2):
            ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(first))
            ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(first)], dst=ib.r(second))
            ib.emit_ret(ib.r(second))
        return ib.get().as_text()

    assert described(100, 50) == described(2, 3)


def test_shapes_and_storage_come_from_builtins() -> None:
    ib = relax.ExecBuilder()
    with ib.function("shape"):
        ib.emit_call("vm.builtin.shape_of", args=[np.zeros((3, 2))], dst=ib.r(0))
        ib.emit_ret(ib.r(0))
    dtype = DataType("float32")
    with ib.function("main"):
        device, scope = ib.convert_constant(0), ib.convert_constant("global")
        storage = [ib.vm_state(), (24,), device, dtype, scope]
        ib.emit_call("vm.builtin.alloc_storage", args=storage, dst=ib.r(1))
        tensor = [ib.r(1), ib.imm(0), (4, 6), dtype]
        ib.emit_call("vm.builtin.alloc_tensor", args=tensor, dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = machine(ib)
    assert vm["shape"]() == (3, 2)
    result = vm["main"]()
    assert (result.shape, result.dtype, result.device) == ((4, 6), np.float32, relaxpy.cpu())


def test_jumps_omit_instructions() -> None:
    ib = relax.ExecBuilder()
    with ib.function("goto", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_goto(2)
        ib.emit_call("test.vm.mul", args=[ib.r(2), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("if", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("test.vm.add", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("test.vm.mul", args=[ib.r(1), ib.r(2)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    vm = machine(ib)
    np.testing.assert_array_equal(vm["goto"](A, B), A + B)
    for condition in (0, False, np.array(False)):
        np.testing.assert_array_equal(vm["if"](condition, A, B), A * B)
    for condition in (1, True, np.array(True)):
        np.testing.assert_array_equal(vm["if"](condition, A, B), A + B)
    with pytest.raises(RuntimeCheckError, match="a condition is a Boolean tensor of rank 0"):
        vm["if"](A, A, B)


def test_closures_append_their_captured_arguments() -> None:
    ib = relax.ExecBuilder()
    with ib.function("inner", num_inputs=3):
        ib.emit_call("test.vm.mul", args=[ib.r(0), ib.r(1)], dst=ib.r(3))
        ib.emit_call("test.vm.add", args=[ib.r(3), ib.r(2)], dst=ib.r(4))
        ib.emit_ret(ib.r(4))
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.make_closure", args=[ib.f("inner"), ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = machine(ib)
    closure = vm["main"](np.full(4, 7.0))
    np.testing.assert_array_equal(vm.invoke_closure(closure, A, B), A * B + 7)


def everything() -> relax.ExecBuilder:
    ib = relax.ExecBuilder()
    weird = np.array([[np.nan, -0.0]], "float32")
    with ib.function("main", num_inputs=1, param_names=["flag"]):
        ib.emit_if(ib.r(0), 2)
        ib.emit_goto(1)
        args = [weird, (1, 2), DataType("float16"), ib.convert_constant(float("inf")), ib.f("g")]
        ib.emit_call("tests.exec_builder.f", args=[*args, ib.imm(-1), ib.void_arg(), ib.vm_state()])
        ib.emit_call("test.vm.move", args=[ib.convert_constant("text")], dst=ib.r(9))
        ib.emit_ret(ib.r(9))
    return ib


def test_texts_show_the_instructions() -> None:
    ex = everything().get()
    assert ex.as_text() == (
        "@main(flag):\n"
        "  if    %0, 2\n"
        "  goto  1\n"
        "  call  tests.exec_builder.f in: c[1], c[2], c[3], c[0], f[g], i-1, %void, %vm "
        "dst: %void\n"
        "  call  test.vm.move     in: c[4]         dst: %1\n"
        "  ret   %1\n"
        "\n"
        "@tests.exec_builder.f packed_func\n"
        "\n"
        "@test.vm.move packed_func"
    )
    assert ex.stats() == (
        "functions: main\n"
        "constants: float('inf'), float32 tensor of shape (1, 2), (1, 2), float16, 'text'"
    )
    assert "main(flag)" in repr(ex)


def test_the_python_text_builds_the_executable_again(tmp_path: Path) -> None:
    ex = everything().get()
    scope: dict[str, relax.ExecBuilder] = {}
    exec(compile(ex.as_python(), "again", "exec"), scope)
    assert scope["ib"].get().as_python() == ex.as_python()
    for write in (lambda: ex.save(tmp_path / "a"), lambda: pickle.dumps(ex)):
        with pytest.raises(MisuseError, match="an executable of instructions is not saved"):
            write()


def test_instruments_observe_calls() -> None:
    ib = relax.ExecBuilder()
    binary(ib, "sum", "test.vm.add")
    binary(ib, "main", "sum")
    vm = machine(ib)
    seen: list[str] = []
    vm.set_instrument(lambda function, name, before, result, *args: seen.append(name))
    vm["main"](A, B)
    assert seen == ["sum", "test.vm.add", "test.vm.add", "sum"]
    with pytest.raises(MisuseError, match="has no kernels"):
        ib.get().kernel_source("main")
    with pytest.raises(MisuseError, match="only parameters of Relax functions are bound"):
        ib.get().bind(x=A)


def test_errors_of_packed_functions_keep_their_class() -> None:
    ib = relax.ExecBuilder()
    binary(ib, "main", "test.vm.add")
    with pytest.raises(ValueError, match="broadcast") as caught:
        machine(ib)["main"](A, np.ones(3))
    assert isinstance(caught.value, relaxpy.errors.PackedFuncError)
    ib = relax.ExecBuilder()
    binary(ib, "main", "tests.exec_builder.unknown")
    with pytest.raises(KeyError, match=r"tests.exec_builder.unknown"):
        machine(ib)["main"](A, B)


def test_registers_are_set_before_they_are_read() -> None:
    ib = relax.ExecBuilder()
    with (
        pytest.raises(BuilderStateError, match="instruction 0 of function main reads register %2"),
        ib.function("main", num_inputs=2),
    ):
        ib.emit_ret(ib.r(2))
    with ib.function("main", num_inputs=1):
        ib.emit_if(ib.r(0), 2)
        ib.emit_call("test.vm.move", args=[ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    assert machine(ib)["main"](1) == 1
    with pytest.raises(RuntimeCheckError, match="register %1 has no value"):
        machine(ib)["main"](0)


def test_functions_are_complete() -> None:
    ib = relax.ExecBuilder()
    with pytest.raises(ValueError, match="an instruction is emitted outside of a function"):
        ib.emit_ret(ib.r(0))
    with pytest.raises(BuilderStateError, match="has no instructions"), ib.function("main"):
        pass
    with (
        pytest.raises(BuilderStateError, match="continues at 1, but there are 1 instructions"),
        ib.function("main", 1),
    ):
        ib.emit_call("test.vm.move", [ib.r(0)])
    with ib.function("main", 1):
        ib.emit_ret(ib.r(0))
        with pytest.raises(BuilderStateError, match="is inside another"), ib.function("g"):
            pass
        with pytest.raises(BuilderStateError, match="requested inside a function"):
            ib.get()
    with pytest.raises(BuilderStateError, match="main is defined twice"), ib.function("main"):
        pass
    with ib.function("g"):
        ib.emit_call("test.vm.move", [ib.c(3)], ib.r(0))
        ib.emit_ret(ib.r(0))
    with pytest.raises(BuilderStateError, match=r"g refers to constant c\[3\]"):
        ib.get()


def test_arguments_are_of_their_kind() -> None:
    ib = relax.ExecBuilder()
    with ib.function("main", 1):
        with pytest.raises(TypeError, match=r"an argument is ib.r, ib.imm, ib.f or a constant"):
            ib.emit_call("f", [3])
        with pytest.raises(TypeError, match="results are stored in registers, found i1"):
            ib.emit_call("f", [], ib.imm(1))
        with pytest.raises(TypeError, match="expected a register"):
            ib.emit_ret(ib.imm(1))
        with pytest.raises(ValueError, match="jumps are to instructions below, found 0"):
            ib.emit_goto(0)
        with pytest.raises(ValueError, match="a register is an integer from 0, found -1"):
            ib.r(-1)
        for name in (ib.emit_call, ib.f):
            with pytest.raises(TypeError, match="the name of a function is a string"):
                name(3)
        with pytest.raises(TypeError, match="the arguments are a list, found %0"):
            ib.emit_call("f", ib.r(0))
        for value in (1.5, "1"):
            with pytest.raises(TypeError, match=f"found {value!r}"):
                ib.imm(value)
        ib.emit_ret(ib.r(0))
    for names in ([], 1):
        refused = pytest.raises(ValueError, match="has 1 arguments, and names")
        with refused, ib.function("g", 1, names):
            pass
