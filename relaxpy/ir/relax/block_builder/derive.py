"""Normalisation and derivation of whole functions and modules, callees first (DER-1, DER-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.gc_pause import gc_paused
from relaxpy.ir.core.memo import NodeTable
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.claims import FalseClaims
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.block_builder.normalize import Normalizer
from relaxpy.ir.relax.block_builder.signatures import Signatures, known_signature, text_signature
from relaxpy.ir.relax.call_graph import call_graph, mentioned_globals, strongly_connected
from relaxpy.ir.relax.nodes import BaseFunc, Function, StructInfo

_NORMAL: Final[NodeTable[dict[str, object]]] = NodeTable()
"""The functions in normal form, with the environment in which they were derived."""


def _emitter_for(
    mod: IRModule, signature: Callable[[BaseFunc], StructInfo] = known_signature
) -> Emitter:
    """An emitter that knows the functions of a module by their signatures."""
    out = Emitter(mod, Signatures(mod, signature))
    out.ctx.closed = True
    return out


def _environment(func: Function, mod: IRModule, out: Emitter) -> dict[str, object]:
    """Everything outside a function that its normal form depends on: what it mentions is."""
    signatures = out.ctx.signatures
    return {
        name: (signatures.get(name), type(mod.find_function(name)))
        for name in mentioned_globals(func)
    }


def _normalized(
    func: Function, mod: IRModule, out: Emitter, false_claims: FalseClaims | None = None
) -> Function:
    """The function in normal form: itself if it was found so among functions like those of `mod`.

    Errors:
        StructInfoError, WellFormedError: it has no normal form.
    """
    environment = _environment(func, mod, out)
    if _NORMAL.get(func) != environment:
        func = Normalizer(out, false_claims).function(func)
        _NORMAL[func] = environment
    return func


def normalize_functions(
    mod: IRModule, *, suppress_warnings: bool = False, false_claims: FalseClaims | None = None
) -> Iterator[tuple[str, Function, Function | RelaxpyError]]:
    """Each Relax function of the module with its normal form, or with why it has none.

    Functions come after those that they mention where there is no cycle, so that every use sees
    what was derived (DER-2); inside a cycle, what their texts say is used. `suppress_warnings`
    keeps warnings back. `false_claims` collects what nodes declare and derivation does not confirm.
    """
    out = _emitter_for(mod, text_signature)
    out.ctx.suppress_warnings = suppress_warnings
    for group in _callees_first(mod):
        signatures: dict[str, StructInfo] = {}
        for name in group:
            func = mod[name]
            assert isinstance(func, Function)
            try:
                found = _normalized(func, mod, out, false_claims)
            except RelaxpyError as error:
                yield name, func, error
                continue
            assert found.struct_info is not None
            signatures[name] = found.struct_info
            yield name, func, found
        for name, info in signatures.items():
            out.declare_global(name, info)


def _callees_first(mod: IRModule) -> list[tuple[str, ...]]:
    """The Relax functions of a module, in groups that may call each other."""
    functions = [name for name, f in mod.functions_by_name.items() if isinstance(f, Function)]
    return strongly_connected(call_graph(mod)) if len(functions) > 1 else [tuple(functions)]


@gc_paused
def normalize_module(mod: IRModule) -> IRModule:
    """The module in normal form with every info derived; itself if it is so already.

    Errors:
        StructInfoError, WellFormedError: some function has no normal form.
    """
    changed: dict[str, Function] = {}
    for name, func, found in normalize_functions(mod):
        if isinstance(found, RelaxpyError):
            raise found
        if found is not func:
            changed[name] = found
    if not changed:
        return mod
    result = mod.clone()
    for name, func in changed.items():
        result[name] = func
    return result


def normalize_function(func: Function, mod: IRModule | None = None) -> Function:
    """The function in normal form with every info derived; `mod` knows what it calls.

    Errors:
        StructInfoError, WellFormedError: it has no normal form.
    """
    mod = mod or IRModule()
    return _normalized(func, mod, _emitter_for(mod))
