"""Operators on tensors distributed over the devices of a mesh, and the workers that run them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError, StructInfoTypeError, show_uncaught_errors
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.op_record import CallKind, Memory
from relaxpy.ir.ops.call import Operands, StructInfos, kernel_args, operand_sinfo, output_sinfo
from relaxpy.ir.ops.definition import gradients
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.rules import normal_axis, refuse, shown, tensor
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.te.topi.shapes import shape_text, tidy
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.launched import end_all, is_one_of_several, tell_that_it_ends

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Combination: TypeAlias = Literal["sum", "prod", "min", "max", "avg"]


class Workers(ABC):
    """`size` workers that run the same program; this process is the one with the number `rank`.

    All workers call the same methods in the same order. No method changes its operands or returns
    memory that it keeps.
    """

    rank: int
    size: int

    @property
    def group(self) -> Workers:
        """The workers that `in_group` means: all, unless they have been divided into groups."""
        return self

    @abstractmethod
    def among(self, size: int, stride: int) -> Workers:
        """The `size` workers, this one among them, whose numbers are `stride` apart.

        They are those along one axis of a mesh whose devices are numbered in row-major order. The
        number of all workers is a multiple of `size * stride`.
        """

    @abstractmethod
    def combined(self, x: Array, how: Combination) -> Array:
        """The tensors of all workers combined element by element."""

    @abstractmethod
    def combined_on_first(self, x: Array) -> Array | None:
        """On the first worker, the sum of the tensors of all."""

    @abstractmethod
    def combined_parts(self, parts: Array) -> Array:
        """The sum over all workers of their slices for this worker along the first axis."""

    @abstractmethod
    def collected(self, x: Array) -> Array:
        """The tensors of all workers along a new first axis."""

    @abstractmethod
    def collected_on_first(self, x: Array) -> Array | None:
        """On the first worker, the tensors of all along a new first axis."""

    @abstractmethod
    def of_first(self, x: Array) -> Array:
        """The tensor of the first worker."""

    @abstractmethod
    def part_of_first(self, parts: Array) -> Array:
        """The slice for this worker along the first axis of the first worker's tensor."""

    def tell_failure(self, error: BaseException) -> None:  # noqa: B027
        """Tell the others that this worker ends with an error, so that they need not wait."""

    def close(self) -> None:  # noqa: B027
        """Release the resources of these workers, which are not used again."""


class Alone(Workers):
    """The only worker of a program that no other process runs."""

    rank, size = 0, 1

    @override
    def among(self, size: int, stride: int) -> Workers:
        return self

    @override
    def combined(self, x: Array, how: Combination) -> Array:
        return x.copy()

    @override
    def combined_on_first(self, x: Array) -> Array:
        return x.copy()

    @override
    def combined_parts(self, parts: Array) -> Array:
        own: Array = parts[0].copy()
        return own

    @override
    def collected(self, x: Array) -> Array:
        return x[np.newaxis].copy()

    @override
    def collected_on_first(self, x: Array) -> Array:
        return x[np.newaxis].copy()

    @override
    def of_first(self, x: Array) -> Array:
        return x.copy()

    @override
    def part_of_first(self, parts: Array) -> Array:
        own: Array = parts[0].copy()
        return own


chosen_workers: ContextVar[Workers | None] = ContextVar("relaxpy_workers", default=None)
"""The workers that the program chose; by default those that started together with it."""


started: list[Workers] = []
"""The workers that started together with this one, once they are known to be several."""


def current_workers() -> Workers:
    """The workers on which collective operators run now."""
    workers: Workers = chosen_workers.get() or (
        started[0] if started else hooks.call("started_workers")
    )
    return workers


Among: TypeAlias = tuple[int, int]
"""The number of participating workers, and the stride of their ranks."""


def members(
    num_workers: int | None = None, in_group: bool = False, among: Among | None = None
) -> Workers:
    """The current workers, or those of them that take part in an operator.

    Errors:
        RuntimeCheckError: there are not `num_workers` of them.
    """
    workers = current_workers()
    if among is not None:
        size, stride = among
        if workers.size % (size * stride):
            raise _wrong_number(size * stride, workers)
        if size != workers.size:
            workers = workers.among(size, stride)
    elif in_group:
        workers = workers.group
    if num_workers is not None and num_workers != workers.size:
        raise _wrong_number(num_workers, workers)
    return workers


def _wrong_number(num_workers: int | None, workers: Workers) -> RuntimeCheckError:
    found = "this is the only one" if workers.size == 1 else f"there are {workers.size}"
    return RuntimeCheckError(
        f"the program is for {num_workers} workers, but {found}",
        hint=f"start it by mpiexec -n {num_workers} python ..., "
        "or choose the workers by relaxpy.distributed.use",
    )


def split(x: Array, count: int, axis: int) -> Array:
    """The equal parts of a tensor along an axis, one for each worker along a new first axis.

    Errors:
        RuntimeCheckError: the size is not a multiple of the number of workers.
    """
    size = x.shape[axis]
    if size % count:
        raise RuntimeCheckError(
            f"axis {axis} of a tensor of shape {x.shape} is split among {count} workers, "
            f"but its size {size} is not a multiple of that"
        )
    axis %= x.ndim
    parts = x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
    return parts.transpose(axis, *range(axis), *range(axis + 1, parts.ndim))


def joined(parts: Array, axis: int) -> Array:
    """The slices along the first axis, concatenated along another axis."""
    axis %= parts.ndim - 1
    count, *whole = parts.shape
    whole[axis] *= count
    if axis:
        parts = parts.transpose(*range(1, axis + 1), 0, *range(axis + 1, parts.ndim))
    return parts.reshape(whole)


if is_one_of_several():  # also an error before the first collective operator
    show_uncaught_errors()
    end_all()
    tell_that_it_ends()


def _annotated(x: Array, device_mesh: object, placement: object) -> Array:
    return x


@register(
    "relax.dist.annotate_sharding",
    pure=True,
    memory=Memory.SAME,
    gradient=gradients.identity_gradient,
    runtime=_annotated,
)
def annotate_sharding(
    input: TensorStructInfo, device_mesh: DeviceMesh, placement: Placement
) -> TensorStructInfo:
    """The tensor itself, which passes distribute over a mesh.

    Without these passes every worker has all of it.

    Shapes:
        input   any whose rank has the axes that are split
        result  as input
    Errors:
        MisuseError: the placement does not fit the mesh or the tensor.
    """
    DTensorStructInfo(input, device_mesh, placement)
    return input


def _gradient_redistribute(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    sinfo = call.args[0].struct_info
    if not isinstance(sinfo, DTensorStructInfo) or not sinfo.tensor_sinfo.dtype.is_float:
        return gradients.no_gradient(var, call, gradient, builder)
    return [R.dist.redistribute(gradient, sinfo.device_mesh, sinfo.placement)]


@register("relax.dist.redistribute", pure=True, memory=Memory.SAME, gradient=_gradient_redistribute)
def redistribute(
    input: DTensorStructInfo, device_mesh: DeviceMesh, placement: Placement
) -> DTensorStructInfo:
    """The tensor, distributed over a mesh in another way.

    Shapes:
        input   any whose rank has the axes that are split
        result  as input, on that mesh
    Errors:
        MisuseError: the placement does not fit the mesh or the tensor.
    """
    return DTensorStructInfo(input.tensor_sinfo, device_mesh, placement)


def shard(
    x: TensorStructInfo, num_workers: int, axis: int, ctx: Context, name: str
) -> TensorStructInfo:
    """The struct info of one of the equal shards of a tensor along an axis.

    Errors:
        StructInfoError: there are no workers, the axis is out of range, or its size is provably not
            a multiple.
    """
    require_workers(num_workers)
    if x.ndim < 0:
        return tensor(None, x.dtype, x.vdevice)
    position = normal_axis(axis, x.ndim)
    shape = x.get_shape()
    if shape is None:
        return tensor(None, x.dtype, x.vdevice, x.ndim)
    remainder = shape[position] % num_workers
    if ctx.prove_equal(remainder, ops.const(0, remainder.dtype)) is False:
        raise refuse(
            f"dimension {position} of {name} {shape_text(shape)} is {shown(shape[position])}, "
            f"which is not a multiple of {num_workers} workers",
            num_workers,
        )
    share = tidy(shape[position] // num_workers)
    return tensor((*shape[:position], share, *shape[position + 1 :]), x.dtype, x.vdevice)


def require_workers(num_workers: int) -> None:
    """Refuse fewer than one worker.

    Errors:
        StructInfoError: there are none.
    """
    if num_workers < 1:
        raise refuse(f"num_workers is at least 1, found {num_workers}", num_workers)


def _gradient_shard(g: Any, x: Any, y: Any, call: Call) -> Any:
    """The gradient in the position of the worker's shard, between zeros.

    The shard of an identity matrix is the row that is 1 at the number of the worker.
    """
    whole = x.struct_info
    if isinstance(whole, DTensorStructInfo):
        return R.dist.redistribute(g, whole.device_mesh, whole.placement)
    rank = gradients.require_rank(x, "redistribute_replica_to_shard")
    workers, among = call.attrs["num_workers"], call.attrs["among"]
    position = normal_axis(int(str(call.attrs["axis"])), rank)
    identity = R.eye(workers, dtype=str(g.struct_info.dtype))
    own = R.dist.redistribute_replica_to_shard(identity, workers, 0, among)
    own = R.reshape(own, (1,) * position + (workers,) + (1,) * (rank - position))
    return R.reshape(R.expand_dims(g, position) * own, gradients.shape_like(x))


def _own_shard(x: Array, num_workers: int, axis: int, among: Among | None) -> Array:
    in_group = current_workers().size != num_workers
    workers = members(num_workers, in_group, among)
    own: Array = split(x, workers.size, axis)[workers.rank].copy()
    return own


@register(
    "relax.dist.redistribute_replica_to_shard",
    pure=True,
    gradient=gradients.of_operand(_gradient_shard),
    runtime=_own_shard,
    calls_out=True,
)
def redistribute_replica_to_shard(
    input: TensorStructInfo | DTensorStructInfo,
    num_workers: int,
    axis: int,
    ctx: Context,
    among: Sequence[int] | None = None,
) -> TensorStructInfo | DTensorStructInfo:
    """The shard that one of `num_workers` workers keeps of a replicated tensor.

    With `among` they are, as for `R.ccl.allreduce`, only some of all.

    Shapes:
        input   any; its size along `axis` is a multiple of `num_workers`
        result  as input, that size divided; a distributed tensor is split along `axis`
    Errors:
        StructInfoError: there are no workers, the size is provably not a multiple, or a distributed
            tensor is not replicated over an axis of its mesh with these devices.
    """
    require_among(num_workers, among)
    if isinstance(input, TensorStructInfo):
        return shard(input, num_workers, axis, ctx, "input")
    position = normal_axis(axis, input.ndim)
    shard(input.tensor_sinfo, num_workers, axis, ctx, "input")
    return placed_along(
        input, num_workers, among, PlacementSpec.replica(), PlacementSpec.sharding(position)
    )


def require_among(num_workers: int | None, among: Sequence[int] | None) -> None:
    """Refuse workers that cannot be some of all.

    Errors:
        StructInfoError: `among` is not a number of workers, which is `num_workers` where that is
            given, and a distance of their numbers.
    """
    if among is None:
        return
    if len(among) != 2 or not all(isinstance(n, int) and n >= 1 for n in among):
        raise refuse(f"among is the number of workers and their distance, found {among}", among)
    if num_workers not in {None, among[0]}:
        raise refuse(f"among {tuple(among)} are not {num_workers} workers", among)


def placed_along(
    x: DTensorStructInfo,
    num_workers: int,
    among: Sequence[int] | None,
    before: PlacementSpec,
    after: PlacementSpec,
) -> DTensorStructInfo:
    """A distributed tensor that is placed in another way along the axis of its mesh.

    Errors:
        StructInfoError: it is not placed as `before` along an axis with these workers.
    """
    specs, sizes = x.placement.dim_specs, x.device_mesh.shape
    wanted = (num_workers, 1) if among is None else tuple(among)
    for k, spec in enumerate(specs):
        is_axis = (sizes[k], x.device_mesh.stride(k)) == wanted
        if is_axis and spec == before and (among is not None or len(sizes) == 1):
            return DTensorStructInfo(
                x.tensor_sinfo, x.device_mesh, Placement((*specs[:k], after, *specs[k + 1 :]))
            )
    raise refuse(
        f"a tensor is needed that is placed as {before} over {num_workers} devices along one axis "
        f"of a mesh, found {x}",
        x,
    )


def _infer_local_view(call: Call, ctx: Context) -> StructInfo:
    operand_sinfo(call, ctx)
    if len(call.sinfo_args) != 1:
        raise StructInfoTypeError(
            f"takes the struct info of one output, found {len(call.sinfo_args)}", about=call
        )
    [sinfo] = call.sinfo_args
    for field in fields_of(sinfo):
        if not isinstance(field, DTensorStructInfo):
            raise StructInfoTypeError(
                f"outputs are tensors over several devices, found {field}",
                hint="write R.DTensor(...)",
                about=field,
            )
    return sinfo


@register(
    "relax.dist.call_tir_local_view",
    pure=True,
    calls=CallKind.LOCAL_KERNEL,
    infer=_infer_local_view,
)
def call_tir_local_view(
    gvar: Expr,
    args: Operands,
    out_sinfo: StructInfos,
    tir_vars: Expr | Sequence[PrimExpr | int] | None = None,
) -> Call:
    """The tensors that the PrimFunc `gvar` writes on each device from its shards of `args`.

    Shapes:
        args       what the PrimFunc takes before its outputs
        out_sinfo  the whole tensors, how they are spread included; a list for several
        result     the tensor, or the tuple of them
    Errors:
        StructInfoError: an output is not a tensor over several devices.
    """
    return Call(
        call_tir_local_view.op,
        kernel_args(gvar, args, tir_vars),
        sinfo_args=(output_sinfo(out_sinfo),),
    )
