"""Comparisons, `and`, `or` and conditional expressions of a program."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language.wording import as_parse_error, chain_hint, describe
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.evaluate.comparisons import (
    contains,
    equal,
    fold_condition,
    identical,
    is_runtime_value,
    negated_if,
)
from relaxpy.script.parser.evaluate.displays import VALUE_ERRORS
from relaxpy.script.parser.source.scope import MISSING

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator

_COMPARE: dict[type[ast.cmpop], tuple[Callable[[Any, Any], object], str]] = {
    ast.Eq: (operator.eq, "=="),
    ast.NotEq: (operator.ne, "!="),
    ast.Lt: (operator.lt, "<"),
    ast.LtE: (operator.le, "<="),
    ast.Gt: (operator.gt, ">"),
    ast.GtE: (operator.ge, ">="),
    ast.Is: (identical, "is"),
    ast.IsNot: (identical, "is not"),
    ast.In: (contains, "in"),
    ast.NotIn: (contains, "not in"),
}
_MEMBERSHIP = ("in", "not in")
_EQUALITY = ("==", "!=")
_IDENTITY = ("is", "is not")
_ORDER: dict[str, type[tir.CmpExpr]] = {"<": tir.LT, "<=": tir.LE, ">": tir.GT, ">=": tir.GE}


def _compare(values: Evaluator, node: ast.Compare) -> object:
    left = values.value(node.left)
    result: object = True
    for kind, comparator in zip(node.ops, node.comparators, strict=True):
        right = values.value(comparator)
        function, sign = _COMPARE[type(kind)]
        step = _comparison(values, node, function, sign, left, right)
        if isinstance(step, PrimExpr) and isinstance(result, (PrimExpr, bool)):
            result = step if result is True else computed(values, node, ops.all_of, result, step)
        elif result is True:
            result = step
        elif isinstance(step, Expr) or isinstance(result, Expr):
            raise values.error(node, "compare two tensors at a time", hint=chain_hint(node))
        else:
            result = computed(values, node, ops.all_of, result, step)
        if not isinstance(result, Node) and not values.truth(result, node):
            return result
        left = right
    return result


def _comparison(
    values: Evaluator,
    node: ast.Compare,
    function: Callable[[Any, Any], object],
    sign: str,
    left: Any,
    right: Any,
) -> object:
    try:
        left, right = values.operand(left), values.operand(right)
        result = values.on_binary(sign, left, right)
        if result is not MISSING:
            return result
        values.guard.binary(sign, left, right, node, values)
        if sign in _MEMBERSHIP:
            return negated_if(sign == "not in", contains(right, left))
        if sign in _IDENTITY:
            return identical(left, right) != (sign == "is not")
        tensors = isinstance(left, Expr) or isinstance(right, Expr)
        if sign in _EQUALITY and not tensors and is_runtime_value([left, right]):
            return negated_if(sign == "!=", equal(left, right))
        if sign in _ORDER and isinstance(right, PrimExpr) and type(left) in (int, float):
            return ops.compare(_ORDER[sign], left, right)  # Python would swap the operands
        return user_calls.operate(function, left, right)
    except RelaxpyError as error:
        raise as_parse_error(error, values.span(node)) from None
    except VALUE_ERRORS:
        raise values.error(
            node, f"{sign} is not defined between {describe(left)} and {describe(right)}"
        ) from None


def _boolop(values: Evaluator, node: ast.BoolOp) -> object:
    conjunction = isinstance(node.op, ast.And)
    combine = ops.all_of if conjunction else ops.any_of
    result: object = MISSING
    for operand in node.values:
        if result is not MISSING and not isinstance(result, PrimExpr):
            if values.truth(result, operand, node) != conjunction:
                return result
            result = MISSING
        value = values.value(operand)
        if isinstance(value, PrimExpr):
            computed(values, operand, ops.truth, value)
        result = value if result is MISSING else computed(values, operand, combine, result, value)
        if isinstance(result, Node) and not isinstance(result, PrimExpr):
            values.truth(result, operand, node)
    return result


def computed(
    values: Evaluator, node: ast.expr, function: Callable[..., object], *operands: object
) -> object:
    """The result of a function; what it does not take is an error at `node`."""
    try:
        return function(*operands)
    except MisuseError as error:
        raise as_parse_error(error, values.span(node)) from None


def _ifexp(values: Evaluator, node: ast.IfExp) -> object:
    condition = fold_condition(values.value(node.test))
    if not isinstance(condition, PrimExpr):
        truth = values.truth(condition, node.test, node)
        return values.value(node.body if truth else node.orelse)
    choices = [values.value(choice) for choice in (node.body, node.orelse)]
    for choice, value in zip((node.body, node.orelse), choices, strict=True):
        if isinstance(value, (Expr, Buffer)):
            message = f"{describe(condition)} chooses between scalars, found {describe(value)}"
            hint = "it is known only when the program runs; in a kernel, choose by element"
            raise values.error(choice, message, hint=hint)
    return computed(values, node, intrin.if_then_else, condition, *choices)


READERS: Mapping[type[ast.expr], Callable[[Evaluator, Any], object]] = {
    ast.Compare: _compare,
    ast.BoolOp: _boolop,
    ast.IfExp: _ifexp,
}
