"""The value that an exported program is: functions for callers without Python, as data.

`exported.py` makes it from a module. Whoever finishes one (a library for C, a module for a browser)
reads it and nothing else: the texts of LLVM IR, the constants, and, of each function, the fields of
the two structs that it takes. Its code allocates nothing, has no global state and knows no Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from relaxpy.exec.native.machine_code.machine import Machine
from relaxpy.exec.native.values.packing import Array, Packing
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.support.dataclass import dataclass

THREADS: Final = Var("threads", "int64")
"""The number of threads that run the tasks of a program, in formulas of its memory."""
HEADER_BYTES: Final = 64
"""The bytes of the weights before the first constant."""
MISUSE: Final[Mapping[int, str]] = {
    -1: "the CPU lacks instructions that the library uses",
    -2: "a size is negative, or too large",
    -3: "the workspace is null, or smaller than the function for its size says",
    -4: "the address of a tensor is null, or not a multiple of the size of an element",
    -5: "the weights are null, too few, or those of another program or machine",
}
"""The texts of negative statuses: misuse by the caller, found before anything is written."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct: `count` values in a row, all of them addresses or 64-bit integers."""

    name: str
    kind: Literal["pointer", "int64"]
    count: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class ExportedTensor:
    """A tensor that the caller has memory for; contiguous, in row-major order.

    Fields:
        name: the name of the field with its address, an identifier of C.
        label: what the program calls it.
        dtype: the datatype, such as `float32`.
        shape: the dimensions, over the variables of the function's sizes; the largest ones of a
            result whose sizes depend on data.
        actual: the dimensions of such a result, which a call stores.
        written: whether the function writes it in place.
        same_as: of a result that has no memory of its own, the input or the result that it is.
    """

    name: str
    label: str
    dtype: str
    shape: tuple[PrimExpr, ...]
    actual: tuple[PrimExpr, ...] | None = None
    written: bool = False
    same_as: str = ""

    @property
    def sizes(self) -> tuple[PrimExpr, ...]:
        """The dimensions that the tensor has after a call."""
        return self.shape if self.actual is None else self.actual

    @property
    def is_static(self) -> bool:
        """True if all dimensions are numbers."""
        return all(isinstance(size, IntImm) for size in self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class ExportedFunction:
    """A function that callers call: `int32_t symbol(const inputs *, outputs *, void *workspace)`.

    Three functions stand beside it, which take the same structs: `symbol_workspace(inputs)` is the
    bytes of memory that it needs, for which it reads only the sizes and `threads`;
    `symbol_result_sizes(inputs, outputs)` stores the shapes of results. All statuses are 0 for
    success, a number of the program's `errors`, or a negative one of `MISUSE`; also a negative
    number of bytes is one.

    Fields:
        name: the name in the module.
        symbol: the name in the library, an identifier of C.
        inputs: the tensors among the parameters, with the fields of tuples, in order.
        sizes: the variables of shapes and the integer parameters by the names of their fields.
        outputs: the tensors of the result, in order.
        limit: the exclusive upper bound of sizes.
        workspace: the bytes of the workspace, over sizes and `THREADS`.
        has_weights: whether it reads constants.
        takes_weights: whether the caller passes the address of these.
    """

    name: str
    symbol: str
    inputs: Sequence[ExportedTensor]
    sizes: Mapping[str, Var]
    outputs: Sequence[ExportedTensor]
    limit: int
    workspace: PrimExpr
    has_weights: bool
    takes_weights: bool

    def input_fields(self) -> Iterator[Field]:
        """The fields of the first struct.

        Addresses of tensors, sizes, the address of the weights and their bytes if the function
        takes them, the address of a struct of `THREAD_FIELDS` or null, and the bytes of the
        workspace. The function checks the bytes unless they are 0.
        """
        yield from (Field(tensor.name, "pointer") for tensor in self.inputs)
        yield from (Field(name, "int64") for name in self.sizes)
        if self.takes_weights:
            yield Field("weights", "pointer")
            yield Field("weights_bytes", "int64")
        yield Field("threads", "pointer")
        yield Field("workspace_bytes", "int64")

    def output_fields(self) -> Iterator[Field]:
        """The fields of the second struct.

        Addresses of results with memory of their own, the dimensions of those that are not all
        numbers, and the index and the size that an error is about.
        """
        own = [tensor for tensor in self.outputs if not tensor.same_as]
        yield from (Field(tensor.name, "pointer") for tensor in own)
        for tensor in own:
            if not tensor.is_static:
                yield Field(f"{tensor.name}_shape", "int64", len(tensor.shape))
        yield from (Field("failed_index", "int64"), Field("failed_size", "int64"))


THREAD_FIELDS: Final = (
    Field("parallel_for", "pointer"),
    Field("owner", "pointer"),
    Field("count", "int64"),
)
"""The struct of threads: a function of the caller, its first argument, the number of threads.

`void parallel_for(void *owner, void (*task)(void *work, int64_t number, int64_t thread), void
*work, int64_t tasks)` calls `task(work, n, thread)` once for each n below `tasks`, and returns
after all of them; calls at the same time have different `thread` numbers below `count`. It may be
called again from inside of a task by no function of an exported program.
"""


SUFFIXES: Final = ("", "_workspace", "_result_sizes", "_inputs", "_outputs")
"""The ends of the names that a function has in C: three functions and two structs."""


def shared_names(prefix: str) -> list[str]:
    """The names in C that a program has besides those of its functions."""
    names = ("cpu", "version", "cpu_needed", "error", "threads", "weights", "pool", "h", "pool_h")
    return [f"{prefix}_{name}" for name in (*names, *(f"pool_{n}" for n in _OF_POOL))]


_OF_POOL: Final = ("start", "stop", "run", "work", "for", "most")


def raw_bytes(elements: Array) -> memoryview:
    """The bytes of the elements of an array."""
    flat: Any = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    return memoryview(flat)


@dataclass(frozen=True, slots=True, eq=False)
class ExportedConstant:
    """A constant of the weights, at an `offset` in bytes; `packing` is the order of its elements.

    `elements` are those in memory, packed already.
    """

    offset: int
    elements: Array
    packing: Packing | None


@dataclass(frozen=True, slots=True, eq=False)
class ExportedProgram:
    """A program without Python.

    The text is a module of LLVM IR. It defines the functions, `NAME_cpu`, which is 0 if the CPU can
    run them, and `NAME_weights` where weights are inside. All other names in it are internal.

    Fields:
        name: the prefix of all symbols.
        machine: the CPU that the texts are for.
        functions: those that callers call.
        text: the module of LLVM IR.
        constants: in the order of their offsets.
        weights_bytes: the size of the weights, which begin with `header`.
        weights_inside: whether the library has the weights; otherwise callers pass their address.
        errors: the texts of the statuses from 1 on.
        externs: functions that the caller defines, by symbol, with their declarations in C.
    """

    name: str
    machine: Machine
    functions: Sequence[ExportedFunction]
    text: str
    constants: Sequence[ExportedConstant]
    weights_bytes: int
    header: bytes
    weights_inside: bool
    errors: Sequence[str]
    externs: Mapping[str, str]

    def weights(self) -> bytearray:
        """The weights: a header that names the program and the machine, and the constants."""
        blob = bytearray(self.weights_bytes)
        blob[: len(self.header)] = self.header
        for constant in self.constants:
            raw = raw_bytes(constant.elements)
            blob[constant.offset : constant.offset + len(raw)] = raw
        return blob
