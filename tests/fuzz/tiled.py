"""Random kernels with loops that were split, fused and reordered, as schedules leave them.

What is varied, each by itself:

- sizes: 0 to 7, each a literal or a shape variable;
- parameters: in any order; the datatype of all elements;
- stages, one or two: products and maxima of sums with an init of 0 or another number, updates in
  place, flattening by rows or by a linear index, and back under a condition;
- loops: split once or twice, by factors that need not divide the extent, fused in pairs, in any
  order, serial, parallel, or unrolled where the extent is known;
- arguments: contiguous, transposed in memory, with gaps, or reversed; small numbers of both signs,
  whose sums are exact in any order.

Names are distinct and no memory is shared by two arguments: `kernels/generate.py` varies these.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, SeqStmt, Stmt
from relaxpy.ir.tir.substitution import substitute


def number(value: int, kind: str = "int64") -> tir.PrimExpr:
    return tir.IntImm(kind, value)


class Tiled:
    """Draws one kernel over A[n, m], B[m, h], C[n, h] and D[n * m]."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dtype = random.choice(["float32", "float32", "float64", "int32"])
        least = random.choice([0, 1, 1, 1])
        self.sizes = [random.randint(least, 7) for _ in "nmh"]
        self.dims = [
            tir.Var(name, "int64") if random.random() < 0.5 else number(size)
            for name, size in zip("nmh", self.sizes, strict=True)
        ]
        n, m, h = self.dims
        self.a = decl_buffer([n, m], self.dtype, "A")
        self.b = decl_buffer([m, h], self.dtype, "B")
        self.c = decl_buffer([n, h], self.dtype, "C")
        self.d = decl_buffer([ops.mul(n, m)], self.dtype, "D")
        self.order = random.sample(range(4), 4)

    def arguments(self, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        n, m, h = self.sizes
        shapes = [(n, m), (m, h), (n, h), (n * m,)]
        return [self.array(rng, shapes[k]) for k in self.order]

    def array(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Numbers in some layout."""
        step = int(rng.integers(1, 3))
        wide = (*shape[:-1], shape[-1] * step)
        numbers = rng.integers(-4, 5, wide)
        values = (numbers if self.dtype == "int32" else numbers / 2).astype(self.dtype)
        match int(rng.integers(0, 5)):
            case 0 | 1:
                return values[..., :: max(step, 1)].copy()
            case 2:
                return np.asfortranarray(values[..., ::step])
            case 3:
                return values[..., ::step]
            case _:
                return values[::-1, ...][..., ::step]

    def scalar(self, value: float) -> tir.PrimExpr:
        """A number of the datatype of the elements."""
        return ops.const(int(value) if self.dtype == "int32" else value, self.dtype)

    def kernel(self) -> PrimFunc:
        stages = [self.random.choice([self.product, self.rows, self.flat, self.fold])]
        if self.random.random() < 0.5:
            stages.append(self.random.choice([self.product, self.rows, self.flat, self.fold]))
        made = [stage() for stage in stages]
        body = made[0] if len(made) == 1 else SeqStmt(tuple(made))
        root = Block((), (), (), "root", body)
        buffers = [self.a, self.b, self.c, self.d]
        return PrimFunc([buffers[k] for k in self.order], BlockRealize((), True, root))

    # ---- stages

    def product(self) -> Stmt:
        """C = A B, or with the maximum of sums."""
        n, m, h = self.dims
        i, j, k = (tir.Var(v, "int64") for v in ("vi", "vj", "vk"))
        node = self.random.choice([tir.Add, tir.Add, tir.Max])
        inner = self.random.choice([tir.Mul, tir.Add]) if node is tir.Max else tir.Mul
        value = node(self.c[i, j], inner(self.a[i, k], self.b[k, j]))
        init = BufferStore(self.c, self.scalar(self.random.choice([0.0, 1.5])), [i, j])
        store = BufferStore(self.c, value, [i, j])
        return self.nest([(i, n, 0), (j, h, 0), (k, m, 2)], store, init)

    def rows(self) -> Stmt:
        """A changes, element by element."""
        n, m, _ = self.dims
        i, j = tir.Var("vi", "int64"), tir.Var("vj", "int64")
        scaled = ops.mul(self.a[i, j], tir.Cast(self.dtype, ops.add(i, j)))
        return self.nest([(i, n, 0), (j, m, 0)], BufferStore(self.a, scaled, [i, j]), None)

    def flat(self) -> Stmt:
        """D is A flattened, written by rows or by its own index."""
        n, m, _ = self.dims
        i, j, f = (tir.Var(v, "int64") for v in ("vi", "vj", "vf"))
        if self.random.random() < 0.5:
            store = BufferStore(
                self.d, self.a[i, j] + self.scalar(1.0), [ops.add(ops.mul(i, m), j)]
            )
            return self.nest([(i, n, 0), (j, m, 0)], store, None)
        load = BufferLoad(self.a, [tir.FloorDiv(f, m), tir.FloorMod(f, m)])
        store = BufferStore(self.d, load * self.scalar(2.0), [f])
        return self.nest([(f, ops.mul(n, m), 0)], store, None)

    def fold(self) -> Stmt:
        """A is D in its shape, where some of it is kept."""
        n, m, _ = self.dims
        i, j = tir.Var("vi", "int64"), tir.Var("vj", "int64")
        load = self.d[ops.add(ops.mul(i, m), j)]
        test = ops.convert(ops.add(i, j) > number(self.random.randint(0, 4)))
        if self.random.random() < 0.3:
            test = ops.convert(i > number(self.random.randint(0, 3)))
        value = tir.Call(self.dtype, "tir.if_then_else", (test, load, self.a[i, j]))
        return self.nest([(i, n, 0), (j, m, 0)], BufferStore(self.a, value, [i, j]), None)

    # ---- schedules

    def nest(
        self, iters: list[tuple[tir.Var, tir.PrimExpr, int]], body: Stmt, init: Stmt | None
    ) -> Stmt:
        loops: list[tuple[tir.Var, tir.PrimExpr]] = []
        bound: list[tir.PrimExpr] = []
        tests: list[tir.PrimExpr] = []
        for var, extent, _ in iters:
            loops_of, value, test = self.split(var.name[1:], extent)
            loops += loops_of
            bound.append(value)
            tests += test
        loops, bound, tests = self.fused(loops, bound, tests)
        self.random.shuffle(loops)
        block_iters = [
            IterVar(Range(number(0), extent), var, tir.IterVarKind(kind))
            for var, extent, kind in iters
        ]
        block = Block(block_iters, (), (), "stage", body, init)
        predicate = ops.all_of(*tests) if tests else ops.const(True)
        made: Stmt = BlockRealize(bound, predicate, block)
        for var, extent in reversed(loops):
            made = For(var, number(0), extent, self.kind(var, extent, iters), made)
        return made

    def kind(
        self, var: tir.Var, extent: tir.PrimExpr, iters: list[tuple[tir.Var, tir.PrimExpr, int]]
    ) -> ForKind:
        """A kind of loop; only loops over one spatial axis, not of a reduction, run in parallel."""
        spatial = {axis.name[1:] for axis, _, kind in iters if kind == 0}
        kinds = [ForKind.SERIAL] * 3
        if var.name.split("_")[0] in spatial:
            kinds.append(ForKind.PARALLEL)
        if isinstance(extent, tir.IntImm):
            kinds.append(ForKind.UNROLLED)
        return self.random.choice(kinds)

    def split(
        self, name: str, extent: tir.PrimExpr
    ) -> tuple[list[tuple[tir.Var, tir.PrimExpr]], tir.PrimExpr, list[tir.PrimExpr]]:
        if self.random.random() < 0.4:
            var = tir.Var(name, "int64")
            return [(var, extent)], var, []
        factor = number(self.random.randint(1, 4))
        outer, inner = tir.Var(f"{name}_0", "int64"), tir.Var(f"{name}_1", "int64")
        count = ops.floordiv(ops.add(extent, factor - 1), factor)
        value = ops.add(ops.mul(outer, factor), inner)
        loops = [(outer, count), (inner, factor)]
        if self.random.random() < 0.2:
            half = tir.Var(f"{name}_2", "int64")
            middle = tir.Var(f"{name}_3", "int64")
            loops = [
                (middle, ops.floordiv(ops.add(count, number(1)), number(2))),
                (half, number(2)),
                (inner, factor),
            ]
            value = ops.add(ops.mul(ops.add(ops.mul(middle, number(2)), half), factor), inner)
        return loops, value, [ops.convert(value < extent)]

    def fused(
        self,
        loops: list[tuple[tir.Var, tir.PrimExpr]],
        bound: list[tir.PrimExpr],
        tests: list[tir.PrimExpr],
    ) -> tuple[list[tuple[tir.Var, tir.PrimExpr]], list[tir.PrimExpr], list[tir.PrimExpr]]:
        while len(loops) > 1 and self.random.random() < 0.4:
            (a, rows), (b, columns) = self.random.sample(loops, 2)
            var = tir.Var("f", "int64")
            values = {a: tir.FloorDiv(var, columns), b: tir.FloorMod(var, columns)}
            loops = [pair for pair in loops if pair[0] not in values]
            loops.append((var, ops.mul(rows, columns)))
            bound = [substitute(v, values) for v in bound]
            tests = [substitute(t, values) for t in tests]
        return loops, bound, tests
