"""Emits the memory of blocks: rows of buffers, private arrays, and partial accumulations."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from relaxpy.exec.kernel.emit.allocation import extent
from relaxpy.exec.kernel.emit.scope import KernelScope, dtype_name, literal
from relaxpy.exec.kernel.emit.values import Rows
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Tile
from relaxpy.exec.kernel.plan.updates import Combine
from relaxpy.exec.python_ast import Code, assign, call, do, item
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import FloatImm, IntImm
from relaxpy.support.dataclass import dataclass

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
