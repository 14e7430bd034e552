"""From a PrimFunc's body to a nest: blocks, regions, vectors and memory declarations dissolved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never, cast

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.nest import (
    Axis,
    Bind,
    Branch,
    Check,
    Item,
    Jump,
    Leave,
    Local,
    Loop,
    Nest,
    Repeat,
    Store,
    loads,
)
from relaxpy.ir.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import (
    Broadcast,
    Call,
    Cast,
    IntImm,
    IterVarKind,
    Let,
    PrimExpr,
    Ramp,
    Shuffle,
    StringImm,
    Var,
)
from relaxpy.ir.tir.function import PrimFunc
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
    SeqStmt,
    Stmt,
    While,
)
from relaxpy.ir.traverse import map_children, rewrite, substitute, walk

if TYPE_CHECKING:
    from relaxpy.errors import Span


def read(func: PrimFunc) -> Nest:
    """The nest of `func`.

    Errors:
        CompileError: a statement or intrinsic has no meaning outside special hardware.
    """
    reader = _Reader(func)
    items = tuple(reader.items(func.body))
    return Nest(items, tuple(reader.local), reader.views)


class _Reader:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.local: list[Local] = []
        self.views: dict[Buffer, Buffer] = {}
        self.axes: list[Axis] = []
        self.used: set[Var] = set(func.params)
        self.memory: dict[Var, Buffer] = {b.data: b for b in func.buffer_map.values()}
        self.regions: dict[Buffer, BufferRegion] = {}
        self.known: set[Buffer] = set(func.buffer_map.values())
        self.pending: dict[Var, Allocate] = {}
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
            case For():
                yield self._loop(stmt)
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
            case AttrStmt(body=body):
                yield from self.items(body)
            case AssertStmt(condition=condition, message=message, body=body):
                text = message.value if isinstance(message, StringImm) else str(message)
                yield Check(self.value(condition), text)
                yield from self.items(body)
            case Allocate(buffer_var=var, body=body):
                self.pending[var] = stmt
                yield from self.items(body)
            case DeclBuffer(buffer=buffer, body=body):
                self.declare(buffer)
                yield from self.items(body)
            case BufferRealize(buffer=buffer, body=body):
                self._make(buffer)
                yield from self.items(body)
            case Evaluate(value=value):
                yield from self._evaluate(value)
            case AllocateConst():
                raise self.error(
                    "constants inside kernels are not supported; pass them as arguments"
                )
            case _:
                assert_never(stmt)

    def error(self, message: str) -> CompileError:
        name = self.func.attrs.get("global_symbol", "kernel")
        return CompileError(f"{name}: {message}", span=self.span)

    def _loop(self, loop: For) -> Item:
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
        values: dict[Var, PrimExpr] = {}
        reduced: list[PrimExpr] = []
        for iter_var, bound in zip(block.iter_vars, realize.iter_values, strict=True):
            values[iter_var.var] = ops.cast_to(bound, iter_var.var.dtype)
            if iter_var.iter_type == IterVarKind.CommReduce:
                reduced.append(bound)
        bare = replace(block, iter_vars=(), reads=(), writes=())
        inner = substitute(bare, values)
        for buffer in inner.alloc_buffers:
            self._make(buffer)
        for match in inner.match_buffers:
            self.regions[match.buffer] = match.source
            self.known.add(match.buffer)
        outer, self.block = self.block, block.name_hint or self.block
        found: list[Item] = []
        if inner.init is not None:
            init = tuple(self.items(inner.init))
            found += self._at_start(init, reduced)
        found += self.items(inner.body)
        self.block = outer
        predicate = self.value(realize.predicate)
        if isinstance(predicate, IntImm) and predicate.value:
            yield from found
        else:
            yield Branch(predicate, tuple(found))

    def _at_start(self, init: tuple[Item, ...], reduced: list[PrimExpr]) -> tuple[Item, ...]:
        """`init`, where each loop that drives a reduction is in its first round."""
        inside = {part for value in reduced for part in walk(value) if isinstance(part, Var)}
        axes = [a for a in self.axes if a.var in inside]
        if not axes:
            return init
        tests = [ops.convert(a.var.equal(a.start)) for a in axes]
        return (Branch(ops.all_of(*tests), init, first=frozenset(a.var for a in axes)),)

    def _store(self, store: BufferStore) -> Iterator[Item]:
        if store.predicate is not None:
            raise self.error(f"predicated stores to {store.buffer.name} are not supported")
        lanes = store.indices[-1].dtype.lanes if store.indices else 1
        if lanes == 1 and store.value.dtype.lanes == 1:
            buffer, indices = self._resolve(
                store.buffer, tuple(self.value(i) for i in store.indices)
            )
            yield Store(buffer, indices, self.value(store.value), self.block, self.span)
            return
        if lanes == 1:
            raise self.error(f"{store.buffer.name} holds vectors, which is not supported")
        lane = Var("lane", store.indices[-1].dtype.element)
        axis = Axis(lane, ops.const(0, lane.dtype), ops.const(lanes, lane.dtype))
        scalar = replace(
            store,
            indices=tuple(self._lane(i, lane) for i in store.indices),
            value=self._lane(store.value, lane),
        )
        self.axes.append(axis)
        inside = tuple(self._store(scalar))
        self.axes.pop()
        yield Loop(axis, inside)

    def _lane(self, value: PrimExpr, lane: Var) -> PrimExpr:
        """Member `lane` of a vector expression."""
        if value.dtype.lanes == 1:
            return value
        match value:
            case Ramp(base=base, stride=stride):
                return ops.add(base, ops.mul(ops.cast_to(lane, stride.dtype), stride))
            case Broadcast(value=scalar):
                return scalar
            case Cast(dtype=dtype, value=inner):
                return Cast(dtype.element, self._lane(inner, lane))
            case Call(dtype=dtype, op=op, args=args):
                return Call(dtype.element, op, [self._lane(a, lane) for a in args])
            case BufferLoad(buffer=buffer, indices=indices):
                return BufferLoad(buffer, tuple(self._lane(i, lane) for i in indices))
            case Shuffle():
                raise self.error("vector shuffles are not supported")
            case _:
                return map_children(lambda part: self._lane(cast("PrimExpr", part), lane), value)

    def _let(self, var: Var, value: PrimExpr, body: Stmt) -> Iterator[Item]:
        written = {part.buffer for part in walk(body) if isinstance(part, BufferStore)}
        if any(load.buffer in written for load in loads(value)):
            yield Bind(var, value)
            yield from self.items(body)
        else:
            yield from self.items(substitute(body, {var: value}))

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
            case Call(op=op):
                name = op.name if isinstance(op, Op) else str(op)
                raise self.error(f"{name} cannot run on NumPy: it is no plain computation")
            case _:
                self.value(value)

    def _make(self, buffer: Buffer) -> None:
        self.known.add(buffer)
        self.memory[buffer.data] = buffer
        self.local.append(Local(buffer, tuple(self.axes)))

    def declare(self, buffer: Buffer) -> None:
        """Enter `buffer`: fresh memory, or a view of the memory it names."""
        if buffer in self.known:
            return
        root = self.memory.get(buffer.data)
        allocation = self.pending.get(buffer.data)
        if root is not None:
            self.known.add(buffer)
            self.views[buffer] = root
        elif allocation is not None:
            sizes = allocation.extents
            whole = Buffer(buffer.data, allocation.dtype, sizes, name=buffer.data.name)
            same = buffer.dtype == whole.dtype and len(sizes) == buffer.ndim
            if same and all(a is b for a, b in zip(sizes, buffer.shape, strict=True)):
                whole = buffer
            self._make(whole)
            self.declare(buffer)
        else:
            raise self.error(f"the memory of buffer {buffer.name} is not declared")

    def _resolve(
        self, buffer: Buffer, indices: tuple[PrimExpr, ...]
    ) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        """The access through all matched regions: the buffer underneath and the indices there."""
        while (source := self.regions.get(buffer)) is not None:
            spare = source.buffer.ndim - len(indices)
            mins = [r.min for r in source.region]
            indices = (
                *mins[:spare],
                *(ops.add(m, i) for m, i in zip(mins[spare:], indices, strict=True)),
            )
            buffer = source.buffer
        self.declare(buffer)
        return buffer, indices

    def value(self, expr: PrimExpr) -> PrimExpr:
        """`expr` with Lets substituted, hints dropped and loads resolved."""

        def rule(node: Node) -> Node | None:
            match node:
                case Let(var=var, value=value, body=body):
                    return substitute(body, {var: value})
                case Call(op=Op(name="tir.likely"), args=(inner,)):
                    return inner
                case BufferLoad(buffer=buffer, indices=indices, predicate=None):
                    found, at = self._resolve(buffer, indices)
                    return BufferLoad(found, at)
                case BufferLoad(buffer=buffer):
                    raise self.error(f"predicated loads of {buffer.name} are not supported")
                case _:
                    return None

        changed: Callable[[Node], Node | None] = rule
        return cast("PrimExpr", rewrite(expr, changed))
