"""Collective operators: texts, what the only worker computes, and gradients."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir import ops as op
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import builder as rx_builder
from relaxpy.script import from_source
from tests.ir.ops.cases.case import slopes
from tests.ir.ops.test_rules import N, derive
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import module
from tests.plugins.distributed.team import Team

X = tensor(4, N)
ccl = op.ccl


def test_a_reduction_is_one_of_five() -> None:
    with pytest.raises(MisuseError, match=r"op_type is 'sum' or .* or 'avg', found 'mean'"):
        derive(lambda x: ccl.allreduce(x, "mean"), (X,))


Alone = module("""
def main(x: f32[4, n]):
    total = R.ccl.allreduce(x, "avg", in_group=False)
    joined = R.ccl.allgather(total, 1)
    first = R.ccl.broadcast_from_worker0(joined)
    return R.ccl.scatter_from_worker0(first, 1, axis=1)

def two(x: f32[4, n]):
    return R.ccl.allgather(x, 2)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_the_only_worker_keeps_its_tensor(target: str) -> None:
    program = relaxpy.compile(Alone, target)
    x = np.arange(8, dtype="float32").reshape(4, 2)
    found = program["main"](x)
    np.testing.assert_array_equal(found, x)
    assert not np.shares_memory(found, x)
    with pytest.raises(
        RuntimeCheckError, match="the program is for 2 workers, but this is the only"
    ):
        program["two"](x)


def test_collective_operators_print_and_parse_back() -> None:
    text = Alone.script()
    assert 'R.ccl.allreduce(x, op_type="avg", in_group=False)' in text
    relaxpy.ir.assert_structural_equal(from_source(text), Alone)


@pytest.fixture
def three_workers() -> Team:
    return Team(3)


COLLECTIVE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "sum": (lambda x: ccl.allreduce(x, "sum"), (2, 2)),
    "avg": (lambda x: ccl.allreduce(x, "avg"), (2, 2)),
    "prod": (lambda x: ccl.allreduce(x, "prod"), (2, 2)),
    "max": (lambda x: ccl.allreduce(x, "max"), (2, 2)),
    "min": (lambda x: ccl.allreduce(x, "min"), (2, 2)),
    "allgather": (lambda x: ccl.allgather(x, 3), (2, 2)),
    "reduce_scatter": (lambda x: ccl.reduce_scatter(x, 3), (6, 2)),
    "broadcast": (ccl.broadcast_from_worker0, (2, 2)),
    "reduce_to_worker0": (ccl.reduce_to_worker0, (2, 2)),
    "scatter": (lambda x: ccl.scatter_from_worker0(x, 3, axis=1), (2, 6)),
    "gather": (lambda x: ccl.gather_to_worker0(x, 3, axis=-1), (2, 2)),
    "shard": (lambda x: op.dist.redistribute_replica_to_shard(x, 3, 1), (2, 6)),
}


@pytest.mark.parametrize("name", COLLECTIVE)
def test_a_gradient_is_that_of_the_losses_of_all_workers(name: str, three_workers: Team) -> None:
    make, shape = COLLECTIVE[name]
    x = rx.Var("x", rx.TensorStructInfo(shape, "float64"))
    builder = rx_builder.BlockBuilder()
    with builder.function("forward", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    y = rx.Var("y", rx.TensorStructInfo(shape, "float64"))
    call = make(y)
    g = rx.Var("g", call.struct_info)
    with builder.function("backward", [y, g]):
        var = builder.emit(call)
        rule = registered_ops()[call.op.name].record.gradient
        assert rule is not None
        [grad] = rule(var, call, g, builder)
        builder.emit_func_output(builder.emit(grad))
    program = relaxpy.compile(builder.finalize())
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape) for _ in range(3)]
    if name == "prod":
        values[0][0, 0] = values[1][0, 1] = values[2][0, 1] = 0
    results = three_workers.run(program["forward"], values)
    weights = [random.standard_normal(np.shape(result)) for result in results]
    found = three_workers.run(program["backward"], values, weights)

    def losses(moved: list[Any]) -> float:
        every = three_workers.run(program["forward"], moved)
        return sum(float((w * y).sum()) for w, y in zip(weights, every, strict=True))

    for number in range(3):
        expected = slopes(
            lambda v, k=number: losses([*values[:k], v, *values[k + 1 :]]), values[number]
        )
        np.testing.assert_allclose(found[number], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_equal_extrema_of_workers_share_the_gradient(target: str, three_workers: Team) -> None:
    x, g = (rx.Var(n, rx.TensorStructInfo((2,), "float32")) for n in "xg")
    builder = rx_builder.BlockBuilder()
    with builder.function("main", [x, g]):
        call = ccl.allreduce(x, "max")
        rule = ccl.allreduce.record.gradient
        [grad] = rule(builder.emit(call), call, g, builder)
        builder.emit_func_output(builder.emit(grad))
    program = relaxpy.compile(builder.finalize(), target)
    values = [np.array(v, "float32") for v in ([1, 5], [1, 2], [0, 5])]
    weights = [np.array(v, "float32") for v in ([3, 0], [1, 8], [0, 0])]
    found = three_workers.run(program["main"], values, weights)
    np.testing.assert_array_equal(found, [[2, 4], [2, 0], [0, 4]])
