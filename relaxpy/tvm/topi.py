"""Names of topi that no operator is legalised to.

Numbers and sizes for functions that build tensor expressions; masks, windows, diagonals and blocks;
convolutions by the names of their layouts, with the parameters that TVM gives them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith import prove
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.te.tensor import Tensor, extern
from relaxpy.ir.te.topi import shapes
from relaxpy.ir.te.topi.arguments import checked
from relaxpy.ir.te.topi.convolution import conv, conv_transpose
from relaxpy.ir.te.topi.elementwise import computed, injective
from relaxpy.ir.te.topi.indexing import load, loops, stored, stored_in_copy
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import as_sizes, normal_axis, shape_text, tidy
from relaxpy.ir.te.topi.transform import reshape, strided_slice, transpose
from relaxpy.ir.te.topi.windows import Numbers, Padding
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, Stmt, stmt_seq
from relaxpy.support.entry import user_facing

#: A number of Python or an expression.
Size: TypeAlias = Any


@user_facing
def get_const_int(expr: ExprLike) -> int:
    """The integer that an expression is.

    Errors:
        MisuseError (also ValueError): it is not constant.
    """
    value = simplify(expr)
    if isinstance(value, tir.IntImm):
        return value.value
    if isinstance(value, int):
        return value
    raise MisuseError(f"expected a constant integer, found {expr}", about=expr)


@user_facing
def get_const_float(expr: ExprLike) -> float:
    """The float that an expression is.

    Errors:
        MisuseError (also ValueError): it is not constant.
    """
    value = simplify(expr)
    if isinstance(value, tir.FloatImm):
        return float(value.value)
    if isinstance(value, float):
        return value
    raise MisuseError(f"expected a constant float, found {expr}", about=expr)


@user_facing
def get_const_tuple(in_tuple: Sequence[ExprLike]) -> tuple[int | PrimExpr, ...]:
    """The members as integers, where they are constant.

    Errors:
        MisuseError (also ValueError): a member is not an integer.
    """
    members: list[int | PrimExpr] = []
    for member in in_tuple:
        value = simplify(member)
        is_open = isinstance(value, PrimExpr) and not isinstance(value, (tir.IntImm, tir.FloatImm))
        members.append(value if is_open else get_const_int(member))  # type: ignore[arg-type]
    return tuple(members)


def equal_const_int(expr: ExprLike, value: int) -> bool:
    """True if an expression is this integer."""
    simplified = simplify(expr)
    if isinstance(simplified, tir.IntImm):
        return simplified.value == value
    return isinstance(simplified, int) and simplified == value


@user_facing
def simplify(expr: ExprLike) -> ExprLike:
    """The simplified expression; Python's numbers stay unchanged."""
    return prove.simplify(expr) if isinstance(expr, PrimExpr) else expr


@user_facing
def prod(x: Sequence[Size]) -> Size:
    """The product of sizes; 1 of none."""
    if not x:
        return ops.const(1, "int32")
    total = x[0]
    for size in x[1:]:
        total = total * size
    return total


@user_facing
def ceil_div(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a / b rounded up."""
    return ops.ceildiv(a, b)


@user_facing
def ravel_index(indices: Sequence[Size], shape: Sequence[Size]) -> Size:
    """The row-major position of an index in a shape."""
    position: Size = 0
    for k, (index, size) in enumerate(zip(indices, shape, strict=True)):
        position = index if k == 0 else position * size + index
    return position


@user_facing
def unravel_index(idx: Size, shape: Sequence[Size]) -> list[Size]:
    """The index at a row-major position in a shape."""
    index: list[Size] = []
    for size in reversed(shape):
        index.append(idx % size)
        idx = idx // size
    return index[::-1]


@user_facing
def get_shape(
    src_shape: Sequence[ExprLike], src_layout: str, dst_layout: str
) -> tuple[ExprLike, ...]:
    """The sizes of the same axes in the order of another layout.

    Errors:
        MisuseError: the layouts have other axes.
    """
    if sorted(src_layout) != sorted(dst_layout) or len(src_layout) != len(src_shape):
        raise MisuseError(
            f"layouts order the axes of one shape, found {src_layout!r}, {dst_layout!r} for "
            f"{shapes.shape_text(shapes.as_sizes(src_shape))}"
        )
    return tuple(src_shape[src_layout.index(axis)] for axis in dst_layout)


@user_facing
def const_vector(vector: npt.ArrayLike, name: str = "const_vector") -> Tensor:
    """A vector of numbers as a tensor.

    Errors:
        MisuseError: it has another rank.
    """
    return _constant(vector, 1, name)


@user_facing
def const_matrix(matrix: npt.ArrayLike, name: str = "const_matrix") -> Tensor:
    """A matrix of numbers as a tensor.

    Errors:
        MisuseError: it has another rank.
    """
    return _constant(matrix, 2, name)


def _constant(numbers: npt.ArrayLike, ndim: int, name: str) -> Tensor:
    array = np.asarray(numbers)
    if array.ndim != ndim:
        raise MisuseError(f"{name} takes an array of rank {ndim}, found rank {array.ndim}")
    dtype = str(array.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value: PrimExpr = ops.const(0, dtype)
        for position in np.ndindex(*array.shape):
            equalities = [
                ops.compare(tir.EQ, i, ops.const(k, i.dtype))
                for i, k in zip(index, position, strict=True)
            ]
            value = intrin.if_then_else(
                ops.all_of(*equalities), ops.const(array[position].item(), dtype), value
            )
        return value

    return computed(shapes.as_sizes(array.shape), element, name)


@user_facing
def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """The tensors that `primfunc` writes, where it reads `input_tensors`.

    These are the values of the buffers that it reads, in the order of its parameters. A result is
    a buffer that it only writes, or, if it reads all that it writes, the last of these, which is
    then not among the inputs. `kwargs` are options of `extern`.

    Errors:
        MisuseError (also TypeError): a parameter is not a buffer, nothing is read or written, or
            the tensors are not as many as the inputs, or have other shapes.
    """
    check_type(primfunc, PrimFunc, "expected a PrimFunc")
    buffers = [primfunc.buffer_of(param) for param in primfunc.params]
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for node in walk(primfunc.body):
        if isinstance(node, (BufferLoad, BufferStore)):
            (reads if isinstance(node, BufferLoad) else writes).add(node.buffer)
    ins = [buffer for buffer in buffers if buffer is not None and buffer in reads]
    outs = [buffer for buffer in buffers if buffer is not None and buffer in writes - reads]
    changed = [buffer for buffer in ins if buffer in writes]
    if not outs and changed:
        outs = [changed[-1]]
        ins.remove(changed[-1])
    if None in buffers or not outs or not ins:
        raise MisuseError("the kernel of an extern reads and writes buffers, which it takes")
    if [len(t.shape) for t in input_tensors] != [b.ndim for b in ins] or any(
        not bool(a == b)
        for tensor, buffer in zip(input_tensors, ins, strict=True)
        for a, b in zip(tensor.shape, buffer.shape, strict=True)
    ):
        expected = ", ".join(f"{b.name} {b.shape}" for b in ins)
        raise MisuseError(f"the inputs are the tensors for {expected}", about=input_tensors)
    return extern(
        [buffer.shape for buffer in outs],
        input_tensors,
        lambda ins, outs: primfunc.body,
        in_buffers=ins,
        out_buffers=outs,
        dtype=[str(buffer.dtype) for buffer in outs],
        **kwargs,
    )


def _index(value: ExprLike) -> PrimExpr:
    return ops.cast_to(value, "int64")


@checked
def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0
) -> Tensor:
    """The data with `mask_value` after the valid length of each sequence.

    Sequences lie along axis 0 or 1, and batches along the other one of these axes.

    Errors:
        MisuseError: the axis is another one, or a rank is not 2 or more and 1.
    """
    if data.ndim < 2 or valid_length.ndim != 1 or axis not in (0, 1):
        raise MisuseError(
            "sequence_mask takes a tensor of rank 2 or more, a vector of lengths and axis 0 or 1, "
            f"found ranks {data.ndim} and {valid_length.ndim} and axis {axis}"
        )
    fill = ops.const(mask_value, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        length = _index(valid_length(index[1 - axis]))
        return intrin.if_then_else(index[axis] >= length, fill, data(*index))

    return injective(data.shape, element, "T_sequence_mask")


@checked
def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """The windows over the axes from `axis` on: the axes that count windows, then those inside.

    Errors:
        MisuseError: the axis is out of range, or there is not one positive size and stride for each
            axis from there on.
    """
    first = normal_axis(axis, data.ndim)
    count = data.ndim - first
    if not len(window_shape) == len(strides) == count or min(*window_shape, *strides) <= 0:
        raise MisuseError(
            f"sliding_window takes one positive size and stride for each of {count} axes, found "
            f"{list(window_shape)} and {list(strides)}"
        )
    windows, steps = as_sizes(window_shape), as_sizes(strides)
    counts = [
        tidy((size - window) // step + ops.const(1, "int64"))
        for size, window, step in zip(data.shape[first:], windows, steps, strict=True)
    ]

    def element(*index: PrimExpr) -> PrimExpr:
        source = (
            number * step + offset
            for number, step, offset in zip(
                index[first : first + count], steps, index[first + count :], strict=True
            )
        )
        return data(*index[:first], *source)

    return injective((*data.shape[:first], *counts, *windows), element, "T_sliding_window")


@checked
def matrix_set_diag(
    data: Tensor, diagonal: Tensor, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Replace the elements on a diagonal of matrices, or on all diagonals of a band.

    A positive k is above the main diagonal. The rows of `diagonal` for a band are ordered from the
    upper diagonal to the lower one; `align` says to which end shorter rows above and below the main
    diagonal are aligned.

    Errors:
        MisuseError: a rank does not fit, or the diagonals are not in ascending order.
    """
    if not isinstance(k, int) and not len(k):
        raise unexpected(k, "matrix_set_diag: k is an integer or two of them")
    low, high = (k, k) if isinstance(k, int) else (k[0], k[-1])
    is_band = low != high
    if data.ndim < 2 or low > high or diagonal.ndim != data.ndim - (0 if is_band else 1):
        raise MisuseError(
            f"matrix_set_diag takes matrices and diagonals {low} to {high}, found ranks "
            f"{data.ndim} and {diagonal.ndim}"
        )
    above, below = (side == "RIGHT" for side in align.split("_"))
    rows, columns = data.shape[-2:]

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def on_diagonal(number: int) -> Stmt:
            row, column = ops.const(max(-number, 0), "int64"), ops.const(max(number, 0), "int64")
            size = tidy(ops.minimum(rows - row, columns - column))
            shift = ops.const(0, "int64")
            if is_band and (above if number >= 0 else below):
                shift = tidy(diagonal.shape[-1] - size)
            line = [ops.const(high - number, "int64")] if is_band else []

            def element(index: list[PrimExpr]) -> Stmt:
                *lead, i = index
                value = load(ins[0], [*lead, *line, i + shift])
                return BufferStore(out, value, (*lead, i + row, i + column))

            return loops((*data.shape[:-2], size), element)

        return stmt_seq(*map(on_diagonal, range(low, high + 1)))

    dtype = str(data.dtype)
    return stored_in_copy(data, data.shape, dtype, [diagonal], "matrix_set_diag", store)


@checked
def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Sequence[ExprLike],
    sparse_values: Tensor,
    default_value: float = 0,
) -> Tensor:
    """A tensor with values at indices, and `default_value` elsewhere.

    The indices are one position, a vector of them, or a matrix with one index in each row; values
    are a vector or one scalar for all.

    Errors:
        MisuseError: a rank does not fit.
    """
    sizes, rank = as_sizes(output_shape), sparse_indices.ndim
    if rank > 2 or sparse_values.ndim > min(rank, 1) or (rank < 2 and len(sizes) != 1):
        raise MisuseError(
            f"sparse_to_dense takes one index for each value, found shapes "
            f"{shape_text(sparse_indices.shape)} and {shape_text(sparse_values.shape)} for "
            f"{shape_text(sizes)}"
        )
    dtype = str(sparse_values.dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def fill(index: list[PrimExpr]) -> Stmt:
            return BufferStore(out, ops.const(default_value, dtype), tuple(index))

        def element(index: list[PrimExpr]) -> Stmt:
            if rank < 2:
                target = [_index(load(ins[0], index))]
            else:
                target = [
                    _index(load(ins[0], [*index, ops.const(k, "int64")])) for k in range(len(sizes))
                ]
            value = load(ins[1], index if sparse_values.ndim else [])
            return BufferStore(out, value, tuple(target))

        return stmt_seq(loops(sizes, fill), loops(sparse_indices.shape[:1], element))

    return stored(sizes, dtype, [sparse_indices, sparse_values], "sparse_to_dense", store)


def _check_blocks(data: Tensor, name: str, block_shape: Sequence[int], *widths: object) -> None:
    counts = {len(block_shape), *(len(w) for w in widths if isinstance(w, Sequence))}
    if len(counts) != 1 or not 0 < len(block_shape) < data.ndim or min(block_shape) <= 0:
        raise MisuseError(
            f"{name} takes one positive block size and one width each for at most "
            f"{data.ndim - 1} axes after the first, found {list(block_shape)}"
        )


@checked
def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: ExprLike = 0.0,
) -> Tensor:
    """Turn each position in a block into a separate batch, after padding.

    The blocks are along the axes after the first one, the batches in row-major order of positions.

    Errors:
        MisuseError: there is not one block size and width for each of these axes.
    """
    _check_blocks(data, "space_to_batch_nd", block_shape, pad_before, pad_after)
    unpadded = [0] * (data.ndim - len(block_shape) - 1)
    padded = pad(data, [0, *pad_before, *unpadded], [0, *pad_after, *unpadded], pad_value)
    sizes = [ops.const(size, "int64") for size in block_shape]
    batch, *spatial = padded.shape
    shape = [batch, *spatial]
    for axis, size in enumerate(sizes, start=1):
        shape[0] = tidy(shape[0] * size)
        shape[axis] = tidy(shape[axis] // size)

    def element(*index: PrimExpr) -> PrimExpr:
        source, position = list(index), index[0] // batch
        source[0] = index[0] % batch
        for axis in range(len(sizes), 0, -1):
            size = sizes[axis - 1]
            offset = position % size if axis > 1 else position
            source[axis] = index[axis] * size + offset
            position = position // size
        return padded(*source)

    return injective(shape, element, "space_to_batch_nd")


@checked
def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Tensor:
    """Turn batches into positions in blocks along the axes after the first one, then crop the ends.

    Errors:
        MisuseError: there is not one block size and width for each of these axes.
    """
    _check_blocks(data, "batch_to_space_nd", block_shape, crop_begin_list, crop_end_list)
    sizes = [ops.const(size, "int64") for size in block_shape]
    shape = list(data.shape)
    for axis, size in enumerate(sizes, start=1):
        shape[0] = tidy(shape[0] // size)
        shape[axis] = tidy(shape[axis] * size)
    batch = shape[0]

    def element(*index: PrimExpr) -> PrimExpr:
        source: list[PrimExpr] = list(index)
        position: PrimExpr = ops.const(0, "int64")
        for axis, size in enumerate(sizes, start=1):
            position = position * size + index[axis] % size
            source[axis] = index[axis] // size
        source[0] = position * batch + index[0]
        return data(*source)

    merged = injective(shape, element, "batch_to_space_nd")
    ends = [
        size - ops.const(cut, "int64") for size, cut in zip(shape[1:], crop_end_list, strict=False)
    ]
    axes = list(range(1, len(sizes) + 1))
    return strided_slice(merged, list(crop_begin_list), ends, None, axes)


_DEFAULTS: dict[str, Any] = {"out_dtype": None}
_LINE = ("data", "kernel", "strides", "padding", "dilation", "out_dtype")
_GROUPED_LINE = (*_LINE[:5], "groups", "out_dtype")
_OF_LINE = {"strides": 1, "padding": "VALID", "dilation": 1, "out_dtype": None}
_OF_GROUPED_LINE = _OF_LINE | {"groups": 1}
_IMAGE = ("Input", "Filter", "stride", "padding", "dilation", "out_dtype")
_GROUPED_IMAGE = ("Input", "Filter", "stride", "padding", "dilation", "groups", "out_dtype")
_TURNED = ("data", "kernel", "stride", "padding", "out_dtype", "output_padding")
_TURNED_IMAGE = ("Input", "Filter", "strides", "padding", "out_dtype", "output_padding")
_TURNED_BLOCK = ("data", "kernel", *_TURNED_IMAGE[2:], "groups")
_ANNOTATIONS = {
    **dict.fromkeys(("data", "Input", "kernel", "Filter"), "Tensor"),
    "padding": "Padding",
    "groups": "int",
    "out_dtype": "str | None",
}
#: The layouts of the data and of the filter, the parameters as TVM names them, and their defaults.
_NAMED: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "conv1d_ncw": ("NCW", "OIW", _LINE, _OF_LINE),
    "conv1d_nwc": ("NWC", "WIO", _LINE, _OF_LINE),
    "group_conv1d_ncw": ("NCW", "OIW", _GROUPED_LINE, _OF_GROUPED_LINE),
    "group_conv1d_nwc": ("NWC", "WIO", _GROUPED_LINE, _OF_GROUPED_LINE),
    "conv2d_nchw": ("NCHW", "OIHW", _IMAGE, _DEFAULTS),
    "conv2d_hwcn": ("HWCN", "HWIO", _IMAGE, _DEFAULTS),
    "conv2d_nhwc": ("NHWC", "HWIO", _IMAGE, {"out_dtype": "float32"}),
    "group_conv2d_nchw": ("NCHW", "OIHW", _GROUPED_IMAGE, _DEFAULTS),
    "group_conv2d_nhwc": ("NHWC", "HWIO", _GROUPED_IMAGE, _DEFAULTS),
    "conv3d_ncdhw": ("NCDHW", "OIDHW", _GROUPED_IMAGE, _DEFAULTS),
    "conv3d_ndhwc": ("NDHWC", "DHWIO", _GROUPED_IMAGE, {"out_dtype": "float32"}),
    "conv1d_transpose_ncw": ("NCW", "IOW", _TURNED, {}),
    "conv2d_transpose_nchw": ("NCHW", "IOHW", _TURNED_IMAGE, {}),
    "conv3d_transpose_ncdhw": ("NCDHW", "IODHW", _TURNED_IMAGE, {}),
    "group_conv1d_transpose_ncw": ("NCW", "IOW", (*_TURNED, "groups"), {}),
    "group_conv2d_transpose_nchw": ("NCHW", "IOHW", (*_TURNED, "groups"), {}),
    "group_conv3d_transpose_ncdhw": ("NCDHW", "IODHW", _TURNED_BLOCK, {}),
}


def _named(name: str) -> Callable[..., Tensor]:
    layout, kernel_layout, names, defaults = _NAMED[name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            n,
            kind,
            default=defaults.get(n, inspect.Parameter.empty),
            annotation=_ANNOTATIONS.get(n, "Numbers"),
        )
        for n in names
    ]
    signature = inspect.Signature(parameters)

    def convolution(*args: Any, **kwargs: Any) -> Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        data, kernel, stride, padding, *_ = bound.args
        dilation, groups = (bound.arguments.get(n, 1) for n in ("dilation", "groups"))
        layouts, dtype = (layout, kernel_layout), bound.arguments["out_dtype"]
        if "output_padding" not in names:
            return conv(data, kernel, stride, padding, dilation, groups, *layouts, dtype)
        more: Any = (dtype, "", bound.arguments["output_padding"])
        return conv_transpose(data, kernel, stride, padding, dilation, groups, *layouts, *more)

    convolution.__signature__ = signature  # type: ignore[attr-defined]
    convolution.__name__ = convolution.__qualname__ = name
    transposed = "_transpose" * ("output_padding" in names)
    groups = ", in groups of channels" * ("groups" in names)
    convolution.__doc__ = f"""`conv{transposed}`, {layout} by {kernel_layout}{groups}."""
    return checked(convolution)


conv1d_ncw, conv1d_nwc = map(_named, ("conv1d_ncw", "conv1d_nwc"))
group_conv1d_ncw, group_conv1d_nwc = map(_named, ("group_conv1d_ncw", "group_conv1d_nwc"))
conv2d_nchw, conv2d_hwcn, conv2d_nhwc = map(_named, ("conv2d_nchw", "conv2d_hwcn", "conv2d_nhwc"))
group_conv2d_nchw, group_conv2d_nhwc = map(_named, ("group_conv2d_nchw", "group_conv2d_nhwc"))
conv3d_ncdhw, conv3d_ndhwc = map(_named, ("conv3d_ncdhw", "conv3d_ndhwc"))
conv1d_transpose_ncw = _named("conv1d_transpose_ncw")
conv2d_transpose_nchw = _named("conv2d_transpose_nchw")
conv3d_transpose_ncdhw = _named("conv3d_transpose_ncdhw")
group_conv1d_transpose_ncw = _named("group_conv1d_transpose_ncw")
group_conv2d_transpose_nchw = _named("group_conv2d_transpose_nchw")
group_conv3d_transpose_ncdhw = _named("group_conv3d_transpose_ncdhw")


def _channels(kernel: Tensor, axis: int) -> int:
    """The number of channels of a depthwise kernel."""
    size = kernel.shape[axis] if kernel.ndim == 4 else None
    if not isinstance(size, tir.IntImm):
        raise MisuseError(
            "a depthwise kernel has rank 4 and a known number of channels, found "
            f"{shape_text(kernel.shape)}"
        )
    return size.value


@checked
def depthwise_conv2d_nchw(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """Each channel convolved with filters of its own, NCHW.

    The kernel is (channels, filters, height, width); result channel c * filters + m is that of
    filter m of channel c.
    """
    groups = _channels(Filter, 0)
    channels, multiple, *window = Filter.shape
    kernel = reshape(Filter, [channels * multiple, 1, *window])
    return group_conv2d_nchw(Input, kernel, stride, padding, dilation, groups, out_dtype)


@checked
def depthwise_conv2d_nhwc(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Tensor:
    """As `depthwise_conv2d_nchw`, NHWC.

    The kernel is (height, width, channels, filters) in layout "HWOI", and (height, width, filters,
    channels) in layout "HWIO".

    Errors:
        MisuseError: there is no such layout.
    """
    if kernel_layout not in ("HWOI", "HWIO"):
        raise unexpected(kernel_layout, "kernel_layout is 'HWOI' or 'HWIO'")
    kernel = Filter if kernel_layout == "HWOI" else transpose(Filter, (0, 1, 3, 2))
    groups = _channels(kernel, 2)
    *window, channels, multiple = kernel.shape
    kernel = reshape(kernel, [*window, 1, channels * multiple])
    return group_conv2d_nhwc(Input, kernel, stride, padding, dilation, groups, out_dtype)
