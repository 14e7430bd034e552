"""Graph-level expressions, bindings and blocks, and the conversion of Python values to them."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import (
        Binding as Binding,
        BindingBlock as BindingBlock,
        Call as Call,
        Constant as Constant,
        DataflowBlock as DataflowBlock,
        DataflowVar as DataflowVar,
        DataTypeImm as DataTypeImm,
        Expr as Expr,
        ExternFunc as ExternFunc,
        Function as Function,
        GlobalVar as GlobalVar,
        Id as Id,
        If as If,
        MatchCast as MatchCast,
        PrimValue as PrimValue,
        PrimValue as prim_value,
        SeqExpr as SeqExpr,
        ShapeExpr as ShapeExpr,
        StringImm as StringImm,
        Tuple as Tuple,
        TupleGetItem as TupleGetItem,
        Var as Var,
        VarBinding as VarBinding,
        const as const,
        convert_to_expr as convert_to_expr,
    )
    from relaxpy.ir.relax.rewrite.update import (
        update_struct_info as _update_struct_info,
        update_struct_info as update_struct_info,
    )
    from relaxpy.ir.relax.shapes import get_shape_of as get_shape_of, make_shape as make_shape
    from relaxpy.ir.relax.utils import extern as extern
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.nodes: Binding BindingBlock Call Constant DataflowBlock DataflowVar DataTypeImm
            Expr ExternFunc Function GlobalVar Id If MatchCast PrimValue SeqExpr ShapeExpr StringImm
            Tuple TupleGetItem Var VarBinding const convert_to_expr prim_value=PrimValue
        relaxpy.ir.relax.rewrite.update: update_struct_info _update_struct_info=update_struct_info
        relaxpy.ir.relax.shapes: get_shape_of make_shape
        relaxpy.ir.relax.utils: extern
        """,
    )
