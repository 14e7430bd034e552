"""Random kernels of blocks: reductions with inits under conditions, split loops, views, scatters.

Over sizes that may be nothing, and arguments that may overlap.
"""

from __future__ import annotations

from random import Random

from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, IterVar, Range, decl_buffer
from relaxpy.ir.tir.expr import Add, IterVarKind, Max, Min, Mul, PrimExpr, Select, Sub, Var
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import (
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)

FACTOR = 2


def const(value: int) -> PrimExpr:
    return ops.const(value, "int64")


class Blocks:
    """Builds one kernel over A[n, m], B[n], C[m] and indices P[n], which lie in [0, n)."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.n, self.m = Var("n", "int64"), Var("m", "int64")
        sizes = {"A": [self.n, self.m], "B": [self.n], "C": [self.m]}
        self.args = [decl_buffer(shape, "int16", name) for name, shape in sizes.items()]
        self.places = decl_buffer([self.n], "int64", "P")
        self.made: list[Buffer] = []
        self.known = list(self.args)

    def kernel(self) -> PrimFunc:
        body: Stmt = SeqStmt(tuple(self.stage() for _ in range(self.random.randint(2, 4))))
        whole, *_ = self.args
        for view in self.known:
            if view.data is whole.data and view is not whole:
                body = DeclBuffer(view, body)
        root = Block((), (), (), "root", body, alloc_buffers=self.made)
        return PrimFunc([*self.args, self.places], BlockRealize((), True, root))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def stage(self) -> Stmt:
        if self.chance(0.15) and not any(b.name == "V" for b in self.known):
            whole = self.args[0]
            self.known.append(decl_buffer(whole.shape, "int16", "V", data=whole.data))
        if self.chance(0.3):
            shape = self.random.choice([b.shape for b in self.args])
            buffer = decl_buffer(shape, "int16", f"t{len(self.made)}")
            self.made.append(buffer)
            # What scratch holds before it is written is nobody's business.
            filled = self.fill(buffer)
            self.known.append(buffer)
            return filled
        target = self.random.choice(self.known)
        kind = self.random.random()
        if kind < 0.5:
            return self.reduction(target)
        return self.scatter(target) if kind < 0.6 else self.elementwise(target)

    def load(self, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        buffer = self.random.choice(self.known)
        if self.chance(0.15):
            i = self.random.choice([ops.sub(ops.sub(self.n, const(1)), i), self.places[i]])
        if buffer.ndim == 2:
            return BufferLoad(buffer, [i, j])
        return BufferLoad(buffer, [i if buffer.shape[0] is self.n else j])

    def value(self, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        found = self.load(i, j)
        for _ in range(self.random.randint(0, 2)):
            other = self.load(i, j)
            if self.chance(0.3):
                other = ops.const(self.random.randint(-3, 3), "int16")
            if self.chance(0.2):
                choose = self.random.choice([Select, if_then_else])
                found = choose(self.condition(i, j), found, other)
            else:
                found = self.random.choice([Add, Sub, Mul, Max, Min])(found, other)
        return found

    def condition(self, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        test = self.random.choice(
            [
                i < self.random.randint(0, 3),
                j >= self.random.randint(0, 2),
                j < i + self.random.randint(0, 1),
                i.equal(0),
                self.load(i, j) > 0,
                ops.any_of(i < 1, j > 1),
                ops.all_of(i >= 1, j < 2),
            ]
        )
        return ops.convert(test)

    def fill(self, buffer: Buffer) -> Stmt:
        at = [Var(f"f{axis}", "int64") for axis in range(buffer.ndim)]
        value = self.value(*at) if len(at) == 2 else ops.cast_to(at[0], "int16")
        return self.loops(list(zip(at, buffer.shape, strict=True)), BufferStore(buffer, value, at))

    def elementwise(self, target: Buffer) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        body: Stmt = BufferStore(target, self.value(i, j), self.indices(target, i, j))
        if self.chance(0.2):
            bound = Var("x", "int16")
            other = self.random.choice(self.args)
            store = BufferStore(other, Add(bound, self.value(i, j)), self.indices(other, i, j))
            body = LetStmt(bound, self.load(i, j), SeqStmt((body, store)))
        if self.chance(0.3):
            body = IfThenElse(self.condition(i, j), body)
        return self.loops([(i, self.n), (j, self.m)], body)

    def indices(self, target: Buffer, i: PrimExpr, j: PrimExpr) -> list[PrimExpr]:
        if target.ndim == 2:
            return [i, j]
        return [i if target.shape[0] is self.n else j]

    def scatter(self, target: Buffer) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        at = self.indices(target, self.places[i], j)
        value = self.value(i, j)
        if self.chance(0.5):
            value = Add(BufferLoad(target, at), value)
        return self.loops([(i, self.n), (j, self.m)], BufferStore(target, value, at))

    def reduction(self, target: Buffer) -> Stmt:
        i, j = Var("i", "int64"), Var("j", "int64")
        vi, vj = Var("vi", "int64"), Var("vj", "int64")
        at = self.indices(target, vi, vj)
        nest: list[tuple[Var, PrimExpr]] = []
        iters, values = [], []
        where: list[PrimExpr] = []
        for own, var, extent in ((vi, i, self.n), (vj, j, self.m)):
            reduced = not any(index is own for index in at)
            bound: PrimExpr = var
            if self.chance(0.4):
                inner = Var(f"{var.name}1", "int64")
                nest.append((var, ops.floordiv(extent + (FACTOR - 1), FACTOR)))
                nest.append((inner, const(FACTOR)))
                bound = ops.add(ops.mul(var, FACTOR), inner)
                where.append(ops.convert(bound < extent))
            else:
                nest.append((var, extent))
            kind = IterVarKind.CommReduce if reduced else IterVarKind.DataPar
            iters.append(IterVar(Range(0, extent), own, kind))
            values.append(bound)
        if self.chance(0.3):
            where.append(self.condition(*values))
        combine = self.random.choice([Add, Add, Mul, Max, Min])
        start = ops.const(self.random.randint(-2, 2), "int16")
        if self.chance(0.2) and len(at) == 1:
            start = BufferLoad(
                self.random.choice(
                    [b for b in self.known if b.ndim == 1 and b.shape[0] is target.shape[0]]
                ),
                at,
            )
        update = BufferStore(target, combine(BufferLoad(target, at), self.value(vi, vj)), at)
        block = Block(iters, (), (), target.name, update, BufferStore(target, start, at))
        predicate = ops.all_of(True, *where)
        if self.chance(0.4):
            self.random.shuffle(nest)
        return self.loops(nest, BlockRealize(values, predicate, block))

    def loops(self, nest: list[tuple[Var, PrimExpr]], body: Stmt) -> Stmt:
        for var, extent in reversed(nest):
            body = For(var, const(0), extent, ForKind.SERIAL, body)
        return body
