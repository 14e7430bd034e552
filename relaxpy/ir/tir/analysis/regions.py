"""The buffers and the regions of them that a block reads and writes, inferred from its body."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import substitute

#: The minimum and the maximum (inclusive); None if unknown.
Interval: TypeAlias = "tuple[PrimExpr, PrimExpr] | None"

#: The ends of a region that may be compared at run time; simplifying more takes quadratic time.
_MOST_ENDS = 8


def stored_buffers(*statements: stmt.Stmt) -> set[Buffer]:
    """The buffers that statements store to."""
    return {n.buffer for s in statements for n in walk(s) if isinstance(n, stmt.BufferStore)}


def loaded_buffers(*statements: stmt.Stmt) -> set[Buffer]:
    """The buffers that statements load from."""
    return {n.buffer for s in statements for n in walk(s) if isinstance(n, BufferLoad)}


def filled_buffers(
    node: stmt.Stmt, ranges: Mapping[PrimExpr, PrimExpr] = MappingProxyType({})
) -> Iterator[Buffer]:
    """The buffers that a statement provably overwrites completely.

    A block in plain loops stores at the indices of the loops, which run over the dimensions;
    `ranges` has the extents of variables from 0 on.
    """
    match node:
        case stmt.For(loop_var=var, min=tir.IntImm(value=0), extent=extent, body=body):
            yield from filled_buffers(body, {**ranges, var: extent})
        case stmt.SeqStmt(seq=statements):
            for statement in statements:
                yield from filled_buffers(statement, ranges)
        case stmt.BlockRealize(predicate=tir.IntImm(value=1), iter_values=values, block=block):
            variables = [axis.var for axis in block.iter_vars]
            if len(set(values)) == len(values):
                known = zip(variables, map(ranges.get, values), strict=True)
                yield from filled_buffers(block.body, {v: n for v, n in known if n is not None})
        case stmt.BufferStore(buffer=buffer, indices=indices) if len(set(indices)) == buffer.ndim:
            pairs = zip(map(ranges.get, indices), buffer.shape, strict=True)
            if all(extent is not None and prove_equal(extent, n) is True for extent, n in pairs):
                yield buffer
        case _:
            return


def access_regions(
    block: stmt.Block, pointers: Container[Var] = ()
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The regions that `block` reads and writes, over its iteration variables.

    Loops inside the block are relaxed to their whole range, and the result is the union over all
    accesses of a buffer. In a block with an init statement, the buffers that it writes are not
    reads. `pointers` are the data variables of buffers; buffers that the block allocates are not
    among its regions, and their data may be used. A use of the data of a `match_buffer` accesses
    all of its source.

    Errors:
        MisuseError: a data pointer is used directly, so that the region is not known.
    """
    accesses = Accesses(pointers)
    accesses.hidden |= set(block.alloc_buffers)
    accesses.own_data |= {buffer.data for buffer in block.alloc_buffers}
    for match in block.match_buffers:
        accesses.views[match.buffer] = match.source
        accesses.view_data[match.buffer.data] = match.buffer
    if block.init is not None:
        accesses.statement(block.init)
    accesses.statement(block.body)
    initialised = set(accesses.writes) if block.init is not None else set()
    reads = {buffer: sets for buffer, sets in accesses.reads.items() if buffer not in initialised}
    return regions_of(reads), regions_of(accesses.writes)


def with_regions(block: stmt.Block) -> stmt.Block:
    """`block` with the reads and writes that its body has."""
    reads, writes = access_regions(block)
    return block._alike({"reads": reads, "writes": writes})


class Accesses:
    """Collects the accesses of statements, and the ranges of their variables."""

    def __init__(self, pointers: Container[Var]) -> None:
        self.pointers = pointers
        self.reads: dict[Buffer, list[Interval]] = {}
        self.writes: dict[Buffer, list[Interval]] = {}
        self.hidden: set[Buffer] = set()
        self.own_data: set[Var] = set()
        self.views: dict[Buffer, BufferRegion] = {}
        self.view_data: dict[Var, Buffer] = {}
        self.bounds: dict[Var, Interval] = {}
        self.lets: dict[Var, PrimExpr] = {}

    # --- statements

    def statement(self, node: stmt.Stmt) -> None:
        """Collect the accesses of a statement."""
        match node:
            case stmt.SeqStmt(seq=seq):
                for child_stmt in seq:
                    self.statement(child_stmt)
            case stmt.For(loop_var=var, min=first, extent=extent, body=body):
                self.expression(first)
                self.expression(extent)
                low = self.interval(first)
                last = self.interval(ops.add(first, extent) - 1)
                self.bounds[var] = low and last and (low[0], last[1])
                self.statement(body)
            case stmt.LetStmt(var=var, value=value, body=body):
                self.expression(value)
                self.lets[var] = self.unfolded(value)
                self.statement(body)
            case stmt.BufferStore(buffer=buffer, value=value, indices=indices, predicate=predicate):
                self.access(self.writes, buffer, map(self.interval, indices))
                for operand in (value, *indices):
                    self.expression(operand)
                if predicate is not None:
                    self.expression(predicate)
            case stmt.IfThenElse(condition=condition, then_case=yes, else_case=no):
                self.expression(condition)
                with self.where(condition, holds=True):
                    self.statement(yes)
                if no is not None:
                    with self.where(condition, holds=False):
                        self.statement(no)
            case stmt.BlockRealize():
                self.nested(node)
            case stmt.Block():
                self.declared(node)
            case stmt.DeclBuffer(buffer=buffer, body=body):
                self.hidden.add(buffer)
                self.statement(body)
            case _:
                for child in children(node):
                    if isinstance(child, stmt.Stmt):
                        self.statement(child)
                    elif isinstance(child, PrimExpr) and not isinstance(child, Var):
                        self.expression(child)

    def nested(self, node: stmt.BlockRealize) -> None:
        """Collect the accesses of a nested block with its iteration values."""
        for value in node.iter_values:
            self.expression(value)
        variables = [iter_var.var for iter_var in node.block.iter_vars]
        self.lets |= {
            var: ops.cast_to(self.unfolded(value), var.dtype)
            for var, value in zip(variables, node.iter_values, strict=True)
        }
        with self.where(node.predicate, holds=True):
            self.declared(node.block)

    def declared(self, block: stmt.Block) -> None:
        """Collect the declared reads and writes of a block."""
        for regions, table in ((block.reads, self.reads), (block.writes, self.writes)):
            for region in regions:
                self.access(table, region.buffer, map(self.covered, region.region))

    # --- expressions

    def expression(self, root: PrimExpr) -> None:
        """Collect every load in `root`, a load before those inside its indices."""
        visited: set[int] = set()
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if id(node) in visited:
                continue
            visited.add(id(node))
            match node:
                case BufferLoad(buffer=buffer, indices=indices, predicate=predicate):
                    self.access(self.reads, buffer, map(self.interval, indices))
                    if predicate is not None:
                        stack.append(predicate)
                    stack += reversed(indices)
                case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, yes, no)):
                    self.expression(condition)
                    with self.where(condition, holds=True):
                        self.expression(yes)
                    with self.where(condition, holds=False):
                        self.expression(no)
                case tir.Let(var=var, value=value, body=body):
                    self.expression(value)
                    self.lets[var] = self.unfolded(value)
                    stack.append(body)
                case tir.Call(
                    op=Op(name="tir.tvm_access_ptr"),
                    args=(_, Var() as data, offset, extent, tir.IntImm(value=mask)),
                ) if self._is_pointer(data):
                    self.pointer(data, mask)
                    stack += [extent, offset]
                case tir.Call(op=Op(name="tir.address_of"), args=(BufferLoad() as place,)) if (
                    self._is_pointer(place.buffer.data)
                ):
                    self.pointer(place.buffer.data, Buffer.READ | Buffer.WRITE)
                    stack += reversed(place.indices)
                case Var() if self._is_pointer(node):
                    self.pointer(node, Buffer.READ | Buffer.WRITE)
                case _:
                    stack += [c for c in reversed(node._children()) if isinstance(c, PrimExpr)]

    def _is_pointer(self, var: Var) -> bool:
        return var in self.pointers or var in self.view_data

    def pointer(self, data: Var, mask: int) -> None:
        """Collect a use of the data of a buffer, which `mask` says is read, written or both.

        Errors:
            MisuseError: the region is not known.
        """
        view = self.view_data.get(data)
        if view is not None:
            for flag, table in ((Buffer.READ, self.reads), (Buffer.WRITE, self.writes)):
                if mask & flag:
                    self.access(table, view, ())
        elif data not in self.own_data:
            raise MisuseError(
                f"the data of buffer {data.name} is used as a pointer, so the regions that "
                "the block reads and writes are unknown",
                hint="declare them with T.reads(...) and T.writes(...)",
            )

    # --- regions

    def access(
        self, table: dict[Buffer, list[Interval]], buffer: Buffer, sets: Iterable[Interval]
    ) -> None:
        """Add an access to a table, dimension by dimension."""
        view = self.views.get(buffer)
        if view is not None:
            buffer, sets = view.buffer, map(self.covered, view.region)
        if buffer in self.hidden:
            return
        previous = table.get(buffer)
        table[buffer] = list(sets) if previous is None else list(map(union, previous, sets))

    def covered(self, rng: Range) -> Interval:
        """The minimum and maximum of a range over the relaxed loops."""
        low = self.interval(rng.min)
        if isinstance(rng.extent, tir.IntImm) and rng.extent.value == 1:
            return low
        high = self.interval(simplify(rng.stop - 1))
        return None if low is None or high is None else (low[0], high[1])

    def interval(self, expr: PrimExpr) -> Interval:
        """The minimum and maximum of `expr` over the relaxed loops."""
        if isinstance(expr, tir.Ramp):
            if not isinstance(expr.stride, tir.IntImm):
                return None
            first = self.interval(expr.base)
            last = self.interval(expr.base + expr.stride * (expr.lanes - 1))
            if expr.stride.value < 0:
                first, last = last, first
            return None if first is None or last is None else (first[0], last[1])
        return self._interval(self.unfolded(expr))

    def unfolded(self, expr: PrimExpr) -> PrimExpr:
        """Substitute the values of enclosing lets in `expr`."""
        if not self.lets:
            return expr
        bound = {node.var for node in walk(expr) if isinstance(node, tir.Let)}
        lets = {v: e for v, e in self.lets.items() if v not in bound} if bound else self.lets
        return substitute(expr, lets)

    def _interval(self, expr: PrimExpr) -> Interval:
        if isinstance(expr, Var):
            return self.bounds.get(expr, (expr, expr))
        if not any(self._is_relaxed(node) for node in walk(expr)):
            return expr, expr
        match expr:
            case tir.Cast(dtype=dtype, value=value) if dtype.is_int and value.dtype.is_int:
                operand = self._interval(value)
                if operand is None or not all(_fits(bound, dtype) for bound in operand):
                    return None
                return ops.cast_to(operand[0], dtype), ops.cast_to(operand[1], dtype)
            case (
                tir.Add()
                | tir.Sub()
                | tir.Mul()
                | tir.FloorDiv()
                | tir.FloorMod()
                | tir.Min()
                | tir.Max()
            ):
                left, right = self._interval(expr.a), self._interval(expr.b)
                return None if left is None or right is None else _combine(expr, left, right)
            case _:
                return None

    def _is_relaxed(self, node: Node) -> bool:
        """True if `node` is unknown before the block: a loop, memory inside it, a call's effect."""
        match node:
            case BufferLoad(buffer=buffer):
                return buffer in self.hidden or buffer in self.views
            case tir.Call():
                return effect_of(node) not in (
                    CallEffectKind.ExprAnnotation,
                    CallEffectKind.Pure,
                    CallEffectKind.SpecialCallArg,
                )
            case Var():
                return node in self.bounds or node in self.own_data or node in self.view_data
            case _:
                return False

    @contextmanager
    def where(self, condition: PrimExpr, *, holds: bool) -> Iterator[None]:
        """Narrow the ranges of loops while `condition` holds (or does not)."""
        outer = dict(self.bounds)
        for conjunct in _conjuncts(self.unfolded(condition), holds) if outer else ():
            self.narrow(conjunct)
        try:
            yield
        finally:
            self.bounds = outer

    def narrow(self, condition: PrimExpr) -> None:
        """Narrow the ranges of loops by `condition`."""
        # Each comparison becomes low <= high. A loop variable, with or without a constant offset,
        # on one side is bounded by the other side.
        match condition:
            case tir.LT(a=a, b=b):
                self._at_most(a, b - 1)
                self._at_least(b, a + 1)
            case tir.LE(a=a, b=b):
                self._at_most(a, b)
                self._at_least(b, a)
            case tir.EQ(a=a, b=b):
                self._at_most(a, b)
                self._at_least(a, b)
            case _:
                return

    def _at_most(self, expr: PrimExpr, limit: PrimExpr) -> None:
        var, offset = _shifted(expr)
        current, bound = self.bounds.get(var) if var is not None else None, self._interval(limit)
        if var is not None and current is not None and bound is not None:
            low, high = current
            self.bounds[var] = low, simplify(ops.minimum(high, bound[1] - offset))

    def _at_least(self, expr: PrimExpr, limit: PrimExpr) -> None:
        var, offset = _shifted(expr)
        current, bound = self.bounds.get(var) if var is not None else None, self._interval(limit)
        if var is not None and current is not None and bound is not None:
            low, high = current
            self.bounds[var] = simplify(ops.maximum(low, bound[0] - offset)), high


def _fits(bound: PrimExpr, dtype: DataType) -> bool:
    """True if a cast provably keeps a bound; wrapping would not preserve order."""
    low, high = ops.int_range(dtype)
    return not isinstance(bound, tir.IntImm) or low <= bound.value <= high


def _shifted(expr: PrimExpr) -> tuple[Var | None, int]:
    """Split `expr` into a variable and a constant offset."""
    match expr:
        case Var():
            return expr, 0
        case tir.Add(a=Var() as var, b=tir.IntImm(value=value)):
            return var, value
        case tir.Sub(a=Var() as var, b=tir.IntImm(value=value)):
            return var, -value
        case _:
            return None, 0


def _conjuncts(condition: PrimExpr, holds: bool) -> Iterator[PrimExpr]:
    match condition:
        case tir.Not(a=a):
            yield from _conjuncts(a, not holds)
        case tir.Or(a=a, b=b) if not holds:
            yield from (*_conjuncts(a, False), *_conjuncts(b, False))
        case tir.Or():
            return
        case tir.And(a=a, b=b) if holds:
            yield from (*_conjuncts(a, True), *_conjuncts(b, True))
        case tir.Call(op=Op(name="tir.likely"), args=(operand,)):
            yield from _conjuncts(operand, holds)
        case tir.GT(a=a, b=b):
            yield b < a if holds else a <= b
        case tir.GE(a=a, b=b):
            yield b <= a if holds else a < b
        case tir.LT(a=a, b=b):
            yield condition if holds else b <= a
        case tir.LE(a=a, b=b):
            yield condition if holds else b < a
        case tir.EQ() if holds:
            yield condition
        case _:
            return


def _combine(
    expr: tir.BinaryOpExpr, left: tuple[PrimExpr, PrimExpr], right: tuple[PrimExpr, PrimExpr]
) -> Interval:
    match expr:
        case tir.Add():
            return left[0] + right[0], left[1] + right[1]
        case tir.Sub():
            return left[0] - right[1], left[1] - right[0]
        case tir.Min():
            return ops.minimum(left[0], right[0]), ops.minimum(left[1], right[1])
        case tir.Max():
            return ops.maximum(left[0], right[0]), ops.maximum(left[1], right[1])
        case tir.Mul():
            if not isinstance(right[0], tir.IntImm):
                left, right = right, left
            if not isinstance(right[0], tir.IntImm) or right[0] is not right[1]:
                return None
            ends = left[0] * right[0], left[1] * right[0]
            return ends if right[0].value >= 0 else ends[::-1]
        case _:
            pass
    divisor = right[0]
    if not isinstance(divisor, tir.IntImm) or divisor is not right[1] or divisor.value <= 0:
        return None
    low, high = (simplify(end // divisor) for end in left)
    if isinstance(expr, tir.FloorDiv):
        return low, high
    if low is high:
        return left[0] % divisor, left[1] % divisor
    return ops.const(0, divisor.dtype), divisor - 1


def union(a: Interval, b: Interval) -> Interval:
    """The smallest known interval that contains both; None if many ends cannot be compared."""
    if a is None or b is None:
        return None
    low = _outermost(a[0], b[0], tir.Min)
    high = _outermost(a[1], b[1], tir.Max)
    return None if low is None or high is None else (low, high)


def _outermost(a: PrimExpr, b: PrimExpr, kind: type[tir.Min | tir.Max]) -> PrimExpr | None:
    """The minimum or maximum of two; ends at a known distance from others are left out."""
    if a is b:
        return a
    ends = _operands(a, kind)
    for new in _operands(b, kind):
        for i, end in enumerate(ends):
            difference = simplify(new - end)
            if isinstance(difference, tir.IntImm):
                if (difference.value < 0) == (kind is tir.Min):
                    ends[i] = new
                break
        else:
            ends.append(new)
        if len(ends) > _MOST_ENDS:
            return None
    return reduce(ops.minimum if kind is tir.Min else ops.maximum, ends)


def _operands(expr: PrimExpr, kind: type[tir.Min | tir.Max]) -> list[PrimExpr]:
    """The operands of nested minima or maxima."""
    operands, stack = [], [expr]
    while stack:
        match node := stack.pop():
            case tir.Min(a=a, b=b) | tir.Max(a=a, b=b) if isinstance(node, kind):
                stack += [b, a]
            case _:
                operands.append(node)
    return operands


def regions_of(table: Mapping[Buffer, list[Interval]]) -> tuple[BufferRegion, ...]:
    """The regions of a table of accesses."""
    return tuple(
        BufferRegion(buffer, tuple(map(_range, sets, buffer.shape)))
        for buffer, sets in table.items()
    )


def _range(interval: Interval, size: PrimExpr) -> Range:
    if interval is None:
        return Range.from_min_extent(ops.const(0, size.dtype), size)
    low, high = interval
    if low is high:
        return Range.point(low)
    low, high = simplify(low), simplify(high)
    if isinstance(low, tir.IntImm) and low.value < 0:
        low = ops.const(0, low.dtype)
    if isinstance(high, tir.IntImm) and isinstance(size, tir.IntImm) and high.value >= size.value:
        high = size - 1
    return Range.from_min_extent(low, simplify(ops.sub(high, low) + 1))
