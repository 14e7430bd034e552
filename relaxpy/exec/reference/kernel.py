"""The reference evaluator's half for kernels: a PrimFunc run literally, scalar by scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import CompileError, MisuseError, RuntimeCheckError, counted
from relaxpy.exec.kernel.arguments import check_layout, reinterpreted, rollback, scalar
from relaxpy.exec.runtime.registry import call_packed
from relaxpy.exec.runtime.scalar import (
    SUPPORTED,
    Scalar,
    ScalarEvaluator,
    cast,
    lanes_of,
    launched,
    unsupported,
)
from relaxpy.exec.runtime.values import Array, Value, describe, prim_value
from relaxpy.ir.core.dtype import INT64, VOID, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.external_kernel import kernel_name
from relaxpy.ir.tir.ops import int_range
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.substitution import substitute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relaxpy.errors import Span

CallGlobal = Callable[[GlobalVar, tuple[Value, ...]], Value]

_FOREIGN = frozenset(
    f"tir.{name}"
    for name in ("call_extern", "call_pure_extern", "tvm_call_packed", "tvm_call_cpacked")
)
"""Calls of functions that are registered by name."""


class _Return(BaseException):
    """The end of the kernel, with the value it gives."""

    def __init__(self, value: Scalar) -> None:
        super().__init__()
        self.value = value


class _Break(BaseException):
    """The end of the innermost loop."""


class _Continue(BaseException):
    """The end of this iteration of the innermost loop."""


def _reduces(body: st.Stmt) -> bool:
    """Whether a block in `body` has an init; bounds of other loops without a round may fail."""
    return any(isinstance(part, st.Block) and part.init is not None for part in walk(body))


def check_supported(func: PrimFunc, name: str) -> None:
    """Look for what cannot be run.

    Errors:
        CompileError: an intrinsic or a hardware index without meaning here; it is named.
    """
    wrong = []
    threads = []
    for node in walk(func):
        match node:
            case tir.Call(op=Op(name=op)) if op.removeprefix("tir.") not in SUPPORTED:
                wrong.append(node)
            case st.AttrStmt(attr_key="thread_extent"):
                threads.append(node)
            case _:
                pass
    if wrong:  # an external kernel rather than what describes its launch
        culprit = max(wrong, key=lambda call: kernel_name(call) is not None)
        raise unsupported(culprit, name).located(func.span)
    for statement in threads:
        raise launched(name, statement)


def run_prim_func(
    func: PrimFunc, args: Sequence[Value], name: str = "", call_global: CallGlobal | None = None
) -> Value | None:
    """Run `func` on `args`, writing into its arrays; the value it returns, or None.

    Errors:
        RuntimeCheckError: an argument does not fit, an index is outside its buffer, an assertion
            fails, or an integer is divided by zero.
        CompileError: an intrinsic that cannot be performed here.
    """
    with np.errstate(all="ignore"):
        return KernelRun(func, name, call_global).run(args)


def _conjuncts(condition: tir.PrimExpr) -> Iterator[tir.PrimExpr]:
    if type(condition) is tir.And:
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition


class KernelRun(ScalarEvaluator):
    """One run of one kernel: its variables, and the memory of its buffers."""

    def __init__(self, func: PrimFunc, name: str, call_global: CallGlobal | None) -> None:
        self.sizes: dict[tir.Var, Scalar] = {}
        super().__init__(self.sizes)
        self.func = func
        self.name = name or str(func.attrs.get("global_symbol") or "kernel")
        self.call_global = call_global
        self.span = func.span
        """Where the statement that runs stands, or what is around it."""
        self.arrays: dict[Buffer, Array] = {}
        self.memory: dict[tir.Var, Array] = {}
        self.empty: frozenset[tir.Var] = frozenset()
        self.regions: tuple[st.MatchBufferRegion, ...] = ()
        """Of the blocks around one that may begin: matched where it does."""
        """The loops without any round, of which blocks begin."""

    def run(self, args: Sequence[Value]) -> Value | None:
        """Bind the parameters, run the body."""
        if len(args) != len(self.func.params):
            raise RuntimeCheckError(
                f"{self.name} takes {counted(len(self.func.params), 'argument')}, "
                f"found {len(args)}",
                rule="FN-11",
                span=self.func.span,
            )
        handles: list[tuple[tir.Var, Buffer, Array]] = []
        for param, arg in zip(self.func.params, args, strict=True):
            buffer = self.func.buffer_of(param)
            if buffer is not None:
                self._check_array(buffer, arg)
                handles.append((param, buffer, arg))
            else:
                self._bind_scalar(param, arg)
        for param, buffer, array in handles:
            self.values = self.sizes
            self._bind_sizes(buffer, array)
            self.arrays[buffer] = array
            self.memory[buffer.data] = self.memory[param] = array
        names = ", ".join(buffer.name for _, buffer, _ in handles)
        try:
            for _, buffer, array in handles:
                self._compare_sizes(buffer, array)
            with rollback(f"{self.name}: {names}", *(array for *_, array in handles)):
                self.execute(self.func.body)
        except _Return as end:
            return end.value
        except RuntimeCheckError as error:
            raise error.located(self.span) from None
        return None

    def _fail(self, message: str, span: Span | None = None) -> RuntimeCheckError:
        return RuntimeCheckError(f"{self.name}: {message}", span=span or self.span)

    def _check_array(self, buffer: Buffer, arg: Value) -> None:
        if buffer.dtype.lanes != 1:
            raise CompileError(
                f"{self.name}: buffer {buffer.name} holds vectors of {buffer.dtype}",
                span=self.func.span,
            )
        wanted = buffer.dtype.numpy()
        if not isinstance(arg, np.ndarray) or arg.ndim != buffer.ndim or arg.dtype != wanted:
            shape = ", ".join(map(str, buffer.shape))
            raise self._fail(
                f"buffer {buffer.name} is {buffer.dtype} of shape ({shape}), "
                f"the argument is {describe(arg)}"
            )

    def _bind_scalar(self, param: tir.Var, arg: Value) -> None:
        if isinstance(param.type_annotation, PointerType) or param.dtype.family == "handle":
            if isinstance(arg, np.ndarray):
                self.memory[param] = arg
            self.sizes[param] = arg
            return
        value = scalar(self.name, param.name, arg, param.dtype.numpy().type)
        self.sizes[param] = bool(value) if param.dtype.is_bool else value

    def _layout(
        self, buffer: Buffer, array: Array, offset: int
    ) -> Iterator[tuple[tir.PrimExpr, int]]:
        """What the shape, strides and offset of a buffer say, beside what the array has."""
        yield from zip(buffer.shape, array.shape, strict=True)
        for stride, found in zip(buffer.strides, array.strides, strict=False):
            yield stride, found // array.itemsize
        yield buffer.elem_offset, offset

    def _bind_sizes(self, buffer: Buffer, array: Array) -> None:
        for expr, found in self._layout(buffer, array, 0):
            if isinstance(expr, tir.Var) and expr not in self.sizes:
                self.sizes[expr] = found

    def _compare_sizes(self, buffer: Buffer, array: Array) -> None:
        for axis, size in enumerate(buffer.shape):
            expected, found = self.value(size), array.shape[axis]
            if expected != found:
                display_name = ShortText().prim(size, INT64)
                equal = "" if isinstance(size, tir.IntImm) else f" (= {display_name})"
                raise self._fail(
                    f"dimension {axis} of buffer {buffer.name} is {found}, "
                    f"expected {expected}{equal}"
                )
        strides = tuple(map(self.value, buffer.strides))
        title = f"{self.name}: {buffer.name}"
        check_layout(title, array, strides, self.value(buffer.elem_offset))

    # ---- statements

    def execute(self, stmt: st.Stmt) -> None:
        """Perform one statement."""
        outer = self.span
        self.span = getattr(stmt, "span", None) or outer
        self._perform(stmt)
        self.span = outer

    def _perform(self, stmt: st.Stmt) -> None:
        match stmt:
            case st.SeqStmt(seq=seq):
                for part in seq:
                    self.execute(part)
            case st.For(loop_var=var, min=low, extent=extent, body=body):
                start, count = self.value(low), self.value(extent)
                self._loop(var, range(start, start + count), lambda: self.execute(body))
                if count <= 0:
                    self._begin(stmt, ())
            case st.BufferStore():
                self._store(stmt)
            case st.BlockRealize(iter_values=iter_values, predicate=predicate, block=block):
                if self.value(predicate):
                    values = [self.value(v) for v in iter_values]
                    with self._scope(
                        dict(zip((i.var for i in block.iter_vars), values, strict=True))
                    ):
                        self._block(block)
            case st.Block():
                with self._scope({}):
                    self._block(stmt)
            case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
                if self.value(condition):
                    self.execute(yes)
                elif no is not None:
                    self.execute(no)
            case st.While(condition=condition, body=body):
                self._while(condition, body)
            case st.LetStmt(var=var, value=bound, body=body):
                with self._scope({var: self.value(bound)}):
                    self.execute(body)
            case st.Evaluate(value=tir.Call(op=Op(name=name) as op, args=args)) if name in _FOREIGN:
                # Of a statement by itself, what the function gives is of no interest.
                self.value(tir.Call(VOID, op, args))
            case st.Evaluate(value=value):
                self.value(value)
            case st.AssertStmt(condition=condition, message=message, body=body):
                if not self.value(condition):
                    raise self._fail(
                        f"assertion failed: {self.value(message)} (`{condition}`)", stmt.span
                    )
                self.execute(body)
            case st.AttrStmt(body=body):
                self.execute(body)
            case st.Allocate(buffer_var=var, dtype=dtype, extents=extents, body=body):
                self._allocate(var, _poisoned(tuple(map(self.value, extents)), dtype))
                self.execute(body)
            case st.AllocateConst(buffer_var=var, dtype=dtype, data=data, body=body):
                self._allocate(var, np.array(data, dtype.numpy()))
                self.execute(body)
            case st.BufferRealize(buffer=buffer, body=body):
                if buffer not in self.func.buffer_map.values():
                    self._make(buffer)
                self.execute(body)
            case st.DeclBuffer(buffer=buffer, body=body):
                self.arrays.pop(buffer, None)
                self.execute(body)
            case _:
                raise CompileError(f"{self.name}: a {type(stmt).__name__} cannot be run")

    @contextmanager
    def _scope(self, more: dict[tir.Var, Scalar]) -> Iterator[None]:
        outer = self.values
        self.values = {**outer, **more}
        try:
            yield
        finally:
            self.values = outer

    def _loop(self, var: tir.Var, numbers: range, perform: Callable[[], None]) -> None:
        outer = self.values
        for number in numbers:
            self.values = {**outer, var: number}
            try:
                perform()
            except _Continue:
                continue
            except _Break:
                break
            finally:
                self.values = outer

    def _while(self, condition: tir.PrimExpr, body: st.Stmt) -> None:
        while self.value(condition):
            try:
                self.execute(body)
            except _Continue:
                continue
            except _Break:
                break

    def _block(self, block: st.Block) -> None:
        """The block's buffers, then its init where all reduction variables start, then its body."""
        self._enter(block)
        if block.init is not None and self._starts(block):
            self.execute(block.init)
        self.execute(block.body)

    def _allocate(self, var: tir.Var, memory: Array) -> None:
        """Give `var` fresh memory; buffers that lay over what it had lie over this."""
        self.memory[var] = memory
        self.arrays = {b: found for b, found in self.arrays.items() if b.data is not var}

    def _enter(self, block: st.Block) -> None:
        for buffer in block.alloc_buffers:
            self._make(buffer)
        for match_buffer in block.match_buffers:
            self._match_region(match_buffer.buffer, match_buffer.source)

    def _make(self, buffer: Buffer) -> None:
        """Give `buffer` memory of its own."""
        self.arrays[buffer] = _poisoned(tuple(map(self.value, buffer.shape)), buffer.dtype)
        self.memory[buffer.data] = self.arrays[buffer]

    def _starts(self, block: st.Block) -> bool:
        """Whether all reduction variables are where they start."""
        return all(
            self.value(i.var) == self.value(i.dom.min)
            for i in block.iter_vars
            if i.iter_type == tir.IterVarKind.CommReduce and i.dom is not None
        )

    # ---- reductions without any round: what they give is the init

    def _begin(self, stmt: st.Stmt, conditions: Sequence[tir.PrimExpr]) -> None:
        """Begin the blocks in `stmt` that all loops without a round only reduce.

        Of the `conditions` around them those that speak of such a loop are not asked.
        """
        match stmt:
            case st.SeqStmt(seq=seq):
                for part in seq:
                    self._begin(part, conditions)
            case st.For(loop_var=var, min=low, extent=extent, body=body) if _reduces(body):
                start, count = self.value(low), self.value(extent)
                outer = self.empty
                if count <= 0:
                    self.empty, count = outer | {var}, 1
                self._loop(var, range(start, start + count), lambda: self._begin(body, conditions))
                self.empty = outer
            case st.BlockRealize(iter_values=values, predicate=predicate, block=block):
                self._begin_block(values, block, (*conditions, predicate))
            case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
                self._begin(yes, (*conditions, condition))
                if no is not None:
                    self._begin(no, (*conditions, tir.Not(condition)))
            case st.LetStmt(var=var, value=bound, body=body):
                self._begin(substitute(body, {var: bound}), conditions)
            case st.AttrStmt(body=body) | st.AssertStmt(body=body):
                self._begin(body, conditions)
            case _:
                pass

    def _begin_block(
        self,
        values: Sequence[tir.PrimExpr],
        block: st.Block,
        conditions: Sequence[tir.PrimExpr],
    ) -> None:
        if block.init is None:
            bound = dict(zip((i.var for i in block.iter_vars), values, strict=True))
            inner = substitute(replace(block, iter_vars=()), bound)
            for buffer in inner.alloc_buffers:
                self._make(buffer)
            outer = self.regions
            self.regions = (*outer, *inner.match_buffers)
            with self._scope({}):
                self._begin(inner.body, conditions)
            self.regions = outer
            return
        reducing, kept = set[object](), set[object]()
        for i, value in zip(block.iter_vars, values, strict=True):
            found = reducing if i.iter_type == tir.IterVarKind.CommReduce else kept
            found.update(walk(value))
        tests = (test for condition in conditions for test in _conjuncts(condition))
        asked = [test for test in tests if self.empty.isdisjoint(walk(test))]
        if not self.empty <= reducing - kept:
            return
        for match in self.regions:
            self._match_region(match.buffer, match.source)
        if all(map(self.value, asked)):
            with self._scope(
                {i.var: self.value(v) for i, v in zip(block.iter_vars, values, strict=True)}
            ):
                self._enter(block)
                if self._starts(block):
                    self.execute(block.init)

    def _match_region(self, buffer: Buffer, source: BufferRegion) -> None:
        whole = self.array(source.buffer)
        box = []
        for found, size in zip(source.region, whole.shape, strict=True):
            start, count = self.value(found.min), max(self.value(found.extent), 0)
            if not 0 <= start <= start + count <= size:
                raise self._fail(
                    f"the region {source} of {buffer.name} lies outside its buffer: "
                    f"{start}:{start + count} of a dimension of size {size}"
                )
            box.append(slice(start, start + count))
        view = whole[tuple(box)]
        while view.ndim > buffer.ndim and view.shape[0] == 1:
            view = view[0, ...]
        if view.ndim != buffer.ndim:
            raise self._fail(f"buffer {buffer.name} does not fit region {source}")
        self.arrays[buffer] = view
        self.memory[buffer.data] = view
        offset = view.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        for expr, found_size in self._layout(buffer, view, offset // view.itemsize):
            if isinstance(expr, tir.Var) and expr not in self.values:
                self.values = {**self.values, expr: found_size}
        if tuple(map(self.value, buffer.shape)) != view.shape:
            raise self._fail(f"the region {source} does not have the shape of {buffer.name}")

    # ---- memory

    def array(self, buffer: Buffer) -> Array:
        """The elements of `buffer`: its own, or a view of the memory that it was declared over."""
        found = self.arrays.get(buffer)
        if found is not None:
            return found
        base = self.memory.get(buffer.data)
        if base is None:
            raise self._fail(f"buffer {buffer.name} has no memory")
        shape = tuple(map(self.value, buffer.shape))
        strides = tuple(map(self.value, buffer.strides))
        offset = self.value(buffer.elem_offset)
        view = reinterpreted(base, buffer.dtype.numpy(), shape, buffer.name, offset, strides)
        self.arrays[buffer] = view
        return view

    def _places(self, access: BufferLoad | st.BufferStore) -> list[tuple[int, ...] | None]:
        """The places that the indices mean, one a lane; None where the predicate does not hold."""
        buffer = access.buffer
        values = [self.value(i) for i in access.indices]
        last = lanes_of(values[-1]) if values else ()
        places = [(*values[:-1], lane) for lane in last] if values else [()]
        held = [True] * len(places)
        if access.predicate is not None:
            held = list(lanes_of(self.value(access.predicate))) * len(places)
        shape = self.array(buffer).shape
        for place in (p for p, wanted in zip(places, held, strict=False) if wanted):
            for axis, (index, size) in enumerate(zip(place, shape, strict=True)):
                if not 0 <= index < size:
                    raise self._fail(
                        f"index {index} is outside dimension {axis} of buffer {buffer.name}, "
                        f"which has size {size}"
                    )
        return [p if wanted else None for p, wanted in zip(places, held, strict=False)]

    @override
    def load(self, load: BufferLoad) -> Scalar:
        array = self.array(load.buffer)
        zero = array.dtype.type(0)
        found = [zero if p is None else array[p] for p in self._places(load)]
        if load.buffer.dtype.is_int:
            found = [v.item() for v in found]
        return tuple(found) if load.dtype.lanes > 1 else found[0]

    def _store(self, store: st.BufferStore) -> None:
        array = self.array(store.buffer)
        value = self.value(store.value)
        for place, lane in zip(self._places(store), lanes_of(value), strict=True):
            if place is not None:
                array[place] = lane

    # ---- calls

    @override
    def call(self, call: tir.Call) -> Scalar:
        name = call.op.name.removeprefix("tir.") if isinstance(call.op, Op) else ""
        match name:
            case "ret":
                raise _Return(self._returned(call))
            case "break_loop":
                raise _Break
            case "continue_loop":
                raise _Continue
            case "address_of":
                [access] = call.args
                assert isinstance(access, BufferLoad)
                return self.array(access.buffer)
            case "call_extern" | "call_pure_extern" | "tvm_call_packed" | "tvm_call_cpacked":
                symbol, *args = (self._argument(a) for a in call.args)
                result = call_packed(str(symbol), tuple(args))
                return None if result is None or call.dtype.is_void else self._scalar(call, result)
            case _ if isinstance(call.op, GlobalVar):
                if self.call_global is None:
                    raise CompileError(f"{self.name} calls {call.op.name_hint}, outside a module")
                return self.call_global(call.op, tuple(self._argument(a) for a in call.args))
            case _:
                return ScalarEvaluator.call(self, call)

    def _returned(self, call: tir.Call) -> Value:
        [result] = call.args
        assert isinstance(result, tir.PrimExpr)
        return prim_value(self.value(result), result.dtype)

    def _scalar(self, call: tir.Call, result: Value) -> Scalar:
        try:
            return cast(result, DataType(np.asarray(result).dtype), call.dtype)
        except (MisuseError, TypeError, ValueError):
            raise self._fail(
                f"`{call}` returned {describe(result)}, expected {call.dtype}"
            ) from None

    def _argument(self, arg: Any) -> Value:
        """An argument of a call that leaves the kernel: memory is passed as an array."""
        if isinstance(arg, tir.Var) and arg in self.memory:
            return self.memory[arg]
        return self.value(arg)

    @override
    def variable(self, var: tir.Var) -> Scalar:
        return self.memory[var] if var in self.memory else super().variable(var)


def _poisoned(shape: tuple[int, ...], dtype: DataType) -> Array:
    """Fresh memory in which a read before a write shows: NaN, or the least integer."""
    kind = dtype.numpy()
    shape = tuple(max(size, 0) for size in shape)
    if dtype.is_float:
        return np.full(shape, np.nan).astype(kind)
    return np.full(shape, False if dtype.is_bool else int_range(dtype)[0], kind)
