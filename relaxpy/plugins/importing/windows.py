"""Windows of convolutions and pools, padding, pools, and regions of images, in importers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypedDict, cast

from relaxpy.errors import MisuseError
from relaxpy.ir import ops as operators
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.known import shape_of as dims_of_tensor
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, Var
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import double, sum_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    Place,
    Size,
    as_dtype,
    as_size,
    dtype_of,
    is_float,
    is_size,
    number,
    product,
    rank_of,
    require_count,
    reshaped,
    scalar,
    shape_of,
    sizes_known,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

#: The letters of the axes of images, by the number of spatial axes.
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def spatial(x: Expr) -> int:
    """The number of spatial axes of images.

    Errors:
        UnsupportedError: there is none, or more than three.
    """
    count = rank_of(x) - 2
    if count not in LAYOUTS:
        raise UnsupportedError(f"images have 1 to 3 spatial axes, found {count}")
    return count


def whole(size: Size) -> int:
    """A size that is known to be a number."""
    assert isinstance(size, int)
    return size


def at_least(value: Size, other: int) -> Size:
    """The greater one of a size and a number."""
    if isinstance(value, int):
        return max(value, other)
    return simple(ops.maximum(value, ops.const(other, value.dtype)))


def simple(value: Any) -> Size:
    """A size in its simplest form: an int if it is a number."""
    result = number(value)
    return result if isinstance(result, PrimExpr) else int(result)


def rounded_up(value: Size, divisor: int) -> Size:
    """The quotient of sizes, rounded up."""
    return (
        -(-value // divisor) if isinstance(value, int) else simple((value + divisor - 1) // divisor)
    )


class WindowAttributes(TypedDict, total=False):
    """How windows move, in the words of ONNX; `Windows.of` has the defaults."""

    auto_pad: str
    dilations: Sequence[int] | None
    pads: Sequence[Size] | None
    strides: Sequence[int] | None


class FilterAttributes(WindowAttributes, total=False):
    """The attributes of convolutions: also the groups of channels, and the sizes of the filter."""

    group: int
    kernel_shape: Sequence[int] | None


@dataclass(frozen=True)
class Windows:
    """The windows along the spatial axes of an operand; padding may depend on its sizes."""

    sizes: tuple[Size, ...]
    members: tuple[Size, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Size, ...]
    after: tuple[Size, ...]

    @staticmethod
    def of(
        x: Expr,
        kernel: Sequence[Size],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[Size] | None = None,
        auto_pad: str = "NOTSET",
    ) -> Windows:
        """The windows that attributes describe.

        Errors:
            UnsupportedError: an attribute has too many or too few numbers, or is unknown.
        """
        sizes = shape_of(x)[2:]
        count = len(sizes)
        steps, holes = list(strides or [1] * count), list(dilations or [1] * count)
        widths = list(pads or [0] * 2 * count)
        for name, values, expected in (
            ("kernel_shape", kernel, count),
            ("strides", steps, count),
            ("dilations", holes, count),
            ("pads", widths, 2 * count),
        ):
            require_count(name, values, expected)
        if min([*steps, *holes, *(n for n in kernel if isinstance(n, int))], default=1) < 1:
            raise UnsupportedError("kernel_shape, strides and dilations are positive")
        before: list[Size] = [*widths[:count]]
        after: list[Size] = [*widths[count:]]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            for k, size in enumerate(sizes):
                span = simple((kernel[k] - 1) * holes[k] + 1)
                before[k], after[k] = _same(size, span, steps[k], upper=auto_pad == "SAME_UPPER")
        elif auto_pad == "VALID":
            before, after = [0] * count, [0] * count
        elif auto_pad != "NOTSET":
            raise UnsupportedError(f"auto_pad is {auto_pad!r}")
        return Windows(*map(tuple, (sizes, kernel, steps, holes, before, after)))  # type: ignore[arg-type]

    @property
    def count(self) -> int:
        """The number of spatial axes."""
        return len(self.sizes)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The sizes of a window, which are known."""
        return tuple(whole(size) for size in self.members)

    @property
    def is_fixed(self) -> bool:
        """True if all padding is known."""
        return all(isinstance(width, int) for width in (*self.before, *self.after))

    @property
    def pads(self) -> tuple[int, ...]:
        """The padding before all axes, then after them, which is known."""
        return tuple(whole(width) for width in (*self.before, *self.after))

    def span(self, k: int) -> Size:
        """The elements of the axis from the first to the last one of a window."""
        return simple((self.members[k] - 1) * self.dilations[k] + 1)

    def outputs(self, k: int) -> Size:
        """The windows along an axis, the last one of which may exceed the padding behind."""
        room = self.sizes[k] + self.before[k] + self.after[k] - self.span(k)
        total = rounded_up(simple(room), self.strides[k]) + 1
        begun = rounded_up(simple(self.sizes[k] + self.before[k]), self.strides[k])
        if isinstance(total, int) and isinstance(begun, int):
            return min(total, begun)
        behind = simple(self.after[k] + self.strides[k] - self.span(k))
        if isinstance(behind, int) and behind <= 0:
            return simple(total)
        return simple(ops.minimum(total, begun))

    def padded(
        self, cx: Place, x: Expr, fill: float, *, ceil: bool = False
    ) -> tuple[Expr, Windows]:
        """The operand with its padding, and windows that need none any more."""
        none = (0,) * self.count
        before, after = [0, 0, *self.before], [0, 0, *self.after]
        if ceil:
            for k in range(self.count):
                last = (self.outputs(k) - 1) * self.strides[k] + self.span(k)
                after[k + 2] = at_least(simple(last - self.sizes[k] - self.before[k]), 0)
        if all(isinstance(width, int) and width == 0 for width in (*before, *after)):
            return x, self
        value = scalar(fill, x).data.item()
        if all(isinstance(width, int) for width in (*before, *after)):
            pairs = [w for pair in zip(before, after, strict=True) for w in pair]
            result: Expr = R.nn.pad(x, pairs, "constant", value)
        else:
            result = cx.te(lambda t: pad(t, before, after, value), x, name="pad")
        return result, Windows(
            tuple(shape_of(result)[2:]), self.members, self.strides, self.dilations, none, none
        )


def _same(size: Size, span: Size, stride: int, *, upper: bool) -> tuple[Size, Size]:
    """The padding before and after an axis that has a window for each `stride` elements."""
    if stride == 1:
        total = simple(span - 1)
    else:
        needed = (rounded_up(size, stride) - 1) * stride + span
        total = simple(needed - size)
        overlap = isinstance(span, int) and span >= stride
        total = total if not isinstance(total, int) and overlap else at_least(total, 0)
    half = total // 2 if isinstance(total, int) else simple(total // 2)
    rest = simple(total - half)
    return (half, rest) if upper else (rest, half)


_MODES: Final = ("SAME_UPPER", "SAME_LOWER")
_KINDS: Final = ("constant", "edge", "reflect")


@user_facing
def autopad(
    bb: BlockBuilder,
    data: Expr,
    strides: Sequence[int],
    kernel_shape: Sequence[int],
    dilations: Sequence[int] = (1, 1),
    pad_type: str = "constant",
    deconv: bool = False,
    mode: str = "SAME_UPPER",
    pad_value: float | None = 0.0,
) -> Var:
    """The data, padded along its last axes so that windows with `strides` cover all of it.

    The padding is the same on both sides. If it is odd, there is one element more after the data in
    mode "SAME_UPPER" and before it in mode "SAME_LOWER". It consists of `pad_value` for `pad_type`
    "constant", of the last element for "edge", and of a mirror image for "reflect". With `deconv`,
    it is that of a transposed convolution.

    Shapes:
        data    rank at least that of the kernel, of known shape
        result  as data, the last axes longer
    Errors:
        MisuseError (also ValueError): there is no such mode or kind of padding, the lists have
            different lengths, or the shape of the data is not known.
    """
    sinfo = data.struct_info if isinstance(data, Expr) else None
    dims = dims_of_tensor(sinfo)
    axes = len(kernel_shape)
    if mode not in _MODES or pad_type not in _KINDS:
        found, known = (mode, _MODES) if mode not in _MODES else (pad_type, _KINDS)
        raise MisuseError(f"expected {' or '.join(map(repr, known))}, found {found!r:.60}")
    if dims is None or len(dims) < axes or not len(strides) == len(dilations) == axes:
        raise MisuseError(
            f"a kernel of shape {tuple(kernel_shape)} has strides and dilations for each axis, and "
            f"data of known shape with so many axes; found {sinfo}",
            about=data,
        )
    before: list[tir.ExprLike] = [0] * (len(dims) - axes)
    after: list[tir.ExprLike] = [0] * (len(dims) - axes)
    windows = zip(dims[-axes:], strides, kernel_shape, dilations, strict=True)
    for size, stride, extent, dilation in windows:
        total = _total(size, stride, (extent - 1) * dilation + 1)
        if deconv:
            total = extent - 1 - total
        less = total // 2
        more = total - less
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    if pad_type == "constant":
        return bb.emit_te(topi.nn.pad, data, before, after, pad_value)
    if pad_type == "edge":
        return bb.emit_te(topi.nn.replicate_pad, data, before, after)
    return bb.emit_te(topi.nn.mirror_pad, data, before, after, "REFLECT")


def _total(size: PrimExpr, stride: int, extent: int) -> PrimExpr:
    """The padding along an axis for ceil(size / stride) windows."""
    covered = ops.mul(ops.sub(ops.ceildiv(size, stride), 1), stride) + extent
    return ops.maximum(covered - size, 0)


def padded(cx: Place, x: Expr, pads: Sequence[Size], mode: str, value: Expr | float | None) -> Expr:
    """`x` with `pads` (befores, then afters); negative ones crop. Modes are those of `R.nn.pad`."""
    rank = rank_of(x)
    sizes = shape_of(x)
    begins, ends = list(pads[:rank]), list(pads[rank:])
    for k, size in enumerate(sizes):
        begins[k], ends[k] = _within(begins[k], ends[k], size)
    crop = [
        k
        for k in range(rank)
        if (_negative(begins[k]) or _negative(ends[k]))
        and (isinstance(sizes[k], int) or all(_crops(item) for item in (begins[k], ends[k])))
    ]
    if crop:
        first = [-begins[k] if _negative(begins[k]) else 0 for k in crop]
        last = [number(sizes[k] + ends[k]) if _negative(ends[k]) else sizes[k] for k in crop]
        x = R.strided_slice(x, crop, first, last)
        for k in crop:
            begins[k], ends[k] = (0 if _negative(item) else item for item in (begins[k], ends[k]))
    if all(is_size(item, 0) for item in (*begins, *ends)):
        return x
    is_known = all(isinstance(item, int) and item >= 0 for item in (*begins, *ends))
    if is_known and (mode != "constant" or not isinstance(value, Expr)):
        flat = [item for pair in zip(begins, ends, strict=True) for item in pair]
        number_added = 0.0 if isinstance(value, Expr) else float(value or 0)
        result: Expr = R.nn.pad(x, flat, mode, number_added)
        return result
    fill = value if isinstance(value, Expr) else scalar(value or 0, x)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not (is_size(begin, 0) and is_size(end, 0)):
            x = _padded_axis(cx, x, axis, begin, end, mode, R.reshape(fill, ()))
    return x


def _within(begin: Size, end: Size, size: Size) -> tuple[Size, Size]:
    """Clamp a crop to the size; its excess is deducted from the padding at the other end."""
    if isinstance(begin, int) and isinstance(end, int) and isinstance(size, int):
        if size + end < 0:
            return begin + size + end, -size
        if size + begin < 0:
            return -size, end + size + begin
    return begin, end


def _padded_axis(
    cx: Place, x: Expr, axis: int, begin: Size, end: Size, mode: str, fill: Expr
) -> Expr:
    """`x` with elements before and after along one axis, whose numbers are expressions."""
    size = cast(Any, shape_of(x)[axis])

    def kernel(t: Any, value: Any) -> Any:
        shape = [*t.shape]
        shape[axis] = shape[axis] + begin + end

        def element(*index: Any) -> Any:
            at = index[axis] - begin
            if mode == "replicate":
                inner: Any = tir.Max(tir.Min(at, size - 1), tir.IntImm("int64", 0))
            elif mode == "circular":
                inner = at % size
            elif mode == "reflect":
                period = tir.Max(as_size(2 * size - 2), tir.IntImm("int64", 1))
                turned = at % period
                inner = tir.Min(turned, period - turned)
            else:
                inside = tir.And(at >= 0, at < size)
                place = (*index[:axis], at, *index[axis + 1 :])
                return intrin.if_then_else(inside, t(*place), value())
            return t(*index[:axis], inner, *index[axis + 1 :])

        return compute(shape, element, "pad")

    return cx.te(kernel, x, fill, name=f"pad_{mode}")


def _negative(size: Size) -> bool:
    return isinstance(size, int) and size < 0


def _crops(size: Size) -> bool:
    """True if the padding is known to be 0."""
    return isinstance(size, int) and size <= 0


class ByAxes:
    """The operators of a name by the number of their axes, 1 to 3, loaded when they are used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, count: int) -> Any:
        return getattr(R.nn, self._name.format(count))


MAXIMA, MEANS = ByAxes("max_pool{}d"), ByAxes("avg_pool{}d")
CONVOLUTIONS, TRANSPOSED = ByAxes("conv{}d"), ByAxes("conv{}d_transpose")


def pooled(
    cx: Place, operators: ByAxes, x: Expr, windows: Windows, *, ceil: bool, inside: bool
) -> Expr:
    """The reduced windows; `inside` says whether padding counts."""
    y: Expr = operators[spatial(x)](
        x, windows.kernel, windows.strides, windows.pads, windows.dilations, ceil, inside
    )
    return begun(cx, y, windows) if ceil else y


def begun(cx: Place, y: Expr, windows: Windows) -> Expr:
    """The result without the windows that would start in the padding behind."""
    bound = cx.emit(y)
    sizes, wanted = shape_of(bound)[2:], [windows.outputs(k) for k in range(windows.count)]
    axes = [
        k
        for k, after in enumerate(windows.after)
        if not isinstance(after, int)
        or (after + windows.strides[k] > windows.span(k) and not is_same(sizes[k], wanted[k]))
    ]
    if not axes:
        return bound
    begin: list[Size] = [0] * len(axes)
    result: Expr = R.strided_slice(bound, [k + 2 for k in axes], begin, [wanted[k] for k in axes])
    return result


def is_same(a: Size, b: Size) -> bool:
    """True if two sizes are known to be the same number."""
    return isinstance(a, int) and isinstance(b, int) and a == b


def lowest(x: Expr) -> float:
    """The least number of the datatype of a tensor."""
    dtype = dtype_of(x)
    if is_float(x):
        return -math.inf
    return float(ops.int_range(DataType(dtype))[0])


def max_indices(
    cx: Place, x: Expr, windows: Windows, *, ceil: bool, by_columns: bool, by_channel: bool = False
) -> Expr:
    """The argmax of each pooling window, as an index into the whole tensor or into a channel.

    As in PyTorch, it is the last NaN of a window if it is an index into a channel.
    """
    layout = LAYOUTS[spatial(x)]

    def selected(t: Tensor) -> Tensor:
        numbers = _numbered(t, by_columns=by_columns, by_channel=by_channel)
        return topi.nn.pool_selected(
            numbers,
            t,
            windows.kernel,
            windows.strides,
            windows.dilations,
            windows.pads,
            ceil,
            layout,
            last_nan=by_channel,
        )

    indices = cx.te(selected, x, name="max_pool_indices")
    return begun(cx, indices, windows) if ceil else indices


def _numbered(x: Tensor, *, by_columns: bool, by_channel: bool) -> Callable[..., PrimExpr]:
    """The number of each element of images; `by_columns` the first spatial axis varies last."""

    def element(*index: PrimExpr) -> PrimExpr:
        order = [
            *(() if by_channel else (0, 1)),
            *(range(len(index) - 1, 1, -1) if by_columns else range(2, len(index))),
        ]
        total: PrimExpr = ops.const(0, "int64")
        for axis in order:
            total = ops.mul(total, x.shape[axis]) + index[axis]
        return ops.cast_to(total, "int64")

    return element


def mean_pooled(cx: Place, x: Expr, windows: Windows, *, ceil: bool, inside: bool) -> Expr:
    """The means of windows; `inside` says whether padding counts."""
    if windows.is_fixed:
        return pooled(cx, MEANS, x, windows, ceil=ceil, inside=inside)
    data, whole = windows.padded(cx, x, 0)
    total = pooled(cx, MEANS, data, whole, ceil=ceil, inside=True)
    if inside:
        return total
    ones, _ = windows.padded(cx, R.ones((1, 1, *windows.sizes), dtype_of(x)), 0)
    counts = pooled(cx, MEANS, ones, whole, ceil=ceil, inside=True)
    result: Expr = total / counts
    return result


def averaged(
    cx: Place,
    x: Expr,
    rois: Expr,
    scale: float,
    pooled: tuple[Size, Size],
    ratio: int,
    **options: Any,
) -> Expr:
    """`topi.regions.averaged`, at least in float32."""
    dtype = wide_dtype(x)
    operands = (cx.emit(as_dtype(item, dtype)) for item in (x, rois))
    rows, columns = map(as_size, pooled)
    return cx.te(
        lambda x, rois: operators.regions.averaged(
            x, rois, scale, (rows, columns), ratio, **options
        ),
        *operands,
        name="roi_align",
    )


def maxima(
    cx: Place, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size, *, places: bool
) -> list[Expr]:
    """`topi.regions.maxima`, at least in float32."""
    dtype, sizes = wide_dtype(x), (as_size(rows), as_size(columns))
    operands = (cx.emit(as_dtype(item, dtype)) for item in (x, rois))
    found = cx.te(
        lambda x, rois: operators.regions.maxima(x, rois, scale, *sizes, places=places),
        *operands,
        name="roi_pool",
    )
    return [cx.emit(TupleGetItem(found, k)) for k in range(1 + places)]


def deformed(
    cx: Place,
    x: Expr,
    w: Expr,
    offset: Expr,
    mask: Expr | None,
    windows: Windows,
    group: int,
    offset_group: int,
) -> Expr:
    """A convolution whose kernel's elements are moved, as a product with the elements they meet."""
    operands = [x, offset, *([mask] if mask is not None else [])]
    columns = cx.te(
        lambda *tensors: _columns(windows, offset_group, *tensors), *operands, name="deform"
    )
    batch, channels, members, *out = shape_of(columns)
    outputs, _ = sizes_known(w)[:2]
    depth = product([channels, members]) // group
    matrix = reshaped(w, (group, outputs // group, depth))
    y = R.matmul(matrix, reshaped(columns, (batch, group, depth, product(out))))
    return reshaped(cx.emit(y), (batch, outputs, *out))


@dataclass(frozen=True, slots=True)
class _Side:
    """The elements on one side of moved positions along an axis: tables that channels share."""

    index: Tensor
    inside: Tensor
    weight: Tensor


def _sides(windows: Windows, groups: int, x: Any, offset: Any, k: int) -> list[_Side]:
    """The elements before and after the positions of members of windows along the spatial axis."""
    members, size, zero = math.prod(windows.kernel), x.shape[k + 2], ops.const(0, "int64")
    inner, dtype = math.prod(windows.kernel[k + 1 :]), sum_dtype(x.dtype)

    def table(element: Callable[..., PrimExpr], name: str) -> Tensor:
        shape = [offset.shape[0], ops.const(groups * members, "int64"), *offset.shape[2:]]
        return computed(shape, element, name)

    def position(n: PrimExpr, part: PrimExpr, *at: PrimExpr) -> PrimExpr:
        index = part // inner % windows.kernel[k]
        base = at[k] * windows.strides[k] - windows.before[k] + index * windows.dilations[k]
        moved = double(base) + double(offset(n, part * windows.count + k, *at))
        # Farther away nothing changes, and every index is an int64.
        return ops.maximum(ops.minimum(moved, double(size + 1)), double(-2.0))

    positions = table(position, "position")

    def side(after: int) -> _Side:
        def index(*at: PrimExpr) -> PrimExpr:
            return ops.cast_to(intrin.floor(positions(*at)), "int64") + after

        def weight(*at: PrimExpr) -> PrimExpr:
            rest = positions(*at) - intrin.floor(positions(*at))
            return ops.cast_to(rest if after else double(1.0) - rest, dtype)

        return _Side(
            table(lambda *at: ops.maximum(ops.minimum(index(*at), size - 1), zero), "index"),
            table(lambda *at: ops.all_of(index(*at) >= zero, index(*at) < size), "inside"),
            table(weight, "weight"),
        )

    return [side(0), side(1)]


def _columns(windows: Windows, groups: int, x: Any, offset: Any, mask: Any = None) -> Any:
    """The elements under each member of each window, moved by the offsets and interpolated."""
    if windows.count > 3:
        raise UnsupportedError(f"{windows.count} axes of space are more than 3")
    members, dtype = math.prod(windows.kernel), sum_dtype(x.dtype)
    axes = [_sides(windows, groups, x, offset, k) for k in range(windows.count)]

    def element(n: PrimExpr, c: PrimExpr, member: PrimExpr, *at: PrimExpr) -> PrimExpr:
        place = n, c * groups // x.shape[1] * members + member, *at
        total: PrimExpr = ops.const(0, dtype)
        for sides in itertools.product(*axes):
            value = ops.cast_to(x(n, c, *(side.index(*place) for side in sides)), dtype)
            for side in sides:
                value = value * side.weight(*place)
            inside = ops.all_of(*(side.inside(*place) for side in sides))
            total = total + tir.Select(inside, value, ops.const(0, dtype))
        if mask is not None:
            total = total * ops.cast_to(mask(*place), dtype)
        return ops.cast_to(total, x.dtype)

    shape = [*x.shape[:2], ops.const(members, "int64"), *offset.shape[2:]]
    return computed(shape, element, "deform_columns")


def added(
    x: Tensor,
    image: Sequence[PrimExpr],
    steps: Sequence[int],
    holes: Sequence[int],
    before: Sequence[int],
) -> Tensor:
    """The sums of the members of overlapping windows at each element of images.

    Shapes:
        x       (batch, channels, *members, *windows)
        result  (batch, channels, *image)
    """
    y, spaces = x, list(map(math.gcd, steps, holes))
    for k, (length, space) in enumerate(zip(image, spaces, strict=True)):
        # Of the elements, including those before the image, only one of `space` is in a window.
        few = length if space == 1 else (length + (before[k] - 1)) // space + 1
        left = before[k] if space == 1 else 0
        y = _overlapped(y, 2 + len(image), few, steps[k] // space, holes[k] // space, left)

    def element(*index: PrimExpr) -> PrimExpr:
        at, inside = [*index], list[PrimExpr]()
        for k, space in enumerate(spaces):
            if space > 1:
                place = index[2 + k] + before[k]
                at[2 + k] = place // space
                inside.append(ops.compare(tir.EQ, place % space, as_size(0)))
        value = ops.cast_to(y(*at), x.dtype)
        return tir.Select(ops.all_of(*inside), value, ops.const(0, x.dtype)) if inside else value

    return computed([*x.shape[:2], *image], element, "added")


def _overlapped(
    x: Tensor, axis: int, length: PrimExpr, step: int, hole: int, before: int
) -> Tensor:
    """The sums of overlapping windows at each element of an axis; the third axis has their members.

    Axis by axis, few planes are read at once, and an element has few terms. The last axis, along
    which conditions would differ from element to element, has zeros on both sides instead. Of
    adjacent members, one of `step` falls on an element; which one is an axis of its own there until
    the elements are in their order.
    """
    members, windows = x.shape[2], x.shape[axis]
    dtype = "float32" if str(x.dtype) in ("float16", "bfloat16") else str(x.dtype)
    zero, phases = as_size(0), as_size(step if hole == 1 else 1)
    count, places = ops.ceildiv(members, phases), (length + (before - 1)) // phases + 1
    width, is_alone = (count - 1) * hole, is_size(simple(count), 1)
    is_padded = axis == x.ndim - 1 and 1 in (step, hole)
    if is_padded:
        none = [0] * axis
        x = pad(x, [*none, width], [*none, ops.maximum(places - windows, zero)])

    def term(place: PrimExpr, phase: PrimExpr, others: Sequence[PrimExpr]) -> PrimExpr:
        k = reduce_axis((zero, count), "k")
        number = zero if is_alone else k.var
        member, window = phase + number * phases, place - number * hole
        inside = [member < members]
        if is_padded:
            window = window + width
        else:
            if 1 not in (step, hole):
                inside.append(ops.compare(tir.EQ, window % step, zero))
                window = window // step
            inside += [window >= 0, window < windows]
            window = ops.maximum(ops.minimum(window, windows - 1), zero)
        source = [*others[:2], ops.minimum(member, members - 1), *others[2:]]
        value: PrimExpr = x(*source[:axis], window, *source[axis:])
        value = ops.cast_to(tir.Select(ops.all_of(*inside), value, ops.const(0, x.dtype)), dtype)
        return value if is_alone else reduce.sum(value, axis=k)

    at = axis - 1
    first, last = [*x.shape[:2], *x.shape[3:axis]], x.shape[axis + 1 :]
    if not is_padded or step == 1:

        def direct(*index: PrimExpr) -> PrimExpr:
            place, others = index[at] + before, [*index[:at], *index[at + 1 :]]
            return term(place // phases, place % phases, others)

        return computed([*first, length, *last], direct, "overlapped")

    def at_phase(*index: PrimExpr) -> PrimExpr:
        return term(index[-1], index[-2], index[:-2])

    sums = at_phase if is_alone else computed([*first, phases, places], at_phase, "sums")
    turned = computed(
        [*first, places, phases], lambda *index: sums(*index[:-2], index[-1], index[-2]), "turned"
    )

    def element(*index: PrimExpr) -> PrimExpr:
        place = index[-1] + before
        return turned(*index[:-1], place // phases, place % phases)

    return computed([*first, length], element, "ordered")
