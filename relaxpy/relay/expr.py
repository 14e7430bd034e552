"""Expressions, under the path of TVM."""

from relaxpy.ir.relay.bind import bind as bind
from relaxpy.ir.relay.expr import (
    Call as Call,
    Constant as Constant,
    GlobalVar as GlobalVar,
    If as If,
    Let as Let,
    RefCreate as RefCreate,
    RefRead as RefRead,
    RefWrite as RefWrite,
    RelayExpr as RelayExpr,
    TempExpr as TempExpr,
    Tuple as Tuple,
    TupleGetItem as TupleGetItem,
    Var as Var,
    const as const,
    var as var,
)

Expr = RelayExpr
