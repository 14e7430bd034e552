"""Tensors that a statement over buffers fills, by itself or by a registered function."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, te, tir
from relaxpy.errors import MisuseError

TARGETS = pytest.mark.parametrize("target", ["numpy", "reference"])
CALLS: list[int] = []


def counted(value: int) -> int:
    CALLS.append(int(value))
    return value + 1


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    made = {
        "test.double": lambda x, y: np.multiply(x, 2, out=y),  # what it gives is of no interest
        "test.both": lambda x, y, z: (np.negative(x, out=y), np.square(x, out=z)),
        "test.counted": counted,
    }
    for name, function in made.items():
        relaxpy.register_func(name, function)
    yield
    for name in made:
        relaxpy.runtime.remove_global_func(name)


def run(target: str, tensors: list[te.Tensor], *arrays: np.ndarray[Any, Any]) -> None:
    module = IRModule({"main": te.create_prim_func(tensors)})
    relaxpy.compile(module, target)["main"](*arrays)


@TARGETS
def test_a_registered_function_fills_a_tensor_between_stages(target: str) -> None:
    n = te.var("n", "int64")
    a = te.placeholder((n, 4), name="A")
    b = te.extern(
        (n, 4), [a], lambda ins, outs: tir.call_packed("test.double", ins[0], outs[0]), name="B"
    )
    c = te.compute((n, 4), lambda i, j: b[i, j] + 1.0, name="C")
    x = np.arange(12, dtype="float32").reshape(3, 4)
    out = np.zeros_like(x)
    run(target, [a, c], x, out)
    np.testing.assert_array_equal(out, 2 * x + 1)


@TARGETS
def test_a_function_fills_several_tensors(target: str) -> None:
    a = te.placeholder((5,), name="A")
    outs = te.extern(
        [(5,), (5,)], [a], lambda i, o: tir.call_packed("test.both", i[0], *o), dtype="float32"
    )
    assert [t.name for t in outs] == ["extern.v0", "extern.v1"]
    x = np.arange(5, dtype="float32")
    y, z = np.zeros_like(x), np.zeros_like(x)
    run(target, [a, *outs], x, y, z)
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(z, x * x)


@TARGETS
def test_a_statement_fills_a_tensor(target: str) -> None:
    def shifted(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        i = tir.Var("i", "int32")
        value = tir.BufferLoad(ins[0], [i + 1])
        return tir.For(i, 0, 4, tir.ForKind.SERIAL, tir.BufferStore(outs[0], value, [i]))

    a = te.placeholder((5,), "int32", name="A")
    x, out = np.arange(5, dtype="int32"), np.zeros(4, "int32")
    run(target, [a, te.extern((4,), [a], shifted, name="B")], x, out)
    np.testing.assert_array_equal(out, x[1:])


@TARGETS
def test_buffers_of_the_callers_are_taken(target: str) -> None:
    a = te.placeholder((5,), name="A")
    source, goal = tir.decl_buffer((5,), name="S"), tir.decl_buffer((5,), name="G")
    made = te.extern(
        (5,),
        [a],
        lambda i, o: tir.call_packed("test.double", source, goal),
        in_buffers=source,
        out_buffers=[goal],
    )
    x, out = np.arange(5, dtype="float32"), np.zeros(5, "float32")
    run(target, [a, made], x, out)
    np.testing.assert_array_equal(out, 2 * x)


@TARGETS
def test_what_gives_an_argument_is_called_once(target: str) -> None:
    inner = tir.call_packed("test.counted", 3)
    both = tir.call_packed("test.counted", 1) + tir.call_packed("test.counted", 2)
    body = tir.SeqStmt([tir.Evaluate(tir.call_packed("test.counted", inner)), tir.Evaluate(both)])
    func = tir.PrimFunc([], body).with_attr("global_symbol", "main")
    CALLS.clear()
    relaxpy.compile(IRModule({"main": func}), target)["main"]()
    assert CALLS == [3, 4, 1, 2]


def test_what_fills_nothing_is_refused() -> None:
    a, b = te.placeholder((5,), name="A"), te.placeholder((5,), "int8", name="B")
    with pytest.raises(MisuseError, match="the datatype is needed unless all inputs share one"):
        te.extern((5,), [a, b], lambda i, o: tir.Evaluate(0))
    with pytest.raises(MisuseError, match="as many buffers as tensors are needed"):
        te.extern((5,), [a, b], lambda i, o: tir.Evaluate(0), "x", "int8", tir.decl_buffer((5,)))
    for shape, dtype in (((4,), "float32"), ((5, 1), "float32"), ((5,), "int32")):
        wrong = tir.decl_buffer(shape, dtype, "W")
        with pytest.raises(MisuseError, match=r"buffer W is .*, and its tensor float32\[5\]"):
            te.extern((5,), [a], lambda i, o: tir.Evaluate(0), out_buffers=[wrong])
        with pytest.raises(MisuseError, match=r"buffer W is .*, and its tensor float32\[5\]"):
            te.extern((5,), [a], lambda i, o: tir.Evaluate(0), in_buffers=wrong)
    with pytest.raises(MisuseError, match="fcompute returns a statement, found NoneType"):
        te.extern((5,), [a], lambda i, o: None)
    with pytest.raises(MisuseError, match="inputs are a list of tensors, found"):
        te.extern((5,), [3], lambda i, o: tir.Evaluate(0))
    with pytest.raises(MisuseError, match="fcompute is a function of buffers, found 3"):
        te.extern((5,), [a], 3)
