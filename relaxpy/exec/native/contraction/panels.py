"""Packs blocks of an operand row by row, converted and transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from relaxpy.exec.machine.tuning import Tiles, Vectors
from relaxpy.exec.native.contraction.operands import Matrix, Size, combine, convert, equals, load
from relaxpy.exec.native.llvm.interleave import load_every
from relaxpy.exec.native.llvm.writer import I64, POINTER, VOID, Function, Type, Value
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block of a matrix: the address of its first element, its extents and strides."""

    pointer: Value
    rows: Size
    columns: Size
    row_stride: Size
    column_stride: Size


def pack(f: Function, memory: Matrix, source: Block, target: Value, pitch: int, type: Type) -> None:
    """Copy `source` to `target`, whose rows begin at multiples of `pitch`.

    `type` is the vector type of the target. Its rows are padded with zeros to the next multiple of
    the lanes, which `pitch` has room for; so is the number of rows.
    """
    if equals(source.column_stride, 1):
        _pack_rows(f, memory, source, target, pitch, type)
    elif equals(source.row_stride, 1) and type.lanes > 1 and not _is_low(source, type.lanes):
        _pack_columns(f, memory, source, target, pitch, type)
    else:
        _pack_strided(f, memory, source, target, pitch, type)


def _pack_rows(
    f: Function, memory: Matrix, source: Block, target: Value, pitch: int, type: Type
) -> None:
    """Pack a block whose rows are contiguous."""

    def copy(row: Value, column: Size, mask: Value | None) -> None:
        start = combine(f, "add", combine(f, "mul", row, source.row_stride), column)
        values = load(f, memory, type, f.element(source.pointer, start, memory.type), mask)
        f.store(values, f.element(target, combine(f, "add", row * pitch, column), type))

    _each_vector(f, source, type.lanes, copy)


def _pack_strided(
    f: Function, memory: Matrix, source: Block, target: Value, pitch: int, type: Type
) -> None:
    """Pack a block of any strides: short strides by shuffles, others by gathers."""
    stride, lanes = source.column_stride, type.lanes
    steps = f.iota(Type("i64", lanes)) * stride
    step = 0 if isinstance(stride, Value) or lanes == 1 else stride

    def copy(row: Value, column: Size, mask: Value | None) -> None:
        start = combine(f, "mul", row, source.row_stride)
        start = combine(f, "add", start, combine(f, "mul", column, stride))
        pointer = f.element(source.pointer, start, memory.type)
        if 2 <= step <= Vectors.LONGEST_STEP:
            raw = load_every(f, Type(memory.type.element, lanes), step, pointer, mask)
        else:
            raw = f.gather(memory.type, pointer, steps, mask)
        values = convert(memory, raw, type)
        f.store(values, f.element(target, combine(f, "add", row * pitch, column), type))

    _each_vector(f, source, type.lanes, copy)


def _each_vector(
    f: Function, source: Block, lanes: int, copy: Callable[[Value, Size, Value | None], None]
) -> None:
    """Call `copy` with the row, the first column and the mask of each vector of the block."""
    columns = source.columns

    def of_row(row: Value) -> None:
        if isinstance(columns, Value):
            whole: Size = 0
            if not f.module.has_avx512:  # masks of bytes are branches there
                whole = f.arithmetic("and", columns, -lanes)
                f.loop(0, whole, lanes, [], lambda c: copy(row, c, None))
            rest_of_row = partial(f.lanes_below, lanes=lanes)
            f.loop(whole, columns, lanes, [], lambda c: copy(row, c, rest_of_row(columns - c)))
            return
        rest = columns % lanes
        if columns <= 4 * lanes:
            for column in range(0, columns - rest, lanes):
                copy(row, column, None)
        else:
            f.loop(0, columns - rest, lanes, [], lambda c: copy(row, c, None))
        if rest:
            copy(row, columns - rest, f.lanes_below(f.index(rest), lanes))

    f.loop(0, source.rows, 1, [], of_row)


def _pack_columns(
    f: Function, memory: Matrix, source: Block, target: Value, pitch: int, type: Type
) -> None:
    """Pack a block whose columns are contiguous, by transposed squares.

    This is much code, so kernels share functions for it.
    """
    masked_rows, masked_columns = (
        isinstance(size, Value) or size % type.lanes > 0 for size in (source.rows, source.columns)
    )
    if memory.convert is not None:
        _pack_squares(f, memory, source, target, pitch, type, masked_rows, masked_columns)
        return
    masks = "rows" * masked_rows + "columns" * masked_columns
    name = f"pack.{memory.type.suffix}.{type.suffix}.{masks}"
    if name not in f.module.functions:
        names = ((POINTER, "from"), (I64, "rows"), (I64, "columns"), (I64, "stride"))
        shared = f.module.function(name, [*names, (POINTER, "to"), (I64, "pitch")])
        first, rows, columns, stride, to, width = shared.params
        block = Block(first, rows, columns, 1, stride)
        _pack_squares(
            *(shared, replace(memory, pointer=first), block, to, width, type),
            *(masked_rows, masked_columns),
        )
        shared.ret()
    sizes = map(f.index, (source.rows, source.columns, source.column_stride))
    f.call(name, VOID, source.pointer, *sizes, target, f.index(pitch))


def _pack_squares(
    f: Function,
    memory: Matrix,
    source: Block,
    target: Value,
    pitch: Size,
    type: Type,
    masked_rows: bool,
    masked_columns: bool,
) -> None:
    """Pack a block by squares; those at its ends are masked if necessary."""
    lanes = type.lanes

    def square(row: Value, column: Value) -> None:
        present = f.lanes_below(f.index(source.rows) - row, lanes) if masked_rows else None
        vectors = []
        for lane in range(lanes):
            current, mask = column + lane, present
            if masked_columns:
                exists = f.splat(f.compare("slt", current, f.index(source.columns)), lanes)
                mask = exists if mask is None else f.arithmetic("and", mask, exists)
                # Loads without active lanes are slow where memory may not be read.
                current = f.intrinsic("smin", current, f.index(source.columns) - 1)
            start = combine(f, "add", combine(f, "mul", current, source.column_stride), row)
            pointer = f.element(source.pointer, start, memory.type)
            f.prefetch(f.element(pointer, Tiles.AHEAD * lanes, memory.type))
            vectors.append(load(f, memory, type, pointer, mask))
        at = row * pitch + column
        for values in transpose(f, vectors):
            f.store(values, f.element(target, at, type))
            at = at + pitch

    # Along the memory of a few columns, which hardware prefetches.
    f.loop(
        0,
        source.columns,
        lanes,
        [],
        lambda c: f.loop(0, source.rows, lanes, [], lambda row: square(row, c)) and None,
    )


def transpose(f: Function, vectors: Sequence[Value]) -> Sequence[Value]:
    """The vectors of the columns of a square matrix, for the vectors of its rows."""
    size = len(vectors)
    low = [n // 2 + n % 2 * size for n in range(size)]
    high = [n + size // 2 for n in low]
    for _ in range(size.bit_length() - 1):
        pairs = zip(vectors[: size // 2], vectors[size // 2 :], strict=True)
        vectors = [f.fence(f.shuffle(a, b, lanes)) for a, b in pairs for lanes in (low, high)]
    return vectors


def _is_low(source: Block, lanes: int) -> bool:
    """True if strided loads of the rows take less time than squares of `lanes` rows.

    The rows of a window are few, and their columns are near each other.
    """
    rows, step = source.rows, source.column_stride
    if isinstance(rows, Value) or isinstance(step, Value):
        return False
    return 2 <= step <= Vectors.LONGEST_STEP and rows * step <= 2 * lanes
