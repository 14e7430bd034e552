"""Random modules of all kinds of nodes, most of them ill-formed.

What is varied: operators with attributes of any kind and any operands; struct infos that contradict
the nodes; variables without struct info, out of scope, or bound twice; nodes that are shared;
functions that call themselves, each other, or nothing; normal form and nested expressions.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from relaxpy import tir
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import find, registered_ops
from relaxpy.ir.relax import nodes as rx
from tests.ir.relax.graphs import kernel

OPERATORS = [record.op for record in registered_ops().values()]
SIZES = [tir.Var(name, "int64") for name in "nm"]
DTYPES = ("float32", "int64", "bool", "", "bfloat16", "float32x4", "handle")


class Programs:
    """Draws modules from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.vars: list[rx.Var] = []
        self.vars = [
            self.pick((rx.Var, rx.Var, rx.DataflowVar))(f"v{i}", self.maybe_sinfo())
            for i in range(8)
        ]
        self.made: list[rx.Expr] = []

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def many(self, draw: Callable[[], object], most: int = 2) -> list[object]:
        return [draw() for _ in range(self.random.randint(0, most))]

    def size(self) -> tir.PrimExpr:
        var = self.pick(SIZES)
        literal = tir.IntImm("int64", self.pick((0, 1, 2, 4, 2**62)))
        return self.pick((literal, var, var + 1, var * 2, tir.FloorDiv(var, literal)))

    def maybe_sinfo(self) -> rx.StructInfo | None:
        return self.sinfo(1) if self.chance(0.6) else None

    def sinfo(self, depth: int = 2) -> rx.StructInfo:
        dims = self.many(self.size)
        match self.random.randrange(8 if depth else 5):
            case 0 | 1:
                shape = self.pick(self.vars) if self.vars and self.chance(0.1) else dims
                return rx.TensorStructInfo(shape, self.pick(DTYPES))  # type: ignore[arg-type]
            case 2:
                ndim = self.random.randint(-1, 3)
                known = dims if self.chance(0.3) else None
                return rx.TensorStructInfo(known, self.pick(DTYPES), ndim=ndim)  # type: ignore[arg-type]
            case 3:
                return rx.ShapeStructInfo(self.pick((dims, None)), self.pick((-1, 0, 2)))  # type: ignore[arg-type]
            case 4:
                return self.pick(
                    (rx.PrimStructInfo("bool"), rx.PrimStructInfo("int64", self.size()))
                )
            case 5:
                fields = self.many(lambda: self.sinfo(depth - 1))
                return rx.TupleStructInfo(tuple(fields))  # type: ignore[arg-type]
            case 6:
                params = self.pick((None, (self.sinfo(depth - 1),)))
                return rx.FuncStructInfo(params, self.sinfo(depth - 1), self.chance(0.5))
            case _:
                return rx.ObjectStructInfo()

    def attribute(self) -> object:
        values = (1, -1, "x", None, True, 2.5, (1, 2), [0], "float32", self.size(), self.sinfo(0))
        return self.pick((*values, self.pick(self.vars), {"a": 1}))

    def expr(self, depth: int = 3) -> rx.Expr:
        if self.made and self.chance(0.15):
            return self.pick(self.made)
        self.made.append(self.new_expr(depth))
        return self.made[-1]

    def new_expr(self, depth: int) -> rx.Expr:
        def part() -> rx.Expr:
            return self.expr(depth - 1)

        match self.random.randrange(17 if depth else 7):
            case 0 | 1:
                return self.pick(self.vars)
            case 2:
                return rx.GlobalVar(self.pick(("main", "f", "k", "nothing")))
            case 3:
                return rx.Constant(np.ones(self.pick(((), (2, 3), (0,))), self.pick(DTYPES[:3])))
            case 4:
                return rx.ShapeExpr(self.many(self.size))  # type: ignore[arg-type]
            case 5:
                return rx.PrimValue(self.pick((1, 2.5, True, self.size())))
            case 6:
                return self.pick((rx.StringImm("s"), rx.DataTypeImm("int8"), rx.ExternFunc("no")))
            case 7 | 8 | 9 | 10:
                return self.call(part)
            case 11:
                return rx.Tuple(self.many(part), struct_info=self.maybe_sinfo())  # type: ignore[arg-type]
            case 12:
                index = self.random.randrange(3)
                return rx.TupleGetItem(part(), index, struct_info=self.maybe_sinfo())
            case 13:
                return rx.If(part(), part(), part(), struct_info=self.maybe_sinfo())  # type: ignore[arg-type]
            case 14:
                return self.sequence(depth - 1)
            case 15:
                return self.function(depth - 1)
            case _:
                return kernel((2,))

    def call(self, part: Callable[[], rx.Expr]) -> rx.Call:
        callee = self.pick(OPERATORS) if self.chance(0.7) else part()
        if self.chance(0.1):
            callee = rx.GlobalVar(self.pick(("main", "f")))
        record = find(callee) if isinstance(callee, Op) else None
        names = [p.name for p in record.parameters if not p.is_operand] if record else []
        attrs = {name: self.attribute() for name in (*names, "junk") if self.chance(0.5)}
        args = self.many(lambda: part() if self.chance(0.95) else self.pick(OPERATORS), 3)
        sinfos = self.many(lambda: self.sinfo(1)) if self.chance(0.3) else []
        return rx.Call(callee, args, attrs, sinfos, struct_info=self.maybe_sinfo())  # type: ignore[arg-type]

    def binding(self, depth: int) -> rx.Binding:
        var = self.pick((*self.vars, rx.Var("w", self.maybe_sinfo())))
        if self.chance(0.2):
            return rx.MatchCast(self.pick((var, None)), self.expr(depth), self.sinfo())
        return rx.VarBinding(var, self.expr(depth))

    def sequence(self, depth: int) -> rx.SeqExpr:
        def block() -> rx.BindingBlock:
            kind = self.pick((rx.BindingBlock, rx.DataflowBlock))
            return kind(self.many(lambda: self.binding(depth)))  # type: ignore[arg-type]

        body = self.expr(depth) if self.chance(0.97) else self.pick(OPERATORS)
        return rx.SeqExpr(self.many(block), body, struct_info=self.maybe_sinfo())  # type: ignore[arg-type]

    def function(self, depth: int) -> rx.Function:
        names = ("relax.force_pure", "num_input", "junk")
        attrs = {name: self.pick((1, True, 7)) for name in names if self.chance(0.2)}
        params = self.many(lambda: self.pick(self.vars))
        ret, sinfo = self.maybe_sinfo(), self.sinfo() if self.chance(0.2) else None
        body = self.sequence(depth)
        return rx.Function(params, body, ret, self.chance(0.5), attrs, struct_info=sinfo)  # type: ignore[arg-type]

    def module(self) -> IRModule:
        symbol = self.pick(("main", "main", "main", "other"))
        mod = IRModule({"main": self.function(3).with_attr("global_symbol", symbol)})
        if self.chance(0.6):
            mod["f"] = self.function(2)
            if self.chance(0.5):
                mod["f"] = mod["f"].with_attr("global_symbol", "f")
        if self.chance(0.5):
            mod["k"] = kernel((2,), (2,))
        return mod
