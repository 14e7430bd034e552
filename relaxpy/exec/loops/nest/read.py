"""Reads a PrimFunc as a loop nest without blocks, regions, vectors and memory declarations."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence, Set
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never, cast

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.loops.nest import nodes as nest
from relaxpy.exec.loops.nest.bounds import is_range_inside, keeps_divisions, may_fail
from relaxpy.exec.loops.nest.buffers import BufferTable, written_buffers
from relaxpy.exec.loops.nest.wrapping import Wrapping, with_exact_layouts, wrapped
from relaxpy.exec.machine.tuning import Plans
from relaxpy.exec.runtime.scalar import (
    ScalarEvaluator,
    accessed,
    addressed,
    display_name,
    is_evaluated,
    launched,
    remedy,
)
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import BOOL, VOID
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import (
    children,
    map_children,
    occurrences,
    reached,
    rewrite,
    tree_size,
    walk,
)
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of, intrinsic_of, is_external
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc, scalars_of
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


def read(func: PrimFunc, shape_vars: Container[tir.Var], *, may_alias: bool = False) -> nest.Nest:
    """The nest of `func`; unless `may_alias`, its arguments share no memory.

    `shape_vars` are variables that are never negative.

    Errors:
        CompileError: a statement or intrinsic has no meaning outside special hardware.
    """
    reader = _Reader(with_exact_layouts(func), shape_vars, may_alias=may_alias)
    items = tuple(reader.items(reader.func.body))
    table = reader.buffers
    return nest.Nest(
        items,
        tuple(table.local),
        table.views,
        table.constants,
        table.pointers,
        allows_aliasing=not reader.assumes_no_alias,
        kinds=reader.kinds,
    )


def _use_count(var: tir.Var, body: st.Stmt) -> int:
    return sum(child is var for node in walk(body) for child in children(node))


def _is_jump(stmt: st.Evaluate) -> bool:
    """True if a statement leaves a loop or its current iteration."""
    return isinstance(stmt.value, tir.Call) and stmt.value.op in _LOOP_JUMPS


class _Reader:
    def __init__(self, func: PrimFunc, shape_vars: Container[tir.Var], *, may_alias: bool) -> None:
        self.func = func
        self.shape_vars = shape_vars
        self.may_alias = may_alias
        self.assumes_no_alias = False
        """True if the result is correct only if arguments share no memory."""
        self.buffers = BufferTable(func)
        self.has_jumps = any(map(_is_jump, occurrences(func.body, st.Evaluate)))
        self.axes: list[nest.Axis] = []
        self.kinds: dict[tir.Var, st.ForKind] = {}
        self.used: set[tir.Var] = set(func.params)
        self.data = {*scalars_of(func)}
        """The variables with any values, whose sums may wrap around."""
        self.points: dict[tir.Var, tir.PrimExpr] = {}
        """The values of variables of enclosing loops and blocks, until these are replaced."""
        self.block: str | None = None
        self.span: Span | None = func.span

    def items(self, stmt: st.Stmt) -> Iterator[nest.Item]:
        outer, points = self.span, self.points
        following: st.Stmt | None = stmt
        while following is not None:
            self.span = getattr(following, "span", None) or self.span
            following = yield from self._items(cast("st.AnyStmt", following))
        self.span, self.points = outer, points

    def _items(self, stmt: st.AnyStmt) -> Generator[nest.Item, None, st.Stmt | None]:
        """The items of a statement, without those of the statement after it, which is returned."""
        if self.points and not isinstance(stmt, (st.For, st.BlockRealize, st.SeqStmt)):
            stmt, self.points = substitute(stmt, self.points), {}
        match stmt:
            case st.SeqStmt(seq=seq):
                for inner in seq:
                    yield from self.items(inner)
            case st.For(loop_var=var, min=start, body=body) if self._is_point(stmt):
                self.used.add(var)
                self.points[var] = start
                return body
            case st.For():
                start, extent = (substitute(b, self.points) for b in (stmt.min, stmt.extent))
                loop = self._loop(stmt, start, extent)
                for bound in (b for b in (start, extent) if not isinstance(b, tir.IntImm)):
                    if not (loop.body and keeps_divisions(bound, as_poly(bound).expr())):
                        yield from self._evaluated(bound)
                if loop.body:
                    yield loop
            case st.BlockRealize():
                yield from self._realize(stmt)
            case st.Block():
                yield from self.items(st.BlockRealize((), ops.const(True), stmt))
            case st.BufferStore():
                yield from self._store(stmt)
            case st.IfThenElse(condition=condition, then_case=then, else_case=orelse):
                no = () if orelse is None else tuple(self.items(orelse))
                yield nest.Branch(self.value(condition), tuple(self.items(then)), no)
            case st.While(condition=condition, body=body):
                yield nest.WhileLoop(self.value(condition), tuple(self.items(body)), stmt.span)
            case st.LetStmt(var=var, value=value, body=body):
                return (yield from self._let(var, self.value(value), body))
            case st.AttrStmt(attr_key="thread_extent"):
                raise launched(self.name, stmt)
            case st.AttrStmt(body=body) | st.DeclBuffer(body=body):
                return body
            case st.AssertStmt(condition=condition, message=message, body=body):
                text = message.value if isinstance(message, tir.StringImm) else str(message)
                yield nest.Check(self.value(condition), text, self.span)
                return body
            case st.Allocate(body=body):
                yield from self.buffers.add_allocation(stmt, self.axes)
                return body
            case st.BufferRealize(buffer=buffer, body=body):
                if not self.buffers.is_argument(buffer):
                    yield from self.buffers.add_local(buffer, body, self.axes)
                return body
            case st.Evaluate(value=value):
                yield from self._evaluate(value)
            case st.AllocateConst():
                yield from self._constant(stmt)
            case _:
                assert_never(stmt)
        return None

    @property
    def name(self) -> str:
        return str(self.func.attrs.get("global_symbol", "kernel"))

    def error(self, message: str, hint: str | None = None) -> CompileError:
        return CompileError(f"{self.name}: {message}", span=self.span, hint=hint)

    def _is_point(self, loop: st.For) -> bool:
        """True if a loop has one iteration, whose number is known, and which runs to its end.

        Its variable was not that of an earlier loop.
        """
        match loop:
            case st.For(
                loop_var=var,
                min=tir.IntImm(),
                extent=tir.IntImm(value=1),
                kind=st.ForKind.SERIAL,
                thread_binding=None,
            ) if var not in self.used:
                inner = occurrences(loop.body, st.Evaluate) if self.has_jumps else ()
                return not (loop.annotations or any(map(_is_jump, inner)))
            case _:
                return False

    def _loop(self, loop: st.For, start: tir.PrimExpr, extent: tir.PrimExpr) -> nest.Loop:
        var, body = loop.loop_var, loop.body
        if var in self.used:
            var = var.renamed(var.name)
            body = substitute(body, {loop.loop_var: var})
        self.used.add(var)
        if loop.kind != st.ForKind.SERIAL:
            self.kinds[var] = loop.kind
        start, extent = (self.wrapping.exact(self.value(b)) for b in (start, extent))
        axis = nest.Axis(var, start, start + extent, loop.span)
        self.axes.append(axis)
        inner = tuple(self.items(body))
        self.axes.pop()
        return nest.Loop(axis, inner)

    def _realize(self, realize: st.BlockRealize) -> Iterator[nest.Item]:
        block = realize.block
        items: list[nest.Item] = []
        values: dict[tir.Var, tir.PrimExpr] = {}
        reduced: list[tuple[tir.PrimExpr, tir.PrimExpr]] = []
        spatial: set[tir.Var] = set()
        points, self.points = self.points, {}
        for iter_var, found in zip(block.iter_vars, realize.iter_values, strict=True):
            bound = substitute(found, points)
            value = ops.cast_to(bound, iter_var.var.dtype)
            if self._is_bound_here(iter_var.var, value, block):
                var = tir.Var(iter_var.var.name, iter_var.var.dtype)
                values[iter_var.var] = var
                items.append(self._bound(var, self.value(value)))
            else:
                values[iter_var.var] = value
            if iter_var.iter_type != tir.IterVarKind.CommReduce:
                spatial.update(occurrences(bound, tir.Var))
            elif iter_var.dom is not None:
                first = substitute(iter_var.dom.min, points)
                reduced.append((self.value(bound), self.value(first)))
        values = {**points, **values}
        bounds: list[dict[tir.Var, tir.PrimExpr]] = []
        if block.alloc_buffers or block.match_buffers:
            # Each buffer whose layout mentions a variable is rebuilt once.
            bound_block = substitute(replace(block, iter_vars=(), reads=(), writes=()), values)
            for number in range(len(bound_block.match_buffers)):
                bound_block, own = self._with_fixed_bounds(bound_block, number)
                bounds.append(own)
                bound_block = substitute(
                    bound_block, self.buffers.layout_of(bound_block.match_buffers[number])
                )
        else:
            bound_block, self.points = block, values
        outer, self.block = self.block, block.name_hint or self.block
        for buffer in bound_block.alloc_buffers:
            items += self.buffers.add_local(buffer, bound_block, self.axes)
        for match, own in zip(bound_block.match_buffers, bounds, strict=True):
            items += [self._bound(var, self.value(bound)) for var, bound in own.items()]
            items += self._region(match)
            self.buffers.add_match(match)
        if bound_block.init is not None:
            init = tuple(self.items(bound_block.init))
            items += self._in_first_iteration(init, reduced, spatial)
        items += self.items(bound_block.body)
        self.block, self.points = outer, points
        predicate = self.value(substitute(realize.predicate, points))
        if isinstance(predicate, tir.IntImm) and predicate.value:
            yield from items
        else:
            yield nest.Branch(predicate, tuple(items))

    def _with_fixed_bounds(
        self, block: st.Block, number: int
    ) -> tuple[st.Block, dict[tir.Var, tir.PrimExpr]]:
        """The block with variables for bounds of a matched region that it may change, with values.

        The bounds are those when the block begins.
        """
        match = block.match_buffers[number]
        earlier = {other.buffer for other in block.match_buffers[:number]}
        values: dict[tir.Var, tir.PrimExpr] = {}

        def fixed(bound: tir.PrimExpr) -> tir.PrimExpr:
            reads = {load.buffer for load in nest.loads(bound)}
            if reads.isdisjoint(earlier) and not self._may_change(bound, block):
                return bound
            var = tir.Var("bound", bound.dtype)
            values[var] = bound
            return var

        source = match.source
        ranges = (Range.from_min_extent(fixed(r.min), fixed(r.extent)) for r in source.region)
        new = replace(match, source=replace(source, region=tuple(ranges)))
        if not values:
            return block, values
        matches = block.match_buffers
        return replace(
            block, match_buffers=(*matches[:number], new, *matches[number + 1 :])
        ), values

    def _region(self, match: st.MatchBufferRegion) -> Iterator[nest.Item]:
        """Check that a matched region is in bounds and has the right shape, unless proved."""
        buffer, source = match.buffer, match.source
        for dom, size in zip(source.region, source.buffer.shape, strict=True):
            if not is_range_inside(dom, size, self.axes, self.shape_vars):
                inside = ops.all_of(*_in_order(ops.const(0, size.dtype), dom.min, dom.stop, size))
                message = f"the region {source} of {buffer.name} lies outside its buffer"
                yield nest.Check(self.value(inside), message, self.span)
        extents = [r.extent for r in source.region[source.buffer.ndim - buffer.ndim :]]
        for size, extent in zip(buffer.shape, extents, strict=True):
            if not as_poly(size).same(as_poly(extent)):
                fits = ops.convert(size.equal(ops.cast_to(extent, size.dtype)))
                message = f"the region {source} does not have the shape of {buffer.name}"
                yield nest.Check(self.value(fits), message, self.span)
        first = BufferLoad(source.buffer, tuple(r.min for r in source.region))
        if self._reads_view(self.value(first)):
            present = ops.all_of(*(ops.convert(r.extent > 0) for r in source.region))
            yield nest.Branch(self.value(present), tuple(self._evaluated(first)))

    def _in_first_iteration(
        self,
        init: tuple[nest.Item, ...],
        reduced: Sequence[tuple[tir.PrimExpr, tir.PrimExpr]],
        spatial: Set[tir.Var],
    ) -> tuple[nest.Item, ...]:
        """`init` under the condition that each reduction iterator has its minimum.

        `reduced` are the values and minima of these. The loops of variables in `spatial` are not
        reduction loops.
        """
        starting: set[tir.Var] = set()
        others = []
        for value, minimum in reduced:
            loops = self._loops_at_start(value, minimum)
            # Where a reduction loop is empty, the init runs for all iterations of the spatial ones.
            if loops is None or not loops.isdisjoint(spatial):
                others.append((value, minimum))
            else:
                starting |= loops
        tests = [ops.convert(v.equal(ops.cast_to(least, v.dtype))) for v, least in others]
        fused = self._fused_at_start(others) if others else None
        if fused and fused.isdisjoint(spatial):
            starting, tests = starting | fused, []
        starts = [ops.convert(a.var.equal(a.start)) for a in self.axes if a.var in starting]
        if not (starts or tests):
            return init
        used = {node for value, _ in reduced for node in walk(value)}
        init_loops = tuple(a for a in self.axes if a.var in used and a.var not in spatial)
        return (nest.Branch(ops.all_of(*tests, *starts), init, init_loops=init_loops),)

    def _loops_at_start(self, value: tir.PrimExpr, minimum: tir.PrimExpr) -> set[tir.Var] | None:
        """The loops whose first iterations are exactly where `value` is `minimum`, or None."""
        linear = affine(value, {a.var for a in self.axes})
        if linear is None or any((c.constant or 0) < 1 for c in linear.coefficients.values()):
            return None
        at_start = linear.offset
        for axis in self.axes:
            if axis.var in linear.coefficients:
                at_start = at_start + linear.coefficients[axis.var] * as_poly(axis.start)
        return set(linear.coefficients) if at_start.same(as_poly(minimum)) else None

    def _fused_at_start(
        self, digits: Sequence[tuple[tir.PrimExpr, tir.PrimExpr]]
    ) -> set[tir.Var] | None:
        """The loops whose first iteration is where all `digits` have their minima, or None."""
        from relaxpy.ir.arith.tvm.analyzer import Analyzer  # few blocks need these
        from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
        from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel

        if any(may_fail(digit, self.axes, self.shape_vars) for digit, _ in digits):
            return None  # it is evaluated, even if a loop is empty
        used = {node for digit, _ in digits for node in walk(digit)}
        loops = {a.var: Range.from_min_extent(a.start, a.extent.expr()) for a in self.axes}
        loops = {var: values for var, values in loops.items() if var in used}
        starts = {var: ops.cast_to(values.min, var.dtype) for var, values in loops.items()}
        equal = Analyzer().can_prove_equal
        if not all(equal(substitute(digit, starts), least) for digit, least in digits):
            return None
        found = detect_iter_map([digit for digit, _ in digits], loops, True, IterMapLevel.Bijective)
        return None if found.errors else set(loops)

    def _constant(self, stmt: st.AllocateConst) -> Iterator[nest.Item]:
        """A constant: used directly if it is only read, or else copied to private memory."""
        var, body = stmt.buffer_var, stmt.body
        constant = Buffer(var, stmt.dtype, stmt.extents, name=var.name)
        changed = any(
            (isinstance(node, st.BufferStore) and node.buffer.data is var)
            or (isinstance(node, tir.Call) and is_external(node))
            for node in walk(body)
        )
        if not changed:
            uses = (b for b in walk(body) if isinstance(b, Buffer) and b.data is var)
            same = (b for b in uses if b.dtype == constant.dtype and b.ndim == constant.ndim)
            constant = next(
                (b for b in same if b.shape == constant.shape and not b.strides), constant
            )
            self.buffers.add_constant(constant, stmt.data)
            yield from self.items(body)
            return
        source = Buffer(var.renamed(var.name), stmt.dtype, stmt.extents, name=var.name)
        self.buffers.add_constant(source, stmt.data)
        yield from self.buffers.add_local(constant, body, self.axes)
        indices = [tir.Var(f"{var.name}_{n}", "int64") for n in range(constant.ndim)]
        load = BufferLoad(source, indices)
        item: nest.Item = nest.Store(constant, tuple(indices), load, self.block, self.span)
        for index, size in zip(reversed(indices), reversed(constant.shape), strict=True):
            axis = nest.Axis(index, ops.const(0, "int64"), ops.cast_to(size, "int64"))
            item = nest.Loop(axis, (item,))
        yield item
        yield from self.items(body)

    def _store(self, store: st.BufferStore) -> Iterator[nest.Item]:
        if store.predicate is not None and store.predicate.dtype.lanes == 1:
            unpredicated = replace(store, predicate=None)
            yield nest.Branch(self.value(store.predicate), tuple(self._store(unpredicated)))
            return
        lanes = store.indices[-1].dtype.lanes if store.indices else 1
        if lanes == 1 and store.value.dtype.lanes == 1:
            indices = tuple(self.value(i) for i in store.indices)
            buffer, indices = self._resolve(store.buffer, indices)
            yield nest.Store(buffer, indices, self.value(store.value), self.block, self.span)
            return
        if lanes == 1:
            raise self.error(f"{store.buffer.name} has vector elements, which is not supported")
        if self._lanes_conflict(store):
            yield from self._unrolled(store, lanes)
            return
        lane = tir.Var("lane", store.indices[-1].dtype.element)
        axis = nest.Axis(lane, ops.const(0, lane.dtype), ops.const(lanes, lane.dtype))
        self.kinds[lane] = st.ForKind.VECTORIZED
        self.axes.append(axis)
        stores = tuple(self._store(_scalar(store, lane)))
        self.axes.pop()
        yield nest.Loop(axis, stores)

    def _lanes_conflict(self, store: st.BufferStore) -> bool:
        """True if a lane may read an element that another lane writes."""
        operands = [store.value, *store.indices]
        if store.predicate is not None:
            operands.append(store.predicate)
        root = self.buffers.root(store.buffer)
        reads = [load for e in operands for load in nest.loads(e)]
        aliases = [load for load in reads if self.buffers.root(load.buffer) is root]
        if self._may_overlap({root}, {self.buffers.root(load.buffer) for load in reads} - {root}):
            return True
        if not aliases and not any(True for e in operands for _ in nest.external_calls(e)):
            return False
        last = store.indices[-1]
        distinct = isinstance(last, tir.Ramp) and getattr(last.stride, "value", 0) != 0
        aligned = all(
            load.buffer is store.buffer
            and all(a is b for a, b in zip(load.indices, store.indices, strict=True))
            for load in aliases
        )
        return not (aliases and distinct and aligned)

    def _may_overlap(self, written: Set[Buffer], read: Set[Buffer]) -> bool:
        """True if a buffer in `written` may share memory with another one in `read`."""
        both = all(any(map(self.buffers.is_argument, side)) for side in (written, read))
        self.assumes_no_alias |= both and not self.may_alias
        return both and self.may_alias

    def _unrolled(self, store: st.BufferStore, lanes: int) -> Iterator[nest.Item]:
        """Items that compute all lanes and then store them."""
        numbers = [ops.const(n, "int32") for n in range(lanes)]
        values = [tir.Var(f"lane{n}", store.value.dtype.element) for n in range(lanes)]
        for var, number in zip(values, numbers, strict=True):
            yield self._bound(var, self.value(lane_of(store.value, number)))
        for var, number in zip(values, numbers, strict=True):
            yield from self._store(replace(_scalar(store, number), value=var))

    def _let(
        self, var: tir.Var, value: tir.PrimExpr, body: st.Stmt
    ) -> Generator[nest.Item, None, st.Stmt]:
        """The binding of a variable, unless its value is substituted; the statement after it."""
        # Statements that run one by one compute a value once, as in the source.
        is_shared = self.may_alias and bool(children(value))
        if not is_shared and not self._is_bound_here(var, value, body):
            size = tree_size(value)
            is_data = var.dtype.lanes == 1 and (var.dtype.is_float or var.dtype == BOOL)
            in_memory = bool(self.axes) and is_data
            repeated = size * (_use_count(var, body) - 1) if in_memory else 0
            if size <= Plans.TREE and repeated <= Plans.REPEATED:
                return substitute(body, {var: value})
            if in_memory:
                # Other than a variable, memory can be expanded: the loops around it can be vectors.
                buffer, index = decl_buffer([1], var.dtype, var.name), (ops.const(0, "int64"),)
                yield from self.buffers.add_local(buffer, body, self.axes)
                yield nest.Store(buffer, index, value, self.block, self.span)
                return substitute(body, {var: BufferLoad(buffer, index)})
        if var.dtype.lanes == 1:
            yield self._bound(var, value)
            return body
        lanes = [tir.Var(f"{var.name}{n}", var.dtype.element) for n in range(var.dtype.lanes)]
        for number, lane in enumerate(lanes):
            part = self.value(lane_of(value, ops.const(number, "int32")))
            yield self._bound(lane, part)
        return substitute(body, {var: vector_of(lanes)})

    def _is_bound_here(self, var: tir.Var, value: tir.PrimExpr, body: st.Stmt) -> bool:
        """True if `value` must be evaluated here, and not where `body` uses `var`."""
        if isinstance(value, (tir.Var, tir.IntImm)):
            return False
        stops = self._may_stop(value) and not is_always_evaluated(var, body)
        return stops or self._may_change(value, body)

    def _may_change(self, value: tir.PrimExpr, body: st.Stmt) -> bool:
        """True if `value` may be another one after a part of `body`, or if it calls a function."""
        written = set(map(self.buffers.root, written_buffers(body)))
        called = any(True for _ in nest.external_calls(value))
        reads = {self.buffers.root(load.buffer) for load in nest.loads(value)}
        passed_on = reads and any(True for _ in nest.external_calls(body))
        return bool(called or passed_on or reads & written or self._may_overlap(written, reads))

    def _may_stop(self, value: tir.PrimExpr) -> bool:
        """True if an operation in `value` may fail, or memory that it reads."""
        return self._reads_view(value) or may_fail(value, self.axes, self.shape_vars)

    def _reads_view(self, value: tir.PrimExpr) -> bool:
        """True if `value` reads memory that may be too small, or have gaps."""
        views = self.buffers.views
        return bool(views) and any(load.buffer in views for load in nest.loads(value))

    def _evaluated(self, value: tir.PrimExpr) -> Iterator[nest.Item]:
        """The evaluation of the unused `value`, if that may stop the program."""
        read = self.value(value)
        if self._may_stop(read):
            unused = tir.Var("unused", value.dtype)
            yield from self.items((yield from self._let(unused, read, st.Evaluate(ops.const(0)))))

    def _evaluate(self, value: tir.PrimExpr) -> Iterator[nest.Item]:
        match value:
            case tir.Call(op=Op(name="tir.ret"), args=(result,)):
                yield nest.Return(self.value(result))
            case tir.Call(op=Op(name="tir.break_loop")):
                yield nest.Jump("break")
            case tir.Call(op=Op(name="tir.continue_loop")):
                yield nest.Jump("continue")
            case tir.Call(op=Op(name="tir.assume" | "tir.tvm_storage_sync")) | tir.IntImm():
                pass
            case _:
                read = self.value(value)
                if not (isinstance(read, tir.Call) and is_external(read)):
                    evaluated = tuple(self._evaluated(value))
                    if evaluated:
                        yield from evaluated
                        return
                for call in _outermost(read):
                    # The result of a call that is a statement is not used.
                    invoked = tir.Call(VOID, call.op, call.args) if call is read else call
                    yield nest.Invoke(invoked, self.block, self.span)

    def _resolve(
        self, buffer: Buffer, indices: tuple[tir.PrimExpr, ...]
    ) -> tuple[Buffer, tuple[tir.PrimExpr, ...]]:
        exact = tuple(map(self.wrapping.index, indices))
        try:
            root, found = self.buffers.resolve(buffer, exact, self.axes, self.shape_vars)
        except CompileError as error:
            raise self.error(error.diagnostics[0].message) from None
        return root, found if found is exact else tuple(map(self.wrapping.index, found))

    @property
    def wrapping(self) -> Wrapping:
        """The expressions that may wrap around here."""
        return Wrapping(self.data, self.axes)

    def _bound(self, var: tir.Var, value: tir.PrimExpr) -> nest.Bind:
        """The binding of a variable, which is one of any value if it is computed from these."""
        if var.dtype.is_int and self.wrapping.is_data(value):
            self.data.add(var)
        return nest.Bind(var, value, self.span)

    def _call(self, call: tir.Call) -> tir.Call:
        """A call of an external function, with its memory arguments resolved."""
        if isinstance(call.op, Op) and not is_evaluated(call):
            raise self.unsupported(call)
        args: list[Node] = []
        for arg in call.args:
            if isinstance(arg, tir.Call) and arg.op is Op("tir.tvm_access_ptr"):
                arg = accessed(arg, self.span)
            match arg:
                case tir.Var():
                    memory = self.buffers.passed_memory(arg)
                    args.append(arg if memory is None else rewrite(memory, self._rule))
                case tir.Call(op=Op(name="tir.address_of")):
                    memory = self.buffers.passed_buffer(addressed(arg, self.span))
                    args.append(rewrite(memory, self._rule))
                case _:
                    args.append(self.value(arg))
        return tir.Call(call.dtype, call.op, args)

    def unsupported(self, call: tir.Call) -> CompileError:
        """The error for an intrinsic that needs special hardware."""
        return self.error(f"the {display_name(call)} cannot run on NumPy", hint=remedy(call))

    def value(self, expr: tir.PrimExpr) -> tir.PrimExpr:
        """`expr` with lets substituted, hints dropped, loads resolved, and lanes extracted.

        Errors:
            CompileError: an intrinsic has no meaning outside special hardware.
        """
        if isinstance(expr, (tir.Var, tir.IntImm)):
            return expr
        if not any(True for _ in nest.external_calls(expr)):
            return cast("tir.PrimExpr", rewrite(expr, self._rule))
        if isinstance(expr, tir.Call) and is_external(expr):
            return self._call(expr)
        inner: Callable[[Node], Node] = lambda child: (  # noqa: E731
            self.value(child) if isinstance(child, tir.PrimExpr) else child
        )
        rebuilt: Node = map_children(inner, expr)
        changed = self._rule(rebuilt)
        return cast("tir.PrimExpr", rebuilt if changed is None else changed)

    def _rule(self, node: Node) -> Node | None:
        """The replacement of `node`, whose children are replaced; None if it stays."""
        match node:
            case tir.Let(var=var, value=value, body=body):
                stops = var.dtype.lanes == 1 and self._may_stop(value)
                if stops and not is_always_evaluated(var, body):
                    # An unused value may stop the program, so it is evaluated.
                    evaluated = tir.Or(ops.cast_to(value, BOOL), ops.const(True))
                    body = if_then_else(evaluated, body, ops.const(0, body.dtype))
                return substitute(body, {var: value})
            case _ if (known := _literal_of(node)) is not None:
                return known
            case tir.Cast(value=inner) if not self.wrapping.is_data(node):
                return wrapped(node) if self.wrapping.may_wrap(node) else None
            case Range(min=first, extent=extent):
                return Range.from_min_extent(*map(self.wrapping.exact, (first, extent)))
            case tir.Call(op=op, args=(inner,)) if (record := intrinsic_of(op)) and record.is_hint:
                return inner
            case tir.Call(op=Op()) if not is_evaluated(node):
                raise self.unsupported(node)
            case tir.Call(op=op, args=args) if (record := intrinsic_of(op)) and record.definition:
                return record.definition(*args)
            case tir.Call(op=Op(name="tir.undef"), dtype=dtype):
                return ops.const(0, dtype)
            case tir.Call(op=Op(name="tir.vscale"), dtype=dtype):
                return ops.const(1, dtype)
            case tir.Call(op=Op(name="tir.large_uint_imm"), dtype=dtype, args=(low, high)):
                return tir.IntImm(dtype, (number_of(high) << 32) + number_of(low))
            case tir.Call(op=Op(name="tir.isnullptr"), args=(tir.Var() as pointer,)):
                return None if self.buffers.passed_memory(pointer) is None else ops.const(False)
            case tir.Call(
                op=Op(name="tir.pow"), args=(x, tir.FloatImm(value=2.0 | 3.0 as exponent))
            ) if 3 * tree_size(x) <= Plans.TREE:
                square = tir.Mul(x, x)
                return square if exponent == 2 else tir.Mul(square, x)
            case tir.LT(a=tir.IntImm(value=0), b=tir.Cast(value=truth)) if truth.dtype.is_bool:
                return truth  # the condition of a where
            case tir.Shuffle(indices=[_]) if node.dtype.lanes == 1:
                return lane_of(node, ops.const(0, "int32"))
            case BufferLoad(buffer=buffer, indices=indices, predicate=test):
                if node.dtype.lanes > 1:
                    return None
                load = BufferLoad(*self._resolve(buffer, indices))
                return load if test is None else if_then_else(test, load, ops.const(0, load.dtype))
            case _:
                return None


def _literal_of(node: Node) -> tir.PrimExpr | None:
    """The value of an operation on integer literals; None of any other, or if it fails."""
    operands: Iterable[object] = children(node)
    match node:
        case tir.BinaryOpExpr() | tir.Select() | tir.Cast():
            is_operation = node.dtype.is_int
        case tir.Call(op=Op(), args=args) if args:
            operands = args
            is_operation = node.dtype.is_int and effect_of(node) == CallEffectKind.Pure
        case _:
            return None
    if not (is_operation and all(isinstance(operand, tir.IntImm) for operand in operands)):
        return None
    try:
        return ops.const(ScalarEvaluator({}).value(node), node.dtype)
    except RuntimeCheckError:
        return None


def _in_order(*values: tir.PrimExpr) -> Iterator[tir.PrimExpr]:
    """The conditions that `values` do not decrease."""
    for low, high in pairwise(values):
        a, b = ops.match_dtypes(low, high)
        yield ops.convert(a <= b)


def _outermost(expr: tir.PrimExpr) -> Iterator[tir.Call]:
    """The external calls in `expr` that are not arguments of other ones."""
    if isinstance(expr, tir.Call) and is_external(expr):
        yield expr
        return
    for child in children(expr):
        if isinstance(child, tir.PrimExpr):
            yield from _outermost(child)


def number_of(value: tir.PrimExpr) -> int:
    """The value of an integer literal."""
    assert isinstance(value, tir.IntImm)
    return value.value


def _scalar(store: st.BufferStore, lane: tir.PrimExpr) -> st.BufferStore:
    """One lane of a vector store."""
    return replace(
        store,
        indices=tuple(lane_of(i, lane) for i in store.indices),
        value=lane_of(store.value, lane),
        predicate=None if store.predicate is None else lane_of(store.predicate, lane),
    )


_LOOP_JUMPS = frozenset((Op("tir.break_loop"), Op("tir.continue_loop")))
_JUMPS = _LOOP_JUMPS | {Op("tir.ret")}


def is_always_evaluated(var: tir.Var, node: Node) -> bool:
    """True if `node` provably evaluates `var` whenever it runs."""
    return any(child is var for child in reached([node], _always_evaluated))


def _always_evaluated(node: Node) -> Iterable[Node]:
    """The children of `node` that are evaluated whenever `node` is."""
    match node:
        case st.SeqStmt(seq=seq):
            return _before_jumps(seq)
        case st.IfThenElse(condition=test) | tir.Select(condition=test) | st.While(condition=test):
            return (test,)
        case tir.Call(op=Op(name="tir.if_then_else"), args=(test, *_)):
            return (test,)
        case tir.Or(a=a) | tir.And(a=a):
            return (a,)
        case st.For(min=first, extent=extent, body=body):
            runs = isinstance(extent, tir.IntImm) and extent.value > 0
            return (first, extent, body) if runs else (first, extent)
        case st.BlockRealize(iter_values=values, predicate=test, block=block):
            runs = isinstance(test, tir.IntImm) and test.value != 0
            return (*values, test, block.body) if runs else (*values, test)
        case st.BufferStore(predicate=test) | BufferLoad(predicate=test) if test is not None:
            return (test,)
        case _:
            return [child for child in children(node) if isinstance(child, (st.Stmt, tir.PrimExpr))]


def _before_jumps(seq: Iterable[st.Stmt]) -> Iterator[st.Stmt]:
    """The statements up to and including the first that may jump."""
    for stmt in seq:
        yield stmt
        if any(isinstance(node, tir.Call) and node.op in _JUMPS for node in walk(stmt)):
            return


def lane_of(value: tir.PrimExpr, lane: tir.PrimExpr) -> tir.PrimExpr:
    """Lane `lane` of a vector expression; every lane of a scalar is the scalar."""
    if value.dtype.lanes == 1 and not isinstance(value, tir.Shuffle):
        return value
    match value:
        case tir.Ramp(base=base, stride=stride):
            return base + ops.cast_to(lane, stride.dtype) * stride
        case tir.Broadcast(value=scalar):
            return scalar
        case tir.Cast(dtype=dtype, value=inner):
            return tir.Cast(dtype.element, lane_of(inner, lane))
        case tir.Call(dtype=dtype, op=op, args=args):
            return tir.Call(dtype.element, op, [lane_of(a, lane) for a in args])
        case BufferLoad(buffer=buffer, indices=indices, predicate=predicate):
            guard = None if predicate is None else lane_of(predicate, lane)
            return BufferLoad(buffer, tuple(lane_of(i, lane) for i in indices), guard)
        case tir.Shuffle(vectors=vectors, indices=indices):
            return _select_lane([_concatenated_lane(vectors, index) for index in indices], lane)
        case _:

            def change(child: Node) -> Node:
                return lane_of(cast("tir.PrimExpr", child), lane)

            return map_children(change, value)


def _concatenated_lane(vectors: Sequence[tir.PrimExpr], index: tir.PrimExpr) -> tir.PrimExpr:
    lanes = [
        lane_of(vector, ops.const(number, "int32"))
        for vector in vectors
        for number in range(vector.dtype.lanes)
    ]
    return _select_lane(lanes, index)


def _select_lane(values: Sequence[tir.PrimExpr], index: tir.PrimExpr) -> tir.PrimExpr:
    """The value at `index`, by comparisons with all positions but the last."""
    if isinstance(index, tir.IntImm):
        return values[index.value]
    *others, result = values
    for number, value in reversed(list(enumerate(others))):
        here = ops.convert(index.equal(ops.const(number, index.dtype)))
        result = tir.Select(here, value, result)
    return result


def vector_of(lanes: Sequence[tir.Var]) -> tir.PrimExpr:
    """The vector of these scalars."""
    return tir.Shuffle(lanes, [ops.const(number, "int32") for number in range(len(lanes))])
