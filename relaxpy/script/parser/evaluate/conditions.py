"""Comparisons, `and`, `or` and conditional expressions, and built-in functions that compare.

Values may contain scalars of the program: `i == 0` is an expression, and so is `i in (0, 3)`.
Python would compare the two expressions by identity, as would its built-in functions, which would
also bypass the guard when they call an argument.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir.core.node import Node
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language.wording import as_parse_error, chain_hint, describe, number_hint
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.evaluate.displays import VALUE_ERRORS
from relaxpy.script.parser.source import MISSING
from relaxpy.support.entry import argument_node

if TYPE_CHECKING:
    from relaxpy.script.parser.evaluate.evaluator import Evaluator

_SETS = (set, frozenset)
_CONTAINERS = (list, tuple, *_SETS, dict)
#: The maximal number of conditions in a chain; more are nested as a tree.
_MAX_CHAIN = 16


def is_runtime_value(value: object) -> bool:
    """True if `value` is, or contains at any depth, a value known only at run time."""
    worklist: list[Any] = [value]
    while worklist:
        item = worklist.pop()
        if isinstance(item, (Expr, PrimExpr, Buffer, BufferRegion)):
            return True
        if isinstance(item, dict):
            worklist += item.values()
        if isinstance(item, _CONTAINERS):
            worklist += item
    return False


def equal(left: Any, right: Any) -> PrimExpr | bool:
    """True if two values are equal; an expression if that is known only at run time.

    Errors:
        MisuseError about the value that cannot be compared.
    """
    for operand in (left, right):
        if isinstance(operand, Expr):
            raise MisuseError(
                "whether tensors are equal is known only when the program runs",
                about=operand,
                hint="R.equal(x, y) compares elements; `x is y` tests whether they are one "
                "variable",
            )
        if isinstance(operand, (Buffer, BufferRegion)):
            raise MisuseError(
                "whether buffers are equal is known only when the program runs",
                about=operand,
                hint="compare elements, inside loops; `A is B` tests whether they are one buffer",
            )
    for one, other in ((left, right), (right, left)):
        if isinstance(one, PrimExpr):
            comparable = isinstance(other, (PrimExpr, int, float)) or hasattr(other, "__index__")
            return ops.compare(tir.EQ, left, right) if comparable else False
    if not (is_runtime_value(left) or is_runtime_value(right)):
        return bool(user_calls.operate(operator.eq, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        if any(is_runtime_value(key) for table in (left, right) for key in table):
            raise _unknown("dicts with such values as keys", left)
        same_keys = left.keys() == right.keys()
        return same_keys and all_equal([left[key] for key in left], [right[key] for key in left])
    if isinstance(left, _SETS) and isinstance(right, _SETS):
        raise _unknown("sets of such values", left)
    for kind in (list, tuple):
        if isinstance(left, kind) and isinstance(right, kind):
            return all_equal(left, right)
    return False


def fold_condition(condition: object) -> object:
    """`condition`, or a Boolean if its truth is known, such as that of `n == n`."""
    match condition:
        case tir.IntImm() if condition.dtype.is_bool:
            return bool(condition)
        case tir.EQ(a, b) | tir.NE(a, b) if a is b and a.dtype.is_int:
            return isinstance(condition, tir.EQ)
        case _:
            return condition


def all_equal(left: Sequence[Any], right: Sequence[Any]) -> PrimExpr | bool:
    """True if two sequences have the same length and equal members."""
    if len(left) != len(right):
        return False
    return combine_conditions(ops.all_of, [equal(a, b) for a, b in zip(left, right, strict=True)])


def identical(left: Any, right: Any) -> bool:
    """True if two values are one object.

    Errors: MisuseError if one is a scalar that may be equal to the other.
    """
    pair = (left, right)
    scalars = all(isinstance(value, (PrimExpr, int, float)) for value in pair)
    if left is not right and scalars and any(isinstance(value, PrimExpr) for value in pair):
        raise MisuseError(
            "whether two scalars are the same is known only when the program runs",
            about=left if isinstance(left, PrimExpr) else right,
            hint="write == or !=",
        )
    return left is right


def check_index(owner: object, index: Any) -> None:
    """Check that the index of a Python container is known at parse time.

    Errors: MisuseError about the part of the index that is not.
    """
    if not isinstance(owner, (*_CONTAINERS, str, range, np.ndarray)):
        return
    members = index if isinstance(owner, np.ndarray) and isinstance(index, tuple) else (index,)
    bounds = [
        bound
        for member in members
        for bound in (
            (member.start, member.stop, member.step) if isinstance(member, slice) else (member,)
        )
    ]
    if isinstance(owner, dict) and (index in owner or not is_runtime_value([index, *owner])):
        return
    for bound in bounds:
        if is_runtime_value(bound):
            raise MisuseError(
                f"the members of a {type(owner).__name__} are chosen while the program is parsed, "
                "and this is known only when it runs",
                about=bound,
                hint=number_hint(bound)
                or "choose by a condition, as in T.if_then_else(i == 0, a, b), or read from a "
                "buffer or tensor",
            )


def contains(container: Any, value: Any) -> PrimExpr | bool:
    """True if `value` is one of the members of `container`; of a dict, of its keys.

    Errors:
        MisuseError: as of `equal`, or the members of `container` are not known.
    """
    if isinstance(container, range) and isinstance(value, PrimExpr):
        return in_range(container, value)
    known = isinstance(container, (*_CONTAINERS, range))
    if known and (is_runtime_value(value) or is_runtime_value(container)):
        return combine_conditions(ops.any_of, [equal(value, member) for member in container])
    return bool(user_calls.operate(operator.contains, container, value))


def in_range(numbers: range, value: PrimExpr) -> PrimExpr | bool:
    """True if `value` is one of `numbers`."""
    if not numbers:
        return False
    first, last = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
    conditions = [ops.compare(tir.LE, first, value), ops.compare(tir.LE, value, last)]
    step = abs(numbers.step)
    if step > 1:
        remainder = ops.sub(value, first) % step
        conditions.append(ops.compare(tir.EQ, remainder, 0))
    return ops.all_of(*conditions)


def combine_conditions(combine: Any, conditions: Iterable[PrimExpr | bool]) -> PrimExpr | bool:
    """The conjunction or disjunction of conditions; a Boolean if Python can decide it.

    A long one is a tree rather than a chain, since visitors of expressions recurse.
    """
    decisive = combine is ops.any_of
    undecided: list[Any] = []
    for condition in conditions:
        if not isinstance(condition, PrimExpr):
            if bool(condition) == decisive:
                return decisive
            continue
        undecided.append(condition)
    while len(undecided) > _MAX_CHAIN:
        starts = range(0, len(undecided), _MAX_CHAIN)
        undecided = [reduce(combine, undecided[k : k + _MAX_CHAIN]) for k in starts]
    return combine(*undecided) if undecided else not decisive


_LOOKUPS = ("get", "pop", "setdefault", "discard", "remove", "__contains__", "__getitem__")


def check_lookup(function: object, args: Sequence[Any]) -> None:
    """Check that whether a method of a dict or set finds `args[0]` is known at parse time.

    Errors: MisuseError about `args[0]` if it or a key is an expression.
    """
    table = getattr(function, "__self__", None)
    if not isinstance(table, (dict, *_SETS)) or not isinstance(function, BuiltinFunctionType):
        return
    if function.__name__ not in _LOOKUPS or not args or args[0] in table:
        return
    if is_runtime_value(args[0]) or any(is_runtime_value(key) for key in table):
        raise _unknown("the keys and this value", args[0])


def _unknown(values: str, about: object) -> MisuseError:
    return MisuseError(
        f"whether {values} are equal is known only when the program runs",
        about=about,
        hint="compare the values one by one",
    )


def negated_if(negate: bool, condition: PrimExpr | bool) -> PrimExpr | bool:
    """The condition, or its negation if `negate` is set."""
    if not negate:
        return condition
    if isinstance(condition, tir.EQ):
        return tir.NE(condition.a, condition.b)
    return ops.logical_not(condition) if isinstance(condition, PrimExpr) else not condition


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


def is_getattr(node: ast.Call) -> bool:
    """True if this is `getattr(owner, name)`, which is evaluated like `owner.name`."""
    is_called = isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return is_called and len(node.args) == 2 and not node.keywords


def attribute_node(node: ast.Call, name: object, evaluator: Evaluator) -> ast.Attribute:
    """`owner.name` for `node`, which is `getattr(owner, name)`.

    Errors:
        ParseError: `name` is not the name of an attribute that a program may use.
    """
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("__"):
        message = f"getattr takes the name of a public attribute, found {name!r:.60}"
        raise evaluator.error(node.args[1], message)
    return ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node)


def with_key(
    evaluator: Evaluator, function: object, kwargs: dict[str, Any], node: ast.Call
) -> dict[str, Any]:
    """The keywords of a call, with a guarded `key` for `sorted`, `min` and `max`."""
    if "key" not in kwargs or not any(function is f for f in (max, min, sorted)):
        return kwargs
    return kwargs | {"key": _guarded(evaluator, kwargs["key"], node)}


def _guarded(evaluator: Evaluator, function: object, node: ast.Call) -> Callable[..., object]:
    """Wrap a function that the built-in function in `node` calls, so that it is guarded."""
    if function is None:
        return lambda value: value
    arguments = [*node.args, *(k.value for k in node.keywords if k.arg == "key")]
    call = ast.copy_location(ast.Call(arguments[0] if arguments else node.func, [], []), node)
    return lambda *args: evaluator.invoke(function, list(args), {}, call)


def _map(
    evaluator: Evaluator, function: object, *lists: object, node: ast.Call
) -> Iterator[object]:
    guarded = _guarded(evaluator, function, node)
    columns = [evaluator.iterable(values, node) for values in lists]
    return (guarded(*row) for row in zip(*columns, strict=False))


def _filter(
    evaluator: Evaluator, function: object, values: object, *, node: ast.Call
) -> Iterator[object]:
    predicate = _guarded(evaluator, function, node)
    return (v for v in evaluator.iterable(values, node) if evaluator.truth(predicate(v), node))


def _any(evaluator: Evaluator, values: object, *, node: ast.Call) -> object:
    return combine_conditions(ops.any_of, _conditions(evaluator, values, node))


def _all(evaluator: Evaluator, values: object, *, node: ast.Call) -> object:
    return combine_conditions(ops.all_of, _conditions(evaluator, values, node))


def _bool(evaluator: Evaluator, value: object, *, node: ast.Call) -> object:
    return _condition(evaluator, value, value, node)


def _sum(evaluator: Evaluator, values: object, start: object = 0, *, node: ast.Call) -> object:
    """Add the members one by one, so that the size of each partial result is checked."""
    members = list(evaluator.iterable(values, node))
    if all(isinstance(value, (int, float)) for value in (start, *members)):
        return sum(members, start)  # type: ignore[call-overload]
    if isinstance(start, str):
        raise evaluator.error(node, "sum adds no strings", hint="write ''.join(...) or an f-string")
    total = start
    for value in members:
        total = evaluator.binary(ast.Add(), total, value, node)
    return total


def _conditions(evaluator: Evaluator, values: object, node: ast.Call) -> Iterator[PrimExpr | bool]:
    if isinstance(values, Expr):
        _condition(evaluator, values, values, node)
    for value in evaluator.iterable(values, node):
        yield _condition(evaluator, value, values, node)


def _condition(
    evaluator: Evaluator, value: object, argument: object, node: ast.Call
) -> PrimExpr | bool:
    """The condition for `value`, an argument of a built-in function or a member of one."""
    if isinstance(value, PrimExpr):
        return ops.truth(value)
    where = argument_node(node, [argument], {}, value) if isinstance(value, Expr) else None
    return evaluator.truth(value, where or node)


#: The replacements by the ids of the built-in functions.
REPLACEMENTS: Mapping[int, Callable[..., object]] = {
    id(map): _map,
    id(filter): _filter,
    id(any): _any,
    id(all): _all,
    id(bool): _bool,
    id(sum): _sum,
}
