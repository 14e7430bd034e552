"""Bodies of graph functions that are wrong: what is reported, and where."""

from typing import Any

import pytest

from relaxpy.errors import RelaxpyError, StructInfoError, WellFormedError
from tests.script.marked import check_marks


def wrong(
    name: str,
    body: str,
    *,
    params: str = "x: R.Tensor",
    kind: type[RelaxpyError] = RelaxpyError,
    rule: pytest.MarkDecorator | None = None,
) -> Any:
    """A row: the marked body of a function of these parameters."""
    text = f"@R.function\ndef main({params}):{body}"
    return pytest.param(text, kind, id=name, marks=() if rule is None else rule)


BODIES = [
    wrong(
        "an unknown name",
        """
    y = R.shape_of(wieght)
    #              ^^^^^^ unknown name 'wieght'
    # hint: did you mean 'weight'?
    return y
""",
        params='weight: R.Tensor((4,), "float32")',
    ),
    wrong(
        "uses of a wrong definition are not reported again",
        """
    y = nothing
    #   ^^^^^^^ unknown name 'nothing'
    z = R.shape_of(y)
    a, b = z
    with R.dataflow():
        c = R.shape_of(a)
        R.output(c)
    return c
""",
        params='x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a Python expression that Relax does not have",
        """
    y = yield x
    #   ^^^^^^^ yield cannot occur in a program
    # hint: return the values instead, in a tuple
    z = (w := x)
    #    ^^^^^^ an assignment inside an expression cannot occur in a program
    # hint: give it a line of its own
    f = lambda a=1: a
    #   ^^^^^^^^^^^^^ a lambda here takes plain parameters only
    return x
""",
        params='x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a name that a branch binds has no similar name",
        """
    if c:
        t = x + x
        y = t
    else:
        y = x
    return t, y
    #      ^ unknown name 't'
    # hint: names bound in a branch end with it: bind the same name last in both branches
""",
        params='c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a list of values is changed in place",
        """
    found = [x]
    found.append(x + x)
    #     ^^^^^^ Var 'found' has no attribute 'append'
    # hint: a tuple does not change: write found = [*found, value]
    found = [*found, x + x]
    return found[1]
""",
        params='x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a known size becomes a Python number by int",
        """
    for k in range(int(x.shape[0])):
        x = x * R.const(float(int(x.shape[0])) ** -0.5)
    for k in range(x.shape[0]):
        #          ^^^^^^^^^^ range is for Python's values, found `T.int64(4)` of int64
        # hint: its value is known: write range(int(x.shape[0]))
        x = x + x
    return x
""",
        params='x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a call with wrong arguments",
        """
    a = R.shape_of(x, x)
    #                 ^ R.shape_of takes 1 positional argument, found 2
    # hint: it is R.shape_of(expr)
    b = R.shape_of(x, axis=1)
    #                 ^^^^^^ R.shape_of takes no keyword argument 'axis'
    # hint: it is R.shape_of(expr)
    c = R.shape_of()
    #   ^^^^^^^^^^ R.shape_of: argument 'expr' is missing
    # hint: it is R.shape_of(expr)
    d = R.shape_of(exp=x)
    #              ^^^^^ R.shape_of takes no keyword argument 'exp'
    # hint: did you mean 'expr'?
    e = R.add(x, y=x)
    #            ^^^ R.add takes no keyword argument 'y'
    # hint: it is R.add(x1, x2)
    return x
""",
        params='x: R.Tensor((4,), "float32")',
    ),
    wrong(
        "a string dimension in a body",
        """
    y: R.Tensor(("n",), "float32") = x
    #            ^^^ the string dimension 'n' has a meaning only in a signature
    # hint: declare the variable, as in n = T.int64(), and write it unquoted
    return y
""",
        params='x: R.Tensor(("n",), "float32")',
    ),
    wrong(
        "a shape variable with two dtypes",
        """
    n = T.int32()
    #   ^^^^^^^^^ 'n' is int64 already, it cannot be int32 [PX-9]
    return x
""",
        params='x: R.Tensor(("n",), "float32")',
        rule=pytest.mark.rule("PX-9"),
    ),
    wrong(
        "branches that bind two names last",
        """
    if c:
        y = x
    else:
        z = x
#       ^^^^^ the branches bind 'y' and 'z' last, they must agree [AST-13]
    return x
""",
        params='x: R.Tensor, c: R.Tensor((), "bool")',
        rule=pytest.mark.rule("AST-13"),
    ),
    wrong(
        "an if without an else",
        """
    if c:
#   ^^ an if in Relax has an else [AST-13]
# hint: bind the same name in both branches
        y = x
    return y
""",
        params='x: R.Tensor, c: R.Tensor((), "bool")',
        rule=pytest.mark.rule("AST-13"),
    ),
    wrong(
        "a name used after the branch that binds it",
        """
    if c:
        inside = x
        y = inside
    else:
        y = x
    z = inside
    #   ^^^^^^ unknown name 'inside'
    # hint: names bound in a branch end with it: bind the same name last in both branches
    return y
""",
        params='x: R.Tensor, c: R.Tensor((), "bool")',
        rule=pytest.mark.rule("SC-6", "WF-24"),
    ),
    wrong(
        "an if in a dataflow block",
        """
    with R.dataflow():
        if c:
#       ^^ an if cannot be inside a dataflow block [WF-7c]
# hint: end the block before it and begin another one after it
            y = x
        else:
            y = x
        R.output(y)
    return y
""",
        params='x: R.Tensor, c: R.Tensor((), "bool")',
        kind=WellFormedError,
        rule=pytest.mark.rule("WF-7c"),
    ),
    wrong(
        "a binding after R.output",
        """
    with R.dataflow():
        y = x
        R.output(y)
        z = y
#       ^^^^^ R.output ends its block: nothing may follow in it [SC-7]
# hint: let one R.output be the last statement of the block
    return y
""",
        rule=pytest.mark.rule("SC-7"),
    ),
    wrong(
        "two calls of R.output",
        """
    with R.dataflow():
        y = x
        R.output(y)
        R.output(y)
#       ^^^^^^^^^^^ R.output ends its block: nothing may follow in it [SC-7]
# hint: let one R.output be the last statement of the block
    return y
""",
        rule=pytest.mark.rule("SC-7"),
    ),
    wrong(
        "R.output outside a dataflow block",
        """
    R.output(x)
#   ^^^^^^^^^^^ R.output belongs at the end of a dataflow block
# hint: with R.dataflow():
    return x
""",
        rule=pytest.mark.rule("WF-1b"),
    ),
    wrong(
        "R.output of a name from outside the block",
        """
    with R.dataflow():
        y = x
        R.output(x, y)
        #        ^ 'x' is not bound in this dataflow block [SC-8]
    return y
""",
        rule=pytest.mark.rule("SC-8"),
    ),
    wrong(
        "R.output in a loop",
        """
    with R.dataflow():
        for _ in range(1):
            y = x
            R.output(y)
    #       ^^^^^^^^^^^ R.output belongs directly in its dataflow block, at its end [SC-7]
    return x
""",
        rule=pytest.mark.rule("SC-7"),
    ),
    wrong(
        "a dataflow variable used after its block",
        """
    with R.dataflow():
        hidden = x
        y = hidden
        R.output(y)
    return hidden
    #      ^^^^^^ 'hidden' is not visible here: it ends with its dataflow block [SC-7]
    # hint: list it in R.output(hidden) at the end of the block
""",
        rule=pytest.mark.rule("SC-7"),
    ),
    wrong(
        "a tensor used as a tuple or function",
        """
    a, b = x
    #      ^ only a tuple can be unpacked, found R.Tensor((4,), dtype="float32")
    # ... [DER-32]
    t = (x, x)
    c = t[2]
    #     ^ index 2 is out of range for a tuple with 2 fields [DER-33]
    d = x(x)
    #   ^ x is R.Tensor((4,), dtype="float32"), which cannot be called [DER-37]
    return x
""",
        params='x: R.Tensor((4,), "float32")',
        rule=pytest.mark.rule("DER-32", "DER-33", "DER-37", "DER-39"),
    ),
    wrong(
        "an impure call in a pure function",
        """
    R.print(x)
#   ^^^^^^^^^^ a function declared pure calls relax.print, which is impure [PU-8]
# hint: declare the function with pure=False
    return x
""",
        kind=StructInfoError,
        rule=pytest.mark.rule("PU-8"),
    ),
    wrong(
        "a value that nothing uses",
        """
    R.shape_of(x)
#   ^^^^^^^^^^^^^ the value of this call is not used
# hint: bind it: _ = ...; only calls that return unit are statements
    x
#   ^ Var 'x' does nothing here
    return x
""",
    ),
    wrong(
        "a built-in function with an effect",
        """
    print(x)
#   ^^^^^ the built-in name 'print' is not available inside a program
# hint: a program is parsed, not run; to print when the function runs use R.print(x) in a
# ... function with pure=False
    return x
""",
    ),
    wrong(
        "a recursive local function without a return annotation",
        """
    @R.function
    def f(a: R.Tensor):
#       ^ 'f' calls itself, so it needs a return annotation [WF-8a]
        return f(a)
    return f(x)
""",
        rule=pytest.mark.rule("WF-8a"),
    ),
    wrong(
        "a kernel inside a function",
        """
    @T.prim_func
    def f(A: T.Buffer((4,))):
#       ^ a function inside a function is decorated with @R.function
# hint: kernels (@T.prim_func) belong in the module
        T.evaluate(0)
    return x
""",
    ),
    wrong(
        "targets that are not names",
        """
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
""",
    ),
    wrong(
        "columns count characters",
        """
    日本 = R.shape_of(größe, zz)
    #                      ^^ unknown name 'zz'
    return größe
""",
        params="größe: R.Tensor",
    ),
    wrong(
        "dimensions as a condition",
        """
    n, m = T.int64(), T.int64()
    if n == m:
    #  ^^^^^^ a condition is a Boolean tensor of rank 0, found `n == m` of bool [DER-9]
    # hint: write R.logical_and(n == m, R.const(True))
        y = R.abs(x)
    else:
        y = x
    return y
""",
        params='x: R.Tensor(("n", "m"), "float32")',
        rule=pytest.mark.rule("DER-9"),
    ),
    wrong(
        "a scalar as a condition",
        """
    if c:
    #  ^ a condition is a Boolean tensor of rank 0, found R.Prim("bool") [DER-9]
    # hint: R.logical_and(..., R.const(True)) makes a tensor of it
        y = R.abs(x)
    else:
        y = x
    return y
""",
        params='x: R.Tensor((4,), "float32"), c: R.Prim("bool")',
        rule=pytest.mark.rule("DER-9"),
    ),
    wrong(
        "a tuple as a condition",
        """
    if (x,):
    #  ^^^^ a condition is a Boolean tensor of rank 0, found R.Tuple(R.Object) [DER-9]
        y = x
    else:
        y = x
    return y
""",
        params="x: R.Object",
        rule=pytest.mark.rule("DER-9"),
    ),
    wrong(
        "an element of a list that does not fit",
        """
    y = R.stack([x, o])
    #               ^ relax.stack: tensors holds tensors, found R.Shape as number 2 [DER-36]
    z = R.stack([x, x, s])
    #                  ^ relax.stack: tensors have one rank, found 1 and 2 [DER-36]
    return y
""",
        params="x: R.Tensor((4,)), o: R.Shape, s: R.Tensor(ndim=2)",
        rule=pytest.mark.rule("DER-36"),
    ),
    wrong(
        "the struct info of a cast",
        """
    n = T.int64()
    y = R.match_cast(x, R.Tensor((2 * n, n)))
    #                   ^^^^^^^^^^^^^^^^^^^^ 2 * n in a match_cast does not bind n [WF-5b]
    # hint: make n a dimension by itself further left
    return y
""",
        params='x: R.Tensor(dtype="float32")',
        rule=pytest.mark.rule("WF-5b", "WF-14c"),
    ),
]


@pytest.mark.parametrize(("text", "kind"), BODIES)
def test_a_wrong_body_is_reported_where_it_is_wrong(text: str, kind: type[RelaxpyError]) -> None:
    check_marks(text, kind)
