"""Generated programs with effects: what is written, shared and called is the same on both targets.

Memory that is let go or used again must never show: neither in a value that something still holds,
nor in which values share memory, nor in what packed functions see.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from relaxpy.exec.api.compile import compile
from relaxpy.exec.runtime.registry import register_func, remove_global_func
from relaxpy.exec.runtime.values import Value
from relaxpy.ir import IRModule, Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, stmt
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.exec.kernels import buffer, call_tir, elementwise, function, prim_func, size_var, tensor

N = size_var("n")
ROW = tensor((N,))
PAIR = rx.TupleStructInfo((ROW, ROW))
FUNC = rx.FuncStructInfo((ROW,), ROW, False)
FLAG = tensor((), "bool")
OBJECT = rx.ObjectStructInfo()
FIRST = (tir.IntImm("int64", 0),)


def double_in_place() -> PrimFunc:
    k, i = size_var("k"), size_var("i")
    a = buffer((k,), "A")
    body = stmt.BufferStore(a, a[i] * 2.0, (i,))
    return prim_func([a], stmt.For(i, FIRST[0], k, stmt.ForKind.SERIAL, body))


def positive() -> PrimFunc:
    a, out = buffer((size_var("k"),), "A"), buffer((), "P", "bool")
    return prim_func(
        [a, out], stmt.BufferStore(out, tir.GT(a[FIRST], tir.FloatImm("float32", 0.0)), ())
    )


KERNELS = {
    "add": lambda: elementwise((size_var("k"),), lambda a, b: a + b, inputs=2),
    "negate": lambda: elementwise((size_var("k"),), lambda a: a * -1.0),
    "double": double_in_place,
    "positive": positive,
}

log: list[object] = []


def same(x: np.ndarray) -> np.ndarray:
    log.append(("same", x.tolist()))
    return x


def bump(x: np.ndarray) -> None:
    log.append(("bump", x.tolist()))
    x += 1


def add_into(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    log.append(("add", a.tolist(), b.tolist()))
    np.add(a, b, out=out)


PACKED = {"test.same": same, "test.bump": bump, "test.pair": lambda x: (x, x), "test.add": add_into}


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    for name, func in PACKED.items():
        register_func(name, func)
    yield
    for name in PACKED:
        remove_global_func(name)


def extern(name: str, *args: rx.Expr, sinfo: rx.StructInfo = ROW) -> rx.Call:
    return rx.Call(rx.ExternFunc(f"test.{name}"), args, sinfo_args=(sinfo,))


@dataclass
class Writer:
    """Writes one random function; `rows` are the variables that hold tensors of n numbers."""

    data: st.DataObject
    globals: dict[str, rx.GlobalVar]
    rows: list[rx.Var]
    bindings: list[tuple[rx.Var, rx.Expr] | rx.MatchCast] = field(default_factory=list)

    def row(self) -> rx.Var:
        return self.data.draw(st.sampled_from(self.rows))

    def operand(self) -> rx.Expr:
        """A variable, or a literal in its place."""
        if self.data.draw(st.integers(0, 3)):
            return self.row()
        return rx.const(np.array([3.0, -1.0], "float32"))

    def bind(self, value: rx.Expr, sinfo: rx.StructInfo = ROW) -> rx.Var:
        var = rx.Var("v", sinfo)
        self.bindings.append((var, value))
        return var

    def cast(self, value: rx.Expr) -> rx.Var:
        var = rx.Var("c", ROW)
        self.bindings.append(rx.MatchCast(var, value, ROW))
        return var

    def step(self, depth: int) -> None:
        simple = ["same", "bump", "pair", "dps", "add", "negate", "double", "double of tuple"]
        simple += ["constant", "tuple", "alias", "cast", "view"]
        kind = self.data.draw(st.sampled_from(simple + ["if", "closure", "value"] * (depth < 2)))
        match kind:
            case "bump":
                self.bind(extern("bump", self.operand(), sinfo=OBJECT), OBJECT)
            case "if":
                self.rows.append(self.branch(depth))
            case "closure" | "value":
                self.closure(depth, as_value=kind == "value")
            case _:
                self.rows.append(self.simple(kind))

    def simple(self, kind: str) -> rx.Var:
        match kind:
            case "same":
                return self.bind(extern("same", self.operand()))
            case "pair":
                pair = self.bind(extern("pair", self.operand(), sinfo=PAIR), PAIR)
                return self.cast(rx.TupleGetItem(pair, 1))
            case "dps":
                inputs = rx.Tuple((self.operand(), self.operand()))
                op = Op("relax.call_dps_packed")
                return self.bind(
                    rx.Call(op, (rx.ExternFunc("test.add"), inputs), sinfo_args=(ROW,))
                )
            case "add":
                return self.bind(call_tir(self.globals["add"], [self.row(), self.row()], ROW))
            case "negate":
                return self.bind(call_tir(self.globals["negate"], [self.operand()], ROW))
            case "double" | "double of tuple":
                operand = self.operand()
                sinfo = ROW if isinstance(operand, rx.Var) else tensor((2,))
                inputs: rx.Expr = rx.Tuple((operand,))
                if kind != "double":
                    inputs = self.bind(inputs, rx.TupleStructInfo((sinfo,)))
                args, attrs = (self.globals["double"], inputs), {"inplace_indices": (0,)}
                call = rx.Call(Op("relax.call_tir_inplace"), args, attrs, (sinfo,))
                return self.cast(self.bind(call, sinfo))
            case "constant":
                return self.cast(rx.const(np.array([3.0, -1.0], "float32")))
            case "tuple":
                inner = rx.TupleStructInfo((ROW,))
                whole = rx.Tuple((self.row(), rx.Tuple((self.row(),))))
                made = self.bind(whole, rx.TupleStructInfo((ROW, inner)))
                return self.bind(rx.TupleGetItem(made, 0))
            case "view":
                args = (self.row(), rx.ShapeExpr((N,)), rx.DataTypeImm("float32"), rx.PrimValue(0))
                return self.bind(rx.Call(Op("relax.memory.view"), args))
            case "cast":
                return self.cast(self.row())
            case _:
                return self.bind(self.row())

    def inside(self, depth: int, *params: rx.Var) -> "Writer":
        inner = Writer(self.data, self.globals, [*self.rows, *params])
        for _ in range(self.data.draw(st.integers(1, 3))):
            inner.step(depth + 1)
        return inner

    def branch(self, depth: int) -> rx.Var:
        flag = self.bind(call_tir(self.globals["positive"], [self.row()], FLAG), FLAG)
        arms = []
        for _ in range(2):
            inner = self.inside(depth)
            arms.append(function([], inner.bindings, inner.row()).body)
        return self.bind(rx.If(flag, *arms))

    def closure(self, depth: int, *, as_value: bool) -> None:
        param = rx.Var("p", ROW)
        inner = self.inside(depth, param)
        ret = self.data.draw(st.sampled_from([ROW, None]))
        made = function([param], inner.bindings, inner.row(), ret=ret, name=None, pure=False)
        func = self.bind(made, FUNC)
        if as_value:
            held = self.bind(rx.Tuple((func,)), rx.TupleStructInfo((FUNC,)))
            func = self.bind(rx.TupleGetItem(held, 0), FUNC)
        for _ in range(self.data.draw(st.integers(1, 2))):
            self.rows.append(self.bind(rx.Call(func, (self.row(),))))


def write(data: st.DataObject) -> IRModule:
    gvars = {name: rx.GlobalVar(name) for name in KERNELS}
    params = [rx.Var("x", ROW), rx.Var("y", ROW)]
    writer = Writer(data, gvars, list(params))
    for _ in range(data.draw(st.integers(2, 8))):
        writer.step(0)
    main = function(params, writer.bindings, rx.Tuple(tuple(writer.rows)), pure=False)
    return IRModule({**{gvars[name]: make() for name, make in KERNELS.items()}, "main": main})


def outcome(mod: IRModule, target: str, pipeline: str | None) -> tuple[object, ...]:
    """What all tensors hold in the end, which of them share memory, and what was called."""
    log.clear()
    args = [np.array([1.0, -2.0], "float32"), np.array([-1.0, 4.0], "float32")]
    results: Value = compile(mod, target, relax_pipeline=pipeline)["main"](*args)
    tensors = [*args, *results]
    first = [next(i for i, b in enumerate(tensors) if np.shares_memory(a, b)) for a in tensors]
    return [t.tolist() for t in tensors], first, list(log)


@given(st.data())
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.rule("EV-1", "EV-2", "EV-10", "EV-16", "EV-19", "EV-21")
def test_effects_and_aliases_are_those_of_the_rules(data: st.DataObject) -> None:
    mod = write(data)
    expected = outcome(mod, "reference", None)
    assert outcome(mod, "numpy", None) == expected
    assert outcome(mod, "numpy", "default") == expected
