"""Reductions: what simplifying them leaves out, and what it keeps."""

from relaxpy import te, tir as T
from relaxpy.arith import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range

k, unit = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 1), "unit")
x = T.Var("x", "int32")
A = T.decl_buffer((10,), "int32", "A")


def load(index: T.PrimExpr | int) -> T.PrimExpr:
    return T.BufferLoad(A, [ops.convert(index)])


def simple(expr: T.PrimExpr) -> T.PrimExpr:
    return Analyzer().simplify(expr)


def test_sources_are_simplified_where_the_axis_runs() -> None:
    found = simple(T.sum(load(ops.floormod(k.var, 8)), axis=[k]))
    assert isinstance(found, T.Reduce)
    assert found.source == (load(k.var),)
    narrowed = simple(T.sum(load(ops.minimum(k.var, x)), axis=[k], where=k.var < x))
    assert isinstance(narrowed, T.Reduce)
    assert narrowed.source == (load(k.var),)


def test_a_condition_that_is_decided() -> None:
    assert simple(T.sum(load(k.var), axis=[k], where=k.var < 0)) is ops.const(0)
    always = simple(T.sum(load(k.var), axis=[k], where=k.var < 9))
    assert isinstance(always, T.Reduce)
    assert always.condition is ops.const(True)
    with_init = T.sum(load(k.var), axis=[k], where=k.var < 0, init=load(3))
    assert simple(with_init) is load(3)


def test_a_reduction_over_no_axis_is_its_source() -> None:
    assert simple(T.Reduce(_sum(), [load(3)], [])) is load(3)
    assert simple(T.Reduce(_sum(), [load(3)], [], init=[load(4)])) is simple(load(3) + load(4))


def _sum() -> T.CommReducer:
    found = T.sum(load(k.var), axis=[k])
    assert isinstance(found, T.Reduce)
    return found.combiner


def pair(product: bool) -> T.CommReducer:
    """A sum beside a product, or one that the product is part of."""
    a, b, c, d = (T.Var(name, "int32") for name in "abcd")
    first = a + c * b if product else a + c
    return T.CommReducer([a, b], [c, d], [first, b * d], [T.const(0), T.const(1)])


def test_values_that_nobody_asks_for_are_left_out() -> None:
    given = T.Reduce(pair(False), [load(k.var), load(k.var + 1)], [k], init=[x, x + 1])
    found = simple(given)
    assert isinstance(found, T.Reduce)
    assert (found.source, found.init, found.value_index) == ((load(k.var),), (x,), 0)
    other = simple(T.Reduce(pair(False), [load(k.var), load(k.var + 1)], [k], value_index=1))
    assert isinstance(other, T.Reduce)
    assert (other.source, other.value_index) == ((load(k.var + 1),), 0)
    both = simple(T.Reduce(pair(True), [load(k.var), load(k.var + 1)], [k]))
    assert isinstance(both, T.Reduce)
    assert len(both.source) == 2


def test_what_acts_is_not_left_out() -> None:
    called = T.call_extern("int32", "f", k.var)
    found = simple(T.Reduce(pair(False), [load(k.var), called], [k]))
    assert isinstance(found, T.Reduce)
    assert len(found.source) == 2


def test_what_is_known_outside_is_known_inside() -> None:
    made = Analyzer()
    made.bind(x, Range(0, 4))
    found = made.simplify(T.sum(load(ops.floordiv(x + unit.var * 4, 4)), axis=[k, unit]))
    assert isinstance(found, T.Reduce)
    assert found.source == (load(0),)
