"""Nodes with several parents: each is processed once, or the program is refused."""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given, settings

import relaxpy
from relaxpy import IRModule
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir import load_json, save_json, structural_equal, structural_hash
from relaxpy.ir.core import memo
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax import PyExprMutator, PyExprVisitor, analysis, expr_functor, op, transform
from tests.counting import calls
from tests.fuzz.shared_nodes import pools

DEPTH = 60


def x_var() -> rx.Var:
    return rx.Var("x", rx.TensorStructInfo((4,), "float32"))


def function(x: rx.Var, result: rx.Expr) -> rx.Function:
    return rx.Function([x], result, attrs={"global_symbol": "main"})


def tuples(depth: int, innermost: int = 0) -> rx.Function:
    """A tuple of one tuple twice, and so on; the last two fields are those of `innermost`."""
    x = x_var()
    expr: rx.Expr = rx.Tuple([x, rx.PrimValue(innermost)])
    for _ in range(depth):
        expr = rx.Tuple([expr, expr])
    return function(x, expr)


@pytest.mark.rule("EV-17")
@pytest.mark.parametrize("in_branches", [False, True])
def test_an_impure_call_that_occurs_too_often_is_refused(in_branches, monkeypatch) -> None:
    monkeypatch.setattr(memo, "MANY", 1 << 13)
    x = x_var()
    expr: rx.Expr = rx.Call(rx.ExternFunc("f"), (x,))
    for _ in range(DEPTH):
        if in_branches:
            expr = rx.If(rx.const(True), expr, rx.Call(rx.ExternFunc("g"), (expr,)))
        else:
            expr = rx.Call(rx.ExternFunc("g"), (expr, expr))
    func = rx.Function([x], expr, is_pure=False, attrs={"global_symbol": "main"})
    with pytest.raises(MisuseError, match="too many to visit"):
        transform.Normalize()(IRModule({"main": func}))
    with pytest.raises(RelaxpyError, match="too many to visit"):
        relaxpy.compile(func)
    with suppress(MisuseError):
        assert "too many to visit" in str(analysis.check_well_formed(func))


def sums(depth: int) -> rx.Function:
    x = x_var()
    expr: rx.Expr = x
    for _ in range(depth):
        expr = op.add(expr, expr)
    return function(x, expr)


def functions(depth: int, innermost: int = 0) -> rx.Function:
    """A function that gives a tuple of one function twice, and so on."""
    expr: rx.Expr = rx.PrimValue(innermost)
    for _ in range(depth):
        x = x_var()
        expr = rx.Function([x], rx.Tuple([expr, expr, x]))
    assert isinstance(expr, rx.Function)
    return expr


def branches(depth: int) -> rx.Function:
    """A branch with one sequence as either arm, and so on."""
    x, cond = x_var(), rx.Var("c", rx.TensorStructInfo((), "bool"))
    expr = rx.SeqExpr([], x)
    for _ in range(depth):
        expr = rx.SeqExpr([], rx.If(cond, expr, expr))
    return rx.Function([x, cond], expr, attrs={"global_symbol": "main"})


MAKERS = [tuples, sums, functions, branches]


# --- structural equality


@pytest.mark.timeout(60)  # 2 ** 60 steps would be no limit, but no answer either
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_shared_is_compared_once(make):
    one, other = make(DEPTH), make(DEPTH)
    assert structural_equal(one, other)
    assert structural_hash(one) == structural_hash(other)
    few, many = (calls(lambda d=d: structural_equal(make(d), make(d))) for d in (50, 100))
    assert many < 3 * few


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [tuples, functions])
def test_a_nested_difference_is_found(make):
    assert not structural_equal(make(DEPTH, 1), make(DEPTH, 2))
    assert structural_equal(make(DEPTH, 1), make(DEPTH, 1))
    with pytest.raises(relaxpy.ir.equality.structural.StructuralMismatch, match="differ at <root>"):
        relaxpy.ir.assert_structural_equal(make(DEPTH, 1), make(DEPTH, 2))


def test_what_is_shared_is_equal_to_what_is_written_out():
    def written_out(depth: int) -> rx.Expr:
        return rx.Tuple([written_out(depth - 1), written_out(depth - 1)]) if depth else x

    x = x_var()
    shared: rx.Expr = x
    for _ in range(8):
        shared = rx.Tuple([shared, shared])
    assert structural_equal(shared, written_out(8))
    assert structural_equal(written_out(8), shared)
    assert structural_hash(shared) == structural_hash(written_out(8))
    assert not structural_equal(shared, rx.Tuple([written_out(7), written_out(6)]))


def test_a_shared_node_means_another_variable_where_that_is_bound():
    x, y = x_var(), x_var()
    pair = rx.Tuple([x, x])
    outside = [pair, pair, pair]
    bound = rx.Tuple([*outside, rx.Function([x], pair)])
    free = rx.Tuple([*outside, rx.Function([y], pair)])
    assert not structural_equal(bound, free)
    assert structural_equal(bound, rx.Tuple([*outside, rx.Function([y], rx.Tuple([y, y]))]))


def test_what_is_shared_by_functions_is_compared_in_each():
    def over(first: rx.Var, second: rx.Var, of: rx.Var) -> rx.Expr:
        pair = rx.Tuple([of, of])
        body = rx.Tuple([pair, pair, pair])
        return rx.Tuple([rx.Function([first], body), rx.Function([second], body)])

    a, b, c, d = (x_var() for _ in range(4))
    assert not structural_equal(over(a, b, a), over(c, d, c))  # `a` and `c` are free in the second
    assert structural_equal(over(a, a, a), over(c, c, c))
    assert structural_equal(over(a, b, a), over(a, d, a))


def alike(one: rx.Expr, other: rx.Expr, left: dict, right: dict, fresh) -> bool:
    """Structural equality up to renaming, straight from its definition, for each occurrence."""
    match one, other:
        case rx.Var(), rx.Var():
            names = left.get(one), right.get(other)
            return one is other if names == (None, None) else names[0] == names[1]
        case rx.PrimValue(value=a), rx.PrimValue(value=b):
            return a is b
        case rx.Tuple(fields=a), rx.Tuple(fields=b):
            pairs = zip(a, b, strict=False)
            return len(a) == len(b) and all(alike(x, y, left, right, fresh) for x, y in pairs)
        case rx.SeqExpr(body=a), rx.SeqExpr(body=b):
            return alike(a, b, left, right, fresh)
        case rx.Function(params=(p,), body=a), rx.Function(params=(q,), body=b):
            name = next(fresh)
            left, right = {p: name, **left}, {q: name, **right}
            return left[p] == right[q] and alike(a, b, left, right, fresh)
        case _:
            return False


@settings(max_examples=150, deadline=None)
@given(pools(), pools())
def test_structural_equality_is_that_of_the_tree_written_out(
    one: list[rx.Expr], other: list[rx.Expr]
) -> None:
    for a, b in itertools.product(one[-3:], [*one[-3:], *other[-3:]]):
        wanted = alike(a, b, {}, {}, itertools.count())
        assert structural_equal(rx.Tuple([a, a, a]), rx.Tuple([b, b, b])) is wanted
        if wanted:
            assert structural_hash(a) == structural_hash(b)


# --- passes, texts, visitors


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [tuples, sums, branches])
def test_passes_over_each_node_once_take_shared_nodes(make):
    func = make(DEPTH)
    nodes = len(list(walk(func)))
    if make is branches:  # the arms are one sequence, and a reader would visit each of its uses
        with pytest.raises(MisuseError, match="nodes when shared nodes are expanded"):
            save_json(func)
    else:
        saved = save_json(func)
        assert len(saved) < 200 * nodes
        assert structural_equal(load_json(saved), func)
    assert analysis.free_vars(func) == []
    assert len(analysis.all_vars(func)) == len(func.params)


@pytest.mark.timeout(60)
def test_struct_infos_that_share_fields_are_compared():
    def vast(innermost: str) -> rx.StructInfo:
        sinfo: rx.StructInfo = rx.TensorStructInfo(None, innermost, ndim=1)
        for _ in range(16):
            sinfo = rx.TupleStructInfo([sinfo, sinfo])
        return sinfo

    one, other = vast("int8"), vast("int8")
    assert one == other
    assert hash(one) == hash(other)
    assert one != vast("int16")
    assert analysis.is_base_of(one, other)
    assert not analysis.is_base_of(one, vast("int16"))
    with pytest.raises(MisuseError, match="131072 nodes"):
        rx.TupleStructInfo([one, one])


@pytest.mark.timeout(60)
def test_calls_that_are_shared_are_bound_once():
    mod = IRModule({"main": sums(DEPTH)})
    assert analysis.check_well_formed(mod) == []
    bindings = transform.Normalize()(mod)["main"].body.blocks[0].bindings
    assert len(bindings) == DEPTH
    executable = relaxpy.compile(mod)
    import numpy as np

    found = executable["main"](np.full(4, 2.0**-DEPTH, "float32"))
    assert found.tolist() == [1.0] * 4


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [tuples, sums, branches])
def test_a_text_of_exponential_length_is_refused(make):
    func = make(DEPTH)
    with pytest.raises(MisuseError, match="too many to"):
        func.script()
    assert len(str(func)) < 100
    assert make(3).script()


@pytest.mark.timeout(60)
def test_too_many_fields_are_refused():
    func = tuples(DEPTH)
    with pytest.raises(MisuseError, match=r"131072 nodes"):
        transform.Normalize()(IRModule({"main": func}))
    sinfo: rx.StructInfo = rx.ObjectStructInfo()
    for _ in range(16):
        sinfo = rx.TupleStructInfo([sinfo, sinfo])
    assert analysis.is_base_of(sinfo, rx.TupleStructInfo(list(sinfo.fields)))
    for build in (
        lambda: rx.TupleStructInfo([sinfo, sinfo]),
        lambda: rx.FuncStructInfo([sinfo], sinfo),
    ):
        with pytest.raises(MisuseError, match="131072 nodes"):
            build()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "run",
    [analysis.check_well_formed, transform.Normalize(), transform.LegalizeOps(), relaxpy.compile],
)
def test_exponentially_many_branches_are_refused(run):
    with pytest.raises(MisuseError, match="too many to visit"):
        run(IRModule({"main": branches(DEPTH)}))
    run(IRModule({"main": branches(4)}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [tuples, sums, branches])
def test_exponentially_many_visits_are_refused(make):
    @expr_functor.visitor
    class Counter(PyExprVisitor):
        seen = 0

        def visit_var_(self, op: rx.Var) -> None:
            self.seen += 1

    counter = Counter()
    counter.visit_expr(tuples(4))
    assert counter.seen == 16  # each place is visited
    with pytest.raises(MisuseError, match="too many to visit"):
        counter.visit_expr(make(DEPTH))


@pytest.mark.timeout(60)
def test_exponentially_many_rewrites_are_refused():
    @expr_functor.mutator
    class Same(PyExprMutator):
        pass

    with pytest.raises(MisuseError, match="too many to visit"):
        Same().visit_expr(sums(DEPTH))
