"""Contractions as strided accesses: the sum over some axes of the product of two operands.

An axis has a stride in each operand in which it occurs. Rows occur in the first operand only,
columns in the second one only, and the result has both. A column is a lane of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar, cast

from relaxpy.exec.native.llvm.writer import Function, Type, Value
from relaxpy.exec.native.values.expressions import Values
from relaxpy.support.dataclass import dataclass, replace

Size: TypeAlias = Value | int
"""A size, index or stride: a number or a value of i64."""
Indices: TypeAlias = Sequence[Size]
"""The indices of the outer axes, of the row, and of the first column of a vector of the result."""
Ahead: TypeAlias = tuple[int, int]
"""The rows and columns from the element at some indices to the first one of a vector.

Constant strides make these distances constants, so that vectors share the address of one element.
"""


@dataclass(frozen=True, slots=True, eq=False)
class GemmAxis:
    """An axis of a contraction: its extent, and its strides in `a`, `b` and the result `c`.

    Units: elements. A stride is 0 in an operand that does not have the axis. Iterations that are
    not `within` a first one and a last one, which is not among them, have no effect: sums are
    without them, and columns need not be computed. An extent that only a call knows may be known to
    be at `most` some number.
    """

    extent: Size
    a: Size = 0
    b: Size = 0
    c: Size = 0
    within: tuple[Value, Value] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """An operand in memory: the address of its first element, and their scalar type.

    `convert` turns loaded values into the type of the accumulator, with any number of lanes; by
    default floats are extended and integers sign-extended, so others need it. If it `is_packed`, it
    is a packed copy. Elements have the datatype `dtype`, if that is not empty.
    """

    pointer: Value
    type: Type
    convert: Callable[[Value], Value] | None = None
    is_packed: bool = False
    dtype: str = ""

    @property
    def is_unsigned(self) -> bool:
        """True if elements are unsigned integers."""
        return self.dtype.startswith("uint")


@dataclass(frozen=True, slots=True, eq=False)
class Initial:
    """The values that sums start from: a number, or elements of `memory`.

    `strides` are those of the outer axes, the row and the column.
    """

    value: float = 0
    memory: Matrix | None = None
    strides: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Epilogue:
    """The computation on a sum before it is stored.

    Fields:
        operands: further elements for each element of the result; those without memory are not
            among them.
        frame: creates the frame for values at the current position.
        compute: the value to store, for a frame, the sum and the operands.
        is_costly: whether the code is so long that a tile should not repeat it for each register.
    """

    operands: tuple[Initial, ...]
    frame: Callable[[Function], Values]
    compute: Callable[[Values, Value, Sequence[Value]], Value]
    is_costly: bool


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows of an image as one axis, of columns or of rows.

    After each `width` iterations, the elements of the operand that is the image continue `jump`
    elements later; those of all other operands keep the stride of the axis.
    """

    width: int
    jump: int


@dataclass(frozen=True, slots=True, eq=False)
class Gemm:
    """`c[outer, row, column] = initial + sum(a[outer, row, over] * b[outer, over, column])`.

    The products are added in the order of the axes `over`, one after the other and each rounded
    once with its sum, in an accumulator of type `accumulator`; so a result does not depend on
    tiles, tasks or the width of vectors (but for `matrix_tiles.py`). The result must not overlap
    the operands.

    Fields:
        outer: axes of the result and of any operands, executed one by one.
        finish: the values to store for accumulated ones, which by default are converted.
        epilogue: the computation before that.
        fold: where the columns of `b` are not adjacent; None if they have the stride of the axis.
        row_fold: the same for the rows of `a`.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    outer: tuple[GemmAxis, ...]
    row: GemmAxis
    column: GemmAxis
    over: tuple[GemmAxis, ...]
    accumulator: Type
    initial: Initial = Initial()
    finish: Callable[[Value], Value] | None = None
    epilogue: Epilogue | None = None
    fold: Fold | None = None
    row_fold: Fold | None = None

    def values(self) -> list[Value]:
        """The values of the contraction, each once."""
        found: dict[str, Value] = {}
        with_values(self, lambda value: found.setdefault(value.name, value))
        return list(found.values())


P = TypeVar("P")
_PARTS = (GemmAxis, Matrix, Initial, Epilogue, Gemm)


def with_values(part: P, change: Callable[[Value], Value]) -> P:
    """A part of a contraction with other values, such as those of another function."""
    new: Any = part
    if isinstance(part, Value):
        new = change(part)
    elif isinstance(part, tuple):
        new = tuple(with_values(member, change) for member in part)
    elif isinstance(part, _PARTS):
        members = {f.name: with_values(getattr(part, f.name), change) for f in fields(part)}
        new = replace(part, **members)
    return cast("P", new)


def combine(f: Function, name: str, a: Size, b: Size) -> Size:
    """`add`, `mul`, `sdiv`, `srem` or `smin` of two sizes or indices, none negative.

    Constants are folded, and no instruction adds 0 or multiplies by 1.
    """
    if not isinstance(a, Value) and not isinstance(b, Value):
        match name:
            case "add":
                return a + b
            case "mul":
                return a * b
            case "sdiv":
                return a // b
            case "srem":
                return a % b
            case _:
                return min(a, b)
    if name in ("add", "mul") and not isinstance(a, Value):
        a, b = b, a
    if not isinstance(b, Value):
        if (name, b) in (("add", 0), ("mul", 1), ("sdiv", 1)):
            return a
        if (name, b) in (("mul", 0), ("srem", 1)):
            return 0
    if name == "smin":
        return f.intrinsic("smin", f.index(a), b)
    return f.arithmetic(name, f.index(a), b)


def offset(f: Function, indices: Indices, strides: Sequence[Size]) -> Size:
    """The sum of the products of indices and strides."""
    result: Size = 0
    for index, stride in zip(indices, strides, strict=True):
        result = combine(f, "add", result, combine(f, "mul", index, stride))
    return result


def digits(f: Function, number: Size, sizes: Sequence[Size]) -> list[Size]:
    """The indices of the element `number` of an array of `sizes` in row-major order."""
    found: list[Size] = []
    for size in reversed(sizes):
        found.insert(0, combine(f, "srem", number, size))
        number = combine(f, "sdiv", number, size)
    return found


def total(f: Function, sizes: Sequence[Size]) -> Size:
    """The product of sizes."""
    result: Size = 1
    for size in sizes:
        result = combine(f, "mul", result, size)
    return result


def whole_steps(f: Function, count: Size, step: int) -> Size:
    """The multiple of `step` up to `count`, which is `count` itself if it is known to be one."""
    if not isinstance(count, Value):
        return count // step * step
    return count - f.remainder(count, step)


def ceil_div(f: Function, a: Size, b: Size) -> Size:
    """`a / b`, rounded up."""
    return combine(f, "sdiv", combine(f, "add", a, combine(f, "add", b, -1)), b)


def advance(f: Function, pointer: Value, index: Size, type: Type) -> Value:
    """The address of an element; `pointer` itself for the number 0."""
    is_zero = equals(index, 0)
    return pointer if is_zero else f.element(pointer, index, type)


def widen(value: Value, element: str) -> Value:
    """`value` as a wider type of the same kind; integers are signed."""
    if value.type.element == element:
        return value
    return value.function.cast("fpext" if value.type.is_float else "sext", value, element)


def narrow(value: Value, element: str) -> Value:
    """`value` as a narrower type of the same kind, a float rounded to nearest."""
    if value.type.element == element:
        return value
    return value.function.cast("fptrunc" if value.type.is_float else "trunc", value, element)


def merged(axes: Sequence[GemmAxis]) -> tuple[GemmAxis, ...]:
    """The axes of a sum, with adjacent ones of proportional strides joined."""
    result: list[GemmAxis] = []
    for axis in axes:
        if equals(axis.extent, 1):
            continue
        if result and not any(
            isinstance(x, Value)
            for x in (axis.extent, axis.a, axis.b, result[-1].a, result[-1].b, result[-1].extent)
        ):
            last, extent = result[-1], axis.extent
            if (last.a, last.b) == (axis.a * extent, axis.b * extent):
                result[-1] = GemmAxis(last.extent * extent, axis.a, axis.b)
                continue
        result.append(axis)
    return tuple(result)


def initial_values(
    f: Function,
    contraction: Gemm,
    indices: Indices,
    type: Type,
    mask: Value | None,
    ahead: Ahead = (0, 0),
) -> Value:
    """The values that the sums of adjacent columns start from."""
    return elements(f, contraction.initial, indices, type, mask, ahead)


def elements(
    f: Function,
    initial: Initial,
    indices: Indices,
    type: Type,
    mask: Value | None,
    ahead: Ahead = (0, 0),
) -> Value:
    """The elements for adjacent columns; an element that all share is broadcast."""
    if initial.memory is None:
        return f.const(type, initial.value)
    memory, strides = initial.memory, initial.strides
    pointer = advance(f, memory.pointer, offset(f, indices, strides), memory.type)
    pointer = advance(f, pointer, offset(f, ahead, strides[-2:]), memory.type)
    stride = strides[-1]
    if type.lanes == 1 or (not isinstance(stride, Value) and stride in (0, 1)):
        wide = type if stride == 1 else Type(type.element)
        values = load(f, memory, wide, pointer, mask if stride == 1 else None)
        return f.splat(values, type.lanes)
    offsets = f.iota(Type("i64", type.lanes)) * stride
    return convert(memory, f.gather(memory.type, pointer, offsets, mask), type)


def store(
    f: Function,
    contraction: Gemm,
    indices: Indices,
    value: Value,
    mask: Value | None,
    ahead: Ahead = (0, 0),
) -> None:
    """Store accumulated values of adjacent columns, after the epilogue."""
    c, column = contraction.c, contraction.column
    epilogue = contraction.epilogue
    if epilogue is not None:
        operands = [elements(f, x, indices, value.type, mask, ahead) for x in epilogue.operands]
        value = epilogue.compute(epilogue.frame(f), value, operands)
    if contraction.finish is not None:
        value = contraction.finish(value)
    value = narrow(value, c.type.element)
    strides = [axis.c for axis in (*contraction.outer, contraction.row, column)]
    pointer = advance(f, c.pointer, offset(f, indices, strides), c.type)
    pointer = advance(f, pointer, offset(f, ahead, strides[-2:]), c.type)
    if isinstance(column.c, Value) or column.c != 1:
        steps = f.iota(Type("i64", value.type.lanes)) * column.c
        f.scatter(value, pointer, steps, mask)
    elif mask is None:
        f.store(value, pointer)
    else:
        f.masked_store(value, pointer, mask)


def multiply_add(f: Function, factor: Value, vector: Value, value: Value) -> Value:
    """`factor * vector + value`, an FMA for floats."""
    factor = f.splat(factor, vector.type.lanes)
    return f.fma(factor, vector, value) if value.type.is_float else factor * vector + value


def extents(axes: Sequence[GemmAxis]) -> list[float]:
    """The extents of axes, infinite if they are not known."""
    return [math.inf if isinstance(x.extent, Value) else x.extent for x in axes]


def converts(memory: Matrix, contraction: Gemm) -> bool:
    """True if loaded elements must be converted to the type of the accumulator."""
    return memory.convert is not None or memory.type != contraction.accumulator


def equals(size: Size, number: int) -> bool:
    """True if a size, or a stride, is known to be this number."""
    return not isinstance(size, Value) and size == number


def moved(f: Function, memory: Matrix, index: Size) -> Matrix:
    """The memory that begins at the element at `index`."""
    pointer = advance(f, memory.pointer, index, memory.type)
    return replace(memory, pointer=pointer, is_packed=False)


def moved_ahead(f: Function, memory: Matrix, index: Size) -> Matrix:
    """As `moved`, of memory whose first element is read as well, as are those after it."""
    if isinstance(index, Value) or index <= 0:
        return moved(f, memory, index)
    pointer = f.element(memory.pointer, index, memory.type, is_ahead=True)
    return replace(memory, pointer=pointer, is_packed=False)


def load(f: Function, memory: Matrix, type: Type, pointer: Value, mask: Value | None) -> Value:
    """Adjacent elements of an operand, converted to `type`; 0 where the mask does not hold."""
    stored = Type(memory.type.element, type.lanes)
    raw = f.load(stored, pointer) if mask is None else f.masked_load(stored, pointer, mask)
    return convert(memory, raw, type)


def convert(memory: Matrix, raw: Value, type: Type) -> Value:
    """Loaded elements of an operand as the type of the accumulator."""
    return memory.convert(raw) if memory.convert else widen(raw, type.element)
