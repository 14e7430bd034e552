"""Algebraic laws of the relations between struct infos, on generated ones."""

import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.ir.relax import nodes as rx, relations
from relaxpy.ir.relax.nodes import static_type as ty
from relaxpy.ir.relax.relations.compatibility import Compatibility, check_compatibility, is_base_of
from relaxpy.ir.relax.relations.shape_vars import erase_to_well_defined
from relaxpy.tvm.relax import helpers
from tests.ir.relax.sinfos import SHAPES, VARIABLES, M, N, sinfos, weakened

OPEN = sinfos()
PLAIN = sinfos(functions=False)
GROUND = sinfos(variables=())
SCOPES = st.sampled_from([(), (N,), (N, M), VARIABLES])


def below(a: rx.StructInfo, b: rx.StructInfo, scope: tuple[object, ...] = ()) -> bool:
    return is_base_of(b, a, scope)  # type: ignore[arg-type]


def chain(
    draw: st.DataObject, sinfo: st.SearchStrategy[rx.StructInfo]
) -> tuple[rx.StructInfo, ...]:
    """Three struct infos, often each above the one before."""
    a = draw.draw(sinfo)
    b = draw.draw(st.one_of(weakened(a), sinfo))
    return a, b, draw.draw(st.one_of(weakened(b), sinfo))


@pytest.mark.rule("SUB-1", "SI-16", "RES-13")
@settings(max_examples=120)
@given(OPEN, SCOPES)
def test_every_struct_info_is_below_itself(a: rx.StructInfo, scope: tuple[object, ...]) -> None:
    assert below(a, a, scope)
    renamed = relations.alpha_rename(a, scope)  # type: ignore[arg-type]
    assert below(a, renamed, scope)
    assert below(renamed, a, scope)


@pytest.mark.rule("SUB-3")
@given(OPEN)
def test_object_is_above_all_and_below_itself_only(a: rx.StructInfo) -> None:
    top = rx.ObjectStructInfo()
    assert below(a, top)
    assert below(top, a) == isinstance(a, rx.ObjectStructInfo)


@pytest.mark.rule("SUB-2", "RES-9")
@settings(max_examples=200)
@given(st.data(), SCOPES)
def test_below_is_transitive(data: st.DataObject, scope: tuple[object, ...]) -> None:
    a, b, c = chain(data, OPEN)
    if below(a, b, scope) and below(b, c, scope):
        assert below(a, c, scope)


@pytest.mark.rule("CMP-24", "CMP-23", "SUB-19")
@settings(max_examples=200)
@given(st.data(), SCOPES)
def test_compatibility_agrees_with_the_order_and_with_types(
    data: st.DataObject, scope: tuple[object, ...]
) -> None:
    a, b, _ = chain(data, OPEN)
    answer = check_compatibility(a, b, scope)  # type: ignore[arg-type]
    assert (answer is Compatibility.COMPATIBLE) == below(a, b, scope)
    if answer is not Compatibility.INCOMPATIBLE:
        assert helpers.is_subtype(ty.erase_struct_info(a), ty.erase_struct_info(b))
    if below(a, b, scope):
        assert not relations.provably_disjoint(a, b)


@pytest.mark.rule("SUB-20", "SUB-21")
@settings(max_examples=200)
@given(st.data(), SCOPES)
def test_the_lub_is_above_both(data: st.DataObject, scope: tuple[object, ...]) -> None:
    a, b, _ = chain(data, OPEN)
    up, other = relations.struct_info_lca(a, b, scope), relations.struct_info_lca(b, a, scope)  # type: ignore[arg-type]
    assert below(a, up, scope)
    assert below(b, up, scope)
    assert below(up, other, scope)
    assert below(other, up, scope)
    if below(a, b, scope):
        assert up is b or (below(up, b, scope) and below(b, up, scope))


@pytest.mark.rule("SUB-20")
@settings(max_examples=200)
@given(st.data())
def test_the_lub_is_the_least_where_no_function_binds_sizes(data: st.DataObject) -> None:
    a, b, c = chain(data, st.one_of(GROUND, PLAIN))
    b = data.draw(st.one_of(st.just(b), weakened(a)))
    if below(a, c) and below(b, c):
        assert below(relations.struct_info_lca(a, b), c)


@pytest.mark.rule("SUB-31")
@settings(max_examples=200)
@given(st.data(), SCOPES)
def test_the_glb_is_below_both(data: st.DataObject, scope: tuple[object, ...]) -> None:
    a, b, _ = chain(data, OPEN)
    down = relations.struct_info_glb(a, b, scope)  # type: ignore[arg-type]
    other = relations.struct_info_glb(b, a, scope)  # type: ignore[arg-type]
    assert (down is None) == (other is None)
    if down is not None and other is not None:
        assert below(down, a, scope)
        assert below(down, b, scope)
        assert below(down, other, scope)
    if below(a, b, scope):
        assert down is not None
        assert below(a, down, scope)


@pytest.mark.rule("SUB-31")
@settings(max_examples=200)
@given(st.data())
def test_the_glb_is_the_greatest_where_no_function_binds_sizes(data: st.DataObject) -> None:
    c = data.draw(st.one_of(GROUND, PLAIN))
    a, b = data.draw(weakened(c)), data.draw(weakened(c))
    if below(c, a) and below(c, b):
        down = relations.struct_info_glb(a, b)
        assert down is not None
        assert below(c, down)


@pytest.mark.rule("ERA-10")
@settings(max_examples=200)
@given(PLAIN, SCOPES, st.sampled_from([(), SHAPES]))
def test_erasing_never_makes_more_specific(
    a: rx.StructInfo, scope: tuple[object, ...], shapes: tuple[rx.Var, ...]
) -> None:
    assert below(a, erase_to_well_defined(a, shapes, scope))  # type: ignore[arg-type]


@pytest.mark.rule("ERA-1", "ERA-11")
@settings(max_examples=120)
@given(OPEN, SCOPES, st.sampled_from([(), SHAPES[:1], SHAPES]))
def test_erasing_twice_is_erasing_once(
    a: rx.StructInfo, scope: tuple[object, ...], shapes: tuple[rx.Var, ...]
) -> None:
    once = erase_to_well_defined(a, shapes, scope)  # type: ignore[arg-type]
    assert erase_to_well_defined(once, shapes, scope) is once  # type: ignore[arg-type]
    assert all(var in scope for var in relations.free_shape_vars(once, scope))  # type: ignore[arg-type]
    if shapes == SHAPES and all(v in scope for v in relations.free_shape_vars(a, scope)):  # type: ignore[arg-type]
        assert once is a


@pytest.mark.rule("MAP-4", "MAP-5", "MAP-9")
@settings(max_examples=120)
@given(OPEN, OPEN, SCOPES)
def test_only_unbound_lone_variables_are_mapped(
    a: rx.StructInfo, b: rx.StructInfo, scope: tuple[object, ...]
) -> None:
    table = relations.shape_var_map(a, b, scope)  # type: ignore[arg-type]
    assert all(var in relations.definable_shape_vars(a) and var not in scope for var in table)


@given(OPEN)
def test_substituting_nothing_gives_the_same_struct_info(a: rx.StructInfo) -> None:
    assert relations.substitute_info(a, {}) is a
    assert relations.substitute_info(a, {N: N}) is a


@pytest.mark.rule("TYP-6")
@given(OPEN)
def test_wrapping_a_type_and_erasing_gives_it_back(a: rx.StructInfo) -> None:
    erased = ty.erase_struct_info(a)
    assert ty.erase_struct_info(ty.wrap_type(erased)) == erased


@pytest.mark.rule("TYP-7", "TYP-13", "TYP-15")
@settings(max_examples=120)
@given(st.data())
def test_types_are_a_partial_order_with_bounds(data: st.DataObject) -> None:
    a, b, c = map(ty.erase_struct_info, chain(data, OPEN))
    assert helpers.is_subtype(a, a)
    assert helpers.is_subtype(a, ty.ObjectType())
    if helpers.is_subtype(a, b) and helpers.is_subtype(b, c):
        assert helpers.is_subtype(a, c)
    up, down = helpers.find_lub(a, b), helpers.find_glb(a, b)
    assert helpers.is_subtype(a, up)
    assert helpers.is_subtype(b, up)
    assert up == helpers.find_lub(b, a)
    assert down == helpers.find_glb(b, a)
    if helpers.is_subtype(a, c) and helpers.is_subtype(b, c):
        assert helpers.is_subtype(up, c)
    if down is not None:
        assert helpers.is_subtype(down, a)
        assert helpers.is_subtype(down, b)
    if helpers.is_subtype(a, b):
        assert (up, down) == (b, a)
