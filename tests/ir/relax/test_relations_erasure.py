"""Erasure to what is in scope, and the types of the older documents, rule by rule (ERA, TYP)."""

import re
from collections.abc import Callable

import pytest

from relaxpy.errors import MisuseError, StructInfoTypeError
from relaxpy.ir.core.dtype import INT64, VOID
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.static_type import (
    DynTensorType,
    FuncType,
    ObjectType,
    PackedFuncType,
    ShapeType,
    TensorType,
    TupleType,
    TypeKind,
    erase_struct_info,
    wrap_type,
)
from relaxpy.ir.relax.relations.shape_vars import erase_to_well_defined
from relaxpy.tvm.relax.helpers import find_glb, find_lub, is_subtype, require_subtype
from tests.ir.ops.notation import evaluate
from tests.ir.relax import sinfos
from tests.rows import by_rule


def erased(sinfo: rx.StructInfo) -> rx.StructInfo:
    """Erased where s and n are in scope."""
    return erase_to_well_defined(sinfo, {sinfos.S}, {sinfos.N})


ERASED = """
ERA-2: f32.by(t) -> f32[2]
ERA-3: f32(n, m) -> f32[2]
ERA-3: i64(n, m * 2) -> i64[2]
ERA-4: shape(n, n + m) -> shape[2]
ERA-5: prim(m) -> prim("int64")
ERA-5: prim(n + m) -> prim("int64")
ERA-6: tup(f32(n), f32(m), shape(m)) -> tup(f32(n), f32[1], shape[1])
ERA-7: tup(func(f32(m), ret=f32(m)), f32(m)) -> tup(func(f32(m), ret=f32(m)), f32[1])
ERA-7: func(f32(m), ret=f32(m, k)) -> func(f32(m), ret=f32[2])
ERA-7: func(f32(m * 2), ret=obj) -> func(f32[1], ret=obj)
RES-29: func(f32(m * 2), f32(m), ret=obj) -> func(f32(m * 2), f32(m), ret=obj)
RES-29: func(f32(k * 2), ret=obj, pure=False) -> func(f32[1], ret=obj, pure=False)
ERA-9: func(ret=f32(m), pure=False) -> func(ret=f32[1], pure=False)
"""


@pytest.mark.rule("ERA-2", "ERA-3", "ERA-4", "ERA-5", "ERA-6", "ERA-7", "RES-29", "ERA-9")
@pytest.mark.parametrize("row", by_rule(ERASED))
def test_erasing(row: str) -> None:
    sinfo, expected = evaluate(f"({row.replace(' -> ', ', ')})")
    assert erased(sinfo) == expected


@pytest.mark.rule("ERA-1")
@pytest.mark.parametrize(
    "sinfo",
    [
        sinfos.Object,
        sinfos.tensor(sinfos.N, sinfos.N * 2),
        sinfos.by_var(sinfos.S),
        sinfos.shape(sinfos.N),
        sinfos.prim(sinfos.N),
        sinfos.rank(-1),
        sinfos.packed(),
        sinfos.tuple_of(sinfos.tensor(sinfos.N)),
    ],
)
def test_what_is_in_scope_stays_as_it_is(sinfo: rx.StructInfo) -> None:
    assert erased(sinfo) is sinfo


@pytest.mark.rule("ERA-7")
def test_a_shape_in_scope_is_kept_inside_a_function_too() -> None:
    sinfo = sinfos.func(sinfos.by_var(sinfos.S), ret=sinfos.by_var(sinfos.S))
    assert erase_to_well_defined(sinfo, {sinfos.S}, ()) is sinfo
    assert erase_to_well_defined(sinfo, (), ()) == sinfos.func(sinfos.rank(-1), ret=sinfos.rank(-1))


@pytest.mark.rule("ERA-8", "ERA-9")
def test_erasure_of_a_packed_form_changes_its_result_alone() -> None:
    sinfo = rx.FuncStructInfo(None, sinfos.tensor(sinfos.M), True, derive_func=sinfos.FIRST)
    found = erased(sinfo)
    assert isinstance(found, rx.FuncStructInfo)
    assert (found.derive_func, found.purity, found.ret) == (sinfos.FIRST, True, sinfos.rank(1))


@pytest.mark.rule("ERA-11")
def test_a_weakened_parameter_binds_nothing_any_more() -> None:
    sinfo = sinfos.func(
        sinfos.tensor(sinfos.M, sinfos.K * 2),
        sinfos.tensor(sinfos.M * 3),
        ret=sinfos.tensor(sinfos.M),
    )
    found = erased(sinfo)
    assert found == sinfos.func(sinfos.rank(2), sinfos.rank(1), ret=sinfos.rank(1))
    assert erased(found) is found


F32, I64 = DynTensorType(2), DynTensorType(2, INT64)
OPEN = DynTensorType(-1, VOID)


@pytest.mark.rule("TYP-2", "TYP-3")
@pytest.mark.parametrize(
    ("sinfo", "expected"),
    [
        (sinfos.tensor(sinfos.N, sinfos.M), F32),
        (sinfos.rank(-1, ""), OPEN),
        (sinfos.shape(sinfos.N), ShapeType(1)),
        (rx.ShapeStructInfo(), ShapeType()),
        (sinfos.Object, ObjectType()),
        (
            sinfos.tuple_of(sinfos.tensor(sinfos.N, sinfos.M), sinfos.Object),
            TupleType((F32, ObjectType())),
        ),
        (
            sinfos.func(sinfos.tensor(sinfos.N, sinfos.M), ret=sinfos.Object),
            FuncType((F32,), ObjectType(), True),
        ),
        (sinfos.func(ret=sinfos.Object, pure=False), FuncType((), ObjectType(), False)),
        (sinfos.packed(sinfos.FIRST), PackedFuncType()),
        (sinfos.prim(sinfos.N), ObjectType()),
    ],
)
def test_erasing_to_a_type(sinfo: rx.StructInfo, expected: TypeKind) -> None:
    assert erase_struct_info(sinfo) == expected


@pytest.mark.rule("TYP-4", "TYP-5")
@pytest.mark.parametrize(
    ("ty", "expected"),
    [
        (F32, sinfos.rank(2)),
        (OPEN, sinfos.rank(-1, "")),
        (ShapeType(3), rx.ShapeStructInfo(None, 3)),
        (ObjectType(), sinfos.Object),
        (TupleType((F32,)), sinfos.tuple_of(sinfos.rank(2))),
        (FuncType((F32,), F32, False), sinfos.func(sinfos.rank(2), ret=sinfos.rank(2), pure=False)),
        (PackedFuncType(), sinfos.packed(rx.DEFAULT_DERIVE, False)),
        (FuncType((), PrimType("int64")), sinfos.func(ret=sinfos.prim())),
        (TupleType((PrimType("int64"),)), sinfos.tuple_of(sinfos.prim())),
    ],
)
def test_wrapping_a_type(ty: TypeKind, expected: rx.StructInfo) -> None:
    assert wrap_type(ty) == expected
    assert sinfos.tuple_of(ty) == sinfos.tuple_of(expected)  # type: ignore[arg-type]


def fn(*args: TypeKind, ret: TypeKind, pure: bool = True) -> FuncType:
    return FuncType(args, ret, pure)


TOP = ObjectType()
SUBTYPES = """
TYP-7: F32 <: TOP
TYP-7: TOP !: F32
TYP-7: F32 <: F32
TYP-8: F32 <: DynTensorType(2, VOID)
TYP-8: F32 <: DynTensorType(-1)
TYP-8: F32 <: OPEN
TYP-8: OPEN !: F32
TYP-8: F32 !: I64
TYP-8: DynTensorType(1) !: F32
TYP-9 RES-78: ShapeType(2) <: ShapeType()
TYP-9: ShapeType() !: ShapeType(2)
TYP-9: ShapeType(1) !: ShapeType(2)
RES-78: ShapeType(2) !: ShapeType(3)
TYP-10: TupleType((F32, F32)) <: TupleType((TOP, OPEN))
TYP-10: TupleType((F32,)) !: TupleType((F32, F32))
TYP-10: TupleType((TOP,)) !: TupleType((F32,))
TYP-11: fn(OPEN, ret=F32) <: fn(F32, ret=OPEN)
TYP-11: fn(F32, ret=F32) !: fn(OPEN, ret=F32)
TYP-11: fn(ret=OPEN) !: fn(ret=F32)
TYP-11: fn(ret=F32) <: fn(ret=F32, pure=False)
TYP-11: fn(ret=F32, pure=False) !: fn(ret=F32)
TYP-11: fn(ret=F32) !: fn(F32, ret=F32)
TYP-12: PackedFuncType() <: PackedFuncType()
TYP-12: PackedFuncType() <: TOP
TYP-12: PackedFuncType() !: fn(ret=TOP)
TYP-12: fn(ret=TOP) !: PackedFuncType()
"""


@pytest.mark.rule("TYP-7", "TYP-8", "TYP-9", "RES-78", "TYP-10", "TYP-11", "TYP-12")
@pytest.mark.parametrize("row", by_rule(SUBTYPES))
def test_subtyping(row: str) -> None:
    sub, sign, base = re.split(" ([<!]:) ", row)
    assert is_subtype(eval(sub), eval(base)) is (sign == "<:")


BOUNDS = """
TYP-13 TYP-15: F32, I64 -> DynTensorType(2, VOID), None
TYP-13: F32, DynTensorType(1) -> DynTensorType(-1), None
TYP-15 RES-6: F32, OPEN -> OPEN, F32
TYP-13: ShapeType(1), ShapeType(2) -> ShapeType(), None
TYP-13: F32, ShapeType(2) -> TOP, None
TYP-13: TupleType((F32,)), TupleType(()) -> TOP, None
TYP-15: F32, TOP -> TOP, F32
TYP-13: fn(ret=F32), fn(F32, ret=F32) -> TOP, None
TYP-14 TYP-16: fn(OPEN, ret=F32), fn(F32, ret=OPEN, pure=False) -> fn(F32, ret=OPEN,
    pure=False), fn(OPEN, ret=F32)
TYP-14 TYP-16: fn(F32, ret=F32), fn(I64, ret=F32) -> TOP, fn(DynTensorType(2, VOID), ret=F32)
TYP-16: fn(ret=F32), fn(ret=I64) -> fn(ret=DynTensorType(2, VOID)), None
"""


@pytest.mark.rule("TYP-13", "TYP-15", "RES-6", "TYP-14", "TYP-16")
@pytest.mark.parametrize("row", by_rule(BOUNDS))
def test_bounds_of_types(row: str) -> None:
    a, b, lub, glb = eval(row.replace(" -> ", ", "))
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
    for wrong in (sinfos.tensor(2), "float32", None):
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
        lambda: FuncType((F32,), 3),  # type: ignore[arg-type]
        lambda: FuncType(F32, F32),  # type: ignore[arg-type]
        lambda: erase_struct_info(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            wrong()
    assert str(fn(F32, ret=ObjectType())) == str(sinfos.func(sinfos.rank(2), ret=sinfos.Object))


def test_a_type_with_a_shape_is_struct_info() -> None:
    """After v0.22 of TVM, types are struct info."""
    wanted = sinfos.tensor(sinfos.N, 2)
    for given in ([sinfos.N, 2], (sinfos.N, 2), wanted.shape):
        assert structural_equal(TensorType(given, "float32"), wanted)
    assert structural_equal(TensorType([], "int8"), sinfos.tensor(dtype="int8"))
    assert TensorType(2, "int8") == TensorType(ndim=2, dtype="int8")
    with pytest.raises(MisuseError, match="ndim is -1"):
        TensorType("n")  # type: ignore[arg-type]
