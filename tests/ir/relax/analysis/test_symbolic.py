"""Shape variables of functions and struct infos, and struct infos where variables leave scope."""

from typing import Any

import pytest

from relaxpy.errors import MisuseError, StructInfoError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import (
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    defined_symbolic_vars,
    free_symbolic_vars,
    tir_vars_in_struct_info,
)
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes.static_type import DynTensorType, FuncType, erase_struct_info
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.script import relax as R
from relaxpy.tvm.relax.helpers import derive_call_ret_struct_info, erase_to_well_defined
from tests.ir.relax.graphs import bind, block, cast, function, seq, size, var
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of

N, M, K = size("n"), size("m"), size("k")
SEVEN = ops.const(7, "int64")


def test_variables_of_a_struct_info_come_in_order_and_once() -> None:
    sinfo = tuple_of(tensor(N, M + 1, N), prim(K), func(tensor(M), ret=Object))
    assert tir_vars_in_struct_info(sinfo) == [N, M, K]
    assert tir_vars_in_struct_info(tensor(3, 4)) == tir_vars_in_struct_info(Object) == []


def test_a_variable_is_definable_where_it_stands_alone_outside_functions() -> None:
    sinfo = tuple_of(tensor(N, M + 1), shape(K * 2), prim(K), func(tensor(M), ret=Object))
    assert definable_tir_vars_in_struct_info(sinfo) == [N, K]
    assert definable_tir_vars_in_struct_info(tensor(N + 1)) == []


def test_sizes_cannot_be_negative_but_scalars_can() -> None:
    sinfo = tuple_of(tensor(N, 4, M + 1), shape(N, K), prim(K + 1), Object)
    found = collect_non_negative_expressions(sinfo)
    assert len(found) == 3
    assert all(a is b for a, b in zip(found, (N, M + 1, K), strict=True))
    assert collect_non_negative_expressions(prim(N)) == []


def test_shape_variables_are_defined_by_signatures_and_casts() -> None:
    x, y, z = var("x", tensor(N, N + 1)), var("y"), var("z", tensor(K))
    inner = function([z], z)
    main = function([x], seq(block(cast(y, x, tensor(M, 2)), bind(var("f"), inner)), y))
    assert defined_symbolic_vars(main) == [N, M, K]
    assert free_symbolic_vars(main) == []


def test_a_shape_variable_that_nothing_defines_is_free() -> None:
    x, p = var("x", tensor(N + 1)), var("p", func(tensor(K), ret=tensor(K)))
    main = function([x, p], rx.Tuple((rx.ShapeExpr((M,)), rx.PrimValue(N + M))), tensor(N))
    assert defined_symbolic_vars(main) == []
    assert set(free_symbolic_vars(main)) == {N, M}


def test_images_take_the_place_of_variables() -> None:
    assert erase_to_well_defined(tensor(N, M), {N: 3, M: K + 1}) == tensor(3, K + 1)
    assert erase_to_well_defined(shape(N), {N: SEVEN}) == shape(7)
    assert erase_to_well_defined(prim(N), {N: M}) == prim(M)


def test_annotations_are_accepted_as_struct_infos_are() -> None:
    pair = R.Tuple(R.Tensor((N, M * 2)), R.Shape([M]))
    assert tir_vars_in_struct_info(pair) == definable_tir_vars_in_struct_info(pair) == [N, M]
    assert collect_non_negative_expressions(R.Shape([N, M])) == [N, M]
    assert erase_to_well_defined(pair, [M]) == tuple_of(rank(2, ""), shape(M))


@pytest.mark.rule("ERA-2", "ERA-3", "ERA-4")
def test_what_has_no_image_is_erased() -> None:
    assert erase_to_well_defined(tensor(N, M), {N: SEVEN}) == rank(2)
    assert erase_to_well_defined(shape(N, 2)) == rx.ShapeStructInfo(None, 2)
    assert erase_to_well_defined(prim(N + 1), {M: N}) == prim()
    assert erase_to_well_defined(tensor(2, 3)) == tensor(2, 3)


def test_a_variable_that_holds_a_shape_has_an_image_or_none() -> None:
    s, t = var("s", shape(N)), var("t", shape(2))
    sinfo = rx.TensorStructInfo(s, "float32")  # type: ignore[arg-type]
    assert erase_to_well_defined(tuple_of(sinfo), {}, {s: t}) == tuple_of(
        rx.TensorStructInfo(t, "float32")  # type: ignore[arg-type]
    )
    assert erase_to_well_defined(sinfo, {}, {t: s}) == rank(1)


def test_the_own_variables_of_a_function_stay() -> None:
    sinfo = func(tensor(N), ret=tensor(N, 2))
    assert erase_to_well_defined(sinfo) == sinfo


@pytest.fixture
def x() -> rx.Var:
    return var("x", tensor(3, M))


@pytest.mark.rule("DER-40", "DER-42")
def test_a_signature_applied_to_a_call_gives_what_its_result_is(x: rx.Var) -> None:
    callee = var("f", func(tensor(N, K), ret=tuple_of(tensor(N + 1), rank(1))))
    found = derive_call_ret_struct_info(callee.struct_info, callee(x), BlockBuilder())  # type: ignore[arg-type]
    assert found == tuple_of(tensor(4), rank(1))
    lost = func(tensor(N, K), ret=tensor(size("unbound")))
    assert derive_call_ret_struct_info(lost, callee(x), BlockBuilder()) == lost.ret


@pytest.mark.rule("DER-39", "DER-41")
def test_a_signature_that_does_not_fit_a_call_is_refused(x: rx.Var) -> None:
    bb = BlockBuilder()
    with pytest.raises(StructInfoError, match="DER-39"):
        derive_call_ret_struct_info(func(ret=Object), var("f")(x), bb)
    with pytest.raises(StructInfoError, match="DER-41"):
        derive_call_ret_struct_info(func(tensor(4, N), ret=Object), var("f")(x), bb)
    with pytest.raises(MisuseError, match="expected a FuncStructInfo"):
        derive_call_ret_struct_info(tensor(2), var("f")(x), bb)  # type: ignore[arg-type]


@pytest.mark.rule("DER-38")
def test_an_opaque_signature_derives_with_its_function(x: rx.Var) -> None:
    call = rx.Call(var("f"), (x,), sinfo_args=(tensor(5),))
    bb = BlockBuilder()
    assert derive_call_ret_struct_info(packed(rx.DEFAULT_DERIVE), call, bb) == tensor(5)
    assert derive_call_ret_struct_info(packed(), call, bb) == Object


def test_the_static_type_of_a_struct_info_has_no_shapes() -> None:
    assert erase_struct_info(func(tensor(N, 2), ret=rank(1, "int8"))) == FuncType(
        (DynTensorType(2, "float32"),),
        DynTensorType(1, "int8"),  # type: ignore[arg-type]
    )


def test_a_negative_number_is_not_a_variable() -> None:
    assert isinstance(erase_to_well_defined(shape(N), {N: -1}).values[0], tir.IntImm)  # type: ignore[index]


@pytest.mark.rule("ERA-1", "ERA-2", "ERA-3")
def test_variables_in_scope_stay_as_they_are() -> None:
    s = rx.Var("s", rx.ShapeStructInfo(ndim=1))
    both = tuple_of(tensor(N, M), rx.TensorStructInfo(s, "float32"))
    for sizes in ([N, M], {N, M}, {N: N, M: M}):
        assert erase_to_well_defined(both, sizes, [s]) == both
        assert erase_to_well_defined(both, sizes) == tuple_of(tensor(N, M), rank(1))
    assert erase_to_well_defined(both, (N,), {s}) == tuple_of(rank(2), both.fields[1])


@pytest.mark.parametrize("wrong", [5, "n", {"n": N}, {N: "3"}, {N: None}, ["n"], lambda var: var])
def test_what_is_not_a_table_of_variables_is_refused(wrong: Any) -> None:
    for args in ((wrong,), (None, wrong)):
        with pytest.raises(MisuseError, match="expected variables"):
            erase_to_well_defined(tensor(N), *args)
