"""Equality and membership of values that may contain scalars of the program.

`i == 0` is an expression, and so is `i in (0, 3)`. Python would compare the two expressions by
identity.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language.wording import number_hint
from relaxpy.script.parser.evaluate import user_calls

_SETS = (set, frozenset)
_CONTAINERS = (list, tuple, *_SETS, dict)
#: The maximal number of conditions in a chain; more are nested as a tree.
_MAX_CHAIN = 16


def is_runtime_value(value: object) -> bool:
    """Return whether `value` is, or contains at any depth, a value known only at run time."""
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
    """Return whether two values are equal; an expression if that is known only at run time.

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
    """Return `condition`, or a Boolean if its truth is known, such as that of `n == n`."""
    match condition:
        case tir.IntImm() if condition.dtype.is_bool:
            return bool(condition)
        case tir.EQ(a, b) | tir.NE(a, b) if a is b and a.dtype.is_int:
            return isinstance(condition, tir.EQ)
        case _:
            return condition


def all_equal(left: Sequence[Any], right: Sequence[Any]) -> PrimExpr | bool:
    """Return whether two sequences have the same length and equal members."""
    if len(left) != len(right):
        return False
    return combine_conditions(ops.all_of, [equal(a, b) for a, b in zip(left, right, strict=True)])


def identical(left: Any, right: Any) -> bool:
    """Return whether two values are one object.

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
    """Return whether `value` is one of the members of `container`; of a dict, of its keys.

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
    """Return whether `value` is one of `numbers`."""
    if not numbers:
        return False
    first, last = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
    conditions = [ops.compare(tir.LE, first, value), ops.compare(tir.LE, value, last)]
    step = abs(numbers.step)
    if step > 1:
        remainder = ops.floormod(ops.sub(value, first), step)
        conditions.append(ops.compare(tir.EQ, remainder, 0))
    return ops.all_of(*conditions)


def combine_conditions(combine: Any, conditions: Iterable[PrimExpr | bool]) -> PrimExpr | bool:
    """Return the conjunction or disjunction of conditions; a Boolean if Python can decide it.

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
    """Return the condition, or its negation if `negate` is set."""
    if not negate:
        return condition
    if isinstance(condition, tir.EQ):
        return tir.NE(condition.a, condition.b)
    return ops.logical_not(condition) if isinstance(condition, PrimExpr) else not condition
