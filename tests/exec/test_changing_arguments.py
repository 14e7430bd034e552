"""Arrays that change between the check of arguments and their use; `make fuzz` tries very many."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, PackedFuncError
from relaxpy.script import from_source
from tests.fuzz import changing_arguments
from tests.fuzz.seed import COUNT, SEED

TARGETS = pytest.mark.parametrize("target", ["numpy", "native", "reference"])
CHANGES: dict[str, Callable[[np.ndarray], None]] = {
    "shape": lambda x: setattr(x, "shape", (4, 2)),
    "rank": lambda x: setattr(x, "shape", (8,)),
    "dtype": lambda x: setattr(x, "dtype", np.dtype("int32")),
}


@pytest.mark.skipif(sys.platform == "win32", reason="calls are interrupted by an alarm")
def test_arguments_that_change_are_refused_or_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    faults = changing_arguments.main(COUNT, SEED)
    assert faults == 0, capsys.readouterr().out


@TARGETS
@pytest.mark.parametrize("is_machine", [False, True])
@pytest.mark.parametrize("change", [*CHANGES])
def test_a_packed_function_changes_no_form(change: str, is_machine: bool, target: str) -> None:
    text = """
@R.function(pure=False)
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
    _ = R.call_packed("test.change", x, sinfo_args=R.Object())
    return R.multiply(x, y), x
"""
    module = relaxpy.IRModule({"main": from_source(text)})
    executable = relaxpy.compile(module, target=target)
    x, y = np.arange(8, dtype="float32").reshape(2, 4), np.full((2, 4), 3, "float32")
    expected = x * y
    relaxpy.register_func("test.change", CHANGES[change], override=True)
    if is_machine:  # it passes a view, which the function may change
        result, _ = relaxpy.VirtualMachine(executable)["main"](x, y)
        np.testing.assert_array_equal(result, expected)
        return
    with pytest.raises(PackedFuncError, match="changed the shape, the strides or"):
        executable["main"](x, y)


@TARGETS
def test_no_array_gets_other_memory_while_a_packed_function_has_it(target: str) -> None:
    text = """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    _ = R.call_packed("test.change", x, sinfo_args=R.Object())
    return R.exp(x)
"""
    module = relaxpy.IRModule({"main": from_source(text)})
    x = np.zeros(1 << 20, "float32")
    relaxpy.register_func("test.change", lambda _: x.resize(1, refcheck=False), override=True)
    with pytest.raises(PackedFuncError, match="cannot resize"):
        relaxpy.compile(module, target=target)["main"](x)


@TARGETS
@pytest.mark.parametrize("method", ["__array__", "__dlpack__"])
def test_any_error_of_an_object_that_is_read_refuses_it(method: str, target: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("no elements")

    text = 'def main(x: R.Tensor((2,), "float32")):\n    return R.exp(x)\n'
    module = relaxpy.IRModule({"main": from_source(f"@R.function\n{text}")})
    item = type("Odd", (), {method: fail})()
    with pytest.raises(FunctionSignatureError, match="Odd cannot be read as an array: no elements"):
        relaxpy.compile(module, target=target)["main"](item)


@TARGETS
def test_a_subclass_of_tensors_is_read_by_its_memory(target: str) -> None:
    class Odd(relaxpy.runtime.Tensor):
        shape = property(lambda self: (1 << 20, 4))  # type: ignore[assignment]
        byte_offset = property(lambda self: 8)  # type: ignore[assignment]

    text = 'def main(x: R.Tensor(("n", 4), "float32")):\n    return R.exp(x)\n'
    module = relaxpy.IRModule({"main": from_source(f"@R.function\n{text}")})
    x = np.zeros((2, 4), "float32")
    result = relaxpy.compile(module, target=target)["main"](x.view(Odd))
    np.testing.assert_array_equal(result, np.ones((2, 4)))
