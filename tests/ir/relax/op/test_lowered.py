"""What the operators of lowered programs give, and what they refuse."""

from collections.abc import Callable

import pytest

from relaxpy.errors import StructInfoError
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor, tuple_of

N = tir.Var("n", "int64")
MATRIX = tensor(2, 3)
ZERO = rx.PrimValue(0)
Made = Callable[..., rx.Call]


def derive(make: Made, sinfos: tuple[rx.StructInfo, ...]) -> rx.StructInfo | None:
    return make(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos))).struct_info


GIVEN: list[tuple[Made, tuple[rx.StructInfo, ...], rx.StructInfo]] = [
    (lambda x: op.builtin.alloc_tensor([2, N], "int8", 0), (Object,), tensor(2, N, dtype="int8")),
    (lambda s: op.memory.alloc_tensor(s, 0, [2, 3], "float32"), (Object,), MATRIX),
    (lambda s: op.vm.alloc_tensor(s, 0, [2, 3], "float32"), (Object,), MATRIX),
    (lambda s: op.memory.alloc_storage(s, 0, "global", "int8"), (shape(8),), Object),
    (lambda s: op.vm.alloc_storage(s, 0, "int8"), (shape(8),), Object),
    (lambda s: op.vm.call_tir_dyn("f", (s,)), (shape(N),), tuple_of()),
    (lambda s: op.vm.call_tir_dyn(rx.GlobalVar("f"), (s,)), (shape(N),), tuple_of()),
    (op.memory.kill_storage, (Object,), tuple_of()),
    (op.memory.kill_tensor, (MATRIX,), tuple_of()),
    (op.vm.kill_object, (MATRIX,), tuple_of()),
    (op.memory.ensure_zero_offset, (MATRIX,), MATRIX),
    (op.builtin.stop_lift_params, (rank(2),), rank(2)),
    (op.memory.view, (MATRIX,), MATRIX),
    (lambda x: op.memory.view(x, [6]), (MATRIX,), tensor(6)),
    (lambda x: op.memory.view(x, [24], "int8"), (MATRIX,), tensor(24, dtype="int8")),
    (lambda x: op.memory.view(x, [5], relative_byte_offset=4), (MATRIX,), tensor(5)),
    (lambda x: op.memory.view(x, [N]), (MATRIX,), tensor(N)),
    (lambda x, d: op.memory.view(x, dtype=d), (MATRIX, Object), tensor(2, 3, dtype="")),
    (op.shape_to_tensor, (shape(2, N),), tensor(2, dtype="int64")),
    (op.shape_to_tensor, (rx.ShapeStructInfo(),), rank(1, "int64")),
    (op.tensor_to_shape, (tensor(3, dtype="int64"),), rx.ShapeStructInfo(ndim=3)),
    (op.tensor_to_shape, (tensor(N, dtype="int32"),), rx.ShapeStructInfo()),
    (op.tensor_to_shape, (rx.TensorStructInfo(None, VOID),), rx.ShapeStructInfo()),
    (lambda f: op.make_closure(f, (ZERO,)), (Object,), Object),
    (lambda f: op.invoke_closure(f, (ZERO,)), (Object,), Object),
    (lambda f: op.invoke_closure(f, (ZERO,), MATRIX), (Object,), MATRIX),
    (
        lambda f: op.invoke_pure_closure(f, (ZERO,), [MATRIX, MATRIX]),
        (Object,),
        tuple_of(MATRIX, MATRIX),
    ),
    (
        lambda x: op.call_inplace_packed("f", x, inplace_indices=[0], sinfo_args=MATRIX),
        (MATRIX,),
        MATRIX,
    ),
    (
        lambda x, y: op.call_inplace_packed(
            "f", x, y, inplace_indices=[-1, 1], sinfo_args=[MATRIX, rank(2)]
        ),
        (MATRIX, MATRIX),
        tuple_of(MATRIX, rank(2)),
    ),
    (lambda x: op.call_builtin_with_ctx("f", (x,)), (MATRIX,), tuple_of()),
    (lambda x: op.call_builtin_with_ctx("f", (x,), sinfo_args=MATRIX), (MATRIX,), MATRIX),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), GIVEN)
def test_what_is_known_of_results(
    make: Made, sinfos: tuple[rx.StructInfo, ...], expected: rx.StructInfo
) -> None:
    assert derive(make, sinfos) == expected


REFUSED: list[tuple[Made, tuple[rx.StructInfo, ...], str]] = [
    (lambda x: op.memory.view(x, [7]), (MATRIX,), "a view of 28 bytes from byte 0 on leaves"),
    (lambda x: op.memory.view(x, [5], relative_byte_offset=8), (MATRIX,), "which has 24 bytes"),
    (lambda x: op.memory.view(x, [N + 1]), (tensor(N),), "leaves the tensor"),
    (lambda x: op.memory.view(x, relative_byte_offset=-1), (MATRIX,), "begins at byte -1"),
    (
        lambda x, o: op.memory.view(x, None, None, o),
        (MATRIX, prim(dtype="int32")),
        "an int64, found",
    ),
    (op.memory.kill_tensor, (shape(2),), "tensor is a tensor, found R.Shape"),
    (lambda d: op.builtin.alloc_tensor([2], d, 0), (Object,), "the datatype is a literal"),
    (lambda s: op.memory.alloc_tensor(s, 0, [2], ""), (Object,), "has a datatype, found none"),
    (lambda x: op.memory.kill_storage(x), (MATRIX,), "storage is an object, found"),
    (op.tensor_to_shape, (MATRIX,), "takes integers of rank 1"),
    (op.tensor_to_shape, (tensor(2),), "takes integers of rank 1"),
    (lambda x: op.make_closure(x, ()), (MATRIX,), "expected a function, found R.Tensor"),
    (
        lambda f: op.make_closure(f, (ZERO, ZERO)),
        (rx.FuncStructInfo((Object,), Object),),
        "the function takes 1 argument, 2 are bound",
    ),
    (
        lambda x: op.call_inplace_packed("f", x, inplace_indices=[-1], sinfo_args=MATRIX),
        (MATRIX,),
        "names different arguments, at least one",
    ),
    (
        lambda x: op.call_inplace_packed("f", x, inplace_indices=[1], sinfo_args=MATRIX),
        (MATRIX,),
        "inplace index 1 names none of 1 argument",
    ),
    (
        lambda x: op.call_inplace_packed("f", x, inplace_indices=[0, 0], sinfo_args=MATRIX),
        (MATRIX,),
        "one entry for each of 1 result",
    ),
    (
        lambda x: op.call_inplace_packed("f", x, inplace_indices=[0], sinfo_args=tensor(4)),
        (MATRIX,),
        "cannot be the result",
    ),
    (lambda x: op.call_builtin_with_ctx(x, ()), (MATRIX,), "expected a packed function"),
    (
        lambda x: op.vm.call_tir_dyn(rx.GlobalVar("k"), (x,)),
        (MATRIX,),
        "the last argument is a shape",
    ),
    (lambda f: op.vm.call_tir_dyn(f, ()), (Object,), "takes a kernel and a tuple of arguments"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(
    make: Made, sinfos: tuple[rx.StructInfo, ...], message: str
) -> None:
    with pytest.raises(StructInfoError, match=message.replace("[", r"\[")):
        derive(make, sinfos)
