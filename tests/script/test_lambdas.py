"""Lambdas of a text: read where they are called, with the names where they are written."""

import pytest

from relaxpy.errors import ParseError
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source, relax as R, tir as T

MACROS = """
@R.macro
def scaled(v, scale):
    K = R.const(2.0)
    return scale(v)

@R.macro
def twice(v, scale):
    K = R.const(5.0)
    first = scaled(v, scale)
    return scaled(first, lambda w: R.multiply(w, K))
"""


def test_a_lambda_given_to_a_macro_keeps_the_names_of_its_place() -> None:
    K = 2.0

    @R.macro
    def scaled(v, scale):
        K = 7.0
        y = scale(v)
        return y

    K = 3.0

    @R.function
    def given(x: R.Tensor((4,), "float32")):
        y = scaled(x, lambda v: v * R.const(K))
        return y

    assert "R.const(3.0" in given.script()
    assert "R.multiply(x, R.const(7.0" not in given.script()


def test_a_lambda_in_a_kernel_macro_sees_the_loops_of_its_place() -> None:
    @T.macro
    def store(B, value):
        for i in range(2):
            B[i] = value(i)

    @T.prim_func
    def given(B: T.Buffer((2,), "int32"), C: T.Buffer((8, 2), "int32")):
        for i in range(8):
            store(B, lambda k: k * 10 + i)  # noqa: B023

    @T.prim_func
    def written(B: T.Buffer((2,), "int32"), C: T.Buffer((8, 2), "int32")):
        for i in range(8):
            for k in range(2):
                B[k] = k * 10 + i

    assert_structural_equal(
        given.without_attr("global_symbol"), written.without_attr("global_symbol")
    )


def test_errors_in_a_lambda_point_into_it_wherever_it_is_called() -> None:
    text = (
        MACROS
        + """
@R.function
def f(x: R.Tensor((4,), "float32")):
    y = scaled(x, lambda v: R.add(v, missing))
    return y
"""
    )
    with pytest.raises(ParseError) as caught:
        from_source(text)
    span = caught.value.diagnostic.span
    line = text.split("\n")[span.line - 1]
    assert line[span.column - 1 : span.end_column - 1] == "missing"


@pytest.mark.parametrize("decorated", ["R.function", "T.prim_func"])
def test_a_lambda_gets_no_name(decorated: str) -> None:
    text = f"@{decorated}\ndef f():\n    g = lambda v: v\n    return 0\n"
    with pytest.raises(ParseError, match="a lambda has no name in a program"):
        from_source(text)


def test_a_class_inside_a_function_is_refused() -> None:
    with pytest.raises(ParseError, match="class is not part of Relax"):

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            class C:
                pass

            return x


def test_a_lambda_takes_arguments_by_name() -> None:
    text = "@R.function\ndef f(x: R.Tensor):\n    return (lambda a, b: R.subtract(b, a))({})\n"
    by_name, in_order = (
        from_source(text.format(args)) for args in ("x, b=R.exp(x)", "x, R.exp(x)")
    )
    assert_structural_equal(by_name, in_order)
    for args in ("x, a=x", "x, c=x"):
        with pytest.raises(ParseError, match=r"this takes no keyword argument '[ac]' here"):
            from_source(text.format(args))
    with pytest.raises(ParseError, match="this takes 2 arguments, found 3"):
        from_source(text.format("x, x, b=x"))
