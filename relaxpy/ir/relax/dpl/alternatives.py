"""The alternatives in which a pattern may match an expression, each a list of goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, assert_never, cast

import numpy as np

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.nodes.base import StructInfo
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """A pattern, and the expression that it has to match."""

    pattern: dp.DFPattern
    expr: rx.Expr | Op


@dataclass(frozen=True, slots=True, eq=False)
class StructInfoGoal:
    """The struct info of a pattern, which has to be a base of that of an expression."""

    base: StructInfo
    actual: StructInfo


@dataclass(frozen=True, slots=True, eq=False)
class FieldsGoal:
    """Patterns, and the fields that they have to match in some order."""

    patterns: tuple[dp.DFPattern, ...]
    fields: tuple[rx.Expr, ...]


Subgoal: TypeAlias = Goal | StructInfoGoal | FieldsGoal
Alternatives: TypeAlias = Sequence[Sequence[Subgoal]]
Test: TypeAlias = Callable[[dp.DFPattern, rx.Expr | Op], bool]
ALWAYS: Alternatives = ((),)
NEVER: Alternatives = ()
_LITERALS = (rx.Constant, rx.PrimValue, rx.ShapeExpr, rx.StringImm, rx.DataTypeImm)


def _if(holds: bool) -> Alternatives:
    return ALWAYS if holds else NEVER


def alternatives(goal: Goal, expr: rx.Expr | Op, matches: Test) -> Alternatives:
    """The ways in which the pattern of a goal may match, each with the goals that are left then.

    `expr` is the value of the expression of the goal. `matches` decides whether a pattern that is
    rejected matches.
    """
    pattern, unresolved = cast("dp.AnyPattern", goal.pattern), goal.expr
    match pattern:
        case dp.WildcardPattern():
            return ALWAYS
        case dp.VarPattern(name=name):
            kind = rx.DataflowVar if isinstance(pattern, dp.DataflowVarPattern) else rx.Var
            return _if(isinstance(expr, kind) and _named(name, expr.name_hint))
        case dp.ExprPattern(expr=wanted):
            return _if(wanted is expr or is_same_program(wanted, expr))
        case dp.GlobalVarPattern(name=name):
            return _if(isinstance(expr, rx.GlobalVar) and _named(name, expr.name_hint))
        case dp.ExternFuncPattern(name=name):
            return _if(isinstance(expr, rx.ExternFunc) and _named(name, expr.global_symbol))
        case dp.ConstantPattern():
            return _if(isinstance(expr, rx.Constant))
        case dp.CallPattern():
            return _call(pattern, expr) if isinstance(expr, rx.Call) else NEVER
        case dp.FunctionPattern(params=params, body=body):
            if not isinstance(expr, rx.Function) or len(params) != len(expr.params):
                return NEVER
            return ((*map(Goal, params, expr.params), Goal(body, expr.body)),)
        case dp.TuplePattern(fields=fields):
            if not isinstance(expr, rx.Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return (tuple(map(Goal, fields, expr.fields)),)
        case dp.UnorderedTuplePattern(fields=fields):
            if not isinstance(expr, rx.Tuple) or len(fields) != len(expr.fields):
                return NEVER
            return ((FieldsGoal(fields, expr.fields),),)
        case dp.TupleGetItemPattern(tuple=whole, index=index):
            if not isinstance(expr, rx.TupleGetItem) or index not in (None, expr.index):
                return NEVER
            return ((Goal(whole, expr.tuple_value),),)
        case dp.OrPattern(left=left, right=right):
            return ((Goal(left, unresolved),), (Goal(right, unresolved),))
        case dp.AndPattern(left=left, right=right):
            return ((Goal(left, unresolved), Goal(right, unresolved)),)
        case dp.NotPattern(reject=reject):
            return _if(not matches(reject, unresolved))
        case dp.StructInfoPattern(pattern=inner, struct_info=base):
            actual = _struct_info(expr)
            if actual is None:
                return NEVER
            return ((StructInfoGoal(base, actual), Goal(inner, unresolved)),)
        case dp.DataTypePattern(pattern=inner, dtype=dtype):
            actual = _struct_info(expr)
            fits = isinstance(actual, rx.TensorStructInfo) and actual.dtype == dtype
            return ((Goal(inner, unresolved),),) if fits else NEVER
        case dp.ShapePattern(pattern=inner, shape=shape):
            actual = _struct_info(expr)
            known = actual.get_shape() if isinstance(actual, rx.TensorStructInfo) else None
            fits = known is not None and same_shape(shape, known)
            return ((Goal(inner, unresolved),),) if fits else NEVER
        case dp.PrimArrPattern(fields=dims):
            return _if(isinstance(expr, rx.ShapeExpr) and same_shape(dims, expr.values))
        case dp.AttrPattern(pattern=inner, attrs=attrs):
            return ((Goal(inner, unresolved),),) if _has_attrs(expr, attrs) else NEVER
        case _:
            assert_never(pattern)


def _named(expected: str, name: str) -> bool:
    return expected in ("", name)


def is_same_program(a: Node, b: Node) -> bool:
    """Return whether two expressions are structurally equal, free variables by identity."""
    if type(a) is not type(b) or isinstance(a, Op):
        return False
    if (
        isinstance(a, rx.Call)
        and isinstance(b, rx.Call)
        and isinstance(a.op, Op)
        and a.op is not b.op
    ):
        return False
    return structural_equal(a, b)


def is_same_value(a: rx.Expr | Op, b: rx.Expr | Op) -> bool:
    """True if a pattern that occurs twice may match both: they are one node, or equal literals."""
    if a is b:
        return True
    if isinstance(a, rx.Tuple) and isinstance(b, rx.Tuple):
        return len(a.fields) == len(b.fields) and all(map(is_same_value, a.fields, b.fields))
    return isinstance(a, _LITERALS) and is_same_program(a, b)


def _call(pattern: dp.CallPattern, call: rx.Call) -> Alternatives:
    params, args = pattern.args, call.args
    if len(params) > len(args) or (len(params) < len(args) and not pattern.varg_default_wildcard):
        return NEVER
    callee = Goal(pattern.op, call.op)
    in_order = (callee, *map(Goal, params, args))  # without the additional arguments
    if len(args) == 2 and isinstance(call.op, Op) and call.op.record.commutative and params:
        return in_order, (callee, *map(Goal, params, reversed(args)))
    return (in_order,)


def _struct_info(expr: rx.Expr | Op) -> StructInfo | None:
    return None if isinstance(expr, Op) else expr.struct_info


def same_shape(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    """Return whether two shapes are provably equal."""
    return len(a) == len(b) and all(
        x is y or prove_equal(x, y) is True for x, y in zip(a, b, strict=True)
    )


def _has_attrs(expr: rx.Expr | Op, attrs: Mapping[str, object]) -> bool:
    if isinstance(expr, Op):
        return all(
            expr.has_attr(key) and _same_attr(value, expr.get_attr(key))
            for key, value in attrs.items()
        )
    if not isinstance(expr, (rx.Call, rx.BaseFunc)):
        return False
    known = expr.attrs
    return all(key in known and _same_attr(value, known[key]) for key, value in attrs.items())


def _same_attr(expected: object, actual: object) -> bool:
    """Return whether an attribute has the expected value; numbers of Python equal literals."""
    match expected, actual:
        case PrimExpr(), PrimExpr():
            return prove_equal(expected, actual) is True
        case (list() | tuple(), list() | tuple()):
            return len(expected) == len(actual) and all(map(_same_attr, expected, actual))
        case Mapping(), Mapping():
            same_keys = expected.keys() == actual.keys()
            return same_keys and all(_same_attr(v, actual[key]) for key, v in expected.items())
        case np.ndarray(), np.ndarray():
            return expected.dtype == actual.dtype and np.array_equal(expected, actual)
        case StructInfo(), _:
            return expected == actual
        case (Node(), Node()):
            return expected is actual or is_same_program(expected, actual)
        case (PrimExpr(), bool() | int() | float()) | (bool() | int() | float(), PrimExpr()):
            return bool(expected == actual)
        case (str(), str()):  # or a datatype, which is a str
            return expected == actual
        case _:
            return type(expected) is type(actual) and bool(expected == actual)
