"""Equality and membership of values that may contain scalars of the program.

`i == 0` is an expression, and so is whether `i` is one of (0, 3). Python would ask whether two
expressions are the same one.
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
from relaxpy.script.parser.evaluate import door

_SETS = (set, frozenset)
_CONTAINERS = (list, tuple, *_SETS, dict)
#: The maximal number of conditions in a chain; more are nested in halves.
_IN_A_ROW = 16


def is_of_program(value: object) -> bool:
    """Whether `value` is, or contains at any depth, a value known only at run time."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (Expr, PrimExpr, Buffer, BufferRegion)):
            return True
        if isinstance(item, dict):
            waiting += item.values()
        if isinstance(item, _CONTAINERS):
            waiting += item
    return False


def equal(left: Any, right: Any) -> PrimExpr | bool:
    """Whether two values are equal; an expression if that is known only at run time.

    Errors:
        MisuseError about the value that cannot be compared.
    """
    for one in (left, right):
        if isinstance(one, Expr):
            raise MisuseError(
                "whether tensors are equal is known only when the program runs",
                about=one,
                hint="R.equal(x, y) compares elements; `x is y` asks whether they are one variable",
            )
        if isinstance(one, (Buffer, BufferRegion)):
            raise MisuseError(
                "whether buffers are equal is known only when the program runs",
                about=one,
                hint="compare elements, inside loops; `A is B` asks whether they are one buffer",
            )
    for one, other in ((left, right), (right, left)):
        if isinstance(one, PrimExpr):
            comparable = isinstance(other, (PrimExpr, int, float)) or hasattr(other, "__index__")
            return ops.compare(tir.EQ, left, right) if comparable else False
    if not (is_of_program(left) or is_of_program(right)):
        return bool(door.operate(operator.eq, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        if any(is_of_program(key) for table in (left, right) for key in table):
            raise _unknown("tables that such values are keys of", left)
        same = left.keys() == right.keys()
        return same and all_equal([left[key] for key in left], [right[key] for key in left])
    if isinstance(left, _SETS) and isinstance(right, _SETS):
        raise _unknown("sets of such values", left)
    for kind in (list, tuple):
        if isinstance(left, kind) and isinstance(right, kind):
            return all_equal(left, right)
    return False


def decided(condition: object) -> object:
    """`condition`, or whether it holds where that is known already, as of `4 == 4` and `n == n`."""
    match condition:
        case tir.IntImm() if condition.dtype.is_bool:
            return bool(condition)
        case tir.EQ(a, b) | tir.NE(a, b) if a is b and a.dtype.is_int:
            return isinstance(condition, tir.EQ)
        case _:
            return condition


def all_equal(left: Sequence[Any], right: Sequence[Any]) -> PrimExpr | bool:
    """Whether two sequences have the same length and equal members."""
    if len(left) != len(right):
        return False
    return joined(ops.all_of, [equal(a, b) for a, b in zip(left, right, strict=True)])


def identical(left: Any, right: Any) -> bool:
    """Whether two values are one object.

    Errors: MisuseError: one is a scalar that may be equal to the other.
    """
    pair = (left, right)
    scalars = all(isinstance(value, (PrimExpr, int, float)) for value in pair)
    if left is not right and scalars and any(isinstance(value, PrimExpr) for value in pair):
        raise MisuseError(
            "whether scalars are one is known only when the program runs",
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
    comparisons = [
        part
        for member in members
        for part in (
            (member.start, member.stop, member.step) if isinstance(member, slice) else (member,)
        )
    ]
    if isinstance(owner, dict) and (index in owner or not is_of_program([index, *owner])):
        return
    for part in comparisons:
        if is_of_program(part):
            raise MisuseError(
                f"the members of a {type(owner).__name__} are chosen while the program is parsed, "
                "and this is known only when it runs",
                about=part,
                hint=number_hint(part)
                or "choose by a condition, as in T.if_then_else(i == 0, a, b), or read from a "
                "buffer or tensor",
            )


def contains(container: Any, value: Any) -> PrimExpr | bool:
    """Whether `value` is one of the members of `container`; of a dict, of its keys.

    Errors:
        MisuseError: as of `equal`, or `container` has no members that are known.
    """
    if isinstance(container, range) and isinstance(value, PrimExpr):
        return within(container, value)
    known = isinstance(container, (*_CONTAINERS, range))
    if known and (is_of_program(value) or is_of_program(container)):
        return joined(ops.any_of, [equal(value, member) for member in container])
    return bool(door.operate(operator.contains, container, value))


def within(numbers: range, value: PrimExpr) -> PrimExpr | bool:
    """Whether `value` is one of `numbers`."""
    if not numbers:
        return False
    first, last = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
    conditions = [ops.compare(tir.LE, first, value), ops.compare(tir.LE, value, last)]
    step = abs(numbers.step)
    if step > 1:
        rest = ops.floormod(ops.sub(value, first), step)
        conditions.append(ops.compare(tir.EQ, rest, 0))
    return ops.all_of(*conditions)


def joined(combine: Any, conditions: Iterable[PrimExpr | bool]) -> PrimExpr | bool:
    """The conjunction or disjunction of conditions: a truth value where Python knows all of it.

    It is nested in halves where it is long, since readers of expressions recurse.
    """
    decisive = combine is ops.any_of
    open_ones: list[Any] = []
    for condition in conditions:
        if not isinstance(condition, PrimExpr):
            if bool(condition) == decisive:
                return decisive
            continue
        open_ones.append(condition)
    while len(open_ones) > _IN_A_ROW:
        rows = range(0, len(open_ones), _IN_A_ROW)
        open_ones = [reduce(combine, open_ones[k : k + _IN_A_ROW]) for k in rows]
    return combine(*open_ones) if open_ones else not decisive


_LOOKUPS = ("get", "pop", "setdefault", "discard", "remove", "__contains__", "__getitem__")


def check_lookup(function: object, args: Sequence[Any]) -> None:
    """Check that a method of a dict or set that is to find `args[0]` surely finds it, or does not.

    Errors: MisuseError about it: a key, or what is looked for, is an expression.
    """
    table = getattr(function, "__self__", None)
    if not isinstance(table, (dict, *_SETS)) or not isinstance(function, BuiltinFunctionType):
        return
    if function.__name__ not in _LOOKUPS or not args or args[0] in table:
        return
    if is_of_program(args[0]) or any(is_of_program(key) for key in table):
        raise _unknown("the keys and this value", args[0])


def _unknown(what: str, about: object) -> MisuseError:
    return MisuseError(
        f"whether {what} are equal is known only when the program runs",
        about=about,
        hint="compare the values one by one",
    )


def denied_if(denied: bool, condition: PrimExpr | bool) -> PrimExpr | bool:
    """The condition, or its negation if `denied` is set."""
    if not denied:
        return condition
    if isinstance(condition, tir.EQ):
        return tir.NE(condition.a, condition.b)
    return ops.logical_not(condition) if isinstance(condition, PrimExpr) else not condition
