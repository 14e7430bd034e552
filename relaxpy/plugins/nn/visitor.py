"""Mutator: replaces nodes of a model."""

from __future__ import annotations

from typing import Any

from relaxpy.plugins.nn.core import Effect, Parameter
from relaxpy.plugins.nn.module import Module, ModuleDict, ModuleList, ParameterDict, ParameterList
from relaxpy.plugins.nn.tree import Branch


class Mutator:
    """Visits a model; the result of a method replaces the node that it was called with.

    A subclass overrides methods for the kinds of nodes that it replaces. `visit` continues with
    the children. Names are paths, such as `layers.0.weight`.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """Return the replacement of a module that is not a collection."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """Return the replacement of an effect."""
        return self.visit(name, node)

    def visit_param(self, name: str, node: Parameter) -> Any:
        """Return the replacement of a parameter."""
        return self.visit(name, node)

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """Return the replacement of a ModuleDict."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """Return the replacement of a ModuleList."""
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """Return the replacement of a ParameterDict."""
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """Return the replacement of a ParameterList."""
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Replace the children of `node`, and return it."""
        if isinstance(node, Branch):
            for item_name, item in node.items_by_name():
                path = f"{name}.{item_name}" if name else item_name
                replacement = self._visit_item(path, item)
                if replacement is not item:
                    node.replace_item(item_name, replacement)
        return node

    def _visit_item(self, path: str, item: Any) -> Any:
        match item:
            case ParameterDict():
                return self.visit_parameterdict(path, item)
            case ParameterList():
                return self.visit_parameterlist(path, item)
            case ModuleDict():
                return self.visit_moduledict(path, item)
            case ModuleList():
                return self.visit_modulelist(path, item)
            case Module():
                return self.visit_module(path, item)
            case Effect():
                return self.visit_effect(path, item)
            case Parameter():
                return self.visit_param(path, item)
            case _:
                return item
