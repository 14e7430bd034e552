"""What a pattern asks of an expression: for each way to match, which parts have to match which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never, cast

import numpy as np

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Call,
    Constant,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    PrimValue,
    ShapeExpr,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxpy.ir.relax.nodes.base import StructInfo
from relaxpy.ir.tir.expr import PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """An expression that a pattern is to match."""

    pattern: dp.DFPattern
    expr: Expr | Op


@dataclass(frozen=True, slots=True, eq=False)
class InfoGoal:
    """An info that one with shape variables is to be the base of."""

    info: StructInfo
    found: StructInfo


@dataclass(frozen=True, slots=True, eq=False)
class FieldsGoal:
    """Fields that patterns are to match in some order."""

    patterns: tuple[dp.DFPattern, ...]
    fields: tuple[Expr, ...]


Part: TypeAlias = Goal | InfoGoal | FieldsGoal
Ways: TypeAlias = Sequence[Sequence[Part]]
Matches: TypeAlias = Callable[[dp.DFPattern, Expr | Op], bool]
ANYWAY: Ways = ((),)
NEVER: Ways = ()
_LITERALS = (Constant, PrimValue, ShapeExpr, StringImm, DataTypeImm)


def _if(holds: bool) -> Ways:
    return ANYWAY if holds else NEVER


def ways(goal: Goal, expr: Expr | Op, matches: Matches) -> Ways:
    """The ways in which a pattern may match `expr`, each with the parts left to match.

    That is the value of what the goal says, which itself is left to patterns that ask for more of
    it. `matches` answers for patterns that are denied.
    """
    found, given = cast("dp.AnyPattern", goal.pattern), goal.expr
    match found:
        case dp.WildcardPattern():
            return ANYWAY
        case dp.VarPattern(name=name):
            kind = DataflowVar if isinstance(found, dp.DataflowVarPattern) else Var
            return _if(isinstance(expr, kind) and _named(name, expr.name_hint))
        case dp.ExprPattern(expr=wanted):
            return _if(wanted is expr or is_same_program(wanted, expr))
        case dp.GlobalVarPattern(name=name):
            return _if(isinstance(expr, GlobalVar) and _named(name, expr.name_hint))
        case dp.ExternFuncPattern(name=name):
            return _if(isinstance(expr, ExternFunc) and _named(name, expr.global_symbol))
        case dp.ConstantPattern():
            return _if(isinstance(expr, Constant))
        case dp.CallPattern():
            return _call(found, expr) if isinstance(expr, Call) else NEVER
        case dp.FunctionPattern(params=params, body=body):
            if not isinstance(expr, Function) or len(params) != len(expr.params):
                return NEVER
            return ((*map(Goal, params, expr.params), Goal(body, expr.body)),)
        case dp.TuplePattern(fields=fields):
            if not isinstance(expr, Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return (tuple(map(Goal, fields, expr.fields)),)
        case dp.UnorderedTuplePattern(fields=fields):
            if not isinstance(expr, Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return ((FieldsGoal(fields, expr.fields),),)
        case dp.TupleGetItemPattern(tuple=whole, index=index):
            if not isinstance(expr, TupleGetItem) or index not in (None, expr.index):
                return NEVER
            return ((Goal(whole, expr.tuple_value),),)
        case dp.OrPattern(left=left, right=right):
            return ((Goal(left, given),), (Goal(right, given),))
        case dp.AndPattern(left=left, right=right):
            return ((Goal(left, given), Goal(right, given)),)
        case dp.NotPattern(reject=reject):
            return _if(not matches(reject, given))
        case dp.StructInfoPattern(pattern=inner, struct_info=info):
            known = None if isinstance(expr, Op) else expr.struct_info
            if known is None:
                return NEVER
            return ((InfoGoal(info, known), Goal(inner, given)),)
        case dp.DataTypePattern(pattern=inner, dtype=dtype):
            tensor = _tensor(expr)
            fits = tensor is not None and tensor.dtype == dtype
            return ((Goal(inner, given),),) if fits else NEVER
        case dp.ShapePattern(pattern=inner, shape=shape):
            tensor = _tensor(expr)
            sizes = None if tensor is None else tensor.get_shape()
            fits = sizes is not None and same_sizes(shape, sizes)
            return ((Goal(inner, given),),) if fits else NEVER
        case dp.PrimArrPattern(fields=sizes):
            return _if(isinstance(expr, ShapeExpr) and same_sizes(sizes, expr.values))
        case dp.AttrPattern(pattern=inner, attrs=attrs):
            return ((Goal(inner, given),),) if _has_attrs(expr, attrs) else NEVER
        case _:
            assert_never(found)


def _named(wanted: str, name: str) -> bool:
    return wanted in ("", name)


def is_same_program(a: Node, b: Node) -> bool:
    """Whether two expressions are equal, variables being themselves."""
    if type(a) is not type(b) or isinstance(a, Op):
        return False
    if isinstance(a, Call) and isinstance(b, Call) and isinstance(a.op, Op) and a.op is not b.op:
        return False
    return structural_equal(a, b)


def is_same_value(a: Expr | Op, b: Expr | Op) -> bool:
    """Whether a pattern that matches one may match the other, too: they are one, or one literal."""
    if a is b:
        return True
    if isinstance(a, Tuple) and isinstance(b, Tuple):
        return len(a.fields) == len(b.fields) and all(map(is_same_value, a.fields, b.fields))
    return isinstance(a, _LITERALS) and is_same_program(a, b)


def _call(pattern: dp.CallPattern, call: Call) -> Ways:
    args, given = pattern.args, call.args
    if len(args) > len(given) or (len(args) < len(given) and not pattern.varg_default_wildcard):
        return NEVER
    callee = Goal(pattern.op, call.op)
    way = (callee, *map(Goal, args, given))  # what is left over matches anything
    if len(given) == 2 and isinstance(call.op, Op) and call.op.record.commutative and args:
        return way, (callee, *map(Goal, args, reversed(given)))
    return (way,)


def _tensor(expr: Expr | Op) -> TensorStructInfo | None:
    info = None if isinstance(expr, Op) else expr.struct_info
    return info if isinstance(info, TensorStructInfo) else None


def same_sizes(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    """Whether two shapes are provably the same."""
    return len(a) == len(b) and all(
        x is y or prove_equal(x, y) is True for x, y in zip(a, b, strict=True)
    )


def _has_attrs(expr: Expr | Op, attrs: Mapping[str, object]) -> bool:
    if isinstance(expr, Op):
        return all(
            expr.has_attr(key) and _same_attr(value, expr.get_attr(key))
            for key, value in attrs.items()
        )
    if not isinstance(expr, (Call, BaseFunc)):
        return False
    known = expr.attrs
    return all(key in known and _same_attr(value, known[key]) for key, value in attrs.items())


def _same_attr(wanted: object, found: object) -> bool:
    """Whether an attribute has the value asked for, numbers of Python's counting as literals."""
    match wanted, found:
        case PrimExpr(), PrimExpr():
            return prove_equal(wanted, found) is True
        case (list() | tuple(), list() | tuple()):
            return len(wanted) == len(found) and all(map(_same_attr, wanted, found))
        case Mapping(), Mapping():
            same_keys = wanted.keys() == found.keys()
            return same_keys and all(_same_attr(value, found[key]) for key, value in wanted.items())
        case np.ndarray(), np.ndarray():
            return wanted.dtype == found.dtype and np.array_equal(wanted, found)
        case StructInfo(), _:
            return wanted == found
        case (Node(), Node()):
            return wanted is found or is_same_program(wanted, found)
        case (PrimExpr(), bool() | int() | float()) | (bool() | int() | float(), PrimExpr()):
            return bool(wanted == found)
        case (str(), str()):  # a datatype is one
            return wanted == found
        case _:
            return type(wanted) is type(found) and bool(wanted == found)
