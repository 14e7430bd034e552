import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError, UnknownNameError
from relaxpy.exec.compile import compile
from relaxpy.exec.vm import VirtualMachine
from relaxpy.ir.relax import nodes as rx
from tests.exec.kernels import function, module, size_var, tensor

N, M = size_var("n"), size_var("m")
X = np.ones(2, "float32")


@pytest.fixture
def vm() -> VirtualMachine:
    x, y, f = rx.Var("x", tensor((N,))), rx.Var("y", tensor((N,))), rx.Var("f")
    inner = function([y], [], rx.Tuple((y,)), name=None)
    made = function([x], [(f, inner)], f, name="make")
    a, b = rx.Var("x", tensor((M,))), rx.Var("z", tensor((M,)))
    pair = function([a, b], [], rx.Tuple((a, a)), name="pair")
    return relaxpy.VirtualMachine(compile(module(make=made, pair=pair)), "cpu")


def test_functions_are_called_by_name(vm: VirtualMachine) -> None:
    assert vm["pair"](X, X) == (X, X)
    with pytest.raises(UnknownNameError, match="no function 'pear'"):
        vm["pear"]


def test_closures_are_invoked(vm: VirtualMachine) -> None:
    closure = vm["make"](X)
    assert vm.invoke_closure(closure, X) == (X,)
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 0"):
        vm.invoke_closure(closure)
    with pytest.raises(MisuseError, match="invoke_closure takes a closure, found the int64 prim"):
        vm.invoke_closure(5)  # type: ignore[arg-type]


def test_inputs_and_outputs_are_kept_between_calls(vm: VirtualMachine) -> None:
    with pytest.raises(RuntimeCheckError, match="no input was set for pair"):
        vm.invoke_stateful("pair")
    vm.set_input("pair", X, z=X)
    with pytest.raises(UnknownNameError, match="pair has no outputs yet"):
        vm.get_outputs("pair")
    vm.invoke_stateful("pair")
    assert vm.get_outputs("pair") == (X, X)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        vm.set_input("pair", X)
    with pytest.raises(UnknownNameError):
        vm.set_input("pear", X)


def test_a_function_is_saved_with_its_arguments(vm: VirtualMachine) -> None:
    vm.save_function("pair", "pair_of_x", X, X)
    assert vm["pair_of_x"]() == (X, X)
    vm.save_function("pair", "quiet", X, X, include_return=False)
    assert vm["quiet"]() is None
    with pytest.raises(MisuseError, match="already a function 'pair_of_x'"):
        vm.save_function("pair", "pair_of_x", X, X)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        vm.save_function("pair", "short", X)


def test_a_module_is_not_an_executable() -> None:
    with pytest.raises(MisuseError, match=r"found IRModule[\s\S]*relaxpy\.compile\(mod\)"):
        VirtualMachine(module())  # type: ignore[arg-type]


def test_calls_are_timed(vm: VirtualMachine) -> None:
    vm.save_function("pair", "saved", X, X)
    found = vm.time_evaluator("saved", "cpu", number=3, repeat=4)()
    assert len(found.results) == 4
    assert 0 < found.min <= found.median <= found.max
    assert found.min <= found.mean <= found.max
    assert found.std <= found.max - found.min
    assert str(found).startswith("mean ")
    long = vm.time_evaluator("pair", number=1, min_repeat_ms=2)(X, X)
    assert 0 < long.mean < 2e-3
    with pytest.raises(UnknownNameError, match="no function 'pear'"):
        vm.time_evaluator("pear")
    with pytest.raises(MisuseError, match="positive"):
        vm.time_evaluator("pair", number=0)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments"):
        vm.time_evaluator("pair")(X)
    assert vm.module["pair"](X, X) == (X, X)
