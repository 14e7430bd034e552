"""Random kernels of several stages: elementwise, over rows and over columns, through buffers."""

from __future__ import annotations

from random import Random

from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, IterVar, Range, decl_buffer
from relaxpy.ir.tir.expr import Add, IntImm, IterVarKind, Max, Mul, PrimExpr, Sub, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt


def size(value: int) -> PrimExpr:
    return IntImm("int64", value)


class Stages:
    """Builds one kernel over an argument x[n, 6] and a result of the same shape."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.n = Var("n", "int64")
        self.x = decl_buffer([self.n, size(6)], "float32", "x")
        self.y = decl_buffer([self.n, size(6)], "float32", "y")
        self.known: list[Buffer] = [self.x]
        self.made: list[Buffer] = []

    def kernel(self) -> PrimFunc:
        stages = [self.stage() for _ in range(self.random.randint(2, 7))]
        stages.append(self.elementwise(self.y))
        body = Block((), (), (), "root", SeqStmt(tuple(stages)), alloc_buffers=self.made)
        return PrimFunc([self.x, self.y], BlockRealize((), True, body))

    def stage(self) -> Stmt:
        kind = self.random.randint(0, 4)
        shape = {3: [self.n], 4: [size(6)]}.get(kind, [self.n, size(6)])
        buffer = decl_buffer(shape, "float32", f"t{len(self.made)}")
        self.made.append(buffer)
        made = self.elementwise(buffer) if kind < 3 else self.reduction(buffer, rows=kind == 3)
        self.known.append(buffer)
        return made

    def load(self, i: Var, j: Var) -> PrimExpr:
        buffer = self.random.choice(self.known[-4:])
        if buffer.ndim == 2:
            row: PrimExpr = i
            if self.random.random() < 0.1:
                row = ops.sub(ops.sub(self.n, size(1)), i)
            return BufferLoad(buffer, [row, j])
        return BufferLoad(buffer, [i if buffer.shape[0] is self.n else j])

    def value(self, i: Var, j: Var) -> PrimExpr:
        found = self.load(i, j)
        for _ in range(self.random.randint(0, 3)):
            other = self.load(i, j)
            if self.random.random() < 0.3:
                other = ops.const(self.random.choice([0.5, -1.0, 2.0]), "float32")
            found = self.random.choice([Add, Sub, Mul, Max])(found, other)
        return found

    def elementwise(self, out: Buffer) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        store = BufferStore(out, self.value(i, j), [i, j])
        return self.loops([(i, self.n), (j, size(6))], store)

    def reduction(self, out: Buffer, *, rows: bool) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        vi, vj = Var("vi", "int64"), Var("vj", "int64")
        kept = vi if rows else vj
        kinds = [IterVarKind.DataPar, IterVarKind.CommReduce]
        iters = [
            IterVar(Range(0, extent), var, kind)
            for extent, var, kind in zip(
                (self.n, size(6)), (vi, vj), kinds if rows else kinds[::-1], strict=True
            )
        ]
        node, start = self.random.choice([(Add, 0.0), (Max, -3.0), (Add, 1.5)])
        value = node(BufferLoad(out, [kept]), self.value(vi, vj))
        block = Block(
            iters,
            (),
            (),
            out.name,
            BufferStore(out, value, [kept]),
            BufferStore(out, ops.const(start, "float32"), [kept]),
        )
        return self.loops([(i, self.n), (j, size(6))], BlockRealize([i, j], True, block))

    def loops(self, nest: list[tuple[Var, PrimExpr]], body: Stmt) -> Stmt:
        for var, extent in reversed(nest):
            body = For(var, size(0), extent, ForKind.SERIAL, body)
        return body
