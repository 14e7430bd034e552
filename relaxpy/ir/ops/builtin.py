"""Operators of lowered programs: tensors before memory is planned, and a stop for lifting."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op_record import Allocation, Memory
from relaxpy.ir.ops.definition.axis_rules import same_axes
from relaxpy.ir.ops.definition.gradients import identity_gradient
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.ops.memory import datatype_by_name, tensor_in
from relaxpy.ir.relax import nodes as rx


def global_scope(arguments: dict[str, Any]) -> None:
    """Convert the name of the datatype; the default storage scope is global."""
    datatype_by_name(arguments)
    if arguments["storage_scope"] is None:
        arguments["storage_scope"] = "global"


@register(
    "relax.builtin.alloc_tensor",
    pure=True,
    adapt=global_scope,
    allocates=Allocation(shape=0, dtype=1),
)
def alloc_tensor(
    shape: rx.ShapeStructInfo,
    dtype: rx.ObjectStructInfo,
    runtime_device_index: rx.PrimStructInfo,
    storage_scope: rx.ObjectStructInfo | None = None,
    vdevice: VDevice | None = None,
    *,
    call: rx.Call,
) -> rx.TensorStructInfo:
    """A new tensor, its elements not set.

    Shapes:
        result  `shape`, in `dtype`, on `vdevice`
    Errors:
        StructInfoError: the datatype is not a literal.
    """
    return tensor_in(call.args[0], shape, call.args[1], vdevice)


@register(
    "relax.builtin.stop_lift_params",
    axes=same_axes,
    pure=True,
    memory=Memory.SAME,
    gradient=identity_gradient,
)
def stop_lift_params(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The tensor; LiftTransformParams leaves it, and uses of it, in the function.

    Shapes:
        x       any
        result  as x
    """
    return x
