"""Emits loads at computed indices: gathers of whole slices, or of single elements."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.numpy.emit.array_values import Output, Value
from relaxpy.exec.numpy.emit.scope import title
from relaxpy.exec.numpy.emit.views import view
from relaxpy.exec.numpy.python_ast import attribute, call, do, item
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import LT, Add, Cast, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions

if TYPE_CHECKING:
    from relaxpy.exec.numpy.emit.arrays import ArrayEmitter


def gather(emitter: ArrayEmitter, load: BufferLoad, out: Output | None) -> Value:
    """The elements at computed indices; this is `out` if a single gather can write to it."""
    return _slices(emitter, load, out) or _elements(emitter, load)


def _slices(emitter: ArrayEmitter, load: BufferLoad, out: Output | None) -> Value | None:
    """A load with one computed index, as slices of a view; None if there are more."""
    maps = _maps(emitter, load)
    computed = [n for n, index_map in enumerate(maps) if index_map is None]
    if len(computed) != 1 or emitter.guards:
        return None
    [dimension] = computed
    index, layout = load.indices[dimension], emitter.layout
    over = tuple(a for a in layout if mentions(index, {a.var}))
    if not over or any(m and a.var in m.coefficients for m in maps for a in over):
        return None
    first = layout.index(over[0])
    if layout[first : first + len(over)] != over:
        return None
    inner = emitter.over(over)
    indices = inner.compute(without_widening(index))
    if indices.dims != inner.variables:
        return None
    emitter.lines += inner.lines
    whole = Axis(Var("i", INT64), ops.const(0, INT64), load.buffer.shape[dimension])
    maps[dimension] = Affine({whole.var: as_poly(1)}, as_poly(0))
    axes = (*layout[:first], whole, *layout[first + len(over) :])
    source = view(
        emitter.scope,
        load.buffer,
        emitter.shape_of(load.buffer),
        [m for m in maps if m is not None],
        axes,
    )
    position = first - [a.var in source.dims for a in axes].index(True)
    node = call("rt.take", source.node, _checked(emitter, load, dimension, indices.node), position)
    dims = indices.dims.union(source.dims) - {whole.var}
    if out is not None and out.free and out.dims == dims and out.dtype == load.dtype:
        node.keywords.append(ast.keyword("out", out.node))
        emitter.lines.append(do(node))
        return Value(out.node, dims, load.dtype)
    return emitter.fresh(node, dims, load.dtype)


def _maps(emitter: ArrayEmitter, load: BufferLoad) -> list[Affine | None]:
    """The indices as affine maps; None for one that is not, or not provably in bounds."""
    maps: list[Affine | None] = []
    rows = emitter.rows.get(load.buffer)
    unproved = emitter.unproved(load.buffer, load.indices)
    for n, index in enumerate(emitter.present(load.buffer, load.indices)):
        proved = (rows is not None and rows.axis == n) or n not in unproved
        is_fixed = proved and next(loads(index), None) is None
        maps.append(affine(index, emitter.variables) if is_fixed else None)
    return maps


def _elements(emitter: ArrayEmitter, load: BufferLoad) -> Value:
    """Single elements, or slices over whole trailing dimensions."""
    name = emitter.scope.buffer(load.buffer)
    count = 0 if emitter.guards else trailing_axes(load, emitter.layout)
    split, rank = len(emitter.layout) - count, len(load.indices) - count
    inner = emitter.over(emitter.layout[:split]) if count else emitter
    indices = emitter.present(load.buffer, load.indices)[:rank]
    values = inner.values([without_widening(index) for index in indices])
    emitter.lines += inner.lines if count else []
    dims = frozenset(a.var for a in emitter.layout[split:]).union(*(v.dims for v in values))
    unproved = emitter.unproved(load.buffer, load.indices)
    checked = [n for n in unproved if n < rank]
    nodes = [v.node for v in values]
    node: ast.expr
    if emitter.guards:
        where, name_of = emitter.where(), title(emitter.name, load.buffer)
        node = call("rt.gather", name, tuple(nodes), tuple(checked), where, name_of)
    else:
        for n in checked:
            nodes[n] = _checked(emitter, load, n, nodes[n])
        node = item(name, *nodes) if count else call("rt.elements", name, tuple(nodes))
    return emitter.temporary(node, dims, load.dtype)


def _checked(
    emitter: ArrayEmitter, load: BufferLoad, dimension: int, indices: ast.expr
) -> ast.expr:
    """The `indices` along a dimension, checked while the program runs."""
    size = item(attribute(emitter.scope.buffer(load.buffer), "shape"), dimension)
    name = title(emitter.name, load.buffer)
    return call("rt.checked_indices", indices, size, dimension, name)


def trailing_axes(load: BufferLoad, layout: Sequence[Axis]) -> int:
    """The number of last axes of `layout` that are the last indices of `load`, in whole dimensions.

    The other indices do not depend on them, and one depends on another axis.
    """
    count, most = 0, min(len(load.indices), len(layout)) - 1
    while count < most:
        number = len(load.indices) - 1 - count
        axis = _full_axis(load.indices[number], load, number, layout)
        others = load.indices[:number]
        if axis is not layout[-1 - count] or any(mentions(i, {axis.var}) for i in others):
            break
        count += 1
    over = {a.var for a in layout[: len(layout) - count]}
    rest = load.indices[: len(load.indices) - count]
    return count if any(mentions(i, over) for i in rest) else 0


def _full_axis(
    index: PrimExpr, load: BufferLoad, dimension: int, layout: Sequence[Axis]
) -> Axis | None:
    """The axis that `index` is, if it covers the whole dimension; otherwise None."""
    linear = affine(index, {a.var for a in layout})
    if linear is None or len(linear.coefficients) != 1 or not linear.offset.same(0):
        return None
    [(var, factor)] = linear.coefficients.items()
    axis = next(a for a in layout if a.var is var)
    size = as_poly(load.buffer.shape[dimension])
    is_covered = as_poly(axis.start).same(0) and as_poly(axis.stop).same(size)
    return axis if factor.same(1) and is_covered else None


def without_widening(index: PrimExpr) -> PrimExpr:
    """An index without integer extensions."""
    match index:
        case Cast(dtype=wide, value=inner) if (
            inner.dtype.family == wide.family and inner.dtype.bits <= wide.bits
        ):
            return without_widening(inner)
        case _:
            return index


def counted_from_end(test: PrimExpr, yes: PrimExpr, no: PrimExpr) -> tuple[str, PrimExpr] | None:
    """n and a function, if this is a select of i + n for integers i in a range, else of i.

    The function of the runtime computes it: `wrapped` for all negative i, `from_end` from -n on.
    """
    if not isinstance(test, LT) or not isinstance(yes, Add) or not bool(yes.a == no):
        return None
    index, size = test.a, yes.b
    if index.dtype.is_int and index.dtype == yes.dtype:
        is_wrapped = bool(index == no) and ops.is_const(test.b, 0)
        return ("rt.wrapped", size) if is_wrapped else None
    is_from_end = yes.dtype == INT64 and bool(test == ops.is_from_end(no, size))
    return ("rt.from_end", size) if is_from_end else None
