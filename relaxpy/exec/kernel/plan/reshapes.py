"""Finds local buffers that are parameters in another shape, which need no memory of their own."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from relaxpy.exec.kernel.plan.steps import Map, Step, flatten_steps
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr

Size: TypeAlias = PrimExpr | IndexPoly


def reshaped_parameters(
    steps: Sequence[Step],
    parameters: Iterable[Buffer],
    local: Container[Buffer],
    roots: Mapping[Buffer, Buffer],
) -> dict[Buffer, Buffer]:
    """The buffers of `local` that one step copies from a parameter in row-major order, by buffer.

    The parameter is not written, nor is the buffer in another step, so they may share memory.
    `roots` maps buffers to the buffers that own their memory.
    """
    writes = [w.buffer for step in flatten_steps(steps) for w in step.statement.writes]
    unwritten = {*parameters}.difference(roots.get(b, b) for b in writes)
    result = {}
    for step in steps:
        if isinstance(step, Map) and isinstance(load := step.statement.value, BufferLoad):
            target = step.statement.target
            is_safe = load.buffer in unwritten and target in local
            if is_safe and writes.count(target) == 1 and _is_reshape(step, load):
                result[target] = load.buffer
    return result


def reshapes_first(steps: Sequence[Step], reshaped: Container[Buffer]) -> list[Step]:
    """The steps with those first that compute the buffers in `reshaped`."""

    def is_later(step: Step) -> bool:
        return not isinstance(step, Map) or step.statement.target not in reshaped

    return sorted(steps, key=is_later)


def _is_reshape(step: Map, load: BufferLoad) -> bool:
    """Whether the step copies all elements in row-major order."""
    statement = step.statement
    if statement.guards or load.dtype != statement.target.dtype:
        return False
    if not all(as_poly(axis.start).same(0) for axis in step.axes):
        return False
    extents, variables = [a.extent for a in step.axes], [a.var for a in step.axes]
    shapes = statement.target.shape, load.buffer.shape
    position, count = _position(variables, extents), _count(extents)
    return all(
        _position(indices, shape).same(position) and _count(shape).same(count)
        for indices, shape in zip((statement.indices, load.indices), shapes, strict=True)
    )


def _position(indices: Sequence[PrimExpr], shape: Sequence[Size]) -> IndexPoly:
    """The position of an element in row-major order."""
    position = as_poly(0)
    for index, size in zip(indices, shape, strict=True):
        position = position * as_poly(size) + as_poly(index)
    return position


def _count(shape: Sequence[Size]) -> IndexPoly:
    return math.prod(map(as_poly, shape), start=as_poly(1))
