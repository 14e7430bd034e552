"""Graph-level expressions, bindings and blocks, and the conversion of Python values to them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.expr")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import Binding as Binding, BindingBlock as BindingBlock, Call as Call, Constant as Constant, DataTypeImm as DataTypeImm, DataflowBlock as DataflowBlock, DataflowVar as DataflowVar, Expr as Expr, ExternFunc as ExternFunc, Function as Function, GlobalVar as GlobalVar, Id as Id, If as If, MatchCast as MatchCast, PrimValue as PrimValue, SeqExpr as SeqExpr, ShapeExpr as ShapeExpr, StringImm as StringImm, Tuple as Tuple, TupleGetItem as TupleGetItem, Var as Var, VarBinding as VarBinding, const as const, convert_to_expr as convert_to_expr
    from relaxpy.ir.relax.nodes import PrimValue as prim_value
    from relaxpy.tvm.relax.helpers import extern as extern, get_shape_of as get_shape_of, make_shape as make_shape, update_struct_info as update_struct_info
    from relaxpy.tvm.relax.helpers import update_struct_info as _update_struct_info
    __all__ = ['Binding', 'BindingBlock', 'Call', 'Constant', 'DataTypeImm', 'DataflowBlock', 'DataflowVar', 'Expr', 'ExternFunc', 'Function', 'GlobalVar', 'Id', 'If', 'MatchCast', 'PrimValue', 'SeqExpr', 'ShapeExpr', 'StringImm', 'Tuple', 'TupleGetItem', 'Var', 'VarBinding', '_update_struct_info', 'const', 'convert_to_expr', 'extern', 'get_shape_of', 'make_shape', 'prim_value', 'update_struct_info']
