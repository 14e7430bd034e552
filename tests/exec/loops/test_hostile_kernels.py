"""Kernels and arguments that nobody should write: an error with a position, on every target."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import (
    CompileError,
    ParseError,
    RelaxpyError,
    RuntimeCheckError,
    UnknownPackedFuncError,
)
from relaxpy.script import from_source
from relaxpy.tir import Call, Evaluate, FloatImm, PrimFunc

every_target = pytest.mark.parametrize("target", ["reference", "numpy", "native"])


def kernel(body: str, signature: str = 'B: T.Buffer((1,), "float64")') -> PrimFunc:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    func = from_source(f"@T.prim_func\ndef f({signature}):\n{lines}")
    assert isinstance(func, PrimFunc)
    return func


def error_of(func: PrimFunc, target: str, *args: Any) -> RelaxpyError:
    """The error of compiling or calling, which has a position."""
    with pytest.raises(RelaxpyError) as caught:
        relaxpy.compile(func, target=target)["f"](*args)
    assert "<string>:" in str(caught.value)
    return caught.value


class Strange:
    """An object without a shape."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@every_target
@pytest.mark.parametrize(
    "value",
    [Strange(), types, relax.const(1.0), relax.Var("x", None), [1.0], b"1", len],
    ids=lambda value: type(value).__name__,
)
def test_an_argument_that_is_not_an_array(value: object, target: str) -> None:
    func = kernel("n = T.int64()\nA = T.match_buffer(a, (n,), 'float32')\nA[0] = 1", "a: T.handle")
    assert isinstance(error_of(func, target, value), RuntimeCheckError)


@every_target
@pytest.mark.parametrize(("dtype", "most"), [("int8", 127), ("uint8", 255), ("int16", 32767)])
@pytest.mark.rule("PX-9")
def test_a_dimension_fits_the_datatype_of_its_variable(dtype: str, most: int, target: str) -> None:
    text = f"n = T.{dtype}()\nA = T.match_buffer(a, (n,), 'int8')\nB[0] = T.Cast('float64', n)"
    func = kernel(text, 'a: T.handle, B: T.Buffer((1,), "float64")')
    out = np.zeros(1)
    relaxpy.compile(func, target=target)["f"](np.zeros(most, "int8"), out)
    assert out[0] == most
    found = error_of(func, target, np.zeros(most + 1, "int8"), out)
    assert f"the argument for n is outside the range of {dtype}" in str(found)


@every_target
def test_a_dimension_of_32_bits(target: str) -> None:
    text = "n = T.int32()\nA = T.match_buffer(a, (n,), 'int8')\nB[0] = T.Cast('float64', n)"
    func = kernel(text, 'a: T.handle, B: T.Buffer((1,), "float64")')
    many = np.broadcast_to(np.zeros(1, "int8"), (1 << 32,))
    assert "outside the range of int32" in str(error_of(func, target, many, np.zeros(1)))


@every_target
def test_functions_of_integers_are_integers(target: str) -> None:
    functions = ["exp(3)", "sqrt(T.int32(2))", "log(T.int64(9))", "tanh(T.int8(1))", "atan2(8, 1)"]
    stores = [f"B[{k}] = T.Cast('float64', T.{call})" for k, call in enumerate(functions)]
    func = kernel("\n".join(stores), 'B: T.Buffer((5,), "float64")')
    out = np.zeros(5)
    relaxpy.compile(func, target=target)["f"](out)
    assert out.tolist() == [20, 1, 2, 0, 1]


def test_the_bits_of_a_float_are_not_counted() -> None:
    with pytest.raises(ParseError, match="popcount needs an integer, found float32"):
        kernel("B[0] = T.Cast('float64', T.popcount(T.float32(3)))")


@every_target
@pytest.mark.parametrize("name", ["popcount", "bitwise_and"])
def test_operations_on_the_bits_of_floats_are_refused(name: str, target: str) -> None:
    count = 1 if name == "popcount" else 2
    call = Call("float32", f"tir.{name}", [FloatImm("float32", 3.0)] * count)
    func = kernel("T.evaluate(0)").with_body(Evaluate(call))
    found = error_of(func, target, np.zeros(1))
    assert isinstance(found, CompileError)
    assert f"tir.{name} takes integers" in str(found)


@every_target
@pytest.mark.parametrize("body", ["pass", "B[0] = T.Broadcast(T.float32(1), 4)"])
def test_buffers_of_vectors_are_refused(body: str, target: str) -> None:
    func = kernel(body, 'B: T.Buffer((4,), "float32x4")')
    assert isinstance(error_of(func, target, np.zeros((4, 4), "float32")), CompileError)


@every_target
@pytest.mark.parametrize("call", ["T.call_extern('int32', 'no.such')", "T.call_packed('no.such')"])
def test_an_unknown_external_function_has_a_position(call: str, target: str) -> None:
    found = error_of(kernel(f"T.evaluate({call})"), target, np.zeros(1))
    assert isinstance(found, UnknownPackedFuncError)
    assert "<string>:3:5:" in str(found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
def test_large_integers_become_floats_if_nothing_is_lost(dtype: str) -> None:
    text = f'@R.function\ndef f(x: R.Tensor((), "{dtype}")):\n    return x\n'
    run = relaxpy.compile(relaxpy.IRModule({"f": from_source(text)}), target="numpy")["f"]
    exact = [1, 2**8] if dtype == "float8_e4m3fn" else [1, 2**63, -(2**63), 2**64]
    for number in exact:
        assert float(run(number)) == number
    for number in (2**63 + 1, 10**30, 10**400, -(10**400)):
        with pytest.raises(RuntimeCheckError, match="parameter x"):
            run(number)


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ("2**63", "a dimension is an integer of 64 bits, found 9223372036854775808"),
        ("T.float32(3)", "a dimension is an integer, found"),
        ("T.bool(True)", "a dimension is an integer, found"),
    ],
)
@pytest.mark.rule("PX-9")
def test_the_caret_is_at_the_dimension(dimension: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        from_source(f"@R.function\ndef f(x: R.Tensor((4, {dimension}))):\n    return x\n")
    assert message in str(caught.value)
    assert "<string>:2:23:" in str(caught.value)
    assert "[PX-9]" in str(caught.value)


def test_a_recursion_without_end_has_a_position() -> None:
    text = """
@I.ir_module
class M:
    @R.function
    def f(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        m = M.f(n)
        return R.add(m, n)
"""
    with pytest.raises(
        RuntimeCheckError, match=r"<string>:5:9: calls or expressions inside f nest deeper"
    ):
        relaxpy.compile(from_source(text), target="reference")["f"](1)


def test_a_loop_that_needs_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux would grant it, and end the process when it is written to."""
    body = 'for i in range(n):\n    A[i % 4] = T.Cast("int32", i)'
    last = relaxpy.compile(kernel(body, 'A: T.Buffer((4,), "int32"), n: T.int64'), target="numpy")
    counts = np.zeros(4, np.int32)
    with pytest.raises(RuntimeCheckError, match="a loop of 1099511627776 iterations needs more"):
        last["f"](counts, 1 << 40)
    monkeypatch.setattr("relaxpy.exec.machine.tuning.NumPy.MANY_POSITIONS", 8)
    monkeypatch.setattr("relaxpy.exec.numpy.runtime.memory_bytes", lambda: 1000)
    last["f"](counts, 10)
    assert counts.tolist() == [8, 9, 6, 7]
    with pytest.raises(RuntimeCheckError, match="a loop of 16 iterations needs more"):
        last["f"](counts, 16)
