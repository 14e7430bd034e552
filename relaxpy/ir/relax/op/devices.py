"""Operators that say on which device a tensor lives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from relaxpy.ir.core.device import Device, device, split_device
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.ir.relax.op.registry import register


def _resolve_vdevice(arguments: dict[str, Any]) -> None:
    """A string stands for the device of that kind and number."""
    given = arguments["dst_vdevice"]
    if isinstance(given, str):
        arguments["dst_vdevice"] = VDevice(*split_device(given))


@register("relax.to_vdevice", pure=True, adapt=_resolve_vdevice)
def to_vdevice(data: TensorStructInfo, dst_vdevice: VDevice) -> TensorStructInfo:
    """The tensor on another device; a string names it, as in "cuda:0".

    Shapes:
        data    any
        result  as data, on that device
    """
    return replace(data, vdevice=dst_vdevice)


def _resolve_device(arguments: dict[str, Any]) -> None:
    """A string stands for the device of that kind and number."""
    given = arguments["dst_vdevice"]
    if isinstance(given, str):
        arguments["dst_vdevice"] = device(given)


@register("relax.hint_on_device", pure=True, adapt=_resolve_device)
def hint_on_device(
    data: TensorStructInfo, dst_vdevice: Device, memory_scope: str = "global"
) -> TensorStructInfo:
    """The tensor itself, which passes are asked to put on a device, as in `R.cuda(0)`.

    Shapes:
        data    any
        result  as data
    """
    return data
