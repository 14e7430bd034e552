"""Loops of Python and macros are read once for each use; what is known of tensors can be asked."""

import textwrap

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError, ParseError, RelaxpyError
from relaxpy.ir import IRModule, assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from relaxpy.script.parser.evaluate import macros
from tests.script.marked import check_marks


def read(text: str) -> rx.Function:
    func = from_source(textwrap.dedent(text))
    assert_structural_equal(from_source(func.script()), func)
    return func  # type: ignore[no-any-return]


def ops(func: rx.Function) -> list[str]:
    assert isinstance(func.body, rx.SeqExpr)
    values = [b.value for block in func.body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.") for v in values if isinstance(v, rx.Call)]


def kinds(func: rx.Function) -> list[str]:
    assert isinstance(func.body, rx.SeqExpr)
    return [type(b.var).__name__ for block in func.body.blocks for b in block.bindings]


X = np.array([[-1.5, 0.25, 0.5, 2.0], [3.0, -0.5, 1.0, 0.0]], "float32")


def check_value(func: object, expected: np.ndarray, *args: np.ndarray) -> None:
    """Run a function that was read, on both targets; `expected` is written with NumPy."""
    assert isinstance(func, rx.Function)
    name = func.attrs["global_symbol"]
    for target in ("numpy", "reference"):
        found = relaxpy.compile(IRModule({name: func}), target=target)[name](*args)
        np.testing.assert_allclose(found, expected, rtol=1e-5, strict=True)


# --- loops


def test_a_loop_over_a_range_is_unrolled() -> None:
    func = read("""
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            for i in range(1, 6, 2):
                x = R.add(x, R.const(float(i)))
            y = R.exp(x)
            return R.reshape(y, (i, -1))
    """)
    assert ops(func) == ["add", "add", "add", "exp", "reshape"]
    x = np.linspace(-9, -5, 10, dtype="float32")
    check_value(func, np.exp(x + 1 + 3 + 5).reshape(5, 2), x)


def test_a_loop_over_captured_python_values() -> None:
    weights = {"a": X[1], "b": np.zeros((4,), "float32")}
    steps = [R.exp, R.abs]

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        for name, weight in weights.items():
            if name != "b":
                x = R.multiply(x, weight)
            for step in steps:
                x = step(x)
        return x

    assert ops(f) == ["multiply", "exp", "abs", "exp", "abs"]
    check_value(f, np.exp(np.exp(X[0] * X[1])), X[0])
    assert_structural_equal(from_source(f.script()), f)


def test_a_loop_over_the_fields_of_a_tuple() -> None:
    func = read("""
        @R.function
        def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
            y = R.const([0.0, 0.0, 0.0, 0.0], "float32")
            for part in t:
                y = R.add(y, part)
            return y
    """)
    assert ops(func) == ["add", "add"]
    found = relaxpy.compile(IRModule({"main": func}))["main"]((X[0], X[1]))
    np.testing.assert_array_equal(found, X[0] + X[1])


def test_a_loop_that_runs_never_binds_nothing() -> None:
    func = read("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            for i in range(0):
                x = R.exp(x)
            return x
    """)
    assert ops(func) == []
    check_value(func, X[0], X[0])
    with pytest.raises(ParseError, match="unknown name 'y'"):
        read("@R.function\ndef f(x: R.Tensor):\n    for i in []:\n        y = x\n    return y\n")


@pytest.mark.rule("SC-8")
def test_a_loop_in_a_dataflow_block_hands_on_what_it_binds_last() -> None:
    func = read("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                for i in range(3):
                    x = R.exp(x)
                R.output(x)
            return x
    """)
    assert kinds(func) == ["DataflowVar", "DataflowVar", "Var"]
    check_value(func, np.exp(np.exp(np.exp(-X[1]))), -X[1])
    func = read("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                for i in range(2):
                    if i == 0:
                        y = R.exp(x)
                R.output(y)
            return y
    """)
    assert kinds(func) == ["DataflowVar", "Var"]


def test_a_loop_inside_a_branch() -> None:
    func = read("""
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if c:
                for i in range(2):
                    x = R.exp(x)
                y = x
            else:
                y = x
            return y
    """)
    assert isinstance(func.body, rx.SeqExpr)
    choice = func.body.blocks[0].bindings[0].value
    assert isinstance(choice, rx.If)
    assert isinstance(choice.true_branch, rx.SeqExpr)
    assert len(choice.true_branch.blocks[0].bindings) == 2
    check_value(func, np.exp(np.exp(X[0])), np.array(True), X[0])
    check_value(func, X[0], np.array(False), X[0])


def test_loops_that_cannot_be_unrolled() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["n"])):
            n = T.int64()
            for i in x:
                #    ^ a loop in Relax runs over what is known while it is parsed, found Var 'x'
                # hint: use recursion, or a @T.prim_func with loops
                x = R.exp(x)
            for j in range(n):
                #          ^ range is for Python's values, found `n` of int64
                # hint: a loop with a symbolic extent belongs in a kernel: @T.prim_func
                y = R.exp(x)
            for k in T.serial(4):
                #    ^^^^^^^^^^^ a loop in Relax runs over what is known while it is parsed, found a
                # ... loop of a kernel
                # hint: use recursion, or a @T.prim_func with loops
                y = R.exp(x)
            for l in range(10**12):
                #    ^^^^^^^^^^^^^ loops and macros unroll to more than 50000 statements
                y = R.exp(x)
            for m in range(2):
                pass
            else:
                pass
            #   ^^^^ a loop in Relax has no else
            for x[0] in range(2):
            #   ^^^^ only names can be bound here
                pass
            for o in 5:
                #    ^ 5 cannot be iterated over
                pass
            for p in range(2):
                break
            #   ^^^^^ break is not part of Relax
            # hint: a loop is unrolled as a whole: iterate over fewer values
            for q in range(2):
                continue
            #   ^^^^^^^^ continue is not part of Relax
            # hint: a loop is unrolled: put the other statements into an if
            return s
    """)


def test_nested_loops_are_bounded_together() -> None:
    text = "@R.function\ndef main(x: R.Tensor):\n"
    for depth in range(8):
        text += "    " * (depth + 1) + f"for i{depth} in range(100):\n"
    text += "    " * 9 + "pass\n    return x\n"
    with pytest.raises(ParseError, match="unroll to more than 50000 statements"):
        from_source(text)


# --- macros


def test_a_macro_of_relax_is_read_where_it_is_used() -> None:
    func = read("""
        @R.macro
        def block(x, f=R.exp, *, times=1, **others):
            '''A docstring.'''
            for i in range(times):
                x = f(x)
            return R.add(x, x)

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            a = block(x)
            with R.dataflow():
                b = block(block(a), R.abs, times=2, more=1)
                R.output(b)
            return block(b)
    """)
    assert ops(func) == ["exp", "add", "exp", "add", "abs", "abs", "add", "exp", "add"]
    assert kinds(func)[2:7].count("Var") == 1


SCALE = 2.0


@R.macro
def hygienic(x):
    return R.multiply(x, R.const(SCALE))


@R.macro(hygienic=False)
def unhygienic(x):
    return R.multiply(x, R.const(SCALE))


def test_a_hygienic_macro_means_the_names_around_its_definition() -> None:
    def make() -> rx.Function:
        SCALE = 5.0

        @R.function
        def f(x: R.Tensor((4,), "float32")):
            a = hygienic(x)
            b = unhygienic(a)
            return b

        return f  # type: ignore[return-value]

    assert (hygienic.hygienic, unhygienic.hygienic) == (True, False)
    func = make()
    assert isinstance(func.body, rx.SeqExpr)
    values = [b.value for b in func.body.blocks[0].bindings]
    calls = [v for v in values if isinstance(v, rx.Call)]
    found = [float(c.args[1].data) for c in calls]  # type: ignore[attr-defined]
    assert found == [2.0, 5.0]
    check_value(func, X[0] * 10, X[0])


def test_blocks_of_a_macro_have_names_of_their_own() -> None:
    func = from_source("""
@T.macro
def step(A, B):
    for i in range(8):
        with T.block("step"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * 2

@T.macro
def twice(A, B):
    step(A, B)
    step(B, A)

@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("step_1"):
            v = T.axis.spatial(8, i)
            A[v] = A[v] + 1
    step(A, B)
    twice(B, A)
""")
    blocks = [node.name_hint for node in walk(func.body) if isinstance(node, Block)]
    assert blocks[:-1] == ["step_1", "step", "step_2", "step_3"]
    sch = tir.Schedule(func)
    for name in blocks[:-1]:
        sch.split(*sch.get_loops(name), [2, None])
    np.testing.assert_array_equal(called(sch.mod["main"]), called(func))


def called(func: tir.PrimFunc) -> np.ndarray:
    a, b = np.arange(8, dtype="int32"), np.zeros(8, "int32")
    relaxpy.compile(func)["main"](a, b)
    return np.stack([a, b])


def test_names_of_a_macro_stay_in_it() -> None:
    check_marks("""
        @R.macro
        def make(x):
            inner = R.exp(x)
            return inner

        @T.macro
        def kernel(x):
            pass

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = make(x)
            b = inner
            #   ^^^^^ unknown name 'inner' [WF-2a]
            c = make()
            #   ^^^^ make: argument 'x' is missing
            # hint: it is make(x)
            d = make(x, 1)
            #           ^ make takes 1 positional argument, found 2
            # hint: it is make(x)
            e = kernel(x)
            #   ^^^^^^ a macro of kernels cannot be used in Relax
            return a
    """)


def test_a_macro_of_relax_returns_once_at_its_end() -> None:
    check_marks("""
        @R.macro
        def early(x):
            if True:
                return x
        #       ^^^^^^^^ a macro of Relax ends in its only return, which has a value
            return x

        @R.macro
        def none(x):
            y = x
        #   ^^^^^ a macro of Relax ends in its only return, which has a value

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = early(x)
            b = none(x)
            return a
    """)


def test_what_is_wrong_in_a_macro_is_shown_there() -> None:
    check_marks("""
        @R.macro
        def wrong(x):
            y = R.expp(x)
            #     ^^^^ R has no attribute 'expp'
            # hint: did you mean `R.exp`?
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = wrong(x)
            return a
    """)


def test_macros_that_use_each_other_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParseError, match=r"deep|unroll"):
        from_source(
            "@R.macro\ndef f(x):\n    return f(x)\n"
            "@R.function\ndef main(x: R.Tensor):\n    return f(x)\n"
        )
    monkeypatch.setattr(macros, "MAX_UNROLLED", 5_000)
    text = "@R.macro\ndef m0(x):\n    return x\n"
    for i in range(1, 60):
        text += f"@R.macro\ndef m{i}(x):\n    y = m{i - 1}(x)\n    return m{i - 1}(y)\n"
    with pytest.raises(ParseError, match="unroll to more than 5000 statements"):
        from_source(text + "@R.function\ndef main(x: R.Tensor):\n    return m59(x)\n")


def test_decorators_of_macros() -> None:
    with pytest.raises(ValueError, match="a macro decorates a function"):
        T.macro(True)
    with pytest.raises(MisuseError, match="hygienic is True or False"):
        R.macro(hygienic="no")
    with pytest.raises(MisuseError, match="can be used only in a parsed function"):
        hygienic(5)


@T.macro
def scaled_copy(A, B, n, *, scale=1.0):
    for i in range(n):
        with T.block("copy"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] * T.float32(scale)


class Kernels:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @T.macro
    def run(self, A, B):
        scaled_copy(A, B, 4, scale=self.scale)


def test_a_macro_of_kernels_is_statements() -> None:
    kernels = Kernels(3.0)

    @T.prim_func
    def by_macro(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        scaled_copy(A, B, 4)
        kernels.run(A, B)

    @T.prim_func
    def by_macro_(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "by_macro"})
        for i in range(4):
            with T.block("copy"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(1.0)
        for i in range(4):
            with T.block("copy"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * T.float32(3.0)

    assert isinstance(by_macro, PrimFunc)
    last = np.zeros(4, "float32")
    relaxpy.compile(IRModule({"by_macro": by_macro}))["by_macro"](X[0], last)
    np.testing.assert_array_equal(last, X[0] * 3)
    assert_structural_equal(by_macro, by_macro_)
    assert_structural_equal(from_source(by_macro.script()), by_macro)


def test_macros_of_kernels_with_and_without_hygiene() -> None:
    text = """
value = T.meta_var(1)

@T.macro(hygienic={hygienic})
def put(A):
    A[0] = T.float32(size)

@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    size = T.meta_var(7)
    put(A)
""".replace("value = T.meta_var(1)\n", "")
    func = from_source(text.replace("{hygienic}", "False"))
    assert "A[0] = T.float32(7.0)" in func.script()
    with pytest.raises(ParseError, match="unknown name 'size'"):
        from_source(text.replace("{hygienic}", "True"))
    check_marks("""
        @R.macro
        def put(A):
            return A

        @T.prim_func
        def f(A: T.Buffer((4,), "float32")):
            put(A)
        #   ^^^ a macro of Relax cannot be used in a kernel
    """)


def test_macros_in_the_class_of_a_module() -> None:
    @I.ir_module
    class Module:
        @R.macro
        def double(x):
            return R.add(x, x)

        @T.macro
        def zero(A):
            A[0] = T.float32(0)

        @T.prim_func
        def kernel(A: T.Buffer((4,), "float32")):
            zero(A)  # noqa: F821

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return double(x)  # noqa: F821

    assert isinstance(Module, IRModule)
    assert ops(Module["main"]) == ["add"]  # type: ignore[arg-type]
    np.testing.assert_array_equal(relaxpy.compile(Module)["main"](X[0]), X[0] + X[0])
    assert_structural_equal(from_source(Module.script()), Module)


# --- what is known of a tensor


def test_shape_rank_and_datatype_are_known_while_reading() -> None:
    func = read("""
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n"])):
            y = R.reshape(x, (x.shape[0] * x.shape[1],))
            z = R.zeros(y.shape, x.dtype)
            for i in range(x.ndim):
                z = R.exp(z)
            return R.tuple(z, x.shape[-1])
    """)
    assert ops(func) == ["reshape", "zeros", "exp", "exp"]
    assert_structural_equal(
        func,
        read("""
            @R.function
            def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n"])):
                n = T.int64()
                y = R.reshape(x, (n * 4,))
                z = R.zeros((n * 4,), "float32")
                z = R.exp(z)
                z = R.exp(z)
                return R.tuple(z, T.int64(4))
        """),
    )


@pytest.mark.rule("DER-36")
def test_none_is_not_an_operand() -> None:
    check_marks("""
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            a = R.add(x, None)
            #            ^^^^ relax.add: x2 is a tensor or a scalar, found None [DER-36]
            b = R.add(x2=x, x1=None)
            #                  ^^^^ relax.add: x1 is a tensor or a scalar, found None [DER-36]
            c = R.zeros((None, 4), "float32")
            #            ^^^^ relax.zeros: a dimension is an integer, found None [PX-9]
            # hint: give a size that is not known a name, as in "n", or tir.Var("n", "int64")
            d = R.broadcast_to(x, shape=[4, None])
            #                               ^^^^ relax.broadcast_to: a dimension is an integer,
            # ... found None [PX-9]
            # hint: give a size that is not known a name, as in "n", or tir.Var("n", "int64")
            e = R.repeat(x, None)
            #               ^^^^ relax.repeat: repeats is int, found None [DER-36]
            return x
    """)
    with pytest.raises(RelaxpyError, match="x2 is a tensor or a scalar, found None"):
        R.add(rx.Var("x", R.Tensor((4,), "float32")), None)
