"""Compatibility, mapping of shape variables, and substitution, rule by rule (CMP, MAP)."""

from collections.abc import Callable

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo
from relaxpy.ir.relax.relations import (
    BaseCheckResult,
    Compatibility,
    alpha_rename,
    check_compatibility,
    definable_shape_vars,
    explain_disjointness,
    explain_incompatibility,
    free_shape_vars,
    is_base_of,
    map_params,
    provably_disjoint,
    shape_var_map,
    struct_info_base_check,
    struct_info_glb,
    struct_info_lca,
    substitute_info,
)
from relaxpy.ir.tir import expr as tir
from tests.ir.ops.notation import evaluate
from tests.ir.relax.sinfos import (
    FIRST,
    K,
    M,
    N,
    Object,
    S,
    func,
    packed,
    prim,
    rank,
    ranked,
    shape,
    tensor,
    tuple_of,
)
from tests.rows import by_rule

MAYBE, YES = Compatibility.POSSIBLE, Compatibility.COMPATIBLE


SMALL = tir.Var("small", "int32")
REAL, HALF = tir.Var("real", "float32"), tir.FloatImm("float32", 0.5)
MESH = DeviceMesh((2,), [0, 1])


def spread(placement: str, *dims: object) -> DTensorStructInfo:
    """A tensor of shape `dims`, (n,) if not given, over the devices of `MESH`."""
    return DTensorStructInfo(tensor(*(dims or (N,))), MESH, placement)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected", "text"),
    [
        (tensor(3, 5), tensor(3, 6), "dimension 1: 5 is not 6"),
        (tensor(N, 5), tensor(M, 6), "dimension 1: 5 is not 6"),
        (tensor(N, 5), tensor(M, 5), "dimension 0: n may not be m"),
        (shape(N, 5), shape(N, N), "member 1: 5 may not be n"),
        (
            tuple_of(Object, tuple_of(rank(2))),
            tuple_of(Object, tuple_of(rank(3))),
            "field 1: field 0: rank 2 is not rank 3",
        ),
        (rank(-1), rank(2), "an unknown rank is not rank 2"),
        (tensor(N, dtype=""), tensor(N), "an unknown dtype is not float32"),
        (tensor(N, dtype="int64"), tensor(N), "dtype int64 is not float32"),
        (rank(1), tensor(N), "the shape is not known"),
        (Object, tensor(N), "an object is not a tensor"),
        (
            func(rank(1), ret=rank(1)),
            func(rank(2), ret=rank(1)),
            "parameter 0: rank 2 is not rank 1",
        ),
        (func(ret=rank(1)), func(ret=rank(2)), "result: rank 1 is not rank 2"),
        (func(ret=rank(1)), func(Object, ret=rank(2)), "0 parameters are not 1"),
        (
            packed(),
            func(ret=Object, pure=False),
            "a packed function is not one with known parameters",
        ),
        (prim(3), prim(4), "3 is not 4"),
        (func(ret=Object, pure=False), func(ret=Object), "an impure function is not a pure one"),
    ],
)
def test_the_innermost_difference_is_named(value, expected, text) -> None:
    assert explain_incompatibility(value, expected) == text


@pytest.mark.parametrize(
    "ask",
    [
        *(check_compatibility, explain_incompatibility, provably_disjoint, shape_var_map),
        *(struct_info_base_check, struct_info_glb, struct_info_lca, is_base_of),
    ],
)
def test_only_struct_infos_are_related(ask: Callable[[object, object], object]) -> None:
    for pair in ((3, Object), (tensor(N), "float32"), (tensor(N), None)):
        with pytest.raises(MisuseError, match="expected a StructInfo"):
            ask(*pair)


@pytest.mark.parametrize(
    "ask",
    [
        *(check_compatibility, explain_incompatibility, shape_var_map),
        *(struct_info_base_check, struct_info_glb, struct_info_lca, is_base_of),
    ],
)
def test_only_variables_are_in_scope(ask: Callable[..., object]) -> None:
    one, other = func(tensor(N), ret=tensor(N)), func(tensor(M), ret=tensor(M))
    for wrong in ("n", ["n"], (N, 1), N, 5, S):
        with pytest.raises(MisuseError, match=r"a collection of tir\.Var"):
            ask(one, other, wrong)
    assert ask(one, other, None) == ask(one, other, ())
    assert ask(one, other, [N]) == ask(one, other, {N}) == ask(one, other, {N: M})


@pytest.mark.parametrize(
    ("base", "derived", "result"),
    [
        (rank(1), tensor(N), BaseCheckResult.PASS),
        (tensor(N), tensor(M), BaseCheckResult.FAIL_L2),
        (tensor(N), Object, BaseCheckResult.FAIL_L1),
        (rank(2), rank(-1), BaseCheckResult.FAIL_L1),
        (rank(2), rank(1), BaseCheckResult.FAIL_L0),
        (tensor(2), tensor(3), BaseCheckResult.FAIL_L0),
        (shape(2), tensor(2), BaseCheckResult.FAIL_L0),
    ],
)
def test_base_check(base: rx.StructInfo, derived: rx.StructInfo, result: BaseCheckResult) -> None:
    assert struct_info_base_check(base, derived) is result


@pytest.mark.rule("RES-19")
@pytest.mark.parametrize(
    ("a", "b", "disjoint"),
    [
        (tensor(N), shape(N), True),
        (tensor(N), Object, False),
        (tensor(N, 2), rank(-1, ""), False),
        (rank(1), rank(2), True),
        (rank(1, "int64"), rank(1), True),
        (tensor(N), tensor(N + 1), True),
        (tensor(N), tensor(M), False),
        (tuple_of(tensor(2)), tuple_of(tensor(3)), True),
        (tuple_of(tensor(2)), tuple_of(), True),
        (prim(1), prim(2), True),
        (prim(), prim(N), False),
        (packed(), func(ret=Object), True),
        (func(ret=Object), func(Object, ret=Object), True),
        (func(ret=rank(1)), func(ret=rank(2)), False),
        (packed(), packed(FIRST), False),
        (spread("S[0]"), spread("R"), True),
        (spread("R"), spread("R", M), False),
        (spread("R"), spread("R", N + 1), True),
    ],
)
def test_provably_disjoint(a: rx.StructInfo, b: rx.StructInfo, disjoint: bool) -> None:
    assert provably_disjoint(a, b) is disjoint
    assert provably_disjoint(b, a) is disjoint


@pytest.mark.parametrize(
    ("a", "b", "difference"),
    [
        (tuple_of(ranked(-1), rank(1)), tuple_of(shape(2, 3), rank(2)), "field 1: rank 1 is not"),
        (rank(-1, "int64"), tensor(2), "dtype int64 is not float32"),
        (rank(2, ""), tensor(2), "rank 2 is not rank 1"),
        (rank(-1, ""), tensor(2), "shape"),
        (tuple_of(Object), tuple_of(rank(1), Object), "1 fields are not 2"),
    ],
)
def test_the_difference_omits_what_is_unknown(a, b, difference) -> None:
    assert difference in (explain_disjointness(a, b) or "")


Table = dict[tir.Var, object]
MAPPINGS = """
MAP-1: f32(n), shape(3) -> {}
MAP-1: obj, f32(n) -> {}
MAP-2: tup(f32(n), shape(m)), tup(f32(2), shape(3)) -> {n: 2, m: 3}
MAP-2: tup(f32(n)), tup(f32(2), obj) -> {}
MAP-3: func(f32(n), ret=f32(m)), func(f32(2), ret=f32(3)) -> {}
MAP-3: tup(f32(n), func(f32(n, m), ret=obj)), tup(f32[1], func(f32(2, 3), ret=obj)) -> {n: 2}
MAP-3: tup(f32(n), func(f32(n), ret=obj)), tup(f32[1], func(f32(k), ret=obj)) -> {}
MAP-3: tup(f32(n), packed()), tup(f32[1], func(f32(k), ret=obj)) -> {}
RES-72: tup(func(f32(n), ret=obj)), tup(func(f32(2), ret=obj)) -> {}
MAP-4: f32(n, m), f32(k + 1, 4) -> {n: k + 1, m: 4}
MAP-4: f32(n), f32(2, 3) -> {}
MAP-5: shape(n, 2), shape(m * 2, 3) -> {n: m * 2}
MAP-5: shape(n), shape[1] -> {}
RES-16: shape(n), shape(5) -> {n: 5}
MAP-6: prim(n), prim(m + 1) -> {n: m + 1}
MAP-6: prim(n), prim("int64") -> {}
MAP-7: f32(n * 2, m), f32(4, 5) -> {m: 5}
MAP-8: f32(n, n), f32(2, 3) -> {n: 2}
MAP-8: tup(f32[1], shape(n)), tup(f32(2), shape(3)) -> {n: 3}
"""


def check_mapping(s1: rx.StructInfo, s2: rx.StructInfo, expected: Table) -> None:
    found = shape_var_map(s1, s2)
    images = {
        var: image if isinstance(image, tir.PrimExpr) else tir.IntImm("int64", image)  # type: ignore[arg-type]
        for var, image in expected.items()
    }
    assert list(found) == list(images)
    assert all(found[var] is image for var, image in images.items())


@pytest.mark.rule("MAP-1", "MAP-2", "MAP-3", "RES-72", "MAP-4", "MAP-5", "RES-16", "MAP-6", "MAP-7")
@pytest.mark.rule("MAP-8")
@pytest.mark.parametrize("row", by_rule(MAPPINGS))
def test_mapping(row: str) -> None:
    check_mapping(*evaluate(f"({row.replace(' -> ', ', ')})"))


@pytest.mark.rule("MAP-6")
def test_scalars_of_other_datatypes_are_mapped() -> None:
    check_mapping(prim(SMALL, "int32"), prim(M), {SMALL: M})
    check_mapping(prim(REAL, "float32"), prim(HALF, "float32"), {REAL: HALF})
    check_mapping(prim(REAL, "float32"), prim(M), {})


@pytest.mark.rule("MAP-1", "MAP-3")
def test_functions_of_two_forms_or_arities_map_nothing() -> None:
    one, two = func(tensor(N), ret=Object), func(tensor(M), tensor(M), ret=Object)
    for a, b in ((one, packed()), (packed(), one), (packed(), packed()), (one, two), (two, one)):
        assert shape_var_map(tuple_of(a, tensor(N)), tuple_of(b, tensor(M))) == {N: M}
        assert shape_var_map(a, b) == {}


@pytest.mark.rule("MAP-7")
def test_variables_in_scope_are_not_mapped() -> None:
    assert shape_var_map(tensor(N, M), tensor(2, 3), {N}) == {M: tir.IntImm("int64", 3)}
    assert shape_var_map(tensor(N), tensor(2), {N}) == {}


@pytest.mark.rule("MAP-9")
def test_a_mapping_is_applied_at_once_and_not_to_its_images() -> None:
    swapped = substitute_info(tensor(N, M, N + 1), {N: M, M: N})
    assert swapped == tensor(M, N, M + 1)
    assert substitute_info(tensor(N * 2), {N: tir.IntImm("int64", 3)}) == tensor(6)


@pytest.mark.rule("MAP-9", "RES-71")
def test_bound_variables_are_renamed_so_that_none_is_captured() -> None:
    recursive = func(tensor(N), tensor(M), ret=tensor(N + M))
    renamed = alpha_rename(recursive)
    assert renamed == recursive
    assert renamed.params is not None
    table = map_params(renamed.params, (tensor(M), tensor(N + 1)))
    assert substitute_info(renamed, table).ret == tensor(M + N + 1)
    assert check_compatibility(recursive, func(tensor(M), tensor(N), ret=tensor(M + N))) is YES
    assert check_compatibility(recursive, func(tensor(M), tensor(N), ret=tensor(M * 2))) is MAYBE


@pytest.mark.rule("RES-71")
def test_a_bound_variable_of_a_nested_function_differs_from_one_of_the_other_side() -> None:
    one = func(Object, func(tensor(N), ret=Object), ret=Object)
    other = func(tensor(N), func(tensor(N), ret=Object), ret=Object)
    assert check_compatibility(one, other) is MAYBE
    assert check_compatibility(one, func(tensor(N), func(rank(1), ret=Object), ret=Object)) is YES


@pytest.mark.rule("SC-16", "RES-70")
def test_bound_variables_of_functions_are_not_free_outside() -> None:
    sinfo = tuple_of(tensor(M), func(tensor(N), func(tensor(N, K), ret=Object), ret=tensor(N * M)))
    assert free_shape_vars(sinfo) == (M,)
    assert free_shape_vars(sinfo, {N}) == (M, N)
    assert definable_shape_vars(sinfo) == (M,)
    assert definable_shape_vars(tuple_of(shape(K, N + 1), prim(M))) == (K, M)


def test_a_rename_leaves_variables_in_scope() -> None:
    sinfo = func(tensor(N, M), ret=tensor(N + M))
    renamed = alpha_rename(sinfo, {N})
    assert free_shape_vars(renamed, {N}) == (N,)
    assert M not in free_shape_vars(renamed, {N, M})
