"""The source of one kernel: its loop tree, Python, LLVM IR and assembly."""

import re

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.numpy import runtime
from tests.ir.relax.texts import module

pytestmark = pytest.mark.skipif("x86_64" not in host().triple, reason="names registers of x86-64")

Module = module("""
@T.prim_func
def rows(a: T.handle, b: T.handle):
    T.func_attr({"global_symbol": "rows"})
    n = T.int64()
    A, B = (T.match_buffer(a, (n, 64)), T.match_buffer(b, (n,)))
    for i in range(n):
        B[i] = T.float32(0)
        for j in range(64):
            B[i] = B[i] + T.exp(A[i, j])

@T.prim_func
def external(A: f32[4]):
    T.func_attr({"global_symbol": "external"})
    for i in range(4):
        A[i] = T.call_extern("float32", "f", A[i])

@T.prim_func
def recurrence(A: f32[9]):
    T.func_attr({"global_symbol": "recurrence"})
    for i in range(8):
        if A[i] > T.float32(0):
            A[i + 1] = A[i] * T.float32(2)
        else:
            A[i + 1] = T.float32(1)

def main(x: f32[n, 64]) -> f32[n]:
    return R.call_tir(cls.rows, (x,), out_sinfo=f32[n])
""")


@pytest.fixture(scope="module")
def native() -> relaxpy.Executable:
    return relaxpy.compile(Module, target="native")


def test_the_tree_shows_loops_and_what_they_store(native: relaxpy.Executable) -> None:
    assert native.kernel_source("rows", "tree").splitlines() == [
        "tasks of i < n:",
        "    each lo <= i < hi:",
        "        over j < 64:",
        "            B[i] = add(B[i], T.exp(A[i, j])), from T.float32(0.0)",
    ]
    tree = native.kernel_source("recurrence", kind="tree")
    assert tree.startswith("for i < 8:")
    assert "A[i + 1] = A[i] * T.float32(2.0)" in tree


def test_python_is_a_function_that_computes_the_same(native: relaxpy.Executable) -> None:
    text = native.kernel_source("rows")
    assert "def rows(A, B):" in text
    names = {"np": np, "rt": runtime}
    exec(text, names)
    x, out = np.ones((3, 64), "float32"), np.empty(3, "float32")
    names["rows"](x, out)  # type: ignore[operator]
    np.testing.assert_allclose(out, native["main"](x), rtol=1e-6)


def test_machine_code_is_that_of_the_kernel_alone(native: relaxpy.Executable) -> None:
    llvm = native.kernel_source("rows", "llvm")
    [name] = re.findall(r"^define i32 @([\w.]+)", llvm, re.M)
    assert name.startswith("kernel.")
    assert ".entry" not in llvm
    assert " x float>" in llvm
    asm = native.kernel_source("rows", "asm")
    assert f"{name}:" in asm
    assert ("zmm" if host().vector_bits == 512 else "ymm") in asm


def test_kernels_of_numpy_have_a_tree_and_no_machine_code() -> None:
    numpy = relaxpy.compile(Module, target="numpy")
    assert "def rows(" in numpy.kernel_source("rows", "python")
    assert numpy.kernel_source("rows", "tree").startswith("tasks of i < n")
    with pytest.raises(MisuseError, match="kernel 'rows' has no asm source: it runs on NumPy"):
        numpy.kernel_source("rows", "asm")


def test_the_reason_why_there_is_no_native_code_is_in_the_message(native) -> None:
    with pytest.raises(MisuseError, match=r"'external' has no llvm source: .*NumPy: \w+") as error:
        native.kernel_source("external", "llvm")
    assert 'kind="python"' in str(error.value)


def test_wrong_names_and_kinds_are_errors(native: relaxpy.Executable) -> None:
    with pytest.raises(UnknownNameError, match="no kernel 'row'; it has rows, external") as error:
        native.kernel_source("row")
    assert "rows" in (error.value.diagnostic.hint or "")
    with pytest.raises(UnknownNameError, match="'main' is a function of the graph level"):
        native.kernel_source("main")
    with pytest.raises(UnknownNameError):
        native.kernel_source(3)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="one of 'tree', 'python', 'llvm', 'asm', found 'c'"):
        native.kernel_source("rows", "c")  # type: ignore[arg-type]
    reference = relaxpy.compile(Module, target="reference", relax_pipeline=None)
    with pytest.raises(MisuseError, match="the reference evaluator runs its text"):
        reference.kernel_source("rows", "python")


def test_a_loaded_executable_has_the_same_sources(native, tmp_path) -> None:
    native.save(tmp_path / "model.json")
    loaded = relaxpy.load_executable(tmp_path / "model.json")
    assert loaded.kernel_source("rows", "llvm") == native.kernel_source("rows", "llvm")
