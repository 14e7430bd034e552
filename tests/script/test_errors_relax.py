"""Graph functions that are wrong in more than their bodies: what is reported, and where."""

import re
import textwrap

import pytest

from relaxpy import IRModule
from relaxpy.errors import MisuseError, ParseError, RelaxpyError, StructInfoError, WellFormedError
from relaxpy.script import from_source, relax as R
from tests.rows import sections
from tests.script.marked import check_marks


def from_text(text: str) -> object:
    return from_source(textwrap.dedent(text))


@pytest.mark.parametrize(
    ("statement", "word", "hint"),
    [
        (
            "while True: pass",
            "while",
            "use recursion: a function that calls itself in one branch of an if",
        ),
        (
            "try: pass\n    finally: pass",
            "try",
            "errors of a running program end it; check before with an if",
        ),
        ("import os", "import", "import at the top of the file; its names can be used here"),
        ("class A: pass", "class", "put all functions in the class of one @I.ir_module"),
        ("global x", "global", "return new values instead"),
        ("del x", "del", "values die after their last use by themselves"),
        ("assert x", "assert", "use R.assert_op(condition, message) in an impure function"),
        (
            "x += 1",
            "an augmented assignment",
            "write x = x + 1: variables are bound, never changed",
        ),
        ("raise x", "raise", "use R.assert_op(condition) or T.Assert"),
        ("async def f(): pass", "async def", "programs do not wait for anything"),
        ("match 3:\n        case _: y = x\n    x = y", "match", "use if and else"),
        (
            "match 3:\n        case [a, *b] | {1: 2, **c} as d: x = x\n    x = (a, b, c, d)",
            "match",
            "use if and else",
        ),
    ],
)
def test_a_python_statement_that_is_not_relax_is_named(statement, word, hint) -> None:
    text = f"@R.function\ndef main(x: R.Tensor((4,))):\n    {statement}\n    return x\n"
    with pytest.raises(ParseError) as caught:
        from_source(text)
    [found] = caught.value.diagnostics
    assert found.message == f"{word} is not part of Relax"
    assert found.hint == hint
    assert found.span is not None
    assert (found.span.line, found.span.column) == (3, 5)


@pytest.mark.rule("SI-11", "SI-3", "DT-1", "PX-9")
def test_wrong_arguments_of_an_annotation_are_marked() -> None:
    check_marks("""
        @R.function
        def main(
            a: R.Tensor((4, 4), "flaot32"),
            #                   ^^^^^^^^^ unknown dtype 'flaot32' [DT-1]
            # hint: did you mean 'float32'?
            b: R.Tensor(16, "int8"),
            #           ^^ a shape is a sequence of dimensions or a shape variable, found 16
            # ... [SI-3]
            # hint: write the dimensions in a tuple: (16,)
            c: R.Tensor(ndim=-2),
            #                ^^ ndim is -1 (unknown) or a rank, found -2 [SI-11]
            d: R.Tensor((4,), ndim=1),
            #                      ^ give the shape or ndim, not both
            e: R.Tensor((4, 1.5)),
            #               ^^^ a dimension is an integer expression or a name, found 1.5 [PX-9]
            i: R.Tensor((None, 4)),
            #           ^^^^^^^^^ a dimension is an integer expression or a name, found None [PX-9]
            # hint: give a size that is not known a name, as in "n", or tir.Var("n", "int64")
            j: R.Tensor(("?", 4)),
            #            ^^^ '?' is not an expression
            # hint: give a size that is not known a name, as in "n", or tir.Var("n", "int64")
            h: R.Tensor((4, range)),
            #               ^^^^^ a dimension is an integer expression or a name, found class range
            # ... [PX-9]
            f: 7,
            #  ^ an annotation is a struct info such as R.Tensor, found 7 [AST-5]
            g: R.Prim(),
            #  ^^^^^^^^ R.Prim has a dtype or a value
            k: R.Tensor[(4,), "int8"],
            #           ^^^^^^^^^^^^ R.Tensor is called, found R.Tensor[...]
            # hint: write R.Tensor(...)
        ):
            return a
    """)


@pytest.mark.rule("WF-6a", "WF-4")
def test_a_shape_variable_that_nothing_binds_is_an_error() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("batch + 1", "n"), "float32")):
        #                     ^^^^^^^^^^^ shape variable 'batch' is bound nowhere: it is not
        # ... a whole dimension of any parameter [WF-6a]
        # hint: pass it in by a parameter, as in s: R.Shape(["batch"])
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor(("batch",))) -> R.Tensor(("bacth",)):
        #                                              ^^^^^^^ shape variable 'bacth' of the
        # ... result is bound by no parameter [WF-4]
        # hint: did you mean 'batch'?
            return x
    """)


@pytest.mark.rule("WF-6a", "WF-4", "WF-5a", "WF-2a", "PX-7", "LEG-21", "LEG-24")
def test_a_shape_variable_that_nothing_binds_is_reported_once() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("2 * n",)), y: R.Tensor(("n + 1",))) -> R.Tensor(("n + 1",)):
        #                     ^^^^^^^ shape variable 'n' is bound nowhere: it is not
        # ... a whole dimension of any parameter [WF-6a]
        # hint: pass it in by a parameter, as in s: R.Shape(["n"])
            return R.zeros((n,), "float32")
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor((3,))) -> R.Tensor(("k", "k")):
        #                                        ^^^ shape variable 'k' of the result is bound by
        # ... no parameter [WF-4]
        # hint: use dimensions of the parameters, or an unknown shape: R.Tensor(ndim=...)
            return R.zeros((k, k), "float32")
    """)
    with pytest.raises(WellFormedError) as caught:
        from_text("""
            @R.function
            def main(x: R.Tensor):
                m = T.int64()
                k = T.int64()
                y = R.zeros((m, k), "float32")
                z = R.add(y, y)
                return R.multiply(z, z)
        """)
    found = [(d.rule, d.message) for d in caught.value.diagnostics]
    assert found == [("WF-5a", f"shape variable {name} is bound nowhere") for name in "mk"]


@pytest.mark.rule("PX-9", "DT-1")
def test_a_signature_may_declare_the_dtype_of_a_shape_variable() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n: int32", "n: int64"), "float32")):
            #                             ^^^^^^^^^^ 'n' is int32 already, it cannot be int64 [PX-9]
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n: in32",), "float32")):
            #                 ^^^^^^^^^ unknown dtype 'in32' [DT-1]
            # hint: did you mean 'int32'?
            return x
    """)


@pytest.mark.rule("AST-11")
def test_a_function_has_one_return_at_its_end() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
        #   ^^^^ function 'main' returns nothing [AST-11]
        # hint: end it with `return value`; `return ()` returns unit
            y = x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            return x
            return x
        #   ^^^^^^^^ a function has one return, at its end [AST-11]
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            if c:
                y = x
            else:
                return x
        #       ^^^^^^^^ return belongs at the end of a function, not in a branch [AST-11]
        # hint: bind the same name in both branches and return that after the if
            return x
    """)


@pytest.mark.rule("DER-18", "DER-45")
def test_an_annotation_that_does_not_fit_points_at_the_value() -> None:
    check_marks(
        """
        @R.function
        def main(x: R.Tensor(("n", 5), "float32")) -> R.Tensor(("n", 6), "float32"):
            y: R.Shape = x
            #            ^ y is R.Tensor((n, 5), dtype="float32"), which does not fit its
            # ... annotation R.Shape: a tensor is not a shape [DER-18]
            return x
    """,
        StructInfoError,
    )
    check_marks(
        """
        @R.function
        def main(x: R.Tensor(("n", 5), "float32")) -> R.Tensor(("n", 6), "float32"):
            return x
            #      ^ the result is R.Tensor((n, 5), dtype="float32"), which does not fit its
            # ... annotation R.Tensor((n, 6), dtype="float32"): dimension 1: 5 is not 6 [DER-45]
    """,
        StructInfoError,
    )


def test_too_many_errors_are_cut_short() -> None:
    body = "\n".join(f"    a{i} = b{i}" for i in range(100))
    with pytest.raises(ParseError) as caught:
        from_text(f"@R.function\ndef main(x: R.Tensor):\n{body}\n    return x\n")
    assert len(caught.value.diagnostics) == 20


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("y", NameError, "unknown name 'y'"),
        ("print(x)", NameError, "the built-in name 'print' is not available inside a program"),
        ("lv", NameError, "'lv' is not visible here"),
        ("R.add(x)", TypeError, "argument 'x2' is missing"),
        ("R.add(x, x, x)", TypeError, "R.add takes 2 positional arguments, found 3"),
        ("R.const(2, dtype=5)", TypeError, "expected a dtype, found 5"),
        ("twice(x, x)", TypeError, "twice takes 1 positional argument, found 2"),
        ("R.nothing(x)", ParseError, "R has no attribute 'nothing'"),
    ],
)
def test_every_refusal_is_also_an_error_of_python(value, kind, message) -> None:
    text = f"""
        @R.macro
        def twice(x):
            return x + x

        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                lv = R.abs(x)
                gv = R.exp(lv)
                R.output(gv)
            return {value}
    """
    with pytest.raises(kind, match=re.escape(message)) as caught:
        from_text(text)
    assert isinstance(caught.value, ParseError)
    assert isinstance(caught.value, ValueError)


def test_a_lambda_is_no_function_of_a_program() -> None:
    with pytest.raises(MisuseError, match=r"R\.function decorates a function, found lambda"):
        R.function(lambda x: x)


def test_a_function_that_is_no_operand_is_reported_where_it_is_used() -> None:
    @R.function
    def doubled(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.add(x, x)

    module = IRModule({"doubled": doubled})
    a_function = "found R.Callable"
    for text, column, message, hint in (
        ("R.add(x, doubled)", 21, a_function, "call the function"),
        ("R.concat([x, doubled])", 25, a_function, None),
        ("module.doubled(x)", 19, "has no attribute 'doubled'", 'write module["doubled"]'),
    ):
        with pytest.raises(RelaxpyError) as error:
            from_source(
                f'@R.function\ndef main(x: R.Tensor((2, 3), "float32")):\n    return {text}\n',
                {"R": R, "doubled": doubled, "module": module},
            )
        (diagnostic,) = error.value.diagnostics
        assert message in diagnostic.message
        assert diagnostic.span is not None
        assert (diagnostic.span.line, diagnostic.span.column) == (3, column)
        assert diagnostic.hint == hint


#: Programs with what is said of them, and where.
MARKED = sections(
    """
--- an unknown attribute gets the nearest one
@R.function
def main(x: R.Tensr((4,), "float32")):
#             ^^^^^ R has no attribute 'Tensr'
# hint: did you mean `R.Tensor`?
    return x
--- an unknown attribute gets the nearest one, 2
@R.function
def main(x: R.Tensor((4,), "float32")):
    y = R.shap_of(x)
    #     ^^^^^^^ R has no attribute 'shap_of'
    # hint: did you mean `R.shape_of`?
    m = T.maxx(1, 2)
    #     ^^^^ T has no attribute 'maxx'
    # hint: did you mean `T.max`?
    return y
--- annotations that need each other are errors
@R.function
def main(x: R.Tensor(y), y: R.Tensor(x)):
#                                    ^ unknown name 'x' [WF-2a]
    return x
--- annotations that need each other are errors, 2
@R.function
def main(x: x.Tensor):
#           ^ unknown name 'x' [WF-2a]
    return x
--- annotations that need each other are errors, 3
@T.prim_func
def f(n: n):
#        ^ unknown name 'n'
    T.evaluate(n)
--- a size without quotes or declaration gets them
@R.function
def main(x: R.Tensor((m, 4), "float32")):
#                     ^ unknown name 'm' [PX-7]
# hint: in a signature dimensions are strings: 'm'
    return x
--- a size without quotes or declaration gets them, 2
@R.function
def main(x: R.Tensor(("m", 4), "float32")):
    y = R.match_cast(x, R.Tensor((k, 4), "float32"))
    #                             ^ unknown name 'k' [PX-7]
    # hint: declare a new shape variable before: k = T.int64()
    return y
--- attributes are data
@R.function
def main(x: R.Tensor):
    R.func_attr({"f": lambda: 0})
    #           ^^^^^^^^^^^^^^^^ an attribute is a number, a string, a node, or a list or
    # ... dict of them, found Lambda
    R.func_attr({"a": [1, {2: 3}]})
    #           ^^^^^^^^^^^^^^^^^^ attributes are a dict keyed by strings, found {2: 3}
    R.func_attr({"global_symbol": 3})
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ global_symbol is a string, found 3
    return x
--- attributes are data, 2
@T.prim_func
def f(n: T.int32):
    T.func_attr({"global_symbol": 3})
#   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ global_symbol is a string, found 3
    k: T.int32 = 1.5
    #            ^^^ k is int32, the value is 1.5
    T.evaluate(n)
--- names without their namespace or in another get it
@R.function
def main(x: Tensor((3,), "float32")):
#           ^^^^^^ unknown name 'Tensor' [WF-2a]
# hint: did you mean `R.Tensor` or `T.Tensor`?
    return x
--- names without their namespace or in another get it, 2
@R.function
def main(x: R.Tensor((3,), "float32")):
    y = softmax(x)
    #   ^^^^^^^ unknown name 'softmax' [WF-2a]
    # hint: did you mean `R.nn.softmax`?
    z = self.other(x)
    #   ^^^^ unknown name 'self' [WF-2a]
    # hint: functions of a module are called by the name of the class, or by `cls = ...`
    n = int64()
    #   ^^^^^ unknown name 'int64' [WF-2a]
    # hint: did you mean `T.int64`?
    return x
--- names without their namespace or in another get it, 3
@R.prim_func
#  ^^^^^^^^^ R has no attribute 'prim_func'
# hint: did you mean `T.prim_func`?
def f(A: T.Buffer((3,), "float32")):
    A[0] = 0.0
--- what is no operand is named as it is written
@R.function
def main(x: R.Tensor((2, 3), "float32"), s: R.Shape(["n", "m"])):
    a = x + "a"
    #       ^^^ relax.add: x2 is a tensor or a scalar, found R.str("a") [DER-36]
    b = R.const([1, 2], "flot32")
    #                   ^^^^^^^^ unknown dtype 'flot32' [DT-1]
    # hint: did you mean 'float32'?
    d = R.add(x, lambda v: v)
    #            ^^^^^^^^^^^ relax.add: expected a Relax expression, found a lambda
    # ... [AST-15]
    c = s[0]
    #   ^^^^ [0] needs a tuple, found R.Shape([n, m]) [DER-32]
    # hint: name the dimensions of a shape, as in R.match_cast(s, R.Shape([n, m]))
    return x
--- annotations have no quotes
@R.function
def main(x: "R.Tensor((2, 3))"):
#           ^^^^^^^^^^^^^^^^^^ an annotation is a struct info such as R.Tensor, found
# ... 'R.Tensor((2, 3))' [AST-5]
# hint: leave out the quotes
    return x
--- a module is no datatype
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((2, 3), M), y: R.Tensor((2,), T.axis)):
        #                        ^ expected a dtype, found the module [DT-1]
        #                                              ^^^^^^ expected a dtype, found T.axis [DT-1]
        return x
--- what a module has is named
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return M.layer(x)
        #        ^^^^^ the module has no function 'layer' [SC-1]
        # hint: it has main, other

    @R.function
    def other(x: R.Tensor((2, 3), "float32")):
        return cls.main(x)
        #      ^^^ unknown name 'cls' [WF-2a]
        # hint: functions of a module are called by the name of the class, or by `cls = ...`
"""
)


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_a_program_is_wrong_where_its_marks_say(text: str) -> None:
    check_marks(text)
