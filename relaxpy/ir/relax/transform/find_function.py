"""The function that an option of a pass names."""

from __future__ import annotations

from relaxpy.errors import TransformError, UnknownNameError, close_names, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Function, GlobalVar


def name_of_function(func_name: object, option: str = "func_name") -> str:
    """The name that an option gives as a string or as a GlobalVar.

    Errors:
        MisuseError (also TypeError, ValueError): it is neither.
    """
    if isinstance(func_name, GlobalVar):
        return func_name.name_hint
    if isinstance(func_name, str):
        return func_name
    raise unexpected(func_name, f"{option} names a function")


def find_function(mod: IRModule, func_name: object, pass_name: str) -> tuple[str, Function]:
    """The Relax function that `func_name` names, for the pass `pass_name`, and the name.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        TransformError: it is not a Relax function.
    """
    name = name_of_function(func_name)
    func = mod.functions_by_name.get(name)
    if func is None:
        raise UnknownNameError(
            f"{pass_name}: the module has no function {name!r:.60}",
            hint=close_names(name, mod.functions_by_name),
            about=func_name,
        )
    if not isinstance(func, Function):
        raise TransformError(f"{pass_name}: {name} is not a Relax function", about=func)
    return name, func
