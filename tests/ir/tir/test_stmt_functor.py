"""Statements visited and rewritten by plain functions and by classes."""

from collections import Counter

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.tir import ops
from relaxpy.tir import functor
from relaxpy.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit, substitute

I, J = tir.Var("i"), tir.Var("j")  # noqa: E741
A = tir.decl_buffer((8,), "float32", "A")
STORE = tir.BufferStore(A, A[I + 1] * 2.0, [I])
LOOP = tir.For(I, 0, 4, 0, STORE)


def kinds(visit, *args: object) -> list[str]:
    seen: list[str] = []

    def note(node: object) -> bool:
        seen.append(type(node).__name__)
        return not isinstance(node, tir.BufferLoad)

    visit(*args, note)
    return seen


def test_everything_is_visited_once_from_the_inside() -> None:
    found = kinds(post_order_visit, LOOP)
    assert found[-2:] == ["BufferStore", "For"]
    assert found.count("Var") == 1
    assert found.index("Add") < found.index("BufferLoad") < found.index("Mul")
    assert "Buffer" not in found


def test_from_the_outside_parts_can_be_left_out() -> None:
    found = kinds(pre_order_visit, LOOP)
    assert found[0] == "For"
    assert found.index("BufferStore") < found.index("Mul") < found.index("BufferLoad")
    assert "Add" not in found


def test_nodes_are_changed_on_the_way_in_or_out() -> None:
    def to_j(node: object) -> object:
        return J if node is I else None

    inside = ir_transform(STORE, None, to_j)
    assert inside.indices == (J,)
    assert inside.value.a.indices == (J + 1,)
    stopped = ir_transform(STORE, lambda n: A[0] if isinstance(n, tir.BufferLoad) else None, None)
    assert stopped.value.a is A[0]
    assert ir_transform(STORE, to_j, to_j, ["tir.Mul"]) is STORE
    assert ir_transform(STORE, None, lambda n: 7, ["tir.Add"]).value.a is A[7]
    assert ir_transform(LOOP, None, None) is LOOP


def test_values_take_the_place_of_variables() -> None:
    assert str(substitute(I + 1, {I: 3})) == "T.Add(3, 1)"
    assert substitute(STORE, {I: J}).indices == (J,)
    with pytest.raises(MisuseError, match="i of int32 cannot be float32"):
        substitute(STORE, {I: ops.const(3.0, "float32")})
    assert substitute(STORE, {J: ops.const(3.0, "float32")}) is STORE
    with pytest.raises(MisuseError, match="i of int32 cannot be float32"):
        substitute(I, {I: ops.const(3.0, "float32")})
    size = tir.Var("n", "int32")
    sized = tir.decl_buffer((size,), "float32")
    with pytest.raises(MisuseError, match="n of int32 cannot be float32"):
        substitute(tir.BufferLoad(sized, [0]), {size: tir.Var("m", "float32")})
    untyped = tir.Var("untyped", "void")
    assert substitute(untyped, {untyped: ops.const(3, "int64")}).dtype == "int64"
    with pytest.raises(MisuseError, match=r"defines a tir\.Var, found 'i'"):
        substitute(STORE, {"i": 3})
    with pytest.raises(MisuseError, match="vmap maps variables to values, found 3"):
        substitute(STORE, 3)


SIZE, OTHER, WIDE = tir.Var("n", "int32"), tir.Var("k", "int32"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (SIZE, WIDE),
        (SIZE * 2, WIDE * 2),
        (SIZE * OTHER + 1, WIDE * tir.Cast("int64", OTHER) + 1),
        (OTHER // SIZE, tir.Cast("int64", OTHER) // WIDE),
        (tir.min(OTHER, SIZE), tir.min(tir.Cast("int64", OTHER), WIDE)),
        (SIZE < OTHER, tir.LT(WIDE, tir.Cast("int64", OTHER))),
        (
            tir.all(SIZE < OTHER, OTHER > 0),
            tir.all(tir.LT(WIDE, tir.Cast("int64", OTHER)), OTHER > 0),
        ),
        (tir.Select(SIZE < 3, OTHER, SIZE), tir.Select(WIDE < 3, tir.Cast("int64", OTHER), WIDE)),
        (tir.Cast("int64", SIZE) + WIDE, tir.Cast("int64", WIDE) + WIDE),
        (tir.popcount(SIZE), tir.popcount(tir.Cast("int32", WIDE))),
        (A[SIZE], A[tir.Cast("int32", WIDE)]),
        (
            tir.if_then_else(SIZE < 3, OTHER, SIZE),
            tir.if_then_else(tir.Cast("int32", WIDE) < 3, OTHER, tir.Cast("int32", WIDE)),
        ),
    ],
)
def test_an_integer_of_another_type_takes_the_place_of_a_size(
    expr: tir.PrimExpr, expected: tir.PrimExpr
) -> None:
    found = substitute(expr, {SIZE: WIDE})
    assert SIZE not in occurrences(found, tir.Var)
    assert_structural_equal(found, expected, map_free_vars=False)


def test_a_size_of_another_type_is_cast_in_statements() -> None:
    changed = substitute(tir.For(I, 0, SIZE, tir.ForKind.SERIAL, STORE), {SIZE: WIDE})
    assert changed.extent.dtype == "int32"
    assert str(changed.extent) == 'T.Cast("int32", m)'


@functor.visitor
class Counts(functor.PyStmtExprVisitor):
    """Counts the variables, sums, loops and size variables, and no binder."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def visit_var_(self, op: tir.Var) -> None:
        self.found[op.name] += 1

    def visit_add_(self, op: tir.Add) -> None:
        self.found["+"] += 1
        super().visit_add_(op)

    def visit_for_(self, op: tir.For) -> None:
        self.found["for"] += 1
        super().visit_for_(op)


@functor.mutator
class Differences(tir.PyStmtExprMutator):
    """Makes sums to differences, and j to 7."""

    def visit_add_(self, op: tir.Add) -> tir.PrimExpr:
        return tir.Sub(self.visit_expr(op.a), self.visit_expr(op.b))

    def visit_var_(self, op: tir.Var) -> tir.PrimExpr:
        return ops.const(7) if op is J else op


def test_a_visitor_has_a_method_for_each_class() -> None:
    counts = Counts()
    counts.visit_expr((I + J) * (I + tir.SizeVar("n", "int32")))
    assert counts.found == {"i": 2, "j": 1, "n": 1, "+": 2}
    inner = tir.For(J, 0, I + J, tir.ForKind.SERIAL, STORE)
    counts = Counts()
    counts.visit_stmt(inner)
    assert counts.found == {"for": 1, "i": 3, "j": 1, "+": 2}


def test_a_mutator_rebuilds_what_changes() -> None:
    rewritten = Differences().visit_expr(tir.Let(J, I + 1, J + I * 2))
    assert str(rewritten) == str(tir.Let(J, tir.Sub(I, ops.const(1)), tir.Sub(7, I * 2)))
    assert Differences().visit_stmt(tir.Evaluate(I * 2)).value is I * 2
    assert rewritten.var is J


@functor.mutator
class Proved(tir.PyStmtExprMutatorWithAnalyzer):
    """Replaces what is proved where it stands by True."""

    def visit_lt_(self, op: tir.LT) -> tir.PrimExpr:
        return ops.const(True) if self.analyzer.can_prove(op) else op

    def visit_ge_(self, op: tir.GE) -> tir.PrimExpr:
        return ops.const(True) if self.analyzer.can_prove(op) else op


def test_an_analyzer_knows_what_holds_where_an_operand_is_visited() -> None:
    small, tiny, rest = I < 8, I < 4, I >= 4
    evaluate = tir.Evaluate
    branches = tir.IfThenElse(tiny, evaluate(small), evaluate(rest))
    for statement, proved in (
        (branches, 2),
        (evaluate(tir.Select(tiny, small, rest)), 2),
        (evaluate(tir.if_then_else(tiny, small, rest)), 2),
        (tir.For(I, 0, 8, tir.ForKind.SERIAL, evaluate(small)), 1),
        (tir.For(I, 0, 9, tir.ForKind.SERIAL, evaluate(small)), 0),
        (tir.LetStmt(I, ops.const(5), evaluate(ops.all_of(small, rest))), 2),
        (tir.AssertStmt(tiny, tir.StringImm("m"), evaluate(small)), 1),
        (tir.SeqStmt([branches, evaluate(small)]), 2),
    ):
        assert str(Proved().visit_stmt(statement)).count("T.bool(True)") == proved, statement
    facts: list[bool] = []

    class Asks(functor.PyStmtExprVisitorWithAnalyzer):
        def visit_evaluate_(self, op: tir.Evaluate) -> None:
            facts.append(self.analyzer.can_prove(small))

    Asks().visit_stmt(tir.IfThenElse(tiny, evaluate(0), evaluate(0)))
    assert facts == [True, False]


@functor.mutator
class Plain(functor.PyStmtExprMutator):
    pass


def test_a_mutator_keeps_what_it_does_not_change() -> None:
    block = tir.Block([], [], [], "b", LOOP)
    realize = tir.BlockRealize([], True, block)
    assert Plain().visit_stmt(realize) is realize
    Counts().visit_stmt(realize)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: Plain().visit_expr(STORE), "an expression of TIR, found"),
        (lambda: Plain().visit_stmt(I), "a statement of TIR, found"),
        (lambda: post_order_visit(3, print), "a statement or an expression, found 3"),
        (lambda: pre_order_visit(None, print), "a statement or an expression, found None"),
        (lambda: ir_transform("x", None, None), "a statement or an expression, found 'x'"),
        (lambda: substitute(3, {}), "a statement or an expression, found 3"),
        (lambda: post_order_visit(LOOP, 3), "a function of nodes, found 3"),
        (lambda: ir_transform(LOOP, None, 3), "a function of nodes, found 3"),
    ],
)
def test_other_things_are_not_visited(use, message: str) -> None:
    with pytest.raises(MisuseError, match=f"expected {message}"):
        use()


def test_the_decorator_is_for_subclasses() -> None:
    with pytest.raises(MisuseError, match="classes that inherit from PyStmtExprVisitor"):
        functor.visitor(Plain)
