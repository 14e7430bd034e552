"""Datatypes: their names, their parts, and which of them Relax allows."""

import copy
import pickle
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay, runtime
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.core.dtype import BOOL, VOID, DataType
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.script import from_source


@pytest.mark.rule("DT-1")
@pytest.mark.parametrize(
    ("text", "family", "bits", "lanes"),
    [
        ("int8", "int", 8, 1),
        ("uint16", "uint", 16, 1),
        ("float64", "float", 64, 1),
        ("handle", "handle", 64, 1),
        ("float32x4", "float", 32, 4),
        ("int40", "int", 40, 1),
        ("bfloat16", "bfloat", 16, 1),
        ("float8_e4m3fn", "float8_e4m3fn", 8, 1),
        ("float4_e2m1fnx2", "float4_e2m1fn", 4, 2),
        ("int32xvscalex4", "int", 32, 4),
    ],
)
def test_a_datatype_has_family_bits_and_lanes(text: str, family: str, bits: int, lanes: int):
    dtype = DataType(text)
    assert (dtype.family, dtype.bits, dtype.lanes) == (family, bits, lanes)
    assert dtype == text


@pytest.mark.rule("DT-1")
@pytest.mark.parametrize(
    "text",
    [
        *("flot32", "int-3", "float8_e9", "complex64", "3", "float32 ", "int\uff13", "int\u00b2"),
        *("float8_e4m3fn8", "int" + "3" * 5000, "int32x" + "3" * 5000),
    ],
)
def test_an_unknown_name_is_refused(text: str):
    with pytest.raises(MisuseError, match="unknown dtype") as caught:
        DataType(text)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


def test_a_close_name_is_suggested():
    with pytest.raises(MisuseError, match="did you mean 'float32'"):
        DataType("flot32")


@pytest.mark.parametrize("value", [[1], 3, PrimType("int8")])
def test_what_names_no_datatype_is_refused(value: object):
    with pytest.raises(MisuseError, match="expected a dtype, found"):
        DataType(value)


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize(
    "text",
    [
        *("int0", "float32x0", "int70000", "float32x70000", "int65536", "float32x65536"),
        *("float8_e4m3x0", "bfloat32", "handle32"),
    ],
)
def test_an_impossible_width_is_refused(text: str):
    with pytest.raises(MisuseError, match="impossible width"):
        DataType(text)


@pytest.mark.rule("DT-8")
def test_the_greatest_width_and_number_of_lanes() -> None:
    dtype = DataType("int65535x65535")
    assert (dtype.bits, dtype.lanes) == (65535, 65535)


@pytest.mark.parametrize("text", ["i1", "u1"])
def test_integers_of_one_bit_are_not_suggested(text: str) -> None:
    with pytest.raises(MisuseError) as caught:
        DataType(text)
    assert caught.value.diagnostic.hint is None


@pytest.mark.parametrize(
    ("text", "full"), [("int", "int32"), ("uint", "uint32"), ("float", "float32")]
)
def test_a_missing_width_is_32_bits(text: str, full: str):
    assert DataType(text) == full


@pytest.mark.rule("DT-2")
def test_vectors_are_not_datatypes_of_relax_values():
    assert DataType("float32").relax_defect is None
    for vector in ("float32x4", "int32xvscalex1", "float8_e4m3x4"):
        assert DataType(vector).relax_defect == "DT-2: vector datatypes are not allowed in Relax"


@pytest.mark.rule("DT-3")
@pytest.mark.parametrize("text", ["", "void", "handle0", "handle0x0"])
def test_void_is_a_handle_without_bits_and_lanes(text: str):
    assert DataType(text) is not None
    assert DataType(text) == VOID == ""
    assert (DataType(text).family, DataType(text).bits, DataType(text).lanes) == ("handle", 0, 0)
    assert DataType(text).relax_defect is None


@pytest.mark.rule("DT-4")
def test_a_64_bit_handle_without_lanes_is_void_and_no_other_handle_is():
    assert DataType("handle64x0") == VOID
    assert DataType("handle").relax_defect == "DT-4: a handle is not a datatype of Relax values"
    assert not DataType("handle").is_void


@pytest.mark.rule("DT-5")
@pytest.mark.parametrize("spelling", ["bool", "uint1", "boolx1", bool, np.bool_, np.dtype("bool")])
def test_bool_is_one_unsigned_bit_however_it_is_spelt(spelling: object):
    dtype = DataType(spelling)
    assert dtype == BOOL == "bool"
    assert (dtype.family, dtype.bits, dtype.lanes) == ("uint", 1, 1)
    assert dtype.is_bool
    assert dtype.is_int


def test_vectors_of_bool_keep_the_plain_name():
    assert BOOL.with_lanes(4) == "uint1x4"
    assert BOOL.with_lanes(4).is_bool
    assert BOOL.with_lanes(4).element == BOOL


@pytest.mark.rule("DT-6")
def test_one_is_true_and_zero_is_false():
    assert ops.const(True).value == 1
    assert ops.const(False).value == 0
    assert bool(tir.IntImm("bool", 1))
    assert not bool(tir.IntImm("bool", 0))
    assert np.array([0, 1]).astype(BOOL.numpy()).tolist() == [False, True]


@pytest.mark.rule("DT-7")
def test_void_in_a_struct_info_is_an_unknown_datatype():
    assert TensorStructInfo((2,), "").dtype.is_void
    assert TensorStructInfo((2,), None).dtype.is_void
    assert not TensorStructInfo((2,), "float32").dtype.is_void


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize(
    "text", ["int1", "int8", "int16", "int32", "int64", "bool", "uint8", "uint64"]
)
def test_relax_integers_have_these_widths(text: str):
    assert DataType(text).relax_defect is None


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize(
    ("text", "allowed"),
    [("int4", "1, 8, 16, 32, 64"), ("uint7", "1, 8, 16, 32, 64"), ("float8", "16, 32, 64")],
)
def test_other_widths_are_not_datatypes_of_relax_values(text: str, allowed: str):
    defect = DataType(text).relax_defect
    assert defect is not None
    assert defect.startswith("DT-8")
    assert defect.endswith(f"comes in {allowed} bits")


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize("text", ["float16", "float32", "float64", "bfloat16", "float8_e5m2"])
def test_relax_floats_have_these_widths_and_further_families_are_allowed(text: str):
    assert DataType(text).relax_defect is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("int8", 1), ("float32x4", 16), ("bool", 1), ("int4x3", 2), ("float64", 8), ("bfloat16", 2)],
)
def test_itemsize_is_bytes_of_all_lanes_rounded_up(text: str, size: int):
    assert DataType(text).itemsize == size


def test_a_scalable_vector_has_no_size():
    with pytest.raises(MisuseError, match="size of float32xvscalex4 is not known"):
        _ = DataType("float32xvscalex4").itemsize
    assert DataType("float32xvscalex1").is_scalable
    assert DataType("float32xvscalex1").element == "float32"
    assert not DataType("float32x4").is_scalable


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("int8", 0),
        ("uint8", 1),
        ("float16", 2),
        ("handle", 3),
        ("bfloat16", 4),
        ("float8_e3m4", 7),
        ("float4_e2m1fn", 17),
    ],
)
def test_type_codes_are_those_of_tvm(text: str, code: int):
    assert DataType(text).type_code == code


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "bfloat16", "int4"]
)
def test_small_formats_are_those_of_ml_dtypes(name: str):
    assert DataType(name).numpy() == np.dtype(getattr(ml_dtypes, name))
    assert DataType(getattr(ml_dtypes, name)) == name


@pytest.mark.parametrize("name", ["int8", "uint64", "float16", "float64", "bool"])
def test_plain_formats_are_those_of_numpy(name: str):
    assert DataType(name).numpy() == np.dtype(name)
    assert DataType(np.dtype(name)) == name
    assert DataType(np.dtype(name).type) == name


def test_a_format_without_an_array_type_says_so():
    with pytest.raises(MisuseError, match="'int40' has no NumPy form"):
        DataType("int40").numpy()


@pytest.mark.rule("DT-2", "DT-4")
@pytest.mark.parametrize("dtype", ["float32x4", "int8x2", "handle", "void"])
@pytest.mark.parametrize(
    "tensor",
    [
        lambda dtype: relax.const(1, dtype),
        lambda dtype: relax.const(np.zeros(4, np.float32), dtype),
        lambda dtype: relay.const(1, dtype),
        lambda dtype: relay.const(np.zeros(4, np.float32), dtype),
        lambda dtype: from_source(f"@R.function\ndef f():\n    return R.const(1, {dtype!r})"),
        lambda dtype: runtime.empty((4,), dtype),
    ],
    ids=["number", "array", "Relay number", "Relay array", "text", "empty"],
)
def test_no_tensor_has_vectors_or_handles_as_elements(tensor: Callable[[str], object], dtype: str):
    with pytest.raises(RelaxpyError, match=f"a tensor has no elements of datatype {dtype}"):
        tensor(dtype)
    assert tensor("int8") is not None


def test_python_classes_name_the_widest_scalars():
    assert DataType(int) == "int64"
    assert DataType(float) == "float64"


@pytest.mark.parametrize("text", ["", "bool", "float32x4", "bfloat16", "handle"])
def test_the_datatype_of_a_datatype_is_itself(text: str):
    assert DataType(text).dtype is DataType(text)


def test_lanes_can_be_changed():
    assert DataType("float32").with_lanes(4) == "float32x4"
    assert DataType("float32x4").with_lanes(1) == "float32"
    assert DataType("float8_e8m0fnu").with_lanes(2) == "float8_e8m0fnux2"
    assert DataType("float8_e8m0fnux2").element == "float8_e8m0fnu"


@pytest.mark.parametrize("text", ["", "bool", "float32x4", "int8xvscalex2"])
def test_a_datatype_cannot_be_changed_and_can_be_copied(text: str):
    dtype = DataType(text)
    with pytest.raises(AttributeError):
        dtype.bits = 3
    with pytest.raises(AttributeError):
        del dtype.bits
    copies = [copy.copy(dtype), copy.deepcopy(dtype)]
    copies += [pickle.loads(pickle.dumps(dtype, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert (type(other), str(other), other.vector) == (DataType, text, dtype.vector)


@pytest.mark.parametrize(
    ("dtype", "name", "code"),
    [
        *(
            ("int8", "INT", 0),
            ("bool", "UINT", 1),
            ("float16", "FLOAT", 2),
            ("handle", "HANDLE", 3),
        ),
        *(("bfloat16", "BFLOAT", 4), ("float8_e3m4", "Float8E3M4", 7)),
        *(("float8_e4m3fn", "Float8E4M3FN", 10), ("float4_e2m1fn", "Float4E2M1FN", 17)),
    ],
)
def test_type_codes_have_names(dtype: str, name: str, code: int):
    assert DataType(dtype).type_code == relaxpy.DataTypeCode[name] == code
