"""Random modules of graph functions over n x n tensors, and of the kernels that they call.

`graphs.py` draws texts of all operators with twins in NumPy; these are nodes, drawn by Hypothesis,
which are run by several targets and rewritten by passes. What is varied:

- names: few, so that several variables have one name;
- steps: calls of six kernels, with an operand twice or different ones; aliases; nested tuples and
  their fields; casts that bind a dimension; constants; conditionals and closures, which capture
  values, up to two deep;
- results: the last tensor with all tuples, shapes and rows that were computed on the way.

The size n is an argument: 0 is a size to run unless a condition reads the first element.
"""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, stmt
from relaxpy.ir.tir.prim_func.function import PrimFunc
from tests.exec.kernels import (
    buffer,
    call_tir,
    elementwise,
    function,
    matmul,
    nest,
    prim_func,
    rooted,
    size_var,
    tensor,
)

N = size_var("n")
SQUARE = tensor((N, N))
ROW = tensor((N,))


def row_sum() -> PrimFunc:
    k = size_var("k")
    a, out = buffer((k, k), "A"), buffer((k,), "S")
    zero = tir.FloatImm("float32", 0.0)
    body = nest(
        (k, k),
        lambda i, j: stmt.BufferStore(out, out[i] + a[i, j], (i,)),
        reduce=1,
        init=lambda i: stmt.BufferStore(out, zero, (i,)),
    )
    return prim_func([a, out], rooted(body))


def positive() -> PrimFunc:
    """Whether the first element is above zero."""
    k = size_var("k")
    a, out = buffer((k, k), "A"), buffer((), "P", "bool")
    first = (tir.IntImm("int64", 0),) * 2
    test = tir.GT(a[first], tir.FloatImm("float32", 0.0))
    return prim_func([a, out], stmt.BufferStore(out, test, ()))


def _pair(combine: type[tir.BinaryOpExpr]) -> PrimFunc:
    size = size_var("k")
    return elementwise((size, size), lambda a, b: combine(a, b), inputs=2)


KERNELS = {
    "add": lambda: _pair(tir.Add),
    "sub": lambda: _pair(tir.Sub),
    "largest": lambda: _pair(tir.Max),
    "mm": lambda: matmul(s := size_var("k"), s, s),
    "row_sum": row_sum,
    "positive": positive,
}


@dataclass
class Writer:
    """Writes one random function; `squares` are the variables that hold n x n tensors."""

    data: st.DataObject
    globals: dict[str, rx.GlobalVar]
    squares: list[rx.Var]
    bindings: list[tuple[rx.Var, rx.Expr] | rx.MatchCast] = field(default_factory=list)
    outputs: list[rx.Expr] = field(default_factory=list)
    counter: int = 0

    def new(self, sinfo: rx.StructInfo) -> rx.Var:
        self.counter += 1
        return rx.Var(self.data.draw(st.sampled_from(["v", "lv", "x", "n", "float32"])), sinfo)

    def square(self) -> rx.Var:
        return self.data.draw(st.sampled_from(self.squares))

    def bind(self, value: rx.Expr, sinfo: rx.StructInfo) -> rx.Var:
        var = self.new(sinfo)
        self.bindings.append((var, value))
        return var

    def kernel(self, name: str, args: list[rx.Expr], sinfo: rx.StructInfo) -> rx.Var:
        return self.bind(call_tir(self.globals[name], args, sinfo), sinfo)

    def step(self, depth: int) -> None:
        kinds = ["add", "sub", "largest", "mm", "alias", "tuple", "cast", "row", "constant"]
        kind = self.data.draw(st.sampled_from(kinds + ["if", "closure"] * (depth < 2)))
        match kind:
            case "alias":
                self.squares.append(self.bind(self.square(), SQUARE))
            case "tuple":
                pair = rx.Tuple((self.square(), rx.Tuple((self.square(), rx.PrimValue(N + 1)))))
                whole = self.bind(pair, pair.struct_info or rx.ObjectStructInfo())
                self.outputs.append(whole)
                self.squares.append(self.bind(rx.TupleGetItem(whole, 0), SQUARE))
            case "cast":
                m = size_var("m")
                var = self.new(tensor((m, N)))
                self.bindings.append(rx.MatchCast(var, self.square(), tensor((m, N))))
                self.outputs.append(rx.ShapeExpr((m, m + N)))
            case "row":
                self.outputs.append(self.kernel("row_sum", [self.square()], ROW))
            case "constant":
                literal = rx.const(np.ones((1, 1), "float32"))
                self.outputs.append(self.bind(literal, tensor((1, 1))))
            case "if":
                self.branch(depth)
            case "closure":
                self.closure(depth)
            case _:
                self.squares.append(self.kernel(kind, [self.square(), self.square()], SQUARE))

    def inside(self, depth: int, params: list[rx.Var]) -> "Writer":
        inner = Writer(self.data, self.globals, [*self.squares, *params])
        for _ in range(self.data.draw(st.integers(1, 2))):
            inner.step(depth + 1)
        return inner

    def branch(self, depth: int) -> None:
        condition = self.kernel("positive", [self.square()], tensor((), "bool"))
        arms = []
        for _ in range(2):
            inner = self.inside(depth, [])
            body = function([], inner.bindings, inner.squares[-1]).body
            arms.append(body)
        self.squares.append(self.bind(rx.If(condition, *arms), SQUARE))

    def closure(self, depth: int) -> None:
        param = rx.Var("p", SQUARE)
        inner = self.inside(depth, [param])
        func = function([param], inner.bindings, inner.square(), ret=SQUARE, name=None)
        name = self.bind(func, rx.FuncStructInfo((SQUARE,), SQUARE))
        self.squares.append(self.bind(rx.Call(name, (self.square(),)), SQUARE))
        self.outputs.append(
            self.bind(rx.Call(Op("relax.shape_of"), (self.square(),)), rx.ShapeStructInfo((N, N)))
        )


def write(data: st.DataObject) -> IRModule:
    gvars = {name: rx.GlobalVar(name) for name in KERNELS}
    params = [rx.Var("x", SQUARE), rx.Var("y", SQUARE)]
    writer = Writer(data, gvars, list(params))
    for _ in range(data.draw(st.integers(1, 6))):
        writer.step(0)
    result = rx.Tuple((writer.squares[-1], *writer.outputs))
    main = function(params, writer.bindings, result)
    used = {node for node in walk(main) if isinstance(node, rx.GlobalVar)}
    kernels = {gvars[name]: make() for name, make in KERNELS.items() if gvars[name] in used}
    return IRModule({**kernels, "main": main})


def least_size(mod: IRModule) -> int:
    """The least n for which the module runs without an error."""
    return int(any(var.name_hint == "positive" for var in mod.functions))
