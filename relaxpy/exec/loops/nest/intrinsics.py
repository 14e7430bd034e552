"""The reasons to refuse kernels, and the datatypes in which intrinsics compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from relaxpy.errors import CompileError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, Cast, Div, FloorDiv, PrimExpr, Var
from relaxpy.ir.tir.intrinsics import intrinsic_of
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, LetStmt, Stmt

_BARRIER: Final = Op("tir.tvm_storage_sync")


def check_datatypes(func: PrimFunc, name: str) -> None:
    """Check the elements of parameters, the operands of operations on bits, and threads.

    Errors:
        CompileError: the elements are vectors, an operand is not an integer, threads, which run
        sequentially, would wait for each other, or share a thread-local buffer.
    """
    for buffer in func.buffer_map.values():
        if buffer.dtype.lanes != 1:
            raise CompileError(
                f"{name}: buffer {buffer.name} holds vectors of {buffer.dtype}",
                span=func.span,
                hint="add a dimension for the lanes, and load them by T.Ramp",
            )
    threads: list[For] = []
    for node in occurrences(func.body, Call, For):
        assert isinstance(node, Call | For)
        if isinstance(node, For):
            threads += [node] if _thread(node) else []
        elif isinstance(node.op, Op) and (record := intrinsic_of(node.op)) and record.of_bits:
            for arg in node.args:
                if not (isinstance(arg, PrimExpr) and arg.dtype.is_int):
                    raise CompileError(
                        f"{name}: {node.op.name} takes integers, found `{arg}`",
                        span=func.span,
                        hint='for the bits of a float write T.reinterpret("int32", x)',
                    )
    for loop in threads:
        for call in occurrences(loop, Call):
            if call.op is _BARRIER:
                raise CompileError(
                    f"{name}: the intrinsic {_BARRIER.name} cannot run in a loop over "
                    f"{_thread(loop)}",
                    span=loop.span,
                    hint="end the loop before it, and write another one after it",
                )
    if len(threads) > 1:
        _check_local_buffers(func, name, threads)


def _check_local_buffers(func: PrimFunc, name: str, threads: Sequence[For]) -> None:
    """Check that no loop over threads reads thread-local data of another loop.

    A GPU has a local buffer for each thread; here, there is one where the buffer is allocated.
    """
    allocated = [b for block in occurrences(func.body, Block) for b in block.alloc_buffers]
    local = {buffer for buffer in allocated if buffer.scope() == "local"}
    if not local:
        return
    written: set[tuple[Buffer, str]] = set()
    for loop in threads:
        blocks = list(occurrences(loop, Block))
        shared = local.difference(*(block.alloc_buffers for block in blocks))
        begun = [s.buffer for b in blocks if b.init for s in occurrences(b.init, BufferStore)]
        first: dict[Buffer, BufferLoad | BufferStore] = {}
        stored: set[Buffer] = set()
        own = _depends(loop)
        for access in occurrences(loop.body, BufferLoad, BufferStore):
            assert isinstance(access, BufferLoad | BufferStore)
            used = {var for index in access.indices for var in _distinguished(index)}
            if access.buffer in shared and own.isdisjoint(used):
                first.setdefault(access.buffer, access)
                if isinstance(access, BufferStore):
                    stored.add(access.buffer)
        for buffer, access in first.items():
            is_read = isinstance(access, BufferLoad) and buffer not in begun
            if is_read and (buffer, _thread(loop)) in written:
                raise CompileError(
                    f"{name}: each thread of {_thread(loop)} has a local buffer {buffer.name}, "
                    "which another loop over these threads has written",
                    span=loop.span,
                    hint="read it in the loop that writes it, or give it a dimension for "
                    f"the threads and index it by {loop.loop_var.name}",
                )
        written.update((buffer, _thread(loop)) for buffer in stored)


def _thread(loop: For) -> str:
    tag = getattr(loop.thread_binding, "thread_tag", "")
    return tag if tag.startswith(("threadIdx", "vthread")) else ""


def _depends(loop: For) -> set[Var]:
    """The variables in `loop` that, perhaps with others, distinguish its iterations."""
    found = {loop.loop_var}
    for node in reversed(list(occurrences(loop.body, BlockRealize, For, LetStmt))):  # outer first
        assert isinstance(node, BlockRealize | For | LetStmt)
        if isinstance(node, BlockRealize):
            bound = list(zip((v.var for v in node.block.iter_vars), node.iter_values, strict=True))
        else:
            bound = [(node.loop_var, node.min) if isinstance(node, For) else (node.var, node.value)]
        found.update(v for v, x in bound if not found.isdisjoint(_distinguished(x)))
    return found


def _distinguished(value: Node) -> set[Var]:
    """The variables of an expression, except those of quotients, which are not injective."""
    if isinstance(value, FloorDiv | Div):
        return set()
    own = {value} if isinstance(value, Var) else set()
    return own.union(*map(_distinguished, value._children()))


def with_float_intrinsics(func: PrimFunc) -> PrimFunc:
    """`func`, with intrinsics that NumPy cannot compute in their datatype in a wider one.

    Float functions of integers are computed in float64 and truncated; those of floats that would be
    rounded more than once are computed in float32 and rounded once.
    """
    if not any(map(_wider, occurrences(func.body, Call))):
        return func
    return func.with_body(cast("Stmt", rewrite(func.body, _widened)))


def _wider(call: Call) -> DataType | None:
    """The datatype to compute `call` in, if it is not its own."""
    dtype, record = call.dtype, intrinsic_of(call.op)
    if record is None:
        return None
    if dtype.is_int:
        return DataType(f"float64{dtype.vector}") if record.scalar is not None else None
    several = record.is_widened if dtype.bits < 16 else record.is_composed
    return DataType(f"float32{dtype.vector}") if dtype.bits < 32 and several else None


def _widened(node: Node) -> Node | None:
    if not isinstance(node, Call) or (wide := _wider(node)) is None:
        return None
    args = [Cast(wide, a) if a.dtype.is_float or node.dtype.is_int else a for a in node.args]
    return Cast(node.dtype, Call(wide, node.op, args))
