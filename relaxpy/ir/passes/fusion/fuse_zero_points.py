"""FuseZeroPoints: 8-bit matmuls and convolutions read raw operands, and correct for zero points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.dtype import FLOAT32, INT32
from relaxpy.ir.ops.definition.registry import R, with_all_attributes
from relaxpy.ir.ops.definition.rules import same, te_kernel
from relaxpy.ir.passes.rewrite_pass import FusionPass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.known import have_same_shape, shape_of, tensor_sinfo
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import broadcast_index
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.ir.te.topi.windows import Windows

_BYTE = 8
_SCALE = 2.0**40
"""The bound of scales and of their inverses: two of them times a sum are normal numbers."""
_PRODUCTS = {"relax.matmul": 0} | {f"relax.nn.conv{count}d": count for count in (1, 2, 3)}
"""The operators, with the number of axes of windows."""


@dataclass(frozen=True)
class FuseZeroPoints(FusionPass):
    """Rewrites 8-bit matmul and conv with zero points to raw operands, and corrects the result.

    `matmul(astype(a, "int32") - p, astype(b, "int32") - q)` of a dataflow block is `matmul(a, b) -
    p * sum(b - q) - q * sum(a)`, exactly, as integers are modulo a power of two, if no zero point
    depends on the axis of the sum. There may be one zero point or none. The same holds for
    convolutions of images with one zero point by filters with one, or one for each channel, where
    the padding is the zero point. Matmuls of such operands in float32, each times constants that do
    not depend on the axes of the sum, are these sums times the constants, which is more exact. The
    conversions are removed if nothing else uses them. It is applied before LegalizeOps.
    """

    @override
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        return _Fusing(builder)


@dataclass(frozen=True)
class _Bytes:
    """The 8-bit tensor that an operand is converted from, and its zero point and scale, if any."""

    data: rx.Expr
    zero: rx.Expr | None = None
    scale: rx.Expr | None = None

    @property
    def operands(self) -> Sequence[rx.Expr]:
        return [self.data] if self.zero is None else [self.data, self.zero]


class _Fusing(BindingRewriter):
    """Rewrites the matmuls and convolutions of one function."""

    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self._builder = builder

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call, sinfo = binding.value, tensor_sinfo(binding.value)
        count = next((n for name, n in _PRODUCTS.items() if rx.is_call_of(call, name)), None)
        if (
            count is None
            or not isinstance(call, rx.Call)
            or not isinstance(block, rx.DataflowBlock)
        ):
            return None
        if sinfo is None or sinfo.dtype not in (INT32, FLOAT32):
            return None
        [a, b] = map(self._bytes_of if sinfo.dtype == INT32 else self._scaled_bytes_of, call.args)
        if a is None or b is None:
            return None
        result = self._conv(count, call, a, b) if count else self._matmul(a, b)
        return replace(result, span=call.span) if isinstance(result, rx.Call) else None

    def _matmul(self, a: _Bytes, b: _Bytes) -> rx.Expr | None:
        rows, columns = shape_of(a.data) or (), shape_of(b.data) or ()
        if min(len(rows), len(columns)) < 2 or not same(rows[-1], columns[-2]):
            return None
        along = (a.zero, -1), (a.scale, -1), (b.zero, -2), (b.scale, -2)
        if not all(_is_constant_along(*pair) for pair in along):
            return None
        if a.scale is not None and not _is_exact([rows[-1]]):
            return None
        result: rx.Expr = te_kernel(self._builder, _product, "matmul_of_bytes", a.data, b.data)
        if a.zero is not None:
            result = R.subtract(result, R.multiply(a.zero, self._sums(-2, b)))
        if b.zero is not None:
            result = R.subtract(result, R.multiply(self._sums(-1, _Bytes(a.data)), b.zero))
        return _scaled(result, a.scale, b.scale)

    def _conv(self, count: int, call: rx.Call, x: _Bytes, w: _Bytes) -> rx.Expr | None:
        from relaxpy.ir.ops.nn.convolution import Convolution

        attrs: Any = {**with_all_attributes(call).attrs, "out_dtype": INT32}
        conv = Convolution.of(count, attrs)
        sizes = [n.value for n in shape_of(w.data) or () if isinstance(n, IntImm)]
        if len(sizes) != count + 2 or any(x.factors for x in (conv.data, conv.kernel, conv.out)):
            return None
        data, kernel, out = (layout.name for layout in (conv.data, conv.kernel, conv.out))
        if conv.groups > 1 and sizes[kernel.index("I")] == 1:
            # A depthwise convolution is not a GEMM, and would widen each 8-bit element for each
            # product.
            return None
        image: rx.Expr | None = x.data
        if not (_is_one(x.zero) and _is_one(x.scale)):
            return None
        if x.zero is not None and any(map(conv.windows.padding, conv.axes)):
            image, attrs["padding"] = self._padded(x, conv.windows, data), (0,) * count
        channel = kernel.index("O")
        others = [n - len(kernel) for n in range(len(kernel)) if n != channel]
        pairs = ((part, axis) for part in (w.zero, w.scale) for axis in others)
        if image is None or not all(_is_constant_along(*pair) for pair in pairs):
            return None
        if x.scale is not None and not _is_exact([sizes[axis] for axis in others]):
            return None
        convolved, channels = getattr(R.nn, f"conv{count}d"), sizes[channel]

        def by_channel(expr: rx.Expr) -> rx.Expr:
            """A number for each channel, or one for all, in the layout of the result."""
            shape = [channels if axis == "C" and not _is_one(expr) else 1 for axis in out]
            return cast("rx.Expr", R.reshape(expr, shape))

        result: rx.Expr = convolved(image, w.data, **attrs)
        if x.zero is not None:
            sums = by_channel(self._sums(others, w))
            result = R.subtract(result, R.multiply(R.reshape(x.zero, ()), sums))
        if w.zero is not None:
            sizes[channel] = groups = conv.groups
            if groups == 1:
                # The sum over the channels of a pixel is the same for all windows that contain it.
                image = R.sum(R.astype(image, INT32), data.index("C"), keepdims=True)
                sizes[kernel.index("I")] = 1
            ones = rx.const(np.ones(sizes, "int32" if groups == 1 else "int8"))
            sums = convolved(image, ones, **attrs)
            if groups not in (1, channels):
                sums = R.repeat(sums, channels // groups, out.index("C"))
            result = R.subtract(result, R.multiply(sums, by_channel(w.zero)))
        if x.scale is None or w.scale is None:
            return result
        return _scaled(result, R.reshape(x.scale, ()), by_channel(w.scale))

    def _padded(self, x: _Bytes, windows: Windows, layout: str) -> rx.Expr | None:
        """The 8-bit images, padded with the zero point; None if that has another datatype.

        Subtracting and adding the zero point wraps, so it may be any value.
        """
        assert x.zero is not None
        sinfo, zero = tensor_sinfo(x.data), self._source(x.zero)
        found = tensor_sinfo(zero)
        if sinfo is None or found is None or found.dtype != sinfo.dtype:
            return None
        sides = [(windows.before.get(axis, 0), windows.after.get(axis, 0)) for axis in layout]
        point = R.reshape(zero, ())
        padded = R.nn.pad(R.subtract(x.data, point), [width for side in sides for width in side])
        return cast("rx.Expr", R.add(padded, point))

    def _sums(self, axes: int | Sequence[int], x: _Bytes) -> rx.Expr:
        """The sums of the 8-bit elements less their zero point."""
        return te_kernel(self._builder, _sums, "sums_of_bytes", axes, *x.operands)

    def _scaled_bytes_of(self, operand: rx.Expr) -> _Bytes | None:
        """The 8-bit tensor, zero point and scale of a float32 operand; the scale is constant."""
        value = self.value_of(operand)
        if not rx.is_call_of(value, "relax.multiply"):
            return None
        [product, scale] = value.args
        cast = self.value_of(product)
        if not rx.is_call_of(cast, "relax.astype") or not have_same_shape(product, operand):
            return None
        [number] = cast.args
        found = _Bytes(number) if _is_byte(number) else self._bytes_of(number)
        return replace(found, scale=scale) if found is not None and self._is_scale(scale) else None

    def _is_scale(self, scale: rx.Expr) -> bool:
        """True if a factor is a constant that neither overflows nor underflows with another one."""
        source = self._source(scale)
        if not isinstance(source, rx.Constant) or tensor_sinfo(scale) is None:
            return False
        size = np.abs(source.data.astype("float64"))
        return bool(np.all((size > 1 / _SCALE) & (size < _SCALE)))

    def _bytes_of(self, operand: rx.Expr) -> _Bytes | None:
        value = self.value_of(operand)
        if not rx.is_call_of(value, "relax.subtract"):
            found = self._widened(value)
            return None if found is None else _Bytes(found)
        [wide, point] = value.args
        found = self._widened(self.value_of(wide))
        if found is None or shape_of(point) is None or not have_same_shape(found, operand):
            return None
        source = self._source(point)
        is_zero = isinstance(source, rx.Constant) and not source.data.any()
        return _Bytes(found, None if is_zero else point)

    def _source(self, zero: rx.Expr) -> rx.Expr:
        """A zero point before its conversion, maybe in another shape."""
        value, is_converted = self.value_of(zero), False
        while rx.is_call_of(value, "relax.reshape", *["relax.astype"] * (not is_converted)):
            is_converted = is_converted or rx.is_call_of(value, "relax.astype")
            zero = value.args[0]
            value = self.value_of(zero)
        return zero

    def _widened(self, value: rx.Expr | None) -> rx.Expr | None:
        """The 8-bit tensor that is converted to int32."""
        if not rx.is_call_of(value, "relax.astype"):
            return None
        [x] = value.args
        wide = tensor_sinfo(value)
        return x if wide is not None and wide.dtype == INT32 and _is_byte(x) else None


def _is_byte(x: rx.Expr) -> bool:
    sinfo = tensor_sinfo(x)
    return sinfo is not None and sinfo.dtype.is_int and sinfo.dtype.bits == _BYTE


def _is_exact(extents: Sequence[int | PrimExpr]) -> bool:
    """True if a sum of this many products of 8-bit elements less zero points is below 2**31."""
    sizes = [n.value if isinstance(n, IntImm) else n for n in extents]
    known = [n for n in sizes if isinstance(n, int)]
    return len(known) == len(sizes) and math.prod(known) * (2**_BYTE - 1) ** 2 < 2**31


def _scaled(sums: rx.Expr, *scales: rx.Expr | None) -> rx.Expr:
    """Sums in float32 times both scales; unchanged if there are none."""
    [a, b] = scales
    if a is None or b is None:
        return sums
    return cast("rx.Expr", R.multiply(R.astype(sums, FLOAT32), R.multiply(a, b)))


def _is_one(x: rx.Expr | None) -> bool:
    """True if a tensor, if there is one, has one element."""
    sizes = () if x is None else shape_of(x)
    return sizes is not None and all(ops.is_const(n, 1) for n in sizes)


def _is_constant_along(point: rx.Expr | None, axis: int) -> bool:
    """True if a tensor, if there is one, is the same along an axis that counts from the end."""
    sizes = () if point is None else shape_of(point)
    return sizes is not None and (len(sizes) < -axis or ops.is_const(sizes[axis], 1))


def _product(a: Tensor, b: Tensor) -> Tensor:
    return topi.matmul(a, b, out_dtype="int32")


def _sums(axes: int | Sequence[int], data: Tensor, point: Tensor | None = None) -> Tensor:
    """The sums along axes (keepdims) of elements less their zero point."""

    def element(*index: PrimExpr) -> PrimExpr:
        value = ops.cast_to(data(*index), INT32)
        if point is None:
            return value
        return value - point(*broadcast_index(point.shape, index, data.shape))

    return topi.sum(computed(data.shape, element, "shifted"), axes, keepdims=True)
