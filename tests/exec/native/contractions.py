"""Runs contractions of arrays."""

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.exec.native.calls.jit import Library, compile_module
from relaxpy.exec.native.contraction.geometry import tile_of
from relaxpy.exec.native.contraction.operands import Gemm, GemmAxis, Initial, Matrix
from relaxpy.exec.native.contraction.tiles import TileEmitter
from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS
from relaxpy.exec.native.llvm.writer import F32, I64, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.exec.native.values.short_floats import from_memory, to_memory
from relaxpy.ir.core.dtype import DataType

TYPES = {"float16": "half", "float32": "float", "float64": "double"}


def element(array: np.ndarray) -> Type:
    """The type in LLVM of the elements of an array."""
    name = TYPES.get(array.dtype.name)
    return Type(name or f"i{8 * array.dtype.itemsize}")


def extended(value: Value) -> Value:
    """Unsigned bytes as numbers of 32 bits."""
    return value.function.cast("zext", value, "i32")


SHORT = {"bfloat16", *FLOATS_OF_8_BITS}
"""The datatypes whose elements are integers of LLVM, and whose numbers are `float`."""


def conversion(dtype: DataType) -> Callable[[Value], Value] | None:
    """The conversion of elements of memory to the type of sums, if LLVM has no cast."""
    if dtype == "uint8":
        return extended
    return (lambda value: from_memory(value, dtype)) if dtype in SHORT else None


class Kernel:
    """A function for `c[...] = sum(a[...] * b[...])` over the axes that `c` does not have.

    `subscripts` names the axes like np.einsum, as "mk,kn->mn". Extents and strides are constants
    unless an axis is in `symbolic`: then they are parameters, but not its extent if it is `fixed`.
    """

    def __init__(
        self,
        subscripts: str,
        arrays: Sequence[np.ndarray],
        *,
        over: str | None = None,
        symbolic: Collection[str] = (),
        fixed: Collection[str] = (),
        accumulator: Type | None = None,
        machine: Machine | None = None,
        emitter: Callable[..., Any] = TileEmitter,
        initial: Callable[[Function], Initial] | None = None,
        finish: Callable[[Value], Value] | None = None,
        **options: Any,
    ) -> None:
        machine = machine or host()
        left, result = subscripts.split("->")
        self.names = (*left.split(","), result)
        found = self._axes(arrays)
        self.symbolic = symbolic = [axis for axis in symbolic if axis in found]
        module = machine.module()
        names = [f"{kind}{axis}" for axis in symbolic for kind in "nabc"]
        params = [(POINTER, n) for n in ("pa", "pb", "pc")] + [(I64, name) for name in names]
        f = module.function("kernel", params)
        values = dict(zip(names, f.params[3:], strict=True))
        types = [element(array) for array in arrays]
        wide = accumulator or (
            F32 if types[0].bits == 16 or arrays[0].dtype.name in SHORT else types[0]
        )
        axes = {
            axis: GemmAxis(
                *(
                    values[f"{kind}{axis}"]
                    if axis in symbolic and number > 1 and (kind != "n" or axis not in fixed)
                    else number
                    for kind, number in zip("nabc", numbers, strict=True)
                )
            )
            for axis, numbers in found.items()
        }
        summed = over or "".join(axis for axis in axes if axis not in result)
        rows = [x for x in result if x in self.names[0] and x not in self.names[1]]
        columns = [x for x in result if x in self.names[1] and x not in self.names[0]]
        row, column = rows[-1:], columns[-1:]
        memories = [
            Matrix(p, t, conversion(DataType(a.dtype)), dtype=a.dtype.name)
            for p, t, a in zip(f.params, types, arrays, strict=False)
        ]
        contraction = Gemm(
            *memories,
            tuple(axes[x] for x in result if x not in (*row, *column)),
            axes[row[0]] if row else GemmAxis(1),
            axes[column[0]] if column else GemmAxis(1),
            tuple(axes[x] for x in summed),
            wide,
            initial(f) if initial else Initial(),
            finish or (lambda value: to_memory(value, DataType(arrays[2].dtype))),
        )
        sizes = contraction.row.extent, contraction.column.extent
        tile = tile_of(wide, *sizes, machine.vector_bits, machine.vector_registers)
        emitted = emitter(f, contraction, tile, **options)
        f.loop(0, emitted.tasks, 1, [], emitted.emit)
        f.ret()
        self.text = module.text()
        self.library: Library = compile_module(module, ["kernel"], machine)
        count = 3 + len(names)
        self.call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)(self.library["kernel"])

    def _axes(self, arrays: Sequence[np.ndarray]) -> Mapping[str, Sequence[int]]:
        found: dict[str, list[int]] = {}
        for position, (names, array) in enumerate(zip(self.names, arrays, strict=True)):
            for axis, extent, stride in zip(names, array.shape, array.strides, strict=True):
                entry = found.setdefault(axis, [extent, 0, 0, 0])
                assert entry[0] == extent
                entry[1 + position] = stride // array.itemsize
        return found

    def __call__(self, *arrays: np.ndarray) -> None:
        axes = self._axes(arrays)
        numbers = [number for axis in self.symbolic for number in axes[axis]]
        self.call(*(array.ctypes.data for array in arrays), *numbers)


def expected(subscripts: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The contraction in float64, or in int64 for integers."""
    wide = np.float64 if a.dtype.kind not in "iu" else np.int64
    return np.einsum(subscripts, a.astype(wide), b.astype(wide))


def check(subscripts: str, a: np.ndarray, b: np.ndarray, found: np.ndarray) -> None:
    """Compare `found` with the contraction of `a` and `b`, up to the rounding of its sums."""
    wanted = expected(subscripts, a, b)
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, wanted)
        return
    # Each of the n additions is rounded once, in float32 at least, and the result once more.
    terms = a.size * b.size / max(1, found.size)
    sizes = np.einsum(subscripts, abs(a.astype(np.float64)), abs(b.astype(np.float64)))
    depth = max(1, round(np.sqrt(terms)))
    unit = np.finfo(np.float64 if found.dtype == np.float64 else np.float32).eps / 2
    narrow = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(found.dtype.name, 0.0)
    bound = (depth + 1) * unit * sizes + narrow * abs(wanted) + 1e-40
    assert (abs(found.astype(np.float64) - wanted) <= bound).all()
