"""What tensor functions and reducers say of arguments of the wrong kind."""

import re

import pytest

from relaxpy import te, tir, topi
from relaxpy.errors import MisuseError

X = te.placeholder((3, 1), "float32", "x")
N = te.placeholder((2,), dtype="int32", name="n")


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (topi.exp, (3,), "topi.exp: x is a tensor expression, found 3"),
        (topi.sum, ("x",), "topi.sum: data is a tensor expression, found 'x'"),
        (topi.concatenate, ([X, 3],), "a_tuple is a list of tensor expressions, found [Tensor(x, "),
        (topi.stack, (X,), "topi.stack: tensors is a list of tensor expressions, found Tensor(x, "),
        (topi.reshape, (X, None), "topi.reshape: newshape is a list of scalars, found None"),
        (topi.squeeze, (X, {}), "an axis is an integer, found {}"),
        (topi.full_like, (3, 0), "topi.full_like: x is a tensor expression, found 3"),
        (topi.acosh, (N,), "topi.acosh only supports floating-point inputs, but got int32"),
        (topi.nn.softmax, (None,), "topi.softmax: x is a tensor expression, found None"),
    ],
)
def test_an_argument_of_another_kind_is_named(function, args, message: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(message)):
        function(*args)


def test_arguments_that_are_missing_are_what_python_says_they_are() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        topi.exp()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        topi.exp(X, y=3)


def test_what_fits_is_as_before() -> None:
    assert topi.exp.__name__ == "exp"
    assert [int(n) for n in topi.squeeze(X, 1).shape] == [3]
    assert [int(n) for n in topi.nn.softmax(X).shape] == [3, 1]


def test_reducers_combine_values() -> None:
    n = tir.Var("n", "int32")
    assert str(tir.sum(n, 1)) == "n + 1"
    assert str(tir.max(n, 2, 3)) == "T.max(T.max(n, 2), 3)"
    assert tir.min(1, 2) == 1
    both = te.comm_reducer(lambda a, b: (a[0] + b[0], a[1] * b[1]), lambda *kinds: (0, 1))
    assert str(both((n, 2), (n, 3))) == "(n + n, 6)"
    for wrong in [(n, "x", object()), (object(), object())]:
        with pytest.raises(MisuseError):
            tir.sum(*wrong)


def test_dimensions_that_are_integers_are_those_of_relax() -> None:
    x = te.placeholder((4,), name="x")
    for result in (topi.full((2, 2), "float32", 1), topi.reshape(x, (2, 2))):
        assert [size.dtype for size in result.shape] == ["int64", "int64"]
