"""The functions that create patterns: `is_op`, `wildcard`, and the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from relaxpy.errors import check_type
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.entry import user_facing

Args: TypeAlias = Sequence[dp.DFPattern] | dp.TuplePattern


def wildcard() -> dp.WildcardPattern:
    """The wildcard pattern."""
    return dp.WildcardPattern()


@user_facing
def is_var(name: str = "") -> dp.VarPattern:
    """The pattern of a local variable, of this name unless it is empty."""
    return dp.VarPattern(name)


@user_facing
def is_dfv(name: str = "") -> dp.DataflowVarPattern:
    """The pattern of a DataflowVar, of this name unless it is empty."""
    return dp.DataflowVarPattern(name)


@user_facing
def is_gv(name: str = "") -> dp.GlobalVarPattern:
    """The pattern of a global variable, of this name unless it is empty."""
    return dp.GlobalVarPattern(name)


def is_const() -> dp.ConstantPattern:
    """The pattern of a tensor literal."""
    return dp.ConstantPattern()


@user_facing
def is_expr(expr: Expr | Op) -> dp.ExprPattern:
    """The pattern of expressions that are structurally equal to `expr`."""
    return dp.ExprPattern(expr)


@user_facing
def is_op(op_name: str) -> dp.ExprPattern:
    """The pattern of an operator; a call of it is `is_op(name)(...)`.

    Errors:
        UnknownNameError (also KeyError, ValueError): no operator is registered under the name.
    """
    return dp.ExprPattern(Op.get(op_name))


@user_facing
def is_tuple(
    fields: Sequence[dp.DFPattern], unordered: bool = False
) -> dp.TuplePattern | dp.UnorderedTuplePattern:
    """The pattern of a tuple of these fields, in any order if `unordered`."""
    kind = dp.UnorderedTuplePattern if unordered else dp.TuplePattern
    return kind(fields)  # type: ignore[arg-type]


@user_facing
def is_tuple_get_item(
    tuple_value: dp.DFPattern, index: int | None = None
) -> dp.TupleGetItemPattern:
    """The pattern of field `index` of a tuple, or of any field for None."""
    return dp.TupleGetItemPattern(tuple_value, index)


@user_facing
def is_shape(shape: Sequence[PrimExpr | int]) -> dp.PrimArrPattern:
    """The pattern of a shape with provably these dimensions; `has_shape` is for tensors."""
    return dp.PrimArrPattern(shape)  # type: ignore[arg-type]


@user_facing
def has_dtype(dtype: str, pattern: dp.DFPattern | None = None) -> dp.DataTypePattern:
    """The pattern of tensors of this datatype that `pattern` matches."""
    return dp.DataTypePattern(wildcard() if pattern is None else pattern, DataType(dtype))


@user_facing
def has_attr(attrs: Mapping[str, object], pattern: dp.DFPattern | None = None) -> dp.AttrPattern:
    """The pattern of expressions with these attributes that `pattern` matches."""
    return dp.AttrPattern(wildcard() if pattern is None else pattern, attrs)  # type: ignore[arg-type]


@user_facing
def reject(pattern: dp.DFPattern) -> dp.NotPattern:
    """The not-pattern of `pattern`."""
    return dp.NotPattern(pattern)


def _arguments(args: Args | None) -> dp.DFPattern:
    """The pattern of operands in a tuple."""
    if args is None:
        return wildcard()
    if isinstance(args, dp.DFPattern):
        return args
    return dp.TuplePattern(args)  # type: ignore[arg-type]


@user_facing
def is_call_tir(
    func_name: str, args: Args | None = None, tir_vars: dp.DFPattern | None = None
) -> dp.CallPattern:
    """The pattern of `call_tir` of the kernel of this name, with any arguments if `args` is None.

    If the call passes shape variables to the kernel, `tir_vars` is their pattern.
    """
    shape = () if tir_vars is None else (tir_vars,)
    return is_op("relax.call_tir")(
        dp.GlobalVarPattern(func_name), _arguments(args), *shape, add_constraint=False
    )


@user_facing
def is_call_dps_packed(func_name: str, args: Args | None = None) -> dp.CallPattern:
    """The pattern of `call_dps_packed` of the packed function of this name."""
    return is_op("relax.call_dps_packed")(
        dp.ExternFuncPattern(func_name), _arguments(args), add_constraint=False
    )


@user_facing
def is_call_packed(func_name: str, args: Sequence[dp.DFPattern] | None = None) -> dp.CallPattern:
    """The pattern of a call of a packed function, with any arguments if `args` is None."""
    callee = dp.ExternFuncPattern(func_name)
    if args is None:
        return callee(varg_default_wildcard=True, add_constraint=False)
    check_type(args, (list, tuple), "arguments are a list of patterns")
    return callee(*args)


@user_facing
def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> dp.DFPattern:
    """The pattern of an operator of two operands, with a bias and an activation if requested."""
    out: dp.DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        out = is_op("relax.add")(out, wildcard())
    return out if activation is None else is_op(activation)(out)
