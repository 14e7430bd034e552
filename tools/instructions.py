"""Counts the instructions of innermost loops in code for several processors.

`python tools/instructions.py` writes the table of docs/speed.md: the instructions of the largest
innermost loop with vectors, and the accesses of the stack in all innermost loops, which are spills.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from relaxpy.exec.api.lowered import new_backend
from relaxpy.exec.inspect.kernel_source import kernel_source
from relaxpy.exec.native.machine_code.machine import Machine, generating_for
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.transform import get_pipeline
from relaxpy.script import from_source
from relaxpy.support.dataclass import replace
from relaxpy.target import Native

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
MACHINES = {
    "neoverse-n1": Native("linux-aarch64", "neoverse-n1"),
    "neoverse-v2": Native("linux-aarch64", "neoverse-v2"),
    "apple-m1": Native("macos-aarch64", "apple-m1"),
    "x86-64-v3": Native("linux-x86_64", "x86-64-v3"),
    "zen4": Native("linux-x86_64", "znver4"),
}


def machine_of(name: str) -> Machine:
    """One of `MACHINES`, scheduled by LLVM as for the processor itself."""
    target = MACHINES[name]
    machine = target.machine_or_host()
    assert machine is not None
    return replace(machine, cpu=target.cpu)


class Kernel(NamedTuple):
    """A kernel: its expression, its parameters, and what its instructions are counted for.

    Fields:
        result: the expression.
        parameters: names, and their shape and dtype; others follow a semicolon.
        unit: for each vector that is stored, or for each instruction of these names.
        ideal: its loads, stores and operations, as if each were one instruction.
    """

    result: str
    parameters: str
    unit: str
    ideal: float


_SQUARES = "x y: (256, 256)"
KERNELS = {
    "maximum": Kernel("R.maximum(x, y)", "x y: (4096,) float32", "", 4),
    "maximum of rows": Kernel("R.max(x, axis=1)", "x: (64, 4096) float32", "v?f?max(ps)?", 2),
    "exp": Kernel("R.exp(x)", "x: (4096,) float32", "", 22),
    "tanh": Kernel("R.tanh(x)", "x: (4096,) float32", "", 21),
    "softmax": Kernel("R.nn.softmax(x)", "x: (64, 512) float32", "", 24),
    "matmul": Kernel("R.matmul(x, y)", f"{_SQUARES} float32", r"fmla|vfmadd\d+ps", 1.3),
    "matmul of int8": Kernel(
        'R.matmul(x, y, out_dtype="int32")',
        f"{_SQUARES} int8",
        "[su](dot|mmla)|vpdpbusd|vpmaddwd",
        1.3,
    ),
    "convolution": Kernel(
        "R.nn.conv2d(x, w, padding=[1, 1, 1, 1])",
        "x: (1, 64, 28, 28) float32; w: (64, 64, 3, 3) float32",
        r"fmla|vfmadd\d+ps",
        1.3,
    ),
    "attention": Kernel("R.nn.attention(x, y, y)", "x y: (1, 64, 4, 64) float32", "", 24),
}
_TEXT = """
@I.ir_module
class Program:
    @R.function
    def main({parameters}):
        return {result}
"""
_FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:")
_LABEL = re.compile(r"^(\.?\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.?\w*|cbn?z|tbn?z)\b.*?(\.L\w+)$")
_VECTOR = re.compile(r"%[xyz]mm\d|\bv\d+\.\d+[bhsd]|\bq\d+\b")
# Those with an index are of arrays in the memory of a task.
_STACK = r"\(%{0}\)|\[{0}(?:, #-?\d+)?\]"
# Elsewhere these registers hold something else.
_FRAME = re.compile(r"^\s+(?:movq\s+%rsp, %rbp|(?:mov|add)\s+x29, sp)\b")
_STORE = re.compile(r"^\s+(?:vmov\w+\s+%[xyz]mm\d+, .*\(|str\s+q|stur\s+q|st1|(stp)\s+q)")


class Loop(NamedTuple):
    """An innermost loop: the names of its instructions, and how many of them are on vectors.

    Others are accesses of the stack by vectors, and vectors that are stored elsewhere.
    """

    names: list[str]
    vectors: int
    stack: int
    stores: int


def loops(assembly: str) -> Iterator[Loop]:
    """The innermost loops of a text."""
    lines = [line for line in assembly.splitlines() if line.strip()]
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    jumps = [
        (labels[m[1]], n)
        for n, line in enumerate(lines)
        if (m := _JUMP.match(line.split("#")[0].rstrip())) and labels.get(m[1], n) < n
    ]
    for first, last in jumps:
        if any(first <= a and b <= last and (a, b) != (first, last) for a, b in jumps):
            continue
        text = lines[first : last + 1]
        body = [x for x in text if x[0].isspace() and x.strip()[0] not in ".#/"]
        wide = [x for x in body if _VECTOR.search(x)]
        spill = _stack_of(lines[:first])
        stack = sum(spill.search(x) is not None for x in wide)
        stored = [m for x in body if not spill.search(x) and (m := _STORE.search(x))]
        stores = sum(2 if m[1] else 1 for m in stored)
        yield Loop([x.replace("{vex}", "").split()[0] for x in body], len(wide), stack, stores)


def _stack_of(before: list[str]) -> re.Pattern[str]:
    """The accesses of the stack in a function, of which `before` are the first lines."""
    start = max((n for n, line in enumerate(before) if _FUNCTION.match(line)), default=0)
    has_frame = any(map(_FRAME.match, before[start:]))
    return re.compile(_STACK.format("(?:rsp|rbp|sp|x29)" if has_frame else "(?:rsp|sp)"))


def assembly(name: str, machine: Machine) -> str:
    """The assembly of one of `KERNELS`."""
    return assembly_of(KERNELS[name], machine)


def assembly_of(kernel: Kernel, machine: Machine) -> str:
    """The assembly of the kernels of a program."""
    found = []
    for part in kernel.parameters.split("; "):
        names, _, kind = part.partition(": ")
        shape, dtype = kind.rsplit(" ", 1)
        found += [f'{n}: R.Tensor({shape}, "{dtype}")' for n in names.split()]
    parameters = ", ".join(found)
    module = from_source(_TEXT.format(parameters=parameters, result=kernel.result))
    module = get_pipeline("default", target="native")(module)
    kernels = [n for n, f in module.functions_by_name.items() if isinstance(f, PrimFunc)]
    with generating_for(machine):
        backend = new_backend("native", None)
        return "\n".join(kernel_source(module, backend, kernel, "asm") for kernel in kernels)


def row(name: str, machine: Machine) -> tuple[float, int]:
    """The instructions for each unit of a kernel in its main loop, and the spills of all loops."""
    found = [loop for loop in loops(assembly(name, machine)) if loop.vectors]
    unit = KERNELS[name].unit

    def units(loop: Loop) -> int:
        return sum(re.fullmatch(unit, n) is not None for n in loop.names) if unit else loop.stores

    main = max(found, key=units if unit else attrgetter("vectors"))
    return len(main.names) / units(main), sum(loop.stack for loop in found)


def cell(each: float, spills: int) -> str:
    """The entry of the table for a result of `row`."""
    return f"{each:.1f}, {spills} spills" if spills else f"{each:.1f}"


HEAD = f"| kernel | ideal | {' | '.join(MACHINES)} |\n| --- |{' --- |' * (len(MACHINES) + 1)}\n"
_TABLE = re.compile(f"(?<={re.escape(HEAD)})(?:\\|.*\n)+")


def documented() -> dict[str, list[str]]:
    """The rows of the table of the page by the kernel: its ideal, and an entry for each machine."""
    [table] = _TABLE.findall(PAGE.read_text(encoding="utf-8"))
    rows = ([field.strip() for field in line.split("|")[1:-1]] for line in table.splitlines())
    return {name: fields for name, *fields in rows}


def table() -> str:
    """The rows of the table of the page."""
    lines = []
    for name, kernel in KERNELS.items():
        cells = [cell(*row(name, machine_of(processor))) for processor in MACHINES]
        lines.append(f"| {' | '.join([name, str(kernel.ideal), *cells])} |\n")
    return "".join(lines)


def main() -> None:
    """Write the table of the page."""
    rows = table()
    page, count = _TABLE.subn(lambda _: rows, PAGE.read_text(encoding="utf-8"))
    assert count == 1, f"{PAGE} has no table that begins with\n{HEAD}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
