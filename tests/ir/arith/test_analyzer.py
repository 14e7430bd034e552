"""The Analyzer: what it says under bounds, bindings and constraints."""

import itertools

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.analyzer import (
    Analyzer,
    CompareResult,
    ConstIntBound,
    Extension,
    ModularSet,
    ProofStrength,
)
from relaxpy.ir.arith.tvm.intset import IntervalSet
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range

E = tir.PrimExpr
x, y, z, n = (tir.Var(name, "int32") for name in "xyzn")
a, b = tir.Var("a", "int64"), tir.Var("b", "int64")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod
INF, NEG = ConstIntBound.POS_INF, ConstIntBound.NEG_INF


def analyzer(**bounds: tuple[int, int]) -> Analyzer:
    made = Analyzer()
    for name, (low, high) in bounds.items():
        made.update({"x": x, "y": y, "z": z, "a": a}[name], ConstIntBound(low, high))
    return made


@pytest.mark.parametrize(
    ("expr", "bounds", "expected"),
    [
        (tir.Var("i", "int8"), {}, (-128, 127)),
        (tir.Var("u", "uint8"), {}, (0, 255)),
        (x, {}, (-(2**31), 2**31 - 1)),
        (a, {}, (NEG, INF)),
        (tir.SizeVar("s", "int64"), {}, (0, INF)),
        (x + y, {"x": (0, 4), "y": (1, 10)}, (1, 14)),
        (x - y, {"x": (0, 4), "y": (1, 10)}, (-10, 3)),
        (x * y, {"x": (-3, 4), "y": (-8, 2)}, (-32, 24)),
        (tdiv(x, y), {"x": (-9, 4), "y": (4, 10)}, (-2, 1)),
        (fld(x, y), {"x": (-9, 4), "y": (4, 10)}, (-3, 1)),
        (tmod(x, y), {"x": (-9, 4), "y": (4, 10)}, (-9, 4)),
        (flm(x, y), {"x": (-9, 4), "y": (4, 10)}, (0, 9)),
        (flm(x, y), {"x": (0, 6), "y": (-5, 7)}, (-4, 6)),
        (ops.minimum(x, y), {"x": (-9, 11), "y": (4, 10)}, (-9, 10)),
        (ops.maximum(x, y), {"x": (-9, 11), "y": (4, 10)}, (4, 11)),
        (tir.Select(x > 1, y, z + 1), {"y": (4, 10), "z": (-9, 11)}, (-8, 12)),
        (tmod(x, 8) + tdiv(x, 8) * 8, {"x": (0, 23)}, (0, 23)),
        (ops.bitwise("tir.bitwise_and", x, y), {"x": (-9, 11), "y": (2, 10)}, (0, 10)),
        (ops.bitwise("tir.shift_right", x, ops.const(1)), {"x": (-9, 11)}, (-5, 5)),
        (a * a, {}, (0, INF)),
        (tir.Cast("int8", x), {"x": (0, 5)}, (0, 5)),
        (tir.Cast("int8", x), {}, (-128, 127)),
        (tir.Cast("int32", tir.Var("u", "uint8")), {}, (0, 255)),
        (tir.Ramp(x, 2, 4), {"x": (0, 4)}, (0, 10)),
        (tir.Broadcast(x, 4), {"x": (0, 4)}, (0, 4)),
        (
            tir.Call("int32", "tir.if_then_else", (x > 1, y, z)),
            {"y": (4, 10), "z": (1, 5)},
            (1, 10),
        ),
        (tir.Call("int32", "tir.clz", (x,)), {}, (0, 32)),
        (tir.Call("int32", "tir.call_extern", (tir.StringImm("f"),)), {}, (-(2**31), 2**31 - 1)),
        (flm(x, 10), {"x": (13, 15)}, (3, 5)),
        (flm(x, 10), {"x": (-7, -4)}, (3, 6)),
        (flm(x, y), {"x": (0, 6), "y": (0, 99)}, (0, 6)),
        (x >> y, {"x": (-9, 11), "y": (2, 10)}, (-3, 2)),
        (x >> y, {"x": (8, 11), "y": (1, 2)}, (2, 5)),
        (x >> y, {"x": (8, 11), "y": (1, 99)}, (-(2**31), 2**31 - 1)),
        (x << y, {"x": (-3, 5), "y": (0, 4)}, (-48, 80)),
        (x << y, {"x": (1, 5), "y": (0, 30)}, (-(2**31), 2**31 - 1)),
        (x << y, {"x": (0, 1), "y": (0, 30)}, (0, 2**30)),
        (tir.Var("u", "uint8") + tir.IntImm("uint8", 1), {}, (0, 255)),
    ],
)
def test_bounds(expr: E, bounds: dict[str, tuple[int, int]], expected: tuple[int, int]) -> None:
    assert analyzer(**bounds).const_int_bound(expr) == ConstIntBound(*expected)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (x * 6 + y * 4, (2, 0)),
        ((x * 4 + 2) * (y * 6 + 1), (4, 2)),
        ((x * 4 + 1) * (y * 8 + 3), (4, 3)),
        (fld(x * 4 + 2, 2), (2, 1)),
        (flm(x * 4 + 3, 8), (4, 3)),
        (flm(x * 128 + y * 4, 256), (4, 0)),
        (ops.minimum(x * 3, y * 9), (3, 0)),
        (ops.maximum(x * 3 + 1, y * 9 + 4), (3, 1)),
        ((x * 12 + 1) - (y * 21 + 2), (3, 2)),
        (tir.Select(x > 0, y * 8 + 2, z * 12 + 6), (4, 2)),
        (ops.const(7), (0, 7)),
        (x, (1, 0)),
    ],
)
def test_residues(expr: E, expected: tuple[int, int]) -> None:
    assert Analyzer().modular_set(expr) == ModularSet(*expected)


def test_residues_of_nested_scopes_meet() -> None:
    made = Analyzer()
    with made.constraint_scope(flm(x, 3).equal(2)):
        with made.constraint_scope(flm(x, 5).equal(3)), made.constraint_scope(flm(x, 7).equal(2)):
            assert made.modular_set(x) == ModularSet(105, 23)
        assert made.modular_set(x) == ModularSet(3, 2)
    assert made.modular_set(x) == ModularSet(1, 0)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (tmod(x, 2).equal(1), (2, 1)),
        (tmod(x, 4).equal(-3), (4, 1)),
        (tmod(x + 1, 4).equal(3), (4, 2)),
        (x.equal(y * 4 + 3), (4, 3)),
        ((y * 4 - x).equal(5), (4, 3)),
        (x.equal(y * 4 + z * 6 + 1), (2, 1)),
        (x.equal(y * 4 + z * 5), (1, 0)),
        ((x * 3).equal(y * 4), (1, 0)),
    ],
)
def test_an_equation_gives_the_residue_of_a_variable(condition, expected) -> None:
    made = Analyzer()
    with made.constraint_scope(condition):
        assert made.modular_set(x) == ModularSet(*expected)
    assert made.modular_set(x) == ModularSet(1, 0)


def test_a_scope_is_left_by_an_error_too() -> None:
    made = Analyzer()
    with pytest.raises(KeyError), made.constraint_scope(x < 3):
        raise KeyError
    assert not made.can_prove(x < 3)


def test_what_is_declared_in_a_scope_holds_after_it() -> None:
    made = Analyzer()
    with made.constraint_scope(y > 0):
        with made.constraint_scope(y < 50):
            made.bind(x, Range(0, y))
            made.update(z, ModularSet(4, 1))
            made.enabled_extensions = Extension.TransitivelyProveInequalities
            assert made.can_prove(x < 49)
        assert made.can_prove(x < y)
    assert made.can_prove(tir.And(x >= 0, x < y))
    assert not made.can_prove(x < 49)
    assert not made.can_prove(y < 50)
    assert made.modular_set(z) == ModularSet(4, 1)
    assert made.enabled_extensions == Extension.TransitivelyProveInequalities


def test_declared_residues_decide_remainders() -> None:
    made = Analyzer()
    made.update(z, ModularSet(4, 1))
    with made.constraint_scope(ops.floormod(x, 4) == 0):
        for expr, expected in ((z % 4, 1), ((z + 3) % 4, 0), (z * 2 % 8, 2), ((x + z) % 2, 1)):
            assert_structural_equal(made.simplify(expr), ops.const(expected, "int32"))
        assert_structural_equal(made.simplify(ops.truncmod(x, 4)), ops.const(0, "int32"))
    for undecided in (x % 4, z % 8, ops.truncmod(z, 4)):  # truncmod is -3 for a negative z
        assert not isinstance(made.simplify(undecided), tir.IntImm)


def test_constraints_decide_comparisons() -> None:
    made = Analyzer()
    with made.constraint_scope(tir.And(x <= 10, y <= x)):
        assert made.can_prove(x < 11)
        assert made.can_prove(y < 11)
        assert not made.can_prove(y < 10)
        assert made.simplify(tir.LE(y, x)) is ops.const(True)
    assert not made.can_prove(x < 11)


def test_a_loop_variable_is_below_a_symbolic_extent() -> None:
    made = Analyzer()
    made.bind(x, Range(0, n))
    assert made.can_prove(x < n)
    assert made.can_prove(x + 1 <= n)
    assert not made.can_prove(x + 1 < n)
    assert made.simplify(fld(x, n)) is ops.const(0)
    assert made.simplify(flm(x, n)) is x
    assert made.simplify(fld(y * n + x, n)) is y


def test_split_and_fuse_under_ranges() -> None:
    made = Analyzer()
    made.bind(x, Range(0, 4))
    made.bind(y, Range(0, 8))
    fused = x * 8 + y
    assert made.simplify(fld(fused, 8)) is x
    assert made.simplify(flm(fused, 8)) is y
    assert made.simplify(tdiv(fused, 8)) is x
    assert made.simplify(tmod(fused, 8)) is y
    assert made.can_prove(fused < 32)
    assert not made.can_prove(fused < 31)
    assert made.simplify(fld(x * 360 + y, 16)) is not made.simplify(x * 22)
    made.update(y, ConstIntBound(0, 6), override=True)
    made.update(x, ConstIntBound(0, 1), override=True)
    assert made.simplify(fld(x * 360 + y, 16)) is x * 22


def test_signs_decide_truncation() -> None:
    assert analyzer(x=(0, 100)).simplify(tdiv(x * 4 + 2, 2)) is x * 2 + 1
    assert analyzer(x=(-8, 0)).simplify(tdiv(x, 9)) is ops.const(0)
    assert Analyzer().simplify(tdiv(x, 9)) is tdiv(x, 9)


def test_binding_a_variable_to_a_value_replaces_it() -> None:
    made = Analyzer()
    made.bind(y, x * 4 + 1)
    assert made.simplify(y - x * 4) is ops.const(1)
    assert made.modular_set(1 - y) == ModularSet(4, 0)
    made.bind(y, 1 + x * 4)
    with pytest.raises(MisuseError, match="bound"):
        made.bind(y, x)
    made.bind(y, x, allow_override=True)
    assert made.can_prove_equal(y, x)


def test_a_range_of_one_is_its_start() -> None:
    made = Analyzer()
    made.bind(x, Range.from_min_extent(y, 1))
    assert made.simplify(x + 1) is y + 1


def test_conflicting_information_is_refused() -> None:
    made = analyzer(x=(0, 4))
    made.update(x, ConstIntBound(0, 4))
    with pytest.raises(MisuseError, match="other bounds"):
        made.update(x, ConstIntBound(0, 5))
    with pytest.raises(MisuseError, match="no value"):
        made.update(y, ConstIntBound(5, 0))
    made.update(z, ModularSet(4, 1))
    with pytest.raises(MisuseError, match="residue"):
        made.update(z, ModularSet(8, 3))


def test_proofs_of_limits() -> None:
    made = analyzer(x=(0, 4))
    assert made.can_prove_greater_equal(x + 1, 1)
    assert not made.can_prove_greater_equal(x + 1, 2)
    assert made.can_prove_less(x, 5)
    assert not made.can_prove_less(x, 4)
    assert made.can_prove_equal(x + y - x, y)
    assert not made.can_prove_equal(x, y)
    assert made.prove_equal(x, 7) is False
    assert made.prove_equal(x, 3) is None


def test_an_undecided_condition_is_not_proved() -> None:
    assert not Analyzer().can_prove(x < y)
    assert not Analyzer().can_prove(flm(a, b).equal(0))


def test_symbolic_interval_sets() -> None:
    made = Analyzer()
    found = made.int_set(x * 2 + y, {x: Range(0, n)})
    assert found.min_value is y
    assert found.max_value is made.simplify(y + n * 2 - 2)
    turned = made.int_set(y - x, {x: IntervalSet(ops.const(0), n)})
    assert (turned.min_value, turned.max_value) == (y - n, y)
    folded = made.int_set(flm(x, 10), {x: Range(3, 6)})
    assert folded == IntervalSet(ops.const(3), ops.const(5))
    assert made.int_set(flm(a, b), {a: Range(0, 3)}).is_everything()


def test_a_truth_may_be_bound() -> None:
    flag, made = tir.Var("flag", "bool"), Analyzer()
    made.bind(flag, x < 3)
    assert made.simplify(tir.And(flag, x < 5)) is made.simplify(x < 3)
    with made.constraint_scope(x > 7):
        assert made.can_prove(tir.Not(flag))


def test_what_is_known_of_a_variable_is_known_of_its_bounds() -> None:
    made = analyzer(x=(0, 4))
    assert made.const_int_bound_is_bound(x)
    assert not made.const_int_bound_is_bound(y)
    made.bind(y, x + 1)
    assert made.const_int_bound_is_bound(y)
    assert made.can_prove_less_equal_than_symbolic_shape_value(x, n) is False
    with made.constraint_scope(n >= 4):
        assert made.can_prove_less_equal_than_symbolic_shape_value(x, n)


def test_both_engines_know_the_bounds() -> None:
    made = analyzer(x=(0, 7))
    for simplified in (made.rewrite_simplify, made.canonical_simplify, made.simplify):
        assert simplified(fld(x, 8) + y + y) is made.simplify(y * 2)


def test_what_was_simplified_is_counted() -> None:
    made = Analyzer()
    with made.constraint_scope(x > 0):
        made.simplify(x + 1 - x)
        made.rewrite_simplify(x + y)
    stats = made.rewrite_simplify_stats
    assert (stats.nodes_visited, stats.constraints_entered) == (2, 1)
    assert (stats.rewrites_attempted, stats.rewrites_performed) == (2, 1)
    made.reset_rewrite_simplify_stats()
    assert made.rewrite_simplify_stats.nodes_visited == 0


def test_long_chains_of_inequalities_ask_for_an_extension() -> None:
    variables = [tir.Var(f"v{k}", "int32") for k in range(5)]
    chain = [one <= other for one, other in itertools.pairwise(variables)]
    for extension, proved in ((0, False), (Extension.TransitivelyProveInequalities, True)):
        made = Analyzer()
        made.enabled_extensions = extension
        assert made.enabled_extensions == Extension(extension)
        with made.constraint_scope(ops.all_of(*chain)):
            assert made.can_prove(variables[0] < variables[2] + 1)
            assert made.can_prove(variables[0] < variables[4] + 1) is proved
            assert not made.can_prove(variables[0] < variables[4])
    with pytest.raises(MisuseError, match="Extension"):
        made.enabled_extensions = "all"  # type: ignore[assignment]


def test_normal_forms_of_conditions_ask_for_extensions() -> None:
    made = Analyzer()
    p, q, r = x > 0, y > 0, z > 0
    made.enabled_extensions = Extension.ConvertBooleanToAndOfOrs
    assert made.simplify(tir.Or(tir.And(p, q), r)) is made.simplify(
        tir.And(tir.Or(p, r), tir.Or(q, r))
    )
    assert type(made.simplify(tir.Or(tir.And(p, q), r))) is tir.And
    made.enabled_extensions = Extension.ApplyConstraintsToBooleanBranches
    guarded = tir.And(x.equal(5), tir.Or(x.equal(5), q))
    assert made.simplify(guarded) is x.equal(5)
    assert made.simplify(tir.Or(x < 5, tir.And(tir.LE(5, x), q))) is made.simplify(tir.Or(x < 5, q))


def test_sets_of_bound_variables_need_no_domains() -> None:
    made = Analyzer()
    made.bind(x, Range(0, 8))
    made.update(y, IntervalSet(n, n + 3))
    found = made.int_set(x + y)
    assert (found.min_value, found.max_value) == (n, made.simplify(n + 10))
    with pytest.raises(MisuseError, match="expected a ConstIntBound"):
        made.update(z, 3)  # type: ignore[arg-type]


def test_halves_are_proved_equal() -> None:
    made = Analyzer()
    assert made.can_prove_equal(flm(x, 2) + flm(x + 1, 2), 1)
    assert made.prove_equal(flm(x, 2) + flm(x + 1, 2), 2) is False
    assert made.can_prove_equal(fld(x + 1, 2) - fld(x, 2), flm(x, 2))


@pytest.mark.parametrize(
    ("expr", "condition", "expected"),
    [
        (tir.Cast("int32", tir.Cast("float32", x)), ops.all_of(x >= -1, x < 4), (-1, 3)),
        (tir.Cast("int32", tir.Cast("float64", x)), True, (-(2**31), 2**31 - 1)),
        (flm(x, 8), flm(x, 4).equal(0), (0, 4)),
        (flm(x + 1, 8), flm(x, 4).equal(2), (3, 7)),
        (tir.Select(x > 0, x, y), ops.all_of(x < 9, y > 2, y < 4), (1, 8)),
        (
            tir.Call("int32", "tir.if_then_else", (x < 0, flm(x, 2), 0 - x)),
            ops.all_of(x > -9, x < 9),
            (-8, 1),
        ),
        (
            tir.Call(
                "int32", "tir.if_then_else", (x < 0, tir.Select(x.equal(-3), ops.const(7), x), y)
            ),
            ops.all_of(x > -9, y.equal(2)),
            (-8, 7),
        ),
        (
            (x + y) * 2048 - x * y,
            ops.all_of(x > 0, y > 0, x < 4096, y < 4096),
            (4095, 4096 * 2048 - 4095),
        ),
        (tir.Let(z, y + 1, z * 2), ops.all_of(y >= 0, y < 4), (2, 8)),
        (flm(x, 58) - 1, ops.all_of(flm(x, 58) >= 1, flm(x, 58) < 57), (0, 55)),
        (3 - flm(x, 58), flm(x, 58) >= 2, (-54, 1)),
        (flm(x, 58) + y, ops.all_of(flm(x, 58) + y < 9, y > 2), (3, 8)),
        (tir.Call("int32", "tir.vscale", ()), True, (1, 2**31 - 1)),
        (tir.Ramp(x, -2, 3), ops.all_of(x >= 0, x < 4), (-4, 3)),
        (tir.Ramp(x, 1, tir.Call("int32", "tir.vscale", ()) * 4), x >= 2, (2, INF)),
    ],
)
def test_bounds_under_conditions(expr: E, condition: E | bool, expected: tuple[int, int]) -> None:
    made = Analyzer()
    with made.constraint_scope(condition):
        assert made.const_int_bound(expr) == ConstIntBound(*expected)


@pytest.mark.parametrize(
    ("expr", "condition", "expected"),
    [
        (tir.Cast("int64", x * 3 + 1), True, (3, 1)),
        (tir.Cast("int32", tir.Cast("float64", x * 3 + 1)), ops.all_of(x > 0, x < 99), (3, 1)),
        (tir.Cast("int32", tir.Cast("float32", x * 3 + 1)), True, (1, 0)),
        (tdiv(x * 4 + 2, 2), x >= 0, (2, 1)),
        (ops.bitwise("tir.shift_right", x * 4 + 2, ops.const(1)), True, (2, 1)),
        (ops.bitwise("tir.shift_left", x * 2 + 1, ops.const(2)), True, (8, 4)),
        (tmod(x * 4 + 3, 8), x >= 0, (4, 3)),
        (ops.minimum(x * 3 + 1, y * 9 + 2), True, (1, 0)),
        (ops.bitwise("tir.bitwise_and", x * 16 + y * 4, ops.const(31)), True, (4, 0)),
        (ops.bitwise("tir.bitwise_and", x * 16 + y * 4, ops.const(17)), True, (1, 0)),
        (tir.Let(x, y * 10, x + 1), True, (10, 1)),
        (y + 1, flm(y, 4).equal(2), (4, 3)),
    ],
)
def test_residues_under_conditions(expr: E, condition: E | bool, expected: tuple[int, int]) -> None:
    made = Analyzer()
    with made.constraint_scope(condition):
        assert made.modular_set(expr) == ModularSet(*expected)


def test_a_stronger_proof_looks_at_symbolic_ends() -> None:
    made = Analyzer()
    made.update(x, IntervalSet(n * y, n * y + 3))
    claim = n * y <= x
    assert not made.can_prove(claim)
    assert made.can_prove(claim, ProofStrength.SYMBOLIC_BOUND)
    assert not made.can_prove(n * y < x, ProofStrength.SYMBOLIC_BOUND)
    assert not made.can_prove(x.equal(y), ProofStrength.SYMBOLIC_BOUND)


def test_a_clone_knows_the_same_and_learns_alone() -> None:
    known = Analyzer()
    known.bind(x, Range(0, 8))
    known.simplify(x + 0)
    clone = known.clone()
    assert clone.rewrite_simplify_stats.nodes_visited == 0
    clone.update(x, ModularSet(4, 0))
    clone.bind(y, Range(0, 4))
    assert (clone.modular_set(x).coeff, known.modular_set(x).coeff) == (4, 1)
    assert clone.try_compare(y, 0) == CompareResult.GE
    assert known.try_compare(y, 0) == CompareResult.UNKNOWN


def test_comparisons_by_what_is_known() -> None:
    known = Analyzer()
    assert known.try_compare(x, y) == CompareResult.UNKNOWN
    assert known.try_compare(x + 1, x + 1) == CompareResult.EQ
    for condition, result in (
        (x < y, CompareResult.LT),
        (x <= y, CompareResult.LE),
        (x > y, CompareResult.GT),
        (x >= y, CompareResult.GE),
        (x != y, CompareResult.NE),
    ):
        with known.constraint_scope(condition):
            assert known.try_compare(x, y) == result
    with known.constraint_scope(x < y), known.constraint_scope(y < z):
        assert known.try_compare(x, z) == CompareResult.LT
