"""Operators on tensors whose elements are known at import, computed there.

One function for an operator, over arrays of NumPy: of numbers, or of objects that are numbers and
expressions of sizes (`Contents`). What cannot be decided raises `UndecidedError`; the program
computes it then.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import ceil, floor
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.ir.tir.substitution import substitute
from relaxpy.plugins.importing.tensors import (
    LIMIT,
    Element,
    new_analyzer,
    number,
    objects,
    to_integer,
)

Function: TypeAlias = Callable[..., Any]

FOLDED: dict[str, Function] = {}


class UndecidedError(Exception):
    """The elements depend on the values of sizes in a way that no expression of them has."""


def _folded(*names: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        FOLDED.update(dict.fromkeys(names, function))
        return function

    return register


def _number(array: Array) -> int:
    """The only element, which has to be a number."""
    element = array.reshape(-1)[0]
    if isinstance(element, PrimExpr):
        raise UndecidedError
    return int(element)


def _numbers(array: Array) -> list[int]:
    if any(isinstance(element, PrimExpr) for element in array.reshape(-1)):
        raise UndecidedError
    return [int(element) for element in array.reshape(-1)]


def _require_room(*sizes: int) -> None:
    """Check that a result of these sizes is small enough to be carried element by element."""
    if min(sizes, default=0) < 0 or math.prod(sizes) > 2 * LIMIT:
        raise UndecidedError


def _each(function: Callable[..., Element], *arrays: Array) -> Array:
    """The elements of a function on corresponding elements of arrays, which broadcast."""
    _require_room(*np.broadcast_shapes(*(array.shape for array in arrays)))
    together = np.broadcast_arrays(*arrays)
    flat = [array.reshape(-1) for array in together]
    values = [function(*items) for items in zip(*flat, strict=True)]
    return objects(map(number, values), together[0].shape)


def _is_symbolic(*arrays: Array) -> bool:
    return any(array.dtype == object for array in arrays)


def _arithmetic(symbolic: Callable[..., Any], numeric: Callable[..., Any]) -> Function:
    def compute(_: Mapping[str, Any], x: Array, *others: Array) -> Array:
        result = x
        for other in others:
            _require_room(*np.broadcast_shapes(result.shape, other.shape))
            if _is_symbolic(result, other):
                result = _each(symbolic, result, other)
            else:
                result = numeric(result, other)
        return result

    return compute


def truncated(a: Element, b: Element) -> Element:
    """The quotient rounded towards zero; that of floats is exact."""
    for item in (a, b):
        kind = str(item.dtype) if isinstance(item, PrimExpr) else type(item).__name__
        if "float" in kind:
            return a / b
    if isinstance(b, int) and b == 0:
        raise UndecidedError
    if not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        return int(a) // int(b) if (int(a) < 0) == (int(b) < 0) else -(-int(a) // int(b))
    analyzer = new_analyzer()
    if all(
        analyzer.can_prove(item >= 0) if isinstance(item, PrimExpr) else item >= 0
        for item in (a, b)
    ):
        return a // b
    return tir.Div(a, b) if isinstance(a, PrimExpr) else tir.Div(tir.IntImm("int64", int(a)), b)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return _each(truncated, a, b).astype(a.dtype)
    return a / b


def _extremum(make: Callable[..., PrimExpr], choose: Callable[..., Element]) -> Function:
    def of(a: Element, b: Element) -> Element:
        if isinstance(a, PrimExpr):
            return make(a, b)
        return make(b, a) if isinstance(b, PrimExpr) else choose(a, b)

    return of


FOLDED["Add"] = FOLDED["Sum"] = _arithmetic(operator.add, np.add)
FOLDED["Sub"] = _arithmetic(operator.sub, np.subtract)
FOLDED["Mul"] = _arithmetic(operator.mul, np.multiply)
FOLDED["Div"] = _arithmetic(truncated, _divide)
FOLDED["Max"] = _arithmetic(_extremum(tir.Max, max), np.maximum)
FOLDED["Min"] = _arithmetic(_extremum(tir.Min, min), np.minimum)


@_folded("Mod")
def _mod(attributes: Mapping[str, Any], a: Array, b: Array) -> Array:
    if attributes.get("fmod", 0) or not all(_numbers(b)):
        raise UndecidedError
    return _each(operator.mod, a, b) if _is_symbolic(a, b) else np.mod(a, b)


@_folded("Neg")
def _negated(_: Mapping[str, Any], x: Array) -> Array:
    return _each(lambda item: 0 - item, x) if _is_symbolic(x) else np.negative(x)


@_folded("Floor")
def _floor(_: Mapping[str, Any], x: Array) -> Array:
    return _each(floor, x) if _is_symbolic(x) else np.floor(x)


@_folded("Ceil")
def _ceil(_: Mapping[str, Any], x: Array) -> Array:
    return _each(ceil, x) if _is_symbolic(x) else np.ceil(x)


def _compared(a: Element, b: Element, sign: str) -> bool:
    compare = {"Equal": operator.eq, "Greater": operator.gt, "Less": operator.lt}
    compare |= {"GreaterOrEqual": operator.ge, "LessOrEqual": operator.le}
    if not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        return bool(compare[sign](a, b))
    if sign == "Equal":
        differ = number(a - b) if isinstance(a, PrimExpr) else number(b - a)
        if not isinstance(differ, PrimExpr):
            return differ == 0
        analyzer = new_analyzer()
        if analyzer.can_prove(sized(differ) > 0) or analyzer.can_prove(sized(differ) < 0):
            return False
        raise UndecidedError
    analyzer = new_analyzer()
    condition: Any = compare[sign](a, b)
    if analyzer.can_prove(sized(condition)):
        return True
    if analyzer.can_prove(sized(tir.Not(condition))):
        return False
    raise UndecidedError


def sized(expr: PrimExpr) -> PrimExpr:
    """The expression over variables that are known to be sizes: none is negative."""
    sizes = {node for node in walk(expr) if isinstance(node, tir.Var)}
    return substitute(expr, {var: tir.SizeVar(var.name, var.dtype) for var in sizes})


def _comparison(name: str) -> Function:
    def compute(_: Mapping[str, Any], a: Array, b: Array) -> Array:
        _require_room(*np.broadcast_shapes(a.shape, b.shape))
        together = np.broadcast_arrays(a, b)
        pairs = zip(together[0].reshape(-1), together[1].reshape(-1), strict=True)
        flat = [_compared(x, y, name) for x, y in pairs]
        return np.array(flat, bool).reshape(together[0].shape)

    return compute


for _name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
    FOLDED[_name] = _comparison(_name)


@_folded("Not")
def _not(_: Mapping[str, Any], x: Array) -> Array:
    return ~x.astype(bool)


@_folded("And")
def _and(_: Mapping[str, Any], a: Array, b: Array) -> Array:
    result: Array = a.astype(bool) & b.astype(bool)
    return result


@_folded("Or")
def _or(_: Mapping[str, Any], a: Array, b: Array) -> Array:
    result: Array = a.astype(bool) | b.astype(bool)
    return result


@_folded("Where")
def _where(_: Mapping[str, Any], condition: Array, a: Array, b: Array) -> Array:
    _require_room(*np.broadcast_shapes(condition.shape, a.shape, b.shape))
    return np.where(condition.astype(bool), a, b)


@_folded("Identity")
def _identity(_: Mapping[str, Any], x: Array) -> Array:
    return x


@_folded("Gather")
def _gather(attributes: Mapping[str, Any], x: Array, indices: Array) -> Array:
    index = np.array(_numbers(indices), np.int64).reshape(indices.shape)
    return np.take(x, index, attributes.get("axis", 0))


@_folded("Concat")
def _concat(attributes: Mapping[str, Any], *arrays: Array) -> Array:
    return np.concatenate(arrays, attributes.get("axis", 1))


@_folded("Slice")
def _slice(attributes: Mapping[str, Any], x: Array, *operands: Array) -> Array:
    lists = [_numbers(operand) for operand in operands]
    if not lists:
        lists = [attributes["starts"], attributes["ends"]]
        lists += [attributes["axes"]] if "axes" in attributes else []
    starts, ends = lists[:2]
    axes = lists[2] if len(lists) > 2 else list(range(len(starts)))
    steps = lists[3] if len(lists) > 3 else [1] * len(starts)
    index: list[slice] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x.shape[axis]
        stop: int | None = end
        if step < 0 and end < -size:
            stop = None
        index[axis] = slice(max(start, -size) if step < 0 else start, stop, step)
    return x[tuple(index)]


def _axes(attributes: Mapping[str, Any], operands: tuple[Array, ...]) -> list[int] | None:
    if operands:
        return _numbers(operands[0])
    return attributes.get("axes")


@_folded("Squeeze")
def _squeeze(attributes: Mapping[str, Any], x: Array, *operands: Array) -> Array:
    axes = _axes(attributes, operands)
    return np.squeeze(x, None if axes is None else tuple(axes))


@_folded("Unsqueeze")
def _unsqueeze(attributes: Mapping[str, Any], x: Array, *operands: Array) -> Array:
    return np.expand_dims(x, tuple(_axes(attributes, operands) or ()))


@_folded("Reshape")
def _reshape(attributes: Mapping[str, Any], x: Array, *operands: Array) -> Array:
    shape = _numbers(operands[0]) if operands else list(attributes["shape"])
    if not attributes.get("allowzero", 0):
        shape = [x.shape[k] if size == 0 else size for k, size in enumerate(shape)]
    return x.reshape(shape)


@_folded("Flatten")
def _flatten(attributes: Mapping[str, Any], x: Array) -> Array:
    axis = attributes.get("axis", 1)
    return x.reshape(int(np.prod(x.shape[:axis], dtype=int)), -1)


@_folded("Transpose")
def _transpose(attributes: Mapping[str, Any], x: Array) -> Array:
    return x.transpose(attributes.get("perm"))


@_folded("Expand")
def _expand(_: Mapping[str, Any], x: Array, shape: Array) -> Array:
    wanted = np.broadcast_shapes(x.shape, tuple(_numbers(shape)))
    _require_room(*wanted)
    return np.broadcast_to(x, wanted)


@_folded("Tile")
def _tile(_: Mapping[str, Any], x: Array, repeats: Array) -> Array:
    times = _numbers(repeats)
    _require_room(x.size, *times)
    return np.tile(x, times)


@_folded("ConstantOfShape")
def _constant_of_shape(attributes: Mapping[str, Any], shape: Array) -> Array:
    value = np.asarray(attributes.get("value", np.zeros(1, np.float32))).reshape(-1)
    return np.broadcast_to(value[0], _numbers(shape))  # memory of one element


@_folded("Range")
def _range(_: Mapping[str, Any], start: Array, limit: Array, delta: Array) -> Array:
    numbers = [_number(item) for item in (start, limit, delta)]
    if numbers[2] == 0 or start.dtype.kind == "f":
        raise UndecidedError
    _require_room(max(0, (numbers[1] - numbers[0]) // numbers[2]))
    return np.arange(*numbers, dtype=start.dtype if start.dtype != object else np.int64)


def _reduced(combine: Function, attributes: Mapping[str, Any], x: Array, *operands: Array) -> Array:
    axes = _axes(attributes, operands)
    if axes is None and attributes.get("noop_with_empty_axes", 0):
        return x
    chosen = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    if chosen != list(range(x.ndim)):
        raise UndecidedError
    if not x.size:
        raise UndecidedError
    items = [x.reshape(-1)[k : k + 1] for k in range(x.size)]
    total: Array = combine(attributes, *items)
    return total.reshape([1] * x.ndim) if attributes.get("keepdims", 1) else total.reshape(())


for _name, _combine in (("Prod", "Mul"), ("Sum", "Add"), ("Max", "Max"), ("Min", "Min")):
    FOLDED[f"Reduce{_name}"] = partial(_reduced, FOLDED[_combine])


def cast(x: Array, dtype: str) -> Array:
    """The elements in another datatype."""
    if "int" in dtype:
        whole = [to_integer(item) for item in x.reshape(-1)]
        if any(item is None for item in whole):
            raise UndecidedError
        return objects([item for item in whole if item is not None], x.shape)
    if dtype.startswith("float"):
        return _each(
            lambda item: tir.Cast(dtype, item) if isinstance(item, PrimExpr) else float(item), x
        )
    if dtype == "bool":
        zero: Array = _comparison("Equal")({}, x, np.zeros((), int))
        return ~zero
    raise UndecidedError
