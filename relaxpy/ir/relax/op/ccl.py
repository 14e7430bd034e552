"""Collective operators, in which all workers take part; a program that runs is the only worker."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.definition.registry import register
from relaxpy.ir.relax.op.definition.rules import literal_shape, refuse, tensor
from relaxpy.ir.relax.op.distributed import require_workers, shard
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.tir import ops

Array = np.ndarray[Any, Any]


def _alone(
    x: Array,
    num_workers: int = 1,
    *,
    op_type: str = "sum",
    in_group: bool = True,
    axis: int = 0,
) -> Array:
    """What the only worker has in the end.

    Errors:
        RuntimeCheckError: there should be other workers.
    """
    if num_workers != 1:
        raise RuntimeCheckError(
            f"the program is for {num_workers} workers, but this is the only one"
        )
    return x.copy()


@register("relax.ccl.allreduce", pure=True, runtime=_alone)
def allreduce(
    x: TensorStructInfo,
    op_type: Literal["sum", "prod", "min", "max", "avg"] = "sum",
    in_group: bool = True,
) -> TensorStructInfo:
    """The tensors of all workers combined element by element, on each worker.

    With `in_group`, only workers of one group are combined.

    Shapes:
        x       any, of one shape on all workers
        result  as x
    Errors:
        MisuseError: there is no such `op_type`.
    """
    return x


@register("relax.ccl.allgather", pure=True, runtime=_alone)
def allgather(x: TensorStructInfo, num_workers: int, in_group: bool = True) -> TensorStructInfo:
    """The tensors of all workers joined along the first axis, on each worker.

    With `in_group`, only those of the workers of one group are joined.

    Shapes:
        x       rank 1 at least, of one shape on all workers
        result  as x, its first size `num_workers` times as large
    Errors:
        StructInfoError: x has rank 0, or there are no workers.
    """
    require_workers(num_workers)
    if x.ndim == 0:
        raise refuse(f"x has rank 1 at least, found {x}", x, hint="reshape it to (1,)")
    shape = literal_shape(x)
    if shape is None:
        return tensor(None, x.dtype, x.vdevice, x.ndim)
    return tensor((ops.mul(shape[0], num_workers), *shape[1:]), x.dtype, x.vdevice)


@register("relax.ccl.broadcast_from_worker0", pure=True, runtime=_alone)
def broadcast_from_worker0(x: TensorStructInfo) -> TensorStructInfo:
    """The tensor of worker 0, on each worker.

    Shapes:
        x       any, of one shape on all workers
        result  as x
    """
    return x


@register("relax.ccl.scatter_from_worker0", pure=True, runtime=_alone)
def scatter_from_worker0(
    x: TensorStructInfo, num_workers: int, ctx: Context, axis: int = 0
) -> TensorStructInfo:
    """The parts of the tensor of worker 0 along an axis, one on each worker.

    Shapes:
        x       any; its size along `axis` is a multiple of `num_workers`
        result  as x, that size divided
    Errors:
        StructInfoError: there are no workers, the axis is out of range, or its size is provably not
            a multiple.
    """
    return shard(x, num_workers, axis, ctx, "x")
