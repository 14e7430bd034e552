"""Copies of kernels with new variables, and the calls of intrinsics that kernels contain."""

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.script import tir as T
from relaxpy.tir.stmt_functor import renew_defs


@T.prim_func
def rows(a: T.handle, b: T.handle) -> None:
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n * 4,), "float32")
    C = T.alloc_buffer((n, 4), "float32")
    for i, j in T.grid(n, 4):
        with T.block("double"):
            vi, vj = T.axis.remap("SS", [i, j])
            part = T.match_buffer(A[vi, vj], (), "float32", elem_offset=T.int64())
            C[vi, vj] = part[()] * T.float32(2)
    for i in range(n * 4):
        with T.block("flat"):
            vi = T.axis.spatial(n * 4, i)
            x: T.float32 = C[vi // 4, vi % 4]
            B[vi] = x + x


@T.prim_func
def memory() -> None:
    A = T.decl_buffer((8,), "float32")
    for i in range(8):
        A[i] = T.float32(1)


def names(func: tir.PrimFunc) -> set[tir.Var | tir.Buffer]:
    return {node for node in walk(func) if isinstance(node, (tir.Var, tir.Buffer))}


@pytest.mark.parametrize("func", [rows, memory])
def test_every_variable_and_buffer_is_new(func: tir.PrimFunc) -> None:
    new = renew_defs(func)
    assert_structural_equal(new, func)
    assert not names(new) & names(func)
    assert {v.name for v in names(new)} == {v.name for v in names(func)}
    assert relaxpy.tir.analysis.verify_well_formed(new)


def test_the_copy_computes_the_same() -> None:
    x, y = np.arange(12, dtype="float32").reshape(3, 4), np.zeros(12, "float32")
    relaxpy.compile(renew_defs(rows))["rows"](x, y)
    np.testing.assert_array_equal(y, x.reshape(12) * 4)


def test_variables_that_are_only_used_stay() -> None:
    n = tir.Var("n", "int32")
    func = tir.PrimFunc((tir.Var("m", "int32"),), tir.Evaluate(n + 1))
    assert n in names(renew_defs(func))


def test_only_kernels_are_renewed() -> None:
    with pytest.raises(MisuseError, match="expected a PrimFunc, found int"):
        renew_defs(3)  # type: ignore[arg-type]


def test_intrinsics_of_hardware_are_functions_of_tir_too() -> None:
    x = tir.Var("x", "handle")
    for module in (tir, tir.op):
        assert module.tvm_struct_get(x, 1, 2, dtype="int32").op.name == "tir.tvm_struct_get"
        assert module.ptx_wait_group(8).op is T.ptx_wait_group(8).op
