"""Kernels of importers, whose statements are collected one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te.tensor import Number, Tensor, extern, whole
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.intrin import break_loop
from relaxpy.support.dataclass import dataclass


@dataclass(eq=False)
class Loops:
    """Collects the statements of a kernel; those created in a `with` block are in its body."""

    _open: list[list[stmt.Stmt | Buffer]] = field(default_factory=lambda: [[]])

    def body(self) -> stmt.Stmt:
        """All statements."""
        return _sequence(self._open[0])

    def store(self, buffer: Buffer, index: Any, value: Any) -> None:
        """Store a value, in the datatype of the buffer."""
        indices = index if isinstance(index, tuple) else (index,)
        dtype = str(buffer.dtype)
        converted = ops.cast_to(ops.convert(value), DataType(dtype))
        if isinstance(value, (bool, int, float)):
            converted = ops.const(value, dtype)
        self._open[-1].append(stmt.BufferStore(buffer, converted, tuple(map(whole, indices))))

    def array(self, shape: Sequence[Any], dtype: str, name: str = "local") -> Any:
        """A local buffer of the kernel, initially undefined."""
        buffer = decl_buffer([whole(size) for size in shape], dtype, name)
        self._open[-1].append(buffer)
        return buffer

    def local(self, value: Any, dtype: str | None = None, name: str = "local") -> Any:
        """A variable, which is `buffer[0]`, with an initial value."""
        buffer = self.array([1], dtype or str(value.dtype), name)
        self.store(buffer, 0, value)
        return buffer

    @contextmanager
    def _block(self) -> Iterator[list[stmt.Stmt | Buffer]]:
        inner: list[stmt.Stmt | Buffer] = []
        self._open.append(inner)
        yield inner
        self._open.pop()

    @contextmanager
    def loop(
        self, extent: Any, start: Any = 0, name: str = "i", kind: stmt.ForKind = stmt.ForKind.SERIAL
    ) -> Iterator[tir.Var]:
        """A loop from `start` over `extent` iterations."""
        var = tir.Var(name, "int64")
        with self._block() as inner:
            yield var
        self._open[-1].append(stmt.For(var, whole(start), whole(extent), kind, _sequence(inner)))

    @contextmanager
    def when(self, condition: Number) -> Iterator[None]:
        """An if statement."""
        with self._block() as inner:
            yield
        self._open[-1].append(stmt.IfThenElse(condition, _sequence(inner)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The else branch of the preceding if statement."""
        with self._block() as inner:
            yield
        before = self._open[-1].pop()
        assert isinstance(before, stmt.IfThenElse)
        self._open[-1].append(stmt.IfThenElse(before.condition, before.then_case, _sequence(inner)))

    @contextmanager
    def repeat(self, condition: Number) -> Iterator[None]:
        """A while loop."""
        with self._block() as inner:
            yield
        self._open[-1].append(stmt.While(condition, _sequence(inner)))

    def leave(self) -> None:
        """Break from the innermost loop."""
        self._open[-1].append(stmt.Evaluate(break_loop()))

    @contextmanager
    def every(self, sizes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """A loop nest over the indices of a shape."""
        if not sizes:
            yield ()
            return
        with self.loop(sizes[0]) as i, self.every(sizes[1:]) as rest:
            yield (i, *rest)


def written(
    name: str,
    outputs: Sequence[tuple[Sequence[Number], str]],
    inputs: Sequence[Tensor],
    write: Callable[..., None],
) -> list[Tensor]:
    """The results of a kernel of loops, of these shapes and datatypes.

    `write` gets a `Loops`, the buffers of the inputs, and those of the outputs.
    """

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> stmt.Stmt:
        loops = Loops()
        write(loops, *ins, *outs)
        return loops.body()

    shapes = [tuple(map(whole, shape)) for shape, _ in outputs]
    found = extern(shapes, list(inputs), body, name, [dtype for _, dtype in outputs])
    return [found] if len(outputs) == 1 else list(found)


def _sequence(items: Sequence[stmt.Stmt | Buffer]) -> stmt.Stmt:
    """The sequence of statements; a buffer is allocated for those after it."""
    following: list[stmt.Stmt] = []
    for item in reversed(items):
        if isinstance(item, Buffer):
            inside = stmt.DeclBuffer(item, _joined(following))
            true = ops.const(1, "bool")
            following = [stmt.Allocate(item.data, item.dtype, item.shape, true, inside)]
        else:
            following.insert(0, item)
    return _joined(following)


def _joined(statements: Sequence[stmt.Stmt]) -> stmt.Stmt:
    match statements:
        case []:
            return stmt.Evaluate(ops.const(0, "int32"))
        case [only]:
            return only
        case _:
            return stmt.SeqStmt(tuple(statements))
