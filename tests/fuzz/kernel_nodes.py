"""Random kernels, put together from nodes: most do not run, all can be printed.

What is varied, each by itself:

- names: those of `hard_texts`, several variables of one name among them; attributes of any values;
- parameters: a scalar or none, buffers of eight datatypes and ranks 0 to 2, some with strides, an
  offset, a scope or an alignment; sizes that are literals of two datatypes, the scalar, or a
  multiple of it, which may be bound nowhere else;
- statements, up to three deep: loops of four kinds from any start, with one body or several,
  blocks of all kinds of axes, with or without init, regions, memory and a predicate, branches with
  and without `else`, `while`, lets, assertions, attributes, memory that lasts for a statement;
- values, unfolded and of both signs: literals at the ends of their datatype, special floats, casts
  between datatypes, lets, choices, all arithmetic, loads, intrinsics.

Nothing is aliased and no array is passed: `kernels/generate.py` draws kernels to be run.
"""

# ruff: noqa: E731 (choices are drawn lazily, and each is a line)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.tir import expr as tir, intrin, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion, decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.fuzz.hard_texts import attributes, hints, strings

DTYPES = ["float32", "float16", "int32", "int64", "float64", "uint8", "int8", "bool"]
LAYOUTS: list[dict[str, Any]] = [
    *({} for _ in range(4)),
    {"strides": None},
    {"elem_offset": 4},
    {"scope": "shared"},
    {"data_alignment": 128},
    {"offset_factor": 2},
]


class Kernels:
    """Draws the parts of a kernel; what is in scope is kept in lists."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.scalars: list[tir.Var] = []
        self.buffers: list[Buffer] = []
        self.axes: list[tir.Var] = []

    def pick(self, *choices: Callable[[], object]) -> object:
        return self.draw(st.sampled_from(choices))()

    def integer(self, dtype: str = "int32", depth: int = 2) -> tir.PrimExpr:
        """An integer expression; its nodes are built unfolded."""
        known = [v for v in self.scalars if v.dtype == dtype]
        edges = st.sampled_from(ops.int_range(DataType(dtype)))
        small = st.integers(0 if dtype.startswith("uint") else -2, 9)
        literal = lambda: ops.const(self.draw(small | edges), dtype)
        leaf = (lambda: self.draw(st.sampled_from(known))) if known else literal
        if depth == 0:
            return self.pick(leaf, literal)
        inner = lambda: self.integer(dtype, depth - 1)
        binary = lambda: self.draw(
            st.sampled_from(
                [
                    tir.Add,
                    tir.Sub,
                    tir.Mul,
                    tir.Min,
                    tir.Max,
                    tir.FloorDiv,
                    tir.FloorMod,
                    tir.Div,
                    tir.Mod,
                ]
            )
        )(inner(), inner())
        other = "int64" if dtype == "int32" else "int32"
        return self.pick(
            leaf,
            binary,
            binary,
            lambda: tir.Cast(dtype, self.integer(other, 0)),
            lambda: tir.Select(self.truth(0), inner(), inner()),
            lambda: tir.Call(dtype, "tir.if_then_else", (self.truth(0), inner(), inner())),
            lambda: tir.Call(dtype, "tir.shift_left", (inner(), ops.const(1, dtype))),
            lambda: tir.Let(tir.Var(self.draw(hints), dtype), inner(), inner()),
        )

    def truth(self, depth: int = 1) -> tir.PrimExpr:
        kinds = [tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE]
        compare = lambda: self.draw(st.sampled_from(kinds))(
            self.integer(depth=0), self.integer(depth=0)
        )
        if depth == 0:
            return compare()
        inner = lambda: self.truth(depth - 1)
        return self.pick(
            compare,
            lambda: tir.And(inner(), inner()),
            lambda: tir.Or(inner(), inner()),
            lambda: tir.Not(inner()),
            lambda: ops.const(self.draw(st.booleans())),
        )

    def indices(self, buffer: Buffer) -> list[tir.PrimExpr]:
        return [self.integer(size.dtype, 1) for size in buffer.shape]

    def value(self, dtype: str, depth: int = 2) -> tir.PrimExpr:
        """A value that can be stored into a buffer of `dtype`."""
        if dtype == "bool":
            return self.truth(min(depth, 1))
        if not dtype.startswith("float"):
            return self.integer(dtype, depth)
        number = st.floats(width=DataType(dtype).bits)
        literal = lambda: tir.FloatImm(dtype, self.draw(number))
        known = [b for b in self.buffers if b.dtype == dtype]
        if depth == 0 or not known:
            return literal()
        inner = lambda: self.value(dtype, depth - 1)
        load = lambda: (lambda b: BufferLoad(b, self.indices(b)))(self.draw(st.sampled_from(known)))
        return self.pick(
            literal,
            load,
            lambda: self.draw(st.sampled_from([tir.Add, tir.Mul, tir.Div, tir.Max]))(
                inner(), inner()
            ),
            lambda: tir.Call(dtype, "tir.exp", (inner(),)),
            lambda: tir.Call(dtype, "tir.pow", (inner(), inner())),
            lambda: tir.Call(dtype, "tir.fabs", (inner(),)),
            lambda: tir.Cast(dtype, self.integer("int64", 1)),
            lambda: tir.Select(self.truth(), inner(), inner()),
        )

    def statement(self, depth: int, *, in_block: bool) -> stmt.Stmt:
        simple = [self.store, lambda: stmt.Evaluate(self.integer()), self.extern]
        if depth == 0:
            return self.pick(*simple)
        body = lambda: self.statement(depth - 1, in_block=in_block)
        nested = [
            lambda: stmt.SeqStmt([body() for _ in range(self.draw(st.integers(2, 3)))]),
            lambda: self.loop(depth, in_block=in_block),
            lambda: self.loop(depth, in_block=in_block),
            lambda: stmt.IfThenElse(
                self.truth(), body(), (self.draw(st.booleans()) and body()) or None
            ),
            lambda: stmt.While(self.truth(), body()),
            lambda: stmt.AssertStmt(self.truth(), self.draw(strings), body()),
            lambda: self.let(depth, in_block=in_block),
            lambda: self.block(depth),
            lambda: self.memory(depth, in_block=in_block),
            lambda: stmt.AttrStmt(
                self.pick(lambda: None, lambda: self.draw(st.sampled_from(self.buffers))),
                self.draw(strings),
                self.integer(depth=0),
                body(),
            ),
        ]
        return self.pick(*simple, *nested, *nested)

    def store(self) -> stmt.Stmt:
        buffer = self.draw(st.sampled_from(self.buffers))
        return stmt.BufferStore(buffer, self.value(buffer.dtype), self.indices(buffer))

    def extern(self) -> stmt.Stmt:
        return stmt.Evaluate(intrin.call_extern("int32", self.draw(strings), self.integer(depth=1)))

    def scoped(self, var: tir.Var, make: Callable[[], stmt.Stmt]) -> stmt.Stmt:
        self.scalars.append(var)
        made = make()
        self.scalars.remove(var)
        return made

    def let(self, depth: int, *, in_block: bool) -> stmt.Stmt:
        dtype = self.draw(st.sampled_from(["int32", "int64"]))
        var, value = tir.Var(self.draw(hints), dtype), self.integer(dtype)
        body = self.scoped(var, lambda: self.statement(depth - 1, in_block=in_block))
        return stmt.LetStmt(var, value, body)

    def memory(self, depth: int, *, in_block: bool) -> stmt.Stmt:
        """A buffer over memory of its own, which lasts for a statement."""
        dtype, extent = self.draw(st.sampled_from(["float32", "int32"])), self.integer(depth=0)
        data = tir.Var(self.draw(hints), PointerType(PrimType(dtype)))
        buffer = decl_buffer((4,), dtype, self.draw(hints), data=data)
        self.buffers.append(buffer)
        body = self.statement(depth - 1, in_block=in_block)
        self.buffers.remove(buffer)
        condition = self.pick(lambda: ops.const(True), lambda: self.truth(0))
        inner = stmt.DeclBuffer(buffer, body)
        return stmt.Allocate(data, dtype, (extent,), condition, inner, self.draw(attributes))

    def loop(self, depth: int, *, in_block: bool) -> stmt.Stmt:
        dtype = self.draw(st.sampled_from(["int32", "int64"]))
        var, extent = tir.Var(self.draw(hints), dtype), self.integer(dtype, 1)
        start = self.pick(lambda: ops.const(0, dtype), lambda: self.integer(dtype, 1))
        kind = self.draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        notes = self.draw(attributes)
        self.axes.append(var)
        body = self.scoped(var, lambda: self.statement(depth - 1, in_block=in_block))
        self.axes.remove(var)
        return stmt.For(var, start, extent, kind, body, annotations=notes)

    def region(self) -> BufferRegion:
        buffer = self.draw(st.sampled_from(self.buffers))
        ranges = [
            Range.from_min_extent(self.integer(s.dtype, 1), self.integer(s.dtype, 1))
            for s in buffer.shape
        ]
        return BufferRegion(buffer, ranges)

    def block(self, depth: int) -> stmt.Stmt:
        axes, values = [], []
        for _ in range(self.draw(st.integers(1, 3))):
            dtype = self.draw(st.sampled_from(["int32", "int64"]))
            extent = self.integer(dtype, 0)
            start = self.pick(lambda: ops.const(0, dtype), lambda: self.integer(dtype, 0))  # noqa: B023
            kind = self.draw(st.sampled_from([0, 2, 3, 4]))
            axes.append(
                IterVar(
                    Range.from_min_extent(start, extent), tir.Var(self.draw(hints), dtype), kind
                )
            )
            values.append(self.integer(dtype, 1))
        before = len(self.scalars)
        predicate = self.pick(lambda: ops.const(True), lambda: self.truth(0))
        self.scalars += [a.var for a in axes]
        reads = [self.region() for _ in range(self.draw(st.integers(0, 2)))]
        writes = [self.region() for _ in range(self.draw(st.integers(0, 2)))]
        known = len(self.buffers)
        allocated = []
        if self.draw(st.booleans()):
            allocated = [
                decl_buffer((self.integer(depth=0), 4), "float32", self.draw(hints), scope="local")
            ]
        self.buffers += allocated
        init = (self.draw(st.booleans()) and self.store()) or None
        body = self.statement(depth - 1, in_block=True)
        del self.buffers[known:], self.scalars[before:]
        notes = self.draw(attributes)
        block = stmt.Block(
            axes,
            reads,
            writes,
            self.draw(st.sampled_from(["B", "", 'q"'])),
            body,
            init,
            allocated,
            (),
            notes,
        )
        return stmt.BlockRealize(values, predicate, block)

    def function(self) -> PrimFunc:
        n = tir.Var(self.draw(hints), "int64")
        params: list[tir.Var | Buffer] = []
        if self.draw(st.booleans()):
            params.append(n)
        for _ in range(self.draw(st.integers(1, 3))):
            size = self.pick(
                lambda: n, lambda: ops.const(4), lambda: ops.const(4, "int64"), lambda: n * 2
            )
            dtype = self.draw(st.sampled_from(DTYPES))
            rank = self.draw(st.integers(0, 2))
            layout = self.draw(st.sampled_from(LAYOUTS))
            if "strides" in layout:
                layout = {**layout, "strides": [3, 1][:rank]}
            buffer = decl_buffer((size, 3)[:rank], dtype, self.draw(hints), **layout)
            self.buffers.append(buffer)
            params.append(buffer)
        if n in params or any(n is s for b in self.buffers for s in b.shape):
            self.scalars.append(n)
        body = self.statement(3, in_block=False)
        if any(isinstance(s, stmt.Block) for s in walk(body)):
            allocated = [decl_buffer((4,), "float32", self.draw(hints))] * self.draw(
                st.integers(0, 1)
            )
            body = stmt.BlockRealize(
                (), True, stmt.Block((), (), (), "root", body, None, allocated)
            )
        attrs = self.draw(attributes) | self.draw(
            st.sampled_from([{}, {"global_symbol": "main"}, {"global_symbol": "class"}])
        )
        return PrimFunc(params, body, self.draw(st.sampled_from([None, "int32"])), attrs=attrs)


@st.composite
def kernels(draw: st.DrawFn) -> PrimFunc:
    return Kernels(draw).function()
