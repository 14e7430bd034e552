"""Compilation in two steps, as tests of TVM do it."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import MisuseError
from relaxpy.relax.vm_build import _vmcodegen, _vmlink
from tests.ir.relax.texts import module

X = np.arange(4, dtype="float32")

Module = module("""
@T.prim_func
def fill(A: f32[4]):
    for i in range(4):
        A[i] = A[i] + T.float32(1)

@impure
def main(x: f32[4]):
    y = R.call_packed("vm.builtin.copy", x, sinfo_args=[f32[4]])
    _ = cls.fill(y)
    return y
""")


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
def test_a_module_is_compiled_without_passes(exec_mode: str) -> None:
    builder = relax.ExecBuilder()
    kernels = relax.vm_build._vmcodegen(builder, Module, exec_mode=exec_mode)
    vm = relax.VirtualMachine(_vmlink(builder, "llvm", kernels), relaxpy.cpu())
    np.testing.assert_array_equal(vm["main"](X.copy()), X + 1)


def test_the_functions_of_a_builder_alone() -> None:
    builder = relax.ExecBuilder()
    with builder.function("main", 2):
        builder.emit_call("test.vm.add", [builder.r(0), builder.r(1)], builder.r(2))
        builder.emit_ret(builder.r(2))
    np.testing.assert_array_equal(_vmlink(builder)["main"](X, X), 2 * X)
    with pytest.raises(MisuseError, match="expected a new ExecBuilder"):
        _vmcodegen(builder, Module)


def test_arguments_are_of_their_kind() -> None:
    with pytest.raises(TypeError, match="expected a new ExecBuilder"):
        _vmcodegen(None, Module)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found type and 'bytecode'"):
        _vmcodegen(relax.ExecBuilder(), int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'fast'"):
        _vmcodegen(relax.ExecBuilder(), Module, "fast")
    with pytest.raises(MisuseError, match="external libraries are not linked"):
        _vmlink(relax.ExecBuilder(), "llvm", Module, ext_libs=[object()])
