"""Closures that hold arguments, and packed functions called in other ways."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, RuntimeCheckError
from relaxpy.exec.runtime.values import Closure
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, relax as R
from tests.ir.relax.texts import module

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])
CONTEXTS: list[object] = []

Calls = module("""
@private
def pair(x: f32[n], y: f32[m]) -> R.Tuple(f32[n], f32[m]):
    return (x, y)

def closure(y: f32[m]):
    held = R.make_closure(cls.pair, (y,))
    return held

@impure
def invoked(x: f32[2], y: f32[3]):
    held = R.make_closure(cls.pair, (y,))
    a = R.invoke_pure_closure(held, (x,), sinfo_args=(f32[2], f32[3]))
    b = R.invoke_closure(held, (y,))
    return (a, b)

def inplace(x: f32[2], y: f32[2]):
    z = R.call_inplace_packed("test.add_into", x, y, inplace_indices=0, sinfo_args=f32[2])
    return z

@impure
def with_context(x: f32[2]):
    y = R.call_builtin_with_ctx("test.see_context", (x,), sinfo_args=f32[2])
    unit = R.call_builtin_with_ctx("test.see_context", (y,))
    return (y, unit)
""")


class Flags:
    """An array of another library."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.array([True, False])


def see_context(context: object, x: np.ndarray) -> np.ndarray:
    CONTEXTS.append(context)
    return x


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    relaxpy.register_func("test.add_into", lambda x, y: np.add(x, y, out=x))
    relaxpy.register_func("test.see_context", see_context)
    yield
    relaxpy.runtime.remove_global_func("test.add_into")
    relaxpy.runtime.remove_global_func("test.see_context")


X, Y = np.array([1, 2], "float32"), np.array([3, 4, 5], "float32")


@TARGETS
def test_held_arguments_come_last(target: str) -> None:
    (x, y), (again, also) = relaxpy.compile(Calls, target)["invoked"](X, Y)
    assert (x is X, y is Y, again is Y, also is Y) == (True,) * 4


@TARGETS
@pytest.mark.rule("VAL-7", "RES-54")
def test_a_closure_takes_what_it_does_not_hold(target: str) -> None:
    held = relaxpy.compile(Calls, target)["closure"](Y)
    assert isinstance(held, Closure)
    expected = (
        'R.Callable((R.Tensor(("n",), dtype="float32"),), R.Tuple(R.Tensor(("n",), '
        'dtype="float32"), R.Tensor((3,), dtype="float32")), True)'
    )
    assert str(held.struct_info).replace("(n,)", '("n",)') == expected
    with pytest.raises(RuntimeCheckError, match="takes 1 argument, found 2"):
        held(X, X)


@TARGETS
@pytest.mark.rule("FN-1")
def test_a_closure_reads_what_python_calls_it_with(target: str) -> None:
    @R.function
    def main(x: R.Tensor((), "float32")):
        @R.function
        def inner(
            y: R.Tensor((), "int64"), z: R.Prim("float32"), t: R.Tuple(R.Tensor((2,), "bool"))
        ):
            return (x, y, z, t)

        return inner

    executable = relaxpy.compile(main, target)
    inner = executable["main"](1.5)
    flags = Flags()
    for call in (inner, partial(relaxpy.VirtualMachine(executable).invoke_closure, inner)):
        x, y, z, (t,) = call(2, 0.5, [flags])
        assert (x.dtype, y.dtype, t.dtype) == (np.float32, np.int64, np.bool_)
        assert (x[()], y[()], z, t.tolist()) == (1.5, 2, 0.5, [True, False])
        with pytest.raises(
            FunctionSignatureError, match="argument 0 of function 'inner': expected"
        ):
            call(2**70, 0.5, [flags])
        with pytest.raises(FunctionSignatureError, match="parameter y of inner"):
            call(0.5, 0.5, [flags])


@TARGETS
@pytest.mark.rule("FN-1")
def test_what_a_program_calls_a_closure_with_is_a_value_already(target: str) -> None:
    @R.function
    def main():
        @R.function
        def inner(y: R.Tensor((), "int64")):
            return y

        return R.invoke_pure_closure(inner, (R.prim_value(2),), sinfo_args=R.Object)

    with pytest.raises(FunctionSignatureError, match="a prim value is not a tensor"):
        relaxpy.compile(main, target)["main"]()


@TARGETS
def test_a_closure_holds_no_more_than_the_function_takes(target: str) -> None:
    @R.function
    def main(f: R.Object, x: R.Object):
        held = R.make_closure(f, (x, x))
        return held

    run = relaxpy.compile(main, target)["main"]
    one = relaxpy.compile(Calls, target)["closure"](Y)
    with pytest.raises(RuntimeCheckError, match="a function of 1 argument cannot capture 2"):
        run(one, X)
    with pytest.raises(RuntimeCheckError, match="make_closure takes a function, found"):
        run(3, X)
    assert run(lambda *args: args, 1)(0) == (0, 1, 1)


@TARGETS
def test_a_packed_function_may_return_what_it_was_given(target: str) -> None:
    x = X.copy()
    assert relaxpy.compile(Calls, target)["inplace"](x, X) is x
    np.testing.assert_array_equal(x, 2 * X)


@TARGETS
def test_the_context_comes_first(target: str) -> None:
    CONTEXTS.clear()
    assert relaxpy.compile(Calls, target)["with_context"](X) == (X, ())
    assert len(CONTEXTS) == 2
    assert CONTEXTS[0] is CONTEXTS[1] is not None


def test_the_calls_are_read_back() -> None:
    assert_structural_equal(from_source(Calls.script()), Calls)
