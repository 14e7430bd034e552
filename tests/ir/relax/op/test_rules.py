"""What operators say of their results where little is known, and how they refuse what does not fit.

The tables list, for each operator, struct infos of operands that are fully, partly or not known.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxpy.errors import MisuseError, StructInfoError, StructInfoTypeError
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.op.binary import BINARY
from relaxpy.ir.relax.op.statistical import REDUCTIONS
from relaxpy.ir.relax.op.unary import UNARY
from relaxpy.ir.tir import expr as tir, ops
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor, tuple_of

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
S = rx.Var("s", rx.ShapeStructInfo(None, 2))
BY_SHAPE = rx.TensorStructInfo(S, "float32")
LISTED = rx.TensorStructInfo(rx.Var("listed", rx.ShapeStructInfo((2, 3))), "float32")
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


def test_an_angle_is_of_floats() -> None:
    check(BINARY["atan2"], (tensor(2, 1), tensor(1, N)), tensor(2, N))
    for sinfos in ((tensor(2, dtype="int32"), tensor(2)), (tensor(2), prim(dtype="int64"))):
        refused(BINARY["atan2"], sinfos, "holds floats, found")


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
def test_a_number_that_the_datatype_does_not_have_is_refused(
    sinfo: rx.StructInfo | None, number: float, message: str
) -> None:
    with pytest.raises(MisuseError) as caught:
        BINARY["add"](rx.Var("x", sinfo), number)
    assert message in str(caught.value)
    assert caught.value.about is number


FMA: list[tuple[Infos, rx.StructInfo]] = [
    ((tensor(2, N), tensor(2, N), tensor(2, N)), tensor(2, N)),
    ((tensor(2), rank(1), tensor(2)), rank(1)),
    ((BY_SHAPE, BY_SHAPE, BY_SHAPE), BY_SHAPE),
    ((OPEN, tensor(2), OPEN), rank(1)),
    ((UNTYPED, tensor(2, 3), tensor(2, 3)), UNTYPED),
    ((OPEN, OPEN, OPEN), OPEN),
]
WHERE: list[tuple[Infos, rx.StructInfo]] = [
    ((tensor(2, 3, dtype="bool"), tensor(3), tensor(2, 1)), tensor(2, 3)),
    ((tensor(2, dtype="bool"), OPEN, tensor(2)), OPEN),
    ((tensor(N, dtype="bool"), tensor(M), tensor(1)), rank(1)),
    ((rank(1, dtype="bool"), tensor(2), tensor(2)), rank(1)),
    ((tensor(2, 3, dtype="bool"), UNTYPED, tensor(3)), UNTYPED),
]


def test_operators_on_three_tensors() -> None:
    for sinfos, expected in FMA:
        check(op.ewise_fma, sinfos, expected)
    for sinfos, expected in WHERE:
        check(op.where, sinfos, expected)
    refused(op.ewise_fma, (tensor(2), tensor(3), tensor(2)), "differ in dimension 0: 2 in number 1")
    refused(op.ewise_fma, (tensor(2), tensor(N), tensor(2)), "cannot be proved")
    refused(op.ewise_fma, (tensor(2), tensor(2, 2), tensor(2)), "one rank, found 1 and 2")
    refused(op.ewise_fma, (tensor(2), tensor(2, dtype="int8"), tensor(2)), "one datatype")
    refused(op.where, (tensor(2), tensor(2), tensor(2)), "condition holds Booleans, found")
    refused(op.where, (UNKNOWN, tensor(2), tensor(2)), "condition holds Booleans, found")
    flags = tensor(4, dtype="bool")
    refused(
        op.where,
        (flags, tensor(2), tensor(2)),
        "dimension 0 of condition (4,) is 4, dimension 0 of x1 (2,) is 2",
    )
    refused(op.where, (flags, tensor(), tensor(3)), "condition and x2 do not broadcast")
    refused(op.where, (rank(2, "bool"), tensor(3), tensor(4)), "x1 and x2 do not broadcast")
    refused(op.where, (tensor(3, 1, dtype="bool"), tensor(N, 3), tensor(3, 4)), "x1 and x2 do not")


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


MATMUL: list[tuple[Infos, rx.StructInfo]] = [
    ((tensor(2, 3), tensor(3, 4)), tensor(2, 4)),
    ((tensor(3), tensor(3, 4)), tensor(4)),
    ((tensor(2, 3), tensor(3)), tensor(2)),
    ((tensor(3), tensor(3)), tensor()),
    ((tensor(N, 2, 3), tensor(3, M)), tensor(N, 2, M)),
    ((tensor(5, 1, 2, 3), tensor(6, 3, 4)), tensor(5, 6, 2, 4)),
    ((tensor(N, 2, 3), tensor(M, 3, 4)), rank(3)),
    ((tensor(2, N), tensor(M, 4)), tensor(2, 4)),
    ((rank(3), tensor(3, 4)), rank(3)),
    ((rank(1), rank(1)), rank(0)),
    ((OPEN, tensor(3, 4)), OPEN),
    ((rx.TensorStructInfo((2, 3), VOID), tensor(3, 4)), rx.TensorStructInfo((2, 4), VOID)),  # type: ignore[arg-type]
]


def test_matmul_and_linear() -> None:
    for sinfos, expected in MATMUL:
        check(op.matmul, sinfos, expected)
    wide = tensor(2, 4, dtype="float32")
    narrow = tensor(2, 3, dtype="float16"), tensor(3, 4, dtype="float16")
    check(lambda a, b: op.matmul(a, b, out_dtype="float32"), narrow, wide)
    check(op.matmul, (tensor(2, 3), tensor(3, 4)), wide)
    refused(op.matmul, (tensor(), tensor(3)), "x1 has rank 1 at least")
    refused(op.matmul, (tensor(2, 3), tensor(4, 5)), "the last dimension of x1 is 3, but x2 is")
    refused(op.matmul, (tensor(2, 1, 3), tensor(4, 5, 1)), "is 3")
    refused(op.matmul, (tensor(2, 2, 3), tensor(4, 3, 1)), "the leading axes of x1 and those of x2")
    refused(op.matmul, (tensor(2, 3), tensor(3, 4, dtype="int8")), "have one datatype")
    x, w, b = (
        rx.Var(n, i) for n, i in zip("xwb", (tensor(N, 3), tensor(4, 3), tensor(4)), strict=True)
    )
    assert op.linear(x, w, b).struct_info == tensor(N, 4)
    assert op.linear(x, w).struct_info == tensor(N, 4)


Shaped = list[tuple[Made, rx.StructInfo, rx.StructInfo]]
MANIPULATED: Shaped = [
    (lambda x: op.broadcast_to(x, (4, 2, 3)), tensor(2, 1), tensor(4, 2, 3)),
    (lambda x: op.broadcast_to(x, (M, N)), tensor(N), tensor(M, N)),
    (lambda x: op.broadcast_to(x, (M, 3)), rank(1), tensor(M, 3)),
    (lambda x: op.broadcast_to(x, S), tensor(3), BY_SHAPE),
    (lambda x: op.broadcast_to(x, (3,)), UNKNOWN, rx.TensorStructInfo((3,), VOID)),  # type: ignore[arg-type]
    (lambda x: op.reshape(x, (6,)), tensor(2, 3), tensor(6)),
    (lambda x: op.reshape(x, (-1, 2)), tensor(2, N), tensor(N, 2)),
    (lambda x: op.reshape(x, (0, -1)), tensor(N, 3, 4), tensor(N, 12)),
    (lambda x: op.reshape(x, [N * 4]), tensor(N, 4), tensor(N * 4)),
    (lambda x: op.reshape(x, rx.ShapeExpr((-1, 2))), tensor(2, 3), tensor(3, 2)),
    (lambda x: op.reshape(x, (1, 0, -1)), LISTED, tensor(1, 3, 2)),
    (lambda x: op.reshape(x, (N, M)), tensor(6), tensor(N, M)),
    (lambda x: op.reshape(x, (2, 3)), OPEN, tensor(2, 3)),
    (lambda x: op.reshape(x, S), tensor(6), BY_SHAPE),
    (op.flatten, tensor(2, N, 3), tensor(2 * N * 3)),
    (op.flatten, tensor(), tensor(1)),
    (op.flatten, tensor(N), tensor(N)),
    (op.flatten, rank(3), rank(1)),
    (op.flatten, OPEN, rank(1)),
    (lambda x: op.expand_dims(x, 0), tensor(2, N), tensor(1, 2, N)),
    (lambda x: op.expand_dims(x, [-1, 1]), tensor(2, N), tensor(2, 1, N, 1)),
    (lambda x: op.expand_dims(x, 1), rank(2), rank(3)),
    (lambda x: op.expand_dims(x, 7), OPEN, OPEN),
    (lambda x: op.expand_dims(x, []), BY_SHAPE, BY_SHAPE),
    (lambda x: op.squeeze(x, [0, -1]), tensor(1, N, 1), tensor(N)),
    (lambda x: op.squeeze(x, 1), tensor(1, N), tensor(1)),
    (op.squeeze, tensor(1, 3, 1), tensor(3)),
    (op.squeeze, tensor(2, 3), tensor(2, 3)),
    (op.squeeze, tensor(1, N), OPEN),
    (op.squeeze, rank(2), OPEN),
    (lambda x: op.squeeze(x, 0), BY_SHAPE, rank(1)),
    (lambda x: op.squeeze(x, []), OPEN, OPEN),
    (op.squeeze, rx.TensorStructInfo(rx.Var("s1", rx.ShapeStructInfo((1, 3))), "float32"), OPEN),
    (op.permute_dims, tensor(2, N, 4), tensor(4, N, 2)),
    (lambda x: op.permute_dims(x, [1, 0]), tensor(2, N), tensor(N, 2)),
    (lambda x: op.permute_dims(x, [0, -1]), BY_SHAPE, BY_SHAPE),
    (lambda x: op.permute_dims(x, [1, 0]), BY_SHAPE, rank(2)),
    (op.permute_dims, OPEN, OPEN),
    (lambda x: op.split(x, 3), tensor(6, N), tuple_of(*[tensor(2, N)] * 3)),
    (lambda x: op.split(x, 3, 1), tensor(2, 7), tuple_of(tensor(2, 3), tensor(2, 3), tensor(2, 1))),
    (lambda x: op.split(x, 2), tensor(N * 2), tuple_of(tensor(N), tensor(N))),
    (
        lambda x: op.split(x, [2, 5], -1),
        tensor(3, 8),
        tuple_of(tensor(3, 2), tensor(3, 3), tensor(3, 3)),
    ),
    (lambda x: op.split(x, [2], 0), rank(2), tuple_of(rank(2), rank(2))),
    (
        lambda x: op.split(x, [-2, 2, 6, 4, 12]),
        tensor(10),
        tuple_of(*[tensor(k) for k in (0, 2, 4, 0, 6, 0)]),
    ),
    (
        lambda x: op.split(x, [2, 5]),
        tensor(N),
        tuple_of(
            tensor(ops.minimum(2, N)),
            tensor(ops.minimum(5, N) - ops.minimum(2, N)),
            tensor(ops.maximum(N - 5, 0)),
        ),
    ),
    (lambda x: op.split(x, tir.IntImm("int64", 2)), tensor(6), tuple_of(tensor(3), tensor(3))),
    (lambda x: op.split(x, 2, 0), OPEN, tuple_of(OPEN, OPEN)),
    (op.nn.batch_flatten, tensor(N, 3, M), tensor(N, 3 * M)),
    (op.nn.batch_flatten, OPEN, rank(2)),
    (op.size, tensor(N, 3), tensor(dtype="int64")),
    (op.size, UNKNOWN, tensor(dtype="int64")),
    (lambda x: op.split(x, 1), tensor(2), tensor(2)),
    (lambda x: op.split(x, []), tensor(2), tensor(2)),
    (lambda x: op.astype(x, "int8"), tensor(2, N), tensor(2, N, dtype="int8")),
    (lambda x: op.astype(x, "float32"), UNKNOWN, OPEN),
    (lambda x: op.clip(x, 0, 1), BY_SHAPE, BY_SHAPE),
]


def test_manipulation() -> None:
    for make, sinfo, expected in MANIPULATED:
        check(make, (sinfo,), expected)


REFUSED_SHAPES: list[tuple[Made, rx.StructInfo, str]] = [
    (lambda x: op.broadcast_to(x, (3,)), tensor(2, 3), "x of rank 2 does not broadcast to"),
    (lambda x: op.broadcast_to(x, (4, 2)), tensor(3), "dimension 0 of x is 3"),
    (lambda x: op.reshape(x, (4, 2)), tensor(2, 3), "x has 6 elements, R.Shape([4, 2]) has 8"),
    (lambda x: op.reshape(x, (-1, 4)), tensor(2, 3), "x has 6 elements"),
    (lambda x: op.expand_dims(x, 3), tensor(2, 3), "axis 3 is out of range for rank 3"),
    (lambda x: op.expand_dims(x, [0, 0]), tensor(2, 3), "axis 0 occurs twice"),
    (op.nn.batch_flatten, tensor(3), "data has rank 2 or more, found R.Tensor((3,)"),
    (lambda x: op.squeeze(x, 1), tensor(1, 3), "axis 1 of x has size 3, not 1"),
    (lambda x: op.squeeze(x, 2), rank(2), "axis 2 is out of range for rank 2"),
    (lambda x: op.permute_dims(x, [0]), tensor(2, 3), "axes [0] do not permute rank 2"),
    (lambda x: op.permute_dims(x, [1, 1]), tensor(2, 3), "axes: 1 occurs twice in [1, 1]"),
    (lambda x: op.reshape(x, (4, 2)), LISTED, "x has 6 elements, R.Shape([4, 2]) has 8"),
    (lambda x: op.split(x, 0), tensor(4), "indices_or_sections is a number of sections above 0"),
    (lambda x: op.split(x, 2, 1), tensor(4), "axis 1 is out of range for rank 1"),
    (lambda x: op.take(x, 0), tensor(2, 3), "without an axis x has rank 1"),
    (lambda x: op.take(x, 0), OPEN, "without an axis x has rank 1"),
    (lambda x: op.take(x, 0, 2), tensor(2, 3), "axis 2 is out of range for rank 2"),
    (lambda x: op.take(x, rx.Var("i", UNKNOWN), 2), tensor(2, 3), "axis 2 is out of range"),
    (lambda x: op.take(x, rx.Var("i", tensor(2)), 0), tensor(2, 3), "indices holds integers"),
    (lambda x: op.nn.softmax(x, 2), tensor(2, 3), "axis 2 is out of range for rank 2"),
    (lambda x: op.nn.log_softmax(x), tensor(2, dtype="int8"), "data holds floats"),
    (lambda x: op.nn.gelu(x), tensor(2, dtype="int8"), "data holds floats"),
    (lambda x: op.nn.leakyrelu(x), tensor(2, dtype="int8"), "data holds floats"),
    (lambda x: op.full_like(x, x), tensor(2), "fill_value has rank 0"),
    (lambda x: op.full((2,), x), OPEN, "fill_value has rank 0"),
    (lambda x: op.concat([x, rx.PrimValue(1)]), tensor(2), "tensors holds tensors, found"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfo", "message"), REFUSED_SHAPES)
def test_what_does_not_fit_is_refused(make: Made, sinfo: rx.StructInfo, message: str) -> None:
    error = refused(make, (sinfo,), message)
    assert error.diagnostic.message.startswith("relax.")


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


JOINED: list[tuple[Infos, int | None, rx.StructInfo]] = [
    ((tensor(2, 3), tensor(4, 3)), 0, tensor(6, 3)),
    ((tensor(N, 3), tensor(N, 3)), 0, tensor(N * 2, 3)),
    ((tensor(N, 3), tensor(M, 3)), -2, tensor(N + M, 3)),
    ((tensor(N, 3), tensor(M, 3)), 1, rank(2)),
    ((tensor(2, 3), rank(2)), 1, rank(2)),
    ((tensor(2, 3), OPEN), 1, rank(2)),
    ((OPEN, OPEN), 1, OPEN),
    ((UNTYPED, tensor(2, 3)), 0, rx.TensorStructInfo((4, 3), VOID)),  # type: ignore[arg-type]
    ((tensor(2), tensor(3)), None, tensor(5)),
    ((BY_SHAPE,), 1, BY_SHAPE),
]
STACKED: list[tuple[Infos, int, rx.StructInfo]] = [
    ((tensor(2, N), tensor(2, N)), 0, tensor(2, 2, N)),
    ((tensor(2, N), tensor(2, N), tensor(2, N)), -1, tensor(2, N, 3)),
    ((tensor(2, N), tensor(2, M)), 1, rank(3)),
    ((tensor(2), rank(1)), 1, rank(2)),
    ((OPEN, OPEN), 1, OPEN),
]


def test_joining() -> None:
    for sinfos, axis, expected in JOINED:
        check(lambda *x, a=axis: op.concat(x, a), sinfos, expected)
    for sinfos, place, expected in STACKED:
        check(lambda *x, a=place: op.stack(x, a), sinfos, expected)
    for join in (op.concat, op.stack):
        refused(lambda j=join: j([]), (), "holds one tensor at least")
        refused(lambda *x, j=join: j(x), (tensor(2), tensor(2, 2)), "one rank, found 1 and 2")
        refused(lambda *x, j=join: j(x), (tensor(2), tensor(2, dtype="int8")), "one datatype")
        refused(lambda *x, j=join: j(x, 3), (tensor(2), tensor(2)), "axis 3 is out of range")
    refused(lambda *x: op.concat(x, 1), (tensor(2, 3), tensor(4, 3)), "differ in dimension 0: 2 in")
    unlike = rank(2), tensor(2, 3), tensor(2, 4)
    refused(
        lambda *x: op.stack(x), unlike, "differ in dimension 1: 3 in number 2 of shape (2, 3), 4 in"
    )
    flat = lambda *x: op.concat(x, None)  # noqa: E731
    check(flat, (tensor(N), tensor(3)), tensor(N + 3))
    check(flat, (rank(1), OPEN), rank(1))
    check(flat, (OPEN,), OPEN)
    refused(flat, (tensor(2, 3), rank(2)), "without an axis, the tensors have rank 1, found rank 2")
    refused(flat, (tensor(),), "the tensors have rank 1, found rank 0")
    refused(flat, (tensor(2), tensor(2, dtype="int32")), "tensors")


TAKEN: list[tuple[Infos, int | None, rx.StructInfo]] = [
    ((tensor(N, 4), tensor(2, 3, dtype="int32")), 0, tensor(2, 3, 4)),
    ((tensor(N, 4), tensor(M, dtype="int64")), -1, tensor(N, M)),
    ((tensor(5), tensor(2, dtype="int64")), None, tensor(2)),
    ((tensor(5, 6), prim(dtype="int64")), 1, tensor(5)),
    ((tensor(5, 6), tensor(dtype="uint8")), 0, tensor(6)),
    ((rank(2), tensor(2, 3, dtype="int64")), 0, rank(3)),
    ((tensor(2, 3), rank(1, dtype="int64")), 0, rank(2)),
    ((OPEN, tensor(2, dtype="int64")), 0, OPEN),
    ((tensor(2, 3), UNKNOWN), 0, OPEN),
]


def test_take() -> None:
    for sinfos, axis, expected in TAKEN:
        check(lambda x, i, a=axis: op.take(x, i, a), sinfos, expected)
    nan = lambda x, i: op.take(x, i, 0, "nan")  # noqa: E731
    check(nan, (tensor(N, 4), tensor(2, dtype="int64")), tensor(2, 4))
    refused(nan, (tensor(4, dtype="int8"), tensor(2, dtype="int64")), "x holds floats")
    with pytest.raises(MisuseError, match=r"'wrap' or 'clip' or 'nan', found 'far'"):
        op.take(rx.Var("x", tensor(2)), 0, mode="far")


SLICED: list[tuple[tuple[object, ...], rx.StructInfo, rx.StructInfo]] = [
    (([0], [1], [4]), tensor(9, N), tensor(3, N)),
    (([1], [1], [N]), tensor(9, N), tensor(9, tir.Max(N - tir.Min(tir.IntImm("int64", 1), N), 0))),
    (([1], [0], [N]), tensor(9, N), tensor(9, N)),
    (([1], [0], [M], [1], True), tensor(9, N), tensor(9, M)),
    (([0], [2], [M], [1], True), tensor(N), tensor(M - 2)),
    (([0, -1], [-3, 8], [9, 0], [1, -2]), tensor(9, 9), tensor(3, 4)),
    (([0], [5], [2]), tensor(9), tensor(0)),
    (([0], [0], [4]), rank(2), rank(2)),
    (([0], [0], [4]), OPEN, OPEN),
    (([0], [1], [3]), tensor(N), tensor(ops.minimum(3, N) - ops.minimum(1, N))),
    (
        ([0], [1], [8], [3]),
        tensor(N),
        tensor(ops.floordiv(ops.minimum(8, N) + 2 - ops.minimum(1, N), 3)),
    ),
    (([1], [0], [2]), LISTED, tensor(2, 2)),
    (([], [], []), LISTED, tensor(2, 3)),
    (([], [], []), BY_SHAPE, BY_SHAPE),
]


def test_strided_slice() -> None:
    for args, sinfo, expected in SLICED:
        found = derive(lambda x, a=args: op.strided_slice(x, *a), (sinfo,))
        assert isinstance(found, rx.TensorStructInfo)
        assert isinstance(expected, rx.TensorStructInfo)
        assert found.ndim == expected.ndim
        if len(args) != 3 or args[1] != [1] or args[2] != [N]:
            assert found == expected
    scalars = tuple_of(prim(), prim())
    check(
        lambda x, b, e: op.strided_slice(x, [0, 1], b, e), (tensor(9, 9), scalars, scalars), rank(2)
    )
    check(lambda x, b: op.strided_slice(x, [0], b, b), (tensor(9, 9), Object), rank(2))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([0], [1, 2], [3]), "are as many, found 1 axes, 2 begin, 1 end"),
        (([2], [0], [1]), "axes: 2 is out of range for rank 2"),
        (([0, -2], [0, 0], [1, 1]), "axes: -2 occurs twice"),
        (([0], [0], [1], [0]), "strides are other than 0"),
        (([0], [0.5], [1]), "begin holds int64 scalars, found"),
    ],
)
def test_slices_that_mean_nothing_are_refused(args: tuple[object, ...], message: str) -> None:
    refused(lambda x: op.strided_slice(x, *args), (tensor(4, 4),), message)


def test_creation() -> None:
    n = rx.PrimValue(N)
    check(lambda: op.zeros((2, N), "int8"), (), tensor(2, N, dtype="int8"))
    check(lambda: op.ones(S, "float32"), (), BY_SHAPE)
    check(lambda: op.full((N,), 2.5), (), tensor(N))
    check(lambda: op.full((N,), 2.5, "int8"), (), tensor(N, dtype="int8"))
    check(lambda v: op.full((2,), v), (tensor(dtype="int64"),), tensor(2, dtype="int64"))
    for like in (op.zeros_like, op.ones_like, lambda x, dtype=None: op.full_like(x, 1, dtype)):
        for sinfo in ANY_INFO:
            check(like, (sinfo,), sinfo)
        check(lambda x, f=like: f(x, "int8"), (tensor(2, N),), tensor(2, N, dtype="int8"))
    check(lambda: op.arange(5), (), tensor(5, dtype="int64"))
    check(lambda: op.arange(1, 10, 3), (), tensor(3, dtype="int64"))
    check(lambda: op.arange(0, 1, 0.3), (), tensor(4))
    check(lambda: op.arange(n), (), tensor(N, dtype="int64"))
    between = ops.floordiv(M + 1 - N, 2)
    check(lambda: op.arange(n, rx.PrimValue(M), 2), (), tensor(between, dtype="int64"))
    check(lambda: op.arange(2, n, 1, "float32"), (), tensor(N - 2))
    check(op.arange, (prim(),), rank(1, dtype="int64"))
    refused(lambda: op.arange(0, 5, 0), (), "step is other than 0")
    for number in (float("nan"), float("inf")):
        refused(lambda v=number: op.arange(0, v), (), "start, end and step are finite, found")
    refused(lambda: op.zeros((2,), ""), (), "a tensor is made in a datatype")
    refused(lambda x: op.zeros(x, "int8"), (tensor(2),), "shape is a shape, found")
    with pytest.raises(MisuseError, match="end is a number, found 'x'"):
        op.arange(0, "x")


NORMALISED: list[tuple[Infos, rx.StructInfo]] = [
    ((tensor(N, 4), tensor(4), tensor(4)), tensor(N, 4)),
    ((tensor(N, 4), tensor(M), tensor(4)), rank(2)),
    ((rank(2), tensor(4), tensor(4)), rank(2)),
    ((OPEN, tensor(4), tensor(4)), OPEN),
    ((tensor(N, 4, dtype=""), tensor(4), tensor(4)), tensor(N, 4, dtype="")),
    ((tensor(N, 4), tensor(4, dtype=""), tensor(4, dtype="")), tensor(N, 4)),
]


def test_networks() -> None:
    for name in ("relu", "gelu", "gelu_tanh", "silu", "leakyrelu", "softmax", "log_softmax"):
        for sinfo in ANY_INFO:
            check(getattr(op.nn, name), (sinfo,), sinfo)
    for sinfos, expected in NORMALISED:
        check(lambda *x: op.nn.layer_norm(*x, axes=[-1]), sinfos, expected)
        check(op.nn.rms_norm, sinfos[:2], expected)
    x, four = tensor(N, 4), tensor(4)
    layer: Made = lambda *x: op.nn.layer_norm(*x, axes=[-1])  # noqa: E731
    refused(
        layer, (x, tensor(5), four), "dimension 0 of gamma (5,) is 5, axis 1 of data (n, 4) is 4"
    )
    refused(layer, (x, four, tensor(2, 2)), "beta has rank 1, as many as axes")
    refused(layer, (x, four, tensor(4, dtype="float16")), "beta has the datatype of data")
    refused(op.nn.rms_norm, (tensor(4, dtype="int8"), tensor(4, dtype="int8")), "holds floats")
    refused(lambda *x: op.nn.layer_norm(*x, axes=[2]), (x, four, four), "axes: 2 is out of range")


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


ALLOCATED: list[tuple[Made, rx.StructInfo, rx.StructInfo]] = [
    (lambda s: op.vm.alloc_tensor(s, 0, (4, 5), "float32"), OPEN, tensor(4, 5)),
    (lambda s: op.vm.alloc_tensor(s, 0, S, "float32"), Object, rank(2)),
    (lambda s: op.memory.alloc_tensor(s, 0, S, "float32"), OPEN, BY_SHAPE),
]


def test_tensors_in_storage() -> None:
    for make, sinfo, expected in ALLOCATED:
        check(make, (sinfo,), expected)


VIEWED: list[tuple[Made, rx.StructInfo, str]] = [
    (lambda x: op.memory.view(x, (17,)), rx.TensorStructInfo((16,), VOID), "a view of 17 elements"),  # type: ignore[arg-type]
    (lambda x: op.memory.view(x, (N + 1,)), rx.TensorStructInfo((N,), VOID), "of n + 1 elements"),  # type: ignore[arg-type]
    (lambda x: op.memory.view(x, (ops.floordiv(N, 4) + 1, 4)), tensor(N), "leaves the tensor"),
    (lambda x: op.memory.view(x, dtype=""), OPEN, "a tensor in memory has a datatype, found none"),
    (lambda x: op.memory.view(x, dtype="float16"), tensor(16, dtype="int8"), "a view of 32 bytes"),
    (lambda x: op.memory.view(x, relative_byte_offset=16), UNKNOWN, "a view of the whole tensor"),
]


@pytest.mark.parametrize(("make", "sinfo", "message"), VIEWED)
def test_views_outside_the_tensor_are_refused(
    make: Made, sinfo: rx.StructInfo, message: str
) -> None:
    refused(make, (sinfo,), message)


def test_views_that_may_fit_are_taken() -> None:
    rounded = ops.floordiv(N + 3, 4)
    check(lambda x: op.memory.view(x, (rounded, 4)), (tensor(N),), tensor(rounded, 4))
    check(
        lambda x: op.memory.view(x, (8,), "float16"),
        (tensor(16, dtype="uint8"),),
        tensor(8, dtype="float16"),
    )
    check(lambda x: op.memory.view(x, relative_byte_offset=0), (UNKNOWN,), UNKNOWN)
