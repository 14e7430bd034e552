"""Finds local buffers that are reshaped parameters, to alias their memory."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Run, Tree, runs, written_memory
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly, number_of
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr

Size: TypeAlias = PrimExpr | IndexPoly


def reshaped_parameters(
    trees: Sequence[Tree],
    parameters: Iterable[Buffer],
    local: Container[Buffer],
    roots: Mapping[Buffer, Buffer],
) -> dict[Buffer, Buffer]:
    """The buffers of `local` that are copies of a parameter in row-major order, and the parameters.

    The parameter is not written, nor is the buffer elsewhere, so they may share memory. `roots`
    maps buffers to the buffers that own their memory.
    """
    writes = [w.buffer for run in runs(trees) for w in run.statement.writes]
    unwritten = {*parameters} - written_memory(trees, lambda b: roots.get(b, b))
    result = {}
    for tree in trees:
        match tree:
            case Run(store=Assignment(target=target, value=BufferLoad() as load) as store):
                is_safe = load.buffer in unwritten and target in local
                if is_safe and writes.count(target) == 1 and is_reshape(tree.axes, store, load):
                    result[target] = load.buffer
            case _:
                pass
    return result


def reshapes_first(trees: Sequence[Tree], reshaped: Container[Buffer]) -> list[Tree]:
    """The trees with those first that compute the buffers in `reshaped`."""

    def is_later(tree: Tree) -> bool:
        match tree:
            case Run(store=Assignment(target=target)):
                return target not in reshaped
            case _:
                return True

    return sorted(trees, key=is_later)


def is_reshape(axes: Sequence[Axis], store: Assignment, load: BufferLoad) -> bool:
    """True if a store copies all elements in row-major order."""
    if store.guards or load.dtype != store.target.dtype:
        return False
    if not all(as_poly(axis.start).same(0) for axis in axes):
        return False
    extents, variables = [a.extent for a in axes], [a.var for a in axes]
    shapes = store.target.shape, load.buffer.shape
    position, count = _position(variables, extents), number_of(extents)
    return all(
        _position(indices, shape).same(position) and number_of(shape).same(count)
        for indices, shape in zip((store.indices, load.indices), shapes, strict=True)
    )


def _position(indices: Sequence[PrimExpr], shape: Sequence[Size]) -> IndexPoly:
    """The position of an element in row-major order."""
    position = as_poly(0)
    for index, size in zip(indices, shape, strict=True):
        position = position * as_poly(size) + as_poly(index)
    return position
