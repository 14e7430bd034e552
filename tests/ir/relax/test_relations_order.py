"""`<<:`, least upper and greatest lower bounds of struct infos, rule by rule (SUB)."""

import re

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import explain_incompatibility, struct_info_glb, struct_info_lca
from relaxpy.ir.relax.relations.compatibility import (
    BaseCheckResult,
    Compatibility,
    check_compatibility,
    is_base_of,
    struct_info_base_check,
)
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, free_shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.script import relax as R
from tests.ir.ops.notation import evaluate
from tests.ir.relax.sinfos import FIRST, M, N, Object, func, packed, rank, shape, tensor
from tests.rows import by_rule

NO, MAYBE, YES = Compatibility

RELATED = """
SUB-5: f32(n, 4) <: f32[...]
SUB-5: f32(n) !: i64[...]
SUB-6 CMP-11: f32(n) <: void(n)
SUB-6 CMP-11: void(n) !: f32(n)
SUB-6: f32(n) !: i64(n)
SUB-7: f32(n, 4) <: f32[2]
SUB-7: f32[2] ?: f32(n, 4)
SUB-8: f32(n * 2) <: f32(n + n)
SUB-8: f32(n) ?: f32(m)
SUB-8 CMP-3: f32(2) !: f32(3)
SUB-8 CMP-14: f32.by(s) <: f32.by(s)
SUB-8: f32.by(t) ?: f32.by(s)
SUB-8 CMP-14: f32.by(n_by_4) <: f32(n, 4)
SUB-8 RES-73: f32.by(s, 2) <: f32.by(s)
SUB-8: f32.by(s) !: f32.by(s, 2)
RES-73: f32[...] ?: f32.by(s)
SUB-9: f32(n) <: void[...]
SUB-9: f32[...] <: void[...]
SUB-9: void[2] <: void[...]
SUB-9: void[...] !: f32[...]
SUB-10 CMP-8: shape(n) <: shape[...]
SUB-10: shape[...] !: shape(n)
SUB-11: shape(n, m) <: shape[2]
SUB-11: shape[2] ?: shape(n, m)
SUB-12: shape(n + 1) <: shape(1 + n)
SUB-12 CMP-1: shape(n) ?: shape(m)
SUB-12: shape(2) !: shape(3)
SUB-13 CMP-16: prim(n) <: prim("int64")
SUB-13 CMP-16: prim("int64") ?: prim(n)
SUB-13: prim(n * 2) <: prim(n + n)
SUB-13 CMP-16: prim(1) !: prim(2)
SUB-13: prim("int64") !: prim("int32")
SUB-14: tup(f32(n), shape(n)) <: tup(f32[1], obj)
SUB-14: tup(f32(n)) !: tup(f32[2])
SUB-14 CMP-6: tup(obj) !: tup()
SUB-4 CMP-5: shape(n) !: f32(n)
SUB-4: prim("int64") !: shape(2)
SUB-4: tup() !: packed()
SUB-15: func(f32[1], ret=f32(4)) <: func(f32(3), ret=f32[1])
SUB-15: func(f32(3), ret=f32[1]) ?: func(f32[1], ret=f32[1])
SUB-15: func(ret=f32[1]) ?: func(ret=f32(3))
SUB-15 CMP-19: func(ret=obj) !: func(obj, ret=obj)
SUB-16 CMP-22: func(ret=obj) <: func(ret=obj, pure=False)
SUB-16 CMP-22: func(ret=obj, pure=False) !: func(ret=obj)
SUB-17 RES-10: packed(DEFAULT) <: packed()
SUB-17 RES-10: packed() ?: packed(DEFAULT)
SUB-17: packed(DEFAULT) <: packed(DEFAULT)
SUB-17: packed(FIRST) ?: packed(DEFAULT)
SUB-17 CMP-22: packed() !: packed(pure=True)
SUB-18 CMP-17: func(ret=obj) !: packed()
SUB-18: packed() !: func(ret=obj)
RES-13: func(f32(n), ret=f32(n * 2)) <: func(f32(m), ret=f32(m + m))
RES-13: func(f32(n), ret=f32(n)) !: func(f32(m), ret=f32(m + 1))
RES-13: func(f32(n), ret=f32(n)) <: func(f32(2), ret=f32(2))
RES-13: func(f32(2), ret=f32(2)) ?: func(f32(n), ret=f32(n))
RES-72: func(func(f32(2), ret=obj), ret=obj) <: func(func(f32(n), ret=obj), ret=obj)
RES-72: func(func(f32(n), ret=obj), ret=obj) ?: func(func(f32(3), ret=obj), ret=obj)
CMP-1: shape(n * m) <: shape(n * m)
CMP-3: f32(2) !: f32(2, 2)
CMP-3: f32(2) <: f32(2)
CMP-4: f32(n) <: obj
CMP-4: packed() <: obj
CMP-4: prim("int64") <: obj
CMP-5: obj !: f32(n)
CMP-5: prim(n) !: shape(n)
CMP-6: tup() <: tup()
CMP-7: tup(f32(n), shape(2)) !: tup(f32(m), shape(3))
CMP-7: tup(f32(n), shape(2)) ?: tup(f32(m), shape(2))
CMP-7: tup(f32(n), shape(2)) <: tup(f32[1], shape(2))
CMP-8: shape[...] <: shape[...]
CMP-8: shape[...] !: shape[1]
CMP-8: shape(n) !: shape[2]
CMP-9: shape(n) <: shape[1]
CMP-9: shape[1] ?: shape(n)
CMP-9: shape[2] !: shape(n)
CMP-10: shape(n, 2) !: shape(m, 3)
CMP-10: shape(n, n + n) <: shape(n, n * 2)
CMP-10: shape(n, 2) ?: shape(m, 2)
CMP-10: shape(n) !: shape(n + 1)
CMP-11: i64(n) !: f32(n)
CMP-12: f32[2] <: f32[...]
CMP-12: f32[...] !: f32[2]
CMP-12: f32[1] !: f32[2]
CMP-13: f32(n) <: f32[1]
CMP-13: f32[1] ?: f32(n)
CMP-14: f32(n, 4) <: f32.by(n_by_4)
CMP-14: f32(n, 5) !: f32.by(n_by_4)
CMP-14: f32.by(t) ?: f32(n, 4)
CMP-14: f32(n) ?: f32.by(s)
CMP-14: f32(n) !: f32.by(t)
CMP-15: f32(n, 2) !: f32(m, 3)
CMP-15: f32(n, 2) ?: f32(m, 2)
CMP-15: f32(2 * n) <: f32(n + n)
CMP-16: prim("int64") !: prim("bool")
CMP-16: prim(n) ?: prim(m)
CMP-16: prim(n + n) <: prim(n * 2)
CMP-17: packed() !: func(ret=obj, pure=False)
CMP-18: packed(FIRST) <: packed(FIRST)
CMP-18 RES-11: packed(FIRST) <: packed()
CMP-18: packed() ?: packed(FIRST)
CMP-20: func(f32(n), ret=f32(n)) <: func(f32(4), ret=f32(4))
CMP-20: func(f32(n), ret=f32(n)) !: func(f32(4), ret=f32(5))
CMP-20: func(f32(n), ret=f32(n)) ?: func(f32(k), ret=f32(m))
CMP-21: func(f32[1], ret=obj) <: func(f32(n), ret=obj)
CMP-21: func(f32(2), ret=obj) ?: func(f32[1], ret=obj)
CMP-21: func(f32(2), f32(2), ret=obj) !: func(f32[1], f32(3), ret=obj)
CMP-21: func(f32[2], ret=f32(n)) ?: func(f32[2], ret=f32(m))
RES-17: func(f32(n), f32(n), ret=obj) !: func(f32(2), f32(3), ret=obj)
"""


@pytest.mark.rule("SUB-5", "SUB-6", "CMP-11", "SUB-7", "SUB-8", "CMP-3", "CMP-14", "RES-73")
@pytest.mark.rule("SUB-9", "SUB-10", "CMP-8", "SUB-11", "SUB-12", "CMP-1", "SUB-13", "CMP-16")
@pytest.mark.rule("SUB-14", "CMP-6", "SUB-4", "CMP-5", "SUB-15", "CMP-19", "SUB-16", "CMP-22")
@pytest.mark.rule("SUB-17", "RES-10", "SUB-18", "CMP-17", "RES-13", "RES-72", "CMP-4", "CMP-7")
@pytest.mark.rule("CMP-9", "CMP-10", "CMP-12", "CMP-13", "CMP-15", "CMP-18", "RES-11", "CMP-20")
@pytest.mark.rule("CMP-21", "RES-17")
@pytest.mark.parametrize("row", by_rule(RELATED))
def test_relations(row: str) -> None:
    """`a <: b` where a is compatible with b and below it, `a ?: b` where it may be, `a !: b`."""
    low, sign, high = re.split(r" ([<?!]:) ", row)
    value, expected = evaluate(f"({low}, {high})")
    answer = check_compatibility(value, expected)
    assert answer is {"<:": YES, "?:": MAYBE, "!:": NO}[sign]
    assert is_base_of(expected, value) is (answer is YES)
    assert (explain_incompatibility(value, expected) is None) is (answer is YES)


@pytest.mark.rule("SC-16")
def test_variables_in_scope_are_bound_by_no_function() -> None:
    one, other = func(tensor(N), ret=tensor(N)), func(tensor(M), ret=tensor(M))
    assert is_base_of(other, one)
    assert not is_base_of(other, one, {N})
    assert not is_base_of(other, one, {N, M})
    assert is_base_of(one, one, {N})
    assert is_base_of(func(tensor(3), ret=tensor(3)), one)
    assert not is_base_of(func(tensor(3), ret=tensor(3)), one, {N})


@pytest.mark.rule("MAP-9")
def test_a_free_variable_is_bound_by_no_function() -> None:
    fixed, fitting = func(rank(1), ret=tensor(N)), func(tensor(N), ret=tensor(N))
    assert not is_base_of(fitting, fixed)
    assert check_compatibility(fixed, fitting) is Compatibility.POSSIBLE
    assert is_base_of(func(tensor(N), ret=rank(1)), fixed)
    shifted = func(tensor(tir.Add(N, tir.IntImm("int64", 1))), ret=tensor(N))
    assert check_compatibility(shifted, fitting) is Compatibility.POSSIBLE
    bound = struct_info_lca(fixed, fitting)
    assert is_base_of(bound, fixed)
    assert is_base_of(bound, fitting)


@pytest.mark.rule("SUB-20", "SUB-31")
def test_bounds_pair_variables_of_later_parameters() -> None:
    one = func(shape(2), shape(N), ret=Object)
    other = func(shape(M), shape(M), ret=Object)
    lowest = func(rx.ShapeStructInfo(None, 1), shape(M), ret=Object)
    for found in (struct_info_glb(one, other), struct_info_glb(other, one)):
        assert found is not None
        assert is_base_of(found, lowest)
        assert is_base_of(lowest, found)
    bounds = [
        struct_info_lca(func(p, ret=Object), func(q, ret=Object))
        for p, q in ((one, other), (other, one))
    ]
    assert is_base_of(bounds[0], bounds[1])
    assert is_base_of(bounds[1], bounds[0])


@pytest.mark.rule("SUB-20", "SUB-31")
def test_annotations_have_bounds_as_struct_infos_do() -> None:
    one, other = R.Tensor((2, 3), "int8"), R.Tensor((2, 4), "int8")
    assert struct_info_lca(one, other) == rx.TensorStructInfo(None, "int8", ndim=2)
    assert (
        struct_info_lca(one, one)
        == struct_info_glb(one, R.Tensor)
        == rx.TensorStructInfo((2, 3), "int8")
    )
    assert struct_info_lca(R.Prim("int8"), R.Prim("int16")) == Object
    sizes = R.Tensor((N, N * 2), "int8")
    assert definable_shape_vars(sizes) == free_shape_vars(sizes) == (N,)
    for function in (struct_info_lca, struct_info_glb):
        with pytest.raises(MisuseError, match="expected a StructInfo, found int 3"):
            function(one, 3)


LUBS = """
SUB-21: f32(n) | f32[1] = f32[1]
SUB-21: f32(n) | obj = obj
SUB-21: f32.by(s) | f32.by(s) = f32.by(s)
RES-1: obj | f32(n) = obj
RES-4: f32.by(s) | i64.by(s) = void.by(s)
SUB-22: f32(n) | shape(n) = obj
SUB-22: prim("int64") | packed() = obj
SUB-22: tup() | shape() = obj
SUB-23: f32(n) | f32(n, m) = f32[...]
SUB-23: f32[2] | i64[2] = void[2]
SUB-23: f32[1] | i64[2] = void[...]
SUB-24: f32(n * 2) | i64(n + n) = void(n * 2)
SUB-24: f32(n) | f32(m) = f32[1]
SUB-24: f32(2) | f32(3) = f32[1]
RES-3: f32(n) | i64(n) = void(n)
SUB-25: shape(n, 2) | shape(n, 3) = shape[2]
SUB-25: shape(n) | shape(n, m) = shape[...]
SUB-25: shape(n) | shape[1] = shape[1]
RES-2: shape(n) | shape(m) = shape[1]
RES-2: shape[2] | shape(n, m) = shape[2]
SUB-26: prim(1) | prim(2) = prim("int64")
SUB-26: prim(n) | prim(n) = prim(n)
SUB-26: prim("int64") | prim("int32") = obj
SUB-27: tup(f32(2), shape(n)) | tup(f32(3), shape(n)) = tup(f32[1], shape(n))
SUB-27: tup(obj) | tup() = obj
SUB-28: func(f32[1], ret=f32(2)) | func(f32(4), ret=f32(3)) = func(f32(4), ret=f32[1])
SUB-28: func(ret=obj) | func(obj, ret=obj) = obj
SUB-28: func(f32(2), ret=obj) | func(f32(3), ret=obj) = obj
SUB-28: func(f32(n), ret=f32(n + 1)) | func(f32(m), ret=f32(m + 2)) = func(f32(k), ret=f32[1])
RES-5: func(f32[1], ret=f32[2]) | func(f32(4), ret=f32[1]) = func(f32(4), ret=f32[...])
RES-5: func(f32[1], ret=obj) | func(f32[2], ret=obj) = obj
SUB-29: packed(FIRST) | packed(FIRST) = packed(FIRST)
SUB-29: packed(FIRST) | packed(DEFAULT) = packed()
SUB-29: packed() | func(ret=obj) = obj
SUB-30: func(ret=shape(1)) | func(ret=shape(2), pure=False) = func(ret=shape[1], pure=False)
SUB-30: func(ret=shape(1)) | func(ret=shape(2)) = func(ret=shape[1])
SUB-30: packed(FIRST, True) | packed(DEFAULT, True) = packed(pure=True)
RES-8: func(ret=obj) | func(ret=obj, pure=False) = func(ret=obj, pure=False)
"""


@pytest.mark.rule("SUB-21", "RES-1", "RES-4", "SUB-22", "SUB-23", "SUB-24", "RES-3", "SUB-25")
@pytest.mark.rule("RES-2", "SUB-26", "SUB-27", "SUB-28", "RES-5", "SUB-29", "SUB-30", "RES-8")
@pytest.mark.parametrize("row", by_rule(LUBS))
def test_least_upper_bound(row: str) -> None:
    a, b, expected = evaluate(f"({re.sub(r' [|=] ', ', ', row)})")
    for found in (struct_info_lca(a, b), struct_info_lca(b, a)):
        assert is_base_of(found, expected), f"{found} is not above {expected}"
        assert is_base_of(expected, found), f"{found} is not below {expected}"


GLBS = """
SUB-32: f32(n) & obj = f32(n)
SUB-32: f32(n) & shape(n) = None
SUB-32: prim("int64") & packed() = None
SUB-33: i64[...] & void[2] = i64[2]
SUB-33: void[2] & f32(n, m) = f32(n, m)
SUB-33: f32.by(s) & f32[2] = f32.by(s, 2)
SUB-33 RES-6: f32[1] & f32[2] = None
SUB-33: f32[1] & i64[1] = None
SUB-33: f32(n) & f32(m) = None
SUB-33: f32(n, m) & void[1] = None
RES-6: void[2] & i64[2] = i64[2]
SUB-34: shape(n) & shape[1] = shape(n)
SUB-34: shape[...] & shape[1] = shape[1]
SUB-34: shape[1] & shape[2] = None
SUB-34: shape(n) & shape(m) = None
SUB-34: prim(n) & prim("int64") = prim(n)
SUB-34: prim(1) & prim(2) = None
SUB-34: prim("int64") & prim("bool") = None
SUB-35: tup(f32(2), obj) & tup(f32[1], shape(n)) = tup(f32(2), shape(n))
SUB-35: tup(f32[1]) & tup(f32[2]) = None
SUB-35: tup(obj) & tup() = None
SUB-36: func(f32[1], ret=obj) & func(f32[2], ret=f32[1]) = func(f32[...], ret=f32[1])
SUB-36: func(ret=obj) & func(obj, ret=obj) = None
SUB-36: func(ret=f32[1]) & func(ret=f32[2]) = None
SUB-36: func(f32(n), ret=f32(n)) & func(f32[2], ret=obj) = None
SUB-36: func(f32(n), ret=f32[1]) & func(f32(2), ret=f32(5)) = func(f32[1], ret=f32(5))
SUB-37: func(ret=obj) & func(ret=shape(), pure=False) = func(ret=shape())
SUB-37: func(ret=f32[1], pure=False) & func(ret=obj, pure=False) = func(ret=f32[1], pure=False)
RES-7: func(ret=obj) & func(ret=obj, pure=False) = func(ret=obj)
SUB-38: packed() & packed(FIRST) = packed(FIRST)
SUB-38: packed(FIRST, True) & packed() = packed(FIRST, True)
SUB-38: packed(FIRST) & packed(DEFAULT) = None
SUB-38: packed() & func(ret=obj) = None
"""


@pytest.mark.rule("SUB-32", "SUB-33", "RES-6", "SUB-34", "SUB-35", "SUB-36", "SUB-37", "RES-7")
@pytest.mark.rule("SUB-38")
@pytest.mark.parametrize("row", by_rule(GLBS))
def test_greatest_lower_bound(row: str) -> None:
    a, b, expected = evaluate(f"({re.sub(r' [&=] ', ', ', row)})")
    for found in (struct_info_glb(a, b), struct_info_glb(b, a)):
        if found is None or expected is None:
            assert found is expected, f"{found} is not {expected}"
        else:
            assert is_base_of(found, expected), f"{found} is not above {expected}"
            assert is_base_of(expected, found), f"{found} is not below {expected}"


@pytest.mark.rule("SUB-8")
def test_devices_are_ordered_as_datatypes_are() -> None:
    here, anywhere = rx.TensorStructInfo((N,), vdevice="cpu"), tensor(N)  # type: ignore[arg-type]
    there = rx.TensorStructInfo((N,), vdevice="gpu")  # type: ignore[arg-type]
    assert is_base_of(anywhere, here)
    assert not is_base_of(here, anywhere)
    assert struct_info_lca(here, there) == anywhere
    assert struct_info_glb(here, there) is None
    assert struct_info_glb(rank(1, ""), here) == here
    assert struct_info_base_check(here, there) is BaseCheckResult.FAIL_L0
    assert struct_info_base_check(here, anywhere) is BaseCheckResult.FAIL_L1
    on_cpu = rx.TensorStructInfo((N,), "float32", "cpu")  # type: ignore[arg-type]
    assert struct_info_glb(rx.TensorStructInfo((N,), "", "cpu"), tensor(N)) == on_cpu  # type: ignore[arg-type]
    ranked_there = rx.TensorStructInfo(None, "", "cpu", 1)  # type: ignore[arg-type]
    of_dtype_there = rx.TensorStructInfo(None, "float32", "cpu")  # type: ignore[arg-type]
    below = rx.TensorStructInfo(None, "float32", "cpu", 1)  # type: ignore[arg-type]
    assert struct_info_glb(ranked_there, of_dtype_there) == below


@pytest.mark.rule("SUB-29", "SUB-30", "SUB-38")
def test_bounds_of_packed_forms_that_differ_in_their_results() -> None:
    one = rx.FuncStructInfo(None, tensor(N), True, derive_func=FIRST)
    other = rx.FuncStructInfo(None, shape(N), False, derive_func=FIRST)
    for upper in (struct_info_lca(one, other), struct_info_lca(other, one)):
        assert isinstance(upper, rx.FuncStructInfo)
        assert (upper.derive_func, upper.purity) == (FIRST, False)
        assert is_base_of(upper, one)
        assert is_base_of(upper, other)
    lower = struct_info_glb(one, packed(pure=True))
    assert isinstance(lower, rx.FuncStructInfo)
    assert (lower.derive_func, lower.purity) == (FIRST, True)
    assert struct_info_glb(one, packed(rx.DEFAULT_DERIVE)) is None
