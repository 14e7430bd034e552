"""Shares equal expressions."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class EliminateCommonSubexpr(RelayPass):
    """Share the calls of operators that have the same operands and equal attributes.

    Projections and tuples of the same operands are shared too. Operators with state are not, and
    neither are expressions for which `fskip` returns True.
    """

    fskip: Callable[[rl.RelayExpr], bool] | None = None

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_functions(mod, self._shared)

    def _shared(self, function: rl.Function) -> rl.RelayExpr:
        table: dict[Hashable, list[rl.RelayExpr]] = {}

        def rule(node: Node) -> Node | None:
            key = _key(node)
            if key is None or not isinstance(node, rl.RelayExpr):
                return None
            if self.fskip is not None and self.fskip(node):
                return None
            equals = table.setdefault(key, [])
            for known in equals:
                if not isinstance(node, rl.Call) or _same_attributes(node, known):
                    return known
            equals.append(node)
            return None

        return rl.rewrite(function, rule)


def _key(node: Node) -> Hashable:
    """Return what equal expressions have in common; None for those that are not shared.

    The expressions of the table keep their operands alive, so that identities are unique.
    """
    match node:
        case rl.Call(op=Op() as op, args=args):
            return (op.name, *map(_operand_key, args))
        case rl.TupleGetItem(tuple_value=value, index=index):
            return (index, id(value))
        case rl.Tuple(fields=fields):
            return ("tuple", *map(_operand_key, fields))
        case _:
            return None


def _operand_key(operand: rl.RelayExpr) -> Hashable:
    """Return the number of a scalar constant, or the identity of another operand."""
    if isinstance(operand, rl.Constant) and operand.is_scalar:
        return str(operand.data.dtype), np.asarray(operand.data).tobytes()
    return id(operand)


def _same_attributes(one: rl.Call, other: rl.RelayExpr) -> bool:
    assert isinstance(other, rl.Call)
    a, b = (rl.Call(one.op, (), call.attrs) for call in (one, other))
    return one.type_args == other.type_args and structural_equal(a, b)
