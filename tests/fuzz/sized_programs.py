"""Random well-formed programs over shape variables, nested expressions among them.

What is varied: values, tuples, shapes and calls of any number of operands, nested in each other;
conditionals whose branches are sequences or not; sequences with blocks of both kinds; casts that
bind shape variables; local functions, which capture values and dimensions and are called.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.graphs import BOOL, bind, block, cast, dataflow, function, pure, seq, size, var
from tests.ir.relax.sinfos import Object, tensor

POOL = [size(name) for name in "nmk"]
COND = var("cond", BOOL)


@dataclass
class Scope:
    """What may be mentioned at some place of a program, and how to write it."""

    draw: st.DrawFn
    values: list[rx.Var]
    functions: list[rx.Var] = field(default_factory=list)
    sizes: list[tir.Var] = field(default_factory=list)

    def inner(self) -> Scope:
        return replace(
            self, values=[*self.values], functions=[*self.functions], sizes=[*self.sizes]
        )

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def dimension(self) -> tir.PrimExpr:
        literal = tir.IntImm("int64", 4)
        return self.draw(st.sampled_from([literal, *self.sizes])) + self.integer(0, 1)

    def expression(self, depth: int) -> rx.Expr:
        kind = self.integer(0, 9 if depth else 2)
        if kind == 0:
            return self.draw(st.sampled_from(self.values))
        if kind == 1:
            return rx.ShapeExpr((self.dimension(),))
        if kind == 2:
            return pure("f", sinfo=tensor(self.dimension()))
        if kind == 3:
            return rx.If(COND, self.branch(depth - 1), self.branch(depth - 1))
        if kind in (4, 8):
            return rx.Tuple(self.expressions(depth - 1, 2))
        if kind == 5:
            return self.sequence(depth - 1)
        if kind == 6:
            return self.function(depth - 1)
        if kind == 7 and self.functions:
            argument = pure("f", self.expression(depth - 1), sinfo=tensor(self.dimension()))
            return self.draw(st.sampled_from(self.functions))(argument)
        return pure("g", *self.expressions(depth - 1, 3), sinfo=tensor(self.dimension()))

    def expressions(self, depth: int, most: int) -> list[rx.Expr]:
        return [self.expression(depth) for _ in range(self.integer(0, most))]

    def branch(self, depth: int) -> rx.Expr:
        """A sequence, or an expression that normalisation makes one of."""
        return self.sequence(depth) if self.integer(0, 2) else self.inner().expression(depth)

    def function(self, depth: int) -> rx.Function:
        scope = self.inner()
        own = self.draw(st.sampled_from(POOL))
        param = var("p", self.draw(st.sampled_from([Object, tensor(own)])))
        scope.values.append(param)
        if param.struct_info != Object:
            scope.sizes.append(own)
        return function([param], scope.expression(depth))

    def sequence(self, depth: int) -> rx.SeqExpr:
        scope = self.inner()
        blocks = [scope.block(depth) for _ in range(self.integer(0, 2))]
        return seq(*blocks, scope.expression(depth))

    def block(self, depth: int) -> rx.BindingBlock:
        if self.integer(0, 2) == 0:
            return dataflow(self.cast(), self.cast())
        return block(*(self.binding(depth) for _ in range(self.integer(1, 3))))

    def cast(self) -> rx.Binding:
        new, target = self.draw(st.sampled_from(POOL)), var("c")
        more = [self.dimension() for _ in range(self.integer(0, 1))]
        self.sizes.append(new)
        self.values.append(target)
        return cast(target, pure("unknown"), tensor(new, *more))

    def binding(self, depth: int) -> rx.Binding:
        kind = self.integer(0, 4)
        if kind == 0:
            return self.cast()
        target = var("v")
        if kind < 4 or not depth:
            value = self.expression(max(depth - 1, 0))
            self.values.append(target)
            return bind(target, value)
        literal = self.function(depth - 1)
        self.functions.append(target)
        return bind(target, literal)


@st.composite
def programs(draw: st.DrawFn) -> rx.Function:
    x = var("x", tensor(POOL[0], 4))
    scope = Scope(draw, [COND, x], sizes=[POOL[0]])
    return function([COND, x], scope.sequence(3), global_symbol="main")
