"""Whatever native code does not expect becomes a refusal, with a warning and the right result."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.script import from_source
from tests.ir.relax.texts import module

pytest.importorskip("llvmlite")

Array = np.ndarray[Any, Any]
X = np.arange(15, dtype="float32").reshape(3, 5)
W = np.arange(35, dtype="float32").reshape(5, 7) - 9
PROGRAM = """
def main(x: f32[3, 5]):
    y = R.nn.relu(R.matmul(x, w))
    z = R.call_pure_packed("test.faults.same", y, sinfo_args=f32[3, 7])
    return R.add(R.nn.softmax(z), R.nn.softmax(R.multiply(z, z)))

def kernels(x: f32[3, 5], y: f32["n", 5]):
    return (R.nn.relu(R.add(x, x)), R.nn.relu(R.add(y, y)), R.permute_dims(y))
"""

BACKEND, GRAPH = "relaxpy.exec.native.backend", "relaxpy.exec.program.graph.whole_modules"
WRITING = [
    f"{BACKEND}.classes_of",
    f"{BACKEND}.constant_arguments",
    f"{BACKEND}.check_native",
    f"{BACKEND}.program_of",
    f"{BACKEND}.check_price",
    f"{BACKEND}.with_epilogues",
    f"{BACKEND}.in_tasks",
    f"{BACKEND}.signature_of",
    f"{BACKEND}.KernelEmitter.__init__",
    f"{BACKEND}.KernelEmitter.emit",
    "relaxpy.exec.native.split.strategy_of",
    "relaxpy.exec.native.contraction.tiles.TileEmitter.emit",
    "relaxpy.exec.native.llvm.writer.Function.close",
    f"{BACKEND}.PartsAhead.add",
    f"{GRAPH}.GraphReader.read",
    f"{GRAPH}.GraphEmitter.emit",
    "relaxpy.exec.program.graph.outline.Outliner.outlined",
]
"""Functions that plan and write code: their exceptions refuse kernels or functions."""
LINKING = [
    f"{BACKEND}.compile_code",
    f"{BACKEND}.entry_table",
    "relaxpy.exec.native.calls.jit.compile_object",
    "relaxpy.exec.native.calls.jit.link_object",
    "relaxpy.exec.program.graph.link.NativeFunction.linked",
]
"""Functions that compile and link code: their exceptions leave a program without native code."""
FAULTS: dict[str, Callable[[], Exception]] = {
    "AssertionError": AssertionError,
    "KeyError": lambda: KeyError("name"),
    "TypeError": lambda: TypeError("expected an int"),
    "IndexError": lambda: IndexError("list index out of range"),
    "ZeroDivisionError": lambda: ZeroDivisionError("division by zero"),
    "struct.error": lambda: struct.error("argument out of range"),
    "RuntimeError": lambda: RuntimeError("LLVM is wrong"),
    "OSError": lambda: OSError("no memory"),
}


@pytest.fixture(autouse=True)
def _packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed function, because of which `main` runs in Python, and no cache."""
    monkeypatch.setenv("RELAXPY_CACHE", "0")
    relaxpy.register_func("test.faults.same", lambda x: x, override=True)


def program() -> relaxpy.IRModule:
    return module(PROGRAM.replace("w)", f'R.const({W.tolist()}, "float32"))'))


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def check(executable: relaxpy.Executable) -> None:
    """Check the results of both functions."""
    z = np.maximum(X @ W, 0)
    found = executable["main"](X)
    np.testing.assert_allclose(found, softmax(z) + softmax(z * z), rtol=1e-5, atol=1e-6)
    for result, wanted in zip(executable["kernels"](X, -X), (X + X, -X * 0, -X.T), strict=True):
        np.testing.assert_array_equal(result, wanted)


def compiled(place: str, error: BaseException) -> tuple[relaxpy.Executable, list[str]]:
    """The executable where the function of that name raises an error, and the warnings."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        patch.setattr(place, fail)
        executable = relaxpy.compile(program())
        check(executable)
    return executable, [str(w.message) for w in found if w.category is RuntimeWarning]


def test_without_a_fault_everything_is_native() -> None:
    executable = relaxpy.compile(program())
    check(executable)
    # The packed function that the program calls has a row, too.
    assert {row.backend for row in executable.report()} == {"native", "python"}


@pytest.mark.each_choice
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [*WRITING, *LINKING])
def test_a_fault_refuses_what_it_is_in(place: str, fault: str) -> None:
    error = FAULTS[fault]()
    executable, warned = compiled(place, error)
    assert warned
    text = str(error) if fault in ("RuntimeError", "OSError") else type(error).__name__
    assert all(text in warning for warning in warned)
    report = executable.report()
    assert text in str(report)
    if place in LINKING:
        assert {row.backend for row in report} == {"numpy", "python"}
    check(executable)


@pytest.mark.each_choice
@pytest.mark.parametrize("place", [WRITING[3], WRITING[9], *WRITING[-3:], *LINKING])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), CompileError("the program is wrong")]
)
def test_errors_of_users_and_of_memory_pass(place: str, error: BaseException) -> None:
    with pytest.raises(type(error)):
        compiled(place, error)


def test_a_refused_program_is_saved_and_loaded(tmp_path) -> None:
    executable, _ = compiled(f"{BACKEND}.KernelEmitter.emit", AssertionError())
    executable.save(tmp_path / "model.rxp")
    check(relaxpy.load_executable(tmp_path / "model.rxp", native_code=True))


def test_a_fault_is_not_kept_on_disk(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    text = "@R.function\ndef main(x: R.Tensor((3, 5), 'float32')):\n    return R.add(x, x)\n"
    for place in (f"{BACKEND}.program_of", f"{GRAPH}.GraphEmitter.emit"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, lambda *args, **kwargs: [][1])
            with pytest.warns(RuntimeWarning, match="since main|since add"):
                executable = relaxpy.compile(from_source(text))
        assert "not kept on disk: " in str(executable.report())
        np.testing.assert_array_equal(executable["main"](X), X + X)
    executable = relaxpy.compile(from_source(text))
    np.testing.assert_array_equal(executable["main"](X), X + X)
    assert {row.backend for row in executable.report()} == {"native"}
    assert "kept" not in str(executable.report())
