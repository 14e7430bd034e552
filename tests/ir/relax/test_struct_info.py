"""What each kind of struct info says, and what it cannot say."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.relax.relations import alpha_rename, free_shape_vars, is_base_of, substitute_info
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
EVERY_KIND = [
    rx.ObjectStructInfo(),
    rx.PrimStructInfo("int64"),
    rx.ShapeStructInfo((N, 2)),
    rx.TensorStructInfo((N, 2), "float16"),
    rx.TupleStructInfo((rx.ObjectStructInfo(),)),
    rx.FuncStructInfo((rx.ObjectStructInfo(),), rx.ObjectStructInfo()),
    rx.FuncStructInfo.opaque_func(),
]


@pytest.mark.rule("SI-2")
def test_a_tensor_struct_info_may_leave_each_part_open() -> None:
    open_info = rx.TensorStructInfo(dtype="")
    assert (open_info.shape, open_info.ndim, open_info.dtype) == (None, -1, "")
    ranked = rx.TensorStructInfo(dtype="int8", ndim=2)
    assert (ranked.shape, ranked.ndim, ranked.dtype) == (None, 2, "int8")
    shaped = rx.TensorStructInfo((N, 2), "")
    assert shaped.ndim == 2
    assert isinstance(shaped.shape, rx.ShapeExpr)
    with pytest.raises(MisuseError, match="unknown dtype"):
        rx.TensorStructInfo(dtype="float33 and a half")


@pytest.mark.rule("SI-4", "RES-36")
def test_a_shape_struct_info_lists_all_members_or_none() -> None:
    assert rx.ShapeStructInfo().ndim == -1
    assert rx.ShapeStructInfo(ndim=3).values is None
    assert rx.ShapeStructInfo((N, 2)).ndim == 2
    held = rx.Var("s", rx.ShapeStructInfo(ndim=2))
    with pytest.raises(MisuseError):
        rx.ShapeStructInfo(held)  # type: ignore[arg-type]


@pytest.mark.rule("SI-5")
def test_a_prim_struct_info_has_a_datatype_and_perhaps_a_value() -> None:
    assert rx.PrimStructInfo("bool").value is None
    valued = rx.PrimStructInfo(value=N + 1)
    assert valued.dtype == "int64"
    assert valued.value is N + 1


@pytest.mark.rule("SI-6")
def test_a_tuple_struct_info_goes_field_by_field_and_unit_has_none() -> None:
    pair = rx.TupleStructInfo((rx.ObjectStructInfo(), rx.PrimStructInfo("int64")))
    assert [type(f).__name__ for f in pair.fields] == ["ObjectStructInfo", "PrimStructInfo"]
    assert rx.TupleStructInfo(()) == rx.Tuple(()).struct_info


@pytest.mark.rule("SI-7", "SI-8", "SI-9")
@pytest.mark.parametrize("purity", [True, False])
def test_both_forms_of_function_struct_info_carry_purity(purity: bool) -> None:
    closure = rx.FuncStructInfo((), rx.ObjectStructInfo(), purity)
    packed = rx.FuncStructInfo.opaque_func(purity=purity)
    assert (closure.purity, packed.purity) == (purity, purity)
    assert closure.derive_func is None
    assert packed.params is None
    assert closure != rx.FuncStructInfo((), rx.ObjectStructInfo(), not purity)
    assert packed != rx.FuncStructInfo.opaque_func(purity=not purity)


@pytest.mark.rule("SI-10")
@pytest.mark.parametrize("sinfo", EVERY_KIND, ids=str)
def test_object_describes_every_value(sinfo: rx.StructInfo) -> None:
    assert is_base_of(rx.ObjectStructInfo(), sinfo)
    if not isinstance(sinfo, rx.ObjectStructInfo):
        assert not is_base_of(sinfo, rx.ObjectStructInfo())


@pytest.mark.rule("SI-17")
@pytest.mark.parametrize("hole", [None, "_", -1.0])
def test_there_is_no_wildcard_for_one_dimension(hole: object) -> None:
    with pytest.raises(MisuseError):
        rx.TensorStructInfo((N, hole), "float32")  # type: ignore[arg-type]
    with pytest.raises(MisuseError):
        rx.ShapeStructInfo((N, hole))  # type: ignore[arg-type]


@pytest.mark.rule("SC-16")
@pytest.mark.parametrize("scope", [3, "n", N, N + 1, [N, 3], (N, "n")], ids=str)
def test_what_is_in_scope_is_a_collection_of_variables(scope: object) -> None:
    with pytest.raises(MisuseError, match=r"in scope are a collection of tir\.Var") as caught:
        is_base_of(tensor(N), tensor(N), scope)  # type: ignore[arg-type]
    assert caught.value.about is scope
    for known in (None, (), [N], {N}, {N: 3}):
        assert is_base_of(tensor(N), tensor(N), known)  # type: ignore[arg-type]


@pytest.mark.rule("SUB-7")
def test_a_struct_info_answers_for_itself_what_is_below_it() -> None:
    known, open_info = rx.TensorStructInfo((N, 2)), rx.TensorStructInfo(ndim=2)
    assert open_info.is_base_of(known)
    assert not known.is_base_of(open_info)


def test_a_datatype_of_a_scalar_is_one() -> None:
    with pytest.raises(MisuseError):
        rx.PrimStructInfo(np.ones(3), 1)  # type: ignore[arg-type]


def test_sizes_are_put_in_for_variables_only() -> None:
    n = tir.Var("n", "int64")
    sinfo = rx.TensorStructInfo((n, 4), "float32")
    assert substitute_info(sinfo, {n: 3}) == rx.TensorStructInfo((3, 4), "float32")
    wrong: list[object] = [n]
    for values, about in ((3, 3), (wrong, wrong), ({"n": 3}, "n"), ({n: None}, None)):
        with pytest.raises(MisuseError) as caught:
            substitute_info(sinfo, values)  # type: ignore[arg-type]
        assert caught.value.about is about
    with pytest.raises(MisuseError) as caught:
        substitute_info(3, {n: n})  # type: ignore[type-var]
    assert caught.value.about == 3


@pytest.mark.rule("MAP-9", "PX-9")
def test_sizes_are_put_in_as_integers_of_the_datatype_of_their_variable() -> None:
    narrow = tir.Var("k", "int32")
    for value in (narrow, tir.IntImm("int32", 3), narrow + 1):
        sinfo = substitute_info(prim(N + 1), {N: value})
        assert sinfo.dtype == "int64"
        assert sinfo.value is not None
        assert sinfo.value.dtype == "int64"
    with pytest.raises(MisuseError):
        substitute_info(tensor(N), {N: tir.FloatImm("float64", 2.0)})


@pytest.mark.rule("MAP-9")
def test_sizes_that_do_not_change_stay_as_they_are_written() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    sinfo = rx.TensorStructInfo((n + n, 2), "float32")
    assert substitute_info(sinfo, {n: n, m: 4}) is sinfo
    assert substitute_info(sinfo, {m: 4}) is sinfo
    assert substitute_info(sinfo, {n: m}).get_shape() == (m + m, 2)
    assert substitute_info(sinfo, {n: m + 1}).get_shape() == (m * 2 + 2, 2)


def spread(*dims: object) -> DTensorStructInfo:
    return DTensorStructInfo(tensor(*dims), DeviceMesh((2,), (0, 1)), Placement.from_text("R"))


@pytest.mark.rule("SC-16")
@pytest.mark.parametrize(
    ("sinfo", "free"),
    [
        (Object, ()),
        (prim(M + N), (M, N)),
        (shape(N, M, N), (N, M)),
        (tuple_of(tensor(M), shape(N)), (M, N)),
        (spread(N * 2), (N,)),
        (packed(), ()),
        (func(ret=tensor(N)), (N,)),
        (func(tensor(N), ret=tensor(N, M)), (M,)),
        (func(tensor(N + 1), ret=Object), (N,)),
        (func(tensor(N), ret=func(tensor(N), ret=shape(N, M))), (M,)),
        (tuple_of(func(tensor(N), ret=shape(N)), shape(N)), (N,)),
    ],
    ids=str,
)
def test_free_variables_are_those_that_no_function_struct_info_owns(sinfo, free) -> None:
    assert free_shape_vars(sinfo) == free


@pytest.mark.rule("SC-16")
def test_no_function_struct_info_at_any_depth_owns_what_is_in_scope() -> None:
    inner = func(tensor(N), ret=shape(N))
    for sinfo in (
        *(inner, func(tensor(M), ret=inner), func(tensor(M), inner, ret=Object)),
        *(tuple_of(inner, Object), tuple_of(tuple_of(inner))),
    ):
        assert free_shape_vars(sinfo) == ()
        assert free_shape_vars(sinfo, {N}) == (N,)
        assert free_shape_vars(alpha_rename(sinfo, {N}), {N}) == (N,)
        assert free_shape_vars(alpha_rename(sinfo), {N}) == ()


@pytest.mark.rule("MAP-9")
@pytest.mark.parametrize(
    "make",
    [
        *(prim, shape, tensor, spread),
        *(lambda n: prim(n + 1), lambda n: shape(2, n), lambda n: tensor(n, n * 2)),
        lambda n: tuple_of(tensor(n), tuple_of(prim(n), Object)),
        lambda n: func(tensor(n + 1), ret=Object),
        lambda n: func(Object, ret=spread(n)),
    ],
)
def test_sizes_are_put_in_at_every_depth(make: Callable[[tir.PrimExpr], rx.StructInfo]) -> None:
    assert substitute_info(make(N), {N: M}) == make(M)
    assert substitute_info(make(N), {N: tir.IntImm("int64", 3)}) == make(tir.IntImm("int64", 3))


@pytest.mark.rule("MAP-9")
@pytest.mark.parametrize(
    "sinfo",
    [
        *(Object, prim(M), prim(), shape(M), rank(2), tensor(M, 2), packed()),
        *(tuple_of(Object, tensor(M)), func(tensor(M), ret=shape(M)), func(ret=prim())),
        spread(M),
    ],
    ids=str,
)
def test_fields_whose_sizes_do_not_change_are_kept(sinfo: rx.StructInfo) -> None:
    found = substitute_info(tuple_of(sinfo, tensor(N)), {N: M + 1})
    assert found == tuple_of(sinfo, tensor(M + 1))
    assert found.fields[0] is sinfo
    called = substitute_info(func(sinfo, ret=tensor(N)), {N: M + 1})
    assert called.params is not None
    assert called.params[0] is sinfo
    assert called.ret == tensor(M + 1)
    assert substitute_info(func(tensor(N), ret=sinfo), {N: M + 1}).ret is sinfo


def test_a_struct_info_of_too_many_nodes_cannot_be_built_whatever_its_kind() -> None:
    half: rx.StructInfo = Object
    for _ in range(16):
        half = tuple_of(half, half)
    assert half.node_count == (1 << 17) - 1
    assert func(ret=Object).node_count == 2
    for build in (
        lambda: tuple_of(half, half),
        lambda: tuple_of(half, Object),
        lambda: func(half, ret=half),
        lambda: func(half, half, ret=Object),
        lambda: replace(tuple_of(half), fields=(half, half)),
    ):
        with pytest.raises(MisuseError, match="131072 nodes"):
            build()


def test_a_tuple_of_too_many_nodes_is_refused_where_its_struct_info_is_needed() -> None:
    value: rx.Expr = rx.Var("x", tensor(N))
    for _ in range(20):
        value = rx.Tuple((value, value))
    assert value.struct_info is None
    with pytest.raises(MisuseError, match="131072 nodes"):
        Context().sinfo_of(value)


def test_what_a_let_binds_is_not_a_shape_variable() -> None:
    n, t = tir.Var("n", "int64"), tir.Var("t", "int64")
    let = tir.Let(t, n + 1, t * 2)
    assert free_shape_vars(rx.PrimStructInfo("int64", let)) == (n,)
