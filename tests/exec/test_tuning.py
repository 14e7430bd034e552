"""Numbers that only speed depends on stand in one table, `relaxpy/exec/machine/tuning.py`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

EXEC = Path(__file__).parents[2] / "relaxpy/exec"
#: Files of facts: of systems and CPUs, of the layout of Python's objects and of ELF, coefficients
#: of polynomials, and how peaks and this machine are measured.
FACTS = {
    *("machine/platforms.py", "machine/process.py", "inspect/self_test.py", "machine/tuning.py"),
    *("export/cpu.py", "native/llvm/narrow_floats.py"),
    *("native/calls/interpreter.py", "native/calls/entry_table.py", "native/calls/enter.py"),
    "native/contraction/dots.py",
    *("native/contraction/matrix_tiles.py", "native/contraction/row_pairs.py", "native/peak.py"),
    *("native/machine_code/loader.py", "native/machine_code/self_test.py"),
}
#: Other constants that are facts, by file: formats, bounds that never matter or that code relies
#: on, operands of instructions, and lengths of messages and traces.
NAMES = {
    "machine/blas.py": "OPENMP",
    "store/container.py": "VERSION _ALIGNMENT _LARGEST_TABLE",
    "inspect/check_values.py": "MANY",
    "inspect/explain.py": "_FEW",
    "inspect/live_memory.py": "_PAGE _TEMPORARIES",
    "inspect/memory_values.py": "ZERO",
    "program/graph/parameters.py": "_LIMITS",
    "export/entries.py": "_MOST_THREADS",
    "export/exported.py": "_LONGEST_NAME",
    "export/files.py": "MOST_INSIDE",
    "export/javascript.py": "_ARRAYS _BYTES",
    "export/object_file.py": "MOST_SECONDS",
    "export/prepare.py": "_MOST",
    "export/table.py": "HEADER_BYTES MISUSE",
    "export/web.py": "MOST_WEIGHTS _STACK",
    "program/graph/emit_region.py": "_AGAIN",
    "program/graph/local_functions.py": "_ZERO _MOST_NESTED",
    "program/graph/sessions.py": "ROWS ARGUMENTS",
    "program/graph/times.py": "EVENTS _CLOCK",
    "numpy/emit/numpy.py": "_MAX_DEPTH",
    "loops/nest/domain.py": "_LARGE",
    "loops/nest/wrapping.py": "_UNKNOWN",
    "numpy/products.py": "EXACT_SUMS",
    "loops/report.py": "_FEW_BITS",
    "numpy/runtime.py": ("_MIDDLE _FAR _NUMERATOR _DENOMINATOR _REACH _MOST_POSITIONS _UNSIGNED"),
    "program/lower/checks.py": "_MOST_NESTED",
    "native/calls/packed.py": "_ARGUMENTS FORM SYMBOL _EQUAL",
    "native/calls/entry.py": "_FASTCALL_WITH_KEYWORDS CONTENT",
    "native/contraction/tiles.py": "_LEAST_BITS",
    "native/llvm/typed_values.py": "FLOATS _BITS",
    "native/loops/decoded_panels.py": "_STEP _SIDE",
    "native/loops/decoding.py": "_PERMUTATIONS _PAIRS _FOURS",
    "native/loops/items.py": "_VECTOR_BITS",
    "native/machine_code/disk_cache.py": "_MAGIC",
    "native/machine_code/machine.py": "_LLVM_VERSION",
    "native/threads/code.py": "RUN",
    "native/threads/freed_memory.py": "_WIDEST _RANKS _POSSIBLE _NUMPY",
    "native/threads/jobs.py": "WORD _JOINED _ONE_JOB _TAKEN DONE",
    "native/threads/systems.py": "MASK_BYTES",
    "native/trees/product.py": "TARGET _ZERO _BYTE",
    "native/trees/repeated.py": "_MASKS _DIGIT_BITS _EXACT",
    "native/trees/strategy.py": "LANE_BITS SEARCHED",
    "native/trees/transpose.py": "_SIDES _LARGEST_BITS",
    "native/values/expressions.py": "_WHOLE",
    "native/values/failures.py": "_NONE",
    "native/values/environment.py": "NOW",
    "inspect/profile.py": "MAX_EVENTS _EMPTY _NEAR",
    "runtime/checks.py": "_LONGEST _SHOWN_PARAMS",
    "runtime/scalar.py": "_LARGE",
    "runtime/operators.py": "_WIDEST",
    "runtime/threads.py": "MOST_THREADS ENTRIES _ENVIRONMENT_WORDS _OPERANDS",
    "store/mapped.py": "_SETTLED",
}


def numeric(text: str) -> Iterator[str]:
    """The constants of a module whose values have numbers: their first names."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            values = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            if any(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                names = [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]
                yield names[0]


def outside(file: str, text: str) -> list[str]:
    """The constants of a file that are neither in the table nor facts."""
    facts = NAMES.get(file, "").split()
    if file in FACTS or file.startswith("native/maths/"):
        return []
    return [f"{file}: {name}" for name in numeric(text) if name not in facts]


def test_each_names_a_program_of_the_benchmarks() -> None:
    lines = re.findall(
        r"^    [A-Z_]+: Final = .*", (EXEC / "machine/tuning.py").read_text("utf-8"), re.M
    )
    assert len(lines) > 150
    for line in lines:
        script, _, row = line.partition("  # ")[2].partition(": ")
        if script != "not measured":
            text = (EXEC.parents[1] / f"benchmarks/{script}.py").read_text("utf-8")
            assert row.split(" ")[0] in text, line


def test_all_tuning_constants_are_in_the_table() -> None:
    files = {p.relative_to(EXEC).as_posix(): p.read_text("utf-8") for p in EXEC.rglob("*.py")}
    assert [line for file, text in sorted(files.items()) for line in outside(file, text)] == []
    stale = {
        (f, n) for f, names in NAMES.items() for n in names.split() if n not in [*numeric(files[f])]
    }
    assert not stale


@pytest.mark.parametrize("text", ["_A = 1 << 4", "_A: Final = {1: 2}", "A, B = 2, 4", "_A = -3.5"])
def test_a_constant_outside_of_the_table_is_found(text: str) -> None:
    assert len(outside("program/graph/a.py", text)) == 1


@pytest.mark.parametrize("text", ["A = True", "A = 'a'", "def f(): return 3", "A: int"])
def test_others_are_not(text: str) -> None:
    assert outside("program/graph/a.py", text) == []
