"""Collective operators, in which all workers take part.

Their gradients are those of the sum of the losses of all workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.axis_rules import same_axes
from relaxpy.ir.ops.definition.gradients import by_transpose, masked, of_operand
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.rules import normal_axis, refuse, tensor
from relaxpy.ir.ops.distributed import (
    Among,
    Combination,
    current_workers,
    joined,
    members,
    placed_along,
    require_among,
    require_workers,
    shard,
    split,
)
from relaxpy.ir.relax.nodes import Call, TensorStructInfo
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo, PlacementSpec
from relaxpy.ir.relax.relations.derivation import Context


def _gradient_allreduce(g: Any, x: Any, y: Any, call: Call) -> Any:
    in_group, among = call.attrs["in_group"], call.attrs["among"]

    def total(value: Any, op_type: str = "sum") -> Any:
        return R.ccl.allreduce(value, op_type, in_group, among)

    match call.attrs["op_type"]:
        case "avg":
            return total(g, "avg")
        case "sum":
            return total(g)
        case "prod":  # times the product of the elements of the others, also where some are 0
            is_zero = R.equal(x, 0)
            own = R.where(is_zero, R.ones_like(x), x)
            zeros = is_zero.astype(x.struct_info.dtype)
            no_other_zero = R.equal(total(zeros), zeros)
            return masked(total(g) * total(own, "prod") / own, no_other_zero)
        case _:  # equal extrema share the gradient
            chosen = R.equal(x, y).astype(x.struct_info.dtype)
            return total(g) * chosen / total(chosen)


def _allreduce(x: Array, op_type: Combination, in_group: bool, among: Among | None) -> Array:
    return members(None, in_group, among).combined(x, op_type)


@register(
    "relax.ccl.allreduce",
    axes=same_axes,
    pure=True,
    runtime=_allreduce,
    calls_out=True,
    sends=(2, 0),
    gradient=of_operand(_gradient_allreduce),
)
def allreduce(
    x: TensorStructInfo,
    op_type: Combination = "sum",
    in_group: bool = True,
    among: Sequence[int] | None = None,
) -> TensorStructInfo:
    """All-reduce: the tensors of all workers combined element by element, on each worker.

    With `in_group`, only workers of one group are combined; with `among=(size, stride)` only the
    `size` workers whose numbers are `stride` apart, which are those along an axis of a mesh.

    Shapes:
        x       any, of one shape on all workers
        result  as x
    Errors:
        MisuseError: there is no such `op_type`.
        StructInfoError: `among` is not a number of workers and their distance.
    """
    require_among(None, among)
    return x


def _joined(x: TensorStructInfo, num_workers: int, axis: int) -> TensorStructInfo:
    """The struct info of the tensors of all workers, joined along an axis."""
    if x.ndim < 0:
        return tensor(None, x.dtype, x.vdevice)
    position, shape = normal_axis(axis, x.ndim), x.get_shape()
    if shape is None:
        return tensor(None, x.dtype, x.vdevice, x.ndim)
    size = shape[position] * num_workers
    return tensor((*shape[:position], size, *shape[position + 1 :]), x.dtype, x.vdevice)


def _require_axis(x: TensorStructInfo) -> None:
    if x.ndim == 0:
        raise refuse(f"x has rank at least 1, found {x}", x, hint="reshape it to (1,)")


def _allgather(x: Array, num_workers: int, in_group: bool, among: Among | None, axis: int) -> Array:
    return joined(members(num_workers, in_group, among).collected(x), axis)


@register(
    "relax.ccl.allgather",
    pure=True,
    runtime=_allgather,
    calls_out=True,
    sends=(1, 1),
    gradient=by_transpose("ccl.reduce_scatter"),
)
def allgather(
    x: TensorStructInfo | DTensorStructInfo,
    num_workers: int,
    in_group: bool = True,
    among: Sequence[int] | None = None,
    axis: int = 0,
) -> TensorStructInfo | DTensorStructInfo:
    """All-gather: the tensors of all workers joined along an axis, on each worker.

    With `in_group`, only those of the workers of one group are joined; with `among`, as for
    `R.ccl.allreduce`, those of some workers.

    Shapes:
        x       rank at least 1, of one shape on all workers; or a distributed tensor that is split
                along `axis`
        result  as x, its size along `axis` `num_workers` times as large; or the distributed tensor
                that is not split so
    Errors:
        StructInfoError: x has rank 0, there are no workers, the axis is out of range, or a
            distributed tensor is not split along it.
    """
    require_workers(num_workers)
    require_among(num_workers, among)
    if isinstance(x, DTensorStructInfo):
        split_so = PlacementSpec.sharding(normal_axis(axis, x.ndim))
        return placed_along(x, num_workers, among, split_so, PlacementSpec.replica())
    _require_axis(x)
    return _joined(x, num_workers, axis)


def _reduce_scatter(
    x: Array, num_workers: int, in_group: bool, among: Among | None, axis: int
) -> Array:
    workers = members(num_workers, in_group, among)
    return workers.combined_parts(split(x, workers.size, axis))


@register(
    "relax.ccl.reduce_scatter",
    pure=True,
    runtime=_reduce_scatter,
    calls_out=True,
    sends=(1, 0),
    gradient=by_transpose("ccl.allgather"),
)
def reduce_scatter(
    x: TensorStructInfo,
    num_workers: int,
    ctx: Context,
    in_group: bool = True,
    among: Sequence[int] | None = None,
    axis: int = 0,
) -> TensorStructInfo:
    """Reduce-scatter: the sum of the tensors of all workers, one equal shard along an axis on each.

    With `in_group`, only workers of one group take part; with `among`, as for `R.ccl.allreduce`,
    some workers. It is the gradient of `allgather`.

    Shapes:
        x       rank at least 1, of one shape on all workers
        result  as x, its size along `axis` divided by `num_workers`
    Errors:
        StructInfoError: x has rank 0, there are no workers, the axis is out of range, or its size
            is provably not a multiple.
    """
    require_among(num_workers, among)
    _require_axis(x)
    return shard(x, num_workers, axis, ctx, "x")


def _broadcast(x: Array) -> Array:
    return current_workers().of_first(x)


@register(
    "relax.ccl.broadcast_from_worker0",
    pure=True,
    runtime=_broadcast,
    calls_out=True,
    sends=(2, 0),
    gradient=by_transpose("ccl.reduce_to_worker0"),
)
def broadcast_from_worker0(x: TensorStructInfo) -> TensorStructInfo:
    """The tensor of worker 0, on each worker.

    Shapes:
        x       any, of one shape on all workers
        result  as x
    """
    return x


def _reduce_to_worker0(x: Array) -> Array:
    total = current_workers().combined_on_first(x)
    return np.zeros_like(x) if total is None else total


@register(
    "relax.ccl.reduce_to_worker0",
    pure=True,
    runtime=_reduce_to_worker0,
    calls_out=True,
    sends=(2, 0),
    gradient=by_transpose("ccl.broadcast_from_worker0"),
)
def reduce_to_worker0(x: TensorStructInfo) -> TensorStructInfo:
    """The sum of the tensors of all workers on worker 0, and zeros on the others.

    It is the gradient of `broadcast_from_worker0`.

    Shapes:
        x       any, of one shape on all workers
        result  as x
    """
    return x


def _scatter(x: Array, num_workers: int, axis: int) -> Array:
    workers = members(num_workers)
    return workers.part_of_first(split(x, workers.size, axis))


@register(
    "relax.ccl.scatter_from_worker0",
    pure=True,
    runtime=_scatter,
    calls_out=True,
    sends=(1, 0),
    gradient=by_transpose("ccl.gather_to_worker0"),
)
def scatter_from_worker0(
    x: TensorStructInfo, num_workers: int, ctx: Context, axis: int = 0
) -> TensorStructInfo:
    """The shards of the tensor of worker 0 along an axis, one on each worker.

    Shapes:
        x       any; its size along `axis` is a multiple of `num_workers`
        result  as x, that size divided
    Errors:
        StructInfoError: there are no workers, the axis is out of range, or its size is provably not
            a multiple.
    """
    return shard(x, num_workers, axis, ctx, "x")


def _gather_to_worker0(x: Array, num_workers: int, axis: int) -> Array:
    parts = members(num_workers).collected_on_first(x)
    if parts is None:
        parts = np.zeros((num_workers, *x.shape), x.dtype)
    return joined(parts, axis)


@register(
    "relax.ccl.gather_to_worker0",
    pure=True,
    runtime=_gather_to_worker0,
    calls_out=True,
    sends=(1, 1),
    gradient=by_transpose("ccl.scatter_from_worker0"),
)
def gather_to_worker0(x: TensorStructInfo, num_workers: int, axis: int = 0) -> TensorStructInfo:
    """The tensors of all workers joined along an axis on worker 0, and zeros on the others.

    It is the gradient of `scatter_from_worker0`.

    Shapes:
        x       rank at least 1, of one shape on all workers
        result  as x, its size along `axis` `num_workers` times as large
    Errors:
        StructInfoError: there are no workers, or the axis is out of range.
    """
    require_workers(num_workers)
    return _joined(x, num_workers, axis)
