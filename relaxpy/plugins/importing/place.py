"""The place where a node is converted, as far as importers have it in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from relaxpy.ir.relax.nodes import Expr, Var


class Place(Protocol):
    """The interface that shared conversions need from an importer's context."""

    def emit(self, expr: Expr, name: str = "") -> Var:
        """Bind an expression."""

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> Expr:
        """A call of the kernel that `function` makes of tensor expressions."""
