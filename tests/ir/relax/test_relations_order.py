"""`<<:`, least upper and greatest lower bounds of struct infos, rule by rule (SUB)."""

from __future__ import annotations

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import struct_info_glb, struct_info_lca
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
from tests.ir.relax.sinfos import (
    FIRST,
    N_BY_4,
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
    ranked,
    shape,
    tensor,
    tuple_of,
)
from tests.rows import by_rule

UNKNOWN_SHAPE = rx.ShapeStructInfo(None, -1)
ANY_RANK, ANY_TENSOR = rank(-1), rank(-1, "")
EMPTY, DEFAULT = packed(), packed(rx.DEFAULT_DERIVE)


Pair = tuple[rx.StructInfo, rx.StructInfo, bool]
Triple = tuple[rx.StructInfo, rx.StructInfo, rx.StructInfo | None]

ORDER: list[tuple[pytest.MarkDecorator, list[Pair]]] = [
    (
        pytest.mark.rule("SUB-5"),
        [(tensor(N, 4), ANY_RANK, True), (tensor(N), rank(-1, "int64"), False)],
    ),
    (
        pytest.mark.rule("SUB-6"),
        [
            (tensor(N), tensor(N, dtype=""), True),
            (tensor(N, dtype=""), tensor(N), False),
            (tensor(N), tensor(N, dtype="int64"), False),
        ],
    ),
    (pytest.mark.rule("SUB-7"), [(tensor(N, 4), rank(2), True), (rank(2), tensor(N, 4), False)]),
    (
        pytest.mark.rule("SUB-8"),
        [
            (tensor(N * 2), tensor(N + N), True),
            (tensor(N), tensor(M), False),
            (tensor(2), tensor(3), False),
            (by_var(S), by_var(S), True),
            (by_var(T), by_var(S), False),
            (by_var(N_BY_4), tensor(N, 4), True),
            (by_var(S, ndim=2), by_var(S, ndim=-1), True),
            (by_var(S, ndim=-1), by_var(S, ndim=2), False),
        ],
    ),
    (
        pytest.mark.rule("RES-73"),
        [(by_var(S, ndim=2), by_var(S, ndim=-1), True), (ANY_RANK, by_var(S), False)],
    ),
    (
        pytest.mark.rule("SUB-9"),
        [
            (tensor(N), ANY_TENSOR, True),
            (rank(-1), ANY_TENSOR, True),
            (rank(2, ""), ANY_TENSOR, True),
            (ANY_TENSOR, rank(-1), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-10"),
        [(shape(N), UNKNOWN_SHAPE, True), (UNKNOWN_SHAPE, shape(N), False)],
    ),
    (pytest.mark.rule("SUB-11"), [(shape(N, M), ranked(2), True), (ranked(2), shape(N, M), False)]),
    (
        pytest.mark.rule("SUB-12"),
        [
            (shape(N + 1), shape(1 + N), True),
            (shape(N), shape(M), False),
            (shape(2), shape(3), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-13"),
        [
            (prim(N), prim(), True),
            (prim(), prim(N), False),
            (prim(N * 2), prim(N + N), True),
            (prim(1), prim(2), False),
            (prim(), prim(dtype="int32"), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-14"),
        [
            (tuple_of(tensor(N), shape(N)), tuple_of(rank(1), Object), True),
            (tuple_of(tensor(N)), tuple_of(rank(2)), False),
            (tuple_of(Object), tuple_of(), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-4"),
        [(shape(N), tensor(N), False), (prim(), shape(2), False), (tuple_of(), EMPTY, False)],
    ),
    (
        pytest.mark.rule("SUB-15"),
        [
            (func(rank(1), ret=tensor(4)), func(tensor(3), ret=rank(1)), True),
            (func(tensor(3), ret=rank(1)), func(rank(1), ret=rank(1)), False),
            (func(ret=rank(1)), func(ret=tensor(3)), False),
            (func(ret=Object), func(Object, ret=Object), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-16"),
        [
            (func(ret=Object), func(ret=Object, pure=False), True),
            (func(ret=Object, pure=False), func(ret=Object), False),
        ],
    ),
    (
        pytest.mark.rule("SUB-17"),
        [
            (DEFAULT, EMPTY, True),
            (EMPTY, DEFAULT, False),
            (DEFAULT, DEFAULT, True),
            (packed(FIRST), DEFAULT, False),
            (packed(pure=False), packed(pure=True), False),
        ],
    ),
    (pytest.mark.rule("RES-10"), [(DEFAULT, EMPTY, True), (EMPTY, DEFAULT, False)]),
    (
        pytest.mark.rule("SUB-18"),
        [(func(ret=Object), EMPTY, False), (EMPTY, func(ret=Object), False)],
    ),
    (
        pytest.mark.rule("RES-13"),
        [
            (func(tensor(N), ret=tensor(N * 2)), func(tensor(M), ret=tensor(M + M)), True),
            (func(tensor(N), ret=tensor(N)), func(tensor(M), ret=tensor(M + 1)), False),
            (func(tensor(N), ret=tensor(N)), func(tensor(2), ret=tensor(2)), True),
            (func(tensor(2), ret=tensor(2)), func(tensor(N), ret=tensor(N)), False),
        ],
    ),
    (
        pytest.mark.rule("RES-72"),
        [
            (
                func(func(tensor(2), ret=Object), ret=Object),
                func(func(tensor(N), ret=Object), ret=Object),
                True,
            ),
            (
                func(func(tensor(N), ret=Object), ret=Object),
                func(func(tensor(3), ret=Object), ret=Object),
                False,
            ),
        ],
    ),
]


@pytest.mark.parametrize(("low", "high", "holds"), by_rule(ORDER))
def test_below(low: rx.StructInfo, high: rx.StructInfo, holds: bool) -> None:
    assert is_base_of(high, low) is holds


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


LUBS: list[tuple[pytest.MarkDecorator, list[Triple]]] = [
    (
        pytest.mark.rule("SUB-21"),
        [
            (tensor(N), rank(1), rank(1)),
            (tensor(N), Object, Object),
            (by_var(S), by_var(S), by_var(S)),
        ],
    ),
    (pytest.mark.rule("RES-1"), [(Object, tensor(N), Object)]),
    (pytest.mark.rule("RES-4"), [(by_var(S), by_var(S, "int64"), by_var(S, ""))]),
    (
        pytest.mark.rule("SUB-22"),
        [(tensor(N), shape(N), Object), (prim(), EMPTY, Object), (tuple_of(), shape(), Object)],
    ),
    (
        pytest.mark.rule("SUB-23"),
        [
            (tensor(N), tensor(N, M), rank(-1)),
            (rank(2), rank(2, "int64"), rank(2, "")),
            (rank(1), rank(2, "int64"), ANY_TENSOR),
        ],
    ),
    (
        pytest.mark.rule("SUB-24"),
        [
            (tensor(N * 2), tensor(N + N, dtype="int64"), tensor(N * 2, dtype="")),
            (tensor(N), tensor(M), rank(1)),
            (tensor(2), tensor(3), rank(1)),
        ],
    ),
    (pytest.mark.rule("RES-3"), [(tensor(N), tensor(N, dtype="int64"), tensor(N, dtype=""))]),
    (
        pytest.mark.rule("SUB-25"),
        [
            (shape(N, 2), shape(N, 3), ranked(2)),
            (shape(N), shape(N, M), UNKNOWN_SHAPE),
            (shape(N), ranked(1), ranked(1)),
        ],
    ),
    (
        pytest.mark.rule("RES-2"),
        [(shape(N), shape(M), ranked(1)), (ranked(2), shape(N, M), ranked(2))],
    ),
    (
        pytest.mark.rule("SUB-26"),
        [
            (prim(1), prim(2), prim()),
            (prim(N), prim(N), prim(N)),
            (prim(), prim(dtype="int32"), Object),
        ],
    ),
    (
        pytest.mark.rule("SUB-27"),
        [
            (
                tuple_of(tensor(2), shape(N)),
                tuple_of(tensor(3), shape(N)),
                tuple_of(rank(1), shape(N)),
            ),
            (tuple_of(Object), tuple_of(), Object),
        ],
    ),
    (
        pytest.mark.rule("SUB-28"),
        [
            (
                func(rank(1), ret=tensor(2)),
                func(tensor(4), ret=tensor(3)),
                func(tensor(4), ret=rank(1)),
            ),
            (func(ret=Object), func(Object, ret=Object), Object),
            (func(tensor(2), ret=Object), func(tensor(3), ret=Object), Object),
            (
                func(tensor(N), ret=tensor(N + 1)),
                func(tensor(M), ret=tensor(M + 2)),
                func(tensor(K), ret=rank(1)),
            ),
        ],
    ),
    (
        pytest.mark.rule("RES-5"),
        [
            (
                func(rank(1), ret=rank(2)),
                func(tensor(4), ret=rank(1)),
                func(tensor(4), ret=rank(-1)),
            ),
            (func(rank(1), ret=Object), func(rank(2), ret=Object), Object),
        ],
    ),
    (
        pytest.mark.rule("SUB-29"),
        [
            (packed(FIRST), packed(FIRST), packed(FIRST)),
            (packed(FIRST), DEFAULT, EMPTY),
            (EMPTY, func(ret=Object), Object),
        ],
    ),
    (
        pytest.mark.rule("SUB-30"),
        [
            (func(ret=shape(1)), func(ret=shape(2), pure=False), func(ret=ranked(1), pure=False)),
            (func(ret=shape(1)), func(ret=shape(2)), func(ret=ranked(1))),
            (packed(FIRST, True), packed(rx.DEFAULT_DERIVE, True), packed(rx.EMPTY_DERIVE, True)),
        ],
    ),
    (
        pytest.mark.rule("RES-8"),
        [(func(ret=Object), func(ret=Object, pure=False), func(ret=Object, pure=False))],
    ),
]


@pytest.mark.parametrize(("a", "b", "expected"), by_rule(LUBS))
def test_least_upper_bound(a: rx.StructInfo, b: rx.StructInfo, expected: rx.StructInfo) -> None:
    for found in (struct_info_lca(a, b), struct_info_lca(b, a)):
        assert is_base_of(found, expected), f"{found} is not above {expected}"
        assert is_base_of(expected, found), f"{found} is not below {expected}"


GLBS: list[tuple[pytest.MarkDecorator, list[Triple]]] = [
    (
        pytest.mark.rule("SUB-32"),
        [(tensor(N), Object, tensor(N)), (tensor(N), shape(N), None), (prim(), EMPTY, None)],
    ),
    (
        pytest.mark.rule("SUB-33"),
        [
            (rank(-1, "int64"), rank(2, ""), rank(2, "int64")),
            (rank(2, ""), tensor(N, M), tensor(N, M)),
            (by_var(S), rank(2), by_var(S, ndim=2)),
            (rank(1), rank(2), None),
            (rank(1), rank(1, "int64"), None),
            (tensor(N), tensor(M), None),
            (tensor(N, M), rank(1, ""), None),
        ],
    ),
    (
        pytest.mark.rule("RES-6"),
        [(rank(2, ""), rank(2, "int64"), rank(2, "int64")), (rank(1), rank(2), None)],
    ),
    (
        pytest.mark.rule("SUB-34"),
        [
            (shape(N), ranked(1), shape(N)),
            (UNKNOWN_SHAPE, ranked(1), ranked(1)),
            (ranked(1), ranked(2), None),
            (shape(N), shape(M), None),
            (prim(N), prim(), prim(N)),
            (prim(1), prim(2), None),
            (prim(), prim(dtype="bool"), None),
        ],
    ),
    (
        pytest.mark.rule("SUB-35"),
        [
            (
                tuple_of(tensor(2), Object),
                tuple_of(rank(1), shape(N)),
                tuple_of(tensor(2), shape(N)),
            ),
            (tuple_of(rank(1)), tuple_of(rank(2)), None),
            (tuple_of(Object), tuple_of(), None),
        ],
    ),
    (
        pytest.mark.rule("SUB-36"),
        [
            (func(rank(1), ret=Object), func(rank(2), ret=rank(1)), func(rank(-1), ret=rank(1))),
            (func(ret=Object), func(Object, ret=Object), None),
            (func(ret=rank(1)), func(ret=rank(2)), None),
            (func(tensor(N), ret=tensor(N)), func(rank(2), ret=Object), None),
            (
                func(tensor(N), ret=rank(1)),
                func(tensor(2), ret=tensor(5)),
                func(rank(1), ret=tensor(5)),
            ),
        ],
    ),
    (
        pytest.mark.rule("SUB-37"),
        [
            (func(ret=Object), func(ret=shape(), pure=False), func(ret=shape())),
            (
                func(ret=rank(1), pure=False),
                func(ret=Object, pure=False),
                func(ret=rank(1), pure=False),
            ),
        ],
    ),
    (
        pytest.mark.rule("RES-7"),
        [(func(ret=Object), func(ret=Object, pure=False), func(ret=Object))],
    ),
    (
        pytest.mark.rule("SUB-38"),
        [
            (EMPTY, packed(FIRST), packed(FIRST)),
            (packed(FIRST, True), EMPTY, packed(FIRST, True)),
            (packed(FIRST), DEFAULT, None),
            (EMPTY, func(ret=Object), None),
        ],
    ),
]


@pytest.mark.parametrize(("a", "b", "expected"), by_rule(GLBS))
def test_greatest_lower_bound(
    a: rx.StructInfo, b: rx.StructInfo, expected: rx.StructInfo | None
) -> None:
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
