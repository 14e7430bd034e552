"""Counts the instructions of innermost loops in code for several processors.

`python tools/instructions.py` prints a table of kernels: the instructions of the largest innermost
loop with vectors for each vector that it stores (all of them if it stores none), and the accesses
of the stack in all innermost loops, which are spills.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from relaxpy.exec.kernel_source import kernel_source
from relaxpy.exec.lowered import new_backend
from relaxpy.exec.native.machine_code.machine import Machine, generating_for
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.transform import get_pipeline
from relaxpy.script import from_source
from relaxpy.target import Native

MACHINES = {
    "neoverse-n1": Native("linux-aarch64", "neoverse-n1"),
    "apple-m1": Native("macos-aarch64", "apple-m1"),
    "x86-64-v3": Native("linux-x86_64", "x86-64-v3"),
    "zen4": Native("linux-x86_64", "znver4"),
}
KERNELS = {
    "maximum": ("R.maximum(x, y)", "x y: (4096,) float32"),
    "maximum of rows": ("R.max(x, axis=1)", "x: (64, 4096) float32"),
    "exp": ("R.exp(x)", "x: (4096,) float32"),
    "tanh": ("R.tanh(x)", "x: (4096,) float32"),
    "softmax": ("R.nn.softmax(x)", "x: (64, 512) float32"),
    "matmul": ("R.matmul(x, y)", "x y: (256, 256) float32"),
    "matmul of int8": ('R.matmul(x, y, out_dtype="int32")', "x y: (256, 256) int8"),
    "attention": ("R.nn.attention(x, y, y)", "x y: (1, 64, 4, 64) float32"),
}
_TEXT = """
@I.ir_module
class Program:
    @R.function
    def main({parameters}):
        return {result}
"""
_LABEL = re.compile(r"^(\.?\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.?\w*|cbn?z|tbn?z)\b.*?(\.L\w+)$")
_VECTOR = re.compile(r"%[xyz]mm\d|\bv\d+\.\d+[bhsd]|\bq\d+\b")
_STACK = re.compile(r"\(%r[sb]p|\[(?:sp|x29)\b")
_STORE = re.compile(r"^\s+(?:vmov\w+\s+%[xyz]mm\d+, .*\(|str\s+q|stur\s+q|st1|(stp)\s+q)")


class Loop(NamedTuple):
    """An innermost loop: its instructions, those of vectors, stack accesses, and stores."""

    instructions: int
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
        body = [x for x in lines[first : last + 1] if x[0].isspace() and x.strip()[0] != "."]
        wide = [x for x in body if _VECTOR.search(x)]
        stack = sum(_STACK.search(x) is not None for x in wide)
        stored = [m for x in body if not _STACK.search(x) and (m := _STORE.search(x))]
        stores = sum(2 if m[1] else 1 for m in stored)
        yield Loop(len(body), len(wide), stack, stores)


def assembly(name: str, machine: Machine) -> str:
    """The assembly of the kernels of a program."""
    result, operands = KERNELS[name]
    names, _, kind = operands.partition(": ")
    shape, dtype = kind.rsplit(" ", 1)
    parameters = ", ".join(f'{n}: R.Tensor({shape}, "{dtype}")' for n in names.split())
    module = from_source(_TEXT.format(parameters=parameters, result=result))
    module = get_pipeline("default", target="native")(module)
    kernels = [n for n, f in module.functions_by_name.items() if isinstance(f, PrimFunc)]
    with generating_for(machine):
        backend = new_backend("native", None)
        return "\n".join(kernel_source(module, backend, kernel, "asm") for kernel in kernels)


def row(name: str, machine: Machine) -> tuple[str, int]:
    """The instructions for each vector of results, and the spills, of the main loop."""
    found = [loop for loop in loops(assembly(name, machine)) if loop.vectors]
    main = max(found, key=lambda loop: loop.vectors)
    each = f"{main.instructions / main.stores:.1f}" if main.stores else f"{main.instructions}"
    return each, sum(loop.stack for loop in found)


def main() -> None:
    """Print the table."""
    print("| kernel |", " | ".join(MACHINES), "|")
    print("| --- |" + " --- |" * len(MACHINES))
    for name in KERNELS:
        cells = []
        for target in MACHINES.values():
            machine = target.machine_or_host()
            assert machine is not None
            each, spills = row(name, machine)
            cells.append(f"{each}, {spills} spills" if spills else each)
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    sys.exit(main())
