"""The sign and the bits of a NaN in a kernel are those that the program has."""

import math
import struct

import numpy as np
import pytest

import relaxpy
from relaxpy.ir import load_json, save_json, structural_equal, structural_hash
from relaxpy.script import from_source, tir as T

BITS = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123, 0xFFFC0F0000000001]
TEXT = """
@T.prim_func
def main(B: T.Buffer((1,), "{integer}")):
    B[0] = T.reinterpret("{integer}", T.{dtype}(nan))
"""


def nan(bits: int) -> float:
    value: float
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    assert math.isnan(value)
    return value


def kernel(bits: int, dtype: str = "float64") -> relaxpy.tir.PrimFunc:
    text = TEXT.format(dtype=dtype, integer=dtype.replace("float", "int"))
    return from_source(text, {"T": T, "nan": nan(bits)})  # type: ignore[return-value]


def found(func: relaxpy.tir.PrimFunc, target: str, dtype: str) -> int:
    out = np.zeros(1, dtype.replace("float", "int"))
    relaxpy.compile(func, target)["main"](out)
    return int(out.view(dtype.replace("float", "uint"))[0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.usefixtures("lowered")
def test_kernels_have_the_bits_of_their_literals(target: str, dtype: str) -> None:
    """One after the other with the same cache on disk, in which their keys differ."""
    for bits in BITS * 2:
        number = np.array([bits], np.uint64).view("float64").astype(dtype)
        expected = number.view(dtype.replace("float", "uint"))[0]
        assert found(kernel(bits, dtype), target, dtype) == expected


def test_saved_kernels_keep_them_and_differ() -> None:
    kernels = [kernel(bits) for bits in BITS]
    texts = [save_json(func) for func in kernels]
    assert len({*texts}) == len(texts)
    for func, bits, text in zip(kernels, BITS, texts, strict=True):
        again = load_json(text)
        assert structural_equal(again, func)
        assert structural_hash(again) == structural_hash(func)
        assert found(again, "reference", "float64") == bits
        assert save_json(again) == text
        assert [structural_equal(again, other) for other in kernels] == [
            other is func for other in kernels
        ]


def test_nans_of_files_of_earlier_versions_are_read() -> None:
    text = save_json(kernel(BITS[0]))
    assert '{"float":"nan"}' in text
    assert found(load_json(text), "reference", "float64") == BITS[0]


@pytest.mark.parametrize(
    "value", ["nan:", "nan:zz", "nan:7ff0000000000000", "nan:1", "nan:" + "f" * 17]
)
def test_what_is_no_nan_is_refused(value: str) -> None:
    text = save_json(kernel(BITS[0])).replace('{"float":"nan"}', f'{{"float":"{value}"}}')
    with pytest.raises(relaxpy.errors.RelaxpyError):
        load_json(text)
