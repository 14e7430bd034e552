"""Visitors and mutators of users: what is visited in which order, what is rebuilt, what shared."""

from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, RelaxpyWarning, StructInfoError
from relaxpy.ir import IRModule, Op, assert_structural_equal, ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.rewrite.expr_functor import ExprFunctor, PyExprMutator, mutator
from relaxpy.script import from_source
from relaxpy.tvm.relax.dump_ast import PyExprVisitor, visitor
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    called,
    cast,
    dataflow,
    function,
    kernel,
    local,
    pure,
    seq,
    shape_of,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import rank, shape, tensor

PROGRAM = """
@I.ir_module
class Module:
    @R.function
    def double(x: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        y = R.add(x, x)
        return y

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.add(x, x)
            z = R.multiply(y, x)
            R.output(z)
        w = R.match_cast(z, R.Tensor((m, 4), "float32"))

        @R.function
        def again(a: R.Tensor((m, 4), "float32")) -> R.Tensor((m, 4), "float32"):
            b = again(a)
            return b

        if c:
            r = R.add(w, w)
        else:
            r = again(w)
        s = R.shape_of(r)
        t = (r, s, R.prim_value(1), R.str("text"), R.dtype("int32"), R.const(1.0))
        return t[0]
"""


@pytest.fixture(scope="module")
def program() -> IRModule:
    found = from_source(PROGRAM)
    assert isinstance(found, IRModule)
    return found


@pytest.fixture(scope="module")
def main(program: IRModule) -> rx.Function:
    found = program["main"]
    assert isinstance(found, rx.Function)
    return found


@visitor
class Log(PyExprVisitor):
    """The names of the nodes, in the order in which they are met."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @override
    def visit_expr(self, expr: rx.Expr | Op) -> None:
        self.seen.append(type(expr).__name__)
        super().visit_expr(expr)

    @override
    def visit_var_def_(self, var: rx.Var) -> None:
        self.seen.append(f"def {var.name_hint}")
        super().visit_var_def_(var)


def log(expr: rx.Expr) -> list[str]:
    walk = Log()
    walk.visit_expr(expr)
    return walk.seen


def test_operands_are_visited_first_to_last_and_shapes_in_struct_infos_after_them() -> None:
    x = var("x", tensor(2))
    assert log(op.add(x, rx.const(1.0))) == [
        "Call",
        "Op",
        "Var",
        "ShapeExpr",
        "Constant",
        "ShapeExpr",
    ]
    assert log(rx.TupleGetItem(var("t"), 0)) == ["TupleGetItem", "Var"]


def test_a_binding_defines_its_variable_after_its_value() -> None:
    x, y, z = var("x"), local("y"), var("z", rx.ObjectStructInfo())
    body = seq(
        dataflow(bind(y, pure("f", x))), block(cast(z, x, tensor(3)), cast(None, z, tensor(3))), z
    )
    assert log(function([x], body)) == [
        "Function", "def x", "SeqExpr", "Call", "ExternFunc", "Var", "def y",
        "Var", "ShapeExpr", "def z", "Var", "ShapeExpr", "Var",
    ]  # fmt: skip


def test_every_kind_of_expression_is_visited(main: rx.Function) -> None:
    seen = set(log(main))
    assert {
        "Call", "Op", "Var", "DataflowVar", "Constant", "Tuple", "ShapeExpr", "TupleGetItem",
        "PrimValue", "StringImm", "DataTypeImm", "SeqExpr", "If", "Function",
    } <= seen  # fmt: skip
    assert "GlobalVar" in log(rx.Call(rx.GlobalVar("f"), ()))


def test_a_visitor_sees_definitions_and_positions() -> None:
    @visitor
    class Positions(PyExprVisitor):
        def __init__(self) -> None:
            self.lines: list[int] = []

        @override
        def visit_span(self, span: object) -> None:
            if span is not None:
                self.lines.append(span.line)  # type: ignore[attr-defined]

    func = from_source(
        "@R.function\ndef f(x: R.Tensor((2,))):\n    y = R.add(x, x)\n    return y\n"
    )
    positions = Positions()
    positions.visit_expr(func)
    assert set(positions.lines) >= {3}


def test_super_goes_on_with_the_class_that_was_written() -> None:
    @visitor
    class Outer(PyExprVisitor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        @override
        def visit_call_(self, op: rx.Call) -> None:
            self.seen.append("outer")
            super().visit_call_(op)

        @override
        def visit_var_(self, op: rx.Var) -> None:
            self.seen.append("var")

    @visitor
    class Inner(Outer._cls):  # type: ignore[name-defined, misc]
        @override
        def visit_call_(self, op: rx.Call) -> None:
            self.seen.append("inner")
            super().visit_call_(op)

    inner = Inner()
    inner.visit_expr(pure("f", var("x")))
    assert inner.seen == ["inner", "outer", "var"]
    assert Inner.__name__ == "Inner"
    assert isinstance(inner, PyExprVisitor)


@pytest.mark.parametrize(("decorate", "base"), [(visitor, PyExprVisitor), (mutator, PyExprMutator)])
def test_a_decorated_class_is_not_a_base(decorate: Callable[[type], type], base: type) -> None:
    decorated = decorate(type("Leaf", (base,), {}))
    with pytest.raises(TypeError, match=r"decorated object `Last` is not allowed.*Last\._cls"):
        decorate(type("Last", (decorated,), {}))
    with pytest.raises(TypeError, match="inherit from Py"):
        decorate(int)
    assert decorate(type("Last", (decorated._cls,), {}))  # type: ignore[attr-defined]


def test_a_functor_says_which_method_is_missing() -> None:
    class Count(ExprFunctor):
        @override
        def visit_var_(self, op: rx.Var) -> int:
            return 1

        @override
        def visit_tuple_(self, op: rx.Tuple) -> int:
            return sum(self.visit_expr(f) for f in op.fields)

    x = var("x")
    assert Count().visit_expr(rx.Tuple((x, x, rx.Tuple((x,))))) == 3
    with pytest.raises(MisuseError, match="has no method for a Constant") as error:
        Count().visit_expr(rx.Tuple((rx.const(1),)))
    assert "define visit_constant_" in str(error.value)


KINDS: list[rx.Expr | Op] = [
    rx.const(1), rx.Tuple(()), var("x"), local("x"), rx.ShapeExpr(()), rx.ExternFunc("f"),
    rx.GlobalVar("g"), function([], rx.Tuple(())), rx.Call(rx.ExternFunc("f"), ()),
    seq(rx.Tuple(())), rx.If(var("c"), var("x"), var("x")), Op("relax.add"),
    rx.TupleGetItem(var("x"), 0), rx.PrimValue(1), rx.StringImm("a"), rx.DataTypeImm("int8"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: type(k).__name__)
def test_a_bare_functor_has_no_method_at_all(kind: rx.Expr | Op) -> None:
    with pytest.raises(MisuseError, match=f"has no method for a {type(kind).__name__}"):
        ExprFunctor().visit_expr(kind)
    PyExprVisitor().visit_expr(kind)


@pytest.mark.parametrize(
    "visit",
    [
        lambda f: f.visit_expr(3),
        lambda f: f.visit_expr(kernel((2,))),
        lambda f: f.visit_binding(var("x")),
        lambda f: f.visit_binding_block(var("x")),
        lambda f: f.visit_var_def(rx.const(1)),
    ],
)
def test_what_is_not_a_node_of_the_kind_is_refused(visit: Callable[[ExprFunctor], object]) -> None:
    for functor in (PyExprVisitor(), PyExprMutator()):
        with pytest.raises(MisuseError, match="expected a"):
            visit(functor)


@pytest.mark.parametrize(
    "step",
    [
        lambda f: f.visit_binding(bind(var("x"), var("y"))),
        lambda f: f.visit_binding(cast(var("x"), var("y"), tensor(2))),
        lambda f: f.visit_binding_block(block()),
        lambda f: f.visit_binding_block(dataflow()),
        lambda f: f.visit_var_def(var("x")),
        lambda f: f.visit_var_def(local("x")),
    ],
)
def test_a_bare_functor_has_no_method_for_bindings(step: Callable[[ExprFunctor], object]) -> None:
    with pytest.raises(MisuseError, match="has no method for a"):
        step(ExprFunctor())


@mutator
class Same(PyExprMutator):
    """Changes nothing."""


def test_a_mutator_that_changes_nothing_gives_back_what_it_was_given(program, main) -> None:
    for func in program.functions.values():
        assert Same(program).visit_expr(func) is func
    part = main.body.blocks[0]  # type: ignore[attr-defined]
    assert Same(program).visit_binding_block(part) is part


@pytest.mark.rule("NF-22")
def test_a_mutator_gives_normal_form_with_struct_infos() -> None:
    x = var("x", tensor(2))
    func = function([x], pure("f", pure("g", x)))
    after = Same().visit_expr(func)
    assert called(after) == ["g", "f"]
    assert_structural_equal(after, normalize_function(func))
    assert after.struct_info is not None


@mutator
class Subtract(PyExprMutator):
    """a + b becomes (a * b) - b, the product bound to a variable of its own."""

    @override
    def visit_call_(self, call: rx.Call) -> rx.Expr:
        call = self.visit_expr_post_order(call)
        if call.op is not Op("relax.add"):
            return call
        a, b = call.args
        return op.subtract(self.builder_.emit(op.multiply(a, b), "product"), b)


@pytest.mark.rule("NF-18")
def test_a_dataflow_variable_is_visited_once_by_either_method() -> None:
    seen: list[str] = []

    class Both(PyExprMutator):
        @override
        def visit_var_(self, op: rx.Var) -> Any:
            seen.append("var")
            return self.visit_expr_post_order(op)

        @override
        def visit_dataflow_var_(self, op: rx.DataflowVar) -> Any:
            seen.append("dataflow var")
            return self.visit_expr_post_order(op)

    lv = rx.DataflowVar("lv", tensor(2))
    assert Both().visit_expr(lv) is lv
    assert seen == ["dataflow var"]


def test_what_a_mutator_emits_stands_before_the_binding_in_the_same_block(program, main) -> None:
    after = Subtract(program).visit_expr(main)
    assert check_well_formed(IRModule({**program.functions_by_name, "main": after})) == []
    expected = from_source(
        PROGRAM.replace(
            "y = R.add(x, x)\n            z",
            "p = R.multiply(x, x)\n            y = R.subtract(p, x)\n            z",
        ).replace("r = R.add(w, w)", "q = R.multiply(w, w)\n            r = R.subtract(q, w)")
    )
    assert_structural_equal(after, expected["main"])


def test_what_a_mutator_leaves_alone_is_shared(program: IRModule, main: rx.Function) -> None:
    after = Subtract(program).visit_expr(main)
    before, now = bindings(main), bindings(after)
    assert now[3] is before[2]  # the match_cast
    assert now[4] is before[3]  # the local function
    assert now[-1] is not before[-1] or now[-1].value is before[-1].value


def test_a_changed_struct_info_reaches_later_uses(main: rx.Function, program: IRModule) -> None:
    @mutator
    class Fix(PyExprMutator):
        @override
        def visit_var_def_(self, var: rx.Var) -> rx.Var:
            if var.name_hint == "x":
                return rx.Var("fixed", tensor(7, 4))
            return super().visit_var_def_(var)  # type: ignore[no-any-return]

    after = Fix(program).visit_expr(main)
    assert after.params[0].name_hint == "fixed"
    y, z = (b.var for b in bindings(after)[:2])
    assert isinstance(y, rx.DataflowVar)
    assert type(z) is rx.Var
    assert y.struct_info == z.struct_info == tensor(7, 4)
    assert check_well_formed(IRModule({**program.functions_by_name, "main": after})) == []


def test_a_return_annotation_stays_while_it_fits() -> None:
    @mutator
    class Shape(PyExprMutator):
        @override
        def visit_var_def_(self, var: rx.Var) -> rx.Var:
            return rx.Var(var.vid, tensor(1, 4)) if var.name_hint == "x" else var  # type: ignore[arg-type]

    exact = from_source(
        "@R.function\ndef f(x: R.Tensor((2, 4))) -> R.Tensor((2, 4)):\n    return x\n"
    )
    loose = from_source(
        "@R.function\ndef f(x: R.Tensor((2, 4))) -> R.Tensor(ndim=2):\n    return x\n"
    )
    assert Shape().visit_expr(exact).ret_struct_info == tensor(1, 4)
    assert Shape().visit_expr(loose).ret_struct_info == loose.ret_struct_info


def test_variables_can_be_mapped_by_hand() -> None:
    @mutator
    class Forward(PyExprMutator):
        """y = x is forgotten, y means x."""

        @override
        def visit_var_binding_(self, binding: rx.VarBinding) -> None:
            value = self.visit_expr(binding.value)
            if isinstance(value, rx.Var):
                self.set_var_remap(binding.var.vid, value)
            else:
                super().visit_var_binding_(binding)

    x = var("x", tensor(2))
    y, z, w = (var(n, tensor(2)) for n in "yzw")
    func = normalize_function(
        function(
            [x],
            seq(
                block(bind(y, x), bind(z, y), bind(w, pure("f", z, sinfo=tensor(2)))),
                rx.Tuple((z, w)),
            ),
        )
    )
    forward = Forward()
    after = forward.visit_expr(func)
    assert forward.get_var_remap(z.vid) is x
    assert forward.get_var_remap(w) is w
    expected = function([x], seq(block(bind(w, pure("f", x, sinfo=tensor(2)))), rx.Tuple((x, w))))
    assert_structural_equal(after, normalize_function(expected))


def test_bindings_can_be_looked_up(main: rx.Function, program: IRModule) -> None:
    found: dict[str, rx.Expr | None] = {}

    @mutator
    class Look(PyExprMutator):
        @override
        def visit_var_(self, var: rx.Var) -> rx.Expr:
            found[var.name_hint] = self.lookup_binding(var)
            return super().visit_var_(var)  # type: ignore[no-any-return]

    Look(program).visit_expr(main)
    assert found["x"] is None
    assert found["c"] is None
    assert isinstance(found["y"], rx.Call)


def test_a_variable_gets_another_struct_info_without_losing_its_kind() -> None:
    x = local("x", tensor(2))
    mutate = PyExprMutator()
    assert mutate.with_struct_info(x, tensor(2)) is x
    other = mutate.with_struct_info(x, tensor(3))
    assert type(other) is rx.DataflowVar
    assert (other.name_hint, other.struct_info) == ("x", tensor(3))


@mutator
class Inline(PyExprMutator):
    """Calls of the packed function f become a sequence with the given blocks."""

    def __init__(self, *blocks: rx.BindingBlock) -> None:
        super().__init__()
        self.blocks = blocks

    @override
    def visit_call_(self, call: rx.Call) -> rx.Expr:
        if isinstance(call.op, rx.ExternFunc) and call.op.global_symbol == "f":
            return seq(*self.blocks, self.blocks[-1].bindings[-1].var or call)
        return super().visit_call_(call)  # type: ignore[no-any-return]


@pytest.mark.rule("NF-14", "NF-16")
def test_a_dataflow_block_in_the_value_of_a_binding_splits_the_block() -> None:
    x, y = var("x", tensor(2)), var("y", rx.ObjectStructInfo())
    before, after = var("before"), var("after")
    func = normalize_function(
        function(
            [x],
            seq(
                block(bind(before, pure("g")), bind(y, pure("f", x)), bind(after, pure("h", y))), y
            ),
        )
    )
    found = Inline(dataflow(bind(local("a"), pure("i")), bind(var("b"), pure("j")))).visit_expr(
        func
    )
    assert [type(b).__name__ for b in found.body.blocks] == [
        "BindingBlock",
        "DataflowBlock",
        "BindingBlock",
    ]
    assert called(found) == ["g", "i", "j", "h"]
    assert check_well_formed(found, normal_form=True) == []


@pytest.mark.rule("NF-15")
def test_an_ordinary_block_in_a_dataflow_block_is_refused() -> None:
    x, y = var("x", tensor(2)), var("y")
    func = normalize_function(function([x], seq(dataflow(bind(y, pure("f", x))), y)))
    with pytest.raises(ValueError, match="NF-15"):
        Inline(block(bind(var("a"), pure("i")))).visit_expr(func)


@pytest.mark.rule("PU-5")
def test_an_impure_call_cannot_be_put_into_a_dataflow_block() -> None:
    @mutator
    class Impure(PyExprMutator):
        @override
        def visit_call_(self, call: rx.Call) -> rx.Expr:
            return show(*call.args)

    x, y = var("x", tensor(2)), var("y")
    inside = normalize_function(
        function([x], seq(dataflow(bind(y, shape_of(x))), y), is_pure=False)
    )
    outside = normalize_function(function([x], seq(block(bind(y, shape_of(x))), y), is_pure=False))
    with pytest.raises(StructInfoError, match="PU-5"):
        Impure().visit_expr(inside)
    assert called(Impure().visit_expr(outside)) == ["relax.print"]


def test_a_block_is_what_its_method_gives() -> None:
    @mutator
    class Last(PyExprMutator):
        @override
        def visit_dataflow_block_(self, block: rx.DataflowBlock) -> rx.BindingBlock:
            new = super().visit_dataflow_block_(block)
            return rx.DataflowBlock(new.bindings[1:])

    x, y, z = var("x", tensor(2)), local("y"), var("z")
    func = normalize_function(
        function([x], seq(dataflow(bind(y, shape_of(x)), bind(z, shape_of(x))), z))
    )
    assert len(bindings(Last().visit_expr(func))) == 1


@pytest.mark.rule("SC-4", "DER-21")
def test_a_recursive_local_function_keeps_calling_itself() -> None:
    @mutator
    class Narrow(PyExprMutator):
        @override
        def visit_var_def_(self, var: rx.Var) -> rx.Var:
            if var.name_hint != "a":
                return var
            return rx.Var("a", tensor(5))

    text = """
@R.function
def main(x: R.Tensor((5,), "float32")):
    @R.function
    def f(a: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
        b = f(a)
        return b
    y = f(x)
    return y
"""
    func = from_source(text)
    after = Narrow().visit_expr(func)
    assert check_well_formed(after) == []
    again = text.replace(
        'f(a: R.Tensor(ndim=1, dtype="float32"))', 'f(a: R.Tensor((5,), "float32"))'
    )
    assert_structural_equal(after, from_source(again))


@pytest.mark.parametrize("made", [None, 3, "text"])
def test_a_mutator_makes_expressions_of_expressions(made: object) -> None:
    @mutator
    class Wrong(PyExprMutator):
        @override
        def visit_var_(self, var: rx.Var) -> object:
            return made

    with pytest.raises(MisuseError, match="expected an expression"):
        Wrong().visit_expr(var("x", tensor(2)))


def test_a_shape_that_changes_changes_the_struct_infos_around_it() -> None:
    n = size("n")

    @mutator
    class Eight(PyExprMutator):
        @override
        def visit_shape_expr_(self, shape: rx.ShapeExpr) -> rx.Expr:
            return rx.ShapeExpr(tuple(8 if v is n else v for v in shape.values))  # type: ignore[misc]

    x = var("x", tensor(n, 2))
    func = normalize_function(function([x], op.zeros((n, 2), "float32")))
    after = Eight().visit_expr(func)
    assert after.params[0].struct_info == tensor(8, 2)
    assert after.struct_info.ret == tensor(8, 2)
    y = var("y", rank(1))
    with pytest.warns(RelaxpyWarning, match="DER-45"):
        promising = normalize_function(function([y], y, tensor(n)))
    assert Eight().visit_expr(promising).ret_struct_info == tensor(8)


def test_blocks_can_be_built_on_their_own() -> None:
    bb = BlockBuilder()
    x = var("x", tensor(2))
    bb._begin_dataflow_block()
    y = bb.emit(shape_of(x))
    z = bb.match_cast(y, shape(2))
    found = bb._end_block()
    assert isinstance(y, rx.DataflowVar)
    assert isinstance(z, rx.DataflowVar)
    assert [b.var for b in found.bindings] == [y, z]
    bb._begin_binding_block()
    assert bb._end_block().bindings == ()
    with pytest.raises(BuilderStateError, match="no block"):
        bb._end_block()


def test_a_condition_and_branches_are_scopes_of_their_own() -> None:
    x, c = var("x", tensor(2)), var("c", BOOL)
    func = normalize_function(function([x, c], rx.If(c, pure("f", x), pure("g", x))))
    after = Inline(block(bind(var("a"), pure("i")))).visit_expr(func)
    chosen = bindings(after)[0].value
    assert isinstance(chosen, rx.If)
    assert called(chosen.true_branch) == ["i"]
    assert chosen.false_branch is bindings(func)[0].value.false_branch  # type: ignore[attr-defined]
