"""Erasure to what is in scope, and the types of the older documents, rule by rule (ERA, TYP)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxpy.errors import MisuseError, StructInfoTypeError
from relaxpy.ir.core.dtype import INT64, VOID
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.static_type import (
    AnyType,
    DynTensorType,
    FuncType,
    ObjectType,
    PackedFuncType,
    ShapeType,
    TensorType,
    TupleType,
    erase_struct_info,
    wrap_type,
)
from relaxpy.ir.relax.relations.erase import erase_to_well_defined
from relaxpy.ir.relax.relations.static_types import find_glb, find_lub, is_subtype, require_subtype
from tests.ir.relax.sinfos import (
    FIRST,
    K,
    M,
    N,
    Object,
    S,
    T,
    by_var,
    func,
    packed,
    prim,
    rank,
    shape,
    tensor,
    tuple_of,
)
from tests.rows import by_rule


def erased(sinfo: rx.StructInfo) -> rx.StructInfo:
    """Erased where s and n are in scope."""
    return erase_to_well_defined(sinfo, {S}, {N})


ERASED: list[tuple[pytest.MarkDecorator, list[tuple[rx.StructInfo, rx.StructInfo]]]] = [
    (pytest.mark.rule("ERA-2"), [(by_var(T), rank(2))]),
    (
        pytest.mark.rule("ERA-3"),
        [(tensor(N, M), rank(2)), (tensor(N, M * 2, dtype="int64"), rank(2, "int64"))],
    ),
    (pytest.mark.rule("ERA-4"), [(shape(N, N + M), rx.ShapeStructInfo(None, 2))]),
    (pytest.mark.rule("ERA-5"), [(prim(M), prim()), (prim(N + M), prim())]),
    (
        pytest.mark.rule("ERA-6"),
        [
            (
                tuple_of(tensor(N), tensor(M), shape(M)),
                tuple_of(tensor(N), rank(1), rx.ShapeStructInfo(None, 1)),
            )
        ],
    ),
    (
        pytest.mark.rule("ERA-7"),
        [
            (
                tuple_of(func(tensor(M), ret=tensor(M)), tensor(M)),
                tuple_of(func(tensor(M), ret=tensor(M)), rank(1)),
            ),
            (func(tensor(M), ret=tensor(M, K)), func(tensor(M), ret=rank(2))),
            (func(tensor(M * 2), ret=Object), func(rank(1), ret=Object)),
        ],
    ),
    (
        pytest.mark.rule("RES-29"),
        [
            (
                func(tensor(M * 2), tensor(M), ret=Object),
                func(tensor(M * 2), tensor(M), ret=Object),
            ),
            (func(tensor(K * 2), ret=Object, pure=False), func(rank(1), ret=Object, pure=False)),
        ],
    ),
    (pytest.mark.rule("ERA-9"), [(func(ret=tensor(M), pure=False), func(ret=rank(1), pure=False))]),
]


@pytest.mark.parametrize(("sinfo", "expected"), by_rule(ERASED))
def test_erasing(sinfo: rx.StructInfo, expected: rx.StructInfo) -> None:
    assert erased(sinfo) == expected


@pytest.mark.rule("ERA-1")
@pytest.mark.parametrize(
    "sinfo",
    [
        Object,
        tensor(N, N * 2),
        by_var(S),
        shape(N),
        prim(N),
        rank(-1),
        packed(),
        tuple_of(tensor(N)),
    ],
)
def test_what_is_in_scope_stays_as_it_is(sinfo: rx.StructInfo) -> None:
    assert erased(sinfo) is sinfo


@pytest.mark.rule("ERA-7")
def test_a_shape_in_scope_is_kept_inside_a_function_too() -> None:
    sinfo = func(by_var(S), ret=by_var(S))
    assert erase_to_well_defined(sinfo, {S}, ()) is sinfo
    assert erase_to_well_defined(sinfo, (), ()) == func(rank(-1), ret=rank(-1))


@pytest.mark.rule("ERA-8", "ERA-9")
def test_erasure_of_a_packed_form_changes_its_result_alone() -> None:
    sinfo = rx.FuncStructInfo(None, tensor(M), True, derive_func=FIRST)
    found = erased(sinfo)
    assert isinstance(found, rx.FuncStructInfo)
    assert (found.derive_func, found.purity, found.ret) == (FIRST, True, rank(1))


@pytest.mark.rule("ERA-11")
def test_a_weakened_parameter_binds_nothing_any_more() -> None:
    sinfo = func(tensor(M, K * 2), tensor(M * 3), ret=tensor(M))
    found = erased(sinfo)
    assert found == func(rank(2), rank(1), ret=rank(1))
    assert erased(found) is found


F32, I64 = DynTensorType(2), DynTensorType(2, INT64)
OPEN = DynTensorType(-1, VOID)


@pytest.mark.rule("TYP-2", "TYP-3")
@pytest.mark.parametrize(
    ("sinfo", "expected"),
    [
        (tensor(N, M), F32),
        (rank(-1, ""), OPEN),
        (shape(N), ShapeType(1)),
        (rx.ShapeStructInfo(), ShapeType()),
        (Object, ObjectType()),
        (tuple_of(tensor(N, M), Object), TupleType((F32, ObjectType()))),
        (func(tensor(N, M), ret=Object), FuncType((F32,), ObjectType(), True)),
        (func(ret=Object, pure=False), FuncType((), ObjectType(), False)),
        (packed(FIRST), PackedFuncType()),
        (prim(N), ObjectType()),
    ],
)
def test_erasing_to_a_type(sinfo: rx.StructInfo, expected: AnyType) -> None:
    assert erase_struct_info(sinfo) == expected


@pytest.mark.rule("TYP-4", "TYP-5")
@pytest.mark.parametrize(
    ("ty", "expected"),
    [
        (F32, rank(2)),
        (OPEN, rank(-1, "")),
        (ShapeType(3), rx.ShapeStructInfo(None, 3)),
        (ObjectType(), Object),
        (TupleType((F32,)), tuple_of(rank(2))),
        (FuncType((F32,), F32, False), func(rank(2), ret=rank(2), pure=False)),
        (PackedFuncType(), packed(rx.DEFAULT_DERIVE, False)),
        (FuncType((), PrimType("int64")), func(ret=prim())),
        (TupleType((PrimType("int64"),)), tuple_of(prim())),
    ],
)
def test_wrapping_a_type(ty: AnyType, expected: rx.StructInfo) -> None:
    assert wrap_type(ty) == expected
    assert tuple_of(ty) == tuple_of(expected)  # type: ignore[arg-type]


def fn(*args: AnyType, ret: AnyType, pure: bool = True) -> FuncType:
    return FuncType(args, ret, pure)


TOP = ObjectType()
SUBTYPES: list[tuple[pytest.MarkDecorator, list[tuple[AnyType, AnyType, bool]]]] = [
    (pytest.mark.rule("TYP-7"), [(F32, TOP, True), (TOP, F32, False), (F32, F32, True)]),
    (
        pytest.mark.rule("TYP-8"),
        [
            (F32, DynTensorType(2, VOID), True),
            (F32, DynTensorType(-1), True),
            (F32, OPEN, True),
            (OPEN, F32, False),
            (F32, I64, False),
            (DynTensorType(1), F32, False),
        ],
    ),
    (
        pytest.mark.rule("TYP-9"),
        [
            (ShapeType(2), ShapeType(), True),
            (ShapeType(), ShapeType(2), False),
            (ShapeType(1), ShapeType(2), False),
        ],
    ),
    (
        pytest.mark.rule("RES-78"),
        [(ShapeType(2), ShapeType(), True), (ShapeType(2), ShapeType(3), False)],
    ),
    (
        pytest.mark.rule("TYP-10"),
        [
            (TupleType((F32, F32)), TupleType((TOP, OPEN)), True),
            (TupleType((F32,)), TupleType((F32, F32)), False),
            (TupleType((TOP,)), TupleType((F32,)), False),
        ],
    ),
    (
        pytest.mark.rule("TYP-11"),
        [
            (fn(OPEN, ret=F32), fn(F32, ret=OPEN), True),
            (fn(F32, ret=F32), fn(OPEN, ret=F32), False),
            (fn(ret=OPEN), fn(ret=F32), False),
            (fn(ret=F32), fn(ret=F32, pure=False), True),
            (fn(ret=F32, pure=False), fn(ret=F32), False),
            (fn(ret=F32), fn(F32, ret=F32), False),
        ],
    ),
    (
        pytest.mark.rule("TYP-12"),
        [
            (PackedFuncType(), PackedFuncType(), True),
            (PackedFuncType(), TOP, True),
            (PackedFuncType(), fn(ret=TOP), False),
            (fn(ret=TOP), PackedFuncType(), False),
        ],
    ),
]


@pytest.mark.parametrize(("sub", "base", "holds"), by_rule(SUBTYPES))
def test_subtyping(sub: AnyType, base: AnyType, holds: bool) -> None:
    assert is_subtype(sub, base) is holds


@pytest.mark.parametrize(
    ("a", "b", "lub", "glb"),
    [
        pytest.param(
            F32, I64, DynTensorType(2, VOID), None, marks=pytest.mark.rule("TYP-13", "TYP-15")
        ),
        pytest.param(
            F32, DynTensorType(1), DynTensorType(-1), None, marks=pytest.mark.rule("TYP-13")
        ),
        pytest.param(F32, OPEN, OPEN, F32, marks=pytest.mark.rule("TYP-15", "RES-6")),
        pytest.param(
            ShapeType(1), ShapeType(2), ShapeType(), None, marks=pytest.mark.rule("TYP-13")
        ),
        pytest.param(F32, ShapeType(2), TOP, None, marks=pytest.mark.rule("TYP-13")),
        pytest.param(TupleType((F32,)), TupleType(()), TOP, None, marks=pytest.mark.rule("TYP-13")),
        pytest.param(F32, TOP, TOP, F32, marks=pytest.mark.rule("TYP-15")),
        pytest.param(fn(ret=F32), fn(F32, ret=F32), TOP, None, marks=pytest.mark.rule("TYP-13")),
        pytest.param(
            fn(OPEN, ret=F32),
            fn(F32, ret=OPEN, pure=False),
            fn(F32, ret=OPEN, pure=False),
            fn(OPEN, ret=F32),
            marks=pytest.mark.rule("TYP-14", "TYP-16"),
        ),
        pytest.param(
            fn(F32, ret=F32),
            fn(I64, ret=F32),
            TOP,
            fn(DynTensorType(2, VOID), ret=F32),
            marks=pytest.mark.rule("TYP-14", "TYP-16"),
        ),
        pytest.param(
            fn(ret=F32),
            fn(ret=I64),
            fn(ret=DynTensorType(2, VOID)),
            None,
            marks=pytest.mark.rule("TYP-16"),
        ),
    ],
)
def test_bounds_of_types(a: AnyType, b: AnyType, lub: AnyType, glb: AnyType | None) -> None:
    assert (find_lub(a, b), find_lub(b, a)) == (lub, lub)
    assert (find_glb(a, b), find_glb(b, a)) == (glb, glb)


@pytest.mark.rule("TYP-17")
def test_a_subtype_may_be_used_without_a_check() -> None:
    require_subtype(F32, OPEN)


@pytest.mark.rule("TYP-18")
def test_a_supertype_asks_for_a_match_cast() -> None:
    with pytest.raises(StructInfoTypeError, match="match_cast"):
        require_subtype(OPEN, F32)
    with pytest.raises(StructInfoTypeError) as unrelated:
        require_subtype(I64, F32)
    assert "match_cast" not in str(unrelated.value)
    assert "[TYP-18]" in str(unrelated.value)


@pytest.mark.rule("TYP-1")
@pytest.mark.parametrize("relation", [is_subtype, find_lub, find_glb, require_subtype])
def test_struct_infos_are_not_types(relation: Callable[..., object]) -> None:
    for wrong in (tensor(2), "float32", None):
        for pair in ((wrong, ObjectType()), (ObjectType(), wrong), (wrong, wrong)):
            with pytest.raises(MisuseError, match=r"a Relax type.*\[TYP-1\]"):
                relation(*pair)


@pytest.mark.rule("TYP-1")
def test_types_are_compared_by_structure() -> None:
    assert TensorType(2) == F32
    assert hash(TupleType((F32,))) == hash(TupleType([TensorType(2)]))  # type: ignore[arg-type]
    assert structural_equal(TupleType((F32,)), TupleType((F32,)))
    assert F32 != I64
    assert TensorType(1, None) == TensorType(1, "void")  # type: ignore[arg-type]
    for wrong in (-2, "2", 1.0):
        with pytest.raises(MisuseError, match="ndim is -1"):
            ShapeType(wrong)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="type"):
        wrap_type("float32")  # type: ignore[arg-type]
    for wrong in (
        lambda: ShapeType("2"),  # type: ignore[arg-type]
        lambda: TupleType(3),  # type: ignore[arg-type]
        lambda: TupleType((tensor(2),)),  # type: ignore[arg-type]
        lambda: FuncType((F32,), 3),  # type: ignore[arg-type]
        lambda: FuncType(F32, F32),  # type: ignore[arg-type]
        lambda: erase_struct_info(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            wrong()
    assert str(fn(F32, ret=ObjectType())) == str(func(rank(2), ret=Object))
