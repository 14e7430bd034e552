"""`R.rewriter`: classes that are read as rewriters, and what is wrong with others."""

import pytest

from relaxpy.errors import MisuseError, ParseError, UnknownNameError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.dpl import PatternMatchingRewriter
from relaxpy.script import from_source, ir as I, relax as R, tir as T

SIZE = 16


@R.rewriter
class Double:
    """A sum of two equals is a product."""

    @R.function
    def pattern(A: R.Tensor((SIZE,), "float32")):
        B = A + A
        return B

    @R.function
    def replacement(A: R.Tensor((SIZE,), "float32")):
        return A * R.const(2.0, "float32")


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((16,), "float32")):
        y = x + x
        return y


@I.ir_module
class After:
    @R.function
    def main(x: R.Tensor((16,), "float32")):
        y = x * R.const(2.0, "float32")
        return y


TEXT = """
from relaxpy.script import relax as R

@R.rewriter
class Double:
    @R.function
    def pattern(A: R.Tensor((16,), "float32")):
        return A + A

    @R.function
    def replacement(A: R.Tensor((16,), "float32")):
        return A * R.const(2.0, "float32")
"""


def test_a_decorated_class_is_a_rewriter() -> None:
    assert isinstance(Double, PatternMatchingRewriter)
    assert_structural_equal(Double(Before), After)


def test_a_text_is_a_rewriter() -> None:
    found = from_source(TEXT)
    assert isinstance(found, PatternMatchingRewriter)
    assert_structural_equal(found(Before), After)
    unchecked = from_source(TEXT, check_well_formed=False)
    assert_structural_equal(unchecked(Before), After)


def test_a_class_inside_a_function_is_a_rewriter() -> None:
    size = 16

    @R.rewriter
    class Inside:
        @R.function
        def pattern(A: R.Tensor((size,), "float32")):
            return A + A

        @R.function
        def replacement(A: R.Tensor((size,), "float32")):
            return Inside.twice(A)

        @R.function(private=True)
        def twice(A: R.Tensor((size,), "float32")) -> R.Tensor((size,), "float32"):
            return A * R.const(2.0, "float32")

    after = Inside(Before)
    assert {var.name_hint for var in after} == {"main", "twice"}


def test_options_are_those_of_a_module() -> None:
    @R.rewriter(check_well_formed=False)
    class Loose:
        @R.function
        def pattern(A: R.Tensor((16,), "float32")):
            return A + A

        @R.function
        def replacement(A: R.Tensor((16,), "float32")):
            return A * R.const(2.0, "float32")

    assert_structural_equal(Loose(Before), After)
    with pytest.raises(MisuseError, match="there is no option 'private'"):
        R.rewriter(private=True)


def test_a_missing_function_is_told_at_the_name_of_the_class() -> None:
    with pytest.raises(UnknownNameError) as caught:

        @R.rewriter
        class Incomplete:
            @R.function
            def replacement(A: R.Tensor((16,), "float32")):
                return A

    text = str(caught.value)
    assert isinstance(caught.value, KeyError)
    assert "a rewriter has a function 'pattern'" in text
    assert "        class Incomplete:\n" in text
    assert text.splitlines()[2].strip() == "^" * len("Incomplete")


@pytest.mark.parametrize(
    ("change", "kind", "message", "marked"),
    [
        (("def replacement", "def instead"), KeyError, "a function 'replacement'", "class Double"),
        (("def pattern(A", "def pattern(Z: R.Object, A"), ValueError, "same signature", "def repl"),
        (("A + A", "A"), ValueError, "which anything matches", "def pattern"),
        (("A + A", "A + B"), ParseError, "B", "return A + B"),
    ],
)
def test_what_is_wrong_is_told_where_it_is(change, kind, message, marked) -> None:
    with pytest.raises(kind) as caught:
        from_source(TEXT.replace(*change))
    lines = str(caught.value).splitlines()
    assert message in str(caught.value)
    assert any(marked in line for line in lines)
    assert any(set(line.strip()) == {"^"} for line in lines)


def test_a_kernel_is_not_a_pattern() -> None:
    with pytest.raises(TypeError, match="'pattern' of a rewriter is a Relax function"):

        @R.rewriter
        class Kernel:
            @T.prim_func
            def pattern():
                T.evaluate(0)

            @R.function
            def replacement():
                return R.tuple()


@pytest.mark.parametrize("text", ["@R.rewriter\ndef f(x: R.Object):\n    return x\n"])
def test_a_function_is_not_a_rewriter(text: str) -> None:
    with pytest.raises(ParseError):
        from_source(text)
    with pytest.raises(MisuseError, match=r"R\.rewriter decorates a class, found function"):

        @R.rewriter
        def f(x):
            return x


def test_a_rewriter_is_alone_in_its_text() -> None:
    more = "@R.function\ndef f(x: R.Object):\n    return x\n"
    with pytest.raises(ParseError, match="a rewriter is the only class of its text"):
        from_source(TEXT + more)
