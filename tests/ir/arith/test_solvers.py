"""Linear systems: solutions are neither lost nor added."""

import random

import pytest

from relaxpy import tir as T
from relaxpy.arith import (
    Analyzer,
    IntConstraints,
    IntConstraintsTransform,
    IntGroupBounds,
    solve_linear_equations,
    solve_linear_inequalities,
)
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.integers import Integers
from tests.fuzz.seed import COUNT
from tests.ir.arith.boxes import Env, holds, points, value

E = T.PrimExpr
x, y, z, n = (T.Var(name, "int32") for name in "xyzn")
EQUATION, ORDERS = T.EQ, (T.LE, T.LT, T.GE, T.GT)


def in_range(domain: Range, number: int, env: Env) -> bool:
    low, extent = value(domain.min, env), value(domain.extent, env)
    assert low is not None
    assert extent is not None
    return low <= number < low + extent


def satisfies(system: IntConstraints, env: Env) -> bool:
    """Whether `env` keeps to the ranges and relations of a system."""
    return all(holds(relation, env) for relation in system.relations) and all(
        in_range(domain, env[var], env) for var, domain in system.ranges.items() if var in env
    )


def solutions(system: IntConstraints, sides: dict[T.Var, range]) -> set[tuple[int, ...]]:
    """All members of a box that satisfy a system."""
    return {tuple(env.values()) for env in points(sides) if satisfies(system, env)}


def check_transform(found: IntConstraintsTransform, sides: dict[T.Var, range]) -> None:
    """Every old solution is a new one and back, and the maps undo each other."""
    old = [env for env in points(sides) if satisfies(found.src, env)]
    if not found.src_to_dst:
        assert old == []
        return
    for env in old:
        inner = {var: value(found.dst_to_src[var], env) or 0 for var in found.dst.variables}
        assert satisfies(found.dst, inner)
        assert all(value(found.src_to_dst[var], inner) == env[var] for var in found.src.variables)
    reach = {var: range(-25, 26) for var in found.dst.variables}
    for inner in points(reach) if len(reach) <= 2 else []:
        env = {v: value(found.src_to_dst[v], inner) or 0 for v in found.src.variables}
        if satisfies(found.dst, inner) and all(env[v] in side for v, side in sides.items()):
            assert env in old


@pytest.mark.parametrize("seed", range(max(3, COUNT // 3)))
def test_random_equations_keep_their_solutions(seed: int) -> None:
    chosen = random.Random(seed)
    variables = [x, y, z][: chosen.randint(1, 3)]
    relations = Integers(chosen, variables).system(
        chosen.randint(1, 3), (EQUATION, EQUATION, *ORDERS)
    )
    sides = {var: range(-4, 5) for var in variables}
    ranges = {var: Range(-4, 5) for var in variables}
    check_transform(solve_linear_equations(relations, variables, ranges), sides)


@pytest.mark.parametrize("seed", range(max(3, COUNT // 3)))
def test_random_inequalities_keep_their_solutions(seed: int) -> None:
    chosen = random.Random(seed)
    variables = [x, y, z][: chosen.randint(1, 3)]
    relations = Integers(chosen, variables).system(
        chosen.randint(1, 4), (EQUATION, *ORDERS, *ORDERS)
    )
    sides = {var: range(-4, 5) for var in variables}
    ranges = {var: Range(-4, 5) for var in variables}
    system = IntConstraints(variables, ranges, relations)
    solved = solve_linear_inequalities(system)
    assert isinstance(solved, IntConstraints)
    assert solutions(solved, sides) == solutions(system, sides)
    moved = solve_linear_inequalities(relations, variables, ranges, deskew_range=True)
    assert isinstance(moved, IntConstraintsTransform)
    assert all(isinstance(d.min, T.IntImm) and d.min.value == 0 for d in moved.dst.ranges.values())
    check_transform(moved, sides)


def test_a_unique_solution() -> None:
    found = solve_linear_equations([T.EQ(x + y, 20), T.EQ(x - y, 10)], [x, y])
    assert found.dst.variables == ()
    assert found.src_to_dst == {x: ops.const(15), y: ops.const(5)}


def test_what_is_left_free_has_new_names() -> None:
    found = solve_linear_equations([T.EQ(x + y + z, 15), T.EQ(x + y, 10)], [x, y, z], {})
    [free] = found.dst.variables
    assert free.name == "n0"
    assert found.src_to_dst[x] is free + 10
    assert found.src_to_dst[y] is free * -1
    assert found.src_to_dst[z] is ops.const(5)


def test_ranges_of_new_variables_follow_from_the_old() -> None:
    ranges = {x: Range(-5, 5), y: Range(0, 10)}
    found = solve_linear_equations([T.EQ(x + y, 0)], [x, y], ranges)
    [free] = found.dst.variables
    assert found.dst.ranges[free] == Range(-9, 1)
    assert list(found.dst.relations) == [T.LE(-5, free)]


def test_parameters_may_make_a_system_unsolvable() -> None:
    found = solve_linear_equations([T.EQ(x * 2 + y * 4, n)], [x, y])
    assert list(found.dst.relations) == [T.EQ(ops.floormod(n, 2), 0)]
    assert Analyzer().can_prove_equal(
        found.src_to_dst[x] * 2 + found.src_to_dst[y] * 4, ops.floordiv(n, 2) * 2
    )


@pytest.mark.parametrize(
    "relations",
    [
        [T.EQ(x + y, 0), T.EQ(x - y, 0), T.EQ(x, 5)],
        [T.EQ(x * 2 + y * 4, 7)],
        [T.EQ(x, 5), T.LT(x, 3)],
    ],
)
def test_no_solution_of_equations(relations: list[E]) -> None:
    found = solve_linear_equations(relations, [x, y], {})
    assert (found.dst.variables, found.src_to_dst, found.dst_to_src) == ((), {}, {})
    assert list(found.dst.relations) == [ops.const(False)]


def test_a_system_without_variables_is_itself() -> None:
    relations = [T.EQ(x + y, 20), T.EQ(x - y, 10)]
    found = solve_linear_equations(relations)
    assert list(found.src.relations) == relations
    assert found.dst == found.src
    assert found.src_to_dst == found.dst_to_src == {}


def test_two_variables_bound_each_other() -> None:
    problem, ranges = [T.LE(x + y, 20), T.GE(x - y, 10)], {x: Range(-100, 100), y: Range(0, 10)}
    found = solve_linear_inequalities(problem, [x, y], ranges)
    assert isinstance(found, IntConstraints)
    assert found.ranges[y] == Range(0, 6)
    assert found.ranges[x].min is y + 10
    assert found.ranges[x].extent is ops.const(11)
    moved = solve_linear_inequalities(problem, [x, y], ranges, deskew_range=True)
    assert isinstance(moved, IntConstraintsTransform)
    first, second = moved.dst.variables
    assert list(moved.dst.relations) == [first + second * 2 <= 10]
    assert moved.src_to_dst == {x: first + second + 10, y: second}
    assert moved.dst_to_src == {first: x - y - 10, second: y}


def test_bounds_that_meet_leave_one_value() -> None:
    problem = [T.GE(x + y, 10), T.GE(x - y, 2), T.LE(x, 6)]
    found = solve_linear_inequalities(problem, [x, y])
    assert isinstance(found, IntConstraints)
    assert (found.ranges[x], found.ranges[y]) == (Range(6, 7), Range(4, 5))
    moved = solve_linear_inequalities(problem, [x, y], deskew_range=True)
    assert isinstance(moved, IntConstraintsTransform)
    assert (moved.dst.variables, moved.dst.ranges, moved.dst.relations) == ((), {}, ())
    assert moved.src_to_dst == {x: ops.const(6), y: ops.const(4)}


def test_products_of_variables_stay_relations() -> None:
    problem = [T.LE(x, 6), T.GE(x, 6), T.GE(x - z * y, 0), T.LE(x - z * y, 0)]
    found = solve_linear_inequalities(problem, [x, y, z])
    assert isinstance(found, IntConstraints)
    assert found.ranges[x] == Range(6, 7)
    assert found.relations[0] is T.EQ(y * z, x)
    assert y not in found.ranges
    moved = solve_linear_inequalities(problem, [x, y, z], deskew_range=True)
    assert isinstance(moved, IntConstraintsTransform)
    assert (moved.src_to_dst[y], moved.src_to_dst[z]) == (y, z)
    assert moved.src_to_dst[x] is ops.const(6)


def test_no_solution_of_inequalities() -> None:
    problem, ranges = [-x - 4 <= -5 * x + 2, x * 4 + 5 <= x * 5], {x: Range(-20, 21)}
    found = solve_linear_inequalities(problem, [x], ranges)
    assert isinstance(found, IntConstraints)
    assert (found.variables, found.ranges) == ((), {})
    assert list(found.relations) == [ops.const(False)]
    moved = solve_linear_inequalities(problem, [x], ranges, deskew_range=True)
    assert isinstance(moved, IntConstraintsTransform)
    assert list(moved.dst.relations) == [ops.const(False)]
    assert moved.src_to_dst == moved.dst_to_src == {}


def test_the_best_range_is_the_shortest() -> None:
    bounds = IntGroupBounds(2, [3, n], [], [9, 20])
    assert bounds.find_best_range() == Range.from_min_extent(2, 3)
    assert IntGroupBounds(1, [n], [], []).find_best_range() is None
    assert IntGroupBounds(1, [], [], []).find_best_range() is None
    assert IntGroupBounds.from_range(Range(2, 7)).find_best_range() == Range(2, 7)
    assert IntGroupBounds.from_range(Range(7, 8)).equal == (ops.const(7),)
    found = IntGroupBounds(1, [y], [], [10]).find_best_range({y: Range(3, 5)})
    assert found == Range.from_min_extent(y, 8)


def test_parts_of_a_system_are_checked() -> None:
    with pytest.raises(MisuseError, match="expected a Range for each"):
        IntConstraints([x], {x: 3}, [])  # type: ignore[dict-item]
    with pytest.raises(MisuseError, match="expected integer variables"):
        IntConstraints([T.Var("f", "float32")], {}, [])
    with pytest.raises(MisuseError, match="already has variables and ranges"):
        solve_linear_inequalities(IntConstraints([x], {}, []), [x])
    with pytest.raises(MisuseError, match="Boolean"):
        solve_linear_equations([x + 1], [x])
    with pytest.raises(MisuseError, match="positive integer"):
        IntGroupBounds(0, [], [], [])
    with pytest.raises(MisuseError, match="expected a Range"):
        IntGroupBounds.from_range(3)  # type: ignore[arg-type]


def test_ranges_may_be_of_another_width() -> None:
    wide = T.Var("w", "int64")
    found = solve_linear_inequalities(
        [T.LT(wide, T.const(5, "int64"))], [wide], {wide: Range(0, 9)}
    )
    assert isinstance(found, IntConstraints)
    assert found.ranges[wide].extent is T.const(5, "int64")


def test_coefficients_that_outgrow_the_datatype_say_nothing() -> None:
    relations = [T.EQ(x, y * 65536), T.EQ(y, z * 65536)]
    found = solve_linear_equations(relations, [x, y, z])
    assert found.dst == found.src
    assert found.src_to_dst == {x: x, y: y, z: z}
    over_parameter = [T.EQ(x * 65536, n), T.EQ(x, 0), T.EQ(n * 65536, y)]
    kept = solve_linear_equations(over_parameter, [x, y])
    assert list(kept.dst.relations) != [ops.const(False)]
