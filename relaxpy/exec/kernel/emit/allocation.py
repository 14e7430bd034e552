"""The lines that give buffers their memory: made, shared, laid over other memory, or constant."""

from __future__ import annotations

import ast
import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from relaxpy.exec.kernel.emit.scope import Scope, dtype_name
from relaxpy.exec.kernel.nest.nodes import Nest
from relaxpy.exec.python_ast import Code, assign, call, code, text
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var

_WRITTEN_OUT = 32
"""Elements up to which a constant is written as numbers."""


def allocations(
    nest: Nest, scope: Scope, buffers: Iterable[Buffer], shared: Mapping[Buffer, Buffer]
) -> Iterator[ast.stmt]:
    """Lines that make `buffers`, those in `shared` being other names of another's memory.

    And the constants and views of `nest`.
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
        yield assign(scope.buffer(view), _laid_over(scope, view, root))


def fresh(scope: Scope, buffer: Buffer) -> ast.expr:
    """Memory of the size of `buffer`."""
    shape = tuple(extent(scope, size) for size in buffer.shape)
    return call("np.empty", shape, dtype_name(buffer.dtype))


def extent(scope: Scope, size: PrimExpr) -> ast.expr:
    """A size of fresh memory, none where the loop that would fill it has no round."""
    found = scope.index(size)
    return found if as_poly(size).is_at_least(0, scope.sizes) else call("max", found, 0)


def _laid_over(scope: Scope, view: Buffer, root: Buffer) -> ast.expr:
    """The memory of `root` as `view` has it."""
    whole = any(isinstance(s, Var) and s not in scope.variables for s in view.shape)
    shape = None if whole else tuple(scope.index(s) for s in view.shape)
    made = call("rt.overlay", scope.buffer(root), dtype_name(view.dtype), shape, text(view.name))
    if not as_poly(view.elem_offset).same(0) or view.strides:
        made.args.append(scope.index(view.elem_offset))
    if view.strides:
        made.args.append(code(tuple(scope.index(s) for s in view.strides)))
    return made


def _constant(buffer: Buffer, data: object) -> ast.expr:
    """An array that holds `data`."""
    values = np.array(data).astype(buffer.dtype.numpy()).reshape(-1)
    shape = tuple(as_poly(size).constant for size in buffer.shape)
    if values.size <= _WRITTEN_OUT:
        wide = values.astype(np.float64) if buffer.dtype.is_float else values
        found: Code = tuple(wide.tolist())
    else:
        found = text(base64.b85encode(zlib.compress(values.tobytes())).decode())
    return call("rt.constant", found, dtype_name(buffer.dtype), shape)
