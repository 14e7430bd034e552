"""Recognises contractions of two factors, which are computed in register tiles.

Axes with proportional strides are merged. They are sorted by the factors that have them: rows are
in one factor only, columns, whose elements should be adjacent, in the other one only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.tuning import Products
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, Cast, Div, FloatImm, IntImm, Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace

TARGET, A, B, INITIAL = range(4)
"""The operands, in the order of strides."""
_ZERO = as_poly(0)
_BYTE = 8


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
        """True if the elements of that operand differ along the axis."""
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


@lru_cache(maxsize=1 << 8)
def product_of(run: Run) -> Product | None:
    """`run` as a contraction, or None if it is not one that runs in tiles."""
    if len(run.statements) != 1 or not run.over or not run.axes:
        return None
    [member] = run.assignments
    factors = _factors(member)
    if factors is None or member.combine != "add" or member.guards:
        return None
    elements = _loads_after(run)
    operands = _operands(run, member, factors, elements)
    linear = None if operands is None else _linear_positions(run, operands)
    if operands is None or linear is None:
        return None
    dimensions = [
        Dimension(a.extent, tuple(x.coefficients.get(a.var, _ZERO) for x in linear))
        for a in run.loops
    ]
    spatial, over = dimensions[: len(run.axes)], dimensions[len(run.axes) :]
    if not all(d.has(TARGET) for d in spatial) or any(d.has(TARGET) for d in over):
        return None
    if any(d.extent.constant is not None and d.extent.constant < 1 for d in dimensions):
        return None
    if any(d.has(n) for n in range(INITIAL, len(operands)) for d in over):
        return None
    # Tiles poll no signals: what they add is bounded by the elements of the factors.
    if not all(d.has(A) or d.has(B) or d.extent.constant == 1 for d in over):
        return None
    starts = tuple(_at_start(x, run) for x in linear)
    product = Product(member, run.after, elements, operands, starts, (), None, spatial[0], ())
    return _sorted(product, _merged(spatial), over)


def _operands(
    run: Run, member: Assignment, factors: tuple[Operand, Operand], elements: Sequence[BufferLoad]
) -> tuple[Operand, ...] | None:
    """The operands, in their order; None if the target is one of the others as well."""
    stored = run.after[-1] if run.after else member
    others = [*factors]
    match member.initial:
        case None | IntImm() | FloatImm():
            pass
        case BufferLoad(buffer=buffer, indices=indices) if buffer.dtype == member.target.dtype:
            others.append(Operand(buffer, indices))
        case _:
            return None
    others += [Operand(x.buffer, x.indices) for x in elements]
    if any(o.buffer is stored.target for o in others):
        return None
    return Operand(stored.target, stored.indices), *others


def _linear_positions(run: Run, operands: Sequence[Operand]) -> list[Affine] | None:
    """The positions of the operands, or None if one is not affine, or has a load.

    Also if the bounds of a loop depend on another one.
    """
    variables = {a.var for a in run.loops}
    if any(mentions(b, variables) for a in run.loops for b in (a.start, a.stop)):
        return None
    found = [affine(position_of(o.buffer, o.indices), variables) for o in operands]
    linear = [x for x in found if x is not None]
    has_loads = any(next(loads(x.offset.expr()), None) is not None for x in linear)
    return None if has_loads or len(linear) < len(found) else linear


def _at_start(position: Affine, run: Run) -> IndexPoly:
    """A position in the first iteration of all loops."""
    start = position.offset
    for axis in run.loops:
        start = start + position.coefficients.get(axis.var, _ZERO) * as_poly(axis.start)
    return start


def _loads_after(run: Run) -> tuple[BufferLoad, ...]:
    """The elements that the stores after an accumulation read, except those that they store."""
    known = {m.target for m in run.stores}
    found = dict.fromkeys(x for m in run.after for x in loads(m.value))
    return tuple(x for x in found if x.buffer not in known)


def _factors(member: Assignment) -> tuple[Operand, Operand] | None:
    """The factors of a product whose sums native code can add."""
    dtype, target = member.value.dtype, member.target.dtype
    if dtype.is_float != target.is_float or dtype.bits < 32:
        return None
    if dtype != target and target.bits > 16:
        return None
    match member.value:
        case Mul(a=a, b=b):
            left, right = _factor(a), _factor(b)
            return None if left is None or right is None else (left, right)
        case _:
            return None


def is_factor(expr: PrimExpr) -> bool:
    """True if a factor of a product may be such an expression."""
    return _factor(expr) is not None


def _factor(expr: PrimExpr) -> Operand | None:
    """An element with only lossless casts."""
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
    columns = [d for d in spatial if d.has(A) != d.has(B)]
    # Of equal axes the innermost one, as for rows.
    column = max(reversed(columns), key=_suits_columns, default=None)
    if column is None:
        return None
    every = replace(product, outer=tuple(spatial), row=None, column=column, over=tuple(over))
    return with_column(every, _cheaper(column, columns, over))


def with_column(product: Product, column: Dimension) -> Product:
    """The product, with one of its axes as that of the columns."""
    order = list(range(len(product.operands)))
    if column.has(A):
        order[A], order[B] = B, A

    def reordered(dimension: Dimension) -> Dimension:
        return Dimension(dimension.extent, tuple(dimension.strides[n] for n in order))

    def depth(dimension: Dimension) -> tuple[float, float]:
        # Both factors are packed if they are int8, the first one more often.
        order = (A, B) if _are_bytes(product) else (B, A)
        strides = [dimension.strides[n].constant for n in order]
        first, second = (float("-inf") if s is None else -s for s in strides)
        return first, second

    spatial = dict.fromkeys((*product.outer, product.row, product.column))
    rest = [reordered(d) for d in spatial if d is not None and d is not column]
    # Axes without the second factor are the innermost ones: a task reuses its packed copy.
    rest.sort(key=lambda d: not d.has(B))
    rows = [d for d in rest if d.has(A) and not d.has(B)]
    # Of equal axes the innermost one, whose elements are nearer: windows of a convolution overlap.
    row = max(reversed(rows), key=_suits_rows, default=None)
    return replace(
        product,
        operands=tuple(product.operands[n] for n in order),
        starts=tuple(product.starts[n] for n in order),
        outer=tuple(d for d in rest if d is not row),
        row=row,
        column=reordered(column),
        # The innermost axis of the sum is the one with adjacent elements.
        over=tuple(sorted(map(reordered, product.over), key=depth)),
    )


def _are_bytes(product: Product) -> bool:
    """True if both factors are int8."""
    return all(product.operands[n].buffer.dtype.bits == _BYTE for n in (A, B))


def _cheaper(
    column: Dimension, columns: Sequence[Dimension], over: Sequence[Dimension]
) -> Dimension:
    """The column axis: not `column` if that is too short to fill vectors."""
    depth = math.prod(d.extent.constant or 0 for d in over)
    length = column.extent.constant
    if length is None or length >= Products.SHORT_AXIS or depth < Products.DEEP:
        return column

    def cost(d: Dimension) -> float:
        """The time of a product, relative to full vectors of unpacked operands."""
        factor = A if d.has(A) else B
        rows = math.prod(o.extent.constant or 1 for o in columns if o.has(factor) != d.has(factor))
        extent, stride = d.extent.constant or 0, d.strides[factor].constant
        vectors = -(-extent // 8)
        # A tile of four rows loads four scalars as well, for which a single vector waits.
        fill = max(vectors, (4 + vectors) / 4) * 8 / max(extent, 1)
        copy = {1: 0, 2: 3}.get(stride or 0, 16)
        if copy and any(o.strides[factor].constant == 1 for o in over):
            copy = 4
        scatter = 0 if d.strides[TARGET].constant == 1 else 25
        return fill + copy / rows + scatter / depth

    others = [d for d in columns if (d.extent.constant or 0) >= Products.SHORT_AXIS]
    return min([column, *others], key=cost)


def _suits_columns(dimension: Dimension) -> tuple[bool, bool, bool, int]:
    """A key that is greater for long axes with adjacent elements in the target or a factor.

    A dynamic axis without adjacent elements is most likely a batch.
    """
    extent = dimension.extent.constant
    target, a, b = dimension.strides[:INITIAL]
    adjacent = target.constant == 1, 1 in (a.constant, b.constant)
    size = extent if extent is not None else 1 << 20 if any(adjacent) else Products.FEW_ROWS
    return size >= Products.FEW_ROWS, *adjacent, size


def _suits_rows(dimension: Dimension) -> float:
    """A key that is greater for long axes.

    A dynamic one, most likely a batch of one, is preferred to those that fill no tile.
    """
    return float(dimension.extent.constant or Products.FEW_ROWS)


def _merged(dimensions: Sequence[Dimension]) -> list[Dimension]:
    """The axes, with adjacent ones of proportional strides joined."""
    result: list[Dimension] = []
    for inner in dimensions:
        if result:
            pairs = zip(result[-1].strides, inner.strides, strict=True)
            if all(a.same(b * inner.extent) for a, b in pairs):
                result[-1] = Dimension(result[-1].extent * inner.extent, inner.strides)
                continue
        result.append(inner)
    return result


def joins(product: Product) -> bool:
    """True if the stores after a sum are faster as an epilogue than as a separate loop.

    A long epilogue loads the sums again, which takes long if they are not adjacent.
    """
    return product.column.strides[TARGET].constant == 1 or not is_costly(product)


def is_costly(product: Product) -> bool:
    """True if an epilogue is longer than a few instructions, with a result of its type."""
    if product.after[-1].target.dtype != product.member.target.dtype:
        return False
    nodes = [n for m in product.after for n in walk(m.value) if isinstance(n, PrimExpr)]
    short = (BufferLoad, Var, IntImm, FloatImm)
    count = sum(8 if isinstance(n, (Call, Div)) else not isinstance(n, short) for n in nodes)
    return product.member.target.dtype.bits >= 32 and count > Products.FEW_OPERATIONS
