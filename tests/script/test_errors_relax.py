"""What is said of graph functions that are wrong, and where."""

import textwrap

import pytest

from relaxpy.errors import ParseError, RelaxpyError, StructInfoError, WellFormedError
from relaxpy.script import from_source
from tests.script.marked import check_marks


def from_text(text: str) -> object:
    return from_source(textwrap.dedent(text))


def test_an_unknown_name_gets_the_nearest_one() -> None:
    check_marks("""
        @R.function
        def main(weight: R.Tensor((4,), "float32")):
            y = R.shape_of(wieght)
            #              ^^^^^^ unknown name 'wieght'
            # hint: did you mean 'weight'?
            return y
    """)


def test_what_depends_on_a_wrong_definition_is_not_reported_again() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = nothing
            #   ^^^^^^^ unknown name 'nothing'
            z = R.shape_of(y)
            a, b = z
            with R.dataflow():
                c = R.shape_of(a)
                R.output(c)
            return c
    """)


def test_an_unknown_attribute_gets_the_nearest_one() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensr((4,), "float32")):
        #             ^^^^^ R has no attribute 'Tensr'
        # hint: did you mean `R.Tensor`?
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.shap_of(x)
            #     ^^^^^^^ R has no attribute 'shap_of'
            # hint: did you mean `R.shape_of`?
            m = T.maxx(1, 2)
            #     ^^^^ T has no attribute 'maxx'
            # hint: did you mean `T.max`?
            return y
    """)


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
        (
            "class A: pass",
            "class",
            "functions stand in the class of one @I.ir_module, side by side",
        ),
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
    ],
)
def test_a_python_statement_that_is_not_relax_is_named(
    statement: str, word: str, hint: str
) -> None:
    text = f"@R.function\ndef main(x: R.Tensor((4,))):\n    {statement}\n    return x\n"
    with pytest.raises(ParseError) as caught:
        from_source(text)
    [found] = caught.value.diagnostics
    assert found.message == f"{word} is not part of Relax"
    assert found.hint == hint
    assert found.span is not None
    assert (found.span.line, found.span.column) == (3, 5)


def test_a_python_expression_that_is_not_relax_is_named() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = yield x
            #   ^^^^^^^ yield cannot stand in a program
            # hint: return the values instead, in a tuple
            z = (w := x)
            #    ^^^^^^ an assignment inside an expression cannot stand in a program
            # hint: give it a line of its own
            f = lambda a=1: a
            #   ^^^^^^^^^^^^^ a lambda here takes plain parameters only
            return x
    """)


def test_a_name_that_a_branch_bound_is_not_taken_for_a_similar_one() -> None:
    check_marks("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                t = x + x
                y = t
            else:
                y = x
            return t, y
            #      ^ unknown name 't'
            # hint: what a branch binds ends with it: bind the same name last in both branches
    """)


def test_a_list_of_values_is_not_changed_in_place() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            found = [x]
            found.append(x + x)
            #     ^^^^^^ Var 'found' has no attribute 'append'
            # hint: a tuple does not change: write found = [*found, value]
            found = [*found, x + x]
            return found[1]
    """)


def test_a_known_size_becomes_a_number_of_python_by_int() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            for k in range(int(x.shape[0])):
                x = x * R.const(float(int(x.shape[0])) ** -0.5)
            for k in range(x.shape[0]):
                #          ^^^^^^^^^^ range is for Python's values, found `T.int64(4)` of int64
                # hint: its value is known: write range(int(x.shape[0]))
                x = x + x
            return x
    """)


def test_a_call_with_wrong_arguments_points_at_them() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.shape_of(x, x)
            #                 ^ R.shape_of takes 1 positional argument, found 2
            # hint: it is R.shape_of(expr)
            b = R.shape_of(x, axis=1)
            #                 ^^^^^^ R.shape_of takes no keyword argument 'axis'
            # hint: it is R.shape_of(expr)
            c = R.shape_of()
            #   ^^^^^^^^^^ R.shape_of: argument 'expr' is missing
            # hint: it is R.shape_of(expr)
            return x
    """)


@pytest.mark.rule("SI-11", "SI-3", "DT-1", "PX-9")
def test_wrong_parts_of_an_annotation_are_pointed_at() -> None:
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
            f: 7,
            #  ^ an annotation is a struct info such as R.Tensor, found 7
            g: R.Prim(),
            #  ^^^^^^^^ R.Prim has a dtype or a value
        ):
            return a
    """)


@pytest.mark.rule("WF-6a", "WF-4")
def test_a_shape_variable_that_nothing_binds_is_an_error() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("batch + 1", "n"), "float32")):
        #                     ^^^^^^^^^^^ shape variable 'batch' is bound nowhere: it stands
        # ... alone in no parameter [WF-6a]
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


@pytest.mark.rule("WF-5a")
def test_a_declared_variable_that_nothing_binds_is_an_error() -> None:
    with pytest.raises(WellFormedError, match="shape variable m is bound nowhere") as caught:
        from_text("""
            @R.function
            def main(x: R.Tensor):
                m = T.int64()
                return R.shape([m])
        """)
    assert caught.value.diagnostic.rule == "WF-5a"


def test_string_dimensions_belong_to_signatures() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            y: R.Tensor(("n",), "float32") = x
            #            ^^^ the string dimension 'n' has a meaning only in a signature
            # hint: declare the variable, as in n = T.int64(), and write it unquoted
            return y
    """)


@pytest.mark.rule("PX-9")
def test_a_shape_variable_has_one_dtype() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int32()
            #   ^^^^^^^^^ 'n' is int64 already, it cannot be int32 [PX-9]
            return x
    """)


@pytest.mark.rule("PX-9", "DT-1")
def test_a_signature_may_say_the_dtype_of_a_shape_variable() -> None:
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
        # hint: end it with `return value`; `return ()` gives unit
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
        #       ^^^^^^^^ return stands at the end of a function, not in a branch [AST-11]
        # hint: bind the same name in both branches and return that after the if
            return x
    """)


@pytest.mark.rule("AST-13")
def test_branches_bind_the_same_name_last() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            if c:
                y = x
            else:
                z = x
        #       ^^^^^ the branches bind 'y' and 'z' last, they must agree [AST-13]
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            if c:
        #   ^^ an if in Relax has an else [AST-13]
        # hint: bind the same name in both branches
                y = x
            return y
    """)


@pytest.mark.rule("SC-6", "WF-24")
def test_what_a_branch_binds_is_not_visible_after_it() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            if c:
                inside = x
                y = inside
            else:
                y = x
            z = inside
            #   ^^^^^^ unknown name 'inside'
            # hint: what a branch binds ends with it: bind the same name last in both branches
            return y
    """)


@pytest.mark.rule("WF-7c")
def test_an_if_in_a_dataflow_block_is_an_error() -> None:
    check_marks(
        """
        @R.function
        def main(x: R.Tensor, c: R.Tensor((), "bool")):
            with R.dataflow():
                if c:
        #       ^^ an if cannot stand inside a dataflow block [WF-7c]
        # hint: end the block before it and begin another one after it
                    y = x
                else:
                    y = x
                R.output(y)
            return y
    """,
        WellFormedError,
    )


@pytest.mark.rule("SC-7", "SC-8", "WF-1b")
def test_misuse_of_output() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            with R.dataflow():
                y = x
                R.output(y)
                z = y
        #       ^^^^^ R.output ends its block: nothing may follow in it [SC-7]
        # hint: let one R.output be the last statement of the block
            return y
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            with R.dataflow():
                y = x
                R.output(y)
                R.output(y)
        #       ^^^^^^^^^^^ R.output ends its block: nothing may follow in it [SC-7]
        # hint: let one R.output be the last statement of the block
            return y
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            R.output(x)
        #   ^^^^^^^^^^^ R.output stands at the end of a dataflow block
        # hint: with R.dataflow():
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            with R.dataflow():
                y = x
                R.output(x, y)
                #        ^ 'x' is not bound in this dataflow block [SC-8]
            return y
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            with R.dataflow():
                for _ in range(1):
                    y = x
                    R.output(y)
            #       ^^^^^^^^^^^ R.output stands directly in its dataflow block, at its end [SC-7]
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            with R.dataflow():
                hidden = x
                y = hidden
                R.output(y)
            return hidden
            #      ^^^^^^ 'hidden' is not visible here: it ends with its dataflow block [SC-7]
            # hint: list it in R.output(hidden) at the end of the block
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


@pytest.mark.rule("DER-32", "DER-33", "DER-37", "DER-39")
def test_values_used_as_what_they_are_not() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a, b = x
            #      ^ only a tuple can be taken apart, found R.Tensor((4,), dtype="float32")
            # ... [DER-32]
            t = (x, x)
            c = t[2]
            #     ^ index 2 is out of range for a tuple with 2 fields [DER-33]
            d = x(x)
            #   ^ x is R.Tensor((4,), dtype="float32"), which cannot be called [DER-37]
            return x
    """)


@pytest.mark.rule("PU-8")
def test_an_impure_call_in_a_pure_function_is_pointed_at() -> None:
    check_marks(
        """
        @R.function
        def main(x: R.Tensor):
            R.print(x)
        #   ^^^^^^^^^^ a function declared pure calls relax.print, which is impure [PU-8]
        # hint: declare the function with pure=False
            return x
    """,
        StructInfoError,
    )


def test_a_value_that_nobody_uses_is_an_error() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            R.shape_of(x)
        #   ^^^^^^^^^^^^^ the value of this call is not used
        # hint: bind it: _ = ...; only calls that give unit stand alone
            x
        #   ^ Var 'x' does nothing here
            return x
    """)


def test_built_in_functions_that_do_something_are_not_called() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            print(x)
        #   ^^^^^ the built-in name 'print' is not available inside a program
        # hint: a program is read, not run; to print when the function runs use R.print(x) in a
        # ... function with pure=False
            return x
    """)


@pytest.mark.rule("WF-8a")
def test_a_recursive_local_function_needs_a_return_annotation() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            @R.function
            def f(a: R.Tensor):
        #       ^ 'f' calls itself, so it needs a return annotation [WF-8a]
                return f(a)
            return f(x)
    """)


def test_nested_functions_are_graph_functions() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            @T.prim_func
            def f(A: T.Buffer((4,))):
        #       ^ a function inside a function is decorated with @R.function
        # hint: kernels (@T.prim_func) belong in the module
                T.evaluate(0)
            return x
    """)


def test_targets_that_are_no_names() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor):
            y = z = x
            #   ^ bind one target in a statement
            x[0] = x
        #   ^^^^ only names can be bound in Relax
        # hint: values are not changed in place; bind the result to a new name
            a, a = (x, x)
        #   ^^^^ a name is bound twice in one statement [SC-9]
            b, c = (x, x, x)
        #   ^^^^ expected 2 values, found 3
            return x
    """)


def test_columns_count_characters() -> None:
    check_marks("""
        @R.function
        def main(größe: R.Tensor):
            日本 = R.shape_of(größe, zz)
            #                      ^^ unknown name 'zz'
            return größe
    """)


def test_errors_of_one_function_stand_together() -> None:
    with pytest.raises(ParseError) as caught:
        from_text("""
            @R.function
            def main(x: R.Tensor):
                a = aa
                b = bb
                return cc
        """)
    assert [d.message for d in caught.value.diagnostics] == [
        "unknown name 'aa'",
        "unknown name 'bb'",
        "unknown name 'cc'",
    ]
    first, second, *_ = str(caught.value).split("\n<string>")
    assert first.endswith("a = aa" + "\n" + " " * 12 + "^^")
    assert second.startswith(":5:")


def test_too_many_errors_are_cut_short() -> None:
    body = "\n".join(f"    a{i} = b{i}" for i in range(100))
    with pytest.raises(ParseError) as caught:
        from_text(f"@R.function\ndef main(x: R.Tensor):\n{body}\n    return x\n")
    assert len(caught.value.diagnostics) == 20


def test_every_refusal_is_also_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown name") as caught:
        from_text("@R.function\ndef main(x: R.Tensor):\n    return y\n")
    assert isinstance(caught.value, RelaxpyError)


def test_annotations_that_need_each_other_are_errors() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(y), y: R.Tensor(x)):
        #                                    ^ unknown name 'x'
            return x
    """)
    check_marks("""
        @R.function
        def main(x: x.Tensor):
        #           ^ unknown name 'x'
            return x
    """)
    check_marks("""
        @T.prim_func
        def f(n: n):
        #        ^ unknown name 'n'
            T.evaluate(n)
    """)


def test_a_size_without_quotes_or_declaration_gets_them() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((m, 4), "float32")):
        #                     ^ unknown name 'm'
        # hint: in a signature sizes are strings: 'm'
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor(("m", 4), "float32")):
            y = R.match_cast(x, R.Tensor((k, 4), "float32"))
            #                             ^ unknown name 'k'
            # hint: declare a new size before: k = T.int64()
            return y
    """)


def test_attributes_are_data() -> None:
    check_marks("""
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
    """)
    check_marks("""
        @T.prim_func
        def f(n: T.int32):
            T.func_attr({"global_symbol": 3})
        #   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ global_symbol is a string, found 3
            k: T.int32 = 1.5
            #            ^^^ k is int32, the value is 1.5
            T.evaluate(n)
    """)


def test_names_without_their_namespace_or_in_another_get_it() -> None:
    check_marks("""
        @R.function
        def main(x: Tensor((3,), "float32")):
        #           ^^^^^^ unknown name 'Tensor'
        # hint: did you mean `R.Tensor`?
            return x
    """)
    check_marks("""
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            y = softmax(x)
            #   ^^^^^^^ unknown name 'softmax'
            # hint: did you mean `R.nn.softmax`?
            z = self.other(x)
            #   ^^^^ unknown name 'self'
            # hint: functions of a module are called by the name of the class, or by `cls = ...`
            n = int64()
            #   ^^^^^ unknown name 'int64'
            # hint: did you mean `T.int64`?
            return x
    """)
    check_marks("""
        @R.prim_func
        #  ^^^^^^^^^ R has no attribute 'prim_func'
        # hint: did you mean `T.prim_func`?
        def f(A: T.Buffer((3,), "float32")):
            A[0] = 0.0
    """)


@pytest.mark.rule("DER-9")
def test_a_tuple_is_no_condition() -> None:
    check_marks("""
        @R.function
        def main(x: R.Object):
            if (x,):
            #  ^^^^ a condition is a Boolean tensor of rank 0, found R.Tuple(R.Object) [DER-9]
                y = x
            else:
                y = x
            return y
    """)


@pytest.mark.rule("DER-36")
def test_the_member_of_a_list_that_does_not_fit_is_marked() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,)), o: R.Shape, s: R.Tensor(ndim=2)):
            y = R.stack([x, o])
            #               ^ relax.stack: tensors holds tensors, found R.Shape as number 2 [DER-36]
            z = R.stack([x, x, s])
            #                  ^ relax.stack: tensors have one rank, found 1 and 2 [DER-36]
            return y
    """)


@pytest.mark.rule("WF-5b", "WF-14c")
def test_the_info_of_a_cast_is_marked() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(dtype="float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((2 * n, n)))
            #                   ^^^^^^^^^^^^^^^^^^^^ 2 * n in a match_cast does not bind n [WF-5b]
            # hint: make n a dimension by itself further left
            return y
    """)
