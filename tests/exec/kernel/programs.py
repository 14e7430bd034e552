"""Random kernels: loop nests over small integer buffers, with every kind of dependence."""

from __future__ import annotations

from random import Random

from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import (
    GT,
    LT,
    Add,
    Call,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt

SIZE = 10


def const(value: int) -> PrimExpr:
    return ops.const(value, "int64")


def indices(random: Random, loops: list[Var], rank: int) -> list[PrimExpr]:
    """Affine in the loops, always inside [0, SIZE) for loops below 4."""
    found = []
    for _ in range(rank):
        kind = random.randint(0, 5)
        if not loops or kind == 0:
            found.append(const(random.randint(0, SIZE - 1)))
            continue
        i = random.choice(loops)
        if kind == 1:
            found.append(ops.sub(const(SIZE - 1), i))
        elif kind == 2:
            found.append(ops.mul(i, const(2)))
        elif kind == 3 and len(loops) > 1:
            i = ops.mul(i, const(2)) if random.random() < 0.5 else i
            found.append(ops.add(i, random.choice(loops)))
        else:
            found.append(ops.add(i, const(random.randint(0, 3))))
    return found


def value(random: Random, loops: list[Var], buffers: list[Buffer], depth: int) -> PrimExpr:
    kind = random.randint(0, 9 if depth else 3)
    if kind == 0:
        return ops.const(random.randint(-5, 5), "int16")
    if kind == 1 and loops:
        return ops.cast_to(random.choice(loops), "int16")
    if kind <= 3:
        buffer = random.choice(buffers)
        return BufferLoad(buffer, indices(random, loops, buffer.ndim))
    a = value(random, loops, buffers, depth - 1)
    b = value(random, loops, buffers, depth - 1)
    if kind == 7:
        return Select(LT(a, b), a, b)
    if kind == 8:
        i = random.choice(loops) if loops else const(0)
        test = LT(i, const(random.randint(0, 4)))
        return Call("int16", "tir.if_then_else", (test, a, b))
    if kind == 9:
        node = random.choice([FloorDiv, FloorMod])
        return node(a, ops.const(random.choice([-3, 2, 5]), "int16"))
    return random.choice([Add, Sub, Mul, Min, Max])(a, b)


def statement(random: Random, loops: list[Var], buffers: list[Buffer], depth: int) -> Stmt:
    kind = random.randint(0, 7)
    if kind <= 2 and len(loops) < 3:
        i = Var("ijk"[len(loops)], "int64")
        body = body_of(random, [*loops, i], buffers, depth)
        low = random.randint(0, 1)
        extent = const(random.randint(0, 4 - low))
        if loops and random.randint(0, 5) == 0:
            extent = loops[-1]
            low = 0
        return For(i, const(low), extent, ForKind.SERIAL, body)
    if kind == 3 and depth:
        if loops and random.random() < 0.5:
            test: PrimExpr = GT(random.choice(loops), const(random.randint(0, 3)))
        else:
            test = GT(value(random, loops, buffers, 1), ops.const(0, "int16"))
        yes = body_of(random, loops, buffers, depth - 1)
        no = body_of(random, loops, buffers, depth - 1) if random.random() < 0.5 else None
        return IfThenElse(test, yes, no)
    target = random.choice(buffers)
    where = indices(random, loops, target.ndim)
    found = value(random, loops, buffers, 2)
    if kind == 4:
        own = BufferLoad(target, where)
        node = random.choice([Add, Mul, Min, Max, Sub])
        found = node(own, found)
    return BufferStore(target, found, where)


def body_of(random: Random, loops: list[Var], buffers: list[Buffer], depth: int) -> Stmt:
    parts = [statement(random, loops, buffers, depth) for _ in range(random.randint(1, 3))]
    return parts[0] if len(parts) == 1 else SeqStmt(tuple(parts))


def program(random: Random) -> PrimFunc:
    buffers = [
        decl_buffer([const(SIZE)] * rank, "int16", name)
        for name, rank in (("A", 1), ("B", 1), ("C", 2), ("D", 2))
    ]
    body = body_of(random, [], buffers, 2)
    return PrimFunc(buffers, body)
