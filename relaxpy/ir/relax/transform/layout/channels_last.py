"""ChannelsLast: images have their channels last where their convolutions have constant filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, cast

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import with_all_attributes
from relaxpy.ir.relax.transform.layout.convert_layout import converted_function
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir.expr import IntImm
from relaxpy.support.dataclass import dataclass

_CONV: Final = "relax.nn.conv2d"
_LAYOUTS: Final = {_CONV: ["NHWC", "HWIO"]}
_VECTOR: Final = 16
"""From this many channels of a result, vectors run along channels; with fewer, along pixels."""
_LANES: Final = 4
"""The channels of a group that fill the shortest vectors."""
_SLOWDOWN: Final = 500
"""The multiplications that have to become faster for each one in groups with fewer channels."""
_SIZE: Final = 32
"""The assumed value of an unknown size."""
_PRODUCTS: Final = 200
"""The multiplications that have to become faster for each element that is transposed."""


@dataclass(frozen=True)
class ChannelsLast(RewritePass):
    """Converts all convolutions of a function to channels last, if their filters are constant.

    The channels of a result are then the columns of a GEMM, whose second operand, the filter, is
    stored once in the order in which tiles read it, and images of any width fill these. A function
    stays unchanged if that takes more transpositions than pay off.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return _converted


def _converted(func: rx.Function) -> rx.Function:
    products = sum(map(_suited_products, _calls(func, _CONV)))
    if products <= 0:
        return func
    result = cast(
        "rx.Function", rewrite(converted_function(func, lambda _: _LAYOUTS), _with_filter)
    )
    more = _transposed_elements(result) - _transposed_elements(func)
    return result if products >= more * _PRODUCTS else func


def _calls(func: rx.Function, name: str) -> Iterator[rx.Call]:
    return (call for call in occurrences(func, rx.Call) if rx.is_call_of(call, name))


def _suited_products(call: rx.Call) -> int:
    """The number of products of a convolution that channels last make faster, or else 0.

    It is negative if that is far slower.
    """
    attrs, [_, weight] = with_all_attributes(call).attrs, call.args
    layouts = attrs["data_layout"], attrs["kernel_layout"]
    if not isinstance(weight, rx.Constant) or layouts != ("NCHW", "OIHW"):
        return 0
    channels, per_group, *window = weight.data.shape
    products, groups = _elements(call) * per_group * math.prod(window), cast("int", attrs["groups"])
    if groups not in (1, channels):
        return -_SLOWDOWN * products if channels < _LANES * groups else 0
    return products if channels >= _VECTOR else 0


def _transposed_elements(func: rx.Function) -> int:
    """The elements of images that transpositions copy in a call."""
    calls = _calls(func, "relax.permute_dims")
    return sum(_elements(c) for c in calls if not isinstance(c.args[0], rx.Constant))


def _elements(expr: rx.Expr) -> int:
    sinfo = expr.struct_info
    shape = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
    return math.prod(n.value if isinstance(n, IntImm) else _SIZE for n in shape or ())


def _with_filter(node: Node) -> Node | None:
    """A transposed depthwise filter constant, which kernels read in its stored layout."""
    match node:
        case rx.Call(args=(rx.Constant(data=data),)) if rx.is_call_of(node, "relax.permute_dims"):
            if data.ndim == len(_LAYOUTS[_CONV][1]) and data.shape[1] == 1:
                axes = cast("tuple[int, ...]", with_all_attributes(node).attrs["axes"])
                return rx.Constant(np.ascontiguousarray(data.transpose(axes)), span=node.span)
    return None
