"""Replaces calls of operators by others that compute the same bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import is_atom
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.define import listed
from relaxpy.plugins.relay.op.makers import build
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions
from relaxpy.plugins.relay.ty import TensorType, Type
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class SimplifyExpr(RelayPass):
    """Merge reshapes, transposes, casts and layouts, and remove those without effect.

    `reshape(reshape(x, a), b)` becomes `reshape(x, b)`. `x * 1`, `x / 1` and `x - 0`
    become `x`, and so does `x + 0` of integers. Results are bitwise equal.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        new = mod
        while True:
            typed = infer_module(new)
            result = map_functions(typed, lambda function: rl.rewrite(function, _simpler))
            if result is typed:
                return new
            new = result


def _simpler(node: Node) -> Node | None:
    if not isinstance(node, rl.Call) or not isinstance(node.op, Op):
        return None
    rule = _SIMPLER.get(node.op.name)
    new = None if rule is None else rule(node)
    return new.with_type(node.checked_type) if new and not new.checked_type_ else new


def _called(expr: rl.RelayExpr, *names: str) -> bool:
    return isinstance(expr, rl.Call) and isinstance(expr.op, Op) and expr.op.name in names


def _attributes(call: rl.RelayExpr) -> Mapping[str, Any]:
    """Return all attributes of the call of an operator."""
    assert isinstance(call, rl.Call)
    assert isinstance(call.op, Op)
    return call.op.record.text_attrs(call.attrs)


def _typed(ty: Type | None, operator: str, operand: rl.RelayExpr, **attrs: Any) -> rl.Call:
    """Return the call of an operator whose type is known."""
    call = build(operator, operand, **attrs)
    return call if ty is None else call.with_type(ty)


def _shape(expr: rl.RelayExpr) -> tuple[int, ...] | None:
    """Return the shape of an expression, if its dimensions are known."""
    ty = expr.checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        return None
    known = tuple(dim for dim in ty.shape if isinstance(dim, int))
    return known if len(known) == len(ty.shape) else None


def _keeps_elements(transform: rl.Call) -> bool:
    """Return whether a `layout_transform` moves elements only; others pad blocks with zeros."""
    old, new = _shape(transform.args[0]), _shape(transform)
    if old is not None and new is not None:
        return prod(old) == prod(new)
    attrs = _attributes(transform)
    return bool((attrs["src_layout"] + attrs["dst_layout"]).isalpha())


_RESHAPES: Final = ("reshape", "expand_dims", "squeeze", "nn.batch_flatten")


def _reshape(call: rl.Call) -> rl.RelayExpr | None:
    shape, data = _shape(call), call.args[0]
    if shape is None:
        return None
    if _shape(data) == shape:
        return data
    if _called(data, *_RESHAPES) and 0 not in shape:
        assert isinstance(data, rl.Call)
        inner = data.args[0]
        same = _shape(inner) == shape
        return inner if same else _typed(call.checked_type_, "reshape", inner, newshape=shape)
    return None


def _permutation(call: rl.RelayExpr) -> list[int] | None:
    ty = call.checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        return None
    rank, axes = len(ty.shape), _attributes(call)["axes"]
    return [*range(rank)][::-1] if axes is None else [axis % rank for axis in listed(axes)]


def _transpose(call: rl.Call) -> rl.RelayExpr | None:
    outer, data = _permutation(call), call.args[0]
    if outer is None:
        return None
    if _called(data, "transpose"):
        assert isinstance(data, rl.Call)
        inner = _permutation(data)
        assert inner is not None
        axes = [inner[axis] for axis in outer]
        source = data.args[0]
        identity = axes == sorted(axes)
        return source if identity else _typed(call.checked_type_, "transpose", source, axes=axes)
    return data if outer == sorted(outer) else None


def _layout_transform(call: rl.Call) -> rl.RelayExpr | None:
    attrs, data = _attributes(call), call.args[0]
    if attrs["src_layout"] == attrs["dst_layout"]:
        return data
    if not _called(data, "layout_transform"):
        return None
    assert isinstance(data, rl.Call)
    inner = _attributes(data)
    if inner["dst_layout"] != attrs["src_layout"] or not _keeps_elements(data):
        return None  # the axes get other names in between, or elements are added
    first, last, source = inner["src_layout"], attrs["dst_layout"], data.args[0]
    if first == last:
        return source
    return _typed(call.checked_type_, "layout_transform", source, src_layout=first, dst_layout=last)


def _cast_like(call: rl.Call) -> rl.RelayExpr | None:
    data, like = call.args
    same = data.checked_type_ == call.checked_type_
    return data if same and is_atom(like) else None


def _cast(call: rl.Call) -> rl.RelayExpr | None:
    data = call.args[0]
    if data.checked_type_ == call.checked_type_:
        return data
    if not _called(data, "cast"):
        return None
    assert isinstance(data, rl.Call)
    between, source = data.checked_type_, data.args[0].checked_type_
    if isinstance(between, TensorType) and isinstance(source, TensorType):
        one, other = (_numpy(ty.dtype) for ty in (source, between))
        if one is not None and other is not None and _is_exact(one, other):
            dtype = _attributes(call)["dtype"]
            return _typed(call.checked_type_, "cast", data.args[0], dtype=dtype)
    return None


def _is_exact(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether a datatype has all values of another; NumPy casts int64 to float64, too."""
    rounded = other.kind == "f" and one.kind in "iu" and one.itemsize == 8
    return np.can_cast(one, other, "safe") and not rounded


def _numpy(dtype: object) -> np.dtype[Any] | None:
    return np.dtype(str(dtype)) if isinstance(dtype, DataType) and str(dtype) in _NUMPY else None


_NUMPY: Final = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
                 "float16", "float32", "float64"}  # fmt: skip


def _is_filled(expr: rl.RelayExpr, value: int) -> bool:
    """Return whether all elements of a tensor are a number; its evaluation does nothing else."""
    if isinstance(expr, rl.Constant):
        data = np.asarray(expr.data)
        return bool(np.all(data == value)) and not np.signbit(data).any()
    if not isinstance(expr, rl.Call) or not all(map(is_atom, expr.args)):
        return False
    if _called(expr, "full", "full_like"):
        return _is_filled(expr.args[-1], value)
    return _called(expr, *(("ones", "ones_like") if value else ("zeros", "zeros_like")))


def _neutral(value: int, *, swapped: bool, of_floats: bool) -> Callable[[rl.Call], Any]:
    def rule(call: rl.Call) -> rl.RelayExpr | None:
        one, other = call.args
        for kept, constant in ((one, other), (other, one))[: 1 + swapped]:
            ty = kept.checked_type_
            known = isinstance(ty, TensorType) and _shape(kept) is not None
            if known and ty == call.checked_type_ and _is_filled(constant, value):
                assert isinstance(ty, TensorType)
                if of_floats or not str(ty.dtype).startswith("float"):
                    return kept
        return None

    return rule


_SIMPLER: Final[dict[str, Callable[[rl.Call], rl.RelayExpr | None]]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "cast": _cast,
    "cast_like": _cast_like,
    # The sum of -0.0 and 0.0 is 0.0.
    "add": _neutral(0, swapped=True, of_floats=False),
    "subtract": _neutral(0, swapped=False, of_floats=True),
    "multiply": _neutral(1, swapped=True, of_floats=True),
    "divide": _neutral(1, swapped=False, of_floats=True),
}
