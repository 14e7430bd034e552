"""The normal form and the struct info of whole functions and modules (DER-1, DER-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Final

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.memo import NodeTable
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.emitter import Emitter
from relaxpy.ir.relax.block_builder.function_table import (
    Signatures,
    declared_signature,
    known_signature,
)
from relaxpy.ir.relax.block_builder.normalize import Normalizer, StrongerAnnotations
from relaxpy.ir.relax.call_graph import call_graph, mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, Function, StructInfo
from relaxpy.support.gc_pause import gc_paused

_NORMAL: Final[NodeTable[dict[str, object]]] = NodeTable()
"""Functions in normal form, with the signatures that they were derived from."""


class _RuleBuilder(BlockBuilder):
    """The builder for rules of operators: their bindings are added to those of a normaliser."""

    def __init__(self, mod: IRModule, normalizer: Normalizer) -> None:
        super().__init__(mod)
        self._out, self._normalizer = normalizer.out, normalizer


def _emitter_for(
    mod: IRModule, signature: Callable[[BaseFunc], StructInfo] = known_signature
) -> Emitter:
    """An emitter for functions of a module, which call others by their signatures."""
    out = Emitter(mod, Signatures(mod, signature))
    out.ctx.closed = True
    return out


def _environment(func: Function, mod: IRModule, out: Emitter) -> dict[str, object]:
    """Dependencies of a normal form: the functions that it mentions, and rules of operators."""
    signatures = out.ctx.signatures
    environment: dict[str, object] = {
        name: (signatures.get(name), type(mod.find_function(name)))
        for name in mentioned_globals(func)
    }
    environment[""] = Op.normalizations
    return environment


def _normalized(
    func: Function, mod: IRModule, out: Emitter, stronger: StrongerAnnotations | None = None
) -> Function:
    """The function in normal form: itself if it was derived from the same signatures before."""
    environment = _environment(func, mod, out)
    if _NORMAL.get(func) != environment:
        normalizer = Normalizer(out, stronger)
        normalizer.builder = cache(partial(_RuleBuilder, mod, normalizer))
        func = normalizer.function(func)
        normalizer.builder = None  # which refers to it
        _NORMAL[func] = environment
    return func


def normalize_functions(
    mod: IRModule, *, suppress_warnings: bool = False, stronger: StrongerAnnotations | None = None
) -> Iterator[tuple[str, Function, Function | RelaxpyError]]:
    """Each Relax function of the module with its normal form, or with the error of it.

    Callees precede their callers, which see the derived signatures (DER-2); in a cycle, functions
    see the declared ones. `stronger` receives a diagnostic for each node that declares more
    than can be derived.
    """
    out = _emitter_for(mod, declared_signature)
    out.ctx.suppress_warnings = suppress_warnings
    for group in _callees_first(mod):
        signatures: dict[str, StructInfo] = {}
        for name in group:
            func = mod.find_function(name)
            assert isinstance(func, Function)
            try:
                result = _normalized(func, mod, out, stronger)
            except RelaxpyError as error:
                yield name, func, error
                continue
            assert result.struct_info is not None
            signatures[name] = result.struct_info
            yield name, func, result
        for name, sinfo in signatures.items():
            out.declare_global(name, sinfo)


def _callees_first(mod: IRModule) -> list[tuple[str, ...]]:
    """The Relax functions of a module, in groups that may call each other."""
    functions = [name for name, f in mod.functions_by_name.items() if isinstance(f, Function)]
    return strongly_connected(call_graph(mod)) if len(functions) > 1 else [tuple(functions)]


@gc_paused
def normalize_module(mod: IRModule) -> IRModule:
    """The module in normal form with all struct info derived; itself if it is so already.

    Errors:
        StructInfoError, WellFormedError: some function has no normal form.
    """
    result = mod
    for name, func, normal in normalize_functions(mod):
        if isinstance(normal, RelaxpyError):
            raise normal
        if normal is not func:
            result = mod.clone() if result is mod else result
            result[name] = normal
    return result


def normalize_function(func: Function, mod: IRModule | None = None) -> Function:
    """The function in normal form with all struct info derived; `mod` has the functions it calls.

    Errors:
        StructInfoError, WellFormedError: it has no normal form.
    """
    mod = mod or IRModule()
    return _normalized(func, mod, _emitter_for(mod))
