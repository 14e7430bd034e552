"""Comparisons of scalars that only the running program knows are expressions, or errors."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy import compile, relax, tir
from relaxpy.errors import ParseError, StructInfoTypeError
from relaxpy.script import from_source, relax as R, tir as T

KERNEL = """
@T.prim_func
def f(X: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32"), m: T.int32):
    for i in range(8):
        if {condition}:
            Y[i] = X[i]
"""

#: Conditions on the loop variable i and the argument m = 2, as Python decides them for numbers.
CONDITIONS = [
    "i in (0, 3)",
    "i not in (0, 3)",
    "not i in (0, 3)",
    "i in [m, 3]",
    "i not in [m]",
    "m in (1, 2)",
    "i in {0, 3}",
    "i in {0: 1, 3: 2}",
    "i in range(3)",
    "i in range(1, 8, 3)",
    "i in range(7, 0, -2)",
    "i in range(0)",
    "i not in ()",
    "i in tuple(range(1, 8, 2)) + tuple(range(40, 80))",
    "(i, m) in ((0, 1), (3, 2))",
    "3 in (i, m)",
    "5 in [i, 5]",
    "any([i == 0, i == 3])",
    "any(i == k for k in (0, 3))",
    "any(map(lambda k: i == k, (0, 3)))",
    "any([])",
    "any([False, i == 2])",
    "any([True, i == 2])",
    "any({0: i == 1})",
    "all([i != 0, i != 3])",
    "all((i > k for k in range(m_known)))",
    "all([])",
    "all([False, i == 2])",
    "bool(i == 3)",
    "bool(1)",
    "[i] == [0]",
    "[i, 1] != [3, 1]",
    "(i, m) == (3, 2)",
    "(i, m) != (3, 2)",
    "(i,) == (0, 0)",
    "(i,) == [i]",
    "[[i], m] == [[4], 2]",
    "{'a': i} == {'a': 5}",
    "{'a': i} == {'b': 5}",
    "{'a': i} != {'a': 5}",
    "0 <= i < m < 3",
    "0 < i in (2, 5)",
    "i == 1 or i in (5, 6) and m == 2",
    "not any([i == 1, m == 3])",
    "len([k for k in (0, 3) if k in (3, 4)]) == 1",
    "i in list(filter(lambda k: k > 2, (1, 3, 5)))",
    "(i == 2) in (False,) or True",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_holds_for_the_numbers_for_which_python_says_so(condition: str) -> None:
    condition = condition.replace("m_known", "3")
    kernel = compile(from_source(KERNEL.format(condition=condition)))
    given = np.arange(8, dtype="int32") + 1
    result = np.zeros(8, "int32")
    kernel(given, result, 2)
    wanted = [given[i] if eval(condition, {"i": i, "m": 2}) else 0 for i in range(8)]
    assert result.tolist() == wanted


UNKNOWN = [
    ("filter(lambda k: i == k, [0, 3])", "the truth value of `i == 0` of bool is not known"),
    ("sorted([i, m])", "has no truth"),
    ("sorted([(i, 1), (m, 0)])", "has no truth"),
    ("min([i, 3])", "has no truth"),
    ("max([1, 2], key=lambda v: v == i)", "has no truth"),
    ("[1 for k in (0, 3) if i == k]", "the truth value of `i == 0` of bool is not known"),
    ("{i: 1} == {m: 1}", "are equal is known only when the program runs"),
    ("{i} == {m}", "are equal is known only when the program runs"),
    ("[i] < [m]", "has no truth"),
    ("{0: 1}[i]", "the members of a dict are chosen while the program is parsed"),
    ("[0, 1][i]", "the members of a list are chosen while the program is parsed"),
    ("(0, 1)[i:]", "the members of a tuple are chosen while the program is parsed"),
    ("range(9)[i]", "the members of a range are chosen while the program is parsed"),
    ("i is m", "whether two scalars are the same is known only when the program runs"),
    ("i is not m", "whether two scalars are the same is known only when the program runs"),
    ("i is 0", "whether two scalars are the same is known only when the program runs"),
    ("X == Y", "whether buffers are equal is known only when the program runs"),
    ("X != Y", "whether buffers are equal is known only when the program runs"),
    ("X in [Y]", "whether buffers are equal is known only when the program runs"),
    ("int(i) == 0", "int is for Python's values, found `i` of int32"),
    ("len(X) == 8", "buffer X has no length"),
    ("i == h", "cannot match types int32 and handle"),
    ("any([i])", "expected a Boolean, found `i` of int32"),
    ("bool(i)", "expected a Boolean, found `i` of int32"),
]


@pytest.mark.parametrize(("expression", "message"), UNKNOWN)
def test_what_cannot_be_an_expression_is_an_error(expression: str, message: str) -> None:
    text = KERNEL.format(condition=f"T.bool(True) if {expression} else T.bool(False)")
    text = text.replace("m: T.int32", "m: T.int32, h: T.handle")
    if "filter" in expression:
        text = text.replace(expression, f"list({expression})")
    with pytest.raises(ParseError) as caught:
        from_source(text)
    assert message in caught.value.diagnostic.message


def kernel_with(ask: Callable[[object], object]) -> tir.PrimFunc:
    @T.prim_func
    def f(Y: T.Buffer((8,), "float32")):
        for i in range(8):
            if ask(i):
                Y[i] = 1.0

    return f


TABLE = {0: True, 3: True}


@pytest.mark.parametrize(
    "ask",
    [
        lambda i: i == 0 and i != 3,
        lambda i: i in (0, 3),
        lambda i: [0, 3].index(i) == 1,
        lambda i: [0, 3].count(i) > 0,
        lambda i: any([i == 0, i == 3]),
        lambda i: 1 if i == 0 else 2,
        lambda i: np.any([i == 0, i == 3]),
    ],
)
def test_a_function_of_the_user_cannot_decide_it_either(ask: Callable[[object], object]) -> None:
    with pytest.raises(ParseError, match="is not known yet, so it has no truth"):
        kernel_with(ask)


def test_methods_of_containers_do_not_decide_it() -> None:
    with pytest.raises(ParseError, match="is not known yet, so it has no truth"):

        @T.prim_func
        def f(Y: T.Buffer((8,), "int32")):
            for i in range(8):
                Y[i] = [0, 3].index(i)

    with pytest.raises(ParseError, match="the keys and this value are equal is known only when"):

        @T.prim_func
        def g(Y: T.Buffer((8,), "float32")):
            for i in range(8):
                Y[i] = TABLE.get(i, 0.0)

    with pytest.raises(ParseError, match="is not known yet, so it has no truth"):

        @T.prim_func
        def h(Y: T.Buffer((8,), "float32")):
            for i in range(8):
                if i in np.array([0, 3]):
                    Y[i] = 1.0


def test_what_is_one_expression_is_equal_and_constants_are_known() -> None:
    n = tir.Var("n", "int64")
    sizes = {"n": n}

    def same(a: object, b: object) -> bool:
        return bool(a == b)

    @T.prim_func
    def f(Y: T.Buffer((8,), "float32")):
        for i in range(8):
            if same(i + 1, i + 1) and same(3, 3) and not same(2, 3):
                Y[i] = 1.0

    assert "if" not in f.script()
    assert sizes["n"] == n


def test_outside_of_a_text_equations_still_tell_whether_expressions_are_the_same() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    assert n == n
    assert bool(n == m) is False
    assert n in [m, n]
    with pytest.raises(ParseError):
        kernel_with(lambda i: i == 0 and True)
    assert bool(n == m) is False


def test_sizes_of_a_graph_function_are_scalars_of_the_program_too() -> None:
    @R.function(pure=False)
    def f(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        R.assert_op(R.prim_value(n in (2, 3)))
        return x

    assert "n == 2 or n == 3" in f.script()
    f(np.ones(3, "float32"))
    with pytest.raises(AssertionError):
        f(np.ones(4, "float32"))


@pytest.mark.parametrize("question", ["x in [x, y]", "x not in (y,)", "[x] == [y]", "[x] != [y]"])
def test_tensors_are_not_compared_by_identity(question: str) -> None:
    text = f"""
@R.function
def f(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    if {question}:
        x = R.exp(x)
    return x
"""
    with pytest.raises(ParseError, match="whether tensors are equal is known only when"):
        from_source(text)


KNOWN = [
    "i is i",
    "i is not None",
    "X is X",
    "X is not Y",
    "{i: 1}[i] == 1",
    "m == m",
    "4 is not None",
]


@pytest.mark.parametrize("condition", KNOWN)
def test_what_is_known_chooses_while_the_program_is_read(condition: str) -> None:
    text = KERNEL.format(condition=f"T.bool(True) if {condition} else T.bool(False)")
    kernel = compile(from_source(text))
    given, result = np.arange(8, dtype="int32") + 1, np.zeros(8, "int32")
    kernel(given, result, 2)
    assert result.tolist() == given.tolist()


def of_shape(x: relax.Expr) -> relax.Expr:
    """A helper as people write them: it asks for what is known of a value."""
    sinfo = x.struct_info
    if len(sinfo.shape) == 2 and sinfo.dtype == "float32" and sinfo.shape[0] == sinfo.shape[0]:
        return R.exp(x) if sinfo.shape[1] == 4 else x
    return x


def test_programs_choose_by_what_is_known_of_a_shape() -> None:
    count, flag = 2, True

    @R.function
    def f(x: R.Tensor(("n", 4), "float32")):
        for i in range(count):
            x = R.exp(x) if i % 2 == 0 and flag is True else R.sin(x)
        y = R.cos(x) if x.shape[1] == 4 else x
        y = R.cos(y) if x.shape[0] == x.shape[0] else x
        if x.shape[1] == 4:
            y = R.tan(y)
            z = of_shape(y)
        else:
            z = y
        return R.negative(z)

    ops = [b.value.op.name for b in f.body.blocks[0].bindings if isinstance(b.value, relax.Call)]
    assert ops == [
        f"relax.{name}" for name in ("exp", "sin", "cos", "cos", "tan", "exp", "negative")
    ]


def test_what_depends_on_a_size_chooses_no_tensor() -> None:
    start = "@R.function\ndef f(x: R.Tensor(('n', 4))):\n    n = T.int64()\n"
    with pytest.raises(ParseError) as caught:
        from_source(start + "    y = x if n == 4 else R.exp(x)\n    return y\n")
    assert caught.value.diagnostic.message == (
        "`n == T.int64(4)` of bool chooses between scalars, found Var 'x'"
    )
    with pytest.raises(StructInfoTypeError) as caught:
        from_source(
            start + "    if n == 4:\n        y = x\n    else:\n        y = R.exp(x)\n    return y\n"
        )
    assert caught.value.diagnostic.message == (
        "a condition is a Boolean tensor of rank 0, found `n == T.int64(4)` of bool"
    )
    assert caught.value.diagnostic.hint == "write R.logical_and(n == 4, R.const(True))"


def test_the_line_of_a_helper_that_asks_is_named() -> None:
    def decide(i: object) -> float:
        return 1.0 if i == 0 else 2.0

    with pytest.raises(ParseError) as caught:
        kernel_with(decide)
    line = decide.__code__.co_firstlineno + 1
    assert caught.value.diagnostic.notes == (f"raised at {__file__}:{line}",)
    assert caught.value.diagnostic.hint.startswith("use T.if_then_else(condition, a, b)")
