"""The values for which operators are defined, as far as the uses of a parameter say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

import numpy as np

from relaxpy.dataclass import dataclass
from relaxpy.exec.runtime.values import Array
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir


@dataclass(frozen=True, slots=True)
class Domain:
    """Numbers from `low` to `high`, and integers below each dimension in `below`."""

    low: float = -np.inf
    high: float = np.inf
    below: tuple[tir.PrimExpr, ...] = ()

    def __and__(self, other: Domain) -> Domain:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Domain(low, high, self.below + other.below)

    def moved_inside(self, array: Array, sizes: Sequence[int]) -> Array:
        """The array, with other elements for those that are outside; `sizes` are those of `below`.

        Elements that are inside stay, except for integers, which are counted modulo the sizes.
        """
        if array.dtype.kind in "iu":
            if self.low > 0:
                array = np.maximum(array, np.asarray(ceil(self.low), array.dtype))
            return array % np.asarray(max(1, min(sizes)), array.dtype) if sizes else array
        if array.dtype.kind == "b":
            return array
        wide = array.astype("float64")
        if np.isfinite(self.low) and np.isfinite(self.high):
            middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
            moved = middle + half * np.sin(wide)
        else:
            moved = self.low + np.abs(wide)
        is_inside = (wide >= self.low) & (wide <= self.high)
        return np.where(is_inside, array, moved.astype(array.dtype))


_POSITIVE: Final = Domain(low=0.125)
_UNIT: Final = Domain(-0.96875, 0.96875)
#: Operators that are defined for some values of an operand, by its index.
_OPERANDS: Final = {
    **dict.fromkeys(("log", "sqrt", "rsqrt"), (0, _POSITIVE)),
    **dict.fromkeys(("asin", "acos", "atanh"), (0, _UNIT)),
    "acosh": (0, Domain(low=1.0)),
    "power": (0, _POSITIVE),
    **dict.fromkeys(("divide", "floor_divide", "floor_mod", "mod"), (1, _POSITIVE)),
    "nn.batch_norm": (4, _POSITIVE),
}
#: Operators whose results have the elements of the first operand.
_SAME_VALUES: Final = frozenset(
    {
        *("astype", "broadcast_to", "concat", "dynamic_strided_slice", "expand_dims", "flatten"),
        *("flip", "layout_transform", "permute_dims", "repeat", "reshape", "split", "squeeze"),
        *("builtin.stop_lift_params", "stack", "strided_slice", "tile"),
    }
)


def domains_of(func: rx.Function) -> Mapping[rx.Var, Domain]:
    """The domains of parameters that operators of the function, or of its branches, restrict."""
    found: dict[rx.Var, Domain] = {}
    _sequence(func.body, None, found)
    return {param: found[param] for param in func.params if param in found}


def _sequence(body: rx.Expr, result: Domain | None, found: dict[rx.Var, Domain]) -> None:
    """Add the domains that the bindings of a body need, the last ones first."""
    if not isinstance(body, rx.SeqExpr):
        return
    _require(body.body, result, found)
    for block in reversed(body.blocks):
        for binding in reversed(block.bindings):
            needed = None if binding.var is None else found.get(binding.var)
            value = binding.value
            if isinstance(value, rx.If):
                _sequence(value.false_branch, needed, found)
                _sequence(value.true_branch, needed, found)
            elif isinstance(value, rx.Call) and isinstance(value.op, Op):
                _call(value, value.op.name.removeprefix("relax."), needed, found)
            else:
                _require(value, needed, found)


def _require(value: rx.Expr, domain: Domain | None, found: dict[rx.Var, Domain]) -> None:
    if domain is None:
        return
    if isinstance(value, rx.Var):
        found[value] = found.get(value, Domain()) & domain
    elif isinstance(value, rx.Tuple):
        for each in value.fields:
            _require(each, domain, found)
    elif isinstance(value, rx.TupleGetItem):
        _require(value.tuple_value, domain, found)


def _call(call: rx.Call, op: str, needed: Domain | None, found: dict[rx.Var, Domain]) -> None:
    if op in _SAME_VALUES:
        _require(call.args[0], needed, found)
    if op in _OPERANDS:
        index, domain = _OPERANDS[op]
        _require(call.args[index], domain, found)
    for operand, dims in _indices(call, op):
        _require(operand, Domain(below=tuple(dims)), found)


def _indices(call: rx.Call, op: str) -> list[tuple[rx.Expr, Sequence[tir.PrimExpr]]]:
    """The operands that are indices, each with the dimensions that it has to be below."""
    attrs: Mapping[str, Any] = call.attrs or {}
    if op == "one_hot":
        return [(call.args[0], [tir.IntImm("int64", int(attrs["depth"]))])]
    dims = _dims(call.args[0]) if call.args else []
    if not dims:
        return []
    match op:
        case "take" if attrs.get("axis") is None:
            return [(call.args[1], dims[:1] if len(dims) == 1 else [])]
        case "take" | "gather_elements" | "scatter_elements":
            axis = int(attrs["axis"])
            return [(call.args[1], dims[axis : axis + 1 or None])]
        case "gather_nd":
            return [(call.args[1], dims[int(attrs.get("batch_dims", 0)) :])]
        case "scatter_nd":
            return [(call.args[1], dims)]
        case "index_tensor" | "index_put" if isinstance(call.args[1], rx.Tuple):
            return [(i, [dim]) for i, dim in zip(call.args[1].fields, dims, strict=False)]
        case "nn.nll_loss":
            return [(call.args[1], dims[1:2] or dims[:1])]
        case _:
            return []


def _dims(value: rx.Expr) -> list[tir.PrimExpr]:
    match value.struct_info:
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=dims)):
            return list(dims)
        case _:
            return []
