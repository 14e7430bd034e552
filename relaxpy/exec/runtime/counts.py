"""Checks that the iteration and element counts of a kernel fit into int64."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce

from relaxpy.ir.core.dtype import FLOAT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.ops import may_divide_by_zero
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    DeclBuffer,
    For,
    SeqStmt,
    Stmt,
)


def with_checked_counts(func: PrimFunc) -> PrimFunc:
    """`func`, with assertions that int64 has all counts of iterations and elements (PX-9).

    Counts over dimensions of arguments belong to existing memory, and are not tested. Nor are those
    that are read from memory, which may not exist or differ at the start, and those with divisions,
    as enclosing loops may be empty.
    """
    scalars = {p for p in func.params if p.dtype == "int64"}
    dimensions = {s for b in func.buffer_map.values() for s in b.shape if isinstance(s, tir.Var)}
    known, scalars = scalars | dimensions, scalars - dimensions
    if not scalars:
        return func
    body = func.body
    for sizes in dict.fromkeys(_counts(func.body, ())):
        nodes = [node for size in sizes for node in walk(size)]
        if any(isinstance(node, BufferLoad) or may_divide_by_zero(node) for node in nodes):
            continue
        variables = {node for node in nodes if isinstance(node, tir.Var)}
        if _may_overflow(sizes) and scalars & variables and variables <= known:
            shown = " * ".join(map(str, sizes))
            message = f"the size {shown} is outside the range of int64 [PX-9]"
            body = AssertStmt(_fits(sizes), tir.StringImm(message), body)
    return func if body is func.body else func.with_body(body)


def _may_overflow(sizes: tuple[tir.PrimExpr, ...]) -> bool:
    """Return whether this is a product, or a sum of variables."""
    nodes = [node for size in sizes for node in walk(size)]
    products = any(isinstance(node, tir.Mul) for node in nodes)
    return products or sum(isinstance(node, tir.Var) for node in nodes) > 1


def _fits(sizes: tuple[tir.PrimExpr, ...]) -> tir.PrimExpr:
    """Return whether int64 holds the count, or the loop is empty even if the count wrapped around.

    A wrapped value differs from the count by 2**64 or more, float64 by far less.
    """
    *outer, last = sizes
    count = reduce(operator.mul, (*(ops.maximum(s, 0) for s in outer), last))
    real = reduce(operator.mul, (*(ops.maximum(_real(s), 0.0) for s in outer), _real(last)))
    zero = ops.const(0.0, FLOAT64)
    error = tir.Sub(real, tir.Cast(FLOAT64, count))
    none = tir.And(tir.LT(real, zero), tir.LE(tir.Cast(FLOAT64, last), zero))
    is_exact = tir.And(
        tir.LT(ops.const(-(2.0**62), FLOAT64), error), tir.LT(error, ops.const(2.0**62, FLOAT64))
    )
    return tir.Or(is_exact, none)


def _real(size: tir.PrimExpr) -> tir.PrimExpr:
    """`size` in float64, where it does not wrap around."""
    match size:
        case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b) | tir.Mul(a=a, b=b):
            return type(size)(_real(a), _real(b))
        case _:
            return tir.Cast(FLOAT64, size)


def _counts(stmt: Stmt, outer: tuple[tir.PrimExpr, ...]) -> Iterator[tuple[tir.PrimExpr, ...]]:
    """The sizes whose product is a count, of statements that run unconditionally."""
    match stmt:
        case SeqStmt(seq=seq):
            for child in seq:
                yield from _counts(child, outer)
        case For(extent=extent, body=body):
            inner = outer if isinstance(extent, tir.IntImm) else (*outer, extent)
            if inner is not outer:
                yield inner
            yield from _counts(body, inner)
        case BlockRealize(block=block):
            yield from _counts(block, outer)
        case Block(alloc_buffers=buffers, body=body):
            yield from filter(None, map(_elements, buffers))
            yield from _counts(body, outer)
        case Allocate(extents=extents, body=body):
            yield tuple(e for e in extents if not isinstance(e, tir.IntImm))
            yield from _counts(body, outer)
        case AttrStmt(body=body) | DeclBuffer(body=body):
            yield from _counts(body, outer)
        case _:
            return


def _elements(buffer: Buffer) -> tuple[tir.PrimExpr, ...]:
    return tuple(size for size in buffer.shape if not isinstance(size, tir.IntImm))
