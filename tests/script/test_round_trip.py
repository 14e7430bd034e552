"""Kernels read back as they were printed: generated ones go print, parse, structural equality."""

from hypothesis import given, settings

from relaxpy.ir.tir.prim_func.function import PrimFunc
from tests.fuzz.kernel_nodes import kernels
from tests.script.round_trips import round_trip


@settings(max_examples=150)
@given(kernels())
def test_kernels_read_back(func: PrimFunc):
    round_trip(func)
