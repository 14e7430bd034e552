"""Bodies of graph functions that are wrong: what is reported, and where."""

import pytest

from relaxpy.errors import RelaxpyError, StructInfoError, WellFormedError
from tests.rows import sections
from tests.script.marked import check_marks

BODIES = sections("""
--- an unknown name
def main(weight: R.Tensor((4,), "float32")):
    y = R.shape_of(wieght)
    #              ^^^^^^ unknown name 'wieght' [WF-2a]
    # hint: did you mean 'weight'?
    return y
--- uses of a wrong definition are not reported again
def main(x: R.Tensor((4,), "float32")):
    y = nothing
    #   ^^^^^^^ unknown name 'nothing' [WF-2a]
    z = R.shape_of(y)
    a, b = z
    with R.dataflow():
        c = R.shape_of(a)
        R.output(c)
    return c
--- a Python expression that Relax does not have
def main(x: R.Tensor((4,), "float32")):
    y = yield x
    #   ^^^^^^^ yield cannot occur in a program
    # hint: return the values instead, in a tuple
    z = (w := x)
    #    ^^^^^^ an assignment inside an expression cannot occur in a program
    # hint: give it a line of its own
    f = lambda a=1: a
    #   ^^^^^^^^^^^^^ a lambda here takes plain parameters only
    return x
--- a name that a branch binds has no similar name
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        t = x + x
        y = t
    else:
        y = x
    return t, y
    #      ^ unknown name 't' [WF-24]
    # hint: names bound in a branch end with it: bind the same name last in both branches
--- a list of values is changed in place
def main(x: R.Tensor((4,), "float32")):
    found = [x]
    found.append(x + x)
    #     ^^^^^^ Var 'found' has no attribute 'append'
    # hint: a tuple does not change: write found = [*found, value]
    found = [*found, x + x]
    return found[1]
--- a known size becomes a Python number by int
def main(x: R.Tensor((4,), "float32")):
    for k in range(int(x.shape[0])):
        x = x * R.const(float(int(x.shape[0])) ** -0.5)
    for k in range(x.shape[0]):
        #          ^^^^^^^^^^ range is for Python's values, found `T.int64(4)` of int64
        # hint: its value is known: write range(int(x.shape[0]))
        x = x + x
    return x
--- a call with wrong arguments
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
    d = R.shape_of(exp=x)
    #              ^^^^^ R.shape_of takes no keyword argument 'exp'
    # hint: did you mean 'expr'?
    e = R.add(x, y=x)
    #            ^^^ R.add takes no keyword argument 'y'
    # hint: it is R.add(x1, x2)
    return x
--- a string dimension in a body
def main(x: R.Tensor(("n",), "float32")):
    y: R.Tensor(("n",), "float32") = x
    #            ^^^ the string dimension 'n' has a meaning only in a signature
    # hint: declare the variable, as in n = T.int64(), and write it unquoted
    return y
--- a shape variable with two dtypes
def main(x: R.Tensor(("n",), "float32")):
    n = T.int32()
    #   ^^^^^^^^^ 'n' is int64 already, it cannot be int32 [PX-9]
    # hint: write n = T.int64()
    return x
--- branches that bind two names last
def main(x: R.Tensor, c: R.Tensor((), "bool")):
    if c:
        y = x
    else:
        z = x
#       ^^^^^ the branches bind 'y' and 'z' last, they must agree [AST-13]
# hint: bind the same name last in both branches
    return x
--- an if without an else
def main(x: R.Tensor, c: R.Tensor((), "bool")):
    if c:
#   ^^ an if in Relax has an else [AST-13]
# hint: bind the same name in both branches
        y = x
    return y
--- a name used after the branch that binds it
def main(x: R.Tensor, c: R.Tensor((), "bool")):
    if c:
        inside = x
        y = inside
    else:
        y = x
    z = inside
    #   ^^^^^^ unknown name 'inside' [WF-24]
    # hint: names bound in a branch end with it: bind the same name last in both branches
    return y
--- an if in a dataflow block: WellFormedError
def main(x: R.Tensor, c: R.Tensor((), "bool")):
    with R.dataflow():
        if c:
#       ^^ an if cannot be inside a dataflow block [WF-7c]
# hint: end the block before it and begin another one after it
            y = x
        else:
            y = x
        R.output(y)
    return y
--- a binding after R.output
def main(x: R.Tensor):
    with R.dataflow():
        y = x
        R.output(y)
        z = y
#       ^^^^^ R.output ends its block: nothing may follow in it [SC-7]
# hint: let one R.output be the last statement of the block
    return y
--- two calls of R.output
def main(x: R.Tensor):
    with R.dataflow():
        y = x
        R.output(y)
        R.output(y)
#       ^^^^^^^^^^^ R.output ends its block: nothing may follow in it [SC-7]
# hint: let one R.output be the last statement of the block
    return y
--- R.output outside a dataflow block
def main(x: R.Tensor):
    R.output(x)
#   ^^^^^^^^^^^ R.output belongs at the end of a dataflow block
# hint: with R.dataflow():
    return x
--- R.output of a name from outside the block
def main(x: R.Tensor):
    with R.dataflow():
        y = x
        R.output(x, y)
        #        ^ 'x' is not bound in this dataflow block [SC-8]
    return y
--- R.output in a loop
def main(x: R.Tensor):
    with R.dataflow():
        for _ in range(1):
            y = x
            R.output(y)
    #       ^^^^^^^^^^^ R.output belongs directly in its dataflow block, at its end [SC-7]
    return x
--- a dataflow variable used after its block
def main(x: R.Tensor):
    with R.dataflow():
        hidden = x
        y = hidden
        R.output(y)
    return hidden
    #      ^^^^^^ 'hidden' is not visible here: it ends with its dataflow block [SC-7]
    # hint: list it in R.output(hidden) at the end of the block
--- a function of a dataflow block that uses itself: WellFormedError
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        @R.function
        def f(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return f(a)
            #      ^^^^ the DataflowVar f is used in a function defined inside its dataflow block
            # ... [WF-11]
            # hint: make it an output of the block, as in R.output(f), or pass it to the function
        y = f(x)
        R.output(y)
    return y
--- a tensor used as a tuple or function
def main(x: R.Tensor((4,), "float32")):
    a, b = x
    #      ^ only a tuple can be unpacked, found R.Tensor((4,), dtype="float32")
    # ... [DER-32]
    t = (x, x)
    c = t[2]
    #     ^ index 2 is out of range for a tuple with 2 fields [DER-33]
    d = x(x)
    #   ^ x is R.Tensor((4,), dtype="float32"), which cannot be called [DER-37]
    return x
--- an impure call in a pure function: StructInfoError
def main(x: R.Tensor):
    R.print(x)
#   ^^^^^^^^^^ a function declared pure calls relax.print, which is impure [PU-8]
# hint: declare the function with pure=False
    return x
--- a value that nothing uses
def main(x: R.Tensor):
    R.shape_of(x)
#   ^^^^^^^^^^^^^ the value of this call is not used
# hint: bind it: _ = ...; only calls that return unit are statements
    x
#   ^ Var 'x' does nothing here
    return x
--- a built-in function with an effect
def main(x: R.Tensor):
    print(x)
#   ^^^^^ the built-in name 'print' is not available inside a program [WF-2a]
# hint: a program is parsed, not run; to print when the function runs use R.print(x) in a
# ... function with pure=False
    return x
--- a recursive local function without a return annotation
def main(x: R.Tensor):
    @R.function
    def f(a: R.Tensor):
#       ^ f calls itself and so needs a return annotation [WF-8a]
# hint: annotate the result, as in -> R.Tensor(...)
        return f(a)
    return f(x)
--- a local function whose variable has its name, but refers to the function before
def main(x: R.Tensor):
    @R.function
    def f(a: R.Tensor):
#       ^ f calls itself and so needs a return annotation [WF-8a]
# hint: annotate the result, as in -> R.Tensor(...)
        f = f(a)
        return f
    return f(x)
--- a recursive function without a return annotation whose result is used: WellFormedError
def main(x: R.Tensor((4,), "float32")):
#   ^^^^ main calls itself and so needs a return annotation [WF-8a]
# hint: annotate the result, as in -> R.Tensor(...)
    y = main(x)
    return R.add(y, main(y))
--- objects of the language that are not values
def main(x: R.Tensor((4,), "float32")):
    y = x + _
    #       ^ relax.add: expected a Relax expression, found an unknown shape [AST-15]
    a = R.add(x, R.Tensor((4,), "float32"))
    #            ^^^^^^^^^^^^^^^^^^^^^^^^^ relax.add: expected a Relax expression, found a struct
    # ... info, R.Tensor((4,), dtype="float32") [AST-15]
    b = R.add(x, R.dataflow())
    #            ^^^^^^^^^^^^ relax.add: expected a Relax expression, found R.dataflow [AST-15]
    c = R.add(x, R.function)
    #            ^^^^^^^^^^ relax.add: expected a Relax expression, found R.function [AST-15]
    d = R.add(x, R.nn)
    #            ^^^^ relax.add: expected a Relax expression, found R.nn [AST-15]
    e = R.add(x, R.match_cast)
    #            ^^^^^^^^^^^^ relax.add: expected a Relax expression, found function 'match_cast'
    # ... [AST-15]
    f = R.add(x, R)
    #            ^ relax.add: expected a Relax expression, found module 'relaxpy.script.relax'
    # ... [AST-15]
    g = R.add(x, T.Buffer)
    #            ^^^^^^^^ relax.add: expected a Relax expression, found class T.Buffer [AST-15]
    return x
--- a kernel inside a function
def main(x: R.Tensor):
    @T.prim_func
    def f(A: T.Buffer((4,))):
#       ^ a function inside a function is decorated with @R.function
# hint: kernels (@T.prim_func) belong in the module
        T.evaluate(0)
    return x
--- targets that are not names
def main(x: R.Tensor):
    y = z = x
    #   ^ bind one target in a statement
    x[0] = x
#   ^^^^ only names can be bound in Relax
# hint: values are not changed in place; R.slice_scatter and R.index_put return a changed copy
    a, a = (x, x)
#   ^^^^ a name is bound twice in one statement [SC-9]
    b, c = (x, x, x)
#   ^^^^ expected 2 values, found 3
    return x
--- columns count characters
def main(größe: R.Tensor):
    日本 = R.shape_of(größe, zz)
    #                      ^^ unknown name 'zz' [WF-2a]
    return größe
--- dimensions as a condition
def main(x: R.Tensor(("n", "m"), "float32")):
    n, m = T.int64(), T.int64()
    if n == m:
    #  ^^^^^^ a condition is a Boolean tensor of rank 0, found `n == m` of bool [DER-9]
    # hint: write R.logical_and(n == m, R.const(True))
        y = R.abs(x)
    else:
        y = x
    return y
--- a scalar as a condition
def main(x: R.Tensor((4,), "float32"), c: R.Prim("bool")):
    if c:
    #  ^ a condition is a Boolean tensor of rank 0, found R.Prim("bool") [DER-9]
    # hint: R.logical_and(..., R.const(True)) makes a tensor of it
        y = R.abs(x)
    else:
        y = x
    return y
--- the number of a dimension as a condition
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    if n + 1:
    #  ^^^^^ a condition is a Boolean tensor of rank 0, found `n + T.int64(1)` of int64 [DER-9]
    # hint: write R.logical_and(n + 1 != 0, R.const(True))
        y = R.abs(x)
    else:
        y = x
    return y
--- a number as a condition
def main(x: R.Tensor((4,), "float32"), c: R.Prim("int64")):
    if c:
    #  ^ a condition is a Boolean tensor of rank 0, found R.Prim("int64") [DER-9]
    # hint: R.logical_and(... != 0, R.const(True)) makes a tensor of it
        y = R.abs(x)
    else:
        y = x
    return y
--- a tuple as a condition
def main(x: R.Object):
    if (x,):
    #  ^^^^ a condition is a Boolean tensor of rank 0, found R.Tuple(R.Object) [DER-9]
        y = x
    else:
        y = x
    return y
--- an element of a list that does not fit
def main(x: R.Tensor((4,)), o: R.Shape, s: R.Tensor(ndim=2)):
    y = R.stack([x, o])
    #               ^ relax.stack: tensors holds tensors, found R.Shape as number 2 [DER-36]
    z = R.stack([x, x, s])
    #                  ^ relax.stack: tensors have one rank, found 1 and 2 [DER-36]
    return y
--- the struct info of a cast
def main(x: R.Tensor(dtype="float32")):
    n = T.int64()
    y = R.match_cast(x, R.Tensor((2 * n, n)))
    #                   ^^^^^^^^^^^^^^^^^^^^ 2 * n in a match_cast does not bind n [WF-5b]
    # hint: make n a dimension by itself further left
    return y
""")


@pytest.mark.rule("PX-9", "AST-13", "SC-6", "WF-24", "WF-7c", "SC-7", "WF-1b", "SC-8", "DER-32")
@pytest.mark.rule("DER-33", "DER-37", "DER-39", "PU-8", "WF-8a", "DER-9", "DER-36", "WF-5b")
@pytest.mark.rule("WF-14c", "WF-11", "WF-2a", "AST-15")
@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_is_reported_where_it_is_wrong(name: str) -> None:
    kinds = {"StructInfoError": StructInfoError, "WellFormedError": WellFormedError}
    kind = kinds.get(name.rpartition(": ")[2], RelaxpyError)
    check_marks(f"@R.function\n{BODIES[name]}", kind)
