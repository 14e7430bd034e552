"""The instructions of innermost loops for other processors: the counts only fall."""

import re
from importlib import metadata
from pathlib import Path

import pytest

from relaxpy.support.dataclass import replace
from tools import instructions
from tools.instructions import MACHINES, Kernel, Loop, loops, machine_of as machine

pytest.importorskip("llvmlite")

CONSTRAINTS = Path(__file__).parents[1] / "tools" / "constraints" / "newest.txt"
PINNED = f"llvmlite=={metadata.version('llvmlite')}" in CONSTRAINTS.read_text().split()
"""Whether this is the version by which the table of docs/speed.md was written."""


def assembly_of(result: str, parameters: str, processor: str) -> str:
    return instructions.assembly_of(Kernel(result, parameters, "", 0), machine(processor))


def test_innermost_loops_are_counted() -> None:
    text = """
main:
.LBB0_1:
\tldr\tx9, [x0]
.LBB0_2:                                // inner
\tldp\tq0, q1, [x1, #32]
\t//APP
\tfmax\tv0.4s, v0.4s, v1.4s
\tstr\tq3, [sp, #16]
\tstp\tq0, q1, [x2]
\tldr\tq1, [sp, x9]
\tb.lt\t.LBB0_2
\tcbnz\tx9, .LBB0_1
.LBB0_3:
\tvmovups\t%ymm1, (%rdi)
\tvmovaps\t32(%rsp), %ymm2
\tvmovaps\t32(%rsp,%rsi), %ymm2
\tjl\t.LBB0_3
"""
    inner, last = loops(text)
    assert inner == Loop(["ldp", "fmax", "str", "stp", "ldr", "b.lt"], 5, 1, 2)
    assert last == Loop(["vmovups", "vmovaps", "vmovaps", "jl"], 3, 1, 1)


@pytest.mark.parametrize(("frame", "spills"), [("mov\tx29, sp", 1), ("add\tx29, x2, x8", 0)])
def test_the_frame_pointer_is_of_the_stack_only_where_a_function_has_one(
    frame: str, spills: int
) -> None:
    text = f"""
first.task1:
\tmov\tx29, sp
second.task2:
\t{frame}
.LBB0_2:
\tldr\tq0, [x29, #16]
\tb.lt\t.LBB0_2
"""
    [loop] = loops(text)
    assert loop.stack == spills


@pytest.mark.parametrize("name", instructions.KERNELS)
@pytest.mark.parametrize("number", range(len(MACHINES)), ids=MACHINES)
def test_the_table_of_the_page_is_that_of_the_code(name: str, number: int) -> None:
    each, spills = instructions.row(name, machine([*MACHINES][number]))
    _, *cells = instructions.documented()[name]
    documented = re.fullmatch(r"([\d.]+)(?:, (\d+) spills)?", cells[number])
    assert documented is not None
    assert spills <= int(documented[2] or 0)
    if PINNED:
        assert instructions.cell(each, spills) == cells[number], "run tools/instructions.py"


def test_the_table_of_the_page_has_all_kernels_and_their_ideals() -> None:
    ideals = {name: row[0] for name, row in instructions.documented().items()}
    assert ideals == {name: str(kernel.ideal) for name, kernel in instructions.KERNELS.items()}


@pytest.mark.parametrize("name", ["matmul", "convolution"])
@pytest.mark.parametrize(
    ("level", "cpu"),
    [("x86-64-v3", cpu) for cpu in ("x86-64", "haswell", "skylake", "znver1", "znver3")]
    + [("neoverse-n1", cpu) for cpu in ("cortex-a72", "neoverse-v1", "a64fx", "apple-m4")],
)
def test_sums_of_products_stay_in_registers_as_every_processor_is_scheduled(
    name: str, level: str, cpu: str
) -> None:
    _, spills = instructions.row(name, replace(machine(level), cpu=cpu))
    assert spills == 0


@pytest.mark.parametrize(
    ("name", "most"),
    [("maximum", 5), ("exp", 30), ("tanh", 26), ("softmax", 32), ("attention", 32)],
)
def test_vectors_of_neon_take_few_instructions(name: str, most: float) -> None:
    each, _ = instructions.row(name, machine("neoverse-n1"))
    assert each <= most


def test_products_of_bytes_are_those_of_two_rows_by_two_columns_where_they_can_be() -> None:
    matrix = instructions.assembly("matmul of int8", machine("neoverse-v2"))
    assert len(re.findall(r"\bsmmla\b", matrix)) >= 16
    assert not re.search(r"\bsdot\b", matrix)
    lanes = instructions.assembly("matmul of int8", machine("neoverse-n1"))
    assert not re.search(r"\b[su]mmla\b", lanes)
    assert re.search(r"\bsdot\b", lanes)


def test_rows_of_any_length_are_copied_in_vectors_without_masks() -> None:
    text = assembly_of("R.matmul(x, y, out_dtype='int32')", 'x y: ("n", "n") int8', "x86-64-v3")
    copies = [x for x in loops(text) if "vpmovsxbw" in x.names]
    assert copies
    assert min(x.names.count("vpinsrb") + x.names.count("je") for x in copies) == 0


@pytest.mark.parametrize(
    ("processor", "long"), [("x86-64-v3", r"\bvpcmpgtq\b"), ("neoverse-n1", r"\bcmgt\b.*\.2d")]
)
def test_masks_have_the_bits_of_elements(processor: str, long: str) -> None:
    text = assembly_of("R.mean(x, axis=[2, 3])", "x: (1, 512, 7, 7) float32", processor)
    assert not re.search(long, text)


@pytest.mark.parametrize(
    ("processor", "dtype"),
    [("x86-64-v3", "int8"), ("x86-64-v3", "int16"), ("neoverse-n1", "int8"), ("apple-m1", "int32")],
)
def test_a_known_rest_of_elements_without_masked_accesses_takes_few_jumps(
    processor: str, dtype: str
) -> None:
    text = assembly_of("R.sum(x, axis=0)", f"x: (300, 83) {dtype}", processor)
    assert len(re.findall(r"\b(?:je|tbz|tbnz|b\.eq)\b", text)) < 12


@pytest.mark.parametrize(
    ("processor", "dtype"),
    [("x86-64-v3", "int8"), ("x86-64-v3", "int16"), ("neoverse-n1", "float32")],
)
@pytest.mark.parametrize("expression", ["R.sum(x, axis=0)", "R.add(x, x)"])
def test_an_unknown_rest_of_elements_without_masked_accesses_takes_few_jumps(
    expression: str, processor: str, dtype: str
) -> None:
    text = assembly_of(expression, f'x: ("n", "m") {dtype}', processor)
    assert len(re.findall(r"\b(?:je|jne|js|tbz|tbnz|b\.eq)\b", text)) < 30


def test_stores_on_a_condition_that_all_lanes_share_have_no_masks_without_avx512() -> None:
    operands = "x: (100, 64) float32; i: (20, 1) int64; u: (20, 64) float32"
    expression = "R.scatter_nd(x, i, u)"
    assert not re.search(r"\bvmaskmov", assembly_of(expression, operands, "x86-64-v3"))
    assert re.search(r"\bvmovups\b.*%k", assembly_of(expression, operands, "zen4"))


@pytest.mark.parametrize("processor", ["x86-64-v3", "zen4"])
def test_rows_at_positions_that_may_repeat_are_added_in_vectors(processor: str) -> None:
    operands = "x: (100, 64) float32; i: (20, 1) int64; u: (20, 64) float32"
    text = assembly_of("R.scatter_nd(x, i, u, 'add')", operands, processor)
    assert re.search(r"\bvaddps\b.*%[yz]mm", text)


def test_elements_with_gaps_are_stored_one_by_one_without_avx512() -> None:
    rows = "x: (1024, 3) float32"
    text = assembly_of("R.concat((x, x), axis=1)", rows, "x86-64-v3")
    assert not re.search(r"\bvmaskmovps\b", text)
    assert re.search(r"\bvmovups\b.*%k", assembly_of("R.concat((x, x), axis=1)", rows, "zen4"))


def test_the_maximum_of_rows_is_one_instruction_of_neon() -> None:
    text = instructions.assembly("maximum of rows", machine("neoverse-n1"))
    assert "fmax" in text
    assert not re.search(r"\b(fcmgt|bsl|bif|bit)\b", text)
