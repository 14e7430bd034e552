"""Operators that say on which device a tensor lives."""

from __future__ import annotations

from dataclasses import replace

from relaxpy.ir.core.device import Device
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.definition.registry import register


@register("relax.to_vdevice", pure=True)
def to_vdevice(data: TensorStructInfo, dst_vdevice: VDevice) -> TensorStructInfo:
    """The tensor on another device; a string names it, as in "cuda:0".

    Shapes:
        data    any
        result  as data, on that device
    """
    return replace(data, vdevice=dst_vdevice)


@register("relax.hint_on_device", pure=True)
def hint_on_device(
    data: TensorStructInfo, dst_vdevice: Device, memory_scope: str = "global"
) -> TensorStructInfo:
    """The tensor itself, which passes put on a device, as in `R.cuda(0)`.

    Shapes:
        data    any
        result  as data
    """
    return data
