"""Emits contractions of two factors, with fused epilogues."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from relaxpy.exec.machine.tuning import Gemv, Products, Tiles
from relaxpy.exec.native.contraction.dots import dots_of
from relaxpy.exec.native.contraction.few_rows import DotEmitter, RowLanesEmitter, SpanEmitter
from relaxpy.exec.native.contraction.geometry import folded, tile_of, with_folded_rows
from relaxpy.exec.native.contraction.operands import (
    Epilogue,
    Fold,
    Gemm,
    GemmAxis,
    Initial,
    Matrix,
    Size,
    advance,
    converts,
    equals,
    extents,
    merged,
    total,
    with_values,
)
from relaxpy.exec.native.contraction.tiles import TileEmitter
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import Function, Value
from relaxpy.exec.native.threads.code import parallel
from relaxpy.exec.native.trees.product import (
    INITIAL,
    TARGET,
    A,
    B,
    Dimension,
    Operand,
    Product,
    is_costly,
)
from relaxpy.exec.native.values.datatypes import is_short_float, storage_type, value_type
from relaxpy.exec.native.values.expressions import Values
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.native.values.short_floats import from_memory, to_memory
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.tir.expr import FloatImm, IntImm
from relaxpy.support.dataclass import replace

Emitter: TypeAlias = TileEmitter | DotEmitter | RowLanesEmitter | SpanEmitter
"""The emitter of the tasks of a contraction."""


def emit_product(
    product: Product,
    frame: Values,
    *,
    in_task: bool,
    columns: tuple[Value, Value] | None = None,
    over: tuple[Value, Value] | None = None,
) -> None:
    """Emit a contraction; `frame` has the addresses of its operands.

    It has tasks of its own if there is enough work, unless it is `in_task`. Optional half-open
    ranges restrict it to `columns`, and to `over` on the only reduction axis.
    """
    f = frame.function
    if columns is None and over is None:
        contraction = _contraction(product, frame)
    else:
        contraction = contraction_of(product, frame)
        sums = tuple(replace(axis, within=over) for axis in contraction.over)
        column = replace(contraction.column, within=columns)
        contraction = replace(contraction, column=column, over=sums)
    rows = contraction.row.extent

    def run() -> None:
        _run(f, contraction, in_task=in_task)

    def run_rows(row: GemmAxis, when: Value, others: Callable[[], None]) -> None:
        """Run a form for these rows, or else `others`."""
        f.branch(when, lambda: _run(f, replace(contraction, row=row), in_task=in_task), others)

    def run_few(rows: Value) -> None:
        suitable = RowLanesEmitter if in_task else (DotEmitter, RowLanesEmitter)
        for most in (Gemv.MOST_DIGIT_ROWS, Gemv.MOST_DOT_ROWS, Gemv.MOST_ROWS):
            few = replace(contraction.row, most=most)
            if isinstance(emitter_of(f, replace(contraction, row=few)), suitable):
                return run_rows(few, f.compare("sle", rows, most), run)
        return run()

    has_few = product.row is not None and not product.row.extent.mentions(frame.long)
    if isinstance(rows, Value) and has_few and not contraction.b.is_packed:
        # A batch of one is common, and slow in tiles unless these need no copies.
        single = replace(contraction.row, extent=1)
        run_rows(single, f.compare("eq", rows, 1), lambda: run_few(rows))
    else:
        run()


def emit_tiles(product: Product, frame: Values) -> None:
    """Emit a contraction that is part of a task, and has many rows."""
    _run(frame.function, contraction_of(product, frame), in_task=True)


def _contraction(product: Product, frame: Values) -> Gemm:
    """The contraction.

    Columns are folded if they are then loaded in place, rows if the second operand is packed.
    """
    joined, fold = folded(product, frame.function.module)
    if fold is not None:
        contraction = replace(contraction_of(joined, frame), fold=fold)
        emitter = emitter_of(frame.function, contraction)
        if isinstance(emitter, TileEmitter) and emitter.loads_columns:
            return contraction
    plain = contraction_of(product, frame)
    # The order of a packed operand is free, so that of the image decides: its pixels may be in one
    # cache set.
    along = sorted(product.over, key=lambda d: -(d.strides[A].constant or math.inf))
    ordered = replace(product, over=tuple(along))
    joined, fold = with_folded_rows(ordered)
    if fold is not None:
        gemm = contraction_of(joined, frame)
        packed = _packed(product, replace(gemm, row_fold=fold), frame)
        if packed is not None:
            return packed if product.operands[B].buffer in frame.packed else plain
    packed = _packed(product, contraction_of(ordered, frame), frame)
    return packed if packed and product.operands[B].buffer in frame.packed else plain


def _packed(product: Product, contraction: Gemm, frame: Values) -> Gemm | None:
    """The contraction with a packed second operand; None if it cannot be packed, or need not be.

    It can if it has no other reader. This pays if the operand would be copied otherwise, or is
    faster to read in order. The frame records the packing, with which another form of the kernel
    may take it.
    """
    buffer, uses = product.operands[B].buffer, frame.packable
    if buffer not in uses:
        return None
    # A packed operand has fixed sizes.
    sizes = [(axis.extent, axis.b) for axis in (*contraction.over, contraction.column)]
    known = [(n, b) for n, b in sizes if isinstance(n, int) and isinstance(b, int) and n > 0]
    fixed = all(isinstance(axis.b, int) and axis.b == 0 for axis in contraction.outer)
    others = [o for n, o in enumerate(product.operands) if n != B and o.buffer is buffer]
    if not fixed or len(known) < len(sizes) or others:
        return None
    emitter = emitter_of(frame.function, contraction)
    packed = replace(contraction, b=replace(contraction.b, is_packed=True))
    if _is_faster_packed(emitter):
        emitter = emitter_of(frame.function, packed)
    if not isinstance(emitter, TileEmitter) or not emitter.packs_b:
        return None
    if contraction.row_fold is not None and not _suits_folded_rows(emitter, contraction.row_fold):
        return None
    dots, joined = emitter.dots, None
    dtype = _packed_dtype(product.operands[B], emitter)
    if product.starts[B].constant != 0 or dtype is None:
        return None
    if dots is not None:
        joined = Joined(dots.count, dots.dtype, emitter.depth, dots.moved, dots.swaps)
    other = ""
    if dtype != buffer.dtype:
        other, convert = str(dtype), partial(_converted, dtype, product.operands[B].casts)
        pointer = packed.b.pointer
        b = Matrix(pointer, storage_type(dtype), convert, is_packed=True, dtype=other)
        packed = replace(packed, b=b)
    uses[buffer] = Packing(emitter.width, tuple(known[:-1]), known[-1], joined, other)
    return packed


def _packed_dtype(operand: Operand, emitter: TileEmitter) -> DataType | None:
    """The datatype that the second operand is packed in; None if each call had better convert it.

    Tiles convert what they load. For floats of 16 bits that is one instruction; those of 8 bits
    would need several, and are packed as bfloat16. Short floats that are read for many rows and
    have no instruction, or are small, as those of a convolution, are packed as float32.
    """
    contraction, dtype = emitter.contraction, operand.buffer.dtype
    if emitter.dots is not None:
        # Joined rows are those of one k-block; all k-blocks have the same number.
        axis = emitter.chunked
        extent = 0 if axis is None else axis.extent
        return dtype if isinstance(extent, int) and extent % emitter.chunk == 0 else None
    if not converts(contraction.b, contraction):
        return dtype
    many = math.prod(extents((*contraction.outer, contraction.row)))
    is_window, is_short = len(merged(contraction.over)) > 1, is_short_float(dtype)
    has_half = emitter.f.module.platform.architecture.has_half
    if is_short and not is_window and (has_half or dtype != "float16"):
        return dtype if dtype.bits == 16 else DataType("bfloat16")
    if is_window or Tiles.ROWS <= many < math.inf:
        return FLOAT32 if is_short else None
    return None if is_short else dtype


def _suits_folded_rows(emitter: TileEmitter, fold: Fold) -> bool:
    """True if tiles read rows in place that fill them only if folded, or copy few."""
    contraction = emitter.contraction
    if emitter.dots is not None or converts(contraction.a, contraction):
        return fold.width < Tiles.ROWS and equals(contraction.over[-1].a, 1)
    return not emitter.packs_a and fold.width % emitter.tile.rows > 0


def _is_faster_packed(emitter: Emitter) -> bool:
    """True if tiles with a packed operand are faster than reading it in place."""
    contraction = emitter.contraction
    if isinstance(emitter, TileEmitter):
        axes = (*contraction.over, contraction.column)
        size = math.prod(extents(axes)) * contraction.b.type.bits // 8
        is_wide = math.prod(extents((contraction.column,))) > emitter.width
        return is_wide and Tiles.NEAREST_BYTES < size < math.inf
    if contraction.row_fold is not None:
        return True
    if isinstance(emitter, DotEmitter):
        return emitter.rows > 1 and emitter.dots is None
    is_span = isinstance(emitter, SpanEmitter)
    return is_span and (emitter.rows > 1 or _has_dots(emitter.f.module, contraction))


def _run(f: Function, contraction: Gemm, *, in_task: bool) -> None:
    """Emit the tasks, in parallel if there is enough work."""
    emitter = emitter_of(f, contraction, in_task=in_task)
    axes = (*contraction.outer, contraction.row, contraction.column, *contraction.over)
    if in_task or math.prod(extents(axes)) < Products.SERIAL:
        f.loop(0, emitter.tasks, 1, [], emitter.emit)
        return
    outer = contraction.values()

    def body(inner: Function, task: Value, _: Value, *values: Value) -> None:
        known = {a.name: b for a, b in zip(outer, values, strict=True)}
        emitter_of(inner, with_values(contraction, lambda v: known[v.name])).emit(task)

    parallel(f, emitter.tasks, outer, body)


def contraction_of(product: Product, frame: Values) -> Gemm:
    """The addresses, extents and strides of a product."""
    f = frame.function

    def size(value: IndexPoly) -> Size:
        constant = value.constant
        return frame.index(value) if constant is None else constant

    def memory(number: int) -> Matrix:
        operand = product.operands[number]
        _, first = frame.blocks.get(operand.buffer, ((), as_poly(0)))
        start = product.starts[number] + first
        type = storage_type(operand.buffer.dtype)
        pointer = advance(f, frame.pointers[operand.buffer], size(start), type)
        dtype = operand.buffer.dtype
        changes = bool(operand.casts) or value_type(dtype) != type
        convert = partial(_converted, dtype, operand.casts) if changes else None
        return Matrix(pointer, type, convert, dtype=str(dtype))

    def axis(dimension: Dimension) -> GemmAxis:
        extent = size(dimension.extent)
        if not isinstance(extent, Value):
            extent = max(extent, 0)
        elif not dimension.extent.is_at_least(0, frame.shape_vars):
            extent = f.intrinsic("smax", extent, 0)
        target, a, b = (size(s) for s in dimension.strides[:INITIAL])
        return GemmAxis(extent, a, b, target)

    def elements(number: int, memory: Matrix) -> Initial:
        row = as_poly(0) if product.row is None else product.row.strides[number]
        strides = [*(d.strides[number] for d in product.outer), row, product.column.strides[number]]
        return Initial(0, memory, tuple(map(size, strides)))

    def initial() -> Initial:
        value = product.member.initial
        if isinstance(value, (IntImm, FloatImm)):
            return Initial(value.value)
        number = TARGET if value is None else INITIAL
        return elements(number, memory(number))

    def epilogue() -> Epilogue | None:
        if not product.after:
            return None
        first = len(product.operands) - len(product.loads)
        found = []
        for number, element in enumerate(product.loads, first):
            widened = partial(_widened, element.buffer.dtype)
            found.append(elements(number, replace(memory(number), convert=widened)))
        return Epilogue(tuple(found), _frame, partial(_computed, product), is_costly(product))

    target = product.member.target.dtype
    return Gemm(
        memory(A),
        memory(B),
        memory(TARGET),
        tuple(map(axis, product.outer)),
        GemmAxis(1) if product.row is None else axis(product.row),
        axis(product.column),
        tuple(map(axis, product.over)),
        value_type(target),
        initial(),
        None if product.after else lambda value: to_memory(value, target),
        epilogue(),
    )


def _frame(f: Function) -> Values:
    return Values(f, {}, {}, (), ())


def _widened(dtype: DataType, value: Value) -> Value:
    """An element of memory in the type of arithmetic."""
    return _frame(value.function).widened(value, dtype)


def _computed(product: Product, frame: Values, sum_: Value, operands: Sequence[Value]) -> Value:
    """The value of the last store of the epilogue, in memory's type."""
    member, last = product.member, product.after[-1].target.dtype
    frame.stored[member.target, member.indices] = frame.rounded(sum_, member.target.dtype)
    for load, value in zip(product.loads, operands, strict=True):
        frame.stored[load.buffer, load.indices] = value
    result = sum_
    for store in product.after:
        result = frame.value(store.value)
        frame.stored[store.target, store.indices] = result
    return frame.narrowed(frame.wide(result, sum_.type.lanes), last)


def _converted(source: DataType, casts: Sequence[DataType], value: Value) -> Value:
    """Elements of memory, converted to the last datatype that they are cast to."""
    f = value.function
    value = from_memory(value, source)
    for target in (source, *casts):
        element = value_type(target).element
        if value.type.element != element:
            unsigned = source.family == "uint"
            if value.type.is_float:
                name = "fpext"
            elif target.is_float:
                name = "uitofp" if unsigned else "sitofp"
            else:
                name = "zext" if unsigned else "sext"
            value = f.cast(name, value, element)
        source = target
    return value


def emitter_of(f: Function, contraction: Gemm, *, in_task: bool = False) -> Emitter:
    """The emitter that suits the extents and strides of a contraction.

    Tiles pay where several rows use each element of the second factor, or where that is packed.
    """
    rows, column, bits = contraction.row.extent, contraction.column, f.module.vector_bits
    tile = tile_of(contraction.accumulator, rows, column.extent, bits, f.module.vector_registers)
    most = contraction.row.most if isinstance(rows, Value) else rows
    in_blocks = isinstance(rows, Value) and _has_dots(f.module, contraction)
    limit = Gemv.MOST_DIGIT_ROWS if in_blocks else Gemv.MOST_DOT_ROWS
    if most is not None and most <= limit and not contraction.b.is_packed:
        found = _emitter_of_few_rows(f, contraction, most, tile.lanes)
        if found is not None:
            return found
    return TileEmitter(f, contraction, tile, in_task=in_task)


def _emitter_of_few_rows(
    f: Function, contraction: Gemm, most: int, lanes: int
) -> DotEmitter | RowLanesEmitter | SpanEmitter | None:
    """The emitter that reads the second factor in memory order for few rows; None if tiles do."""
    rows, column, over = contraction.row.extent, contraction.column, merged(contraction.over)
    inner = over[-1:]
    if (
        inner
        and equals(inner[0].a, 1)
        and equals(inner[0].b, 1)
        and not _is_window(column, inner[0])
    ):
        dots = DotEmitter(f, contraction)
        if len(over) > 1 and extents(inner)[0] < dots.vector.lanes:
            return None  # A window of an image fills no vector.
        if most <= Gemv.MOST_ROWS or _suits_more_rows(dots):
            return dots
        if (in_lanes := RowLanesEmitter(f, contraction)).suits(most):
            return in_lanes
    few = Products.SPAN_BYTE_ROWS if _has_dots(f.module, contraction) else Gemv.MOST_ROWS
    if isinstance(rows, Value) or isinstance(column.extent, Value):
        return None
    if rows > few or not equals(column.b, 1):
        return None
    depth = total(f, [axis.extent for axis in contraction.over])
    row_bytes = column.extent * (contraction.b.type.bits // 8)
    # Tiles read a small factor in place as quickly.
    is_small = isinstance(depth, int) and depth * row_bytes <= Tiles.PLACE_BYTES
    return None if is_small else SpanEmitter(f, contraction, lanes)


def _suits_more_rows(dots: DotEmitter) -> bool:
    """True if more than a few rows are read along the sum, which is long."""
    contraction, inner = dots.contraction, dots.over[-1].extent
    if dots.dots is not None:
        return math.prod(extents(contraction.over)) >= Products.DEEP_BYTES
    return isinstance(inner, Value) or inner >= Products.DEEP_ROWS


def _has_dots(module: Module, contraction: Gemm) -> bool:
    """True if there are dot-product instructions for the operands."""
    return dots_of(module, contraction.accumulator, contraction.a, contraction.b) is not None


def _is_window(column: GemmAxis, inner: GemmAxis) -> bool:
    """True if the columns are adjacent too, as in a convolution, and longer than the sum."""
    if isinstance(column.extent, Value) or isinstance(inner.extent, Value):
        return False
    return equals(column.b, 1) and column.extent > inner.extent
