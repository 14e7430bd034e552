"""Convolutions, their transposes, and the gradients of both, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as folded
from typing import Any, Final

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import INT32, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, injective
from relaxpy.ir.te.topi.padding import element_of_pad, pad
from relaxpy.ir.te.topi.windows import (
    AXIS_NAMES,
    WINDOW_NAMES,
    WRITTEN_OUT,
    Index,
    Numbers,
    Padding,
    Windows,
    in_layout,
    named_padding,
    number,
    overlap_add,
    per_axis,
    spatial_axes,
    whole_axes,
    whole_shape,
)
from relaxpy.ir.tir import expr as tir, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.layout import Layout
from relaxpy.support.dataclass import dataclass

__all__ = ["conv", "conv1d", "conv2d", "conv_backward_weight", "conv_transpose"]


_OF_FILTER: Final[dict[str, object]] = {"meta_schedule.layout_rewrite_preproc": True}
"""Tag of stages that only read filters. A separate kernel may compute them: for a constant filter,
when the program is compiled."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """The dimensions of a tensor by the letters of its axes, in their order."""

    tensor: Tensor
    order: str

    @property
    def sizes(self) -> dict[str, PrimExpr]:
        if self.tensor.ndim != len(self.order):
            raise MisuseError(
                f"{self.tensor.name} has the axes {self.order}, found rank {self.tensor.ndim}",
                about=self.tensor,
            )
        return dict(zip(self.order, self.tensor.shape, strict=True))

    def at(self, index: Mapping[str, PrimExpr]) -> Any:
        """The element at an index by letters."""
        return self.tensor(*(index[axis] for axis in self.order))


def _read(x: Tensor, layout: str | Layout) -> _Axes:
    return _Axes(*whole_axes(x, Layout.of(layout)))


def _padded(x: _Axes, windows: Windows, wide: DataType) -> _Axes:
    """x with its spatial axes padded with zeros: a separate stage, even without padding.

    Narrow floats are widened there, once, not for each window that has the element.
    """
    before = [windows.before.get(axis, 0) for axis in x.order]
    after = [windows.after.get(axis, 0) for axis in x.order]
    tensor = x.tensor if wide.is_int else as_dtype(x.tensor, wide)
    return _Axes(pad(tensor, before, after, ops.const(0, tensor.dtype), "pad_temp"), x.order)


def _phases(
    x: _Axes, windows: Windows, wide: DataType, count: PrimExpr, size: PrimExpr
) -> Mapping[int, _Axes]:
    """`_padded` as a stage for each remainder of the positions along the last axis by its stride.

    The elements that `count` windows of this `size` have at the same offset are consecutive in the
    stage of that offset, so that vectors of windows are loaded without gaps.
    """
    axis = x.order[-1]
    step, dilation = windows.strides[axis], windows.dilation[axis]
    before, after = (
        [number(widths.get(a, 0)) for a in x.order] for widths in (windows.before, windows.after)
    )
    tensor = x.tensor if wide.is_int else as_dtype(x.tensor, wide)
    zero = ops.const(0, tensor.dtype)
    shape = [n + a + b for n, a, b in zip(tensor.shape, before, after, strict=True)]

    def stage(remainder: int, last: int) -> Tensor:
        def element(*index: PrimExpr) -> PrimExpr:
            position = index[-1] * step + remainder
            return element_of_pad(tensor, before, after, zero, [*index[:-1], position])

        return injective([*shape[:-1], count + last], element, "pad_temp")

    offsets = range(0, _literal(size) * dilation, dilation)
    most = {offset % step: offset // step for offset in offsets}
    return {n: _Axes(stage(n, last), x.order) for n, last in most.items()}


def _literal(value: PrimExpr) -> int:
    assert isinstance(value, tir.IntImm)
    return value.value


def _joint(first: Tensor, second: Tensor, out_dtype: str | None) -> DataType:
    """The datatype in which terms are multiplied."""
    a, b = (ops.const(0, x.dtype) for x in (first, second))
    return DataType(out_dtype or ops.match_dtypes(a, b)[0].dtype)


def _wide(dtype: DataType) -> DataType:
    """The datatype in which sums of products are taken; Booleans are counted."""
    return INT32 if dtype.is_bool else accumulator(dtype)


def _product(a: PrimExpr, b: PrimExpr, wide: DataType) -> PrimExpr:
    return ops.cast_to(a, wide) * ops.cast_to(b, wide)


def _sum(term: PrimExpr, axes: Sequence[IterVar]) -> Any:
    if any(ops.is_const(axis.dom.extent, 0) for axis in axes if axis.dom is not None):
        return ops.const(0, term.dtype)
    return reduce.sum(term, axis=list(axes))


def _grouped(channel: PrimExpr, width: PrimExpr, member: PrimExpr, count: PrimExpr) -> PrimExpr:
    """Channel `member` of `count` in the group of `channel`, where groups have this width."""
    if ops.is_const(width, 0):  # there are no channels
        return member
    return channel // width * count + member


def _default_kernel_layout(data_layout: str) -> str:
    """Output channels first, or last where the channels of the data follow the spatial axes."""
    axes = "".join(a for a in data_layout if a in "DHW")
    first = data_layout.index("C") < data_layout.index(axes[0])
    return f"OI{axes}" if first else f"{axes}IO"


def conv(
    inp: Tensor,
    filt: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
    out_layout: str = "",
) -> Tensor:
    """The sum of products of the filter with each window of the padded data, in any layout.

    The result has `out_dtype`, or the datatype of the operands; sums of floats narrower than
    float32 are taken in float32 and rounded once.
    """
    data = _read(inp, data_layout)
    kernel = _read(filt, kernel_layout or _default_kernel_layout(data_layout))
    count = len(data.order) - 2
    dims = kernel.sizes
    numbers = named_padding(padding, {a: dims[a] for a in spatial_axes(count)}, dilation)
    windows = Windows.of(count, stride, numbers, dilation)
    axes = [axis for axis in data.order if axis not in "NC"]
    sizes = {"N": data.sizes["N"], "C": dims["O"]} | {
        axis: windows.count(axis, data.sizes[axis], dims[axis]) for axis in axes
    }
    ends = {a: windows.elements_of_padding(a, data.sizes[a], dims[a]) for a in axes}
    if any(map(any, ends.values())):
        kernel, windows = _without_ends(kernel, ends), windows.without(ends)
        dims = kernel.sizes
    dtype = _joint(inp, filt, out_dtype)
    wide = _wide(dtype)
    is_written_out = (
        groups > 1 and ops.is_const(dims["I"], 1) and _is_small(dims[axis] for axis in axes)
    )
    last = data.order[-1]
    step = windows.strides.get(last, 1)
    by_phase = is_written_out and step > 1
    sources = (
        _phases(data, windows, wide, sizes[last], dims[last])
        if by_phase
        else {0: _padded(data, windows, wide)}
    )
    per_group = dims["O"] // number(groups)

    def term(index: Mapping[str, PrimExpr], element: Mapping[str, PrimExpr]) -> PrimExpr:
        channel = element["C"]
        if groups > 1:
            channel = _grouped(index["C"], per_group, channel, dims["I"])
        position = {axis: windows.position(axis, index[axis], element[axis]) for axis in axes}
        weight = {axis: element[axis] for axis in axes} | {"O": index["C"], "I": element["C"]}
        phase = 0
        if by_phase:
            after, phase = divmod(_literal(element[last]) * windows.dilation[last], step)
            position[last] = index[last] + after
        at = {"N": index["N"], "C": channel} | position
        values = sources[phase].at(at), kernel.at(weight)
        return _product(*values, wide)

    out = Layout.of(out_layout or data_layout)
    order = "".join(axis for axis in out.names if axis.isupper())
    summed = [axis for axis in data.order if axis != "N"]
    extents = {axis: dims["I" if axis == "C" else axis] for axis in summed}
    name = f"{'group_' * (groups > 1)}conv{count}d_{order.lower()}"
    if is_written_out:
        body = _written_out(term, order, extents, summed)
    else:
        body = _reduction(term, order, extents, summed)
    names = [AXIS_NAMES[axis] for axis in order]
    result = te.compute([sizes[a] for a in order], body, name=name, varargs_names=names)
    return in_layout(as_dtype(result, dtype), order, out)


def _without_ends(kernel: _Axes, ends: Mapping[str, tuple[int, int]]) -> _Axes:
    """A filter without the elements at both ends of its axes that are only multiplied by zeros.

    Such an element adds 0 to every result, or NaN if it is not finite: then the remaining elements
    become NaN instead.
    """
    sizes = [n - number(sum(ends.get(a, ()))) for a, n in kernel.sizes.items()]
    first = [number(ends[axis][0] if axis in ends else 0) for axis in kernel.order]
    zeros = None if kernel.tensor.dtype.is_int else _times_zero(kernel, ends)

    def kept(*index: PrimExpr) -> Any:
        weight = kernel.tensor(*map(ops.add, index, first))
        if zeros is None:
            return weight
        nothing = zeros(*(i for i, axis in zip(index, kernel.order, strict=True) if axis in "OI"))
        is_finite = ops.compare(tir.EQ, nothing, ops.const(0, nothing.dtype))
        return tir.Select(is_finite, weight, nothing)

    tensor = te.compute(sizes, kept, name="kernel_part", attrs=_OF_FILTER)
    return _Axes(tensor, kernel.order)


def _times_zero(kernel: _Axes, ends: Mapping[str, tuple[int, int]]) -> Tensor:
    """The sum of the products of the elements that are left out with zero, for each of O and I."""
    windows = {
        axis: te.reduce_axis((number(0), size), WINDOW_NAMES[axis])
        for axis, size in kernel.sizes.items()
        if axis not in "OI"
    }
    variables = {axis: window.var for axis, window in windows.items()}
    left_out = ops.any_of(
        *(
            test
            for axis, var in variables.items()
            for test in (
                var < number(ends[axis][0]),
                var >= kernel.sizes[axis] - number(ends[axis][1]),
            )
        )
    )
    zero = ops.const(0, kernel.tensor.dtype)

    def total(*index: PrimExpr) -> Any:
        at = dict(zip((a for a in kernel.order if a in "OI"), index, strict=True)) | variables
        return _sum(tir.Select(left_out, kernel.at(at), zero) * zero, list(windows.values()))

    sizes = [kernel.sizes[axis] for axis in kernel.order if axis in "OI"]
    return te.compute(sizes, total, name="kernel_rest", attrs=_OF_FILTER)  # type: ignore[no-any-return]


def _is_small(extents: Any) -> bool:
    """True if a window has so few elements that the sum over them is unrolled."""
    sizes = [size.value if isinstance(size, tir.IntImm) else 0 for size in extents]
    return 0 < folded(lambda a, b: a * b, sizes, 1) <= WRITTEN_OUT


Term = Callable[[Mapping[str, PrimExpr], Mapping[str, PrimExpr]], PrimExpr]


def _reduction(
    term: Term, order: str, extents: Mapping[str, PrimExpr], summed: Sequence[str]
) -> Callable[..., Any]:
    reductions = {
        axis: te.reduce_axis((number(0), extents[axis]), WINDOW_NAMES[axis]) for axis in summed
    }

    def element(*index: PrimExpr) -> Any:
        variables = {axis: reduction.var for axis, reduction in reductions.items()}
        value = term(dict(zip(order, index, strict=True)), variables)
        return _sum(value, list(reductions.values()))

    return element


def _written_out(
    term: Term, order: str, extents: Mapping[str, PrimExpr], summed: Sequence[str]
) -> Callable[..., Any]:
    elements: list[dict[str, PrimExpr]] = [{}]
    width = 1
    for axis in summed:
        width = _literal(extents[axis])
        elements = [p | {axis: number(k)} for p in elements for k in range(width)]

    def element(*index: PrimExpr) -> Any:
        outer = dict(zip(order, index, strict=True))
        values = [term(outer, element) for element in elements]
        # The sums of rows do not wait for each other.
        rows = (values[first : first + width] for first in range(0, len(values), width))
        return folded(ops.add, (folded(ops.add, row) for row in rows))

    return element


def _channel(group: PrimExpr | None, member: PrimExpr, count: PrimExpr) -> PrimExpr:
    """The channel that is a member of a group of `count`; itself if there is one group only."""
    return member if group is None else group * count + member


def _matrices(w: _Axes, order: str, extents: Mapping[str, PrimExpr], dtype: DataType) -> Tensor:
    """The filter as one matrix for each element of the window, and each group, in this order."""

    def weight(*index: PrimExpr) -> Any:
        at = dict(zip(order, index, strict=True))
        at["I"] = _channel(at.get("G"), at["I"], extents["I"])
        return ops.cast_to(w.at(at), dtype)

    return te.compute(  # type: ignore[no-any-return]
        [extents[a] for a in order], weight, name="kernel_transform", attrs=_OF_FILTER
    )


def conv_transpose(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None = None,
    out_layout: str = "",
    output_padding: Numbers = 0,
    out_sizes: Sequence[PrimExpr] | None = None,
) -> Tensor:
    """Add the filter times each element of the data to the window of that element.

    This is the transpose of `conv` as a linear map. The dimensions of the result along spatial axes
    are `out_sizes`, or the least plus `output_padding`. In the layout of the filter, `I` are
    the channels of the data and `O` those of the result.
    """
    x, w = _read(data, data_layout), _read(kernel, kernel_layout)
    count = len(x.order) - 2
    axes = spatial_axes(count)
    dims, sizes = w.sizes, x.sizes
    numbers = named_padding(padding, {a: dims[a] for a in axes}, dilation)
    windows = Windows.of(count, stride, numbers, dilation)
    if out_sizes is None:
        extra = per_axis(output_padding, count)
        out_sizes = [
            windows.span(a, sizes[a], dims[a], m) for a, m in zip(axes, extra, strict=True)
        ]
    out = dict(zip(axes, out_sizes, strict=True))
    goal = Layout.of(out_layout or data_layout)
    order = "".join(a for a in goal.names if a.isupper())
    per_group = dims["I"] // number(groups)
    final = out | {"N": sizes["N"], "C": dims["O"] * number(groups)}
    dtype = _joint(data, kernel, out_dtype)
    wide = _wide(dtype)

    matrix_axes = f"{axes}{'G' * (groups > 1)}OI"
    extents = dims | {"G": number(groups), "I": per_group}
    matrices = _matrices(w, matrix_axes, extents, wide)
    loops = [a for b in order for a in (matrix_axes[count:-1] if b == "C" else b)]

    def position(window: Index, index: Index) -> tuple[PrimExpr, ...]:
        at = dict(zip(loops, index, strict=True))
        target = {a: windows.position(a, at[a], k) for a, k in zip(axes, window, strict=True)}
        target |= {"N": at["N"], "C": _channel(at.get("G"), at["O"], dims["O"])}
        return tuple(target[a] for a in order)

    summed = [] if ops.is_const(per_group, 1) else [per_group]

    def term(ins: Sequence[Buffer], window: Index, index: Index, summation: Index) -> PrimExpr:
        at = dict(zip(loops, index, strict=True)) | {"I": summation[0] if summation else number(0)}
        source = at | {"C": _channel(at.get("G"), at["I"], per_group)}
        value = BufferLoad(ins[0], [source[a] for a in x.order])
        factor = BufferLoad(ins[1], [*window, *(at[a] for a in matrix_axes[count:])])
        return ops.cast_to(value, wide) * factor

    padded_sizes = [
        final[a] + number(windows.before.get(a, 0) + windows.after.get(a, 0)) for a in order
    ]
    extents |= sizes
    padded_result = overlap_add(
        padded_sizes,
        wide,
        [x.tensor, matrices],
        [dims[a] for a in axes],
        [extents[a] for a in loops],
        summed,
        position,
        term,
        f"conv{count}d_transpose",
    )

    def cropped(*index: PrimExpr) -> Any:
        position = [i + number(windows.before.get(a, 0)) for a, i in zip(order, index, strict=True)]
        return ops.cast_to(padded_result(*position), dtype)

    result = te.compute([final[a] for a in order], cropped, name="T_crop")
    return in_layout(result, order, goal)


def conv_backward_weight(
    grad: Tensor,
    data: Tensor,
    sizes: Sequence[PrimExpr],
    stride: Numbers,
    padding: Numbers,
    dilation: Numbers,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None = None,
    out_layout: str = "",
) -> Tensor:
    """The gradient of the filter of `conv`, of shape `sizes`, from that of its result."""
    goal = Layout.of(kernel_layout)
    order = "".join(a for a in goal.names if a.isupper())
    dims = dict(zip(order, whole_shape(sizes, goal), strict=True))
    g, x = _read(grad, out_layout or data_layout), _read(data, data_layout)
    count = len(x.order) - 2
    axes = spatial_axes(count)
    windows = Windows.of(count, stride, padding, dilation)
    per_group = dims["O"] // number(groups)
    dtype = _joint(grad, data, out_dtype)
    wide = _wide(dtype)
    source = _padded(x, windows, wide)
    summed = {
        a: te.reduce_axis((number(0), g.sizes[a]), WINDOW_NAMES[a]) for a in g.order if a != "C"
    }

    def element(*index: PrimExpr) -> Any:
        at = dict(zip(order, index, strict=True))
        channel = at["I"] if groups == 1 else _grouped(at["O"], per_group, at["I"], dims["I"])
        inner = {a: axis.var for a, axis in summed.items()}
        position = {a: windows.position(a, inner[a], at[a]) for a in axes} | {
            "N": inner["N"],
            "C": channel,
        }
        return _sum(
            _product(g.at(inner | {"C": at["O"]}), source.at(position), wide), [*summed.values()]
        )

    result = te.compute([dims[a] for a in order], element, name=f"conv{count}d_backward_weight")
    return in_layout(as_dtype(result, dtype), order, goal)


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers = 1,
    padding: Padding = "VALID",
    dilation: Numbers = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along one axis."""
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers,
    padding: Padding,
    dilation: Numbers,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along two axes, of one group."""
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)
