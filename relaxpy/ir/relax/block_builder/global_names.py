"""The names of the functions of a module: unique, and those of public functions their symbols."""

from __future__ import annotations

from relaxpy.errors import TransformError
from relaxpy.ir.link import free_name
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import GlobalVar


def normalize_global_names(mod: IRModule) -> IRModule:
    """The module with the symbols of public functions as their names; itself if they are already.

    A private function whose name is the symbol of a public one is renamed.

    Errors:
        TransformError: two public functions have the same symbol.
    """
    symbols = {var: func.attrs.get("global_symbol") for var, func in mod.items()}
    public = {var: str(symbol) for var, symbol in symbols.items() if symbol is not None}
    taken: set[str] = set()
    for name in public.values():
        if name in taken:
            raise TransformError(f"two public functions are called {name}", rule="SC-9")
        taken.add(name)
    names: dict[GlobalVar | str, GlobalVar | str] = {}
    for var in mod:
        name = public.get(var) or free_name(var.name_hint, taken)
        taken.add(name)
        if name != var.name_hint:
            names[var] = name
    return mod.replace_global_vars(names) if names else mod
