from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy.errors import MisuseError, RelaxpyError, RuntimeCheckError
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    PrimFuncValue,
    ShapeTuple,
    Value,
    as_tensor,
    category_of,
    describe,
    empty,
    from_packed,
    prim_dtype,
    prim_value,
    scalar_of,
    to_value,
)
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source

F32 = rx.TensorStructInfo((), "float32")
UNIT_FUNC = rx.FuncStructInfo((), rx.TupleStructInfo(()))


class Dlpack:
    """An array of another library that speaks DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnlyArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.array


class OnDevice(Dlpack):
    def __dlpack__(self, **options: object) -> object:
        raise BufferError("the array is on a device")


@pytest.mark.rule(
    "VAL-1", "VAL-8", "VAL-10", "VAL-11", "VAL-15", "VAL-16", "VAL-17", "VAL-9", "VAL-3", "VAL-5"
)
@pytest.mark.parametrize(
    ("value", "category"),
    [
        (np.zeros((2, 3), "float32"), Category.TENSOR),
        (np.zeros((), "bool"), Category.TENSOR),
        (np.zeros(2, ml_dtypes.bfloat16), Category.TENSOR),
        (np.zeros(2, ml_dtypes.float8_e4m3fn), Category.TENSOR),
        (np.zeros(2, "complex64"), Category.OBJECT),
        (np.array(["a"]), Category.OBJECT),
        (np.array([None]), Category.OBJECT),
        ((), Category.TUPLE),
        (((1,), None), Category.TUPLE),
        (ShapeTuple((2, 3)), Category.SHAPE),
        (3, Category.PRIM),
        (True, Category.PRIM),
        (0.5, Category.PRIM),
        (np.float16(1), Category.PRIM),
        (np.bool_(True), Category.PRIM),
        (ml_dtypes.bfloat16(1), Category.PRIM),
        (np.complex64(1), Category.OBJECT),
        (Closure(lambda: (), UNIT_FUNC), Category.CLOSURE),
        (PrimFuncValue(lambda: (), UNIT_FUNC), Category.PRIM_FUNC),
        (len, Category.PACKED_FUNC),
        ("text", Category.OBJECT),
        (DataType("float32"), Category.OBJECT),
        (None, Category.OBJECT),
        ([1, 2], Category.OBJECT),
    ],
)
def test_every_value_has_one_category(value: Value, category: Category) -> None:
    assert category_of(value) is category
    assert isinstance(describe(value), str)


@pytest.mark.rule("VAL-8")
def test_a_shape_is_an_immutable_tuple_of_integers() -> None:
    shape = ShapeTuple([2, np.int32(3)])
    assert shape == (2, 3)
    assert all(type(size) is int for size in shape)
    assert repr(shape) == "ShapeTuple([2, 3])"
    assert hash(shape) == hash((2, 3))


@pytest.mark.rule("VAL-8")
@pytest.mark.parametrize("member", [1.0, "2", True, None, np.float32(1)])
def test_a_shape_of_anything_else_is_refused(member: object) -> None:
    with pytest.raises(MisuseError, match="a shape holds integers") as caught:
        ShapeTuple([2, member])  # type: ignore[list-item]
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1, "int64"), (True, "bool"), (1.0, "float64"), (np.int8(1), "int8"), (np.bool_(1), "bool")],
)
def test_scalars_have_datatypes(value: Value, dtype: str) -> None:
    assert prim_dtype(value) == dtype


@given(st.integers(-(2**70), 2**70), st.sampled_from(["int8", "uint8", "int32", "int64", "uint64"]))
def test_integers_become_prim_values_only_if_they_fit(value: int, dtype: str) -> None:
    made = scalar_of(value, DataType(dtype))
    limits = np.iinfo(dtype)
    if limits.min <= value <= limits.max:
        assert made == value
        assert prim_dtype(made) == dtype
    else:
        assert made is None


@given(st.floats(width=64), st.sampled_from(["float16", "float32", "float64", "bfloat16"]))
def test_floats_of_numpy_become_prim_values_only_if_nothing_is_lost(
    value: float, dtype: str
) -> None:
    made = scalar_of(np.float64(value), DataType(dtype))
    with np.errstate(all="ignore"):
        rounded = float(DataType(dtype).numpy().type(value))
    same = rounded == value or (value != value)
    assert (made is not None) is same
    if same:
        assert prim_dtype(made) == dtype
    ours = scalar_of(value, DataType(dtype))
    if same or np.isfinite(rounded):
        assert prim_dtype(ours) == dtype
        np.testing.assert_equal(float(ours), rounded)
    else:
        assert ours is None


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "int64"), (1, "bool"), (2.0, "int64"), (2**53 + 1, "float64"), (10**400, "float32")],
)
def test_a_scalar_of_another_kind_is_not_a_prim_value(value: Value, dtype: str) -> None:
    assert scalar_of(value, DataType(dtype)) is None


def test_prim_values_are_python_scalars_where_there_are_such() -> None:
    assert type(prim_value(np.int64(3), DataType("int64"))) is int
    assert type(prim_value(np.float32(3), DataType("float64"))) is float
    assert type(prim_value(3, DataType("int32"))) is np.int32


@pytest.mark.parametrize(
    "sinfo", [None, rx.ObjectStructInfo(), rx.PrimStructInfo("int64"), rx.TensorStructInfo((), "")]
)
def test_an_integer_over_64_bits_is_not_a_value(sinfo: rx.StructInfo | None) -> None:
    with pytest.raises(RuntimeCheckError, match=f"the integer {2**70} needs more than 64 bits"):
        to_value(2**70, sinfo)
    assert to_value(2**63, rx.PrimStructInfo("uint64")) == np.uint64(2**63)


@pytest.mark.parametrize("wrap", [Dlpack, OnlyArray])
def test_foreign_arrays_are_taken_without_a_copy(wrap: type) -> None:
    array = np.arange(6, dtype="float32")
    taken = to_value(wrap(array), rx.TensorStructInfo((6,), "float32"))
    assert type(taken) is np.ndarray
    assert np.shares_memory(taken, array)


def test_a_subclass_of_ndarray_becomes_a_plain_array_over_the_same_memory() -> None:
    class Sub(np.ndarray):
        pass

    array = np.arange(4.0).view(Sub)
    taken = to_value(array, rx.TensorStructInfo((4,), "float64"))
    assert type(taken) is np.ndarray
    assert np.shares_memory(taken, array)


def test_an_array_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RuntimeCheckError, match="on a device"):
        as_tensor(OnDevice(np.zeros(2)))


@pytest.mark.rule("VAL-13")
def test_opaque_objects_pass_unchanged() -> None:
    opaque = object()
    assert to_value(opaque, None) is opaque
    assert to_value(opaque, rx.ObjectStructInfo()) is opaque
    text = [1, 2]
    assert from_packed(text, ()) is text

    class Proxy:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    proxy = Proxy()
    assert from_packed(proxy, ()) is proxy
    assert to_value(proxy, F32) is proxy


def test_scalars_become_tensors_where_a_tensor_is_wanted() -> None:
    made = to_value(2, F32)
    assert made.shape == ()
    assert made.dtype == np.float32
    assert to_value(2, rx.TensorStructInfo(None, "")).dtype == np.int64
    assert to_value(0.5, rx.TensorStructInfo(None, "")).dtype == np.float64
    assert to_value(np.float16(0.5), rx.TensorStructInfo(None, "")).dtype == np.float16
    assert to_value(np.float64(0.1), F32) == 0.1, "not representable: left for the check to refuse"
    assert to_value(1e300, F32) == 1e300, "outside the range, too"


def test_a_float_of_python_has_no_datatype_and_is_rounded() -> None:
    for dtype in ("float32", "float16"):
        expected = np.array(0.1, dtype)
        found = to_value(0.1, rx.TensorStructInfo((), dtype))
        assert (found.dtype, found) == (expected.dtype, expected)
        assert to_value(0.1, rx.PrimStructInfo(dtype)) == expected
    assert np.isinf(to_value(float("inf"), F32))


def test_scalars_become_prim_values_of_the_wanted_datatype() -> None:
    made = to_value(2, rx.PrimStructInfo("int32"))
    assert type(made) is np.int32
    assert type(to_value(np.int32(2), rx.PrimStructInfo("int64"))) is int
    assert to_value(300, rx.PrimStructInfo("int8")) == 300


def test_fields_of_tuples_are_read_by_their_struct_infos() -> None:
    sinfo = rx.TupleStructInfo((F32, rx.PrimStructInfo("int64")))
    tensor, number = to_value([1.0, np.int8(3)], sinfo)
    assert isinstance(tensor, np.ndarray)
    assert type(number) is int


def test_packed_results_are_read_by_the_struct_infos_of_the_call() -> None:
    assert isinstance(from_packed(1.0, (F32,)), np.ndarray)
    assert from_packed(1.0, ()) == 1.0
    made = from_packed((1.0, 2), (F32, rx.PrimStructInfo("int64")))
    assert isinstance(made[0], np.ndarray)
    assert isinstance(from_packed(Dlpack(np.zeros(2)), ()), np.ndarray)


@pytest.mark.rule("VAL-7", "RES-54")
def test_the_struct_info_of_a_closure_has_the_captured_sizes_put_in() -> None:
    n = tir.Var("n", "int64")
    sinfo = rx.FuncStructInfo((rx.TensorStructInfo((n,), "float32"),), rx.ObjectStructInfo())
    closure = Closure(lambda x: x, sinfo, "f", {n: 5})
    expected = rx.TensorStructInfo((5,), "float32")
    assert closure.struct_info == rx.FuncStructInfo((expected,), rx.ObjectStructInfo())


@pytest.mark.rule("FN-11")
def test_a_closure_counts_its_arguments() -> None:
    closure = Closure(lambda: (), UNIT_FUNC, "f")
    assert closure() == ()
    with pytest.raises(RuntimeCheckError, match="'f' takes 0 arguments, found 1"):
        closure(1)


@dataclass
class Opaque:
    name: str


class Mislabelled:
    __name__ = 3

    def __call__(self) -> None:
        pass


def test_descriptions_name_what_was_found() -> None:
    assert describe(np.zeros((2, 3), "float32")) == "a float32 tensor of shape (2, 3)"
    assert describe(np.zeros(2, ">f4")).endswith("with swapped bytes")
    assert describe((1, 2)) == "a tuple of 2 fields"
    assert describe(5) == "the int64 prim value 5"
    assert describe(None) == "the null object (None)"
    assert describe(Opaque("x")) == "an object of class Opaque"
    assert describe(Mislabelled()) == "the packed function 3"


class Level(IntEnum):
    HIGH = 3


def test_subclasses_of_numbers_are_numbers() -> None:
    assert prim_dtype(Level.HIGH) == "int64"
    assert to_value(Level.HIGH, None) is Level.HIGH
    assert type(to_value(Level.HIGH, rx.PrimStructInfo("int32"))) is np.int32
    assert to_value(Level.HIGH, F32).dtype == np.float32
    assert prim_dtype(type("Real", (float,), {})(2)) == "float64"


@pytest.mark.rule("PX-9", "VAL-8")
@pytest.mark.parametrize("size", [2**63, -(2**63) - 1, 1 << 20_000, np.uint64(2**63)], ids=type)
def test_a_shape_of_more_than_64_bits_is_refused(size: int) -> None:
    with pytest.raises(MisuseError, match="a shape holds integers of 64 bits, found"):
        ShapeTuple([size])
    assert ShapeTuple([2**63 - 1, -(2**63)]) == (2**63 - 1, -(2**63))
    with pytest.raises(RuntimeCheckError, match="needs more than 64 bits"):
        to_value(1 << 20_000, None)


@pytest.mark.rule("VAL-1", "VAL-13")
@pytest.mark.parametrize("sinfo", [None, rx.ObjectStructInfo()])
def test_arrays_inside_tuples_become_plain_tensors(sinfo: rx.StructInfo | None) -> None:
    Pair = namedtuple("Pair", "first second")
    unmasked = np.ma.masked_array([1.0, 2.0], [False, False])
    inner, opaque = to_value(Pair((unmasked,), object()), sinfo)
    assert type(inner[0]) is np.ndarray
    assert np.shares_memory(inner[0], unmasked)
    for unchanged in (Pair(np.zeros(2), 3), (1, opaque), (), ((),), ShapeTuple((1,))):
        assert to_value(unchanged, sinfo) is unchanged
    typed = rx.TupleStructInfo((rx.TensorStructInfo(None, "float64"), rx.ObjectStructInfo()))
    assert type(to_value(Pair(unmasked, 1), typed)[0]) is np.ndarray
    with pytest.raises(RuntimeCheckError, match="needs more than 64 bits"):
        to_value(((2**70,),), sinfo)


def test_a_shape_is_made_of_a_list() -> None:
    with pytest.raises(MisuseError, match="list of integers"):
        ShapeTuple(4)  # type: ignore[arg-type]


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])


@pytest.mark.parametrize(
    "use",
    [
        lambda total, same: total(MASKED),
        lambda total, same: same((1, MASKED)),
        lambda total, same: total.bind_params({"x": MASKED}),
        lambda total, same: rx.const(MASKED),
        lambda total, same: rx.const(MASKED, "float32"),
        lambda total, same: rx.Constant(MASKED),
        lambda total, same: op.exp(MASKED),
    ],
)
def test_a_masked_array_is_refused_before_its_mask_is_lost(use: Callable[..., object]) -> None:
    total = from_source("@R.function\ndef f(x: R.Tensor):\n    return R.sum(x)")
    same = from_source("@R.function\ndef f(x: R.Object):\n    return x")
    with pytest.raises(RelaxpyError, match=r"masked elements.*x\.filled\(value\)"):
        use(total, same)
    assert total(np.ma.array([1.0, 2.0])) == 3  # type: ignore[operator]
    assert total(MASKED.filled(0)) == 4  # type: ignore[operator]


@pytest.mark.parametrize(("dtype", "named"), [("int8", "an int8"), ("float32", "a float32")])
def test_an_allocation_that_fails_names_the_tensor(dtype: str, named: str) -> None:
    with pytest.raises(RuntimeCheckError, match=f"cannot allocate {named} tensor of shape"):
        empty((-1,), np.dtype(dtype))
