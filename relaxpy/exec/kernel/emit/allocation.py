"""Emits the memory of buffers: allocated, shared, a view of other memory, or constant."""

from __future__ import annotations

import ast
import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from relaxpy.exec.kernel.emit.scope import KernelScope, dtype_name
from relaxpy.exec.kernel.nest.nodes import Nest
from relaxpy.exec.kernel.plan.tree import Plan
from relaxpy.exec.python_ast import Code, assign, call, code, text
from relaxpy.ir.arith.algebra.affine import as_poly, number_of
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var

_MAX_LITERAL_ELEMENTS = 32
"""The largest number of elements of a constant that is written as numbers."""
_SMALL = 1 << 30
"""Buffers of fewer elements are assumed to fit in memory."""


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
    is_small = math.prod(_SMALL if n is None else max(n, 1) for n in counts) < _SMALL
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
    if values.size <= _MAX_LITERAL_ELEMENTS:
        wide = values.astype(np.float64) if buffer.dtype.is_float else values
        elements: Code = tuple(wide.tolist())
    else:
        elements = text(base64.b85encode(zlib.compress(values.tobytes())).decode())
    return call("rt.constant", elements, dtype_name(buffer.dtype), shape)
