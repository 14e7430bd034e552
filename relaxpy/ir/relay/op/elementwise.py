"""Elementwise operators, unary and binary, with and without broadcasting (RLY-24, RLY-102)."""

from __future__ import annotations

from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx, op as relax_op
from relaxpy.ir.relay.op.define import define
from relaxpy.ir.relay.op.registry import Translate

_UNARY = """
    abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log negative round rsqrt
    sigmoid sign sin sinh sqrt tan tanh trunc bitwise_not logical_not zeros_like ones_like
"""
_BINARY = """
    add subtract multiply divide floor_divide power mod floor_mod maximum minimum
    left_shift right_shift logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
"""
_COMPARISONS = "equal not_equal less less_equal greater greater_equal"


def _of(name: str) -> Translate:
    """Return the translation to the Relax operator of this name, without attributes."""
    function = getattr(relax_op, name)

    def translate(args: tuple[rx.Expr, ...], attrs: Attrs) -> rx.Expr:
        expr: rx.Expr = function(*args)
        return expr

    return translate


for _name in _UNARY.split():
    define(_name, "data", _of(_name), relation="Identity")
for _name in _BINARY.split():
    define(_name, "lhs rhs", _of(_name), relation="Broadcast")
for _name in _COMPARISONS.split():
    define(_name, "lhs rhs", _of(_name), relation="BroadcastComp")
