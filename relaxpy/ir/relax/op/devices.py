"""Operators on the device of a tensor."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.core.device import Device
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op_record import Memory
from relaxpy.ir.relax.nodes import Call, TensorStructInfo
from relaxpy.ir.relax.op.definition.gradients import identity_gradient, of_operand
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.support.dataclass import replace


def _gradient_to_vdevice(g: Any, x: Any, y: Any, call: Call) -> Any:
    """The gradient on the device of the operand, if that is known."""
    source = x.struct_info.vdevice
    return g if source is None else R.to_vdevice(g, source)


@register(
    "relax.to_vdevice", pure=True, memory=Memory.SAME, gradient=of_operand(_gradient_to_vdevice)
)
def to_vdevice(data: TensorStructInfo, dst_vdevice: VDevice) -> TensorStructInfo:
    """The tensor on another device; a string names it, as in "cuda:0".

    Shapes:
        data    any
        result  as data, on that device
    """
    return replace(data, vdevice=dst_vdevice)


@register("relax.hint_on_device", pure=True, memory=Memory.SAME, gradient=identity_gradient)
def hint_on_device(
    data: TensorStructInfo, dst_vdevice: Device | VDevice, memory_scope: str = "global"
) -> TensorStructInfo:
    """The tensor itself, which passes put on a device, as in `R.cuda(0)`.

    A virtual device, as in `I.vdevice("cuda")`, has a memory scope of its own.

    Shapes:
        data    any
        result  as data
    """
    return data
