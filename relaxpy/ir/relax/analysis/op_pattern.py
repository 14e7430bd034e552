"""The op pattern of a kernel (elementwise, injective, ...), which decides how it can be fused."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import reduce
from operator import is_
from typing import TypeGuard

from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.relax.known import expect
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing


class OpPatternKind(IntEnum):
    """The kinds of kernels, with the numbers of TVM; larger ones are harder to fuse."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_EWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


_ROW_WISE = frozenset((OpPatternKind.ELEMWISE, OpPatternKind.BROADCAST, OpPatternKind.COMM_REDUCE))


@user_facing
def op_pattern_kind(func: PrimFunc) -> OpPatternKind:
    """The kind of a kernel: the hardest of its blocks to fuse.

    A block that stores each element once is elementwise, a broadcast or injective by how the
    indices of its loads follow from those of its store. A reduction is one over whole axes, and a
    contraction or a window can only be fused with its users. A reduction whose result an
    injective block uses for the output, as in a softmax, counts as such, too. All else is opaque.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc.
    """
    expect(func, PrimFunc)
    outputs = {buffer for buffer in func.buffer_map_items if buffer is not None}
    kind = OpPatternKind.ELEMWISE
    seen = False
    for block in _computing_blocks(func):
        seen = True
        if block is None:
            return OpPatternKind.OPAQUE
        found = _kind_of(block)
        is_output = any(region.buffer in outputs for region in block.writes)
        if found <= OpPatternKind.INJECTIVE and is_output and kind is OpPatternKind.COMM_REDUCE:
            kind = OpPatternKind.OUT_EWISE_FUSABLE
        else:
            kind = max(kind, found)
    return kind if seen else OpPatternKind.OPAQUE


def is_row_local(func: PrimFunc) -> bool:
    """True if a kernel computes each row of its outputs from single rows of its inputs.

    A row is the slice at one index of the first axis. Blocks are elementwise, broadcasts, or
    reductions over other axes; an input without the first axis is the same for all rows.
    """
    for block in _computing_blocks(func):
        if block is None or _kind_of(block) not in _ROW_WISE:
            return False
        reduced = [a.var for a in block.iter_vars if a.iter_type is tir.IterVarKind.CommReduce]
        store = next(occurrences(block.body, BufferStore))
        first = store.indices[0] if store.indices else None
        if not isinstance(first, tir.Var) or first in reduced:
            return False
        loads = list(occurrences(block.body, BufferLoad))
        if any(_mentioned(load.indices[0], set(reduced)) for load in loads if load.indices):
            return False
    return True


def is_batched_matmul(func: PrimFunc) -> bool:
    """True if a kernel is a batched matmul in which each matrix has its own factor."""
    for block in _computing_blocks(func):
        if block is None:
            return False
        variables = {axis.var for axis in block.iter_vars}
        if not _is_contraction(block, variables):
            continue
        store = next(occurrences(block.body, BufferStore))
        shared = set(store.indices)
        for factor in occurrences(store.value, BufferLoad):
            shared &= {var for index in factor.indices for var in _mentioned(index, variables)}
        return bool(shared)
    return False


@memoised
def _computing_blocks(func: PrimFunc) -> tuple[Block | None, ...]:
    """The innermost blocks in order; None for a store that is in no block with variables."""
    found: list[Block | None] = []
    waiting: list[Stmt] = [func.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, BufferStore):
            found.append(None)
        elif _is_innermost(node):
            found.append(node)
        else:
            waiting += [child for child in reversed(node._children()) if isinstance(child, Stmt)]
    return tuple(found)


def _is_innermost(node: Stmt) -> TypeGuard[Block]:
    """True if a node is an innermost block, other than the root of the kernel."""
    if not isinstance(node, Block) or not (node.iter_vars or node.name_hint != "root"):
        return False
    return next(occurrences(node.body, Block), None) is None


@memoised
def _kind_of(block: Block) -> OpPatternKind:
    stores = list(occurrences(block.body, BufferStore))
    if not stores or any(not _same(stores[0].indices, s.indices) for s in stores):
        return OpPatternKind.OPAQUE
    store = stores[-1]
    variables = {axis.var for axis in block.iter_vars}
    loads = list(occurrences(block.body, BufferLoad))
    kinds = [_access(store, load, variables) for load in loads]
    if OpPatternKind.OPAQUE not in kinds:
        kind = max(kinds, default=OpPatternKind.ELEMWISE)
        if kind is OpPatternKind.BROADCAST and OpPatternKind.ELEMWISE in kinds:
            return OpPatternKind.ELEMWISE
        return kind
    reduced = [axis.var for axis in block.iter_vars if axis.iter_type is tir.IterVarKind.CommReduce]
    if not reduced:
        return OpPatternKind.OPAQUE
    whole = all(_is_whole(index, reduced) for load in loads for index in load.indices)
    if _is_contraction(block, variables) or not whole:
        return OpPatternKind.OUT_EWISE_FUSABLE
    return OpPatternKind.COMM_REDUCE


def _same(one: Sequence[tir.PrimExpr], other: Sequence[tir.PrimExpr]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _mentioned(index: tir.PrimExpr, variables: set[tir.Var]) -> set[tir.Var]:
    """The variables of a block in an index."""
    return {var for var in occurrences(index, tir.Var) if var in variables}


def _access(store: BufferStore, load: BufferLoad, variables: set[tir.Var]) -> OpPatternKind:
    """The access pattern of a load relative to the store."""
    if _same(store.indices, load.indices):
        return OpPatternKind.ELEMWISE
    if _is_broadcast(store, load):
        return OpPatternKind.BROADCAST
    stored = set(store.indices)
    plain = all(isinstance(index, tir.Var) for index in store.indices)
    if plain and all(_mentioned(index, variables) <= stored for index in load.indices):
        return OpPatternKind.INJECTIVE
    return OpPatternKind.OPAQUE


def _is_broadcast(store: BufferStore, load: BufferLoad) -> bool:
    """True if the indices of a load are among those of a store, in order."""
    rest = iter(store.indices)
    for size, index in zip(load.buffer.shape, load.indices, strict=True):
        if ops.is_const(size, 1) and ops.is_const(index, 0):
            continue
        if not any(other is index for other in rest):
            return False
    return True


def _is_whole(index: tir.PrimExpr, reduced: Sequence[tir.Var]) -> bool:
    """True if an index is a reduced variable, or mentions none."""
    return index in reduced or not _mentioned(index, set(reduced))


def _without_casts(expr: tir.PrimExpr) -> tir.PrimExpr:
    while isinstance(expr, tir.Cast):
        expr = expr.value
    return expr


def _is_contraction(block: Block, variables: set[tir.Var]) -> bool:
    """True if a block is a contraction: a sum of products of reused elements."""
    store = block.body
    value = _without_casts(store.value) if isinstance(store, BufferStore) else None
    if not isinstance(store, BufferStore) or not isinstance(value, tir.Add):
        return False
    total, product = _without_casts(value.a), _without_casts(value.b)
    if not isinstance(total, BufferLoad) or not isinstance(product, tir.Mul):
        return False
    if total.buffer is not store.buffer or not _same(total.indices, store.indices):
        return False
    return all(
        isinstance(factor, BufferLoad) and _is_reused(store, factor, variables)
        for factor in map(_without_casts, (product.a, product.b))
    )


def _is_reused(store: BufferStore, load: BufferLoad, variables: set[tir.Var]) -> bool:
    """True if several stored elements use the same loaded one."""
    if not all(isinstance(index, tir.Var) for index in store.indices):
        return False
    mentioned = {var for index in load.indices for var in _mentioned(index, variables)}
    return not set(store.indices) <= mentioned


_ONE = ops.const(1, "int64")


@user_facing
def has_reshape_pattern(func: PrimFunc) -> bool:
    """True if a kernel only copies its first buffer to its last one in row-major order.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc.

    Rule:
        The kernel is one nest of loops and spatial blocks with one store of one load, which writes
        every element once. Load and store have the same index in the flattened buffers, for all
        values of the block variables, no index is outside its dimension, and the buffers have
        equally many elements. All of this has to be provable.
    """
    expect(func, PrimFunc)
    return _has_reshape_pattern(func)


@memoised
def _has_reshape_pattern(func: PrimFunc) -> bool:
    buffers = [buffer for buffer in func.buffer_map_items if buffer is not None]
    if len(buffers) < 2:
        return False
    source, target = buffers[0], buffers[-1]
    outside: list[For | BlockRealize] = []
    stmt: Stmt = func.body
    while True:
        match stmt:
            case For(body=For() | BlockRealize() as body):
                outside.append(stmt)
                stmt = body
            case BlockRealize(block=block):
                outside.append(stmt)
                stmt = block.body
            case BufferStore(buffer=written, indices=indices, value=BufferLoad() as load):
                if load.buffer is not source or written is not target:
                    return False
                return _copies(outside, source, load.indices, target, indices)
            case _:
                return False


def _copies(
    outside: Sequence[For | BlockRealize],
    source: Buffer,
    read: tuple[tir.PrimExpr, ...],
    target: Buffer,
    written: tuple[tir.PrimExpr, ...],
) -> bool:
    """True if a store inside these loops and blocks copies all elements in row-major order."""
    axes = [a for s in outside if isinstance(s, BlockRealize) for a in s.block.iter_vars]
    if _step_apart(axes, _flat_index(source, read), _flat_index(target, written)):
        return False  # as for transpositions, without a proof
    nest = _Nest()
    for stmt in outside:
        if isinstance(stmt, For):
            nest.enter_loop(stmt)
        elif not nest.enter_block(stmt):
            return False
    same = nest.analyzer.can_prove_equal
    return (
        same(_count(source), _count(target))
        and same(_flat_index(source, read), _flat_index(target, written))
        and nest.fills(target, written)
        and nest.are_inside((*inner_indices(read, source), *inner_indices(written, target)))
    )


def _step_apart(axes: Sequence[IterVar], first: tir.PrimExpr, second: tir.PrimExpr) -> bool:
    """True if two affine indices have different steps along an axis of several iterations."""
    variables = {axis.var for axis in axes}
    one, other = affine(first, variables), affine(second, variables)
    if one is None or other is None:
        return False
    return any(
        axis.dom is not None
        and isinstance(axis.dom.extent, tir.IntImm)
        and axis.dom.extent.value > 1
        and None not in (steps := (one.constant(axis.var), other.constant(axis.var)))
        and steps[0] != steps[1]
        for axis in axes
    )


class _Nest:
    """The loops and blocks that contain a statement."""

    def __init__(self) -> None:
        from relaxpy.ir.arith.tvm.analyzer import Analyzer

        self.analyzer = Analyzer()
        self.loops: dict[tir.Var, Range] = {}
        self.values: dict[tir.Var, tir.PrimExpr] = {}

    def enter_loop(self, loop: For) -> None:
        self.loops[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        self.analyzer.bind(loop.loop_var, self.loops[loop.loop_var])

    def enter_block(self, realize: BlockRealize) -> bool:
        """Bind the variables of a block; returns whether they are independent of each other."""
        block = realize.block
        always = isinstance(realize.predicate, tir.IntImm) and bool(realize.predicate.value)
        if not always or block.init is not None or block.match_buffers:
            return False
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if axis.iter_type is not tir.IterVarKind.DataPar:
                return False
            if axis.dom is not None:
                self.analyzer.bind(axis.var, axis.dom)
            self.values[axis.var] = substitute(value, self.values)
        return True

    def are_inside(self, indices: Iterable[tuple[tir.PrimExpr, tir.PrimExpr]]) -> bool:
        """True if indices, each with the size of its dimension, are provably in them."""
        return all(
            self.analyzer.can_prove(ops.convert(index >= 0))
            and self.analyzer.can_prove(ops.convert(index < size))
            for index, size in indices
        )

    def fills(self, buffer: Buffer, indices: tuple[tir.PrimExpr, ...]) -> bool:
        """True if the loops provably reach each element of a buffer once."""
        from relaxpy.ir.arith.tvm.iter_map import detect_iter_map

        iterations = reduce(operator.mul, (r.extent for r in self.loops.values()), _ONE)
        if not self.analyzer.can_prove_equal(ops.cast_to(iterations, INT64), _count(buffer)):
            return False
        index = self.analyzer.simplify(substitute(_flat_index(buffer, indices), self.values))
        return not detect_iter_map([index], self.loops, check_level="bijective").errors


def inner_indices(
    indices: Sequence[tir.PrimExpr], buffer: Buffer
) -> Iterator[tuple[tir.PrimExpr, tir.PrimExpr]]:
    """The indices that may be outside, with the sizes, of an access in the flattened buffer.

    The first one of a dimension of several elements is inside if the others are, and remainders
    by the size of their dimension are.
    """
    pairs = [*zip(indices, buffer.shape, strict=True)]
    while pairs and getattr(pairs[0][0], "value", None) == 0:
        if getattr(pairs[0][1], "value", None) != 1:
            break
        del pairs[0]
    for index, size in pairs[1:]:
        if not (isinstance(index, tir.FloorMod) and as_poly(index.b).same(as_poly(size))):
            yield index, size


def _flat_index(buffer: Buffer, indices: tuple[tir.PrimExpr, ...]) -> tir.PrimExpr:
    """The index of an element in the flattened buffer."""
    if not indices:
        return ops.const(0, "int64")
    flat = indices[0]
    for extent, index in zip(buffer.shape[1:], indices[1:], strict=True):
        flat = flat * extent + index
    return flat


def _count(buffer: Buffer) -> tir.PrimExpr:
    return reduce(operator.mul, buffer.shape, _ONE)
