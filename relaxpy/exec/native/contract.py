"""Recognises the runs of a kernel that are contractions of two factors, and emits them.

Axes with proportional strides are merged. They are sorted by the factors that have them: rows are
in one factor only, columns, whose elements should be adjacent, in the other one only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.buffers import position_of
from relaxpy.exec.kernel.nest.nodes import loads
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Run
from relaxpy.exec.native.blocking import PLACE_BYTES
from relaxpy.exec.native.contraction import (
    Axis,
    Contraction,
    Epilogue,
    Initial,
    Memory,
    Size,
    advance,
    converts,
    extents,
    merged,
    total,
)
from relaxpy.exec.native.few_rows import MOST_ROWS, DotEmitter, SpanEmitter
from relaxpy.exec.native.frame import storage_type, value_type
from relaxpy.exec.native.llvm import Function, Value
from relaxpy.exec.native.maths.emit import narrow, widen
from relaxpy.exec.native.packing import Packing
from relaxpy.exec.native.parallel import parallel
from relaxpy.exec.native.tiles import TileEmitter, tile_of
from relaxpy.exec.native.values import Values
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, Cast, Div, FloatImm, IntImm, Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions

_TARGET, _A, _B, _INITIAL = range(4)
"""The operands, in the order of strides."""
_SERIAL = 1 << 18
"""The number of products below which a contraction takes less time than to start threads."""

_SHORT = 32
"""The extent below which the axis of the columns is chosen by the costs of vectors and copies."""
_DEEP = 256
"""The products of a sum from which these costs are those of the contraction."""
_FEW_OPERATIONS = 5
"""The operations of an epilogue up to which tiles apply it to their registers."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """Elements of a buffer: the position of the first one, and the datatypes it is cast to."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    casts: tuple[DataType, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """An axis: its extent, and its stride in each operand."""

    extent: IndexPoly
    strides: tuple[IndexPoly, ...]

    def has(self, operand: int) -> bool:
        """Whether the elements of that operand differ along the axis."""
        return self.strides[operand].constant != 0


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A run that is a contraction.

    The operands are the target, the factors with the rows and with the columns, the buffer of the
    initial values if they are loaded, and the `loads` of the stores `after` the sums; `starts` are
    the positions of their first elements.
    """

    member: Assignment
    after: tuple[Assignment, ...]
    loads: tuple[BufferLoad, ...]
    operands: tuple[Operand, ...]
    starts: tuple[IndexPoly, ...]
    outer: tuple[Dimension, ...]
    row: Dimension | None
    column: Dimension
    over: tuple[Dimension, ...]


def product_of(run: Run, root: Callable[[Buffer], Buffer]) -> Product | None:
    """`run` as a contraction, or None if it is not one that runs in tiles.

    `root` is the buffer whose memory a buffer uses.
    """
    if len(run.statements) != 1 or not run.over or not run.axes:
        return None
    [member] = run.assignments
    factors = _factors(member)
    if factors is None or member.combine != "add" or member.guards:
        return None
    stored = run.after[-1] if run.after else member
    operands = [Operand(stored.target, stored.indices), *factors]
    match member.initial:
        case None | IntImm() | FloatImm():
            pass
        case BufferLoad(buffer=buffer, indices=indices) if buffer.dtype == member.target.dtype:
            operands.append(Operand(buffer, indices))
        case _:
            return None
    elements = _loads_after(run)
    operands += [Operand(x.buffer, x.indices) for x in elements]
    if any(root(o.buffer) is root(stored.target) for o in operands[1:]):
        return None
    variables = {a.var for a in run.loops}
    bounds = [b for a in run.loops for b in (a.start, a.stop)]
    if any(mentions(b, variables) for b in bounds):
        return None
    found = [affine(position_of(o.buffer, o.indices), variables) for o in operands]
    linear = [x for x in found if x is not None]
    if len(linear) < len(found) or any(
        next(loads(x.offset.expr()), None) is not None for x in linear
    ):
        return None
    zero = as_poly(0)
    dimensions = [
        Dimension(a.extent, tuple(x.coefficients.get(a.var, zero) for x in linear))
        for a in run.loops
    ]
    starts = []
    for position in linear:
        start = position.offset
        for axis in run.loops:
            start = start + position.coefficients.get(axis.var, zero) * as_poly(axis.start)
        starts.append(start)
    spatial, over = dimensions[: len(run.axes)], dimensions[len(run.axes) :]
    if not all(d.has(_TARGET) for d in spatial) or any(d.has(_TARGET) for d in over):
        return None
    if any(d.extent.constant is not None and d.extent.constant < 1 for d in dimensions):
        return None
    if any(d.has(n) for n in range(_INITIAL, len(operands)) for d in over):
        return None
    product = Product(
        member, run.after, elements, tuple(operands), tuple(starts), (), None, spatial[0], ()
    )
    return _sorted(product, _merged(spatial), over)


def _loads_after(run: Run) -> tuple[BufferLoad, ...]:
    """The elements that the stores after an accumulation read, apart from what they store."""
    known = {m.target for m in (*run.assignments, *run.after)}
    found = dict.fromkeys(x for m in run.after for x in loads(m.value))
    return tuple(x for x in found if x.buffer not in known)


def _factors(member: Assignment) -> tuple[Operand, Operand] | None:
    """The factors of a product whose sums native code can add."""
    dtype, target = member.value.dtype, member.target.dtype
    if dtype.is_float != target.is_float or dtype.bits < 32:
        return None
    if dtype != target and target.bits != 16:
        return None
    match member.value:
        case Mul(a=a, b=b):
            left, right = _factor(a), _factor(b)
            return None if left is None or right is None else (left, right)
        case _:
            return None


def _factor(expr: PrimExpr) -> Operand | None:
    """An element that is cast, if at all, to datatypes that have all its values."""
    casts: list[DataType] = []
    while isinstance(expr, Cast):
        casts.insert(0, expr.dtype)
        expr = expr.value
    if not isinstance(expr, BufferLoad):
        return None
    source = expr.buffer.dtype
    for target in casts:
        if not _widens(source, target):
            return None
        source = target
    return Operand(expr.buffer, expr.indices, tuple(casts))


def _widens(source: DataType, target: DataType) -> bool:
    if source.is_bool or target.is_bool:
        return False
    if source.is_float:
        return target.is_float and source.bits < target.bits
    if target.is_float:
        return source.bits <= 16 and target.bits >= 32
    return source.bits < target.bits and (source.family == "uint" or target.family == "int")


def _sorted(
    product: Product, spatial: Sequence[Dimension], over: Sequence[Dimension]
) -> Product | None:
    """The product with the roles of its axes; None if no axis can be that of the columns."""
    order = list(range(len(product.operands)))
    columns = [d for d in spatial if d.has(_A) != d.has(_B)]
    column = max(columns, key=_suits_columns, default=None)
    if column is None:
        return None
    column = _cheaper(column, columns, over)
    if column.has(_A):
        order[_A], order[_B] = _B, _A

    def reordered(dimension: Dimension) -> Dimension:
        return Dimension(dimension.extent, tuple(dimension.strides[n] for n in order))

    def depth(dimension: Dimension) -> tuple[float, float]:
        strides = [dimension.strides[n].constant for n in (_B, _A)]
        b, a = (float("-inf") if s is None else -s for s in strides)
        return b, a

    rest = [reordered(d) for d in spatial if d is not column]
    # Axes without the second factor are the innermost ones: a task shares a copy of that.
    rest.sort(key=lambda d: not d.has(_B))
    rows = [d for d in rest if d.has(_A) and not d.has(_B)]
    row = max(rows, key=lambda d: float(d.extent.constant or 1 << 20), default=None)
    return replace(
        product,
        operands=tuple(product.operands[n] for n in order),
        starts=tuple(product.starts[n] for n in order),
        outer=tuple(d for d in rest if d is not row),
        row=row,
        column=reordered(column),
        # The innermost axis of the sum is the one with adjacent elements.
        over=tuple(sorted(map(reordered, over), key=depth)),
    )


def _cheaper(
    column: Dimension, columns: Sequence[Dimension], over: Sequence[Dimension]
) -> Dimension:
    """The axis of columns: another one than `column` if that is too short to fill vectors."""
    depth = math.prod(d.extent.constant or 0 for d in over)
    length = column.extent.constant
    if length is None or length >= _SHORT or depth < _DEEP:
        return column

    def cost(d: Dimension) -> float:
        """The time for a product, where 1 is that of full vectors of operands in place."""
        factor = _A if d.has(_A) else _B
        rows = math.prod(o.extent.constant or 1 for o in columns if o.has(factor) != d.has(factor))
        extent, stride = d.extent.constant or 0, d.strides[factor].constant
        fill = -(-extent // 8) * 8 / max(extent, 1)
        copy = {1: 0, 2: 3}.get(stride or 0, 16)
        if copy and any(o.strides[factor].constant == 1 for o in over):
            copy = 4
        scatter = 0 if d.strides[_TARGET].constant == 1 else 25
        return fill + copy / rows + scatter / depth

    others = [d for d in columns if (d.extent.constant or 0) >= _SHORT]
    return min([column, *others], key=cost)


def _suits_columns(dimension: Dimension) -> tuple[bool, bool, bool, int]:
    """A key that is greater for long axes with adjacent elements in the target or a factor."""
    extent = dimension.extent.constant
    target, a, b = dimension.strides[:_INITIAL]
    size = extent if extent is not None else 1 << 20
    return size >= 4, target.constant == 1, 1 in (a.constant, b.constant), size


def _merged(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """The axes, of which adjacent ones with proportional strides become one."""
    result: list[Dimension] = []
    for inner in dimensions:
        if result:
            pairs = zip(result[-1].strides, inner.strides, strict=True)
            if all(a.same(b * inner.extent) for a, b in pairs):
                result[-1] = Dimension(result[-1].extent * inner.extent, inner.strides)
                continue
        result.append(inner)
    return result


def emit_product(product: Product, frame: Values, *, in_task: bool) -> None:
    """Emit a contraction, whose operands `frame` knows the addresses of.

    It has tasks of its own if there is enough work, unless it is part of one.
    """
    f, contraction = frame.function, _packable(product, contraction_of(product, frame), frame)
    rows = contraction.row.extent

    def run(one: Contraction) -> None:
        _run(f, one, in_task=in_task)

    if isinstance(rows, Value):
        # A batch of one is as common as it is slow in tiles.
        single = replace(contraction, row=replace(contraction.row, extent=1))
        f.branch(f.compare("eq", rows, 1), lambda: run(single), lambda: run(contraction))
    else:
        run(contraction)


def _packable(product: Product, contraction: Contraction, frame: Values) -> Contraction:
    """The contraction, whose second operand may be packed if nothing else reads it.

    That is for what is copied otherwise. The frame then knows how.
    """
    buffer, uses = product.operands[_B].buffer, frame.packable
    if buffer not in uses or isinstance(contraction.row.extent, Value):
        return contraction
    emitter = emitter_of(frame.function, contraction)
    copied = isinstance(emitter, TileEmitter) and emitter.packs_b and not emitter.pairs
    if not copied or product.starts[_B].constant != 0 or converts(contraction.b, contraction):
        return contraction
    sizes = [(axis.extent, axis.b) for axis in (*contraction.over, contraction.column)]
    known = [(n, b) for n, b in sizes if isinstance(n, int) and isinstance(b, int) and n > 0]
    fixed = all(isinstance(axis.b, int) and axis.b == 0 for axis in contraction.outer)
    others = [o for n, o in enumerate(product.operands) if n != _B and o.buffer is buffer]
    if not fixed or len(known) < len(sizes) or others:
        return contraction
    uses[buffer] = Packing(emitter.width, tuple(known[:-1]), known[-1])
    return replace(contraction, b=replace(contraction.b, may_be_packed=True))


def _run(f: Function, contraction: Contraction, *, in_task: bool) -> None:
    """Emit the tasks, in parallel if there is enough work."""
    emitter = emitter_of(f, contraction)
    axes = (*contraction.outer, contraction.row, contraction.column, *contraction.over)
    if in_task or math.prod(extents(axes)) < _SERIAL:
        f.loop(0, emitter.tasks, 1, [], emitter.emit)
        return
    outer = contraction.values()

    def body(inner: Function, task: Value, *values: Value) -> None:
        known = {a.name: b for a, b in zip(outer, values, strict=True)}
        emitter_of(inner, contraction.of_values(lambda v: known[v.name])).emit(task)

    parallel(f, emitter.tasks, outer, body)


def contraction_of(product: Product, frame: Values) -> Contraction:
    """The addresses, extents and strides of a product."""
    f = frame.function

    def size(value: IndexPoly) -> Size:
        constant = value.constant
        return frame.index(value) if constant is None else constant

    def memory(number: int) -> Memory:
        operand = product.operands[number]
        _, first = frame.blocks.get(operand.buffer, ((), as_poly(0)))
        start = product.starts[number] + first
        type = storage_type(operand.buffer.dtype)
        pointer = advance(f, frame.pointers[operand.buffer], size(start), type)
        changes = bool(operand.casts) or value_type(operand.buffer.dtype) != type
        return Memory(pointer, type, partial(_converted, operand) if changes else None)

    def axis(dimension: Dimension) -> Axis:
        extent = size(dimension.extent)
        if not isinstance(extent, Value):
            extent = max(extent, 0)
        elif not dimension.extent.is_at_least(0, frame.shape_vars):
            extent = f.intrinsic("smax", extent, 0)
        target, a, b = (size(s) for s in dimension.strides[:_INITIAL])
        return Axis(extent, a, b, target)

    def elements(number: int, memory: Memory) -> Initial:
        row = as_poly(0) if product.row is None else product.row.strides[number]
        strides = [*(d.strides[number] for d in product.outer), row, product.column.strides[number]]
        return Initial(0, memory, tuple(map(size, strides)))

    def initial() -> Initial:
        value = product.member.initial
        if isinstance(value, (IntImm, FloatImm)):
            return Initial(value.value)
        number = _TARGET if value is None else _INITIAL
        return elements(number, memory(number))

    def epilogue() -> Epilogue | None:
        if not product.after:
            return None
        first = len(product.operands) - len(product.loads)
        found = []
        for number, element in enumerate(product.loads, first):
            widened = partial(_widened, element.buffer.dtype)
            found.append(elements(number, replace(memory(number), convert=widened)))
        return Epilogue(tuple(found), _frame, partial(_computed, product), _is_costly(product))

    target = product.member.target.dtype
    return Contraction(
        memory(_A),
        memory(_B),
        memory(_TARGET),
        tuple(map(axis, product.outer)),
        Axis(1) if product.row is None else axis(product.row),
        axis(product.column),
        tuple(map(axis, product.over)),
        value_type(target),
        initial(),
        _bfloat if str(target) == "bfloat16" and not product.after else None,
        epilogue(),
    )


def _frame(f: Function) -> Values:
    return Values(f, {}, {}, (), ())


def _widened(dtype: DataType, value: Value) -> Value:
    """An element of memory as values are computed."""
    return _frame(value.function).widened(value, dtype)


def _computed(product: Product, frame: Values, sum_: Value, operands: Sequence[Value]) -> Value:
    """The value that the last store after a sum stores, as memory has it."""
    member, last = product.member, product.after[-1].target.dtype
    frame.stored[member.target, member.indices] = frame.rounded(sum_, member.target.dtype)
    for load, value in zip(product.loads, operands, strict=True):
        frame.stored[load.buffer, load.indices] = value
    result = sum_
    for store in product.after:
        result = frame.value(store.value)
        frame.stored[store.target, store.indices] = result
    return frame.narrowed(frame.wide(result, sum_.type.lanes), last)


def joins(product: Product) -> bool:
    """Whether the stores after a sum are faster with it than as a loop of their own.

    A long epilogue loads the sums again, which takes long if they are not adjacent.
    """
    return product.column.strides[_TARGET].constant == 1 or not _is_costly(product)


def _is_costly(product: Product) -> bool:
    """Whether an epilogue is longer than a few instructions, and its result is of the same type."""
    if product.after[-1].target.dtype != product.member.target.dtype:
        return False
    nodes = [n for m in product.after for n in walk(m.value) if isinstance(n, PrimExpr)]
    short = (BufferLoad, Var, IntImm, FloatImm)
    count = sum(8 if isinstance(n, (Call, Div)) else not isinstance(n, short) for n in nodes)
    return product.member.target.dtype.bits >= 32 and count > _FEW_OPERATIONS


def _bfloat(value: Value) -> Value:
    return value.function.cast("bitcast", narrow(value, "bfloat"), "i16")


def _converted(operand: Operand, value: Value) -> Value:
    """Elements of memory as values of the last datatype that they are cast to."""
    f, source = value.function, operand.buffer.dtype
    if str(source) == "bfloat16":
        value = widen(f.cast("bitcast", value, "bfloat"))
    for target in (source, *operand.casts):
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


def emitter_of(f: Function, contraction: Contraction) -> TileEmitter | DotEmitter | SpanEmitter:
    """The emitter that suits the extents and strides of a contraction."""
    rows, column = contraction.row.extent, contraction.column
    bits = f.module.vector_bits
    tile = tile_of(contraction.accumulator, rows, bits, 16 if bits == 256 else 32)
    if isinstance(rows, Value) or rows > MOST_ROWS:
        return TileEmitter(f, contraction, tile)
    inner = merged(contraction.over)[-1:]
    if inner and _is_one(inner[0].a) and _is_one(inner[0].b):
        return DotEmitter(f, contraction)
    if not _is_one(column.b) or isinstance(column.extent, Value):
        return TileEmitter(f, contraction, tile)
    depth = total(f, [axis.extent for axis in contraction.over])
    size = contraction.b.type.bits // 8
    small = isinstance(depth, int) and depth * column.extent * size <= PLACE_BYTES
    return TileEmitter(f, contraction, tile) if small else SpanEmitter(f, contraction, tile.lanes)


def _is_one(stride: Size) -> bool:
    return not isinstance(stride, Value) and stride == 1
