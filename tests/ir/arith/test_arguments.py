"""What is no argument of integer reasoning is refused as such, never by an error of Python's."""

from collections.abc import Callable
from typing import Any

import pytest

from relaxpy import arith, tir as T
from relaxpy.errors import MisuseError
from relaxpy.ir.tir.iteration import Range

x, f, h = T.Var("x", "int32"), T.Var("f", "float32"), T.Var("h", "handle")
one = {x: Range(0, 3)}
change = T.BijectiveLayout("NCHW", "NCHW4c")
NEITHER: list[object] = [3, 2.5, "s", f, h, T.Ramp(x, 1, 4), Range(0, 3), Ellipsis]

REFUSED: dict[str, Callable[[Any], object]] = {
    "domains of a set": lambda a: arith.Analyzer().int_set(x, a),
    "variables of a pattern": lambda a: arith.detect_linear_equation(x, a),
    "variables of a clip": lambda a: arith.detect_clip_bound(x < 3, a),
    "iterators of a map": lambda a: arith.subspace_divide([x], a, [x]),
    "iterators inside": lambda a: arith.subspace_divide([x], one, a),
    "sets to unite": lambda a: arith.union_lower_bound(a),
    "a condition": lambda a: arith.PresburgerSet(a),
    "an index of a layout": lambda a: change.forward_index(a),
    "a shape of a layout": lambda a: change.backward_shape(a),
    "indices to invert": lambda a: arith.inverse_affine_iter_map(a, []),
    "values of indices": lambda a: arith.inverse_affine_iter_map([], a),
    "splits to add": lambda a: arith.IterSumExpr(a),
    "a variable with bounds": lambda a: arith.Analyzer().const_int_bound_is_bound([a]),  # type: ignore[arg-type]
    "an update": lambda a: arith.Analyzer().update(x, a),
}


@pytest.mark.parametrize("given", NEITHER, ids=str)
@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_arguments_are_refused(call: Callable[[Any], object], given: object) -> None:
    with pytest.raises(MisuseError):
        call(given)


@pytest.mark.parametrize("given", [3, "s", None, Range(0, 3)], ids=str)
def test_only_variables_are_bound(given: object) -> None:
    with pytest.raises(MisuseError, match=r"tir\.Var"):
        arith.Analyzer().bind(given, x)  # type: ignore[arg-type]


ANYTHING = [x, f, h, 3, 2.5, True, T.Ramp(x, 1, 4), T.Broadcast(f, 2), T.Let(x, 1, x), T.vscale()]


@pytest.mark.parametrize("given", ANYTHING, ids=str)
def test_whatever_is_an_expression_has_an_answer(given: Any) -> None:
    made = arith.Analyzer()
    assert isinstance(made.simplify(given), T.PrimExpr)
    assert isinstance(made.const_int_bound(given), arith.ConstIntBound)
    assert isinstance(made.modular_set(given), arith.ModularSet)
    assert isinstance(made.int_set(given, one), arith.IntervalSet)
    assert made.can_prove_equal(given, given)
    assert isinstance(arith.detect_common_subexpr(given, 1), dict)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: arith.ConstIntBound(a, 3),
        lambda a: arith.ModularSet(2, a),
        lambda a: arith.Analyzer().simplify(x, a),
        lambda a: arith.Analyzer().can_prove_less(x, a),
        lambda a: arith.Analyzer().can_prove_greater_equal(x, a),
        lambda a: arith.prove_equal(x, a),
        lambda a: arith.simplify(a),
        lambda a: T.layout("NCHW")[a],
    ],
)
@pytest.mark.parametrize("given", [None, [3], Ellipsis], ids=repr)
def test_no_number_is_refused(call: Callable[[Any], object], given: object) -> None:
    with pytest.raises(MisuseError):
        call(given)
