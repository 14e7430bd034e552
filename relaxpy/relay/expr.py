"""Expressions, under the path of TVM."""

from relaxpy.ir.relay.bind import bind
from relaxpy.ir.relay.expr import (
    Call,
    Constant,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    RelayExpr as Expr,
    TempExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)

__all__ = [
    "Call",
    "Constant",
    "Expr",
    "GlobalVar",
    "If",
    "Let",
    "RefCreate",
    "RefRead",
    "RefWrite",
    "RelayExpr",
    "TempExpr",
    "Tuple",
    "TupleGetItem",
    "Var",
    "bind",
    "const",
    "var",
]
