"""Sizes as files write them: `n`, `2*n`, `past + length`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from relaxpy.ir.tir.prim_expr import PrimExpr

#: The characters of the longest text that may be an expression.
_LONGEST = 200
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def expression(text: str, size: Callable[[str], PrimExpr | None]) -> PrimExpr | None:
    """The sum, difference, product or quotient of sizes that a text is; `/` rounds down.

    None where the text is not an expression, or `size` does not know one of its names.
    """
    if len(text) > _LONGEST:
        return None
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, size)
    except (SyntaxError, ValueError, MemoryError, RecursionError, _NotASizeError):
        return None
    return found if isinstance(found, PrimExpr) else None


class _NotASizeError(Exception):
    """The text has something else than sizes, numbers and arithmetic."""


def _value(tree: ast.expr, size: Callable[[str], PrimExpr | None]) -> PrimExpr | int:
    match tree:
        case ast.Name(id=name):
            known = size(name)
            if known is not None:
                return known
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, size), _value(right, size)
            if not (isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and b == 0):
                result: PrimExpr | int = _OPERATORS[type(op)](a, b)
                return result
    raise _NotASizeError
