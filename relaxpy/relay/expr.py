"""Expressions, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.expr")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.expr import Call as Call, Constant as Constant, GlobalVar as GlobalVar, If as If, Let as Let, RefCreate as RefCreate, RefRead as RefRead, RefWrite as RefWrite, RelayExpr as RelayExpr, TempExpr as TempExpr, Tuple as Tuple, TupleGetItem as TupleGetItem, Var as Var, const as const, var as var
    from relaxpy.plugins.relay.expr import RelayExpr as Expr
    from relaxpy.plugins.relay.functors import bind as bind
    __all__ = ['Call', 'Constant', 'Expr', 'GlobalVar', 'If', 'Let', 'RefCreate', 'RefRead', 'RefWrite', 'RelayExpr', 'TempExpr', 'Tuple', 'TupleGetItem', 'Var', 'bind', 'const', 'var']
