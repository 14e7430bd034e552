"""The rules of evaluation, each on both targets."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import (
    AssertionFailedError,
    CompileError,
    RuntimeCheckError,
    UnknownPackedFuncError,
)
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.exec.runtime.registry import list_global_func_names, register_func, remove_global_func
from relaxpy.exec.runtime.values import Closure, PrimFuncValue, ShapeTuple
from relaxpy.ir import DataType, IRModule, Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, intrin, stmt as st
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, relax as R, tir as T
from tests.exec.graph_rows import run_row
from tests.exec.kernels import (
    buffer,
    call_tir,
    elementwise,
    function,
    matmul,
    module,
    prim_func,
    size_var,
    tensor,
)
from tests.rows import sections

Compile = Callable[..., Executable]
F2 = tensor((2,))
X = np.array([1.0, 2.0], "float32")


@pytest.fixture(params=["reference", "numpy"])
def build(request: pytest.FixtureRequest) -> Compile:
    def compiled(mod: IRModule | None = None, **functions: rx.BaseFunc) -> Executable:
        return compile(mod or module(**functions), request.param, relax_pipeline=None)

    return compiled


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def op(name: str, *args: rx.Expr, **attrs: object) -> rx.Call:
    return rx.Call(Op(f"relax.{name}"), args, attrs)


def packed_call(name: str, *args: rx.Expr, sinfo: rx.StructInfo | None = None) -> rx.Call:
    return rx.Call(rx.ExternFunc(name), args, sinfo_args=() if sinfo is None else (sinfo,))


def seq(result: rx.Expr, *bindings: tuple[rx.Var, rx.Expr]) -> rx.SeqExpr:
    made = tuple(rx.VarBinding(*b) for b in bindings)
    return rx.SeqExpr((rx.BindingBlock(made),) if made else (), result)


def add_one(name: str = "add_one") -> PrimFunc:
    return elementwise((2,), lambda x: x + 1.0, name)


def given() -> dict[str, Any]:
    """What the programs of a row call and compare with, made anew for each target."""
    seen: list[Any] = []

    def note(value: Any) -> Any:
        seen.append(value)
        return (lambda *args: args) if value == "callee" else value

    functions = {
        "test.note": note,
        "test.append": seen.append,
        "test.same": lambda value: value,
        "test.pair": lambda a: (a, a),
        "test.twice": lambda value: 2 * value,
        "test.double": lambda array: np.multiply(array, 2, out=array),
        "test.add": lambda a, b: a + b,
        "test.add_into": lambda a, b, out: np.add(a, b, out=out),
        "test.is_zero": lambda k: np.array(int(k) == 0),
        "test.minus_one": lambda k: k - 1,
        "test.named": lambda *args, **named: (len(args), sorted(named)),
    }
    for name, packed in functions.items():
        register_func(name, packed, override=True)
    sinfo = rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo())
    pair = Closure(lambda a, b: (a, b), sinfo)
    return {
        "ShapeTuple": ShapeTuple,
        "Closure": Closure,
        "R": R,
        "register_func": register_func,
        "remove_global_func": remove_global_func,
        "seen": seen,
        "X": X.copy(),
        "LITERAL": rx.const(X),
        "PAIR": pair,
    }


EVALUATION = sections("""
--- EV-1 EV-3 EV-21: a variable gives the very value bound to it
def main(x: f32[2]):
    y = x
    return y
# holds: main(X) is X
--- EV-2: each evaluation of a constant is a new tensor
def main():
    a = LITERAL
    b = LITERAL
    return a, b, LITERAL
# do: first, second, third = main()
# holds: not np.shares_memory(first, second) and not np.shares_memory(first, third)
# do: first[0] = 7
# holds: main()[0].tolist() == [1, 2]
--- EV-2 VAL-12: a constant that a packed function changes is new the next time
@impure
def main():
    c = LITERAL
    y = R.call_packed("test.double", c)
    return y
# holds: main().tolist() == main().tolist() == [2, 4]
--- EV-4 EV-5 VAL-3: fields of tuples alias their values
def main(x: f32[2]):
    t = (x, (x, R.prim_value(3)))
    y = t[1][0]
    return t, y
# do: (first, (second, three)), y = main(X)
# holds: first is second is y is X and three == 3
--- VAL-4: the empty tuple is a value
def main():
    return ()
# holds: main() == ()
--- EV-6 PX-6 FN-4: a shape is built from the present sizes
def main(x: f32[n, 3]):
    return R.shape([n, n * 2 + 1, 5])
# do: shape = main(ones(4, 3))
# holds: type(shape) is ShapeTuple and shape == (4, 9, 5)
--- EV-7 RES-46 PX-1: a prim value may be computed from sizes
def main(x: f32[n]):
    return (
        R.prim_value(n // 2), R.prim_value(T.truncdiv(n - 10, 2)),
        R.prim_value(T.truncmod(n - 10, 2)), R.prim_value((n - 10) % 4), R.prim_value(T.max(n, 5)),
        R.prim_value(T.Select(n < 4, n, n * 2)), R.prim_value(T.And(n < 4, T.Not(n == n))),
        R.prim_value(T.Cast("float32", n)), R.prim_value(T.Cast("int32", n)),
        R.prim_value(T.if_then_else(n > 2, n, n + 1)),
    )
# do: values = main(zeros(3))
# holds: values == (1, -3, -1, 1, 5, 3, False, 3.0, 3, 3)
# holds: [type(v) for v in values] == [int] * 6 + [bool, np.float32, np.int32, int]
--- PX-3 PX-9: wrong arithmetic of sizes is a run-time error
def divide(x: R.Shape(["n"])):
    return R.shape([8 // n])
def square(x: R.Shape(["n"])):
    return R.shape([n * n])
# holds: divide(ShapeTuple((3,))) == (2,)
# error: divide(ShapeTuple((0,))) -> PX-3: division by zero
# holds: square(ShapeTuple((2**31,))) == (2**62,)
# error: square(ShapeTuple((2**32,))) -> PX-9: outside the range of int64
--- EV-8 EV-10 VAL-5 EV-18: a closure holds references to what it captured
def main(x: f32[2]):
    def f(y: f32[2]):
        return x, y
    r = f(x)
    return f, r
# do: mine = X.copy()
# do: closure, result = main(mine)
# holds: isinstance(closure, Closure)
# holds: result[0] is result[1] is mine
# do: captured, other = closure(X)
# holds: captured is mine and other is X
--- EV-8 PX-10 RES-54: a closure holds the sizes of when it was made
def main(x: f32[n]):
    def f(y: R.Tensor((n,), "float32")):
        return R.shape([n + 1])
    return f
# do: three, four = main(zeros(3)), main(zeros(4))
# holds: three(zeros(3)) == (4,) and four(zeros(4)) == (5,)
# holds: three.struct_info.params == (R.Tensor((3,), "float32"),)
--- VAL-13 VAL-14: opaque objects keep their identity everywhere
@impure
def main(x: R.Object):
    def f(p: R.Object):
        return x
    y = R.call_packed("test.same", x)
    t = (y,)
    z = f(t[0])
    return z, t
# do: opaque = object()
# do: first, [second] = main(opaque)
# holds: first is second is opaque
--- VAL-16: None is the null object
@impure
def main(x: R.Object):
    y = R.call_packed("test.append", x)
    return x, y
# holds: main(None) == (None, None)
# holds: seen == [None]
--- EV-9 VAL-6 EV-12 SC-4: a local function calls itself
@impure
def main(start: R.Object):
    @impure
    def total(k: R.Object) -> R.Object:
        c = R.call_packed("test.is_zero", k, sinfo_args=R.Tensor((), "bool"))
        if c:
            r = k
        else:
            down = R.call_packed("test.minus_one", k)
            rest = total(down)
            r = R.call_packed("test.add", k, rest)
        return r
    result = total(start)
    return result
# holds: main(10) == 55
--- EV-9: a recursive closure can hand itself on
def main():
    def f() -> R.Object:
        return f
    g = f()
    return f, g
# do: closure, handed_on = main()
# holds: closure is handed_on is closure()
--- EV-18 SC-6: the callers' variables are not those of the callee
def other(x: f32[2]):
    return (x,)
def main(x: f32[2]):
    y = cls.other(x)
    return y
# holds: main(X) == (X,)
--- EV-12: an if evaluates one branch
@impure
def main(c: bool):
    if c:
        r = R.call_packed("test.note", R.prim_value(1))
    else:
        r = R.call_packed("test.note", R.prim_value(2))
    return r
# holds: main(np.array(True)) == 1 and seen == [1]
# holds: main(np.array(False)) == 2 and seen == [1, 2]
--- EV-12 RES-24: scalars become conditions
def main(x: f32[n], c: R.Prim("bool")):
    if R.logical_and(n % 3 == 0, R.const(True)):
        a = R.add(x, x)
    else:
        a = R.multiply(x, x)
    if R.logical_and(n > 2, R.const(True)):
        b = R.add(x, x)
    else:
        b = R.multiply(x, x)
    if R.logical_and(c, R.const(True)):
        d = R.add(x, x)
    else:
        d = R.multiply(x, x)
    return a, b, d
# do: def case(n, c): return [float(y[0]) for y in main(3 * ones(n), c)]
# holds: case(1, True) == [9, 9, 6]
# holds: case(3, False) == [6, 6, 9]
# holds: case(4, True) == [9, 6, 6]
--- EV-13 EV-19 FN-12: packed functions are looked up when called
@impure
def main(x: f32[2]):
    y = R.call_packed("test.late", x, x)
    return y
# error: main(X) -> EV-13: 'test.late'
# do: register_func("test.late", lambda *args: args)
# holds: main(X) == (X, X)
# do: register_func("test.late", lambda *args: len(args), override=True)
# holds: main(X) == 2
# do: remove_global_func("test.late")
--- EV-13 VAL-9: a packed function is a value
@impure
def main(x: R.Object):
    f = R.ExternFunc("test.pair")
    y = f(x)
    return y
# holds: main(5) == (5, 5)
--- EV-14: a PrimFunc can be called by its symbol
@T.prim_func
def kernel(a: f32[2], b: f32[2]):
    for i in range(2):
        b[i] = a[i] + T.float32(1)
@impure
def main(x: f32[2], o: f32[2]):
    u = R.call_packed("kernel", x, o)
    return u
# do: out = zeros(2)
# holds: main(X, out) == () and out.tolist() == [2, 3]
--- EV-15 EV-17 NF-17: arguments are evaluated from left to right after the callee
@impure
def main():
    f = R.call_packed("test.note", R.str("callee"), sinfo_args=R.Callable)
    y = f(R.call_packed("test.note", R.str("a")), (
        R.call_packed("test.note", R.str("b")), R.call_packed("test.note", R.str("c"))))
    return y
# holds: main() == ("a", ("b", "c"))
# holds: seen == ["callee", "a", "b", "c"]
--- EV-20 EV-23 RES-53 SC-14: sizes bound in a dataflow block outlive it
def main(x: R.Tensor("float32")):
    n = T.int64()
    with R.dataflow():
        y = R.match_cast(x, R.Tensor((n,), "float32"))
    return R.shape([n])
# holds: main(X) == (2,)
--- OP-5 OP-6 OP-7 OP-4: call_tir allocates its output and gives it
@T.prim_func
def mm(a: T.handle, b: f32[3, 2], c: T.handle):
    m = T.int64()
    A = T.match_buffer(a, (m, 3))
    C = T.match_buffer(c, (m, 2))
    for i, j in T.grid(m, 2):
        C[i, j] = T.float32(0)
        for k in range(3):
            C[i, j] = C[i, j] + A[i, k] * b[k, j]
def main(x: f32[n, 3], w: f32[3, 2]):
    with R.dataflow():
        y = R.call_tir(cls.mm, (x, w), out_sinfo=R.Tensor((n, 2), "float32"))
    return y
# do: W = np.arange(6, dtype="float32").reshape(3, 2)
# holds: all((main(x, W) == x @ W).all() for x in (W[:1] @ W.T, W @ W.T + 1))
--- OP-5 OP-6: several outputs are arguments of their own
@T.prim_func
def split(a: f32[2], s: f32[2], t: i64[1]):
    for i in range(2):
        s[i] = a[i] * T.float32(2)
    t[0] = T.int64(5)
def main(x: f32[2]):
    y = R.call_tir(cls.split, (x,), out_sinfo=[f32[2], i64[1]])
    z = y[1]
    return y, z
# do: (doubled, five), z = main(X)
# holds: doubled.tolist() == [2, 4] and five is z and five.tolist() == [5]
--- TIR variables are passed as scalars
@T.prim_func
def fill(o: i64[2], m: T.int64):
    for i in range(2):
        o[i] = m
def main(x: f32[n]):
    y = R.call_tir(cls.fill, (), out_sinfo=i64[2], tir_vars=[n * 3])
    return y
# holds: main(zeros(5)).tolist() == [15, 15]
--- a tuple variable may hold the inputs
@T.prim_func
def add(a: f32[2], b: f32[2], o: f32[2]):
    for i in range(2):
        o[i] = a[i] + b[i]
def main(t: R.Tuple(f32[2], f32[2])):
    y = R.call_tir(cls.add, t, out_sinfo=f32[2])
    return y
# holds: main((X, X)).tolist() == [2, 4]
--- an input, or a field of one, can be an output in place
@T.prim_func
def bump(a: f32[2]):
    for i in range(2):
        a[i] = a[i] + T.float32(1)
def main(x: f32[2]):
    y = R.call_tir_inplace(cls.bump, (x,), out_sinfo=f32[2], inplace_indices=[0])
    return y
def field(t: R.Tuple(f32[2])):
    y = R.call_tir_inplace(cls.bump, t, out_sinfo=f32[2], inplace_indices=[0])
    return y
# do: mine = X.copy()
# holds: main(mine) is mine and mine.tolist() == [2, 3]
# holds: field((mine,)) is mine and mine.tolist() == [3, 4]
# do: mine.flags.writeable = False
# error: main(mine) -> -: bump: the memory of buffer a is read-only
--- OP-8: outputs that disagree with the kernel are an error
@T.prim_func
def copy(a: f32[2], o: f32[2]):
    for i in range(2):
        o[i] = a[i]
def main(x: f32[n]):
    y = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((n,), "float32"))
    return y
# holds: (main(X) == X).all()
# error: main(zeros(3)) -> FN-5: parameter a of copy
--- OP-9 OP-10: call_dps_packed hands outputs to a packed function
@impure
def main(x: f32[n]):
    y = R.call_dps_packed("test.add_into", (x, x), out_sinfo=R.Tensor((n,), "float32"))
    return y
# holds: main(X).tolist() == [2, 4]
--- PX-9: a negative size cannot be allocated
@T.prim_func
def fill(o: T.handle):
    k = T.int64()
    O = T.match_buffer(o, (k,))
    T.evaluate(0)
def main(x: f32[n]):
    y = R.call_tir(cls.fill, (), out_sinfo=R.Tensor((n - 3,), "float32"))
    return y
# holds: main(zeros(4)).shape == (1,)
# error: main(X) -> PX-9: cannot allocate a .* tensor of shape .-1,
--- closures are invoked by operators too
@impure
def main(f: R.Callable((R.Object, R.Object), R.Object), x: R.Object):
    y = R.invoke_closure(f, (x, x), sinfo_args=R.Object)
    z = R.invoke_pure_closure(f, (x, x), sinfo_args=R.Object)
    return y, z
# holds: main(PAIR, 3) == ((3, 3), (3, 3))
--- call_pure_packed is a call
def main(x: f32[2]):
    y = R.call_pure_packed("test.twice", x, sinfo_args=f32[2])
    return y
# holds: main(X).tolist() == [2, 4]
--- TOP-1 TOP-5 SC-1 SC-2: functions call each other whatever their order
@impure
def even(k: R.Object) -> R.Object:
    c = R.call_packed("test.is_zero", k, sinfo_args=R.Tensor((), "bool"))
    if c:
        r = R.prim_value(1)
    else:
        r = cls.odd(R.call_packed("test.minus_one", k))
    return r
@impure
def odd(k: R.Object) -> R.Object:
    c = R.call_packed("test.is_zero", k, sinfo_args=R.Tensor((), "bool"))
    if c:
        r = R.prim_value(0)
    else:
        r = cls.even(R.call_packed("test.minus_one", k))
    return r
# holds: [even(k) for k in range(4)] == [1, 0, 1, 0]
--- TOP-6: a global function is a value
def other(x: f32[2]):
    return x
def main(x: f32[2]):
    f = cls.other
    y = f(x)
    return f, y
# do: closure, result = main(X)
# holds: isinstance(closure, Closure) and closure(X) is result is X
# error: closure(zeros(2, 2)) -> FN-1: its rank .ndim. is 2
--- deep recursion ends in an error of the program
def loop(x: R.Object) -> R.Object:
    y = cls.loop(x)
    return (y,)
# error: loop(1) -> -: nest deeper than Python allows
--- LEG-15: that a call is pure is not told to the function
def main(x: R.Object):
    y = R.call_pure_packed("test.named", x, axis=1, sinfo_args=R.Object)
    return y
# holds: main(3) == (1, ["axis"])
--- EV-2: a kernel that calls a kernel may write a constant
@T.prim_func
def add(a: f32[2], b: f32[2]):
    for i in range(2):
        a[i] = a[i] + T.float32(1)
        b[i] = a[i]
@T.prim_func
def outer(c: f32[2], d: f32[2]):
    Module.add(c.data, d.data)
def main():
    y = R.call_tir(cls.outer, (LITERAL,), out_sinfo=f32[2])
    return y
# holds: main().tolist() == main().tolist() == [2, 3]
""")


@pytest.mark.rule("EV-1", "EV-3", "EV-21", "EV-2", "VAL-12", "EV-4", "EV-5", "VAL-3", "VAL-4")
@pytest.mark.rule("EV-6", "PX-6", "FN-4", "EV-7", "RES-46", "PX-1", "PX-3", "PX-9", "EV-8")
@pytest.mark.rule("EV-10", "VAL-5", "EV-18", "PX-10", "RES-54", "VAL-13", "VAL-14", "VAL-16")
@pytest.mark.rule("EV-9", "VAL-6", "EV-12", "SC-4", "SC-6", "RES-24", "EV-13", "EV-19", "FN-12")
@pytest.mark.rule("VAL-9", "EV-14", "EV-15", "EV-17", "NF-17", "EV-20", "EV-23", "RES-53")
@pytest.mark.rule("SC-14", "OP-5", "OP-6", "OP-7", "OP-4", "OP-8", "OP-9")
@pytest.mark.rule("OP-10", "TOP-1", "TOP-5", "SC-1", "SC-2", "TOP-6", "LEG-15")
@pytest.mark.parametrize("title", EVALUATION)
def test_evaluation(title: str) -> None:
    run_row(EVALUATION[title], {"reference": 0, "numpy": 0}, given, relax_pipeline=None)


# ---- values and variables


@pytest.mark.rule("EV-7", "VAL-15")
@pytest.mark.parametrize(
    ("expr", "expected", "kind"),
    [
        (rx.PrimValue(3), 3, int),
        (rx.PrimValue(tir.FloatImm("float64", 0.5)), 0.5, float),
        (rx.PrimValue(tir.FloatImm("float32", 0.5)), 0.5, np.float32),
        (rx.PrimValue(tir.FloatImm("float64", float("inf"))), float("inf"), float),
        (rx.PrimValue(tir.IntImm("bool", 1)), True, bool),
        (rx.PrimValue(tir.IntImm("int32", -4)), -4, np.int32),
        (rx.StringImm("a 'quoted' text\n"), "a 'quoted' text\n", str),
        (rx.DataTypeImm("float16"), "float16", DataType),
    ],
)
def test_literals_give_what_they_hold(build, expr, expected, kind) -> None:
    value = build(main=function([], [], expr))["main"]()
    assert value == expected
    assert type(value) is kind


# ---- functions


@pytest.mark.rule("EV-11")
def test_a_closure_does_not_capture_dataflow_vars(build: Compile) -> None:
    x, y, f, r = rx.Var("x", F2), rx.DataflowVar("y", F2), rx.Var("f"), rx.Var("r")
    inner = function([], [], y, name=None)
    main = function([x], [(y, x), (f, inner), (r, rx.Call(f, ()))], r, dataflow=True)
    with pytest.raises((RuntimeCheckError, CompileError), match="variable y is not bound here"):
        build(main=main)["main"](X)


@pytest.mark.rule("EV-12", "RES-24")
@pytest.mark.parametrize("value", [np.array([True]), np.array(1), 1, True, None])
def test_a_condition_is_a_boolean_of_rank_0(build: Compile, value: object) -> None:
    c, r = rx.Var("c"), rx.Var("r")
    branch = rx.If(c, seq(rx.PrimValue(1)), seq(rx.PrimValue(0)))
    ex = build(main=function([c], [(r, branch)], r))
    assert ex["main"](np.array(True)) == 1
    with pytest.raises(RuntimeCheckError, match="a condition is a Boolean tensor of rank 0"):
        ex["main"](value)


@pytest.mark.rule("EV-19", "DER-29")
def test_a_packed_function_that_is_a_value_gets_attributes_and_has_the_declared_result(build):
    register_func("test.three", lambda **attrs: 3 + attrs["more"])
    f, y, scalar = rx.Var("f"), rx.Var("y"), tensor((), "int64")
    call = rx.Call(f, (), {"more": 1}, (scalar,))
    ex = build(main=function([], [(f, rx.ExternFunc("test.three")), (y, call)], y, pure=False))
    result = ex["main"]()
    assert isinstance(result, np.ndarray)
    assert result == 4


@pytest.mark.rule("EV-23", "SC-7")
def test_a_dataflow_var_is_gone_after_its_block() -> None:
    x, y = rx.Var("x", F2), rx.DataflowVar("y", F2)
    ex = compile(
        module(main=function([x], [(y, x)], y, dataflow=True)), "reference", relax_pipeline=None
    )
    with pytest.raises(RuntimeCheckError, match="variable y is not bound here"):
        ex["main"](X)


@pytest.mark.rule("EV-27", "VAL-10")
def test_a_prim_func_is_a_value_and_can_be_called(build: Compile) -> None:
    gv = rx.GlobalVar("add_one")
    x, o, f, u = rx.Var("x", F2), rx.Var("o", F2), rx.Var("f"), rx.Var("u")
    main = function([x, o], [(f, gv), (u, rx.Call(f, (x, o)))], rx.Tuple((f, u)), pure=False)
    kernel, unit = (ex := build(IRModule({gv: add_one(), "main": main})))["main"](
        X, out := np.zeros(2, "float32")
    )
    assert isinstance(kernel, PrimFuncValue)
    assert unit == ()
    np.testing.assert_array_equal(out, X + 1)
    with pytest.raises(RuntimeCheckError, match="takes 2 arguments, found 1"):
        kernel(X)
    with pytest.raises(RuntimeCheckError, match="O"):
        kernel(X, np.zeros(3, "float32"))
    assert ex["add_one"](X, out) == ()


@pytest.mark.rule("EV-27", "VAL-10")
@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        *((dtype, f"T.{dtype}(2.5)", 2.5) for dtype in ("float16", "float32", "float64")),
        *((dtype, f"T.{dtype}({n})", n) for dtype in ("int32", "uint8", "int64") for n in (0, 3)),
        ("bool", "T.bool(False)", False),
        ("bool", "T.bool(True)", True),
        ("int64", "m", 5),
        ("int64", "m + 1", 6),
        ("bool", "m < 4", False),
        ("float32", 'T.Cast("float32", m)', 5),
    ],
)
def test_a_prim_func_is_called_directly_with_scalars_of_all_kinds(
    target: str, dtype: str, scalar: str, expected: float
) -> None:
    mod = from_source(f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def fill(O: T.Buffer((3,), "{dtype}"), v: T.{dtype}):
        for i in range(3):
            O[i] = v

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")):
        m = T.int64()
        y = R.zeros((3,), "{dtype}")
        _ = Module.fill(y, R.prim_value({scalar}))
        return y
""")
    result = compile(mod, target)["main"](np.zeros(5, "float32"))
    np.testing.assert_array_equal(result, np.full(3, expected, dtype))


@pytest.mark.rule("EV-27")
def test_a_prim_func_gives_what_it_returns(build: Compile) -> None:
    v = tir.Var("v", "int64")
    square = prim_func([v], st.Evaluate(intrin.ret(tir.Mul(v, v))), "square", ret_type="int64")
    gv, x, y = rx.GlobalVar("square"), rx.Var("x", rx.PrimStructInfo("int64")), rx.Var("y")
    main = function([x], [(y, rx.Call(gv, (x,)))], y, pure=False)
    result = build(IRModule({gv: square, "main": main}))["main"](7)
    assert result == 49
    assert type(result) is int


@pytest.mark.rule("EV-17")
def test_what_is_not_a_function_cannot_be_called(build: Compile) -> None:
    f = rx.Var("f")
    ex = build(main=function([f], [], rx.Call(f, ()), pure=False))
    assert ex["main"](lambda: 5) == 5
    with pytest.raises(RuntimeCheckError, match=r"a float32 tensor of shape .* cannot be called"):
        ex["main"](X)


@pytest.mark.rule("EV-5")
def test_a_missing_field_is_named(build: Compile) -> None:
    t = rx.Var("t")
    ex = build(main=function([t], [], rx.TupleGetItem(t, 1)))
    assert ex["main"]((1, 2)) == 2
    with pytest.raises(RuntimeCheckError, match="a tuple of 1 field has no field 1"):
        ex["main"]((1,))
    with pytest.raises(RuntimeCheckError, match=r"the shape \(1, 2\) has no field 1"):
        ex["main"](ShapeTuple((1, 2)))


# ---- calls of kernels


@pytest.mark.rule("OP-8")
def test_an_input_of_unknown_shape_is_checked_against_the_kernel(build: Compile) -> None:
    gv, x = rx.GlobalVar("mm"), rx.Var("x")
    y, w, n = rx.Var("y"), rx.Var("w"), size_var("n")
    mm = matmul(size_var("a"), size_var("b"), size_var("c"), "mm")
    main = function([x, w], [(y, call_tir(gv, [x, w], tensor((2, 2))))], y)
    ex = build(IRModule({gv: mm, "main": main}))
    a = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(ex["main"](a, a.T), a @ a.T)
    for wrong in (a, a.astype("float64").T, a[0], None, a.T[:, :1]):
        with pytest.raises(RuntimeCheckError, match=r"mm|O|C|B"):
            ex["main"](a, wrong)


def test_sizes_of_a_kernel_may_be_32_bit(build: Compile) -> None:
    n, m = tir.Var("n", "int32"), size_var("m")
    func = elementwise((n, tir.Add(n, tir.IntImm("int32", 1))), lambda v: v * 2.0, "twice")
    gv, x = rx.GlobalVar("twice"), rx.Var("x", tensor((m, m + 1)))
    main = function([x], [], call_tir(gv, [x], tensor((m, m + 1))))
    a = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(build(IRModule({gv: func, "main": main}))["main"](a), a * 2)


@pytest.mark.rule("OP-1")
def test_call_tir_calls_a_prim_func_of_the_module(build: Compile) -> None:
    other, x, y = rx.GlobalVar("other"), rx.Var("x", F2), rx.Var("y", F2)
    functions = {
        other: function([y], [], y, name="other"),
        "main": function([x], [], call_tir(other, [x], F2)),
    }
    with pytest.raises((RuntimeCheckError, CompileError), match="call_tir calls a PrimFunc"):
        build(IRModule(functions))["main"](X)


@pytest.mark.rule("OP-3", "OP-11")
def test_an_output_without_datatype_or_shape_is_refused(build: Compile) -> None:
    gv, x = rx.GlobalVar("add_one"), rx.Var("x", F2)
    for sinfo in (rx.TensorStructInfo(None, "float32"), tensor((2,), ""), rx.ObjectStructInfo()):
        main = function([x], [], call_tir(gv, [x], sinfo))
        with pytest.raises(CompileError, match="needs a datatype and a shape"):
            build(IRModule({gv: add_one(), "main": main}))["main"](X)


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize(
    "shape", [(2**50,), (2**20, 2**40), (2**31, 2**31), (0, 2**62, 2**62), (1,) * 80]
)
def test_memory_that_there_is_not_cannot_be_allocated(build, shape) -> None:
    gv = rx.GlobalVar("fill")
    func = prim_func([buffer(shape, "O")], st.Evaluate(tir.IntImm("int32", 0)), "fill")
    ex = build(IRModule({gv: func, "main": function([], [], call_tir(gv, [], tensor(shape)))}))
    with pytest.raises(RuntimeCheckError, match="cannot allocate"):
        ex["main"]()


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("shape", [(2**62, 2), (0, 2**62, 2**62), (2**63 - 1,) * 40])
def test_tensors_that_no_memory_holds_are_compiled(shape: tuple[int, ...], target: str) -> None:
    """What is declared, and never made, does no harm; what is made is an error when it is."""
    mod = from_source(f"""
        @I.ir_module
        class M:
            @T.prim_func
            def kernel(A: T.Buffer({shape}, "int64")):
                T.evaluate(0)

            @R.function
            def same(x: R.Tensor({shape}, "int64")):
                return R.add(x, x)

            @R.function
            def product(x: R.Tensor({shape[-2:]}, "int64")):
                return R.matmul(x, R.permute_dims(x))

            @R.function
            def zeros():
                return R.zeros({shape}, "int64")
    """)
    ex = compile(mod, target=target)
    for name in ("kernel", "same", "product"):
        with pytest.raises(RuntimeCheckError, match=str(max(shape))):
            ex[name](np.zeros(4, "int64"))
    with pytest.raises(RuntimeCheckError, match="cannot allocate"):
        ex["zeros"]()


def test_constants_that_kernels_only_read_are_not_copied() -> None:
    gv, y = rx.GlobalVar("add_one"), rx.Var("y")
    literal = rx.const(X)
    main = function([], [(y, call_tir(gv, [literal], F2))], y)
    ex = compile(IRModule({gv: add_one(), "main": main}), relax_pipeline="legalize")
    assert "copy" not in ex.source.split("def main")[1]
    np.testing.assert_array_equal(ex["main"](), X + 1)


# ---- operators that run as they stand


@pytest.mark.rule("OP-12", "OP-14", "OP-15")
def test_operators_without_mathematics(build: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    x, s, z, p = rx.Var("x", F2), rx.Var("s"), rx.Var("z"), rx.Var("p")
    t, back = rx.Var("t"), rx.Var("back")
    ex = build(
        main=function(
            [x],
            [
                (s, op("shape_of", x)),
                (z, op("null_value")),
                (t, op("shape_to_tensor", s)),
                (back, op("tensor_to_shape", t)),
                (p, op("print", x, s, format="{} has shape {}")),
                (rx.Var("q"), op("print", rx.PrimValue(3), rx.StringImm("a"))),
            ],
            rx.Tuple((s, z, t, back, p)),
            pure=False,
        )
    )
    shape, null, as_tensor, again, unit = ex["main"](X)
    assert type(shape) is ShapeTuple
    assert shape == again == (2,)
    assert null is None
    assert as_tensor.tolist() == [2]
    assert as_tensor.dtype == np.int64
    assert unit == ()
    assert capsys.readouterr().out == "[1. 2.] has shape [2]\n3 a\n"


def test_assert_op_stops_the_program(build: Compile) -> None:
    c = rx.Var("c", tensor((), "bool"))
    check = op("assert_op", c, rx.PrimValue(3), format="it is {}")
    ex = build(main=function([c], [(rx.Var("u"), check)], c, pure=False))
    assert ex["main"](np.array(True))
    with pytest.raises(AssertionFailedError, match="Assertion Failed: it is 3") as caught:
        ex["main"](np.array(False))
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, RuntimeCheckError)


@pytest.mark.rule("OP-12")
@pytest.mark.parametrize("value", [ShapeTuple((1,)), 3, None])
def test_shape_of_takes_a_tensor(build: Compile, value: object) -> None:
    x = rx.Var("x")
    ex = build(main=function([x], [], op("shape_of", x)))
    with pytest.raises(RuntimeCheckError, match="shape_of takes a tensor, found"):
        ex["main"](value)


@pytest.mark.rule("OP-16")
def test_operators_without_a_lowering_are_all_named(build: Compile) -> None:
    x = rx.Var("x", F2)
    body = rx.Tuple((op("no_such_op", x), op("another", x)))
    with pytest.raises(CompileError) as caught:
        build(main=function([x], [], body))
    text = str(caught.value)
    assert "operator relax.no_such_op has no lowering (in main)" in text
    assert "operator relax.another has no lowering" in text


# ---- modules


@pytest.mark.rule("SC-1")
def test_a_missing_global_function_is_named(build: Compile) -> None:
    call = rx.Call(rx.GlobalVar("gone"), ())
    with pytest.raises(CompileError, match="main uses the global function gone, which the module"):
        build(main=function([], [], call))


def test_names_that_python_keeps_for_itself_are_no_trouble(build: Compile) -> None:
    hints = ["class", "np", "rx", "x", "x", "größe", "1", "__a", "float32", "main", "print"]
    params = [rx.Var(h, F2) for h in hints]
    ex = build(
        main=function(
            params, [], rx.Tuple(tuple(params)), ret=rx.TupleStructInfo((F2,) * len(hints))
        )
    )
    arrays = [np.full(2, i, "float32") for i in range(len(hints))]
    assert all(a is b for a, b in zip(ex["main"](*arrays), arrays, strict=True))


# ---- what is left as it is: IR that no pipeline has seen


@pytest.mark.rule("MC-10", "RES-31")
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(0.5, "float64"), (np.float32(-0.5), "float32"), (True, "bool"), (np.uint64(2**63), "uint64")],
)
def test_a_scalar_variable_holds_the_scalar_of_its_datatype(build, value, dtype) -> None:
    p, x, y = tir.Var("p", dtype), rx.Var("x", rx.PrimStructInfo(value=tir.Var("q", dtype))), None
    as_param = rx.Var("x", rx.PrimStructInfo(value=p))
    cast = rx.MatchCast(y, x, rx.PrimStructInfo(value=p))
    for params, bindings in (([as_param], []), ([x], [cast])):
        found = build(main=function(params, bindings, rx.PrimValue(p)))["main"](value)
        assert found == value
        assert type(found) is type(value)


@pytest.mark.rule("EV-23", "EV-20")
def test_sizes_of_an_inner_sequence_end_with_it(build: Compile) -> None:
    k, x, y = size_var("k"), rx.Var("x"), rx.Var("y")
    cast = rx.MatchCast(rx.Var("a"), x, tensor((k,)))
    inner = rx.SeqExpr((rx.BindingBlock((cast,)),), x)
    steps = [(rx.Var("z"), inner), rx.MatchCast(rx.Var("b"), y, tensor((k,)))]
    ex = build(main=function([x, y], steps, rx.ShapeExpr((k,))))
    assert ex["main"](X, np.zeros(3, "float32")) == (3,)


@pytest.mark.rule("EV-9", "EV-11")
def test_a_closure_under_a_dataflow_var_holds_itself_and_no_other(build: Compile) -> None:
    x, f, g, r = rx.Var("x"), rx.DataflowVar("f"), rx.Var("g"), rx.Var("r")
    own = function([], [], f, name=None)
    main = function([x], [(f, own), (r, rx.Call(f, ()))], r, dataflow=True)
    assert isinstance(build(main=main)["main"](X), Closure)
    other = function([], [], rx.Call(f, ()), name=None)
    steps = [(f, own), (g, other), (r, rx.Call(g, ()))]
    with pytest.raises((RuntimeCheckError, CompileError), match="variable f is not bound here"):
        build(main=function([x], steps, r, dataflow=True))["main"](X)


@pytest.mark.rule("EV-15", "EV-17", "LEG-32")
def test_what_can_fail_is_evaluated_before_what_follows_it(build: Compile) -> None:
    seen: list[object] = []
    register_func("test.note", lambda v: seen.append(v) or v)
    n, m = size_var("n"), size_var("m")
    s = rx.Var("s", rx.ShapeStructInfo((n, m)))
    quotient, note = rx.PrimValue(tir.FloorDiv(n, m)), packed_call("test.note", rx.PrimValue(1))
    after_quotient = (packed_call("test.note", quotient, note), rx.Tuple((quotient, note)))
    for expr in after_quotient:
        with pytest.raises(RuntimeCheckError, match="division by zero"):
            build(main=function([s], [], expr, pure=False))["main"](ShapeTuple((3, 0)))
    with pytest.raises(UnknownPackedFuncError):
        build(main=function([s], [], packed_call("test.none", note), pure=False))["main"](
            ShapeTuple((3, 0))
        )
    assert seen == []
    negative = rx.Call(
        Op("relax.call_dps_packed"),
        (rx.ExternFunc("test.none"), rx.Tuple(())),
        sinfo_args=(tensor((n - 5,)),),
    )
    with pytest.raises(UnknownPackedFuncError):
        build(main=function([s], [], negative, pure=False))["main"](ShapeTuple((3, 0)))
    fill = prim_func(
        [buffer((size_var("k"),), "O"), size_var("v")], st.Evaluate(tir.IntImm("int32", 0)), "fill"
    )
    gv = rx.GlobalVar("fill")
    call = call_tir(gv, [], tensor((n - 5,)), [tir.FloorDiv(n, m)])
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        build(IRModule({gv: fill, "main": function([s], [], call)}))["main"](ShapeTuple((3, 0)))


@pytest.mark.rule("OP-2", "OP-5")
def test_what_was_said_to_be_a_shape_or_tuple_must_be_one(build: Compile) -> None:
    register_func("test.any", lambda value: value)
    gv, x, s = rx.GlobalVar("fill"), rx.Var("x"), rx.Var("s", rx.ShapeStructInfo(ndim=1))
    fill = prim_func([buffer((size_var("k"),), "O")], st.Evaluate(tir.IntImm("int32", 0)), "fill")
    out = rx.TensorStructInfo(s, "float32")
    steps = [(s, packed_call("test.any", x))]
    ex = build(
        IRModule({gv: fill, "main": function([x], steps, call_tir(gv, [], out), pure=False)})
    )
    assert ex["main"](ShapeTuple((3,))).shape == (3,)
    for wrong in (3, None, (3,)):
        with pytest.raises(RuntimeCheckError, match="expected a shape, found"):
            ex["main"](wrong)
    f, t = rx.Var("f"), rx.Var("t")
    ex = build(main=function([f, t], [], op("invoke_closure", f, t), pure=False))
    sinfo = rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo())
    pair = Closure(lambda a, b: (a, b), sinfo)
    assert ex["main"](pair, (1, 2)) == (1, 2)
    for unfit in (X, ShapeTuple((1, 2)), 3):
        with pytest.raises(RuntimeCheckError, match="the arguments are a tuple, found"):
            ex["main"](pair, unfit)


def in_place(args: rx.Expr) -> IRModule:
    a, i, gv = buffer((2,), "A"), size_var("i"), rx.GlobalVar("bump")
    zero = tir.IntImm("int64", 0)
    body = st.For(i, zero, 2, st.ForKind.SERIAL, st.BufferStore(a, a[i] + 1.0, (i,)))
    call = rx.Call(Op("relax.call_tir_inplace"), (gv, args), {"inplace_indices": (0,)}, (F2,))
    params = [v for v in (args, *getattr(args, "fields", ())) if isinstance(v, rx.Var)]
    return IRModule({gv: prim_func([a], body, "bump"), "main": function(params, [], call)})


@pytest.mark.rule("EV-2")
def test_a_constant_can_be_an_output_in_place(build: Compile) -> None:
    ex = build(in_place(rx.Tuple((rx.const(X),))))
    first, second = ex["main"](), ex["main"]()
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X + 1)
    assert not np.shares_memory(first, second)


@pytest.mark.rule("FN-11")
@pytest.mark.parametrize("count", [0, 2])
def test_a_kernel_takes_as_many_arguments_as_it_has_parameters(build: Compile, count: int) -> None:
    gv, t = rx.GlobalVar("add_one"), rx.Var("t", rx.TupleStructInfo((F2,) * count))
    args = (rx.Tuple((rx.const(X),) * count), t)
    for arg in args:
        params = [arg] if isinstance(arg, rx.Var) else []
        call = rx.Call(Op("relax.call_tir"), (gv, arg), sinfo_args=(F2,))
        ex = build(IRModule({gv: add_one(), "main": function(params, [], call)}))
        with pytest.raises(RuntimeCheckError, match=f"takes 2 arguments, found {count + 1}"):
            ex["main"](*[(X,) * count for _ in params])


def test_memory_that_cannot_be_written_is_refused(build: Compile) -> None:
    ex = build(in_place(rx.Tuple((rx.Var("x", F2),))))
    fixed = X.copy()
    fixed.flags.writeable = False
    for name in ("main", "bump"):
        with pytest.raises(RuntimeCheckError, match="bump: the memory of buffer A is read-only"):
            ex[name](fixed)

    @T.prim_func
    def fill(out: T.handle):
        Filled = T.match_buffer(out, (2,), "float32")
        Filled[0] = T.float32(1)

    with pytest.raises(RuntimeCheckError, match="fill: the memory of buffer Filled is read-only"):
        build(IRModule({"fill": fill}))["fill"](fixed)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(
    "call",
    [
        op("shape_of"),
        op("null_value", rx.PrimValue(1)),
        op("print", rx.PrimValue(1), colour="red"),
        op("print", rx.PrimValue(1), **{"format=exit(), b": "x"}),
        op("call_tir"),
        op("invoke_closure", rx.PrimValue(1)),
    ],
)
def test_operands_and_attributes_that_an_operator_does_not_have_are_refused(build, call) -> None:
    with pytest.raises(CompileError, match=rf"{call.op.name}.* \(in main\)"):
        build(main=function([], [], call, pure=False))


def test_values_are_printed_with_the_settings_of_the_caller(build: Compile) -> None:
    """Code of users that writes them sees their context variables."""
    variable: ContextVar[str] = ContextVar("variable")
    seen = []

    class Shown:
        def __str__(self) -> str:
            seen.append((variable.get(), np.geterr()["over"]))
            return ""

    gv, x, y, z = rx.GlobalVar("power"), rx.Var("x", F2), rx.Var("y"), rx.Var("z")
    steps = [(z, call_tir(gv, [x], F2)), (rx.Var("u"), op("print", y))]
    mod = IRModule(
        {
            gv: elementwise((2,), lambda v: v * v, "power"),
            "main": function([x, y], steps, z, pure=False),
        }
    )
    variable.set("caller's")
    with np.errstate(over="warn"):
        build(mod)["main"](X, Shown())
    assert seen == [("caller's", "warn")]


@pytest.mark.parametrize(
    "sinfo",
    [
        rx.FuncStructInfo.opaque_func(),
        rx.FuncStructInfo((rx.ObjectStructInfo(),) * 2, rx.ObjectStructInfo()),
    ],
)
def test_a_function_with_the_struct_info_of_another_is_called_by_its_signature(build, sinfo):
    x, y, gv = rx.Var("x"), rx.Var("y", F2), rx.GlobalVar("inner")
    inner = rx.Function((y,), seq(y), F2, struct_info=sinfo)
    ex = build(IRModule({gv: inner, "main": function([x], [], rx.Tuple((gv, rx.Call(gv, (x,)))))}))
    closure, result = ex["main"](X)
    assert result is X
    assert closure(X) is X
    assert closure.struct_info == rx.FuncStructInfo((F2,), F2)
