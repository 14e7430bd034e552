"""Functions over PrimExprs, which match datatypes and fold constants.

`expr` and this module import each other: the Python operators of nodes are these functions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, TypeGuard, cast

import ml_dtypes
import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64, DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr
from relaxpy.support.missing import described, digits


@cache
def int_range(dtype: DataType) -> tuple[int, int]:
    """The minimum and the maximum of an integer datatype; int1 has 0 and 1, as in TVM."""
    if dtype.family == "uint" or dtype.bits == 1:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


@cache
def float_range(dtype: DataType) -> tuple[float, float]:
    """The minimum and the maximum finite value of a floating-point datatype."""
    limits = ml_dtypes.finfo(dtype.numpy())  # type: ignore[no-untyped-call]
    return float(limits.min), float(limits.max)


def as_int(value: object) -> int:
    """Convert `value` to an int. Errors: MisuseError (also TypeError) if it is not an integer."""
    if type(value) is int:
        return value
    if isinstance(value, expr.IntImm):
        return value.value
    try:
        return operator.index(value.item() if isinstance(value, np.generic) else value)  # type: ignore[arg-type]
    except TypeError:
        raise unexpected(value, "expected an integer") from None


def as_float(value: object, dtype: DataType) -> float:
    """Convert `value` to a float. Errors: MisuseError if it is not in the range of `dtype`."""
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise MisuseError(f"{digits(value)} is outside the range of {dtype}", about=value) from None
    except (TypeError, ValueError):
        number = math.nan
    if number != number and not isinstance(value, (float, np.generic, expr.FloatImm)):
        raise unexpected(value, "expected a number")
    low, high = float_range(dtype)
    if not low <= number <= high and math.isfinite(number) and not _rounds_into(number, dtype):
        raise MisuseError(f"{number} is outside the range of {dtype}", about=value)
    return number


def _rounds_into(number: float, dtype: DataType) -> bool:
    """True if a value out of range is rounded to the maximum finite value of `dtype`."""
    if dtype.family not in ("float", "bfloat"):
        return False
    with np.errstate(over="ignore"):
        return bool(np.isfinite(dtype.numpy().type(number)))


def check_predicate(predicate: object, index: DataType) -> None:
    """Errors: MisuseError (also TypeError) if it is neither None nor a Bool per lane of `index`."""
    if predicate is None:
        return
    expected = BOOL.spread(index)
    if not isinstance(predicate, expr.PrimExpr) or predicate.dtype != expected:
        lanes = f"{'vscale times ' if index.is_scalable else ''}{index.lanes}"
        raise unexpected(predicate, f"a predicate of {lanes} lanes is {expected}")


def check_variable(var: object, construct: str) -> None:
    """Errors: MisuseError (also TypeError) if `var`, defined by `construct`, is not a tir.Var."""
    if not isinstance(var, expr.Var):
        raise unexpected(var, f"{construct} defines a tir.Var")


def check_variables(variables: object) -> list[expr.Var]:
    """`variables` as a list. Errors: MisuseError (also TypeError) if one is not a tir.Var."""
    if not isinstance(variables, (list, tuple)):
        raise unexpected(variables, "expected a list of variables")
    for var in variables:
        check_variable(var, "a list of variables")
    return list(variables)


_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@lru_cache(maxsize=1 << 12)
def _integer(dtype: str, value: int) -> expr.IntImm:
    """A literal; those that are used often are kept."""
    return expr.IntImm(dtype, value)


def const(value: expr.ExprLike, dtype: str | None = None) -> expr.PrimExpr:
    """A literal of `dtype`, or as `convert` does. A literal of a vector type is broadcast.

    Errors:
        MisuseError: the value is not a number, or outside the range of the datatype.
    """
    if type(value) is int and isinstance(dtype, str) and dtype in _INTEGERS:
        return _integer(dtype, value)
    if isinstance(value, expr.ConstExpr) and not isinstance(value, expr.StringImm):
        value = value.value
    if isinstance(value, np.generic):
        dtype = dtype or value.dtype.name
        value = cast("bool | int | float", value.item())
    if not isinstance(value, (bool, int, float)):
        raise unexpected(value, "a constant is a number")
    if dtype is None:
        return convert(value)
    kind = DataType(dtype)
    scalar = kind.element
    if scalar.is_float:
        literal: expr.PrimExpr = expr.FloatImm(scalar, value)
    elif scalar.is_int and isinstance(value, float) and not math.isfinite(value):
        raise MisuseError(f"{value} is outside the range of {scalar}", about=value)
    elif scalar.is_int:
        literal = expr.IntImm(scalar, int(bool(value)) if scalar.is_bool else int(value))
    else:
        raise MisuseError(f"there are no constants of dtype {str(kind)!r}")
    if kind.is_scalable:
        return expr.Broadcast(literal, lanes_of(kind.lanes))
    return expr.Broadcast(literal, kind.lanes) if kind.lanes > 1 else literal


def convert(value: object) -> expr.PrimExpr:
    """Convert `value` to a PrimExpr: an int to int32, a float to float32, a str to StringImm.

    A number outside the range of 32 bits becomes int64 or float64.

    Errors:
        MisuseError (also TypeError): the value cannot be converted.
    """
    if isinstance(value, expr.PrimExpr):
        return value
    if isinstance(value, (bool, np.bool_)):
        return expr.IntImm(BOOL, int(value))
    if isinstance(value, (int, np.integer)):
        integer = int(value)
        low, high = int_range(INT32)
        return expr.IntImm(INT32 if low <= integer <= high else INT64, integer)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        out_of_range = math.isfinite(number) and abs(number) > float_range(FLOAT32)[1]
        return expr.FloatImm(FLOAT64 if out_of_range else FLOAT32, number)
    if isinstance(value, str):
        return expr.StringImm(value)
    as_expr = getattr(value, "__prim_expr__", None)
    if as_expr is not None:
        return cast("expr.PrimExpr", as_expr())
    raise MisuseError(
        f"expected a scalar expression, found {described(value)}",
        about=value,
        hint="write its members one by one, or * before it" if isinstance(value, tuple) else None,
    )


def convert_all(values: object) -> tuple[expr.PrimExpr, ...]:
    """Convert the elements of a list or tuple to PrimExprs.

    Errors:
        MisuseError (also TypeError): it is neither, or an element cannot be converted.
    """
    if not isinstance(values, (list, tuple)):
        raise unexpected(values, "expected a list of expressions")
    return tuple([v if isinstance(v, expr.PrimExpr) else convert(v) for v in values])


def truth(value: expr.ExprLike) -> expr.PrimExpr:
    """Convert a Boolean to a PrimExpr. Errors: MisuseError (also TypeError) if it is not Bool."""
    truth_value = convert(value)
    if not truth_value.dtype.is_bool:
        raise MisuseError(
            f"expected a Boolean, found `{truth_value}` of {truth_value.dtype}",
            rule="PX-4",
            about=value,
            hint=f"compare it, as in {truth_value} != 0" if truth_value.dtype.is_int else None,
        )
    return truth_value


def _convert_operand(value: expr.ExprLike, other: expr.ExprLike) -> expr.PrimExpr:
    """Convert `value` to an expression; a Python number takes the datatype of `other`.

    An integer outside the range of that datatype is converted by `convert`.
    """
    if isinstance(value, expr.PrimExpr):
        return value
    if (
        isinstance(other, expr.PrimExpr)
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
    ):
        kind = other.dtype
        if kind.is_float:
            return const(value, kind)
        if isinstance(value, int) and kind.is_int and not kind.is_bool:
            low, high = int_range(kind)
            if low <= value <= high:
                return const(value, kind)
    return convert(value)


def same_dtype(
    operation: str, a: expr.ExprLike, b: expr.ExprLike
) -> tuple[expr.PrimExpr, expr.PrimExpr]:
    """Convert two operands. Errors: MisuseError (also TypeError) if their datatypes differ."""
    if isinstance(a, expr.PrimExpr) and isinstance(b, expr.PrimExpr) and a.dtype == b.dtype:
        return a, b
    left, right = _convert_operand(a, b), _convert_operand(b, a)
    if left.dtype != right.dtype:
        raise MisuseError(f"{operation}: mismatched types {left.dtype} and {right.dtype}")
    return left, right


def match_dtypes(a: expr.ExprLike, b: expr.ExprLike) -> tuple[expr.PrimExpr, expr.PrimExpr]:
    """Cast both operands to a common datatype: that of the wider or floating-point operand.

    Errors:
        MisuseError: one operand is a handle and the other a number, or vectors differ in lanes.
    """
    if isinstance(a, expr.PrimExpr) and isinstance(b, expr.PrimExpr) and a.dtype == b.dtype:
        return a, b
    left, right = _convert_operand(a, b), _convert_operand(b, a)
    if left.dtype == right.dtype:
        return left, right
    if left.dtype.is_scalable or right.dtype.is_scalable:
        return match_scalable(left, right)
    lanes = max(left.dtype.lanes, right.dtype.lanes)
    if lanes > 1:
        left, right = widen(left, lanes), widen(right, lanes)
    x, y = left.dtype, right.dtype
    if x.family == "handle" or y.family == "handle":
        number(a)
        number(b)
        raise MisuseError(f"cannot match types {x} and {y}")
    rank = {"float": 3, "bfloat": 2, "int": 0, "uint": 0}
    rx, ry = rank.get(x.family, 1), rank.get(y.family, 1)
    if rx != ry:
        target = x if rx > ry else y
    elif x.bits != y.bits:
        target = x if x.bits > y.bits else y
    else:
        target = x if x.family == "uint" else y
    return cast_to(left, target), cast_to(right, target)


def number(value: expr.ExprLike) -> expr.PrimExpr:
    """Convert a value to an expression. Errors: MisuseError (also TypeError) if it is a string."""
    converted = convert(value)
    if isinstance(converted, expr.StringImm):
        raise MisuseError(f"expected a number, found the string {converted.value!r}", about=value)
    return converted


def cast_to(value: expr.ExprLike, dtype: str) -> expr.PrimExpr:
    """Cast `value` to `dtype`; literals are folded, and a value of that datatype is returned.

    Errors:
        MisuseError: the value is a handle, or a vector with another number of lanes.
    """
    source, kind = convert(value), DataType(dtype)
    if source.dtype == kind:
        return source
    if source.dtype.family == "handle":
        number(value)
        raise MisuseError("cannot cast a handle to other types")
    if source.dtype.lanes == 1 and kind.lanes > 1 and not kind.is_scalable:
        return expr.Broadcast(cast_to(source, kind.element), kind.lanes)
    if kind.vector != source.dtype.vector:
        raise MisuseError(f"a cast keeps the lanes: {source.dtype} to {kind or 'void'}")
    if isinstance(source, (expr.IntImm, expr.FloatImm)) and kind.lanes == 1:
        folded = _converted(exact(source), kind)
        if folded is not None:
            return folded
    if isinstance(source, expr.Broadcast):
        return expr.Broadcast(cast_to(source.value, kind.element), source.lanes)
    if isinstance(source, expr.Ramp) and kind.is_int:
        element = kind.element
        return expr.Ramp(
            cast_to(source.base, element), cast_to(source.stride, element), source.lanes
        )
    return expr.Cast(kind, source)


def _converted(number: float, dtype: DataType) -> expr.PrimExpr | None:
    """The literal for a cast of a number, or None if `dtype` cannot represent it."""
    if dtype.is_bool:
        return const(bool(number), dtype)
    if dtype.is_int:
        return const(int(number), dtype) if math.isfinite(number) else None
    if not dtype.is_float or (isinstance(number, int) and not _is_double(number)):
        return None
    low, high = float_range(dtype)
    out_of_range = math.isfinite(number) and not low <= number <= high
    return None if out_of_range and not _rounds_into(number, dtype) else const(number, dtype)


def _is_double(number: int) -> bool:
    return abs(number) < 1 << 1023 and float(number) == number


def wrap_int(value: int, dtype: DataType) -> int:
    """Wrap `value` modulo 2**bits into the range of `dtype`."""
    low, high = int_range(dtype)
    return (value - low) % (high - low + 1) + low


def trunc_div(a: int, b: int) -> int:
    """a / b rounded toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def exact(literal: expr.IntImm | expr.FloatImm) -> Any:
    """The value of a literal rounded to its datatype."""
    if isinstance(literal, expr.IntImm) or literal.dtype == FLOAT64:
        return literal.value
    with np.errstate(all="ignore"):
        return float(literal.dtype.numpy().type(literal.value))


def _literals(a: expr.PrimExpr, b: expr.PrimExpr) -> tuple[Any, Any] | None:
    if isinstance(a, expr.IntImm) and isinstance(b, expr.IntImm):
        return a.value, b.value
    if isinstance(a, expr.FloatImm) and isinstance(b, expr.FloatImm) and a.dtype.bits >= 32:
        return exact(a), exact(b)
    return None


def _literal(value: float, dtype: DataType) -> expr.PrimExpr:
    if dtype.is_int:
        return _integer(dtype, wrap_int(int(value), dtype))
    with np.errstate(all="ignore"):
        return expr.FloatImm(dtype, float(dtype.numpy().type(value)))


def _overflows(value: float, dtype: DataType) -> bool:
    """True if `value` overflows int64: dimensions are never wrapped (PX-9)."""
    return dtype == INT64 and not -(1 << 63) <= value < 1 << 63


def is_const(size: object, value: int) -> bool:
    """True if `size` is the integer literal `value`."""
    return isinstance(size, expr.IntImm) and size.value == value


def _literal_value(value: expr.PrimExpr) -> float | None:
    """The number of a literal or of a broadcast literal, otherwise None."""
    if isinstance(value, expr.Broadcast):
        value = value.value
    return value.value if isinstance(value, (expr.IntImm, expr.FloatImm)) else None


def _is_literal(value: expr.PrimExpr, number: int) -> bool:
    """True if every lane of `value` is the literal `number`."""
    return _literal_value(value) == number


def is_neutral_term(value: expr.PrimExpr, *, negative: bool) -> bool:
    """True if every lane of `value` is 0; for floats, the zero with the sign `negative`.

    Rule:
        x + -0.0 and x - 0.0 are x for every x; -0.0 + 0.0 and -0.0 - -0.0 are 0.0.
    """
    if not _is_literal(value, 0):
        return False
    literal = value.value if isinstance(value, expr.Broadcast) else value
    if not isinstance(literal, expr.FloatImm):
        return True
    return (math.copysign(1, literal.value) < 0) == negative


def add(lhs: expr.ExprLike, rhs: expr.ExprLike) -> expr.PrimExpr:
    """a + b; literals are folded, and so is the operand 0 (for floats, -0.0)."""
    x, y = match_dtypes(lhs, rhs)
    if (pair := _literals(x, y)) is not None and not _overflows(pair[0] + pair[1], x.dtype):
        return _literal(pair[0] + pair[1], x.dtype)
    if is_neutral_term(y, negative=True):
        return x
    return y if is_neutral_term(x, negative=True) else expr.Add(x, y)


def sub(lhs: expr.ExprLike, rhs: expr.ExprLike) -> expr.PrimExpr:
    """a - b; literals are folded, and so is the subtrahend 0."""
    x, y = match_dtypes(lhs, rhs)
    if (pair := _literals(x, y)) is not None and not _overflows(pair[0] - pair[1], x.dtype):
        return _literal(pair[0] - pair[1], x.dtype)
    return x if is_neutral_term(y, negative=False) else expr.Sub(x, y)


def mul(lhs: expr.ExprLike, rhs: expr.ExprLike) -> expr.PrimExpr:
    """a * b; literals are folded, and so are the factors 1 and (on integers) 0."""
    x, y = match_dtypes(lhs, rhs)
    if (pair := _literals(x, y)) is not None and not _overflows(pair[0] * pair[1], x.dtype):
        return _literal(pair[0] * pair[1], x.dtype)
    for literal, other in ((x, y), (y, x)):
        factor = _literal_value(literal)
        if factor == 1:
            return other
        if factor == 0 and x.dtype.is_int:
            return literal
    return expr.Mul(x, y)


def may_divide_by_zero(node: object) -> TypeGuard[expr.BinaryOpExpr]:
    """True if `node` is an integer division whose divisor is not a nonzero literal."""
    return (
        isinstance(node, (expr.Div, expr.Mod, expr.FloorDiv, expr.FloorMod))
        and node.b.dtype.is_int
        and not (isinstance(node.b, expr.IntImm) and node.b.value != 0)
    )


def _divide(
    node: type[expr.BinaryOpExpr], a: expr.ExprLike, b: expr.ExprLike, *, integers: bool
) -> expr.PrimExpr:
    x, y = match_dtypes(a, b)
    if integers and not x.dtype.is_int:
        raise MisuseError(f"{node.__name__} needs integers, found {x.dtype}", hint="use T.Div or /")
    if _is_literal(y, 0):
        raise MisuseError(f"division of `{x}` by zero", rule="PX-3")
    if (pair := _literals(x, y)) is not None:
        p, q = pair
        if not x.dtype.is_int:
            return _literal(p / q, x.dtype) if node is expr.Div else node(x, y)
        fold: dict[type[expr.BinaryOpExpr], Callable[[int, int], int]] = {
            expr.Div: trunc_div,
            expr.Mod: lambda m, n: m - n * trunc_div(m, n),
            expr.FloorDiv: lambda m, n: m // n,
            expr.FloorMod: lambda m, n: m % n,
        }
        value = fold[node](p, q)
        return node(x, y) if _overflows(value, x.dtype) else _literal(value, x.dtype)
    if x.dtype.is_int:
        remainder = node in (expr.Mod, expr.FloorMod)
        if _is_literal(x, 0) or (remainder and _is_literal(y, 1)):
            return const(0, x.dtype)
    if _is_literal(y, 1) and node in (expr.Div, expr.FloorDiv):
        return x
    return node(x, y)


def truncdiv(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """a / b rounded toward zero. Errors: MisuseError for floats or a literal 0."""
    return _divide(expr.Div, a, b, integers=True)


def truncmod(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """The remainder of `truncdiv`. Errors: MisuseError for a literal 0."""
    return _divide(expr.Mod, a, b, integers=False)


def floordiv(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """a / b rounded down. Errors: MisuseError for floats or a literal 0."""
    return _divide(expr.FloorDiv, a, b, integers=True)


def floormod(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """The remainder of `floordiv`. Errors: MisuseError for floats or a literal 0."""
    return _divide(expr.FloorMod, a, b, integers=True)


def div(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """a / b, of integers rounded toward zero (PX-2). Errors: MisuseError for a literal 0."""
    return _divide(expr.Div, a, b, integers=False)


def true_div(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """a / b of floats. Errors: MisuseError for integers, since the rounding is ambiguous."""
    if convert(a).dtype.is_int and convert(b).dtype.is_int:
        raise MisuseError(
            "the rounding of / on integers is ambiguous",
            hint='use // (down), T.truncdiv (toward zero), or T.Cast("float32", x) / y (a float)',
        )
    return _divide(expr.Div, a, b, integers=False)


def ceildiv(lhs: expr.ExprLike, rhs: expr.ExprLike) -> expr.PrimExpr:
    """a / b of integers rounded up."""
    return floordiv(sub(add(lhs, rhs), 1), rhs)


def _extreme(choose: Callable[[Any, Any], Any], p: Any, q: Any) -> Any:
    """The minimum or maximum; NaN if an operand is NaN."""
    return p if p != p else q if q != q else choose(p, q)


def minimum(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """The minimum; literals and equal operands are folded."""
    x, y = match_dtypes(a, b)
    if (pair := _literals(x, y)) is not None:
        return _literal(_extreme(min, *pair), x.dtype)
    return x if x is y else expr.Min(x, y)


def maximum(a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """The maximum; literals and equal operands are folded."""
    x, y = match_dtypes(a, b)
    if (pair := _literals(x, y)) is not None:
        return _literal(_extreme(max, *pair), x.dtype)
    return x if x is y else expr.Max(x, y)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def compare(node: type[expr.CmpExpr], a: expr.ExprLike, b: object) -> expr.PrimExpr:
    """The comparison `node` of two values; literals are folded."""
    x, y = match_dtypes(a, cast("expr.ExprLike", b))
    if (pair := _literals(x, y)) is not None:
        return expr.IntImm(BOOL, int(_COMPARISONS[node.__name__](*pair)))
    return node(x, y)


_ARITHMETIC: dict[str, Callable[[expr.ExprLike, expr.ExprLike], expr.PrimExpr]] = {
    "Add": add,
    "Sub": sub,
    "Mul": mul,
    "Div": div,
    "Mod": truncmod,
    "FloorDiv": floordiv,
    "FloorMod": floormod,
    "Min": minimum,
    "Max": maximum,
}


def folded(node: expr.BinaryOpExpr) -> expr.PrimExpr | None:
    """The value of an operation on two literals.

    None if the division is by zero, or of floats with a result that is rounded down, and of a
    minimum or maximum of floats neither of which is greater, such as zeros of two signs.
    """
    if isinstance(node, expr.CmpExpr):
        return compare(type(node), node.a, node.b)
    rounded = isinstance(node, (expr.FloorDiv, expr.FloorMod))
    if (rounded or isinstance(node, (expr.Div, expr.Mod))) and _is_literal(node.b, 0):
        return None
    if node.dtype.is_float and (rounded or _are_unordered(node)):
        return None
    return _ARITHMETIC[type(node).__name__](node.a, node.b)


def _are_unordered(node: expr.BinaryOpExpr) -> bool:
    """True of the minimum or maximum of two literals neither of which is greater."""
    match node:
        case expr.Min(expr.FloatImm(value=a), expr.FloatImm(value=b)) | expr.Max(
            expr.FloatImm(value=a), expr.FloatImm(value=b)
        ):
            return not (a < b or b < a)
        case _:
            return False


def is_from_end(index: expr.PrimExpr, size: expr.PrimExpr) -> expr.PrimExpr:
    """True if the int64 `index` is from -size to -1: as unsigned numbers, one comparison."""
    end = cast_to(size, "uint64")
    return cast_to(index, "uint64") + end < end


def all_of(*conditions: expr.ExprLike) -> expr.PrimExpr:
    """The left-associative conjunction, lane by lane for vectors; literals are folded.

    Errors: MisuseError if there is no condition, or one is not Bool.
    """
    return _chain(expr.And, conditions)


def any_of(*conditions: expr.ExprLike) -> expr.PrimExpr:
    """The left-associative disjunction, lane by lane for vectors; literals are folded.

    Errors: MisuseError if there is no condition, or one is not Bool.
    """
    return _chain(expr.Or, conditions)


def _chain(node: type[expr.Junction], conditions: Iterable[expr.ExprLike]) -> expr.PrimExpr:
    terms = [truth(c) for c in conditions]
    if not terms:
        raise MisuseError("at least one condition is needed")
    neutral = node is expr.And
    result = terms[0]
    for term in terms[1:]:
        if result.dtype.lanes != 1 or term.dtype.lanes != 1:
            result = bitwise("tir.bitwise_and" if neutral else "tir.bitwise_or", result, term)
        elif isinstance(result, expr.IntImm):
            result = term if bool(result.value) == neutral else result
        elif isinstance(term, expr.IntImm) and bool(term.value) == neutral:
            continue
        elif isinstance(term, expr.IntImm) and not _may_stop(result):
            result = term
        else:
            result = node(result, term)
    return result


def _may_stop(condition: expr.PrimExpr) -> bool:
    """True if evaluating `condition` may fail or have an effect, so that it must not vanish."""
    return any(isinstance(node, expr.PrimExpr) and node._may_stop() for node in walk(condition))


def logical_not(a: expr.ExprLike) -> expr.PrimExpr:
    """The negation of `a`; a literal is folded. Errors: MisuseError if it is not Bool."""
    x = truth(a)
    return expr.IntImm(BOOL, 1 - x.value) if isinstance(x, expr.IntImm) else expr.Not(x)


def bitwise(name: str, a: expr.ExprLike, b: expr.ExprLike) -> expr.PrimExpr:
    """A bit operation (`tir.bitwise_and`, `tir.shift_left`, …); literals are folded.

    Errors: MisuseError if an operand is not an integer or a literal shift is out of range.
    """
    x, y = match_dtypes(a, b)
    if not x.dtype.is_int:
        raise MisuseError(f"{name} needs integers, found {x.dtype}")
    shift = name.startswith("tir.shift")
    if shift and isinstance(y, expr.IntImm) and not 0 <= y.value < x.dtype.bits:
        raise MisuseError(f"a shift by {y.value} is outside [0, {x.dtype.bits})")
    if shift and _is_literal(y, 0):
        return x
    if isinstance(x, expr.IntImm) and isinstance(y, expr.IntImm):
        p, q = x.value, y.value
        fold = {
            "tir.bitwise_and": lambda: p & q,
            "tir.bitwise_or": lambda: p | q,
            "tir.bitwise_xor": lambda: p ^ q,
            "tir.shift_left": lambda: p << q,
            "tir.shift_right": lambda: p >> q,
        }
        value = fold[name]()
        if not _overflows(value, x.dtype):
            return _literal(value, x.dtype)
    return expr.Call(x.dtype, name, (x, y))


def vector_of(
    scalar: DataType, lanes: int | expr.PrimExpr, requirement: str
) -> tuple[int | expr.PrimExpr, DataType]:
    """The lanes of a vector of scalars, a number or a multiple of vscale, and its datatype.

    Errors:
        MisuseError: `scalar` is a vector, or there are fewer than 2 lanes.
    """
    times = scalable_lanes(lanes)
    if times is None:
        count = as_int(lanes)
        if scalar.vector or count < 2:
            raise MisuseError(f"{requirement} and at least 2 lanes")
        return count, scalar.with_lanes(count)
    if scalar.vector or times < 1:
        raise MisuseError(f"{requirement} and a positive multiple of vscale as lanes")
    return lanes_of(times), DataType(f"{scalar.element}xvscalex{times}")


def lanes_of(times: int) -> expr.PrimExpr:
    """`times` vscale, the number of lanes of a scalable vector."""
    vscale = expr.Call(INT32, "tir.vscale", ())
    return expr.Mul(vscale, expr.IntImm(INT32, times))


def scalable_lanes(lanes: object) -> int | None:
    """k if `lanes` is k times vscale, otherwise None."""
    match lanes:
        case expr.Call(op=op) if getattr(op, "name", "") == "tir.vscale":
            return 1
        case expr.Mul(a=a, b=expr.IntImm(value=times)) | expr.Mul(a=expr.IntImm(value=times), b=a):
            return times if scalable_lanes(a) == 1 else None
        case _:
            return None


def match_scalable(
    left: expr.PrimExpr, right: expr.PrimExpr
) -> tuple[expr.PrimExpr, expr.PrimExpr]:
    """Broadcast a scalar operand to the scalable vector type of the other operand."""
    for vector, scalar in ((left, right), (right, left)):
        if vector.dtype.is_scalable and not scalar.dtype.vector:
            wide = expr.Broadcast(
                cast_to(scalar, vector.dtype.element), lanes_of(vector.dtype.lanes)
            )
            return (left, wide) if vector is left else (wide, right)
    raise MisuseError(f"cannot match types {left.dtype} and {right.dtype}")


def widen(value: expr.PrimExpr, lanes: int) -> expr.PrimExpr:
    """Broadcast a scalar to a number of lanes. Errors: MisuseError if it has another number."""
    if value.dtype.lanes == lanes:
        return value
    if value.dtype.lanes != 1:
        raise MisuseError(f"cannot match {value.dtype.lanes} lanes with {lanes}")
    return expr.Broadcast(value, lanes)
