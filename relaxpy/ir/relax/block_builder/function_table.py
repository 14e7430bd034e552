"""The functions of the module that a builder builds: each under its own name, equal ones once."""

from __future__ import annotations

from relaxpy.ir.equality.structural import structural_equal, structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc, GlobalVar


class FunctionTable:
    """The table of `mod`, with an index of its functions by structural hash.

    The index of a kind of function is made when the first one of the kind is searched for.
    """

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self._by_hash: dict[type[BaseFunc], dict[int, list[GlobalVar]]] = {}
        self._numbers: dict[str, int] = {}

    def set(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Store `func` under `gvar`, in place of a function that is there already."""
        self.mod[gvar] = func
        index = self._by_hash.get(type(func))
        if index is not None:
            index.setdefault(structural_hash(func), []).append(gvar)

    def equal_to(self, func: BaseFunc) -> GlobalVar | None:
        """The first, by name, of the structurally equal functions; None if there is none."""
        kind = type(func)
        if kind not in self._by_hash:
            index = self._by_hash[kind] = {}
            for gvar, known in self.mod.items():
                if type(known) is kind:
                    index.setdefault(structural_hash(known), []).append(gvar)
        candidates = self._by_hash[kind].get(structural_hash(func), ())
        equal = (v for v in candidates if v in self.mod and structural_equal(self.mod[v], func))
        return min(equal, key=lambda gvar: gvar.name_hint, default=None)

    def holds(self, gvar: GlobalVar, func: BaseFunc) -> bool:
        """Whether `gvar` stands for `func` or for a structurally equal function."""
        known = self.mod.find_function(gvar.name_hint)
        return known is func or (known is not None and structural_equal(known, func))

    def free_name(self, prefix: str) -> str:
        """`prefix`, with the first number after it that makes a name the module does not have."""
        name, count = prefix, self._numbers.get(prefix, 0)
        while name in self.mod:
            count += 1
            name = f"{prefix}{count}"
        self._numbers[prefix] = max(count - 1, 0)
        return name
