"""Programs of TVM that import tvm_ffi, and what impure packed functions are told."""

import subprocess
import sys

import pytest

import relaxpy
from relaxpy.errors import StructInfoError
from relaxpy.script import from_source

TUTORIAL = """
import relaxpy as tvm
import tvm_ffi
from tvm_ffi import Array, register_global_func

def evaluate(lib: tvm_ffi.Module, values: tvm_ffi.Array) -> tvm_ffi.Shape: ...

@register_global_func("test.add_one")
def add_one(x):
    return x + 1

assert tvm_ffi.get_global_func("test.add_one")(1) == 2 == tvm.get_global_func("test.add_one")(1)
assert isinstance((1, 2), Array) and tvm_ffi.Module is tvm.runtime.Module
assert sys.modules["tvm_ffi"] is tvm.tvm_ffi
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", f"import sys\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_tvm_ffi_is_found_after_relaxpy() -> None:
    pytest.importorskip("relaxpy.tvm_ffi")
    assert run(TUTORIAL) == ""
    assert run("import relaxpy\nassert 'relaxpy.tvm_ffi' not in sys.modules") == ""


def test_an_installed_tvm_ffi_is_the_one_that_is_imported() -> None:
    program = "import types; sys.modules['tvm_ffi'] = types.ModuleType('tvm_ffi')\n"
    program += "import relaxpy, tvm_ffi\nassert not hasattr(tvm_ffi, 'Array')"
    assert run(program) == ""


DATAFLOW = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        y = R.call_dps_packed("test.negate", (x,), R.Tensor((2,), "float32"))
        R.output(y)
    return y
"""


@pytest.mark.rule("PU-5")
def test_an_impure_packed_function_says_how_it_is_registered_as_pure() -> None:
    hint = r'hint: register it as pure, relaxpy\.register_func\("test\.negate", f, pure=True\), or'
    with pytest.raises(StructInfoError, match=hint):
        from_source(DATAFLOW)
    with pytest.raises(StructInfoError, match=hint):
        from_source(
            DATAFLOW.replace("call_dps_packed", "call_packed").replace(
                "(x,), R.", "x, sinfo_args=R."
            )
        )
    relaxpy.register_func("test.negate", lambda x, y: None, pure=True)
    from_source(DATAFLOW)
