"""The reference evaluator for kernels, which runs a PrimFunc literally, scalar by scalar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
from typing_extensions import override

from relaxpy.errors import CompileError, MisuseError, RuntimeCheckError, UnknownPackedFuncError
from relaxpy.exec.loops.nest.intrinsics import check_datatypes
from relaxpy.exec.runtime.arguments import reinterpreted, rollback
from relaxpy.exec.runtime.registry import call_packed
from relaxpy.exec.runtime.scalar import (
    Scalar,
    ScalarEvaluator,
    accessed,
    addressed,
    cast,
    is_evaluated,
    lanes_of,
    launched,
    unsupported,
    with_checked_counts,
)
from relaxpy.exec.runtime.signature import KernelSignature, layout_of
from relaxpy.exec.runtime.values import Value, describe, empty, prim_value
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.dtype import VOID, Array, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import expr as tir, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.intrinsics import is_foreign
from relaxpy.ir.tir.ops import int_range
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_name
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support import progress
from relaxpy.support.dataclass import replace
from relaxpy.support.scopes import setting

if TYPE_CHECKING:
    from relaxpy.errors import Span

CallGlobal = Callable[[GlobalVar, tuple[Value, ...]], Value]

_ERRORS: Final[ContextVar[Callable[[], float] | None]] = ContextVar("errors", default=None)
"""Draws the error of a float that a kernel computes, in roundings to its datatype."""


def randomly_rounded(seed: int, roundings: float) -> AbstractContextManager[None]:
    """Add random errors of up to `roundings` roundings to the floats that kernels compute."""
    rng = np.random.default_rng(seed)
    return setting(_ERRORS, lambda: rng.uniform(-roundings, roundings))


def _is_exact(value: tir.PrimExpr) -> bool:
    """True if a value is stored as it was loaded or written, without arithmetic."""
    return isinstance(value, (BufferLoad, tir.FloatImm, tir.Var))


class _Return(BaseException):
    """Ends the kernel with its result."""

    def __init__(self, value: Scalar) -> None:
        super().__init__()
        self.value = value


class _Break(BaseException):
    """Ends the innermost loop."""


class _Continue(BaseException):
    """Ends this iteration of the innermost loop."""


def _has_init(body: st.Stmt) -> bool:
    """True if a block in `body` has an init; bounds of other empty loops may be invalid."""
    return any(isinstance(node, st.Block) and node.init is not None for node in walk(body))


def _may_reduce(loop: st.For) -> bool:
    """True if a block in `loop` may have an init and be a reduction along it."""
    nodes = list(walk(loop.body))
    if any(isinstance(node, st.LetStmt) for node in nodes):
        return True  # the variable may be that of the loop under another name
    return any(
        node.block.init is not None and loop.loop_var in _only_reduced(node)
        for node in nodes
        if isinstance(node, st.BlockRealize)
    )


def _only_reduced(realize: st.BlockRealize) -> set[object]:
    """The loops along which a block is a reduction, among other variables."""
    found: dict[bool, set[object]] = {True: set(), False: set()}
    for i, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        found[i.iter_type == tir.IterVarKind.CommReduce].update(walk(value))
    return found[True] - found[False]


def run_prim_func(
    func: PrimFunc, args: Sequence[Value], name: str = "", call_global: CallGlobal | None = None
) -> Value | None:
    """Run `func` on `args`, whose arrays it writes; return its result or None.

    Errors:
        RuntimeCheckError: an argument does not match, an index is out of bounds, an assertion
            fails, or an integer is divided by zero.
        CompileError: an intrinsic is not supported.
    """
    with np.errstate(all="ignore"):
        return KernelRun(with_checked_counts(func), name, call_global).run(args)


class KernelRun(ScalarEvaluator):
    """One run of one kernel, with the values of its variables and the memory of its buffers."""

    def __init__(self, func: PrimFunc, name: str, call_global: CallGlobal | None) -> None:
        self.sizes: dict[tir.Var, Scalar] = {}
        super().__init__(self.sizes)
        self.func = func
        self.name = name or str(func.attrs.get("global_symbol") or "kernel")
        self.call_global = call_global
        self.span = func.span
        """The position of the statement that runs, or of the closest enclosing one."""
        self.arrays: dict[Buffer, Array] = {}
        self.memory: dict[tir.Var, Array] = {}
        self.empty_loops: frozenset[tir.Var] = frozenset()
        """The variables of the enclosing empty loops."""
        self.starts: dict[tir.Var, Any] = {}
        """The first values of the variables of loops."""
        self.draw_error = _ERRORS.get()
        self.enclosing_regions: tuple[st.MatchBufferRegion, ...] = ()
        """The region views of the blocks around a block whose init runs without a loop."""
        self.shared = None

    def run(self, args: Sequence[Value]) -> Value | None:
        """Bind the parameters and run the body."""
        signature = KernelSignature(self.name, self.func)
        self.sizes.update(signature.bind(args))
        self.values = self.sizes
        arrays: list[tuple[str, Array]] = []
        for param, arg in zip(signature.params, args, strict=True):
            if param.buffer is not None:
                self.arrays[param.buffer] = arg
                self.memory[param.buffer.data] = self.memory[param.var] = arg
                arrays.append((param.name, arg))
            elif not param.is_scalar:
                self.sizes[param.var] = arg
                if isinstance(arg, np.ndarray):
                    self.memory[param.var] = arg
        names = ", ".join(name for name, _ in arrays)
        try:
            with rollback(f"{self.name}: {names}", *(array for _, array in arrays)):
                self.execute(self.func.body)
        except _Return as end:
            return end.value
        except (RuntimeCheckError, UnknownPackedFuncError) as error:
            raise error.located(self.span) from None
        return None

    def _fail(self, message: str, span: Span | None = None) -> RuntimeCheckError:
        return RuntimeCheckError(f"{self.name}: {message}", span=span or self.span)

    # ---- statements

    def execute(self, stmt: st.Stmt) -> None:
        """Execute one statement."""
        outer = self.span
        self.span = getattr(stmt, "span", None) or outer
        self._perform(stmt)
        self.span = outer

    def _perform(self, stmt: st.Stmt) -> None:
        match stmt:
            case st.SeqStmt(seq=seq):
                for child in seq:
                    self.execute(child)
            case st.For(loop_var=var, min=low, extent=extent, body=body):
                start, count = self.value(low), self.value(extent)
                self._loop(var, range(start, start + count), lambda: self.execute(body))
                if count <= 0:
                    self._run_inits(stmt, ())
            case st.BufferStore():
                self._store(stmt)
            case st.BlockRealize(iter_values=iter_values, predicate=predicate, block=block):
                if self.value(predicate):
                    values = [self.value(v) for v in iter_values]
                    with self._bound(
                        dict(zip((i.var for i in block.iter_vars), values, strict=True))
                    ):
                        self._block(block)
            case st.Block():
                with self._bound({}):
                    self._block(stmt)
            case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
                if self.value(condition):
                    self.execute(yes)
                elif no is not None:
                    self.execute(no)
            case st.While(condition=condition, body=body):
                self._while(condition, body)
            case st.LetStmt(var=var, value=bound, body=body):
                with self._bound({var: self.value(bound)}):
                    self.execute(body)
            case st.Evaluate(value=tir.Call(op=op, args=args)) if is_foreign(op):
                # The result of a function that is called as a statement is ignored.
                self.value(tir.Call(VOID, op, args))
            case st.Evaluate(value=value):
                self.value(value)
            case st.AssertStmt(condition=condition, message=message, body=body):
                if not self.value(condition):
                    raise self._fail(self.value(message), stmt.span)
                self.execute(body)
            case st.AttrStmt(body=body):
                self.execute(body)
            case st.Allocate(buffer_var=var, dtype=dtype, extents=extents, body=body):
                self._allocate(var, _uninitialised(tuple(map(self.value, extents)), dtype))
                self.execute(body)
            case st.AllocateConst(buffer_var=var, dtype=dtype, data=data, body=body):
                self._allocate(var, np.array(data, dtype.numpy()))
                self.execute(body)
            case st.BufferRealize(buffer=buffer, body=body):
                if buffer not in self.func.buffer_map.values():
                    self._new_array(buffer)
                self.execute(body)
            case st.DeclBuffer(buffer=buffer, body=body):
                self.arrays.pop(buffer, None)
                self.execute(body)
            case _:
                raise CompileError(f"{self.name}: a {type(stmt).__name__} cannot be run")

    @contextmanager
    def _bound(self, more: dict[tir.Var, Scalar]) -> Iterator[None]:
        outer = self.values
        self.values = {**outer, **more}
        try:
            yield
        finally:
            self.values = outer

    def _loop(self, var: tir.Var, numbers: range, perform: Callable[[], None]) -> None:
        outer = self.values
        self.starts[var] = numbers.start
        progress.now(self.name)
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
        """Create the block's buffers, run its init in the first iteration, and run its body."""
        self._enter_block(block)
        if block.init is not None and self._is_first(block):
            self.execute(block.init)
        self.execute(block.body)

    def _allocate(self, var: tir.Var, memory: Array) -> None:
        """Give `var` new memory; buffers over its old memory use it from now on."""
        self.memory[var] = memory
        self.arrays = {b: array for b, array in self.arrays.items() if b.data is not var}

    def _enter_block(self, block: st.Block) -> None:
        for buffer in block.alloc_buffers:
            self._new_array(buffer)
        for match_buffer in block.match_buffers:
            self._match_region(match_buffer.buffer, match_buffer.source)

    def _new_array(self, buffer: Buffer) -> None:
        """Allocate memory for `buffer`."""
        self.arrays[buffer] = _uninitialised(tuple(map(self.value, buffer.shape)), buffer.dtype)
        self.memory[buffer.data] = self.arrays[buffer]

    def _is_first(self, block: st.Block) -> bool:
        """True if all variables of reductions have their first values."""
        return all(
            self.value(i.var) == self.value(i.dom.min)
            for i in block.iter_vars
            if i.iter_type == tir.IterVarKind.CommReduce and i.dom is not None
        )

    # ---- empty reductions, whose result is the init

    def _run_inits(self, stmt: st.Stmt, conditions: Sequence[tir.PrimExpr]) -> None:
        """Run the inits of the blocks in `stmt` for which all empty loops are reductions.

        Enclosing `conditions` that depend on such a loop are not evaluated.
        """
        match stmt:
            case st.SeqStmt(seq=seq):
                for child in seq:
                    self._run_inits(child, conditions)
            case st.For(loop_var=var, min=low, extent=extent, body=body) if _has_init(body):
                start, count = self.value(low), self.value(extent)
                outer = self.empty_loops
                if count <= 0:
                    if not _may_reduce(stmt):
                        return
                    self.empty_loops, count = outer | {var}, 1
                self._loop(
                    var, range(start, start + count), lambda: self._run_inits(body, conditions)
                )
                self.empty_loops = outer
            case st.BlockRealize(predicate=predicate):
                self._run_init(stmt, (*conditions, predicate))
            case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
                self._run_inits(yes, (*conditions, condition))
                if no is not None:
                    self._run_inits(no, (*conditions, tir.Not(condition)))
            case st.LetStmt(var=var, value=bound, body=body):
                self._run_inits(substitute(body, {var: bound}), conditions)
            case st.AttrStmt(body=body) | st.AssertStmt(body=body):
                self._run_inits(body, conditions)
            case _:
                pass

    def _run_init(self, realize: st.BlockRealize, conditions: Sequence[tir.PrimExpr]) -> None:
        values, block = realize.iter_values, realize.block
        if block.init is None:
            bound = dict(zip((i.var for i in block.iter_vars), values, strict=True))
            inner = substitute(replace(block, iter_vars=()), bound)
            for buffer in inner.alloc_buffers:
                self._new_array(buffer)
            outer = self.enclosing_regions
            self.enclosing_regions = (*outer, *inner.match_buffers)
            with self._bound({}):
                self._run_inits(inner.body, conditions)
            self.enclosing_regions = outer
            return
        tests = (test for condition in conditions for test in conjuncts(condition))
        decided = [test for test in tests if self.empty_loops.isdisjoint(walk(test))]
        firsts: dict[tir.Var, Scalar] = {}
        others, reduced = {}, _only_reduced(realize)
        if not self.empty_loops <= reduced:
            return
        for axis, value in zip(block.iter_vars, values, strict=True):
            if axis.iter_type == tir.IterVarKind.CommReduce and axis.dom is not None:
                firsts[axis.var] = first = self.value(axis.dom.min)
                if not self._would_begin(value, first, reduced):
                    return
            else:
                # The empty loop does not evaluate it: only its uses in the init do.
                others[axis.var] = value
        for match in self.enclosing_regions:
            self._match_region(match.buffer, match.source)
        if all(map(self.value, decided)):
            inner = substitute(replace(block, iter_vars=()), others)
            assert inner.init is not None
            with self._bound(firsts):
                self._enter_block(inner)
                self.execute(inner.init)

    def _would_begin(self, value: tir.PrimExpr, first: Scalar, reduced: set[object]) -> bool:
        """True if `value` is `first`; with an empty loop in it, whether all others begin.

        Expressions that mention an empty loop are not evaluated.
        """
        variables = set(walk(value))
        if self.empty_loops.isdisjoint(variables):
            return bool(self.value(value) == first)
        loops = variables & reduced - self.empty_loops
        return all(self.value(v) == n for v, n in self.starts.items() if v in loops)

    def _match_region(self, buffer: Buffer, source: BufferRegion) -> None:
        whole = self.array(source.buffer)
        box = []
        for rng, size in zip(source.region, whole.shape, strict=True):
            start, count = self.value(rng.min), max(self.value(rng.extent), 0)
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
        for expr, actual in layout_of(buffer, view, offset // view.itemsize):
            if isinstance(expr, tir.Var) and expr not in self.values:
                self.values = {**self.values, expr: actual}
        if tuple(map(self.value, buffer.shape)) != view.shape:
            raise self._fail(f"the region {source} does not have the shape of {buffer.name}")

    # ---- memory

    def array(self, buffer: Buffer) -> Array:
        """The elements of `buffer`, which may be a view of the memory of its data pointer."""
        array = self.arrays.get(buffer)
        if array is not None:
            return array
        base = self.memory.get(buffer.data)
        if base is None:
            raise self._fail(f"buffer {buffer.name} has no memory")
        shape = tuple(map(self.value, buffer.shape))
        strides = tuple(map(self.value, buffer.strides))
        offset = self.value(buffer.elem_offset)
        view = reinterpreted(base, buffer.dtype.numpy(), shape, buffer.name, offset, strides)
        self.arrays[buffer] = view
        return view

    def _positions(self, access: BufferLoad | st.BufferStore) -> list[tuple[int, ...] | None]:
        """The position of the element for each lane; None if the predicate is false."""
        buffer = access.buffer
        values = [self.value(i) for i in access.indices]
        last = lanes_of(values[-1]) if values else ()
        positions = [(*values[:-1], lane) for lane in last] if values else [()]
        active = (True,) if access.predicate is None else lanes_of(self.value(access.predicate))
        shape = self.array(buffer).shape
        result: list[tuple[int, ...] | None] = []
        for position, is_active in zip(positions, cycle(active), strict=False):
            result.append(position if is_active else None)
            for axis, (index, size) in enumerate(zip(position, shape, strict=True)):
                if is_active and not 0 <= index < size:
                    raise self._fail(
                        f"index {index} is outside dimension {axis} of buffer {buffer.name}, "
                        f"which has size {size}"
                    )
        return result

    @override
    def load(self, load: BufferLoad) -> Scalar:
        array = self.array(load.buffer)
        zero = array.dtype.type(0)
        lanes = [zero if p is None else array[p] for p in self._positions(load)]
        if load.buffer.dtype.is_int:
            lanes = [v.item() for v in lanes]
        return tuple(lanes) if load.dtype.lanes > 1 else lanes[0]

    def _store(self, store: st.BufferStore) -> None:
        array = self.array(store.buffer)
        value = self.value(store.value)
        is_moved = self.draw_error and store.buffer.dtype.is_float and not _is_exact(store.value)
        for position, lane in zip(self._positions(store), lanes_of(value), strict=True):
            if position is not None:
                array[position] = self._moved(lane, array.dtype) if is_moved else lane

    def _moved(self, lane: Scalar, dtype: np.dtype[Any]) -> Scalar:
        """A float with a random error."""
        assert self.draw_error is not None
        eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        return dtype.type(float(lane) * (1 + eps * self.draw_error()))

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
                return self.array(addressed(call, self.span))
            case _ if is_foreign(call.op):
                symbol, *args = (self._argument(a) for a in call.args)
                result = call_packed(str(symbol), tuple(args))
                result = 0 if result is None else result
                return None if call.dtype.is_void else self._scalar(call, result)
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
        """An argument for a function outside the kernel, with arrays for pointers."""
        if isinstance(arg, tir.Call) and arg.op is Op("tir.tvm_access_ptr"):
            arg = accessed(arg, self.span)
        if isinstance(arg, tir.Var) and arg in self.memory:
            return self.memory[arg]
        return self.value(arg)

    @override
    def variable(self, var: tir.Var) -> Scalar:
        return self.memory[var] if var in self.memory else super().variable(var)


def _uninitialised(shape: tuple[int, ...], dtype: DataType) -> Array:
    """New memory filled with NaN or the minimum integer, to expose reads before writes."""
    kind = dtype.numpy()
    shape = tuple(max(size, 0) for size in shape)
    memory = empty(shape, kind)
    memory.fill(np.nan if dtype.is_float else False if dtype.is_bool else int_range(dtype)[0])
    return memory


def check_supported(func: PrimFunc, name: str) -> None:
    """Check that a kernel can run.

    Errors:
        CompileError: the kernel has an unsupported intrinsic, a datatype that NumPy lacks, or uses
        GPU threads.
    """
    check_datatypes(func, name)
    unknown_calls = []
    threads = []
    pointers = []
    for node in walk(func):
        match node:
            case tir.Call(op=Op(name="tir.tvm_access_ptr")):
                pointers.append(node)
            case tir.Call(op=Op(name="tir.type_annotation")):  # of a pointer
                pass
            case tir.Call(op=Op()) if not is_evaluated(node):
                unknown_calls.append(node)
            case tir.Call(op=Op(name="tir.address_of")):
                addressed(node, func.span)
            case st.AttrStmt(attr_key="thread_extent"):
                threads.append(node)
            case Buffer(dtype=dtype) if dtype.lanes != 1:
                message = f"{name}: buffer {node.name} holds vectors of {dtype}"
                raise CompileError(message, span=func.span)
            case tir.Cast(dtype=dtype) | Buffer(dtype=dtype):
                try:
                    dtype.numpy()
                except MisuseError as error:
                    raise CompileError(error.diagnostic).located(func.span) from None
            case _:
                pass
    if unknown_calls:  # report an external kernel rather than the intrinsics of its launch
        reported = max(unknown_calls, key=lambda call: kernel_name(call) is not None)
        raise unsupported(reported, name).located(func.span)
    for pointer in pointers:
        accessed(pointer, func.span)
    for statement in threads:
        raise launched(name, statement)
