"""`I` for an IRBuilder: frames and statements of modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.errors import BuilderStateError
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax.nodes import BaseFunc, GlobalVar
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.script import ir as _namespace
from relaxpy.script.ir import Range, dummy_global_info, vdevice
from relaxpy.script.ir_builder.base import IRBuilder
from relaxpy.script.ir_builder.frames import IRModuleFrame
from relaxpy.script.ir_builder.ir import frame as frame
from relaxpy.support.entry import user_facing

__all__ = [
    "Range",
    "decl_function",
    "def_function",
    "dummy_global_info",
    "ir_module",
    "lookup_vdevice",
    "module_attrs",
    "module_get_attr",
    "module_get_attrs",
    "module_global_infos",
    "module_set_attr",
    "vdevice",
]


def _module(directive: str) -> IRModuleFrame:
    module = IRBuilder.current().innermost(IRModuleFrame)
    if module is None:
        raise BuilderStateError(f"{directive} belongs directly in with I.ir_module():")
    return module


def ir_module() -> IRModuleFrame:
    """A module: `with I.ir_module():`."""
    return IRModuleFrame()


@user_facing
def decl_function(func_name: str, func_signature: BaseFunc) -> GlobalVar:
    """Declare a function that is defined later; the body of `func_signature` is ignored.

    Errors:
        BuilderStateError: the module has a function of this name.
    """
    return _module("I.decl_function").declare(func_name, func_signature)


@user_facing
def def_function(func_name: str, func: BaseFunc) -> None:
    """Add a function to the module.

    Errors:
        BuilderStateError: the module has a definition of this name.
    """
    _module("I.def_function").define(func_name, func)


@user_facing
def module_attrs(attrs: Mapping[str, object], allow_overwrite: bool = False) -> None:
    """Set attributes of the module; with `allow_overwrite`, they replace existing ones.

    Errors:
        BuilderStateError: it has attributes already, and `allow_overwrite` is False.
    """
    form = _namespace.module_attrs(attrs, allow_overwrite)
    _module("I.module_attrs").apply(form, None)


@user_facing
def module_get_attrs() -> Mapping[str, object]:
    """The attributes of the module so far."""
    return dict(_module("I.module_get_attrs").attrs)


@user_facing
def module_get_attr(attr_key: str) -> object:
    """An attribute of the module, or None."""
    check_name(attr_key, "a key")
    return _module("I.module_get_attr").attrs.get(attr_key)


@user_facing
def module_set_attr(attr_key: str, attr_value: object, allow_overwrite: bool = False) -> None:
    """Set an attribute of the module.

    Errors:
        BuilderStateError: it has this attribute already, and `allow_overwrite` is False.
    """
    check_name(attr_key, "a key")
    form = _namespace.module_attrs({attr_key: attr_value}, allow_overwrite)
    module = _module("I.module_set_attr")
    if attr_key in module.attrs and not form.overwrite:
        raise BuilderStateError(f"attribute {attr_key!r} of the module is set twice")
    module.attrs |= form.attrs


@user_facing
def module_global_infos(global_infos: Mapping[str, Sequence[object]]) -> None:
    """Add global infos to the module: lists by name.

    Errors:
        BuilderStateError: the module has global infos.
    """
    form = _namespace.module_global_infos(global_infos)
    _module("I.module_global_infos").apply(form, None)


@user_facing
def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> VDevice:
    """The device of this kind and number in the module's list; without a kind, of all devices.

    Errors:
        MisuseError: there is no such device.
    """
    form = _namespace.lookup_vdevice(target_kind, device_index)
    for outermost in IRBuilder.current().frames[:1]:
        if isinstance(outermost, IRModuleFrame):
            return outermost.devices.find(f"{form.kind}:{form.number}")
    raise BuilderStateError("I.lookup_vdevice belongs in with I.ir_module():")
