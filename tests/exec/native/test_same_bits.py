"""Native code computes the same bits on every CPU, on any number of threads, and from a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import relaxpy
from relaxpy.exec.machine.platforms import LINUX, X86_64
from relaxpy.exec.machine.process import own_platform, process
from relaxpy.exec.native.machine_code.machine import generating_for
from relaxpy.relax import Executable
from relaxpy.script import from_source
from relaxpy.target import Native
from tests.exec.native import same_bits

ROOT = Path(__file__).parents[3]
EMULATED = ROOT / ".arm" / "python"
here = own_platform()
pytestmark = [
    pytest.mark.skipif(
        here is None or here.system is not LINUX or here.architecture is not X86_64,
        reason="the code is for Linux on x86-64",
    ),
    pytest.mark.timeout(1800),  # Python takes minutes under an emulator
]
LEVELS = ("x86-64-v3", "x86-64-v4")


def run(*arguments: str, threads: int = 1, python: Path | str = sys.executable) -> dict[str, str]:
    """The digests that `same_bits` prints in a new process, which finds no code on disk."""
    settings = {"PYTHONPATH": str(ROOT), "RELAXPY_CACHE": "0", "RELAXPY_NUM_THREADS": str(threads)}
    command = [str(python), "-m", "tests.exec.native.same_bits", *arguments]
    done = subprocess.run(
        command, env=os.environ | settings, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout or "{}")
    return found


def needs(level: str) -> None:
    if level and not process().features(X86_64) >= set(X86_64.levels[level]):
        pytest.skip(f"this CPU is not of level {level}")


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    """What code for AVX2 computes on one thread."""
    found = run("x86-64-v3")
    assert found.keys() == same_bits.texts().keys()
    assert len(set(found.values())) == len(found)
    return found


def test_avx2_on_one_thread_and_this_cpu_on_two_compute_the_same_bits(expected) -> None:
    assert run("", threads=2) == expected


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("level", LEVELS)
def test_each_level_computes_the_same_bits_on_several_threads(level, threads, expected) -> None:
    needs(level)
    assert run(level, threads=threads) == expected


@pytest.mark.parametrize("level", LEVELS)
def test_files_compute_the_same_bits_in_another_process(level, expected, tmp_path) -> None:
    needs(level)
    run("save", str(tmp_path), f"linux-x86_64:{level}")
    for threads in (1, 3):
        assert run("load", str(tmp_path), threads=threads) == expected


@pytest.mark.skipif(not EMULATED.exists(), reason="make test-arm downloads an emulator")
@pytest.mark.parametrize("threads", [1, 3])
def test_neon_computes_the_same_bits(threads, expected) -> None:
    assert run("generic", threads=threads, python=EMULATED) == expected


@pytest.mark.skipif(not EMULATED.exists(), reason="make test-arm downloads an emulator")
def test_neon_computes_the_same_bits_from_a_file(expected, tmp_path) -> None:
    run("save", str(tmp_path), "linux-aarch64:generic")
    assert run("load", str(tmp_path), threads=2, python=EMULATED) == expected


def test_the_code_of_the_levels_is_not_the_same() -> None:
    registers = []
    for level in LEVELS:
        with same_bits.code_for(level):
            ex = relaxpy.compile(same_bits.module_of("matmul"), "native")
            text = ex.kernel_source("matmul", "asm")
            registers.append({kind for kind in ("%ymm", "%zmm") if kind in text})
    assert registers == [{"%ymm"}, {"%zmm"}]


def compiled(result: str, dtype: str = "float32", size: int = 96) -> Executable:
    text = (
        f"@R.function(pure=False)\ndef main(x: R.Tensor(({size}, {size}), '{dtype}')):\n"
        f"    y = {result}\n    return y\n"
    )
    return relaxpy.compile(relaxpy.IRModule.from_expr(from_source(text)), "native")


@pytest.mark.parametrize("cpu", ["x86-64-v3", "znver4"])
@pytest.mark.parametrize("size", [3, 96])
@pytest.mark.parametrize(
    "result",
    [
        *("matmul(x, x)", "nn.relu(R.matmul(x, x))", "einsum((x, x), 'ij,ik->jk')"),
        "nn.conv1d(R.expand_dims(x, 0), R.expand_dims(x, 2), padding=1)",
    ],
)
def test_products_of_bfloat16_are_named_on_every_cpu(result, size, cpu) -> None:
    """CPUs without the instructions have the same report: results differ from those with them."""
    machine = Native("linux-x86_64", cpu).machine_or_host()
    assert machine is not None
    with generating_for(machine):
        ex = compiled(f"R.{result}", "bfloat16", size)
    report = ex.report()
    assert set(report.varying.values()) == {"instructions for bfloat16"}
    [kernel] = report.varying
    assert f"bits may depend on the CPU: {kernel} (instructions for bfloat16)" in str(report)


def test_no_kernel_with_instructions_for_bfloat16_is_left_out() -> None:
    """The instructions are in the code of a kernel that the report names, and only there."""
    machine = Native("linux-x86_64", "znver4").machine_or_host()
    assert machine is not None
    found = {}
    with generating_for(machine):
        for dtype in ("bfloat16", "float32", "float16"):
            for result in ("R.matmul(x, x)", "R.add(x, x)", "R.nn.softmax(x)", "R.sum(x, axis=1)"):
                ex = compiled(result, dtype)
                for row in ex.report():
                    code = ex.kernel_source(row.kernel, "llvm")
                    found[result, dtype] = "dpbf16ps" in code, bool(row.depends_on)
    assert found.pop(("R.matmul(x, x)", "bfloat16")) == (True, True)
    assert set(found.values()) == {(False, False)}


@pytest.mark.parametrize("level", LEVELS)
def test_powers_are_named_on_every_cpu(level) -> None:
    with same_bits.code_for(level):
        [row] = compiled("R.power(x, x)").report()
    assert row.backend == ("numpy" if level == "x86-64-v4" else "native")
    assert row.depends_on == ("NumPy" if level == "x86-64-v4" else "NumPy's power on AVX-512")


def test_packed_functions_and_calls_that_are_lowered_late_are_named() -> None:
    relaxpy.register_func("tests.same_bits.twice", lambda x: x)
    sinfo = 'sinfo_args=R.Tensor((96, 96), "float32")'
    report = compiled(f'R.add(R.call_packed("tests.same_bits.twice", x, {sinfo}), x)').report()
    assert report.varying == {"tests.same_bits.twice": "Python"}
    assert "tests.same_bits.twice (Python)" in str(report)


def test_matrices_of_lapack_are_named() -> None:
    torch = pytest.importorskip("torch")
    from relaxpy.relax.frontend.torch import from_exported_program

    class Inverse(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x):
            return torch.linalg.inv(x + 1)

    module = from_exported_program(torch.export.export(Inverse(), (torch.eye(3),)))
    varying = relaxpy.compile(module, "native").report().varying
    assert len(varying) == 1
    assert [*varying.values()] == ["Python"]


def test_a_program_of_native_kernels_has_no_remark() -> None:
    report = compiled("R.nn.softmax(R.matmul(x, x))").report()
    assert report.varying == {}
    assert "bits" not in str(report)


def test_the_kernels_of_numpy_are_named_only_where_native_code_was_wanted() -> None:
    module = same_bits.module_of("softmax")
    report = relaxpy.compile(module, "numpy").report()
    assert set(report.varying.values()) == {"NumPy"}
    assert "bits" not in str(report)
