"""Strings in kernels are values of `handle`: what takes them reads back, all else refuses them."""

import pytest

from relaxpy.errors import ParseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source
from tests.script.marked import check_marks

KERNEL = """
@T.prim_func
def f(h: T.handle, m: T.int32):
    {}
"""


@pytest.mark.parametrize(
    "statement",
    [
        'z: T.handle = "a"',
        'z = T.StringImm("a")',
        'z = T.if_then_else(T.bool(True), "a", "b")',
        'z = T.if_then_else(m > 1, "a", "b")',
        'with T.LetStmt(T.StringImm("a")) as z:\n        T.evaluate(m)',
        'T.evaluate(T.call_extern("int32", "f", "a"))',
    ],
)
def test_a_string_that_is_a_handle_reads_back(statement: str) -> None:
    func = from_source(KERNEL.format(statement))
    assert_structural_equal(from_source(func.script()), func)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('T.div("a", "b")', 'Div needs numbers, found "a"'),
        ('T.StringImm("a") + "b"', 'Add needs numbers, found "a"'),
        ('T.min("a", "b")', 'Min needs numbers, found "a"'),
        ('T.truncmod("a", "b")', 'Mod needs numbers, found "a"'),
    ],
)
def test_arithmetic_on_strings_is_refused(expression: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        from_source(KERNEL.format(f"z = {expression}"))


def test_a_kernel_does_not_return_a_string() -> None:
    check_marks("""
        @T.prim_func
        def f(h: T.handle):
            return T.StringImm("A")
            #      ^^^^^^^^^^^^^^^^ a kernel returns a scalar, found `"A"` of handle
    """)
    check_marks("""
        @T.prim_func
        def f(h: T.handle):
            T.evaluate(T.ret("A"))
            #                ^^^ a kernel returns a scalar, found 'A'
    """)


def test_an_intrinsic_is_named_by_a_string_or_an_op() -> None:
    check_marks("""
        @T.prim_func
        def f(h: T.handle):
            z = T.call_intrin("float16", T.float32(1))
            #                            ^^^^^^^^^^^^ an intrinsic is an Op or its name, found
            # ... T.float32(1.0)
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,))):
            y = T.call_intrin("float16", R.dtype("int8"))
            #                            ^^^^^^^^^^^^^^^ an intrinsic is an Op or its name, found
            # ... R.dtype("int8")
            return x
    """)
