"""From a PrimFunc's body to a nest: blocks, regions, vectors and memory declarations dissolved."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never, cast

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.nest.bounds import has_stretch, keeps_divisions, may_fail
from relaxpy.exec.kernel.nest.certain import is_evaluated
from relaxpy.exec.kernel.nest.declared import Declared
from relaxpy.exec.kernel.nest.nodes import (
    OUTSIDE,
    Axis,
    Bind,
    Branch,
    Check,
    Invoke,
    Item,
    Jump,
    Leave,
    Loop,
    Nest,
    Repeat,
    Store,
    is_outside,
    loads,
    outside_calls,
)
from relaxpy.exec.kernel.nest.vectors import lane_of, vector_of
from relaxpy.exec.runtime.scalar import SUPPORTED, display_name, launched
from relaxpy.ir.arith.algebra.affine import affine, as_poly
from relaxpy.ir.core.dtype import BOOL, VOID
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, rewrite, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import (
    Call,
    IntImm,
    IterVarKind,
    Let,
    Or,
    PrimExpr,
    Ramp,
    Shuffle,
    StringImm,
    Var,
)
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import (
    Allocate,
    AllocateConst,
    AnyStmt,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    While,
)
from relaxpy.ir.tir.substitution import substitute

if TYPE_CHECKING:
    from relaxpy.errors import Span


_MOST_PLACES = 4096
"""A chain of lets may double a value at each step: what is larger than this is computed once."""


def _places(value: PrimExpr) -> int:
    """How many parts a value has when what is shared counts at each place."""
    found: dict[Node, int] = {}
    for part in walk(value):
        found[part] = 1 + sum(found.get(inner, 0) for inner in children(part))
    return found[value]


def read(func: PrimFunc, sizes: Container[Var], *, overlapping: bool = False) -> Nest:
    """The nest of `func`; its arguments share no memory unless they are `overlapping`.

    `sizes` are variables that are never negative.

    Errors:
        CompileError: a statement or intrinsic has no meaning outside special hardware.
    """
    reader = _Reader(func, sizes, overlapping=overlapping)
    items = tuple(reader.items(func.body))
    found = reader.declared
    return Nest(
        items,
        tuple(found.local),
        found.views,
        found.constants,
        found.pointers,
        in_any_memory=not reader.apart,
    )


class _Reader:
    def __init__(self, func: PrimFunc, sizes: Container[Var], *, overlapping: bool) -> None:
        self.func = func
        self.sizes = sizes
        self.overlapping = overlapping
        self.apart = False
        """Whether something was read as it is only where arguments share no memory."""
        self.declared = Declared(func)
        self.axes: list[Axis] = []
        self.used: set[Var] = set(func.params)
        self.block: str | None = None
        self.span: Span | None = func.span

    def items(self, stmt: Stmt) -> Iterator[Item]:
        outer = self.span
        self.span = getattr(stmt, "span", None) or outer
        yield from self._items(cast("AnyStmt", stmt))
        self.span = outer

    def _items(self, stmt: AnyStmt) -> Iterator[Item]:
        match stmt:
            case SeqStmt(seq=seq):
                for part in seq:
                    yield from self.items(part)
            case For(min=start, extent=extent):
                loop = self._loop(stmt)
                for bound in (start, extent):
                    if not (loop.body and keeps_divisions(bound, as_poly(bound).expr())):
                        yield from self._unused(bound)
                if loop.body:
                    yield loop
            case BlockRealize():
                yield from self._realize(stmt)
            case Block():
                yield from self.items(BlockRealize((), ops.const(True), stmt))
            case BufferStore():
                yield from self._store(stmt)
            case IfThenElse(condition=condition, then_case=then, else_case=orelse):
                no = () if orelse is None else tuple(self.items(orelse))
                yield Branch(self.value(condition), tuple(self.items(then)), no)
            case While(condition=condition, body=body):
                yield Repeat(self.value(condition), tuple(self.items(body)))
            case LetStmt(var=var, value=value, body=body):
                yield from self._let(var, self.value(value), body)
            case AttrStmt(attr_key="thread_extent"):
                raise launched(self.name, stmt)
            case AttrStmt(body=body):
                yield from self.items(body)
            case AssertStmt(condition=condition, message=message, body=body):
                text = message.value if isinstance(message, StringImm) else str(message)
                yield Check(self.value(condition), text, self.span)
                yield from self.items(body)
            case Allocate(body=body):
                yield from self.declared.allocate(stmt, self.axes)
                yield from self.items(body)
            case DeclBuffer(body=body):
                yield from self.items(body)
            case BufferRealize(buffer=buffer, body=body):
                if not self.declared.is_argument(buffer):
                    yield from self.declared.make(buffer, self.axes)
                yield from self.items(body)
            case Evaluate(value=value):
                yield from self._evaluate(value)
            case AllocateConst():
                yield from self._constant(stmt)
            case _:
                assert_never(stmt)

    @property
    def name(self) -> str:
        return str(self.func.attrs.get("global_symbol", "kernel"))

    def error(self, message: str, hint: str | None = None) -> CompileError:
        return CompileError(f"{self.name}: {message}", span=self.span, hint=hint)

    def _loop(self, loop: For) -> Loop:
        var, body = loop.loop_var, loop.body
        if var in self.used:
            var = var.renamed(var.name)
            body = substitute(body, {loop.loop_var: var})
        self.used.add(var)
        start = self.value(loop.min)
        axis = Axis(var, start, ops.add(start, self.value(loop.extent)))
        self.axes.append(axis)
        inside = tuple(self.items(body))
        self.axes.pop()
        return Loop(axis, inside)

    def _realize(self, realize: BlockRealize) -> Iterator[Item]:
        block = realize.block
        bare = replace(block, iter_vars=(), reads=(), writes=())
        found: list[Item] = []
        values: dict[Var, PrimExpr] = {}
        reduced: list[tuple[PrimExpr, PrimExpr]] = []
        kept: set[Var] = set()
        for iter_var, bound in zip(block.iter_vars, realize.iter_values, strict=True):
            value = ops.cast_to(bound, iter_var.var.dtype)
            if self._is_bound_here(iter_var.var, value, bare):
                var = Var(iter_var.var.name, iter_var.var.dtype)
                values[iter_var.var] = var
                found.append(Bind(var, self.value(value), self.span))
            else:
                values[iter_var.var] = value
            if iter_var.iter_type != IterVarKind.CommReduce:
                kept |= {part for part in walk(bound) if isinstance(part, Var)}
            elif iter_var.dom is not None:
                reduced.append((self.value(bound), iter_var.dom.min))
        inner = substitute(bare, values)
        for number in range(len(inner.match_buffers)):
            inner = substitute(inner, self.declared.layout_of(inner.match_buffers[number]))
        outer, self.block = self.block, block.name_hint or self.block
        for buffer in inner.alloc_buffers:
            found += self.declared.make(buffer, self.axes)
        for match in inner.match_buffers:
            found += self._region(match)
            self.declared.match(match)
        if inner.init is not None:
            init = tuple(self.items(inner.init))
            found += self._at_start(init, reduced, kept)
        found += self.items(inner.body)
        self.block = outer
        predicate = self.value(realize.predicate)
        if isinstance(predicate, IntImm) and predicate.value:
            yield from found
        else:
            yield Branch(predicate, tuple(found))

    def _region(self, match: MatchBufferRegion) -> Iterator[Item]:
        """Checks that a matched region lies in its buffer and has its shape, where not proved."""
        buffer, source = match.buffer, match.source
        pairs = zip(source.region, source.buffer.shape, strict=True)
        for part, size in pairs:
            if not has_stretch(part, size, self.axes, self.sizes):
                inside = ops.all_of(*_in_order(ops.const(0, size.dtype), part.min, part.stop, size))
                message = f"the region {source} of {buffer.name} lies outside its buffer"
                yield Check(self.value(inside), message, self.span)
        extents = [r.extent for r in source.region[source.buffer.ndim - buffer.ndim :]]
        for size, found in zip(buffer.shape, extents, strict=True):
            if not as_poly(size).same(as_poly(found)):
                fits = ops.convert(size.equal(ops.cast_to(found, size.dtype)))
                message = f"the region {source} has not the shape of {buffer.name}"
                yield Check(self.value(fits), message, self.span)

    def _at_start(
        self,
        init: tuple[Item, ...],
        reduced: Sequence[tuple[PrimExpr, PrimExpr]],
        kept: Container[Var],
    ) -> tuple[Item, ...]:
        """`init`, where each value that drives a reduction is the least one beside it.

        The loops of variables in `kept` do not only reduce.
        """
        starting: set[Var] = set()
        tests = []
        for bound, least in reduced:
            driving = self._driving(bound, least)
            if driving is None:
                tests.append(ops.convert(bound.equal(ops.cast_to(least, bound.dtype))))
            starting |= driving or set()
        starts = [ops.convert(a.var.equal(a.start)) for a in self.axes if a.var in starting]
        if not (starts or tests):
            return init
        used = {part for bound, _ in reduced for part in walk(bound)}
        first = tuple(a for a in self.axes if a.var in used and a.var not in kept)
        return (Branch(ops.all_of(*tests, *starts), init, first=first),)

    def _driving(self, bound: PrimExpr, least: PrimExpr) -> set[Var] | None:
        """The loops that are in their first rounds just where `bound` is `least`, or None."""
        found = affine(bound, {a.var for a in self.axes})
        if found is None or any((c.constant or 0) < 1 for c in found.coefficients.values()):
            return None
        lowest = found.offset
        for axis in self.axes:
            if axis.var in found.coefficients:
                lowest = lowest + found.coefficients[axis.var] * as_poly(axis.start)
        return set(found.coefficients) if lowest.same(as_poly(least)) else None

    def _constant(self, stmt: AllocateConst) -> Iterator[Item]:
        """Memory with a constant in it: read where it stands, or copied to where it is written."""
        var, body = stmt.buffer_var, stmt.body
        whole = Buffer(var, stmt.dtype, stmt.extents, name=var.name)
        over = [b for b in walk(body) if isinstance(b, Buffer) and b.data is var]
        changed = any(
            (isinstance(part, BufferStore) and part.buffer.data is var)
            or (isinstance(part, Call) and part.op in OUTSIDE)
            for part in walk(body)
        )
        if not changed:
            same = (b for b in over if b.dtype == whole.dtype and b.ndim == whole.ndim)
            whole = next((b for b in same if b.shape == whole.shape and not b.strides), whole)
            self.declared.constant(whole, stmt.data)
            yield from self.items(body)
            return
        source = Buffer(var.renamed(var.name), stmt.dtype, stmt.extents, name=var.name)
        self.declared.constant(source, stmt.data)
        yield from self.declared.make(whole, self.axes)
        copied = [Var(f"{var.name}_{n}", "int64") for n in range(whole.ndim)]
        item: Item = Store(whole, tuple(copied), BufferLoad(source, copied), self.block, self.span)
        for place, size in zip(reversed(copied), reversed(whole.shape), strict=True):
            axis = Axis(place, ops.const(0, "int64"), ops.cast_to(size, "int64"))
            item = Loop(axis, (item,))
        yield item
        yield from self.items(body)

    def _store(self, store: BufferStore) -> Iterator[Item]:
        if store.predicate is not None and store.predicate.dtype.lanes == 1:
            plain = replace(store, predicate=None)
            yield Branch(self.value(store.predicate), tuple(self._store(plain)))
            return
        lanes = store.indices[-1].dtype.lanes if store.indices else 1
        if lanes == 1 and store.value.dtype.lanes == 1:
            buffer, indices = self._resolve(
                store.buffer, tuple(self.value(i) for i in store.indices)
            )
            yield Store(buffer, indices, self.value(store.value), self.block, self.span)
            return
        if lanes == 1:
            raise self.error(f"{store.buffer.name} holds vectors, which is not supported")
        if self._meets_itself(store):
            yield from self._at_once(store, lanes)
            return
        lane = Var("lane", store.indices[-1].dtype.element)
        axis = Axis(lane, ops.const(0, lane.dtype), ops.const(lanes, lane.dtype))
        self.axes.append(axis)
        inside = tuple(self._store(_scalar(store, lane)))
        self.axes.pop()
        yield Loop(axis, inside)

    def _meets_itself(self, store: BufferStore) -> bool:
        """Whether a lane may read what another lane writes."""
        parts = [store.value, *store.indices]
        if store.predicate is not None:
            parts.append(store.predicate)
        root = self.declared.root(store.buffer)
        reads = [load for p in parts for load in loads(p)]
        own = [load for load in reads if self.declared.root(load.buffer) is root]
        if self._may_meet({root}, {self.declared.root(load.buffer) for load in reads} - {root}):
            return True
        if not own and not any(True for p in parts for _ in outside_calls(p)):
            return False
        last = store.indices[-1]
        apart = isinstance(last, Ramp) and getattr(last.stride, "value", 0) != 0
        aligned = all(
            load.buffer is store.buffer
            and all(a is b for a, b in zip(load.indices, store.indices, strict=True))
            for load in own
        )
        return not (own and apart and aligned)

    def _may_meet(self, written: Set[Buffer], read: Set[Buffer]) -> bool:
        """Whether memory that is `written` may be some that is `read` under another name."""
        both = all(any(map(self.declared.is_argument, side)) for side in (written, read))
        self.apart |= both and not self.overlapping
        return both and self.overlapping

    def _at_once(self, store: BufferStore, lanes: int) -> Iterator[Item]:
        """All lanes are computed, then all are stored."""
        numbers = [ops.const(n, "int32") for n in range(lanes)]
        values = [Var(f"lane{n}", store.value.dtype.element) for n in range(lanes)]
        for var, number in zip(values, numbers, strict=True):
            yield Bind(var, self.value(lane_of(store.value, number)), self.span)
        for var, number in zip(values, numbers, strict=True):
            yield from self._store(replace(_scalar(store, number), value=var))

    def _let(self, var: Var, value: PrimExpr, body: Stmt) -> Iterator[Item]:
        if not self._is_bound_here(var, value, body) and _places(value) <= _MOST_PLACES:
            yield from self.items(substitute(body, {var: value}))
        elif var.dtype.lanes == 1:
            yield Bind(var, value, self.span)
            yield from self.items(body)
        else:
            lanes = [Var(f"{var.name}{n}", var.dtype.element) for n in range(var.dtype.lanes)]
            for number, lane in enumerate(lanes):
                part = self.value(lane_of(value, ops.const(number, "int32")))
                yield Bind(lane, part, self.span)
            yield from self.items(substitute(body, {var: vector_of(lanes)}))

    def _is_bound_here(self, var: Var, value: PrimExpr, body: Stmt) -> bool:
        """Whether `value` cannot be evaluated just as well wherever `body` uses `var`."""
        written = {
            self.declared.root(part.buffer if isinstance(part, BufferStore) else part.source.buffer)
            for part in walk(body)
            if isinstance(part, (BufferStore, MatchBufferRegion))
        }
        called = any(True for _ in outside_calls(value))
        reads = {self.declared.root(load.buffer) for load in loads(value)}
        handed_on = reads and any(True for _ in outside_calls(body))
        changed = reads & written or self._may_meet(written, reads)
        stops = may_fail(value, self.axes, self.sizes) and not is_evaluated(var, body)
        return bool(called or handed_on or changed or stops)

    def _unused(self, value: PrimExpr) -> Iterator[Item]:
        """The evaluation of `value`, if that may stop the program; nothing uses it."""
        read = self.value(value)
        if may_fail(read, self.axes, self.sizes):
            yield from self._let(Var("unused", value.dtype), read, Evaluate(ops.const(0)))

    def _evaluate(self, value: PrimExpr) -> Iterator[Item]:
        match value:
            case Call(op=Op(name="tir.ret"), args=(result,)):
                yield Leave(self.value(result))
            case Call(op=Op(name="tir.break_loop")):
                yield Jump("break")
            case Call(op=Op(name="tir.continue_loop")):
                yield Jump("continue")
            case Call(op=Op(name="tir.assume")) | IntImm():
                pass
            case _:
                read = self.value(value)
                if not (isinstance(read, Call) and is_outside(read)):
                    evaluated = tuple(self._unused(value))
                    if evaluated:
                        yield from evaluated
                        return
                for call in _outermost(read):
                    # Of a statement by itself, what the function gives is of no interest.
                    alone = Call(VOID, call.op, call.args) if call is read else call
                    yield Invoke(alone, self.block, self.span)

    def _resolve(
        self, buffer: Buffer, indices: tuple[PrimExpr, ...]
    ) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        try:
            return self.declared.resolve(buffer, indices, self.axes, self.sizes)
        except CompileError as error:
            raise self.error(error.diagnostics[0].message) from None

    def _call(self, call: Call) -> Call:
        """A call that leaves the kernel, with the memory it is handed."""
        if call.op is Op("tir.call_kernel"):  # before what describes its launch is looked at
            raise self.unsupported(call)
        args: list[Node] = []
        for arg in call.args:
            match arg:
                case Var():
                    args.append(self.declared.passed_memory(arg) or arg)
                case Call(op=Op(name="tir.address_of"), args=(BufferLoad(buffer=buffer),)):
                    args.append(self.declared.passed_buffer(buffer))
                case _:
                    args.append(self.value(arg))
        return Call(call.dtype, call.op, args)

    def unsupported(self, call: Call) -> CompileError:
        """The error for what has no meaning outside special hardware."""
        return self.error(
            f"the {display_name(call)} cannot run on NumPy",
            hint="it needs hardware, or a pass that lowers it",
        )

    def value(self, expr: PrimExpr) -> PrimExpr:
        """`expr` with Lets substituted, hints dropped, loads resolved, and vectors taken apart.

        Errors:
            CompileError: an intrinsic has no meaning outside special hardware.
        """
        if not any(True for _ in outside_calls(expr)):
            return cast("PrimExpr", rewrite(expr, self._changed))
        if isinstance(expr, Call) and is_outside(expr):
            return self._call(expr)
        inner: Callable[[Node], Node] = lambda part: (  # noqa: E731
            self.value(part) if isinstance(part, PrimExpr) else part
        )
        rebuilt: Node = map_children(inner, expr)
        changed = self._changed(rebuilt)
        return cast("PrimExpr", rebuilt if changed is None else changed)

    def _changed(self, node: Node) -> Node | None:
        """What stands for `node`, whose parts are done; None if it may stay."""
        match node:
            case Let(var=var, value=value, body=body):
                stops = var.dtype.lanes == 1 and may_fail(value, self.axes, self.sizes)
                if stops and not is_evaluated(var, body):
                    # What nothing uses may stop the program all the same.
                    asked = Or(ops.cast_to(value, BOOL), ops.const(True))
                    body = if_then_else(asked, body, ops.const(0, body.dtype))
                return substitute(body, {var: value})
            case Call(op=Op(name="tir.likely" | "tir.assume"), args=(inner,)):
                return inner
            case Call(op=Op(name="tir.undef"), dtype=dtype):
                return ops.const(0, dtype)
            case Call(op=Op(name="tir.vscale"), dtype=dtype):
                return ops.const(1, dtype)
            case Call(op=Op(name="tir.large_uint_imm"), dtype=dtype, args=(low, high)):
                return IntImm(dtype, (number_of(high) << 32) + number_of(low))
            case Call(op=Op(name="tir.isnullptr"), args=(Var() as pointer,)):
                return None if self.declared.passed_memory(pointer) is None else ops.const(False)
            case Call(op=Op(name=name)) if name.removeprefix("tir.") not in SUPPORTED:
                raise self.unsupported(node)
            case Shuffle(indices=[_]) if node.dtype.lanes == 1:
                return lane_of(node, ops.const(0, "int32"))
            case BufferLoad(buffer=buffer, indices=indices, predicate=held):
                if node.dtype.lanes > 1:
                    return None
                load = BufferLoad(*self._resolve(buffer, indices))
                return load if held is None else if_then_else(held, load, ops.const(0, load.dtype))
            case _:
                return None


def _in_order(*values: PrimExpr) -> Iterator[PrimExpr]:
    """That none of `values` is greater than the next."""
    for low, high in pairwise(values):
        a, b = ops.match_dtypes(low, high)
        yield ops.convert(a <= b)


def _outermost(expr: PrimExpr) -> Iterator[Call]:
    """The calls in `expr` that leave the kernel, less those that give arguments of others."""
    if isinstance(expr, Call) and is_outside(expr):
        yield expr
        return
    for part in children(expr):
        if isinstance(part, PrimExpr):
            yield from _outermost(part)


def number_of(value: PrimExpr) -> int:
    """The value of an integer literal."""
    assert isinstance(value, IntImm)
    return value.value


def _scalar(store: BufferStore, lane: PrimExpr) -> BufferStore:
    """One lane of a store of vectors."""
    return replace(
        store,
        indices=tuple(lane_of(i, lane) for i in store.indices),
        value=lane_of(store.value, lane),
        predicate=None if store.predicate is None else lane_of(store.predicate, lane),
    )
