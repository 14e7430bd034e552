"""The native back end for whole modules: kernels, and Relax functions that only call these."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.exec.graph.emit import GraphEmitter, constants_name
from relaxpy.exec.graph.program import Graph
from relaxpy.exec.graph.read import GraphReader
from relaxpy.exec.lower.scope import ModuleContext
from relaxpy.exec.native.backend import NativeBackend
from relaxpy.exec.native.entry import entry_name, make_entry
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.interpreter import PYTHON, fits_interpreter
from relaxpy.exec.native.objects import Library
from relaxpy.ir.relax import nodes as rx


class GraphBackend(NativeBackend):
    """Compiles the PrimFuncs and the Relax functions of one module."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[str, tuple[str, Graph]] = {}
        """The functions of Relax functions that run natively, by the name in the module."""

    def compile_graph(self, context: ModuleContext, func: rx.Function, name: str) -> bool:
        """Compile a Relax function; whether it has a native form."""
        if not fits_interpreter():
            return False
        signatures = {name: signature for name, (_, signature) in self.claimed.items()}
        kernels = {name: symbol for name, (symbol, _) in self.claimed.items()}
        symbol = f"graph{len(self.graphs)}"
        before = self.module.copy()
        try:
            reader = GraphReader(func, context.callee, signatures, context.is_reshape)
            graph = reader.read()
            GraphEmitter(self.module, symbol, graph, kernels).emit()
        except (RefusedError, RecursionError):
            self.module = before
            return False
        self.graphs[name] = symbol, graph
        return True

    def link_graphs(
        self, fallbacks: Mapping[str, Callable[..., Any]]
    ) -> tuple[Mapping[str, Callable[..., Any]], str]:
        """The compiled Relax functions by name, which leave what they refuse to `fallbacks`.

        If there is a reason why they run as the text says all the same, there are none.
        """
        linked: dict[str, Callable[..., Any]] = {}

        def link() -> None:
            for name, (symbol, graph) in self.graphs.items():
                linked[name] = self._linked(self.library(), symbol, graph, fallbacks[name])

        problem = self.attempt(link)
        return ({} if problem else linked), problem

    def _linked(
        self, library: Library, symbol: str, graph: Graph, fallback: Callable[..., Any]
    ) -> Callable[..., Any]:
        constants = [np.require(data, requirements=["C", "A"]) for data in graph.constants]
        if constants:
            table = library[constants_name(symbol)]
            for index, data in enumerate(constants):
                ctypes.c_uint64.from_address(table + 8 * index).value = data.ctypes.data
        kept = _Fallback(fallback, constants)
        return make_entry(library, symbol, graph.params, kept)

    @override
    def exports(self) -> list[str]:
        names = super().exports()
        for symbol, graph in self.graphs.values():
            names += [symbol, entry_name(symbol), PYTHON]
            names += [constants_name(symbol)] if graph.constants else []
        return names


class _Fallback:
    """The Python function that takes over, and the constants, which live as long as it does."""

    __slots__ = ("constants", "function")

    def __init__(self, function: Callable[..., Any], constants: list[np.ndarray[Any, Any]]) -> None:
        self.function, self.constants = function, constants

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)
