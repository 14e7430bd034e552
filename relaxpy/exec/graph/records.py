"""Programs of packed functions: their records, and the machine code that runs them.

A program is a sequence of words of 64 bits: records, each of which begins with its kind and its
length in words, up to `END`. Several programs that calls share follow a table of their positions.
A call has constants of its own: the number of its program, and words that records refer to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from relaxpy.exec.native.calls.direct import DirectKernel
from relaxpy.exec.native.llvm.function import BOOL, I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.llvm.module import Module
from relaxpy.exec.runtime.values import Array
from relaxpy.support.dataclass import dataclass

CONSTANT: Final = 64
"""The first constant of a call as a source; smaller numbers are its tensors."""
Patch: TypeAlias = tuple[int, int, int]
"""The position of an argument of a kernel that is a source plus an offset."""
_END: Final = (0, 0)
_KERNEL, _COPY = 1, 2
_HEAD: Final = 2
RUN: Final = "relaxpy_run_program"
"""The function of a module that runs a call of a session."""


def kernel_record(
    kernel: DirectKernel, words: Sequence[int], patches: Sequence[Patch]
) -> list[int]:
    """The call of a kernel with these words."""
    head = [kernel.address, len(patches)]
    for patch in patches:
        head += patch
    return [_KERNEL, _HEAD + len(head) + len(words), *head, *words]


def copy_record(
    target: tuple[int, int],
    address: int,
    counts: tuple[int, int],
    steps: tuple[tuple[int, int], tuple[int, int]],
    size: int,
) -> list[int]:
    """The copy of blocks of `size` bytes from an address to a source plus an offset.

    There are `counts` of them along two axes, for each of which `steps` has the distances in the
    target and at the address.
    """
    outer, inner = steps
    return [_COPY, _HEAD + 10, *target, address, size, *counts, *outer, *inner]


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The programs of calls with a number of rows, and a row of constants for each call."""

    rows: int
    words: Array
    constants: Array


def joined(rows: int, programs: Sequence[Sequence[int]], constants: Array) -> Programs:
    """Programs that calls share, each a sequence of records."""
    table: list[int] = []
    words: list[int] = []
    for program in programs:
        table.append(len(programs) + len(words))
        words += (*program, *_END)
    return Programs(rows, np.array(table + words, np.int64), constants)


SESSION: Final = ("callback", "rows", "programs", "constants", "words of constants")
"""The words of a session."""


def emit_run(module: Module) -> None:
    """Write the function that runs a call of a session, unless the module has it.

    It takes the words of the session, the number of the call, its tensors, and the number of their
    rows. It returns 0 unless the call fails; then it may be repeated.
    """
    if RUN in module.functions:
        return
    params = [(POINTER, "session"), (I64, "number"), (POINTER, "tensors"), (I64, "rows")]
    f = module.function(RUN, params, I32, optimised=False)
    session, number, tensors, rows = f.params
    callback, expected, programs, constants, count = (
        f.load(I64, f.element(session, n, I64)) for n in range(len(SESSION))
    )

    def in_python() -> list[Value]:
        address = f.cast("inttoptr", callback, "ptr")
        return [f.new(I32, f"call i32 {address.name}({number}, {tensors}, {rows})")]

    def natively() -> list[Value]:
        is_expected = f.compare("eq", rows, expected)
        return f.branch(is_expected, run, lambda: [f.const(I32, 1)])

    def run() -> list[Value]:
        own = f.element(f.cast("inttoptr", constants, "ptr"), number * count, I64)
        table = f.cast("inttoptr", programs, "ptr")
        start = f.load(I64, f.element(table, f.load(I64, own), I64))
        first = f.element(table, start, I64)
        step = _Record(f, tensors, own).run
        _, status = f.while_loop([first, f.const(I32, 0)], goes_on, step)
        return [status]

    def goes_on(record: Value, status: Value) -> Value:
        is_record = f.compare("ne", f.load(I64, record), 0)
        return f.arithmetic("and", is_record, f.compare("eq", status, 0))

    f.ret(f.branch(f.compare("ne", callback, 0), in_python, natively)[0])


class _Record:
    """Emits what runs a record, whose sources are tensors or constants."""

    def __init__(self, f: Function, tensors: Value, constants: Value) -> None:
        self.f, self.tensors, self.constants = f, tensors, constants

    def run(self, record: Value, _: Value) -> list[Value]:
        """The next record, and the status after this one."""
        f = self.f
        is_kernel = f.compare("eq", self._word(record, 0), _KERNEL)
        length = self._word(record, 1)
        ways = partial(self._kernel, record), partial(self._copy, record)
        [status] = f.branch(is_kernel, *ways)
        return [f.element(record, length, I64), status]

    def _word(self, record: Value, position: int | Value) -> Value:
        return self.f.load(I64, self.f.element(record, position, I64))

    def _source(self, number: Value, offset: Value) -> Value:
        f = self.f
        is_tensor = f.compare("slt", number, CONSTANT)
        tensor = f.element(self.tensors, number, I64)
        constant = f.element(self.constants, number - CONSTANT, I64)
        return f.load(I64, f.select(is_tensor, tensor, constant)) + offset

    def _kernel(self, record: Value) -> list[Value]:
        f = self.f
        function = f.cast("inttoptr", self._word(record, _HEAD), "ptr")
        count = self._word(record, _HEAD + 1)
        words = f.element(record, count * 3 + (_HEAD + 2), I64)

        def patch(n: Value) -> None:
            start = n * 3 + (_HEAD + 2)
            position, number, offset = (self._word(record, start + k) for k in range(3))
            f.store(self._source(number, offset), f.element(words, position, I64))

        f.loop(0, count, 1, [], patch)
        return [f.new(I32, f"call i32 {function.name}({words})")]

    def _copy(self, record: Value) -> list[Value]:
        f = self.f
        number, offset, start, size, outer, inner, *steps = (
            self._word(record, _HEAD + n) for n in range(10)
        )
        target = self._source(number, offset)
        name = "llvm.memcpy.p0.p0.i64"
        f.module.declare(name, VOID, ["ptr", "ptr", "i64", "i1 immarg"])

        def block(i: Value, j: Value) -> None:
            to, origin = (
                f.cast("inttoptr", base + i * steps[n] + j * steps[n + 2], "ptr")
                for n, base in enumerate((target, start))
            )
            operands = to, origin, size, f.const(BOOL, 0)
            f.put(f"call void @{name}({', '.join(map(str, operands))})")

        def blocks(i: Value) -> None:
            f.loop(0, inner, 1, [], partial(block, i))

        f.loop(0, outer, 1, [], blocks)
        return [f.const(I32, 0)]
