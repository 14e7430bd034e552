"""What operators say of their results, families of operators at a time."""

from collections.abc import Callable

import pytest

from relaxpy.errors import MisuseError, StructInfoError, StructInfoTypeError
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.ops.elementwise import BINARY, UNARY
from relaxpy.ir.ops.reduction import REDUCTIONS
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
S = rx.Var("s", rx.ShapeStructInfo(None, 2))
BY_SHAPE = rx.TensorStructInfo(S, "float32")
UNKNOWN = rx.TensorStructInfo(None, VOID)
OPEN = rx.TensorStructInfo(None, "float32")
UNTYPED = rx.TensorStructInfo((2, 3), VOID)  # type: ignore[arg-type]
DEVICE, OTHER = "cpu", "gpu"

Made = Callable[..., rx.Call]
Infos = tuple[rx.StructInfo, ...]


def located(sinfo: rx.TensorStructInfo, vdevice: str) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(sinfo.shape, sinfo.dtype, vdevice)


def derive(make: Made, sinfos: Infos) -> rx.StructInfo | None:
    return make(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos))).struct_info


def check(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    assert derive(make, sinfos) == expected


def refused(make: Made, sinfos: Infos, message: str) -> StructInfoError:
    with pytest.raises(StructInfoError) as caught:
        derive(make, sinfos)
    assert message in str(caught.value)
    assert caught.value.diagnostic.rule in ("DER-36", "SI-15")
    return caught.value


ANY_INFO = [tensor(2, N), BY_SHAPE, rank(2), OPEN, UNKNOWN, UNTYPED, located(tensor(3), DEVICE)]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("name", sorted(UNARY))
def test_a_unary_operator_keeps_what_is_known(name: str) -> None:
    for sinfo in ANY_INFO:
        kept = rx.TensorStructInfo(
            sinfo.shape, "bool" if name.startswith("is") else sinfo.dtype, sinfo.vdevice, sinfo.ndim
        )
        check(UNARY[name], (sinfo,), kept)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("name", sorted(UNARY))
def test_a_unary_operator_takes_a_tensor(name: str) -> None:
    refused(UNARY[name], (shape(2, 3),), f"relax.{name}: x is a tensor, found R.Shape([2, 3])")
    refused(UNARY[name], (Object,), "R.match_cast")


@pytest.mark.parametrize("name", ["exp", "sqrt", "sigmoid", "erf", "tanh"])
def test_functions_of_real_numbers_refuse_integers(name: str) -> None:
    error = refused(UNARY[name], (tensor(2, dtype="int32"),), "x holds floats, found")
    assert isinstance(error, StructInfoTypeError)
    assert error.diagnostic.hint == "convert it with R.astype first"
    check(UNARY[name], (tensor(2, dtype="bfloat16"),), tensor(2, dtype="bfloat16"))
    check(UNARY["abs"], (tensor(2, dtype="int32"),), tensor(2, dtype="int32"))


BROADCASTS: list[tuple[rx.StructInfo, rx.StructInfo, rx.StructInfo]] = [
    (tensor(2, 3), tensor(2, 3), tensor(2, 3)),
    (tensor(2, 3), tensor(3), tensor(2, 3)),
    (tensor(2, 1), tensor(1, 3), tensor(2, 3)),
    (tensor(N, M), tensor(1, M), tensor(N, M)),
    (tensor(N, 4), tensor(N, 1), tensor(N, 4)),
    (tensor(N + 1), tensor(1 + N), tensor(N + 1)),
    (tensor(), tensor(N), tensor(N)),
    (tensor(0, 3), tensor(1, 3), tensor(0, 3)),
    (tensor(N, 3), tensor(M, 3), rank(2)),
    (tensor(N, 3), tensor(2, 3), rank(2)),
    (tensor(2, 3), rank(2), rank(2)),
    (tensor(2, 3), rank(3), rank(3)),
    (BY_SHAPE, BY_SHAPE, BY_SHAPE),
    (BY_SHAPE, tensor(2, 3), rank(2)),
    (OPEN, tensor(2, 3), OPEN),
    (UNTYPED, tensor(2, 3), UNTYPED),
    (UNKNOWN, tensor(2, 3), UNKNOWN),
    (tensor(2, 3), prim(dtype="float32"), tensor(2, 3)),
    (tensor(), prim(dtype="float32"), tensor()),
    (prim(dtype="float32"), prim(dtype="float32"), prim(dtype="float32")),
    (tensor(2, dtype="bool"), tensor(2), tensor(2, dtype="bool")),
    (tensor(2), tensor(2, dtype="bool"), tensor(2)),
    (located(tensor(2), DEVICE), tensor(2), located(tensor(2), DEVICE)),
]


def truths(sinfo: rx.StructInfo) -> rx.StructInfo:
    if isinstance(sinfo, rx.PrimStructInfo):
        return prim(dtype="bool")
    assert isinstance(sinfo, rx.TensorStructInfo)
    return rx.TensorStructInfo(sinfo.shape, "bool", sinfo.vdevice, sinfo.ndim)


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("name", ["add", "maximum", "bitwise_xor", "equal", "less"])
def test_operands_broadcast(name: str) -> None:
    compares = name in ("equal", "less")
    for first, second, result in BROADCASTS:
        check(BINARY[name], (first, second), truths(result) if compares else result)


@pytest.mark.rule("DER-36")
def test_operands_that_cannot_broadcast_are_refused() -> None:
    for name in ("add", "less"):
        error = refused(
            BINARY[name],
            (tensor(2, 3), tensor(5, 2, 4)),
            f"relax.{name}: x1 and x2 do not broadcast: dimension 1 of x1 (2, 3) is 3, "
            "dimension 2 of x2 (5, 2, 4) is 4",
        )
        assert isinstance(error.about, rx.Var)
        assert error.about.name_hint == "x1"
    refused(BINARY["add"], (tensor(2), Object), "x2 is a tensor or a scalar, found R.Object")


def test_datatypes_are_not_promoted_but_compared() -> None:
    sinfos = tensor(2), tensor(2, dtype="int32")
    error = refused(BINARY["add"], sinfos, "x1 and x2 have one datatype, found float32 and int32")
    assert isinstance(error, TypeError)
    check(BINARY["less"], sinfos, tensor(2, dtype="bool"))
    two_places = located(tensor(2), DEVICE), located(tensor(2), OTHER)
    refused(BINARY["add"], two_places, "the operands are on one device, found cpu and gpu")


def test_a_number_takes_the_datatype_of_the_other_operand() -> None:
    for dtype, number in (("float16", 1), ("int8", -3), ("float32", 2.5), ("bool", True)):
        call = BINARY["add"](rx.Var("x", tensor(2, dtype=dtype)), number)
        constant = call.args[1]
        assert isinstance(constant, rx.Constant)
        assert constant.struct_info == tensor(dtype=dtype)
        assert constant.data == number
    scalar = BINARY["multiply"](2, rx.Var("k", prim(dtype="int32")))
    assert scalar.struct_info == prim(dtype="int32")


@pytest.mark.parametrize(
    ("sinfo", "number", "message"),
    [
        (tensor(2, dtype="int32"), 1.5, "relax.add: 1.5 is not a value of int32"),
        (tensor(2, dtype="int8"), 300, "300 is not a value of int8"),
        (tensor(2, dtype="uint8"), -1, "-1 is not a value of uint8"),
        (UNTYPED, 1, "the datatype of 1 is open beside a tensor of unknown datatype"),
        (None, 1, "nothing is known yet about the other operand"),
    ],
)
def test_a_number_that_the_datatype_does_not_have_is_refused(sinfo, number, message) -> None:
    with pytest.raises(MisuseError) as caught:
        BINARY["add"](rx.Var("x", sinfo), number)
    assert message in str(caught.value)
    assert caught.value.about is number


REDUCED: list[tuple[rx.StructInfo, object, bool, rx.StructInfo]] = [
    (tensor(2, N, 4), None, False, tensor()),
    (tensor(2, N, 4), None, True, tensor(1, 1, 1)),
    (tensor(2, N, 4), -1, False, tensor(2, N)),
    (tensor(2, N, 4), [0, 2], True, tensor(1, N, 1)),
    (tensor(2, N, 4), [0, 1, 2], False, tensor()),
    (rank(3), None, True, tensor(1, 1, 1)),
    (rank(3), [0, 1], False, rank(1)),
    (rank(3), 0, True, rank(3)),
    (BY_SHAPE, 0, False, rank(1)),
    (OPEN, None, False, tensor()),
    (OPEN, 0, False, OPEN),
    (UNTYPED, 1, False, rx.TensorStructInfo((2,), VOID)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("name", [*REDUCTIONS, "argmax", "argmin"])
def test_reductions(name: str) -> None:
    finds = name.startswith("arg")
    record = getattr(op, name)
    for sinfo, axis, keepdims, expected in REDUCED:
        if finds and isinstance(axis, list):
            continue
        assert isinstance(expected, rx.TensorStructInfo)
        dtype = "int64" if finds else expected.dtype
        result = rx.TensorStructInfo(expected.shape, dtype, ndim=expected.ndim)
        check(lambda x, a=axis, k=keepdims: record(x, a, k), (sinfo,), result)
    refused(lambda x: record(x, 2), (tensor(2, 3),), "axis 2 is out of range for rank 2")
    refused(lambda x: record(x, -3), (rank(2),), "axis -3 is out of range for rank 2")
    if not finds:
        refused(lambda x: record(x, [1, -1]), (tensor(2, 3),), "axis -1 occurs twice in [1, -1]")
    with pytest.raises(MisuseError, match=r"axis is int.*None, found 'x'"):
        record(rx.Var("x", tensor(2)), "x")


def test_one_axis_and_a_list_of_one_are_the_same_attribute() -> None:
    x = rx.Var("x", tensor(2, 3))
    assert REDUCTIONS["sum"](x, 1).attrs == REDUCTIONS["sum"](x, [1]).attrs


def test_shapes_that_are_values() -> None:
    check(lambda x: op.reshape(x, rx.ShapeExpr((-1, 2))), (tensor(2, 3),), tensor(3, 2))
    one_by_three = rx.TensorStructInfo(rx.Var("s1", rx.ShapeStructInfo((1, 3))), "float32")
    check(op.squeeze, (one_by_three,), OPEN)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1, -1), "once -1"),
        ((-2, 3), "sizes are positive"),
        ((2, 3, 0), "size 2 is 0"),
        ((True, 6), "a dimension is an integer, found True"),
        (6, "a shape is a list of sizes or a shape value, found 6"),
    ],
)
def test_a_shape_that_means_nothing_is_refused(given: object, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        op.reshape(rx.Var("x", tensor(2, 3)), given)
    assert message in str(caught.value)


def test_what_needs_an_unknown_shape_waits_for_the_value_or_is_refused() -> None:
    assert op.reshape(rx.Var("x", OPEN), (-1, 2)).struct_info == rank(2)
    assert op.permute_dims(rx.Var("x", OPEN), [1, 0, 2]).struct_info == rank(3)
    with pytest.raises(MisuseError, match=r"0 in .* needs the shape of x, which is R\.Tensor"):
        op.reshape(rx.Var("x", rank(2)), (0, 2))
    with pytest.raises(MisuseError, match="-1 may be any size"):
        op.reshape(rx.Var("x", tensor(0, 3)), (0, -1))


def test_modes_of_take() -> None:
    with pytest.raises(MisuseError, match=r"'wrap' or 'clip' or 'nan', found 'far'"):
        op.take(rx.Var("x", tensor(2)), 0, mode="far")


def test_tensors_like_others() -> None:
    for like in (op.zeros_like, op.ones_like, lambda x, dtype=None: op.full_like(x, 1, dtype)):
        for sinfo in ANY_INFO:
            check(like, (sinfo,), sinfo)
        check(lambda x, f=like: f(x, "int8"), (tensor(2, N),), tensor(2, N, dtype="int8"))


def test_ranges_end_at_finite_numbers() -> None:
    for number in (float("nan"), float("inf")):
        refused(lambda v=number: op.arange(0, v), (), "start, end and step are finite, found")
    with pytest.raises(MisuseError, match="end is a number, found 'x'"):
        op.arange(0, "x")


def test_activations() -> None:
    for name in ("relu", "gelu", "gelu_tanh", "silu", "leakyrelu", "softmax", "log_softmax"):
        for sinfo in ANY_INFO:
            check(getattr(op.nn, name), (sinfo,), sinfo)


def test_what_is_at_fault_is_what_was_written() -> None:
    x, w = rx.Var("x", tensor(4, 4)), rx.Var("w", tensor(3))
    axes, strides, dtype = [1, 1], [0], "flot32"
    faults: list[tuple[Callable[[], object], object]] = [
        (lambda: op.permute_dims(x, axes), axes),
        (lambda: op.strided_slice(x, [0], [0], [1], strides), strides),
        (lambda: op.astype(x, dtype), dtype),
        (lambda: op.nn.softmax(x, axis=7), 7),
        (lambda: op.matmul(x, w), w),
    ]
    for make, fault in faults:
        with pytest.raises((StructInfoError, MisuseError)) as caught:
            make()
        assert caught.value.about is fault


def test_one_shape_variable_of_any_rank_is_kept() -> None:
    s = rx.Var("s", rx.ShapeStructInfo())
    sinfo, truth_values = rx.TensorStructInfo(s, "float32"), rx.TensorStructInfo(s, "bool")
    check(op.where, (truth_values, sinfo, sinfo), sinfo)
    check(op.add, (sinfo, sinfo), sinfo)
