"""Bounds of every pair of a small set of struct infos or types are bounds, and the closest ones."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.relax.nodes.static_type import (
    DynTensorType,
    FuncType,
    ObjectType,
    PackedFuncType,
    ShapeType,
    TupleType,
    TypeKind,
    erase_struct_info,
)
from relaxpy.ir.relax.relations import shape_vars, struct_info_glb, struct_info_lca
from relaxpy.ir.relax.relations.compatibility import (
    check_compatibility,
    explain_disjointness,
    explain_incompatibility,
    is_base_of,
    provably_disjoint,
)
from relaxpy.tvm.relax.helpers import find_glb, find_lub, is_subtype
from tests.ir.relax.sinfos import (
    FIRST,
    M,
    N,
    Object,
    S,
    func,
    packed,
    prim,
    rank,
    shape,
    tensor,
    tuple_of,
)

Element = TypeVar("Element")


def on(shape: object, dtype: str, device: str | None, ndim: int | None) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(shape, dtype, device, ndim)  # type: ignore[arg-type]


MESH, OTHER_MESH = DeviceMesh((2,), (0, 1)), DeviceMesh((2,), (2, 3))
SPLIT, COPIED = Placement.from_text("S[0]"), Placement.from_text("R")


def spread(
    whole: rx.TensorStructInfo, mesh: DeviceMesh = MESH, placement: Placement = SPLIT
) -> DTensorStructInfo:
    return DTensorStructInfo(whole, mesh, placement)


SHAPED = [((N,), None), ((M,), None), (S, -1), (None, 1), (None, 2), (None, -1)]
TENSORS = [
    on(dims, dtype, device, ndim)
    for (dims, ndim), dtype, device in product(
        SHAPED, ("float32", "int64", ""), (None, "cpu", "cuda")
    )
]
SPREAD = [
    spread(whole, mesh, placement)
    for whole, mesh, placement in product(
        (tensor(N), tensor(M), rank(1), rank(2), tensor(N, dtype=""), tensor(N, dtype="int8")),
        (MESH, OTHER_MESH),
        (SPLIT, COPIED),
    )
]
OTHERS = [
    *(shape(N), shape(M), shape(N, M)),
    *(rx.ShapeStructInfo(None, 1), rx.ShapeStructInfo(None, 2), rx.ShapeStructInfo(None, -1)),
    *(prim(), prim(N), prim(M), prim(3), prim(dtype="bool")),
    *(tensor(N), rank(1), rank(-1, "")),
]
PACKED = [
    packed(derive, pure)
    for derive, pure in product((rx.EMPTY_DERIVE, rx.DEFAULT_DERIVE, FIRST), (False, True))
]
PAIRS = [tuple_of(), *(tuple_of(*fields) for fields in product(OTHERS[:8:2], repeat=2))]
FUNCTIONS = [
    func(*params, ret=ret, pure=pure)
    for params, ret, pure in product(
        ((), (rank(1),), (rank(-1),), (prim(),)), (rank(1), rank(-1), prim()), (False, True)
    )
]
UNIVERSES = {
    "tensors": [*TENSORS, Object],
    "spread tensors": [*SPREAD, tensor(N), Object],
    "shapes and scalars": [*OTHERS, Object],
    "packed functions": [*PACKED, func(ret=Object), Object],
    "tuples": [*PAIRS, Object],
    "functions": [*FUNCTIONS, packed(), Object],
}


def check_bounds(
    universe: Sequence[Element],
    is_below: Callable[[Element, Element], bool],
    lub: Callable[[Element, Element], Element],
    glb: Callable[[Element, Element], Element | None],
) -> None:
    below = [[is_below(a, b) for b in universe] for a in universe]
    for (i, a), (j, b) in product(enumerate(universe), repeat=2):
        upper, lower = lub(a, b), glb(a, b)
        assert is_below(a, upper), (a, b)
        assert is_below(b, upper), (a, b)
        if below[i][j]:
            assert is_below(upper, b), (a, b)
            assert lower is not None, (a, b)
            assert is_below(a, lower), (a, b)
        for k, c in enumerate(universe):
            if below[i][k] and below[j][k]:
                assert is_below(upper, c), (a, b, c)
            if below[k][i] and below[k][j]:
                assert lower is not None, (a, b, c)
                assert is_below(c, lower), (a, b, c)
        if lower is not None:
            assert is_below(lower, a), (a, b)
            assert is_below(lower, b), (a, b)


@pytest.mark.rule("SUB-20", "SUB-21", "SUB-31", "SUB-23", "SUB-24", "SUB-33")
@pytest.mark.parametrize("kind", UNIVERSES)
def test_bounds_of_struct_infos_are_the_closest_ones(kind: str) -> None:
    universe = UNIVERSES[kind]
    check_bounds(universe, lambda a, b: is_base_of(b, a), struct_info_lca, struct_info_glb)
    for a, b in product(universe, repeat=2):
        if is_base_of(b, a):
            assert not provably_disjoint(a, b)
            assert explain_incompatibility(a, b) is None
            assert is_subtype(erase_struct_info(a), erase_struct_info(b))
        else:
            assert explain_incompatibility(a, b) is not None
        if struct_info_glb(a, b) is not None:
            assert not provably_disjoint(a, b), (a, b)


SIMPLE: list[TypeKind] = [
    *(DynTensorType(n, d) for n in (-1, 1, 2) for d in ("", "int8", "float32")),  # type: ignore[arg-type]
    *(ShapeType(-1), ShapeType(1), ShapeType(2), PackedFuncType(), ObjectType()),
]
FEW = [SIMPLE[0], SIMPLE[4], ShapeType(1), ShapeType(2), ObjectType()]
TYPES: list[TypeKind] = [
    *SIMPLE,
    *(TupleType(fields) for n in (0, 1, 2) for fields in product(FEW[:4], repeat=n)),
    *(
        FuncType(args, ret, pure)
        for args in ((), *((a,) for a in FEW))
        for ret in FEW[:4]
        for pure in (False, True)
    ),
]


@pytest.mark.rule("TYP-7", "TYP-13", "TYP-14", "TYP-15", "TYP-16")
def test_bounds_of_types_are_the_closest_ones() -> None:
    check_bounds(TYPES, is_subtype, find_lub, find_glb)


@pytest.mark.rule("MAP-1", "WF-6a", "ERA-1", "TYP-3")
def test_a_tensor_on_many_devices_is_related_as_the_whole_tensor_is() -> None:
    one, many = spread(tensor(N, 4)), spread(tensor(M, 4))
    assert shape_vars.definable_shape_vars(one) == shape_vars.free_shape_vars(one) == (N,)
    assert shape_vars.shape_var_map(one, many) == {N: M}
    assert shape_vars.shape_var_map(one, tensor(M, 4)) == {}
    assert shape_vars.substitute_info(one, {N: M}) == many
    assert shape_vars.erase_to_well_defined(one, (), (N,)) is one
    assert shape_vars.erase_to_well_defined(one, (), ()) == spread(rank(2))
    assert erase_struct_info(one) == ObjectType()
    assert shape_vars.alpha_rename(one) is one
    assert check_compatibility(one, many) == check_compatibility(tensor(N, 4), tensor(M, 4))
    assert explain_incompatibility(one, spread(tensor(N, 5))) == "dimension 1: 4 is not 5"


@pytest.mark.rule("RES-19")
@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (spread(tensor(N)), spread(tensor(N), OTHER_MESH), "mesh "),
        (spread(tensor(N)), spread(tensor(N), MESH, COPIED), "placement "),
        (spread(tensor(2)), spread(tensor(3)), "dimension 0: 2 is not 3"),
        (on((N,), "int8", "cpu", None), on((N,), "int8", "cuda", None), "device cpu is not cuda"),
        (rank(1), rank(2), "rank 1 is not rank 2"),
        (rank(2, ""), tensor(3), "rank 2 is not rank 1"),
        (tensor(3, dtype="int8"), rank(-1), "dtype int8 is not float32"),
        (on(None, "", "cpu", None), on((2,), "int8", "cuda", None), "device cpu is not cuda"),
        (shape(2), shape(3), "member 0: 2 is not 3"),
        (rx.ShapeStructInfo(None, 2), shape(3), "rank 2 is not rank 1"),
        (prim(1), prim(2), "1 is not 2"),
        (prim(), prim(dtype="bool"), "dtype int64 is not bool"),
        (tuple_of(Object, rank(1)), tuple_of(prim(), rank(2)), "field 1: rank 1 is not rank 2"),
        (
            tuple_of(rx.ShapeStructInfo(None, -1), rank(-1, ""), prim(1)),
            tuple_of(shape(2), tensor(3), prim(2)),
            "field 2: 1 is not 2",
        ),
        (
            tuple_of(tuple_of(Object), on(None, "", None, None), shape(2)),
            tuple_of(tuple_of(shape(2)), on((2,), "int8", "cpu", None), shape(3)),
            "field 2: member 0: 2 is not 3",
        ),
        (func(ret=Object), func(Object, ret=Object), "0 parameters are not 1"),
        (packed(pure=True), func(ret=Object), "a packed function is not one with known parameters"),
        (func(ret=Object), packed(), "one with known parameters is not a packed function"),
        (tensor(N), shape(N), "a tensor is not a shape"),
        (prim(), tuple_of(), "a prim value is not a tuple"),
        (func(ret=Object), spread(tensor(N)), "a function is not a distributed tensor"),
    ],
)
def test_the_reason_for_disjointness_is_named(a, b, reason) -> None:
    assert provably_disjoint(a, b)
    assert provably_disjoint(b, a)
    found = explain_disjointness(a, b)
    assert found is not None
    assert found.startswith(reason)
    inside = explain_disjointness(tuple_of(Object, a), tuple_of(a, b))
    assert inside == f"field 1: {found}"


@pytest.mark.rule("TYP-1")
def test_types_are_distinguished_by_each_of_their_fields() -> None:
    for i, j in product(range(len(TYPES)), repeat=2):
        assert (TYPES[i] == TYPES[j]) is (i == j)
        assert structural_equal(TYPES[i], TYPES[j]) is (i == j)
    assert (ShapeType().ndim, DynTensorType().ndim) == (-1, -1)
    assert DynTensorType().dtype == "float32"
    for make in (ShapeType, DynTensorType):
        assert make(0).ndim == 0
        for wrong in (-2, "2", 1.0):
            with pytest.raises(MisuseError, match="TYP-1"):
                make(wrong)  # type: ignore[arg-type]
