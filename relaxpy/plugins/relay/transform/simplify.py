"""Replaces calls of operators by simpler ones, by arithmetic, or by constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import preorder
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import is_atom
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.define import listed
from relaxpy.plugins.relay.op.makers import build
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions, map_typed, replace_lets
from relaxpy.plugins.relay.ty import TensorType, TupleType, Type
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class SimplifyExpr(RelayPass):
    """Merges reshapes, transposes, casts and layouts, and removes those without effect.

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
    """All attributes of the call of an operator."""
    assert isinstance(call, rl.Call)
    assert isinstance(call.op, Op)
    return call.op.record.text_attrs(call.attrs)


def _typed(ty: Type | None, operator: str, operand: rl.RelayExpr, **attrs: Any) -> rl.Call:
    """The call of an operator whose type is known."""
    call = build(operator, operand, **attrs)
    return call if ty is None else call.with_type(ty)


def _shape(expr: rl.RelayExpr) -> tuple[int, ...] | None:
    """The shape of an expression, if its dimensions are known."""
    ty = expr.checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        return None
    known = tuple(dim for dim in ty.shape if isinstance(dim, int))
    return known if len(known) == len(ty.shape) else None


def _keeps_elements(transform: rl.Call) -> bool:
    """True if a `layout_transform` moves elements only; others pad blocks with zeros."""
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
    """True if a datatype has all values of another; NumPy casts int64 to float64, too."""
    rounded = other.kind == "f" and one.kind in "iu" and one.itemsize == 8
    return np.can_cast(one, other, "safe") and not rounded


def _numpy(dtype: object) -> np.dtype[Any] | None:
    return np.dtype(str(dtype)) if isinstance(dtype, DataType) and str(dtype) in _NUMPY else None


_NUMPY: Final = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
                 "float16", "float32", "float64"}  # fmt: skip


def _is_filled(expr: rl.RelayExpr, value: int) -> bool:
    """True if all elements of a tensor are a number; its evaluation does nothing else."""
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


@dataclass(frozen=True)
class SimplifyInference(RelayPass):
    """Writes the normalisations as arithmetic, and replaces the value of dropout by its operand.

    These are batch_norm, layer_norm, instance_norm, group_norm and l2_normalize. The result of
    batch_norm and dropout is replaced where it is projected. Tensors of unknown rank stay.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_typed(mod, lambda function: rl.rewrite(function, _rule))


def _rule(node: Node) -> Node | None:
    match node:
        case rl.TupleGetItem(tuple_value=rl.Call(op=Op(name="nn.dropout"), args=(data,)), index=0):
            return data
        case rl.TupleGetItem(tuple_value=rl.Call(op=Op(name="nn.batch_norm")) as call, index=0):
            return _written(call, _batch_norm)
        case rl.Call(op=Op(name=name)) if name in _NORMS:
            return _written(node, _NORMS[name])
        case _:
            return None


def _op(name: str, *args: rl.RelayExpr, **attrs: Any) -> rl.RelayExpr:
    op = Op.get(name)
    return rl.Call(op, args, Attrs(op.record.maker_attrs(attrs)))


class _Norm:
    """A call of a normalisation: its operands and attributes, with the defaults filled in."""

    def __init__(self, call: rl.Call, ty: TensorType, op: Op) -> None:
        self.data, *self.others = call.args
        self.shape: tuple[Any, ...] = ty.shape  # type: ignore[assignment]
        self.dtype = str(ty.dtype)
        self.attrs: Mapping[str, Any] = op.record.text_attrs(call.attrs)

    def const(self, value: float) -> rl.Constant:
        """A scalar of the datatype of the data."""
        return rl.const(np.array(value, self.dtype))

    def axis(self) -> int:
        """The axis of the channels, counted from 0."""
        return int(self.attrs["axis"]) % len(self.shape)

    def along(self, vector: rl.RelayExpr) -> rl.RelayExpr:
        """A vector of channels as it broadcasts against the data."""
        behind = len(self.shape) - self.axis() - 1
        return _op("expand_dims", vector, axis=1, num_newaxis=behind) if behind else vector

    def standardized(self, data: rl.RelayExpr, axes: Sequence[int]) -> rl.RelayExpr:
        """Data of mean 0 and variance 1 over some axes."""
        centered = data - _op("mean", data, axis=axes, keepdims=True)
        variance = _op("mean", centered * centered, axis=axes, keepdims=True)
        result: rl.RelayExpr = centered * _op("rsqrt", variance + self.const(self.attrs["epsilon"]))
        return result

    def scaled(self, data: rl.RelayExpr) -> rl.RelayExpr:
        """Data times gamma plus beta, as far as the call asks for them."""
        gamma, beta = self.others
        if self.attrs["scale"]:
            data = data * self.along(gamma)
        if self.attrs["center"]:
            data = data + self.along(beta)
        return data


def _written(call: rl.Call, write: Callable[[_Norm], rl.RelayExpr]) -> rl.RelayExpr | None:
    ty = call.args[0].checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple) or not ty.shape:
        return None
    assert isinstance(call.op, Op)
    return write(_Norm(call, ty, call.op)).with_type(ty)


def _batch_norm(norm: _Norm) -> rl.RelayExpr:
    gamma, beta, mean, variance = norm.others
    factor = _op("rsqrt", variance + norm.const(norm.attrs["epsilon"]))
    if norm.attrs["scale"]:
        factor = factor * gamma
    shift = -mean * factor
    if norm.attrs["center"]:
        shift = shift + beta
    result: rl.RelayExpr = norm.data * norm.along(factor) + norm.along(shift)
    return result


def _layer_norm(norm: _Norm) -> rl.RelayExpr:
    return norm.scaled(norm.standardized(norm.data, [norm.axis()]))


def _instance_norm(norm: _Norm) -> rl.RelayExpr:
    axes = [axis for axis in range(1, len(norm.shape)) if axis != norm.axis()]
    return norm.scaled(norm.standardized(norm.data, axes))


def _group_norm(norm: _Norm) -> rl.RelayExpr:
    # The channels of a group become an axis behind that of the groups.
    axis, groups = norm.axis(), int(norm.attrs["num_groups"])
    # 0 copies an axis; -4 splits one into two sizes, and a size of -1 is inferred.
    split = [*(0 for _ in range(axis)), -4, groups, -1, *(0 for _ in norm.shape[axis + 1 :])]
    data = _op("reshape", norm.data, newshape=split)
    axes = [i for i in range(1, len(norm.shape) + 1) if i != axis]
    merged = [*(0 for _ in range(axis)), -3, *(0 for _ in norm.shape[axis + 1 :])]
    return norm.scaled(_op("reshape", norm.standardized(data, axes), newshape=merged))


def _l2_normalize(norm: _Norm) -> rl.RelayExpr:
    axes = norm.attrs["axis"]
    total = _op("sum", norm.data * norm.data, axis=axes, keepdims=True)
    result: rl.RelayExpr = norm.data / _op(
        "sqrt", _op("maximum", total, norm.const(norm.attrs["eps"]))
    )
    return result


_NORMS: Mapping[str, Callable[[_Norm], rl.RelayExpr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}


MAX_BYTES = 1 << 20
"""The largest tensor that a call is replaced by, unless its operands are larger."""


@dataclass(frozen=True)
class FoldConstant(RelayPass):
    """Replaces calls of operators on constants by their values, and branches that are known.

    A call stays if it has no operand, as that of `zeros`, if it has state, if its evaluation
    fails, if its value has a more precise type, or if it takes more than 1 MiB and more memory
    than the operands.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_typed(mod, lambda function: replace_lets(function, _stays, _folded))


def _stays(let: rl.Let, value: rl.RelayExpr) -> bool:
    annotation = let.var.type_annotation
    return not _is_constant(value) or annotation not in (None, value.checked_type_)


def _is_constant(expr: rl.RelayExpr) -> bool:
    """True if an expression is a constant, or a tuple of constants, however deep."""
    parts = preorder([expr], lambda part: part.fields if isinstance(part, rl.Tuple) else ())
    return all(isinstance(part, (rl.Tuple, rl.Constant)) for part in parts)


def _folded(node: Node) -> Node | None:
    match node:
        case rl.Call():
            return evaluated_call(node)
        case rl.TupleGetItem(tuple_value=rl.Tuple(fields=fields), index=index):
            known = all(is_atom(field) or _is_constant(field) for field in fields)
            return fields[index] if known and index < len(fields) else None
        case rl.If(cond=rl.Constant(data=data), true_branch=true, false_branch=false):
            return true if data else false
        case _:
            return None


def evaluated_call(call: rl.Call) -> rl.RelayExpr | None:
    """The value of a call of an operator on constants; None if it stays a call."""
    op = call.op
    if not isinstance(op, Op) or not call.args:
        return None
    if not all(map(_is_constant, call.args)):
        return None
    values = [_value(arg) for arg in call.args]
    try:
        result = hooks.call("relay_operator", op, values, call.attrs, call.checked_type_)
    except RelaxpyError:
        return None  # it fails when the program runs
    if _bytes(result) > max(MAX_BYTES, sum(map(_bytes, values))):
        return None
    folded = _expression(result)
    return folded if folded.checked_type_ == call.checked_type_ else None


def _value(expr: rl.RelayExpr) -> Any:
    if isinstance(expr, rl.Tuple):
        return tuple(map(_value, expr.fields))
    assert isinstance(expr, rl.Constant)
    return expr.data


def _expression(value: Any) -> rl.RelayExpr:
    if isinstance(value, tuple):
        fields = tuple(map(_expression, value))
        types = tuple(field.checked_type for field in fields)
        return rl.Tuple(fields, checked_type_=TupleType(types))
    return rl.Constant(np.asarray(value))


def _bytes(value: Any) -> int:
    return sum(map(_bytes, value)) if isinstance(value, tuple) else np.asarray(value).nbytes
