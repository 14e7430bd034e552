"""Random elementwise kernels over buffers of every datatype."""

from __future__ import annotations

from random import Random

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint32"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
KINDS = [*INTEGERS, *FLOATS, "bool"]
SHAPE = (4, 3)
LITERALS = [0.0, -0.0, 1.5, -2.25, 0.1, float("inf"), float("nan")]
FUNCTIONS = ["exp", "tanh", "sqrt", "fabs", "floor", "ceil", "round", "trunc", "sigmoid", "erf"]


def size(value: int) -> PrimExpr:
    return ops.const(value, "int64")


class Generator:
    """Draws expressions over two loops and one buffer of each datatype."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.loops = [Var("i", "int64"), Var("j", "int64")]
        self.buffers = {k: decl_buffer([size(4), size(3)], k, f"X_{k}") for k in KINDS}

    def kernel(self) -> PrimFunc:
        kind = self.random.choice(KINDS)
        out = decl_buffer([size(4), size(3)], kind, "Y")
        store = BufferStore(out, self.value(kind, 4), self.loops)
        inner = For(self.loops[1], size(0), size(3), ForKind.SERIAL, store)
        nest = For(self.loops[0], size(0), size(4), ForKind.SERIAL, inner)
        return PrimFunc([*self.buffers.values(), out], nest)

    def value(self, kind: str, depth: int) -> PrimExpr:
        choice = self.random.randint(0, 9 if depth else 1)
        if choice == 0:
            return self.literal(DataType(kind))
        if choice == 1:
            return self.load(self.buffers[kind])
        if choice == 2:
            return self.converted(kind, depth)
        if choice == 3:
            parts = (self.value(k, depth - 1) for k in ("bool", kind, kind))
            return Select(*parts)
        if kind == "bool":
            return self.truth(choice, depth)
        a, b = self.value(kind, depth - 1), self.value(kind, depth - 1)
        if kind in INTEGERS:
            return self.integer(choice, DataType(kind), a, b)
        if choice == 9:
            return Call(kind, f"tir.{self.random.choice(FUNCTIONS)}", (a,))
        nodes = [FloorDiv, FloorMod, Div] if choice == 8 else [Add, Sub, Mul, Min, Max]
        return self.random.choice(nodes)(a, b)

    def literal(self, kind: DataType) -> PrimExpr:
        if kind.is_bool:
            return ops.const(self.random.random() < 0.5)
        if kind.is_int:
            return ops.const(self.random.randint(0 if kind.family == "uint" else -5, 5), kind)
        return ops.const(self.random.choice(LITERALS), kind)

    def load(self, buffer: Buffer) -> BufferLoad:
        i, j = self.loops
        row = self.random.choice([i, ops.sub(size(3), i)])
        return BufferLoad(buffer, [row, self.random.choice([j, size(1)])])

    def converted(self, kind: str, depth: int) -> PrimExpr:
        """A conversion; the result for a float out of range depends on the machine."""
        source = self.random.choice(KINDS)
        value = self.value(source, depth - 1)
        if source in FLOATS and kind in INTEGERS:
            value = self.random.choice([ops.const(v, source) for v in (2.75, 0.0, 1.0)])
        return value if source == kind else Cast(kind, value)

    def truth(self, choice: int, depth: int) -> PrimExpr:
        if choice < 6:
            kind = self.random.choice(KINDS[:-1])
            node = self.random.choice([LT, LE, GT, GE, EQ, NE])
            return node(self.value(kind, depth - 1), self.value(kind, depth - 1))
        a = self.value("bool", depth - 1)
        if choice == 9:
            return Not(a)
        return self.random.choice([And, Or])(a, self.value("bool", depth - 1))

    def integer(self, choice: int, kind: DataType, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if choice == 9:
            name = self.random.choice(["bitwise_and", "bitwise_or", "bitwise_xor"])
            return Call(kind, f"tir.{name}", (a, b))
        if choice == 8:
            name = self.random.choice(["shift_left", "shift_right"])
            return Call(kind, f"tir.{name}", (a, ops.const(self.random.randint(0, 7), kind)))
        if choice == 7:
            divisors = [3, 2, 5] if kind.family == "uint" else [3, 2, 5, -3]
            divisor = ops.const(self.random.choice(divisors), kind)
            return self.random.choice([Div, Mod, FloorDiv, FloorMod])(a, divisor)
        return self.random.choice([Add, Sub, Mul, Min, Max])(a, b)


def arguments(func: PrimFunc, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for buffer in func.buffer_map.values():
        kind = buffer.dtype.numpy()
        if buffer.dtype.is_int:
            found.append(rng.integers(0, 2 if buffer.dtype.is_bool else 100, SHAPE).astype(kind))
        else:
            values = rng.standard_normal(SHAPE) * 3
            values[rng.integers(4), rng.integers(3)] = rng.choice([np.nan, np.inf, -0.0])
            found.append(values.astype(kind))
    return found
