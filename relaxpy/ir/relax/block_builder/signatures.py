"""The signatures of the functions of a module, each derived when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.infer import function_sinfo, signature_of
from relaxpy.ir.relax.nodes import BaseFunc, Function, ObjectStructInfo, StructInfo


def declared_signature(func: BaseFunc) -> StructInfo:
    """The declared signature, which callers see before the body is derived (DER-1)."""
    if isinstance(func, Function):
        return signature_of(func)
    assert func.struct_info is not None
    return func.struct_info


def known_signature(func: BaseFunc) -> StructInfo:
    """The signature of a function, as far as it is known without deriving the body.

    Without an annotation, the declared result counts only if the body declares the same.
    """
    if not isinstance(func, Function) or func.ret_struct_info is not None:
        return declared_signature(func)
    derived = function_sinfo(func, func.body.struct_info or ObjectStructInfo())
    return derived if func.struct_info == derived else declared_signature(func)


class Signatures(MutableMapping[str, StructInfo]):
    """The signatures by name: those that were set, or else `signature` of the function in `mod`."""

    def __init__(
        self, mod: IRModule, signature: Callable[[BaseFunc], StructInfo] = known_signature
    ) -> None:
        self._mod = mod
        self._signature = signature
        self._known: dict[str, StructInfo] = {}

    @override
    def __getitem__(self, name: str) -> StructInfo:
        known = self._known.get(name)
        if known is None:
            func = self._mod.find_function(name)
            if func is None:
                raise KeyError(name)
            known = self._known[name] = self._signature(func)
        return known

    @override
    def __setitem__(self, name: str, sinfo: StructInfo) -> None:
        self._known[name] = sinfo

    @override
    def __delitem__(self, name: str) -> None:
        del self._known[name]

    @override
    def __iter__(self) -> Iterator[str]:
        yield from {v.name_hint: None for v in self._mod} | self._known

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)
