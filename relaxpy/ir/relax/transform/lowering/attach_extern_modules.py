"""AttachExternModules: functions from outside of the program are made available to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir import hooks
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.support.dataclass import dataclass

_ATTRIBUTE: Final = "external_mods"


@dataclass(frozen=True)
class AttachExternModules(Pass):
    """Registers the functions of extern modules as packed functions, which the module lists.

    An extern module is a table of Python functions by name, or an object whose method `load`
    returns one. The attribute `external_mods` of the module has the names.

    Errors:
        MisuseError (also TypeError): an item is neither a table of functions nor loads one.
        PackedFuncError (also ValueError): another function is registered under a name.
    """

    extern_modules: Sequence[Any]

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        present = cast("Sequence[str]", mod.get_attr(_ATTRIBUTE) or ())
        names = dict.fromkeys(present)
        known = len(names)
        for extern in self.extern_modules:
            for name, function in _functions(extern).items():
                if hooks.call("packed_function", name, True) is not function:
                    hooks.call("register_packed", name, function)
                names[name] = None
        return mod if len(names) == known else mod.with_attr(_ATTRIBUTE, tuple(names))


def _functions(extern: object) -> Mapping[str, Callable[..., Any]]:
    """The functions of an extern module by name."""
    load = getattr(extern, "load", None)
    table = load() if callable(load) else extern
    if not isinstance(table, Mapping) or not all(map(callable, table.values())):
        raise MisuseError(
            f"an extern module is a table of functions by name, found {table!r:.60}",
            hint='write {"name": function}, or pass an object whose method load returns that',
            about=extern,
        )
    return table
