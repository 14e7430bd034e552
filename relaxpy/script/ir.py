"""`I`: the directives of modules."""

from __future__ import annotations

import sys as _sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from relaxpy.errors import check_type, unexpected
from relaxpy.ir import global_info as _infos
from relaxpy.ir.tir.iteration import Range
from relaxpy.script.language import records as _records
from relaxpy.script.language.records import dynamic, meta_var
from relaxpy.script.language.wording import unknown_member as _unknown_member
from relaxpy.script.parser.decorate import (
    DecoratesClass as _DecoratesClass,
    ModuleDecorator as _ModuleDecorator,
)
from relaxpy.support.entry import user_facing as _user_facing

ir_module: _DecoratesClass = _ModuleDecorator()
pyfunc = _records.PythonOptions()
dummy_global_info = _infos.DummyGlobalInfo
vdevice = _infos.VDevice

__all__ = [
    "Range",
    "dummy_global_info",
    "dynamic",
    "ir_module",
    "lookup_vdevice",
    "meta_var",
    "module_attrs",
    "module_global_infos",
    "pyfunc",
    "vdevice",
]


if not TYPE_CHECKING:  # it would make a type checker accept every name

    @_user_facing
    def __getattr__(name):
        raise _unknown_member(_sys.modules[__name__], "I", name)


@_user_facing
def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> _records.DeviceForm:
    """The device of this kind and number in the module's list; without a kind, of all devices."""
    check_type(target_kind, str | None, "a device's kind is a string")
    if isinstance(device_index, bool) or not isinstance(device_index, int):
        raise unexpected(device_index, "a device has a number")
    return _records.DeviceForm(target_kind or "vdevice", max(device_index, 0))


@_user_facing
def module_attrs(attrs: Mapping[str, object], allow_overwrite: bool = False) -> _records.AttrsForm:
    """Set attributes of the module; with `allow_overwrite`, they replace existing ones."""
    check_type(allow_overwrite, bool, "allow_overwrite is True or False")
    return _records.AttrsForm("module", _records.attributes(attrs), allow_overwrite)


@_user_facing
def module_global_infos(global_infos: Mapping[str, Sequence[object]]) -> _records.GlobalInfosForm:
    """Add global infos to the module: lists by name."""
    if not isinstance(global_infos, Mapping) or not all(
        isinstance(key, str) for key in global_infos
    ):
        raise unexpected(global_infos, "global infos are a dict of lists keyed by strings")
    for listed in global_infos.values():
        check_type(listed, (tuple, list), "global infos are in a list")
    return _records.GlobalInfosForm({name: tuple(listed) for name, listed in global_infos.items()})
