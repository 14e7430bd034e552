"""What passes that rewrite calls of operators share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.node import Node
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions
from relaxpy.ir.relay.ty import TensorType, Type


@dataclass(frozen=True)
class CallRewriter(RelayPass):
    """The base class of passes that replace calls of operators, until none is replaced."""

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        def rewritten(function: rl.Function) -> rl.RelayExpr:
            uses = Uses(function)
            return rl.rewrite(function, lambda node: _of_call(node, self, uses))

        new = mod
        while True:
            typed = infer_module(new)
            result = map_functions(typed, rewritten)
            if result is typed:
                return new
            new = result

    @abstractmethod
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        """Return what replaces the call of an operator; None if it stays."""


def _of_call(node: Node, step: CallRewriter, uses: Uses) -> Node | None:
    if not isinstance(node, rl.Call) or not isinstance(node.op, Op):
        return None
    new = step.rewritten(node, node.op.name, uses)
    return new.with_type(node.checked_type) if new and not new.checked_type_ else new


class Uses:
    """How often the expressions of a function are used."""

    def __init__(self, root: rl.RelayExpr) -> None:
        self._scopes = Scopes(root)

    def is_single(self, expr: rl.RelayExpr) -> bool:
        """Return whether an expression of the original function has one use."""
        return self._scopes.uses.get(id(expr), 0) == 1


def called(expr: rl.RelayExpr, *names: str) -> bool:
    """Return whether an expression is the call of one of these operators."""
    return isinstance(expr, rl.Call) and isinstance(expr.op, Op) and expr.op.name in names


def attributes(call: rl.RelayExpr) -> Mapping[str, Any]:
    """Return all attributes of the call of an operator."""
    assert isinstance(call, rl.Call)
    assert isinstance(call.op, Op)
    return call.op.record.text_attrs(call.attrs)


def typed(ty: Type | None, operator: str, *operands: Any, **attrs: Any) -> rl.Call:
    """Return the call of an operator whose type is known."""
    call = build(operator, *operands, **attrs)
    return call if ty is None else call.with_type(ty)


def known_shape(ty: Type | None) -> tuple[int, ...] | None:
    """Return the shape of a tensor type whose dimensions are known."""
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        return None
    known = tuple(dim for dim in ty.shape if isinstance(dim, int))
    return known if len(known) == len(ty.shape) else None


def shape_of(expr: rl.RelayExpr) -> tuple[int, ...] | None:
    """Return the shape of an expression, if its dimensions are known."""
    return known_shape(expr.checked_type_)


def keeps_elements(transform: rl.RelayExpr) -> bool:
    """Return whether a `layout_transform` moves elements only; others pad blocks with zeros."""
    assert isinstance(transform, rl.Call)
    old, new = shape_of(transform.args[0]), shape_of(transform)
    if old is not None and new is not None:
        return prod(old) == prod(new)
    attrs = attributes(transform)
    return bool((attrs["src_layout"] + attrs["dst_layout"]).isalpha())


def numbers(value: Any) -> list[int]:
    """Return an attribute that is a number or a list of numbers as a list."""
    return [int(v) for v in (value if isinstance(value, tuple) else (value,))]
