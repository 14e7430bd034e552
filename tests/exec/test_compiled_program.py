"""A compiled program is a table: fresh, from the disk and from a file it is the same."""

import json
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.program.saved import saved_program
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.script import from_source

X = np.linspace(-2, 2, 12, dtype="float32").reshape(3, 4)
HEADER = 'x: R.Tensor((3, 4), "float32")'
TENSOR = 'sinfo_args=R.Tensor((3, 4), "float32")'
PROGRAMS = {
    "native": f"""
    @R.function
    def main({HEADER}):
        with R.dataflow():
            y = R.nn.softmax(R.add(x, R.const(1, "float32")))
            R.output(y)
        return y
""",
    "a packed function": f"""
    @R.function
    def main({HEADER}):
        y = R.exp(x)
        z = R.call_pure_packed("test.table.same", y, {TENSOR})
        u = R.add(z, x)
        return u
""",
    "a branch, and a function as a value": f"""
    @R.function
    def main({HEADER}):
        if R.max(x) > R.const(0, "float32"):
            y = Module.double(x)
        else:
            y = R.negative(x)
        return (y, Module.double)

    @R.function(private=True)
    def double({HEADER}):
        y = R.add(x, x)
        return y
""",
    "kernels alone": """
    @T.prim_func
    def double(a: T.Buffer((3, 4), "float32"), b: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(2)
""",
}


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relaxpy.register_func("test.table.same", lambda x: x, override=True)
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))


def compiled(name: str, target: str = "native") -> Executable:
    text = f"@I.ir_module\nclass Module:{PROGRAMS[name]}"
    return relaxpy.compile(from_source(text), target=target)


def table_of(executable: Executable) -> CompiledProgram:
    table = next(iter(executable._entries.values())).program.compiled
    assert table is not None
    return table


def form(table: CompiledProgram) -> Any:
    """The JSON form; constants are their elements."""
    saved = saved_program(table, lambda data: hash(data.tobytes()), lambda span: None, None)
    public = {symbol: (name, str(each)) for symbol, (name, each) in table.public.items()}
    return json.loads(json.dumps(saved)), table.code, public, table.private


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_from_the_disk_is_the_table_that_was_compiled(name: str, lowered: Any) -> None:
    first = form(table_of(compiled(name)))
    assert len(lowered) == 1
    assert form(table_of(compiled(name))) == first
    assert len(lowered) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_from_a_file_is_the_table_that_was_saved(name: str, tmp_path: Path) -> None:
    executable = compiled(name)
    executable.save(tmp_path / "program.rxp")
    loaded = relaxpy.load_executable(tmp_path / "program.rxp", native_code=True)
    forms, sources = [], []
    for table in (table_of(loaded), table_of(executable)):
        saved, *others = form(table)
        del saved["text"]  # its positions are not in the file
        forms.append([saved, *others])
        sources.append(table.text and table.text.source)
    assert forms[0] == forms[1]
    assert sources[0] == sources[1]


def test_its_text_says_how_each_function_runs() -> None:
    assert "softmax" not in repr(table_of(compiled("native")))
    table = repr(table_of(compiled("native")))
    assert f"main({HEADER.replace(chr(34) + 'float32', 'dtype=' + chr(34) + 'float32')})" in table
    assert ": native\n" in table
    assert "kernels that Python calls: none" in table
    table = repr(table_of(compiled("a packed function")))
    assert ": Python\n" in table
    assert "kernels that Python calls: add, tir_exp" in table
    table = repr(table_of(compiled("kernels alone")))
    assert ": native\n" in table
    assert "kernels that Python calls: double" in table
    assert "machine code: 0 bytes" in repr(table_of(compiled("native", "numpy")))


def test_the_evaluator_runs_no_table() -> None:
    assert compiled("native", "reference")["main"].program.compiled is None


def test_without_its_code_a_program_runs_in_python() -> None:
    table = table_of(compiled("a packed function"))
    other = table.without_code("a reason")
    kinds = {(row.backend, row.reason) for row in other.rows}
    assert kinds == {("numpy", "a reason"), ("python", "")}
    assert other.code == b""
    assert other.text is table.text
    with pytest.raises(MisuseError, match="a reason"):
        form(other)


def test_packed_calls_find_native_kernels_after_native_code_has_refused_arguments() -> None:
    both = (
        PROGRAMS["kernels alone"]
        + f"""
    @R.function(pure=False)
    def main({HEADER}):
        y = R.call_tir(Module.double, (x,), out_sinfo=R.Tensor((3, 4), "float32"))
        z = R.call_dps_packed("double", (y,), out_sinfo=R.Tensor((3, 4), "float32"))
        return z
"""
    )
    executable = relaxpy.compile(from_source(f"@I.ir_module\nclass Module:{both}"), "native")
    text = table_of(executable).text
    assert text is not None
    kernel: Any = text.symbols["double"]
    assert isinstance(kernel.run, BuiltinFunctionType)
    out = np.empty((4, 3), "float32").T
    with pytest.raises(relaxpy.errors.RelaxpyError):
        executable["double"](X, X[:2])
    executable["double"](X, out)
    executable["main"](X.astype("float64").view("float32")[:, ::2])
    np.testing.assert_array_equal(executable["main"](X), X * 4)
    kept: Any = text.symbols["double"]
    assert kept is kernel
