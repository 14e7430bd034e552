"""Names of a module's functions: each its own, public ones that of their symbol."""

from __future__ import annotations

from relaxpy.errors import TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import GlobalVar


def normalize_global_names(mod: IRModule) -> IRModule:
    """The module with public functions under their symbols; itself if they are.

    A private function gives its name away to a public one and takes a new one.

    Errors:
        TransformError: two public functions have one symbol.
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
        name = public.get(var) or _free_name(var.name_hint, taken)
        taken.add(name)
        if name != var.name_hint:
            names[var] = name
    return mod.replace_global_vars(names) if names else mod


def _free_name(prefix: str, taken: set[str]) -> str:
    name, count = prefix, 0
    while name in taken:
        count += 1
        name = f"{prefix}{count}"
    return name
