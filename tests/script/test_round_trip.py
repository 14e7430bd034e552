"""Kernels read back as they were printed: generated ones go print, parse, structural equality."""

import numpy as np
from hypothesis import given, settings

from relaxpy import compile
from relaxpy.ir import PointerType, PrimType
from relaxpy.script import from_source
from relaxpy.tir import Allocate, Buffer, BufferStore, DeclBuffer, FloatImm, PrimFunc, Var
from tests.fuzz.kernel_nodes import kernels
from tests.script.round_trips import round_trip


@settings(max_examples=150)
@given(kernels())
def test_kernels_read_back(func: PrimFunc):
    round_trip(func)


def test_a_block_may_allocate_by_a_variable_of_a_let_around_it() -> None:
    func = from_source("""
@T.prim_func
def f(A: T.Buffer((4,), "float32"), n: T.int32):
    m: T.int32 = n * 2
    for i in range(2):
        with T.block("b"):
            vi = T.axis.spatial(2, i)
            k: T.int32 = m + 1
            B = T.alloc_buffer((m, k), "float32")
            B[0, 0] = A[vi]
            A[vi] = B[0, 0] + T.float32(1)
""")
    assert "T.alloc_buffer((m, m + 1))" in func.script()
    round_trip(func)
    for target in ("numpy", "native", "reference"):
        data = np.arange(4, dtype="float32")
        compile(func, target=target)["f"](data, 3)
        assert data.tolist() == [1, 2, 2, 3]


def test_memory_of_no_scope_is_printed_as_that_of_global_scope() -> None:
    memory = Var("data", PointerType(PrimType("float32")))
    buffer = Buffer(memory, "float32", (4,), name="B")
    store = DeclBuffer(buffer, BufferStore(buffer, FloatImm("float32", 0.0), [0]))
    func = PrimFunc([], Allocate(memory, "float32", [4], True, store))
    assert "B = T.decl_buffer((4,))" in func.script()
    round_trip(func)
