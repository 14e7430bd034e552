"""Emits the memory of buffers and blocks.

The memory of a buffer is allocated, shared, a view of other memory, or constant; a block has rows
of buffers, private arrays, and partial accumulations.
"""

from __future__ import annotations

import ast
import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from relaxpy.exec.loops.nest.nodes import Nest
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Plan, Tile
from relaxpy.exec.loops.plan.updates import Combine
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.emit.array_values import Rows
from relaxpy.exec.numpy.emit.scope import KernelScope, dtype_name, literal
from relaxpy.exec.numpy.python_ast import Code, assign, call, code, do, item, text
from relaxpy.ir.arith.algebra.affine import as_poly, number_of
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr, Var
from relaxpy.support.dataclass import dataclass


def allocations(
    nest: Nest, scope: KernelScope, buffers: Iterable[Buffer], shared: Mapping[Buffer, Buffer]
) -> Iterator[ast.stmt]:
    """Lines that allocate `buffers`, and create the constants and views of `nest`.

    Buffers in `shared` use the memory of another buffer.
    """
    for buffer in buffers:
        owner = shared.get(buffer)
        if owner is not None:
            scope.buffers[buffer] = scope.buffer(owner)
            continue
        yield assign(scope.buffer(buffer), fresh(scope, buffer))
    for buffer, data in nest.constants.items():
        yield assign(scope.buffer(buffer), _constant(buffer, data))
    for view, root in nest.views.items():
        yield assign(scope.buffer(view), _overlay(scope, view, root))


def fresh(scope: KernelScope, buffer: Buffer) -> ast.expr:
    """New memory with the shape of `buffer`."""
    shape = tuple(extent(scope, size) for size in buffer.shape)
    counts = [as_poly(size).constant for size in buffer.shape]
    # NumPy also refuses sizes that are too large beside one of 0.
    is_small = math.prod(NumPy.SMALL if n is None else max(n, 1) for n in counts) < NumPy.SMALL
    return call("np.empty" if is_small else "rt.empty", shape, dtype_name(buffer.dtype))


def extent(scope: KernelScope, size: PrimExpr) -> ast.expr:
    """A dimension of new memory; 0 if the dimension is negative."""
    value = scope.index(size)
    return value if scope.is_not_negative(as_poly(size)) else call("max", value, 0)


def _overlay(scope: KernelScope, view: Buffer, root: Buffer) -> ast.expr:
    """The memory of `root` with the layout of `view`."""
    has_unset_size = any(isinstance(s, Var) and s not in scope.variables for s in view.shape)
    shape = None if has_unset_size else tuple(scope.index(s) for s in view.shape)
    node = call("rt.overlay", scope.buffer(root), dtype_name(view.dtype), shape, text(view.name))
    if not as_poly(view.elem_offset).same(0) or view.strides:
        node.args.append(scope.index(view.elem_offset))
    if view.strides:
        node.args.append(code(tuple(scope.index(s) for s in view.strides)))
    return node


def uncertain_views(plan: Plan) -> set[Buffer]:
    """The buffers over memory that may be too small or non-contiguous, like that of arguments."""
    arguments = {*plan.func.buffer_map.values()}
    return {
        view
        for view, root in plan.views.items()
        if root in arguments
        or view.strides
        or not as_poly(view.elem_offset).same(0)
        or not _provably_fits(view, root)
    }


def _provably_fits(view: Buffer, root: Buffer) -> bool:
    counts = [number_of(b.shape).constant for b in (view, root)]
    needed, present = counts
    if needed is None or present is None:
        return False
    return needed * view.dtype.bits <= present * root.dtype.bits


def _constant(buffer: Buffer, data: object) -> ast.expr:
    """A constant array with the elements `data`."""
    values = np.array(data).astype(buffer.dtype.numpy()).reshape(-1)
    shape = tuple(as_poly(size).constant for size in buffer.shape)
    if values.size <= NumPy.LITERAL:
        wide = values.astype(np.float64) if buffer.dtype.is_float else values
        elements: Code = tuple(wide.tolist())
    else:
        elements = text(base64.b85encode(zlib.compress(values.tobytes())).decode())
    return call("rt.constant", elements, dtype_name(buffer.dtype), shape)


UFUNCS: Mapping[Combine, str] = {
    "add": "np.add",
    "mul": "np.multiply",
    "min": "np.minimum",
    "max": "np.maximum",
    "and": "np.logical_and",
    "or": "np.logical_or",
    "bitwise_and": "np.bitwise_and",
    "bitwise_or": "np.bitwise_or",
    "bitwise_xor": "np.bitwise_xor",
}


def ufunc_name(combine: Combine, dtype: DataType) -> str:
    """The name of the ufunc that combines two values; bools are 1-bit integers."""
    return "np.logical_xor" if combine == "add" and dtype.is_bool else UFUNCS[combine]


def block_rows(scope: KernelScope, buffer: Buffer, rows: Rows, empty: str | None) -> ast.stmt:
    """A line that assigns the rows of a block of `buffer`: memory from `empty`, or a slice."""
    if empty is not None:
        shape: tuple[Code, ...] = tuple(
            scope.index(rows.size) if axis == rows.axis else extent(scope, size)
            for axis, size in enumerate(buffer.shape)
        )
        return assign(scope.buffer(buffer), call(empty, shape, dtype_name(buffer.dtype)))
    stop = rows.start + rows.size
    indices: list[Code] = [ast.Slice()] * rows.axis
    indices.append(ast.Slice(scope.index(rows.start), scope.index(stop)))
    view = item(scope.buffer(buffer), *indices)
    name = scope.buffers[buffer] = scope.names.fresh(f"{buffer.name}_rows")
    return assign(name, view)


@dataclass(frozen=True, slots=True)
class Part:
    """A partial accumulation by blocks: lines `before` and `after` all blocks, and its `memory`."""

    before: ast.stmt
    memory: tuple[ast.stmt, ...]
    after: ast.stmt


def part_of(scope: KernelScope, statement: Assignment, tile: Tile) -> Part:
    """The partial accumulation of `statement` in a block of `tile`, with a new name.

    A block of all rows computes the target itself.
    """
    target, initial = statement.target, statement.initial
    assert statement.combine is not None
    assert isinstance(initial, IntImm | FloatImm)
    whole = scope.buffer(target)
    parts, part = (scope.names.fresh(f"{target.name}_{kind}") for kind in ("parts", "part"))
    shape = tuple(extent(scope, size) for size in target.shape)
    new = call("np.empty", shape, dtype_name(target.dtype))
    rows = scope.index(as_poly(tile.high) - as_poly(tile.low))
    is_single = ast.Compare(rows, [ast.Eq()], [scope.index(tile.axis.extent)])
    scope.buffers[target] = part
    ufunc = ufunc_name(statement.combine, target.dtype)
    return Part(
        assign(parts, ast.Dict([], [])),
        (
            assign(part, ast.IfExp(is_single, ast.Name(whole, ast.Load()), new)),
            assign(item(parts, scope.variable(tile.low)), part),
        ),
        do(call("rt.combine", ufunc, parts, whole, literal(initial, typed=False))),
    )
