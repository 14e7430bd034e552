"""Reports of how much memory functions allocate."""

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import ops as op
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.memory_usage import estimate_memory_usage
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.script import from_source
from tests.ir.relax.graphs import size
from tests.ir.relax.sinfos import tensor

PLANNED = """
@R.function(pure=False)
def main(n: R.Shape(["n"])):
    n1 = T.int64()
    a = R.builtin.alloc_tensor(R.shape([2, 4]), R.dtype("float32"), R.prim_value(0))
    b = R.builtin.alloc_tensor(R.shape([n1, 4]), R.dtype("float32"), R.prim_value(0))
    s = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("float32"))
    t = R.vm.alloc_storage(R.shape([2, 2]), R.prim_value(0), R.dtype("int8"))
    c = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([8]), R.dtype("float32"))
    d = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([2, 3]), R.dtype("float16"))
    return d
""".replace("n1", "n")


def test_tensors_and_storages_are_added_up() -> None:
    func = from_source(PLANNED)
    assert isinstance(func, rx.Function)
    assert estimate_memory_usage(func).splitlines() == [
        "main",
        "  without planning: 3 tensors of 76 bytes in all, 1 more of unknown size",
        "  with planning: 2 storages of 36 bytes in all, beside 1 tensor of 32 bytes in all, "
        "1 more of unknown size (89.5% of the bytes)",
    ]


def test_outputs_of_kernels_are_tensors() -> None:
    n = size("n")
    builder = BlockBuilder()
    with builder.function("main", [x := rx.Var("x", tensor(2, 4)), y := rx.Var("y", tensor(n))]):
        parts = builder.emit(op.split(op.nn.relu(x), 2, 1)), builder.emit(op.exp(y))
        builder.emit_func_output(rx.Tuple(parts))
    assert estimate_memory_usage(LegalizeOps()(builder.get())).splitlines() == [
        "main",
        "  without planning: 3 tensors of 64 bytes in all, 1 more of unknown size",
    ]


def test_only_new_outputs_of_calls_in_place_count() -> None:
    x = rx.Var("x", tensor(2))
    call = op.call_tir_inplace(rx.GlobalVar("f"), x, [0, -1], [tensor(2), tensor(3, dtype="int8")])
    report = estimate_memory_usage(rx.Function((x,), call, None))
    assert report.splitlines()[1:] == ["  without planning: 1 tensor of 3 bytes in all"]


def test_kernels_with_gradients_are_kernels() -> None:
    x = rx.Var("x", tensor(2))
    call = op.call_tir_with_grad(rx.GlobalVar("f"), x, tensor(2), "grad")
    report = estimate_memory_usage(rx.Function((x,), call, None))
    assert report.splitlines()[1:] == ["  without planning: 1 tensor of 8 bytes in all"]


def test_an_empty_module_allocates_nothing() -> None:
    assert estimate_memory_usage(IRModule()) == ""


def test_only_programs_are_asked() -> None:
    with pytest.raises(MisuseError, match="expected a module or a Relax function, found int"):
        estimate_memory_usage(3)  # type: ignore[arg-type]
