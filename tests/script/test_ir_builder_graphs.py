"""Graph functions and modules by IRBuilder, beside the text that says the same."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import (
    BuilderStateError,
    MisuseError,
    ParseError,
    StructInfoError,
    UnknownAttributeError,
)
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.script import from_source, relax as text_R
from relaxpy.script.ir_builder import IRBuilder, ir as I, relax as R, tir as T
from tests.rows import sections
from tests.script.marked import rejected
from tests.script.said import built, said

F32 = relax.TensorStructInfo((4, 4), "float32")


def function(build: Callable[[], object], **options: bool) -> relax.Function:
    """The function `main` whose parameters and bindings `build` says."""

    def whole() -> None:
        with R.function(**options):
            R.func_name("main")
            build()

    found = built(whole)
    assert isinstance(found, relax.Function)
    return found


def same(found: relax.Function | IRModule, text: str) -> None:
    """What was built is what the parser reads in the text, and reads back from its own."""
    assert_structural_equal(found, from_source(text))
    assert_structural_equal(from_source(found.script()), found)


def test_function_with_everything_said_of_it() -> None:
    def build() -> None:
        R.func_attr({"Primitive": True})
        x = R.arg("x", relax.TensorStructInfo((128, 128), "float32"))
        R.func_ret_struct_info(relax.TensorStructInfo(dtype="float32", ndim=2))
        y = R.emit(R.add(x, x))
        out = IRBuilder.name("out", R.emit(R.multiply(y, R.const(2.0))))
        R.func_ret_value(out)

    found = function(build)
    same(
        found,
        """
@R.function
def main(x: R.Tensor((128, 128), "float32")) -> R.Tensor(dtype="float32", ndim=2):
    R.func_attr({"Primitive": True})
    y = R.add(x, x)
    out = R.multiply(y, R.const(2.0))
    return out
""",
    )
    assert found.params[0].name_hint == "x"
    assert found.body.body.name_hint == "out"
    value = np.arange(128 * 128, dtype="float32").reshape(128, 128)
    np.testing.assert_array_equal(relaxpy.compile(found)["main"](value), value * 4)


def test_purity_and_privacy() -> None:
    def build() -> None:
        R.emit(R.print(R.arg("x", relax.ObjectStructInfo())))
        R.func_ret_value(())

    text = "@R.function({})\ndef main(x: R.Object):\n    _ = R.print(x)\n    return ()\n"
    same(function(build, is_pure=False), text.format("pure=False"))
    both = {"is_pure": False, "is_private": True}
    same(function(build, **both), text.format("pure=False, private=True"))
    with pytest.raises(StructInfoError, match="PU-8"):
        function(build)

    def said() -> None:
        R.func_attr({"pure": False, "force_pure": True})
        build()

    found = function(said)
    assert not found.is_pure
    assert dict(found.attrs) == {"global_symbol": "main", "relax.force_pure": True}


def test_every_way_to_bind() -> None:
    def build() -> None:
        x = R.arg("x", relax.TensorStructInfo(dtype="float32"))
        y = R.arg("y", R.Tensor(dtype="float32"))
        m, n = T.int64(), tir.Var("n", "int64")
        IRBuilder.name("m", m)
        R.emit_match_cast(x, relax.TensorStructInfo((m,), "float32"))
        y1 = R.match_cast(y, R.Tensor((n,), "float32"))
        v = relax.Var("v", relax.TensorStructInfo((n,), "float32"))
        assert R.emit_var_binding(relax.VarBinding(v, y1)) is v
        R.emit(v)
        IRBuilder.name("o", R.emit(v, R.Object))
        IRBuilder.name("k", R.emit(3))
        with R.SeqExpr():
            IRBuilder.name("t", R.emit((v, R.shape([m]))))
        R.func_ret_value(R.shape([m, n * 2]))

    same(
        function(build),
        """
@R.function
def main(x: R.Tensor(dtype="float32"), y: R.Tensor(dtype="float32")):
    m, n = T.int64(), T.int64()
    gv = R.match_cast(x, R.Tensor((m,), "float32"))
    gv1 = R.match_cast(y, R.Tensor((n,), "float32"))
    v: R.Tensor((n,), "float32") = gv1
    gv2 = v
    o: R.Object = v
    k = R.const(3)
    t = (v, R.shape([m]))
    return R.shape([m, n * 2])
""",
    )


def test_sizes_of_parameters() -> None:
    def build() -> None:
        n = IRBuilder.name("n", T.int64())
        x = R.arg("x", R.Tensor((n, 4), "float32"))
        s = R.arg("s", R.Shape([n, 4]))
        R.func_ret_value(R.emit(R.reshape(x, s)))

    same(
        function(build),
        """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["n", 4])):
    gv = R.reshape(x, s)
    return gv
""",
    )
    with pytest.raises(MisuseError, match="the string dimension 'n' has a meaning only in a sig"):
        function(lambda: R.arg("x", R.Tensor(("n", 4), "float32")))


SAID = sections("""
--- match_casts of dataflow blocks
def main(x: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    with R.dataflow():
        lv = R.exp(x)
        y = R.match_cast(lv, R.Tensor((n,), "float32"))
        z = R.zeros(R.shape([n]), "float32")
        R.output(y, z)
    w = R.add(y, z)
    return w
--- branches in branches
def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")):
    if c:
        w = R.exp(x)
        d = R.const(True)
        if d:
            y = x
        else:
            y = R.add(x, x)
    else:
        y = R.exp(x)
    return y
--- local functions have a builder of their own
def main(x: R.Tensor((4, 4), "float32")):
    @R.function
    def add(y: R.Tensor((4, 4), "float32")):
        z = R.add(x, y)
        return z

    w = add(x)
    return w
""")
CHOICE = """
def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")):
    if c:
        w = R.exp(x)
        {}
    else:
        y = x
    return y
"""
LAST = [
    *("y = R.add(x, x)", "y = x", "y: R.Object = (x, x)", "y: R.Tensor(ndim=2) = x"),
    *("y: R.Object = R.exp(x)", "y = R.match_cast(x, R.Tensor(ndim=2))"),
]


@pytest.mark.parametrize("text", [*SAID.values(), *map(CHOICE.format, LAST)], ids=[*SAID, *LAST])
def test_a_function_is_what_its_text_says(text: str) -> None:
    text = f"@R.function\n{text.strip()}"
    same(said(text), text)


@pytest.mark.rule("NF-12")
def test_a_leaf_that_a_branch_emits_last_is_its_value_in_a_text_too() -> None:
    texts = ["@R.function" + CHOICE.format(last) for last in ("y = R.emit(x)", "y = x")]
    assert_structural_equal(*map(from_source, texts))


def choose(last: Callable[[relax.Var], object], other: Callable[[relax.Var], object]) -> None:
    x = R.arg("x", F32)
    c = R.arg("c", R.Tensor((), "bool"))
    with R.If(c) as choice:
        with R.Then():
            R.emit(R.exp(x))
            last(x)
        with R.Else():
            other(x)
    R.func_ret_value(choice.var)


@pytest.mark.rule("NF-14")
def test_bindings_in_braces() -> None:
    def fail(x: relax.Var) -> None:
        with suppress(LookupError), R.SeqExpr():
            R.emit(R.exp(x))
            raise LookupError

    def build() -> None:
        x = R.arg("x", F32)
        n = IRBuilder.name("n", T.int64())
        fail(x)
        with R.SeqExpr():
            y = IRBuilder.name("y", R.emit(x, R.Object))
            with R.SeqExpr():
                c = IRBuilder.name("c", R.match_cast(y, R.Tensor((n, 4), "float32")))
            with R.dataflow() as block:
                with R.SeqExpr():
                    d = IRBuilder.name("d", R.emit(R.exp(c)))
                fail(d)
                R.output(d)
        R.func_ret_value((y, c, block.output_vars[0]))

    same(
        function(build),
        """
@R.function
def main(x: R.Tensor((4, 4), "float32")):
    n = T.int64()
    y: R.Object = x
    c = R.match_cast(y, R.Tensor((n, 4), "float32"))
    with R.dataflow():
        d = R.exp(c)
        R.output(d)
    return y, c, d
""",
    )


@pytest.mark.rule("AST-13")
def test_a_branch_gives_nothing_if_a_dataflow_block_is_last_in_its_braces() -> None:
    def last_in_braces(x: relax.Var) -> None:
        R.emit(R.exp(x))
        with R.SeqExpr(), R.dataflow():
            R.output(R.emit(x))

    with pytest.raises(BuilderStateError, match="a branch must end by binding its result"):
        function(lambda: choose(last_in_braces, R.emit))


def test_results_of_branches_that_have_names_have_one() -> None:
    def say(*names: str) -> relax.Function:
        texts = iter(names)

        def last(x: relax.Var) -> None:
            IRBuilder.name(next(texts), R.emit(x))

        return function(lambda: choose(last, last))

    assert say("y", "y").body.body.name_hint == "y"
    with pytest.raises(BuilderStateError, match=r"bind 'y' and 'z' last.*AST-13"):
        say("y", "z")


OUTSIDE: list[tuple[str, Callable[[], object]]] = [
    ("R.emit belongs in a graph function", lambda: R.emit(R.const(1))),
    ("R.emit_match_cast belongs in a graph", lambda: R.emit_match_cast(R.const(1), R.Object)),
    ("R.emit_te belongs in a graph function", lambda: R.emit_te(lambda: None)),
    ("R.func_name belongs directly in", lambda: R.func_name("f")),
    ("R.func_attr belongs directly in", lambda: R.func_attr({})),
    ("R.func_ret_struct_info belongs directly in", lambda: R.func_ret_struct_info(F32)),
    ("R.func_ret_value belongs directly in", lambda: R.func_ret_value(R.const(1))),
    ("R.arg belongs in a graph function", lambda: R.arg("x", F32)),
    ("R.output belongs at the end of with R.dataflow", lambda: R.output()),
    ("R.dataflow belongs in a graph function", lambda: R.dataflow().__enter__()),
    ("R.If belongs in a graph function", lambda: R.If(R.const(True)).__enter__()),
    ("R.SeqExpr belongs in a graph function", lambda: R.SeqExpr().__enter__()),
    ("R.Then belongs directly in with R.If", lambda: R.Then().__enter__()),
    ("I.module_attrs belongs directly in", lambda: I.module_attrs({})),
    ("I.module_global_infos belongs directly in", lambda: I.module_global_infos({})),
    ("I.decl_function belongs directly in", lambda: I.decl_function("f", relax.ExternFunc("f"))),
    ("I.def_function belongs directly in", lambda: I.def_function("f", relax.ExternFunc("f"))),
    ("I.lookup_vdevice belongs in with I.ir_module", lambda: I.lookup_vdevice("cuda")),
    ("a graph function cannot be inside a T.prim_func", lambda: R.function().__enter__()),
    ("a module cannot be inside", lambda: I.ir_module().__enter__()),
]


@pytest.mark.parametrize(("message", "say"), OUTSIDE)
def test_words_of_graphs_and_modules_in_a_kernel(message: str, say: Callable[[], object]) -> None:
    with IRBuilder() as builder, T.prim_func():
        with rejected(BuilderStateError, message):
            say()
        T.evaluate(1)
    assert_structural_equal(builder.get(), tir.PrimFunc([], tir.Evaluate(1)))


INSIDE: list[tuple[str, Callable[[relax.Var], object]]] = [
    ("T.evaluate belongs in a kernel", lambda x: T.evaluate(0)),
    ("a T.block belongs in a kernel", lambda x: T.block("b").__enter__()),
    ("a kernel cannot be inside an R.function", lambda x: T.prim_func().__enter__()),
    ("an R.function", lambda x: R.function().__enter__()),
    ("the function already has the name 'main'", lambda x: R.func_name("other")),
    ("attribute k is set twice", lambda x: (R.func_attr({"k": 1}), R.func_attr({"k": 2}))),
    ("pure is True or False, found 1", lambda x: R.func_attr({"pure": 1})),
    ("expected a StructInfo, found int 3", lambda x: R.arg("y", 3)),
    ("expected a VarBinding, found 3", lambda x: R.emit_var_binding(3)),
    ("object", lambda x: R.emit(object())),
]


@pytest.mark.parametrize(("message", "say"), INSIDE)
def test_what_cannot_stand_in_a_graph_function(message, say) -> None:
    def build() -> None:
        x = R.arg("x", F32)
        with rejected(MisuseError, message):
            say(x)
        R.func_ret_value(R.emit(R.exp(x)))

    text = (
        "@R.function\ndef main(x: R.Tensor((4, 4), 'float32')):\n    y = R.exp(x)\n    return y\n"
    )
    found = function(build).without_attr("k")
    same(found, text)


def in_dataflow(say: Callable[[relax.Var], object]) -> relax.Function:
    def build() -> None:
        x = R.arg("x", F32)
        with R.dataflow():
            say(x)
        R.func_ret_value(x)

    return function(build)


def nothing_bound(x: relax.Var) -> None:
    with R.If(R.const(True)), R.Then():
        pass


def no_else(x: relax.Var) -> None:
    with R.If(R.const(True)), R.Then():
        R.emit(x)


def no_branch(x: relax.Var) -> None:
    with R.If(R.const(True)):
        pass


def binding_in_an_if(x: relax.Var) -> None:
    with R.If(R.const(True)):
        R.emit(x)


def one_branch_twice(x: relax.Var) -> None:
    with R.If(R.const(True)):
        with R.Then():
            R.emit(x)
        with R.Then():
            R.emit(x)


def ending_in_a_block(x: relax.Var) -> None:
    with R.If(R.const(True)), R.Then():
        R.emit(x)
        with R.dataflow():
            R.output(R.emit(x))


def result_in_a_branch(x: relax.Var) -> None:
    with R.If(R.const(True)), R.Then():
        R.func_ret_value(x)


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (nothing_bound, "a branch must end by binding its result"),
        (ending_in_a_block, "a branch must end by binding its result"),
        (no_else, r"with R.If contains no with R.Else\(\):.*AST-13"),
        (no_branch, r"with R.If contains no with R.Then\(\):.*AST-13"),
        (binding_in_an_if, r"with R.If contains with R.Then\(\): and with R.Else\(\):"),
        (one_branch_twice, r"contains with R.Then\(\) twice"),
        (result_in_a_branch, "R.func_ret_value belongs directly in"),
    ],
)
def test_branches_that_are_wrong(say: Callable[[relax.Var], object], message: str) -> None:
    def build() -> None:
        x = R.arg("x", F32)
        with rejected(BuilderStateError, message):
            say(x)
        R.func_ret_value(x)

    same(function(build), "@R.function\ndef main(x: R.Tensor((4, 4), 'float32')):\n    return x\n")


def two_outputs(x: relax.Var) -> None:
    R.output()
    R.output()


def emit_behind_output(x: relax.Var) -> None:
    R.output(R.emit(x))
    R.emit(x)


def block_in_block(x: relax.Var) -> None:
    with R.dataflow():
        pass


def if_in_block(x: relax.Var) -> None:
    with R.If(R.const(True)):
        pass


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (two_outputs, "R.output follows R.output of its block.*SC-7"),
        (emit_behind_output, "R.emit follows R.output of its block.*SC-7"),
        (lambda x: R.output(x), "x is not bound in this dataflow block.*SC-8"),
        (lambda x: R.output(3), "3 is not bound in this dataflow block.*SC-8"),
        (block_in_block, "a dataflow block cannot be inside another"),
        (if_in_block, "an if cannot be inside a dataflow block.*WF-7c"),
        (lambda x: R.emit(R.print(x)), "PU-5"),
        (lambda x: R.func_ret_value(x), "R.func_ret_value belongs directly in"),
    ],
)
def test_dataflow_blocks_that_are_wrong(say: Callable[[relax.Var], object], message: str) -> None:
    with rejected((BuilderStateError, StructInfoError), message):
        in_dataflow(say)


def test_functions_have_one_result_at_the_end() -> None:
    def twice() -> None:
        R.func_ret_value(R.arg("x", F32))
        R.func_ret_value(R.const(1))

    def python_function_of() -> None:
        R.func_ret_value(R.arg("x", F32))
        R.emit(R.const(1))

    def a_parameter_behind() -> None:
        R.func_ret_value(R.arg("x", F32))
        R.arg("y", F32)

    def declared_twice() -> None:
        R.func_ret_struct_info(F32)
        R.func_ret_struct_info(F32)

    for build, message in [
        (lambda: None, "function 'main' returns nothing.*AST-11"),
        (twice, "a function has one result.*AST-11"),
        (python_function_of, "R.emit follows R.func_ret_value.*AST-11"),
        (a_parameter_behind, "R.arg follows R.func_ret_value.*AST-11"),
        (declared_twice, "the function already returns R.Tensor"),
    ]:
        with rejected(BuilderStateError, message):
            function(build)
    with pytest.raises(BuilderStateError, match="private function 'main' has a global_symbol"):
        function(
            lambda: (R.func_attr({"global_symbol": "main"}), R.func_ret_value(R.const(1))),
            is_private=True,
        )


def test_an_error_in_a_frame_leaves_the_builder_as_it_was() -> None:
    def double(t: Any) -> Any:
        return relaxpy.te.compute(t.shape, lambda i, j: t[i, j] * 2, name="double")

    def fail() -> None:
        with R.function():
            R.func_name("lost")
            x = R.arg("x", R.Tensor((T.int64(), 4), "float32"))
            R.emit(R.emit_te(double, x))
            with R.If(R.const(True)), R.Then(), R.dataflow():
                R.emit(R.add(x, x))
                raise LookupError

    def fail_in_a_kernel() -> None:
        with T.prim_func(), T.serial(4), T.block("b"), T.attr(0, "k", 1):
            T.func_name("lost")

    with IRBuilder() as builder, I.ir_module():
        with pytest.raises(LookupError):
            fail()
        with pytest.raises(BuilderStateError, match=r"T\.func_name belongs at the top"):
            fail_in_a_kernel()
        with R.function():
            R.func_name("main")
            R.func_ret_value(R.arg("x", F32))
    text = (
        "@I.ir_module\nclass M:\n    @R.function\n    def main(x: R.Tensor((4, 4), 'float32')):\n"
    )
    same(builder.get(), f"{text}        return x\n")


def test_directives_of_texts_build_functions_too() -> None:
    with IRBuilder() as builder, R.function():
        text_R.func_name("main")
        text_R.func_attr({"note": 1})
        x = text_R.arg("x", F32)
        cond = text_R.arg("cond", relax.TensorStructInfo((), "bool"))
        with text_R.If(cond) as choice:
            with text_R.Then():
                text_R.emit(text_R.exp(x))
            with text_R.Else():
                text_R.emit_match_cast(x, F32)
        with text_R.dataflow() as block:
            w = text_R.arg("w", F32)
            y = text_R.emit(text_R.add(choice.var, w))
            with text_R.SeqExpr():
                z = text_R.emit(text_R.add(y, w))
            text_R.output(z)
        text_R.func_ret_value(block.output_vars[0])
    found = builder.get()
    assert [param.name_hint for param in found.params] == ["x", "cond", "w"]
    expected = from_source(
        """
@R.function
def main(
    x: R.Tensor((4, 4), "float32"), cond: R.Tensor((), "bool"), w: R.Tensor((4, 4), "float32")
):
    R.func_attr({"note": 1})
    if cond:
        v = R.exp(x)
    else:
        v = R.match_cast(x, R.Tensor((4, 4), "float32"))
    with R.dataflow():
        y = R.add(v, w)
        z = R.add(y, w)
        R.output(z)
    return z
"""
    )
    assert_structural_equal(found, expected)


def test_shape_variables_of_a_parameter_in_a_block_are_those_of_the_function() -> None:
    n = tir.Var("n", "int64")
    with IRBuilder() as builder, R.function():
        R.func_name("main")
        with R.dataflow() as block:
            x = R.arg("x", relax.TensorStructInfo((n,), "float32"))
            R.output(R.emit(R.exp(x)))
        R.func_ret_value(R.emit(R.reshape(block.output_vars[0], (n, 1))))
    assert str(builder.get().struct_info.ret) == 'R.Tensor((n, 1), dtype="float32")'


def test_the_directives_of_a_builder_do_nothing_in_texts() -> None:
    text = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    R.func_name("other")
    return x
"""
    with pytest.raises(ParseError, match="a directive of an IRBuilder does nothing here"):
        from_source(text)


def test_the_namespace_is_that_of_texts() -> None:
    assert R.add is text_R.add
    assert R.nn.relu is text_R.nn.relu
    assert R.Tensor is text_R.Tensor
    assert {"add", "nn", "emit", "If", "function", "func_name"} <= set(dir(R))
    assert {"const", "emit", "If", "function", "func_name"} <= set(R.__all__)
    for name in ("macro", "match_shape"):
        with pytest.raises(UnknownAttributeError, match=f"R.{name} is for parsed programs only"):
            getattr(R, name)
    with pytest.raises(UnknownAttributeError, match="R has no attribute 'nothing'"):
        _ = R.nothing


def test_an_if_that_is_refused_leaves_no_condition() -> None:
    def build() -> None:
        x = R.arg("x", F32)
        with suppress(StructInfoError), R.If(R.add(x, x)):
            with R.Then():
                R.emit(R.negative(x))
            with R.Else():
                R.emit(x)
        R.func_ret_value(x)

    same(function(build), '@R.function\ndef main(x: R.Tensor((4, 4), "float32")):\n    return x\n')
