"""Moves factors of channels into the weights of convolutions and dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import is_atom
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.transform.passes import RelayPass
from relaxpy.ir.relay.transform.rewriting import (
    CallRewriter,
    Uses,
    attributes,
    called,
    shape_of,
    typed,
)
from relaxpy.ir.relay.ty import TensorType

_PRODUCTS: Final = ("nn.conv2d", "nn.dense")


@dataclass(frozen=True)
class BackwardFoldScaleAxis(CallRewriter):
    """Write `conv2d(x, w) * s` as `conv2d(x, w * s)` where `s` has a factor for each channel.

    So with dense. Factors are names and constants, and the convolution has no other use. Results
    may differ in the last bits.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(1, 2), float32], %w: Tensor[(3, 2), float32])"
        ...                   " { nn.dense(%x, %w) * 2f }")
        >>> new = relay.transform.BackwardFoldScaleAxis()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(1, 2), float32], %w: Tensor[(3, 2), float32]) -> Tensor[(1, 3), float32] {
          %0 = multiply(%w, 2f);
          nn.dense(%x, %0)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        if name != "multiply":
            return None
        for product, factor in (call.args, call.args[::-1]):
            if not called(product, *_PRODUCTS) or not uses.is_single(product):
                continue
            assert isinstance(product, rl.Call)
            axes = _axes(product, attributes(product))
            if axes is not None and product.checked_type_ == call.checked_type_:
                weight = _scaled(
                    product.args[1], factor, shape_of(product), _dtype(call), *axes.outputs
                )
                if weight is not None:
                    attrs = product.attrs
                    return build(_name(product), product.args[0], weight, **attrs)
        return None


@dataclass(frozen=True)
class ForwardFoldScaleAxis(CallRewriter):
    """Write `conv2d(x * s, w)` as `conv2d(x, w * s)` where `s` has a factor for each channel.

    So with dense. Factors are names and constants, and the convolution has no groups. Results may
    differ in the last bits.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(1, 2), float32], %w: Tensor[(3, 2), float32])"
        ...                   " { nn.dense(%x * 2f, %w) }")
        >>> new = relay.transform.ForwardFoldScaleAxis()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(1, 2), float32], %w: Tensor[(3, 2), float32]) -> Tensor[(1, 3), float32] {
          %0 = multiply(%w, 2f);
          nn.dense(%x, %0)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        if name not in _PRODUCTS or not called(call.args[0], "multiply"):
            return None
        scaled, axes = call.args[0], _axes(call, attributes(call))
        assert isinstance(scaled, rl.Call)
        if axes is None or axes.inputs is None:
            return None
        for data, factor in (scaled.args, scaled.args[::-1]):
            if data.checked_type_ == scaled.checked_type_:
                weight = _scaled(call.args[1], factor, shape_of(data), _dtype(call), *axes.inputs)
                if weight is not None:
                    return build(name, data, weight, **call.attrs)
        return None


@dataclass(frozen=True)
class FoldScaleAxis(RelayPass):
    """Move factors of channels into weights: BackwardFoldScaleAxis and ForwardFoldScaleAxis."""

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return ForwardFoldScaleAxis().apply(BackwardFoldScaleAxis().apply(mod))


@dataclass(frozen=True)
class _Axes:
    """The axes of outputs and of inputs: in images, and in the weight."""

    outputs: tuple[int, int]
    inputs: tuple[int, int] | None


def _dtype(expr: rl.RelayExpr) -> object:
    ty = expr.checked_type_
    return ty.dtype if isinstance(ty, TensorType) else None


def _name(call: rl.Call) -> str:
    return str(call.op.name)  # type: ignore[attr-defined]


def _axes(call: rl.Call, attrs: Mapping[str, Any]) -> _Axes | None:
    if _name(call) == "nn.dense":
        rank = len(shape_of(call) or ())
        return _Axes((rank - 1, 0), (rank - 1, 1)) if rank else None
    kernel, data = attrs["kernel_layout"], attrs["data_layout"]
    result = attrs["out_layout"] or data
    if not len(kernel) == len(data) == len(result) == 4:
        return None
    inputs = (data.index("C"), kernel.index("I")) if attrs["groups"] == 1 else None
    return _Axes((result.index("C"), kernel.index("O")), inputs)


def _scaled(
    weight: rl.RelayExpr,
    factor: rl.RelayExpr,
    images: tuple[int, ...] | None,
    dtype: object,
    channels: int,
    axis: int,
) -> rl.RelayExpr | None:
    """Return a weight times factors, which have the size 1 on all axes but that of channels.

    Both have the datatype `dtype` of the product: sums of wider integers wrap around elsewhere.
    """
    shape, sizes = shape_of(factor), shape_of(weight)
    if shape is None or sizes is None or images is None or not is_atom(factor):
        return None
    if not _dtype(weight) == _dtype(factor) == dtype:
        return None
    whole = (1,) * (len(images) - len(shape)) + shape
    if any(size != 1 for place, size in enumerate(whole) if place != channels):
        return None
    along = tuple(whole[channels] if place == axis else 1 for place in range(len(sizes)))
    if 0 in along:  # a size of 0 in `newshape` means one that is copied
        return None
    reshaped = factor if shape in ((), along) else build("reshape", factor, newshape=along)
    return typed(weight.checked_type_, "multiply", weight, reshaped)
