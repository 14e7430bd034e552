"""Exported programs from C and C++: the header, statuses, threads, and the linker."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.export.c_header import written
from relaxpy.exec.export.cpu import LEAVES, exporting_machine
from relaxpy.exec.loops.nest.wrapping import wrapped
from relaxpy.exec.native.machine_code.machine import machine_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.plugins.cli.main import main
from relaxpy.script import from_source
from relaxpy.support.dataclass import replace
from tests.exec.export.library import Library, StatusError
from tests.exec.export.test_export import HEAD, PROGRAMS, assert_same, program, pytestmark
from tests.exec.native import same_bits

__all__ = ["pytestmark"]
ROOT = Path(__file__).parents[3]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"]
NETWORK = same_bits.PACKED
DRIVER = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "net_pool.h"

static float *numbers(size_t count) {
    float *memory = (float *)malloc(count * sizeof(float));
    for (size_t i = 0; i < count; i++) memory[i] = (float)(i % 97) / 97 - 0.5f;
    return memory;
}

int main(int argc, char **argv) {
    net_pool pool;
    net_threads threads;
    net_main_inputs inputs;
    net_main_outputs outputs;
    float *x, *y;
    char *workspace;
    int64_t bytes;
    int32_t status;
    memset(&inputs, 0, sizeof inputs);
    memset(&outputs, 0, sizeof outputs);
    if (argc != 3 || net_pool_start(&pool, atoi(argv[2]), &threads)) return 2;
    inputs.n = atoi(argv[1]);
    inputs.x = x = numbers((size_t)inputs.n * 96);
    inputs.threads = &threads;
    bytes = net_main_workspace(&inputs);
    if (bytes < 0 || net_main_result_sizes(&inputs, &outputs)) return 3;
    outputs.result = y = numbers((size_t)(outputs.result_shape[0] * outputs.result_shape[1]));
    workspace = (char *)malloc((size_t)bytes);
    inputs.workspace_bytes = bytes;
    for (int i = 0; i < 20; i++) {
        status = net_main(&inputs, &outputs, workspace);
        if (status) {
            fprintf(stderr, "%s\\n", net_error(status));
            return 1;
        }
    }
    fwrite(y, 4, (size_t)(inputs.n * 64), stdout);
    net_pool_stop(&pool);
    free(x);
    free(y);
    free(workspace);
    return net_cpu();
}
"""


def network() -> relaxpy.Executable:
    mod = from_source(HEAD + NETWORK)
    weights = {"w1": same_bits.numbers(96, 160), "w2": same_bits.numbers(160, 64, seed=3)}
    return relaxpy.compile(relax.transform.BindParams("main", weights)(mod), "native")


def run(*command: str | Path, folder: Path | None = None, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [*map(str, command)], cwd=folder, input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"], ["g++", "-std=c++17"]], ids=["C", "C++"])
@pytest.mark.parametrize("suffix", [".o", ".a", ".so"])
def test_a_program_in_c_computes_the_same_bits(
    compiler: list[str], suffix: str, tmp_path: Path
) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]}")
    executable = network()
    written = executable.export(tmp_path / f"net{suffix}", pool=True)
    assert [file.name for file in written] == [f"net{suffix}", "net.h", "net_pool.h"]
    source = tmp_path / ("main.c" if "c11" in compiler[1] else "main.cc")
    source.write_text(DRIVER)
    library = ["-L.", "-lnet", "-Wl,-rpath,."] if suffix == ".so" else [written[0].name]
    if suffix == ".so":
        written[0].rename(tmp_path / "libnet.so")
        (tmp_path / "net.so").symlink_to("libnet.so")
    options = [*compiler, *WARNINGS, *SANITIZERS]
    run(*options, source.name, *library, "-pthread", "-o", "main", folder=tmp_path)
    for rows, threads in ((1, 1), (7, 1), (300, 1), (300, 4), (301, 3)):
        x = (np.arange(rows * 96) % 97).astype("float32") / np.float32(97) - np.float32(0.5)
        expected = executable["main"](x.reshape(rows, 96))
        found = run(tmp_path / "main", str(rows), str(threads), folder=tmp_path)
        assert_same(np.frombuffer(found, "float32").reshape(rows, 64), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_header_is_valid_c_and_c_plus_plus(name: str, tmp_path: Path) -> None:
    header = relaxpy.compile(program(name), "native").export(tmp_path / "model.o", pool=True)[2]
    text = f'#include "{header.name}"\nint main(void) {{ return model_cpu(); }}\n'
    for compiler, suffix in ((["cc", "-std=c11"], ".c"), (["g++", "-std=c++17"], ".cc")):
        (tmp_path / f"main{suffix}").write_text(text)
        options = [*compiler, *WARNINGS, "-fsyntax-only", f"main{suffix}"]
        if shutil.which(compiler[0]):
            run(*options, folder=tmp_path)


def test_two_programs_are_in_one_process(tmp_path: Path) -> None:
    """All names of an archive but those of its header are its own."""
    executable = network()
    for name in ("first", "second"):
        executable.export(tmp_path / f"{name}.a")
    (tmp_path / "main.c").write_text(
        '#include "first.h"\n#include "second.h"\n'
        "int main(void) {\n"
        "    first_main_inputs a = {0};\n    second_main_inputs b = {0};\n"
        "    a.n = b.n = 3;\n"
        "    return first_main_workspace(&a) != second_main_workspace(&b) || a.n != 3;\n}\n"
    )
    run("cc", "main.c", "first.a", "second.a", "-o", "main", folder=tmp_path)
    run(tmp_path / "main")


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_wrong_arguments_have_statuses_and_nothing_is_written(inside: bool, tmp_path: Path) -> None:
    library = Library(network(), tmp_path, name="net", weights_inside=inside)
    call = library["main"]
    x = same_bits.numbers(5, 96)
    out = np.full((5, 64), 7, "float32")
    memory = np.zeros(1 << 16, np.uint8)

    def status(workspace: int | None = None, result: int | None = None, **changes: int) -> int:
        given, _ = call.prepared([x])
        for field, value in changes.items():
            setattr(given, field, value)
        outputs = call.outputs()
        outputs.result = out.ctypes.data if result is None else result
        at = memory.ctypes.data if workspace is None else workspace
        found: int = call.run(ctypes.byref(given), ctypes.byref(outputs), ctypes.c_void_p(at))
        return found

    given, _ = call.prepared([x])
    needed = call.workspace(ctypes.byref(given))
    for size in (-1, -(1 << 62), 1 << 40, 1 << 62):
        assert status(n=size) == -2
        given.n = size
        assert call.workspace(ctypes.byref(given)) == -2
    assert status(workspace_bytes=needed - 1) == -3
    assert status(workspace_bytes=-5) == -3
    assert status(workspace=0) == -3
    assert status(x=x.ctypes.data + 1) == -4
    assert status(x=0) == -4
    assert status(result=out.ctypes.data + 2) == -4
    assert status(result=0) == -4
    if not inside:
        other = library.weights.copy()
        other[20] ^= 1
        assert status(weights=0) == -5
        assert status(weights=library.weights.ctypes.data + 8) == -5
        assert status(weights=other.ctypes.data) == -5
        for size in (len(other) - 1, 64, -1):
            assert status(weights_bytes=size) == -5
    assert (out == 7).all()
    assert status(workspace_bytes=needed) == 0
    assert status(n=0, x=0, result=0, workspace_bytes=needed) == 0
    texts = {library.text(-n) for n in range(1, 6)}
    assert len(texts) == 5
    assert library.text(0) == "success"
    assert library.text(12345) == library.text(-12345) == "an unknown status"


MOST = exporting_machine().platform.most_bytes
CUBE = """
@I.ir_module
class Program:
    @T.prim_func(private=True)
    def cube(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.alloc_buffer((n, n, n), "float32")
        for i, j, k in T.grid(n, n, n):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = A[vi] + A[vj] * A[vk]
        for i in range(n):
            with T.block("B"):
                v = T.axis.spatial(n, i)
                B[v] = C[v, n - 1 - v, 0]
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        return R.call_tir(Program.cube, (x,), R.Tensor((n,), "float32"))
"""


def test_a_workspace_is_never_a_number_that_overflowed(tmp_path: Path) -> None:
    """The memory of the kernel has n * n * n elements: for 2**22 rows 2**68 bytes."""
    library = Library(relaxpy.compile(from_source(HEAD + CUBE), "native"), tmp_path)
    call = library["main"]
    given = call.inputs()
    for size in (1, 17, 1000, 1 << 17, 1 << 21, 1 << 22, (1 << 22) + 1, 3 << 20, (1 << 31) - 1):
        given.n = size
        found, needed = call.workspace(ctypes.byref(given)), 4 * size**3
        assert found == -2 if needed >= MOST else needed <= found <= needed + 128
    x = np.arange(5, dtype="float32")
    assert_same(call(x), x + x[::-1] * x[0])


def test_code_for_other_cpus_of_this_kind(tmp_path: Path) -> None:
    """Code of each level has the same bits where the CPU has it, and elsewhere a status."""
    executable, own = network(), exporting_machine()
    x = same_bits.numbers(37, 96)
    expected = executable["main"](x)
    levels = own.platform.architecture.levels
    statuses = []
    for number, level in enumerate(levels):
        machine = machine_of(own.platform, level)
        library = Library(executable, tmp_path, name=f"net{number}", machine=machine)
        if all(map(own.has, levels[level])):
            assert_same(library["main"](x), expected)
            statuses.append(library.code[f"net{number}_cpu"]())
        else:
            assert library.code[f"net{number}_cpu"]() == -1
    assert 0 in statuses
    assert set(statuses) == {0}


def test_sums_of_columns_that_fill_no_vectors(tmp_path: Path) -> None:
    """Their order is that of every CPU."""
    text = (
        "@R.function\ndef main(x: R.Tensor((1000, 1016), 'float32')):\n    return R.sum(x, axis=0)"
    )
    executable = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), "native")
    own, x = exporting_machine(), np.random.default_rng(0).standard_normal((1000, 1016), "float32")
    for number, (level, needed) in enumerate(own.platform.architecture.levels.items()):
        if all(map(own.has, needed)):
            machine = machine_of(own.platform, level)
            library = Library(executable, tmp_path, name=f"sum{number}", machine=machine)
            assert_same(library["main"](x), executable["main"](x))


def test_a_cpu_that_lacks_instructions_gets_a_status(tmp_path: Path) -> None:
    """Whatever the function that asks for a feature finds, code that needs others does not run."""
    own, lacking = exporting_machine(), []
    known = {f for bits in LEAVES.values() for f in bits.values()} if own.has("avx2") else set()
    for feature in sorted(known):
        if own.has(feature):
            continue
        lacking.append(feature)
        machine = replace(own, features=f"{own.features},+{feature}")
        library = Library(network(), tmp_path, name=f"net_{feature}", machine=machine)
        call = library["main"]
        out = np.full((2, 64), 7, "float32")
        given, _ = call.prepared([same_bits.numbers(2, 96)])
        outputs = call.outputs()
        outputs.result = out.ctypes.data
        memory = np.zeros(1 << 16, np.uint8)
        arguments = ctypes.byref(given), ctypes.byref(outputs), ctypes.c_void_p(memory.ctypes.data)
        for _ in range(2):  # the second call has the answer of the first one
            assert call.run(*arguments) == -1
        assert (out == 7).all()
    if not lacking:
        pytest.skip("this CPU has everything that code asks for")


def test_programs_of_other_targets_and_from_files_are_exported(tmp_path: Path) -> None:
    executable = network()
    executable.save(tmp_path / "net.rxp")
    loaded = relaxpy.load_executable(tmp_path / "net.rxp")
    mod = from_source(HEAD + NETWORK)
    x, weights = same_bits.numbers(5, 96), (same_bits.numbers(96, 160), same_bits.numbers(160, 64))
    assert_same(Library(loaded, tmp_path, name="a")["main"](x), executable["main"](x))
    expected = relaxpy.compile(mod, "native")["main"](x, *weights)
    for target in ("numpy", "reference"):
        other = relaxpy.compile(mod, target)
        found = Library(other, tmp_path, name=f"from_{target}")["main"](x, *weights)
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


def test_the_command_line_writes_a_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.py"
    model.write_text(f"{HEAD}{NETWORK}")
    out, weights = tmp_path / "out.so", tmp_path / "out.weights"
    assert main(["export", str(model), "--dim", "n=3", "--pool", "-o", str(out)]) == 0
    assert {"out.so", "out.h", "out_pool.h"} < {file.name for file in tmp_path.iterdir()}
    assert "OUT_MAIN_WORKSPACE" in (tmp_path / "out.h").read_text()
    words = ["export", str(model), "--for", "linux-aarch64:generic", "--name", "other"]
    assert main([*words, "--weights", str(weights), "-o", str(tmp_path / "out.a")]) == 0
    assert weights.exists()
    assert "other_main" in (tmp_path / "other.h").read_text()
    for wrong in (["-o", "out.xyz"], ["--for", "linux-vax", "-o", "out.a"]):
        capsys.readouterr()
        assert main(["export", str(model), *wrong]) == 2
        assert "error" in capsys.readouterr().err


def test_functions_with_the_names_of_others_are_told_apart(tmp_path: Path) -> None:
    names = ["error", "main", "main_workspace", "cpu", "cpu_known", "pool_start", "threads", "int"]
    names.append("main_2")
    text = "".join(
        f"    @R.function\n    def {name}(x: R.Tensor((3,), 'float32')):\n"
        f"        return R.add(x, R.const({float(n)}, 'float32'))\n"
        for n, name in enumerate(names)
    )
    executable = relaxpy.compile(from_source(f"{HEAD}@I.ir_module\nclass Program:\n{text}"))
    library = Library(executable, tmp_path)
    for n, name in enumerate(names):
        assert_same(library[name](np.zeros(3, "float32")), np.full(3, n, "float32"))
    header = executable.export(tmp_path / "model.o", pool=True)[2]
    (tmp_path / "main.c").write_text(f'#include "{header.name}"\nint main(void) {{ return 0; }}\n')
    run("cc", "-std=c11", *WARNINGS, "-fsyntax-only", "main.c", folder=tmp_path)


NAMES = re.findall(
    r"\w+",
    "and_eq char16_t consteval co_await decltype linux unix int8_t uint8_t int64_t NULL errno near"
    " function this constructor threads weights_bytes failed_size new null struct INT64_MAX EOF I"
    " M_PI PRId64 stdin complex BUFSIZ L_tmpnam X eof NULL_2",
)
"""Names that mean something else in C, C++, JavaScript or the header."""


def named(names: Sequence[str]) -> relaxpy.Executable:
    """A program whose parameters and size have names, and which returns the sum of all elements."""
    size = relaxpy.tir.Var(names[-1], "int64")
    params = [relax.Var(n, relax.TensorStructInfo((size,), "float32")) for n in names]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        total = reduce(lambda a, b: builder.emit(relax.op.add(a, b)), params)
        builder.emit_func_output(builder.emit(relax.op.sum(total)))
    return relaxpy.compile(builder.finalize(), "native")


@pytest.mark.parametrize("standard", ["c99", "c11", "gnu17", "c++17", "c++20"])
def test_names_that_mean_something_else(standard: str, tmp_path: Path) -> None:
    executable = named(NAMES)
    header = executable.export(tmp_path / "model.o", pool=True)[2]
    source = tmp_path / ("main.cc" if "++" in standard else "main.c")
    heads = "stdio stdlib math errno limits inttypes signal" + " complex" * ("++" not in standard)
    before = "".join(f"#include <{head}.h>\n" for head in heads.split())
    source.write_text(f'{before}#include "{header.name}"\nint main(void) {{ return 0; }}\n')
    compiler = "g++" if "++" in standard else "cc"
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    run(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", source.name, folder=tmp_path)


def test_macros_have_names_of_their_own(tmp_path: Path) -> None:
    """Those are in capitals: of two functions, of the header, and of the workspaces."""
    names = ["step", "Step", "STEP_2", "H", "STEP_WORKSPACE"]
    text = "".join(
        f"    @R.function\n    def {name}(x: R.Tensor(({500 * n + 9},), 'float32')):\n"
        f"        return R.exp(R.sum(R.sin(x)))\n"
        for n, name in enumerate(names)
    )
    executable = relaxpy.compile(from_source(f"{HEAD}@I.ir_module\nclass Program:\n{text}"))
    header = executable.export(tmp_path / "MODEL.o", pool=True)[2]
    (tmp_path / "main.c").write_text(f'#include "{header.name}"\nint main(void) {{ return 0; }}\n')
    run("cc", "-std=c11", *WARNINGS, "-fsyntax-only", "main.c", folder=tmp_path)


ERRORS = """
@I.ir_module
class Program:
    @R.function
    def rows(x: R.Tensor(("n", 5), "float32"), i: R.Tensor(("k",), "int64")):
        return R.exp(R.take(x, i, axis=0))
    @R.function(pure=False)
    def asserted(x: R.Tensor(("n",), "float32")):
        _ = R.assert_op(R.less(R.max(x), R.const(3.0, "float32")), format="too large")
        return R.negative(x)
    @R.function
    def equal(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        z = R.match_cast(y, R.Tensor((n,), "float32"))
        return R.add(x, z)
    @R.function
    def divided(x: R.Tensor(("n",), "int64"), y: R.Tensor(("n",), "int64")):
        return R.floor_divide(x, y)
"""


def test_errors_of_programs_have_numbers_and_texts(tmp_path: Path) -> None:
    executable = relaxpy.compile(from_source(HEAD + ERRORS), "native")
    library = Library(executable, tmp_path)
    x = same_bits.numbers(7, 5)
    for index in (-1, 7, 1 << 40):
        indices = np.array([0, 6, index, 3])
        with pytest.raises(StatusError, match="outside dimension 0 of buffer x") as error:
            library["rows"](x, indices)
        assert error.value.args[0] > 0
        call = library["rows"]
        with pytest.raises(StatusError):
            call(x, indices)
        assert call.failed == (index, 7)
    with pytest.raises(StatusError, match="assertion failed: too large"):
        library["asserted"](np.full(3, 4, "float32"))
    call = library["equal"]
    with pytest.raises(StatusError, match="expected to be n"):
        call(np.zeros(3, "float32"), np.zeros(4, "float32"))
    assert call.failed == (4, 3)
    with pytest.raises(StatusError, match="division by zero"):
        library["divided"](np.arange(3), np.array([1, 0, 2]))
    assert_same(library["divided"](np.arange(3), np.array([1, 4, 2])), np.array([0, 0, 1]))


def test_the_page_of_tasks_shows_programs_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "how-to" / "export-a-model.md").read_text(encoding="utf-8")
    [python] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    call, mapped, threads = re.findall(r"^```c\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.py").write_text(python)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "page.py"]
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    program = call.replace(
        "model_main_inputs inputs",
        "int main(void) {\nfloat x[12], y[6];\n"
        "for (int i = 0; i < 12; i++) x[i] = (float)i;\nmodel_main_inputs inputs",
    )
    head = "#include <stdio.h>\n#include <stdlib.h>\n"
    end = 'for (int i = 0; i < 6; i++) printf("%g ", (double)y[i]);\nreturn status;\n}\n'
    (tmp_path / "main.c").write_text(f"{head}{program}{end}")
    run("cc", "-std=c11", *WARNINGS, "main.c", "model.a", "-o", "main", folder=tmp_path)
    assert run(tmp_path / "main") == b"0.5 " * 6
    declaration, use = threads.split("\n\n")
    assert " ".join(declaration.split()) == (
        "void parallel_for(void *owner, void (*task)(void *work, int64_t n, int64_t thread),"
        " void *work, int64_t tasks);"
    )
    assert "inputs.weights" in mapped
    assert "inputs.threads" in use


EXTERN = """
@I.ir_module
class Program:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "int64")):
        n = T.int64()
        a = R.exp(x)
        b = R.call_dps_packed("test.scaled", (a, y), R.Tensor((n, 4), "float32"))
        c = R.call_pure_packed("test.sum", b, sinfo_args=R.Tensor((n,), "float32"))
        return (R.negative(b), c)
"""
GIVEN = """\
#include <stdio.h>
#include "model.h"
int32_t test_scaled(const float *input0, const int64_t *input0_shape, const int64_t *input1,
                    const int64_t *input1_shape, float *output0, const int64_t *output0_shape) {
    if (input0_shape[0] != output0_shape[0] || input1_shape[0] != 4) return 1;
    for (int64_t i = 0; i < 4 * input0_shape[0]; i++) output0[i] = input0[i] * (float)input1[i % 4];
    return input0_shape[0] == 3 ? 77 : 0;
}
int32_t test_sum(const float *input0, const int64_t *input0_shape, float *output0,
                 const int64_t *output0_shape) {
    (void)output0_shape;
    for (int64_t i = 0; i < input0_shape[0]; i++) {
        output0[i] = 0;
        for (int64_t j = 0; j < 4; j++) output0[i] += input0[4 * i + j];
    }
    return 0;
}
int main(void) {
    static char workspace[65536];
    float x[12], result[12], sums[3];
    int64_t y[4] = {1, 2, 3, 4};
    for (int i = 0; i < 12; i++) x[i] = 0;
    model_main_inputs inputs = {.x = x, .y = y, .n = 2};
    model_main_outputs outputs = {.result0 = result, .result1 = sums};
    if (model_main(&inputs, &outputs, workspace)) return 1;
    printf("%g %g ", (double)result[5], (double)result[7]);
    printf("%g %g\\n", (double)sums[0], (double)sums[1]);
    inputs.n = 3;
    printf("%s", model_error(model_main(&inputs, &outputs, workspace)));
    printf(", %d\\n", (int)outputs.failed_index);
    return 0;
}
"""


@pytest.mark.parametrize(
    ("first", "second", "operand", "problem"),
    [
        ("t.f", "t.f", "y", "t.f is t_f in C, which has other datatypes or ranks in another call"),
        ("t.f", "t.f", "z", "t.f is t_f in C, which has other datatypes or ranks in another call"),
        ("t.f", "t_f", "x", "t_f is t_f in C, which t.f is, too"),
        ("int", "t.f", "x", "int is int in C, which is a word of C"),
        ("model.main", "t.f", "x", "model.main is model_main in C, which is a name of the library"),
        ("model.g", "t.f", "x", "model.g is model_g in C, which is a name of the library"),
        ("t.f", "model.Error", "x", "model.Error is model_Error in C, which is a name of the lib"),
    ],
)
def test_a_function_of_c_is_one_packed_function_with_one_signature(
    first: str, second: str, operand: str, problem: str, tmp_path: Path
) -> None:
    calls = zip("ab", (first, second), ("x", operand), strict=True)
    lines = [f'{n} = R.call_dps_packed("{f}", ({o},), {o}.struct_info)' for n, f, o in calls]
    x, y, z = 'R.Tensor((4,), "float32")', 'R.Tensor((4,), "int32")', 'R.Tensor((2, 2), "float32")'
    for name, sinfo in (("x", x), ("y", y), ("z", z)):
        lines = [line.replace(f"{name}.struct_info", sinfo) for line in lines]
    text = f"""
@I.ir_module
class Program:
    @R.function(pure=False)
    def main(x: {x}, y: {y}, z: {z}):
        {lines[0]}
        {lines[1]}
        return (a, b)
    @R.function
    def g(x: {x}):
        return R.exp(x)
"""
    executable = relaxpy.compile(from_source(HEAD + text), "native")
    with pytest.raises(CompileError, match=re.escape(problem)):
        executable.export(tmp_path / "model.a", extern=[first, second])
    assert [*tmp_path.iterdir()] == []


def test_packed_functions_are_given_in_c(tmp_path: Path) -> None:
    executable = relaxpy.compile(from_source(HEAD + EXTERN), "native")
    with pytest.raises(CompileError) as error:
        executable.export(tmp_path / "model.a", extern=["test.sum"])
    assert "the packed function test.scaled" in str(error.value)
    assert "the packed function test.sum" not in str(error.value)
    with pytest.raises(MisuseError, match=r"no exported function calls 'test\.sun'"):
        executable.export(tmp_path / "model.a", extern=["test.sum", "test.scaled", "test.sun"])
    executable.export(tmp_path / "model.a", extern=["test.sum", "test.scaled"])
    (tmp_path / "main.c").write_text(GIVEN)
    options = ["cc", "-std=c11", *WARNINGS, *SANITIZERS]
    run(*options, "main.c", "model.a", "-o", "main", folder=tmp_path)
    found = run(tmp_path / "main").decode().splitlines()
    assert found == ["-2 -4 10 10", "test_scaled returned a status, 77"]


@pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no compiler of Rust")
def test_the_page_of_tasks_shows_a_program_in_rust(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "export-a-model.md").read_text(encoding="utf-8")
    [rust] = re.findall(r"^```rust\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    [command] = re.findall(r"`(rustc [^`]+)`", page)
    mod = from_source(HEAD + PAGE)
    weights = {"w": np.ones((4, 2), "float32")}
    executable = relaxpy.compile(relax.transform.BindParams("main", weights)(mod), "native")
    executable.export(tmp_path / "libmodel.a", name="model")
    (tmp_path / "main.rs").write_text(rust)
    run(*command.split(), folder=tmp_path)
    assert run(tmp_path / "main") == b"success [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]\n"


CHOSEN = """
@I.ir_module
class Program:
    @T.prim_func(private=True)
    def chosen(A: T.Buffer((4, 3), "float32"), I: T.Buffer((4, 3), "float32"),
               B: T.Buffer((4, 3), "float32")):
        C = T.alloc_buffer((4, 3), "float32")
        for i, j in T.grid(4, 3):
            with T.block("signs"):
                v, w = T.axis.remap("SS", [i, j])
                C[v, w] = T.cos(I[v, w])
        for i, j in T.grid(4, 3):
            with T.block("chosen"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = T.if_then_else(
                    C[v, w] > T.float32(0.7), A[v, T.Cast("int64", I[v, w])], T.float32(0)
                )
    @R.function
    def main(x: R.Tensor((4, 3), "float32"), i: R.Tensor((4, 3), "float32")):
        return R.call_tir(Program.chosen, (x, i), R.Tensor((4, 3), "float32"))
"""


def test_an_index_that_is_not_used_is_not_tested(tmp_path: Path) -> None:
    """Native code tests without conditions that a kernel computes, as NumPy decides where it fails.

    Nothing decides for a library, which tests with them.
    """
    executable = relaxpy.compile(from_source(HEAD + CHOSEN), "native")
    call = Library(executable, tmp_path)["main"]
    x, i = same_bits.numbers(4, 3), np.full((4, 3), 5, "float32")  # the cosine of 5 is 0.28
    i[2] = 0.2
    assert_same(call(x, i), executable["main"](x, i))
    i[3, 1] = 12.5  # whose cosine is 0.998
    with pytest.raises(StatusError, match="chosen: an index is outside dimension 1 of buffer A"):
        call(x, i)
    assert call.failed == (12, 3)


PAGE = """
@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("batch", 4), "float32"), w: R.Tensor((4, 2), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.matmul(x, w))
            R.output(y)
        return y
"""
REFUSED = """
@I.ir_module
class Program:
    @R.function(pure=False)
    def first(x: R.Tensor((4,), "float32")):
        y = R.call_packed("test.export.one", x, sinfo_args=R.Tensor((4,), "float32"))
        z = R.call_packed("test.export.two", y, sinfo_args=R.Tensor((4,), "float32"))
        return z
    @R.function
    def second(x: R.Tensor(dtype="float32")):
        return R.add(x, x)
    @R.function(pure=False)
    def third(x: R.Tensor((4,), "float32")):
        _ = R.print(x)
        return x
    @R.function
    def fine(x: R.Tensor((4,), "float32")):
        return R.add(x, x)
"""


def test_all_that_needs_python_is_refused_at_once(tmp_path: Path) -> None:
    executable = relaxpy.compile(from_source(HEAD + REFUSED))
    with pytest.raises(CompileError) as error:
        executable.export(tmp_path / "model.so")
    text = str(error.value)
    for expected in (
        "first: it calls the packed function test.export.one",
        "first: it calls the packed function test.export.two",
        "second: ",
        "third: it calls relax.print",
    ):
        assert expected in text
    assert "fine" not in text
    assert [*tmp_path.iterdir()] == []


def test_misuse_of_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = network()
    for path, options, message in (
        ("model.xyz", {}, "suffix"),
        ("model.dll", {}, "ends in .so"),
        ("model.o", {"target": "linux-m68k"}, "no system"),
        ("model.o", {"name": "a-b"}, "identifier"),
        ("model.o", {"target": 3}, "Native"),
        ("model.o", {"weights": tmp_path / "model.o"}, "not in a file that ends in .o"),
        ("model.o", {"weights": tmp_path / "model.h"}, "not in a file that ends in .h"),
        ("model.wasm", {"weights": tmp_path / "model.js"}, "not in a file that ends in .js"),
    ):
        with pytest.raises(MisuseError, match=message):
            executable.export(tmp_path / path, **options)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr("relaxpy.exec.export.files.find_spec", lambda name: None)
    with pytest.raises(CompileError, match="ziglang"):
        executable.export(tmp_path / "model.so")
    assert [*tmp_path.iterdir()] == []


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    executable, folder = network(), tmp_path / "model.h"
    with pytest.raises(FileNotFoundError, match="missing'"):
        executable.export(tmp_path / "model.o", weights=tmp_path / "missing" / "weights")
    assert [*tmp_path.iterdir()] == []
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match=r"model\.h'"):
        executable.export(tmp_path / "model.o", weights=tmp_path / "model.weights")
    assert [*tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize("suffix", [".o", ".a"])
@pytest.mark.parametrize(
    ("target", "magic"),
    [
        ("linux-x86_64:x86-64-v3", b"\x7fELF\x02\x01\x01"),
        ("linux-aarch64:neoverse-n1", b"\x7fELF\x02\x01\x01"),
        ("macos-x86_64", b"\xcf\xfa\xed\xfe\x07"),
        ("macos-aarch64", b"\xcf\xfa\xed\xfe\x0c"),
        ("windows-x86_64", b"\x64\x86"),
        ("windows-aarch64", b"\x64\xaa"),
    ],
)
def test_objects_have_the_format_of_their_system(
    target: str, magic: bytes, suffix: str, tmp_path: Path
) -> None:
    file = network().export(tmp_path / f"net{suffix}", target=target)[0]
    content = file.read_bytes()
    assert content.startswith(magic if suffix == ".o" else b"!<arch>\n")
    assert magic in content
    weights = same_bits.numbers(96, 160)
    assert weights[:1, :4].tobytes() in content  # the weights are inside
    assert b"net_main_workspace" in content
    assert sys.byteorder == "little"


def test_sizes_in_comments_are_written_plainly() -> None:
    n = tir.Var("n", "int64")
    assert written(ops.maximum(wrapped(wrapped(n + 1) * 4), 3)) == "max((n + 1) * 4, 3)"
