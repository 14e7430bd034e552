"""Struct info of calls on distributed tensors, and the tensors that operators refuse."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RelaxpyError, StructInfoError
from relaxpy.ir import ops as op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.ir.ops.notation import Row, check_known, rows

MESH = DeviceMesh((2, 2), (0, 1, 2, 3))
LINE = DeviceMesh((2,), (0, 1))
N = tir.Var("n", "int64")
Call = Callable[..., rx.Call]


def spread(
    placement: str, *shape: Any, mesh: DeviceMesh = MESH, dtype: str = "float32"
) -> DTensorStructInfo:
    return DTensorStructInfo(
        rx.TensorStructInfo(shape, dtype), mesh, Placement.from_text(placement)
    )


def ranked(placement: str, ndim: int, dtype: str = "float32") -> DTensorStructInfo:
    return DTensorStructInfo(
        rx.TensorStructInfo(dtype=dtype, ndim=ndim), MESH, Placement.from_text(placement)
    )


def placed(placement: str, whole: rx.TensorStructInfo) -> DTensorStructInfo:
    return DTensorStructInfo(whole, MESH, Placement.from_text(placement))


def made(call: Call, *sinfos: rx.StructInfo) -> rx.StructInfo | None:
    return call(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos))).struct_info


INFERRED = """
exp(spread("S[0], R", f32(4, 8))) => spread("S[0], R", f32(4, 8))
exp(spread("S[3], R", f32[...])) => spread("S[3], R", f32[...])
isnan(spread("S[0], S[1]", f32(n, 8))) => spread("S[0], S[1]", b(n, 8))
nn.relu(spread("R, S[1]", f32(4, 8))) => spread("R, S[1]", f32(4, 8))
nn.silu(spread("R, S[1]", f32(4, 8))) => spread("R, S[1]", f32(4, 8))
astype(spread("R, S[1]", f32(4, 8)), "float16") => spread("R, S[1]", f16(4, 8))
clip(spread("R, S[1]", f32(4, 8)), 0, 1) => spread("R, S[1]", f32(4, 8))
ccl.allreduce(spread("S[0], R", f32(4, 8)), "sum") => spread("S[0], R", f32(4, 8))
builtin.stop_lift_params(spread("S[0], R", f32(4, 8))) => spread("S[0], R", f32(4, 8))
add(spread("S[0], R", f32(4, 8)), spread("S[0], R", f32(4, 8))) => spread("S[0], R", f32(4, 8))
add(spread("S[0], R", f32(4, 8)), spread("R, R", f32(4, 8))) => spread("S[0], R", f32(4, 8))
add(spread("S[0], R", f32(4, 8)), spread("R, S[0]", f32(8))) => spread("S[0], S[1]", f32(4, 8))
add(spread("R, S[2]", f32(3, 4, 8)), spread("S[0], R", f32(4, 1)))
    => spread("S[1], S[2]", f32(3, 4, 8))
add(spread("S[0], R", f32(n, 8)), spread("S[0], R", f32(n, 1))) => spread("S[0], R", f32(n, 8))
add(spread("S[0], R", f32(n)), spread("S[0], R", f32(m))) => spread("S[0], R", f32[1])
less(spread("S[0], R", f32(4)), spread("R, R", f32(4))) => spread("S[0], R", b(4))
multiply(spread("S[0], S[1]", f32(4, 8)), spread("S[0], S[1]", f32(4, 8)))
    => spread("S[0], S[1]", f32(4, 8))
ewise_fma(spread("S[0], R", f32(4)), spread("R, R", f32(4)), spread("S[0], R", f32(4)))
    => spread("S[0], R", f32(4))
where(spread("R, R", b(4, 8)), spread("S[0], R", f32(4, 8)), spread("R, S[0]", f32(8)))
    => spread("S[0], S[1]", f32(4, 8))
permute_dims(spread("S[0], S[2]", f32(4, 6, 8))) => spread("S[2], S[0]", f32(8, 6, 4))
permute_dims(spread("S[0], R", f32(4, 6, 8)), [1, 2, 0]) => spread("S[2], R", f32(6, 8, 4))
sum(spread("S[0], S[2]", f32(4, 6, 8)), 1) => spread("S[0], S[1]", f32(4, 8))
sum(spread("S[0], S[2]", f32(4, 6, 8)), 0) => spread("R, S[1]", f32(6, 8))
mean(spread("S[0], S[2]", f32(4, 6, 8)), [-1], True) => spread("S[0], R", f32(4, 6, 1))
max(spread("S[0], S[2]", f32(4, 6, 8))) => spread("R, R", f32())
nn.softmax(spread("S[0], S[1]", f32(4, 6, 8)), -1) => spread("S[0], S[1]", f32(4, 6, 8))
matmul(spread("S[0], R", f32(4, 6)), spread("R, S[1]", f32(6, 8)))
    => spread("S[0], S[1]", f32(4, 8))
matmul(spread("S[1], R", f32(4, 6)), spread("S[0], R", f32(6, 8))) => spread("R, R", f32(4, 8))
matmul(spread("S[1], R", f32(4, 6)), spread("R, R", f32(6, 8))) => spread("R, R", f32(4, 8))
matmul(spread("S[0], S[2]", f32(2, 4, 6)), spread("R, S[0]", f32(6, 8)))
    => spread("S[0], R", f32(2, 4, 8))
matmul(spread("S[0], R", f32(2, 4, 6)), spread("S[0], S[2]", f32(2, 6, 8)))
    => spread("S[0], S[2]", f32(2, 4, 8))
matmul(spread("R, R", f32(4, 6)), spread("S[0], R", f32(2, 6, 8)))
    => spread("S[0], R", f32(2, 4, 8))
matmul(spread("S[0], R", f32(6)), spread("S[0], S[1]", f32(6, 8))) => spread("R, S[0]", f32(8))
matmul(spread("S[0], R", f32(4, 6)), spread("R, R", f32(6))) => spread("S[0], R", f32(4))
linear(spread("R, R", f32(n, 6)), spread("S[0], R", f32(8, 6))) => spread("S[1], R", f32(n, 8))
reshape(spread("S[0], S[1]", f32(4, 6, 8)), (4, 48)) => spread("S[0], S[1]", f32(4, 48))
reshape(spread("S[1], R", f32(4, 48)), (4, 6, 8)) => spread("S[1], R", f32(4, 6, 8))
reshape(spread("S[1], R", f32(4, 8)), (1, 4, 8)) => spread("S[2], R", f32(1, 4, 8))
reshape(spread("S[0], S[1]", f32(n, 8)), (n, 2, 4)) => spread("S[0], S[1]", f32(n, 2, 4))
reshape(spread("S[0], R", f32(n * 2, 2, 4)), (n * 2, 8)) => spread("S[0], R", f32(n * 2, 8))
flatten(spread("S[0], R", f32(4, 8))) => spread("S[0], R", f32(32))
nn.attention_var_len(*[spread("R, R", f32(1, 5, 2, 4))] * 3, *[spread("R, R", i32(2))] * 2)
    => spread("R, R", f32(1, 5, 2, 4))
"""


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("row", rows(INFERRED), ids=str)
def test_the_result_is_split_as_its_operands_are(row: Row) -> None:
    check_known(row, spread=placed)


def test_a_number_beside_a_tensor_is_on_all_devices() -> None:
    x = spread("S[0], R", 4, 8)
    assert made(lambda v: v + 1, x) == x


REFUSED: list[tuple[Call, tuple[rx.StructInfo, ...], str, str | None]] = [
    (
        op.add,
        (spread("S[0], R", 4, 8), spread("S[1], R", 4, 8)),
        "relax.add: different axes are split along axis 0 of the mesh: "
        f"x1 {spread('S[0], R', 4, 8)} and x2 {spread('S[1], R', 4, 8)}",
        "R.dist.redistribute",
    ),
    (
        op.add,
        (spread("S[0], R", 4, 8), spread("R, S[0]", 4, 8)),
        "an axis is split along different axes of the mesh: "
        f"x1 {spread('S[0], R', 4, 8)} and x2 {spread('R, S[0]', 4, 8)}",
        "R.dist.redistribute",
    ),
    (
        op.add,
        (spread("S[0]", 4, mesh=LINE), spread("S[0], R", 4)),
        f"on one mesh, found x1 {spread('S[0]', 4, mesh=LINE)} and x2 {spread('S[0], R', 4)}",
        None,
    ),
    (
        op.add,
        (spread("S[0], R", 4), rx.TensorStructInfo((4,), "float32")),
        "all tensors are distributed or none, found "
        f"x1 {spread('S[0], R', 4)} and x2 {rx.TensorStructInfo((4,), 'float32')}",
        "R.dist.const",
    ),
    (
        op.add,
        (spread("S[0], R", 4, 8), spread("R, R", 4, 9)),
        "relax.add: x1 and x2 do not broadcast: dimension 1 of x1 (4, 8) is 8",
        None,
    ),
    (op.add, (spread("R, R", 4), spread("R, R", 4, dtype="int8")), "one datatype", None),
    (
        op.add,
        (spread("R, R", 4, 8), spread("S[0], R", 1, 8)),
        f"axis 0 of x2 {spread('S[0], R', 1, 8)} has to be whole on every device, the result is",
        "R.dist.redistribute",
    ),
    (op.exp, (spread("S[0], R", 4, dtype="int8"),), "relax.exp: x holds floats", "R.astype"),
    (
        op.matmul,
        (spread("S[1], R", 4, 6), spread("S[1], R", 6, 8)),
        f"x1 {spread('S[1], R', 4, 6)} and x2 {spread('S[1], R', 6, 8)}",
        "R.dist.redistribute",
    ),
    (op.matmul, (spread("S[0], R", 4, 6), spread("R, R", 7, 8)), "relax.matmul: ", None),
    (op.matmul, (ranked("S[0], R", -1), spread("R, R", 7, 8)), "has to be whole", None),
    (
        lambda x: op.nn.softmax(x, 1),
        (spread("S[0], S[1]", 4, 8),),
        f"relax.nn.softmax: axis 1 of data {spread('S[0], S[1]', 4, 8)} has to be whole",
        "R.dist.redistribute",
    ),
    (lambda x: op.sum(x, 2), (spread("R, R", 4, 8),), "relax.sum: axis 2 is out of range", None),
    (
        lambda x: op.reshape(x, (4, 48)),
        (spread("S[2], R", 4, 6, 8),),
        "relax.reshape: axis 2 of x",
        "R.dist.redistribute",
    ),
    (lambda x: op.reshape(x, (3, 4)), (spread("S[0], R", 12),), "axis 0 of x", None),
    (lambda x: op.reshape(x, (N, 2)), (spread("S[0], R", N * 2),), "axis 0 of x", None),
    (lambda x: op.reshape(x, (N, 2)), (ranked("S[0], R", 1),), "axis 0 of x", None),
    (
        op.nn.dropout,
        (spread("S[0], R", 4),),
        "relax.nn.dropout: axis 0 of data R.DTensor",
        "R.dist.redistribute",
    ),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("call", "sinfos", "message", "hint"), REFUSED)
def test_tensors_that_do_not_fit_are_refused(call, sinfos, message, hint) -> None:
    with pytest.raises(StructInfoError) as caught:
        made(call, *sinfos)
    assert message in str(caught.value)
    assert "DER-36" in str(caught.value)
    assert hint is None or hint in str(caught.value)


def parts(array: np.ndarray, sinfo: DTensorStructInfo) -> dict[tuple[int, ...], np.ndarray]:
    """The part of an array on each device of the mesh."""
    result = {}
    for device in product(*map(range, sinfo.device_mesh.shape)):
        part = array
        pairs = zip(sinfo.placement.dim_specs, device, sinfo.device_mesh.shape, strict=True)
        for spec, index, count in pairs:
            if spec.kind == "sharding":
                part = np.split(part, count, spec.axis)[index]
        result[device] = part
    return result


LOCAL: list[tuple[Call, Callable[..., Any], tuple[DTensorStructInfo, ...]]] = [
    (op.add, np.add, (spread("S[0], S[1]", 4, 8), spread("S[0], S[1]", 4, 8))),
    (op.add, np.add, (spread("S[1], R", 2, 4, 8), spread("S[0], R", 4, 1))),
    (op.permute_dims, np.transpose, (spread("S[0], S[2]", 4, 6, 8),)),
    (lambda x: op.sum(x, 1), lambda x: x.sum(1), (spread("S[0], S[2]", 4, 6, 8),)),
    (op.matmul, np.matmul, (spread("S[0], R", 4, 6), spread("R, S[1]", 6, 8))),
    (op.matmul, np.matmul, (spread("S[0], R", 2, 4, 6), spread("S[0], S[2]", 2, 6, 8))),
    (
        lambda x: op.reshape(x, (4, 48)),
        lambda x: x.reshape(x.shape[0], -1),
        (spread("S[0], S[1]", 4, 6, 8),),
    ),
    (
        lambda x: op.reshape(x, (4, 6, 8)),
        lambda x: x.reshape(x.shape[0], -1, 8),
        (spread("S[0], S[1]", 4, 48),),
    ),
]


@pytest.mark.parametrize(("call", "oracle", "sinfos"), LOCAL)
def test_each_device_computes_its_part_of_the_result(call, oracle, sinfos) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(size) for size in s.shape]) for s in sinfos]  # type: ignore[union-attr, call-overload]
    result = made(call, *sinfos)
    assert isinstance(result, DTensorStructInfo)
    operands = [parts(array, sinfo) for array, sinfo in zip(arrays, sinfos, strict=True)]
    for device, expected in parts(oracle(*arrays), result).items():
        np.testing.assert_allclose(oracle(*(part[device] for part in operands)), expected)


TEXT = """
@I.ir_module
class Module:
    I.module_attrs({"device_num": 4})
    I.module_global_infos({"mesh": [R.dist.device_mesh((2, 2), I.Range(0, 4))]})

    @R.function
    def main(
        x: R.DTensor((4, 6), "float32", "mesh[0]", "S[0], R"),
        w: R.DTensor((6, 8), "float32", "mesh[0]", "R, S[1]"),
    ) -> R.DTensor((4, 8), "float32", "mesh[0]", "S[0], S[1]"):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y + R.dist.const(1, R.DTensor((), "float32", "mesh[0]", "R, R")))
            R.output(z)
        return z
"""


def test_programs_of_distributed_tensors_are_read_and_written() -> None:
    mod = from_source(TEXT)
    assert check_well_formed(mod, normal_form=True) == []
    again = from_source(mod.script())
    assert again["main"].struct_info == mod["main"].struct_info
    legalized = LegalizeOps()(mod)
    assert legalized["main"].struct_info == mod["main"].struct_info
    names = [call.op.name for call in walk(legalized["main"]) if isinstance(call, rx.Call)]
    assert names == ["relax.call_tir"] * 3
    with pytest.raises(CompileError, match="tensors spread over several devices"):
        relaxpy.compile(legalized)


def test_an_error_marks_the_operand() -> None:
    wrong = TEXT.replace('"R, S[1]"', '"S[1], R"').replace('"S[0], S[1]"', '"R, R"')
    with pytest.raises(RelaxpyError, match="different axes are split along axis 0") as caught:
        from_source(wrong)
    assert "R.matmul(x, w)" in str(caught.value)


def test_a_call_without_default_attributes_has_them() -> None:
    x = rx.Var("x", spread("S[0], R", 4, 8))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        result = builder.emit(rx.Call(Op.get("relax.nn.softmax"), (x,)))
        builder.emit_func_output(result)
    assert result.struct_info == spread("S[0], R", 4, 8)
