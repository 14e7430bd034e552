"""The kinds of kernels: of every form by hand, and of those that operators become."""

from collections.abc import Callable

import pytest

from relaxpy import IRModule, relax, te, tir, topi
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.relax.analysis import OpPatternKind, op_pattern_kind
from relaxpy.relax.transform import AnnotateTIROpPattern, LegalizeOps
from relaxpy.script import tir as T
from tests.exec.loops.written import kernel
from tests.ir.passes.before_after import stays
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.test_legalize import N

Kind = OpPatternKind
op = relax.op


def test_the_numbers_are_those_of_tvm() -> None:
    numbers = {kind.name: int(kind) for kind in Kind}
    assert numbers == {
        "ELEMWISE": 0,
        "BROADCAST": 1,
        "INJECTIVE": 2,
        "COMM_REDUCE": 3,
        "OUT_EWISE_FUSABLE": 4,
        "TUPLE": 7,
        "OPAQUE": 8,
    }


CASES: list[tuple[Kind, Callable[..., rx.Expr], tuple[rx.StructInfo, ...]]] = [
    (Kind.ELEMWISE, op.exp, (tensor(N, 4),)),
    (Kind.ELEMWISE, op.add, (tensor(N, 4), tensor(N, 4))),
    (Kind.ELEMWISE, op.add, (tensor(N, 4), tensor(4))),
    (Kind.BROADCAST, lambda x: op.broadcast_to(x, (3, 4)), (tensor(4),)),
    (Kind.BROADCAST, lambda x: op.expand_dims(x, 0), (tensor(N, 4),)),
    (Kind.INJECTIVE, lambda x: op.permute_dims(x, (1, 0)), (tensor(N, 4),)),
    (Kind.INJECTIVE, lambda x: op.reshape(x, (N * 4,)), (tensor(N, 4),)),
    (Kind.COMM_REDUCE, lambda x: op.sum(x, axis=1), (tensor(N, 4),)),
    (Kind.COMM_REDUCE, lambda x: op.max(x, axis=0), (tensor(2, 4),)),
    (Kind.OUT_EWISE_FUSABLE, op.matmul, (tensor(N, 4), tensor(4, 5))),
    (Kind.OUT_EWISE_FUSABLE, op.nn.softmax, (tensor(N, 4),)),
    (Kind.OUT_EWISE_FUSABLE, op.nn.conv2d, (tensor(1, 3, 8, 8), tensor(4, 3, 3, 3))),
    (Kind.ELEMWISE, op.nn.max_pool2d, (tensor(1, 3, 8, 8),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}")
def test_operators_become_kernels_of_a_kind(case) -> None:
    kind, body, infos = case
    mod = AnnotateTIROpPattern()(LegalizeOps()(returning(body, *infos)))
    [kernel] = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    assert kernel.attrs["op_pattern"] == kind
    assert op_pattern_kind(kernel) is kind
    stays(AnnotateTIROpPattern(), mod)


two_stores = kernel("""
def two_stores(a: f32[4], b: f32[8]):
    for i in S(4, "B"):
        b[vi] = a[vi]
        b[vi + 4] = a[vi]
""")


diagonal = kernel("""
def diagonal(a: f32[4], b: f32[4, 4]):
    for i in S(4, "B"):
        b[vi, vi * 0] = a[3 - vi]
""")


@T.prim_func
def without_block(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        b[i] = a[3 - i]


@T.prim_func
def without_store(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.evaluate(T.call_extern("int32", "f", a.data, b.data))


declared = kernel("""
def declared(a: f32[4], b: f32[4]):
    T.func_attr({"op_pattern": 8})
    for i in S(4, "B"):
        b[vi] = a[vi]
""")


@pytest.mark.parametrize("kernel", [two_stores, diagonal, without_block, without_store])
def test_what_has_no_other_kind_is_opaque(kernel: PrimFunc) -> None:
    assert op_pattern_kind(kernel) is Kind.OPAQUE


def test_a_kernel_of_branches_deeper_than_the_stack_has_a_kind() -> None:
    parts = [te.placeholder((tir.Var(f"n{i}", "int64"),), "float32") for i in range(200)]
    kernel = te.create_prim_func([*parts, topi.concatenate(parts, 0)])
    assert op_pattern_kind(kernel) is Kind.INJECTIVE


def test_a_kind_that_is_declared_stays() -> None:
    assert op_pattern_kind(declared) is Kind.ELEMWISE
    stays(AnnotateTIROpPattern(), IRModule({"declared": declared}))


def test_only_kernels_have_a_kind() -> None:
    with pytest.raises(MisuseError):
        op_pattern_kind(5)  # type: ignore[arg-type]
