"""Operators that repeat, reverse, shift or mask the elements of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from relaxpy.ir.core.dtype import INT32, INT64
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.axis_rules import along, per_axis, repeated_axes
from relaxpy.ir.ops.definition.gradients import (
    by_transpose,
    no_gradient,
    of_operand,
    require_shape,
    shape_like,
    tuple_fields,
)
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import product, shape_text, tidy
from relaxpy.ir.te.topi.transform import repeat_elements, roll_elements
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _scaled(size: PrimExpr, count: int) -> PrimExpr:
    return tidy(size * ops.const(count, size.dtype))


def _require_counts(repeats: Sequence[int]) -> None:
    for count in repeats:
        if count < 0:
            raise rules.refuse(f"repeats is at least 0, found {count}", repeats)


def _gradient_repeat(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    """Sum over the repetitions, which reshaping turns into an axis after the repeated one."""
    shape, count = require_shape(x, "repeat"), cast("int", call.attrs["repeats"])
    axis = cast("int | None", call.attrs["axis"])
    sizes = (product(shape),) if axis is None else shape
    position = 0 if axis is None else rules.normal_axis(axis, len(sizes))
    split_shape = (*sizes[: position + 1], ops.const(count, "int64"), *sizes[position + 1 :])
    total = R.sum(R.reshape(g, rx.ShapeExpr(split_shape)), position + 1)
    return R.reshape(total, shape_like(x)) if axis is None else total


@register(
    "relax.repeat",
    axes=repeated_axes,
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te(repeat_elements, "repeat"),
    gradient=of_operand(_gradient_repeat),
)
def repeat(data: rx.TensorStructInfo, repeats: int, axis: int | None = None) -> rx.TensorStructInfo:
    """Each slice of data along an axis, `repeats` times in a row; without an axis, each element.

    Shapes:
        data    any
        result  the size of the axis times `repeats`; without an axis (size of data * repeats,)
    Errors:
        StructInfoError: `repeats` is negative, or the axis is out of range.
    """
    _require_counts((repeats,))
    shape = literal_shape(data)
    if axis is None:
        if shape is None:
            return rules.tensor(None, data.dtype, data.vdevice, 1)
        return rules.tensor((_scaled(product(shape), repeats),), data.dtype, data.vdevice)
    position = rules.normal_axis(axis, data.ndim) if data.ndim >= 0 else axis
    if repeats == 1:
        return data
    if shape is None:
        return rules.tensor(None, data.dtype, data.vdevice, data.ndim)
    sizes = (*shape[:position], _scaled(shape[position], repeats), *shape[position + 1 :])
    return rules.tensor(sizes, data.dtype, data.vdevice)


def _gradient_tile(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    """Sum over the repetitions, which reshaping turns into an axis before each repeated one."""
    shape, reps = require_shape(x, "tile"), cast("tuple[int, ...]", call.attrs["repeats"])
    rank = max(len(shape), len(reps))
    times = [ops.const(n, "int64") for n in (*[1] * (rank - len(reps)), *reps)]
    sizes = (*[rules.one()] * (rank - len(shape)), *shape)
    split_shape = [n for pair in zip(times, sizes, strict=True) for n in pair]
    total = R.sum(R.reshape(g, rx.ShapeExpr(tuple(split_shape))), tuple(range(0, 2 * rank, 2)))
    return total if rank == len(shape) else R.reshape(total, shape_like(x))


@register(
    "relax.tile",
    layout=per_axis("repeats"),
    pure=True,
    legalize=rules.by_te("tile", "tile", repeats="reps"),
    gradient=of_operand(_gradient_tile),
)
def tile(data: rx.TensorStructInfo, repeats: tuple[int, ...]) -> rx.TensorStructInfo:
    """data, `repeats[i]` times one after the other along axis i.

    Shapes:
        data    any; with leading axes of size 1 if there are more repeats than axes
        result  each size times its number of repeats; the last axes if there are fewer repeats
    Errors:
        StructInfoError: a number of repeats is negative.
    """
    _require_counts(repeats)
    if data.ndim < 0:
        return rules.tensor(None, data.dtype, data.vdevice)
    if all(count == 1 for count in repeats) and len(repeats) <= data.ndim:
        return data
    rank = max(data.ndim, len(repeats))
    shape = literal_shape(data)
    if shape is None:
        return rules.tensor(None, data.dtype, data.vdevice, rank)
    times = (*[1] * (rank - len(repeats)), *repeats)
    sizes = (*[rules.one()] * (rank - len(shape)), *shape)
    return rules.tensor(list(map(_scaled, sizes, times)), data.dtype, data.vdevice)


def _gradient_flip(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    return flip(g, call.attrs["axis"])


@register(
    "relax.flip",
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te("flip"),
    gradient=of_operand(_gradient_flip),
)
def flip(data: rx.TensorStructInfo, axis: int) -> rx.TensorStructInfo:
    """The elements of data in reverse order along an axis.

    Shapes:
        data    any
        result  as data
    Errors:
        StructInfoError: the axis is out of range.
    """
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    return data


def _gradient_roll(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    shift = cast("tuple[int, ...]", call.attrs["shift"])
    return roll(g, tuple(-count for count in shift), call.attrs["axis"])


@register(
    "relax.roll",
    layout=along("axis"),
    pure=True,
    legalize=rules.by_te(roll_elements, "roll"),
    gradient=of_operand(_gradient_roll),
)
def roll(
    data: rx.TensorStructInfo, shift: tuple[int, ...], axis: tuple[int, ...] | None = None
) -> rx.TensorStructInfo:
    """The elements of data moved along axes; those that leave an axis enter at its start.

    Without an axis, the elements move in row-major order.

    Shapes:
        data    any
        result  as data
    Errors:
        StructInfoError: an axis is out of range, or there is not one shift for each axis.
    """
    if axis is None:
        if len(shift) != 1:
            raise rules.refuse(f"without an axis there is one shift, found {list(shift)}", shift)
    elif len(shift) != len(axis):
        raise rules.refuse(
            f"each axis has a shift, found {list(shift)} for axes {list(axis)}", shift
        )
    elif data.ndim >= 0:
        for one_axis in axis:
            rules.normal_axis(one_axis, data.ndim)
    return data


def _gradient_meshgrid(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """For each vector, the sum of the gradient over the axes of the others."""
    sinfo = builder.struct_info_of(call.args[0])
    count = len(cast("rx.TupleStructInfo", sinfo).fields)
    swapped = call.attrs["indexing"] == "xy" and count > 1
    # A grid of one vector is a tuple as well.
    fields = tuple_fields(gradient, count) if count > 1 else [rx.TupleGetItem(gradient, 0)]
    out = []
    for k in range(count):
        position = 1 - k if swapped and k < 2 else k
        out.append(R.sum(fields[k], tuple(axis for axis in range(count) if axis != position)))
    return [rx.Tuple(tuple(out))]


@register(
    "relax.meshgrid", pure=True, legalize=rules.by_te("meshgrid"), gradient=_gradient_meshgrid
)
def meshgrid(
    tensors: rx.TupleStructInfo, indexing: Literal["ij", "xy"] = "ij"
) -> rx.TupleStructInfo:
    """The coordinates of a grid: each vector along its own axis, repeated along the others.

    Vector k lies along axis k; with indexing "xy", the first two change places.

    Shapes:
        tensors  vectors of one datatype
        result   as many tensors, of the sizes of all vectors
    Errors:
        StructInfoError: there is no tensor, one has another rank than 1, or datatypes differ.
    """
    vectors: list[rx.TensorStructInfo] = []
    for k, sinfo in enumerate(tensors.fields):
        if not isinstance(sinfo, rx.TensorStructInfo):
            raise rules.refuse_type(
                f"tensors holds tensors, found {sinfo} as number {k + 1}", sinfo
            )
        if sinfo.ndim not in (-1, 1):
            raise rules.refuse(f"tensors holds vectors, found {sinfo} as number {k + 1}", sinfo)
        vectors.append(sinfo)
    if not vectors:
        raise rules.refuse("tensors holds at least one vector, found none", tensors)
    dtype, vdevice = (
        rules.common_dtype(vectors, "tensors"),
        rules.joint_vdevice(vectors, strict=False),
    )
    shapes = [literal_shape(v) for v in vectors]
    sizes = [shape[0] for shape in shapes if shape is not None]
    if len(sizes) < len(vectors):
        grid = rules.tensor(None, dtype, vdevice, len(vectors))
    else:
        if indexing == "xy":
            sizes[:2] = sizes[1::-1]
        grid = rules.tensor(sizes, dtype, vdevice)
    return rx.TupleStructInfo((grid,) * len(vectors))


def _one_hot(
    indices: Tensor, on_value: PrimExpr, off_value: PrimExpr, depth: int, axis: int
) -> Tensor:
    return topi.one_hot(indices, on_value, off_value, depth, axis, str(on_value.dtype))


@register(
    "relax.one_hot", pure=True, legalize=rules.by_te(_one_hot, "one_hot"), gradient=no_gradient
)
def one_hot(
    indices: rx.TensorStructInfo,
    on_value: rx.PrimStructInfo,
    off_value: rx.PrimStructInfo,
    depth: int,
    axis: int = -1,
) -> rx.TensorStructInfo:
    """`on_value` where the position along a new axis is the index, else `off_value`.

    Indices outside [0, depth) are `off_value` everywhere.

    Shapes:
        indices              integers of any shape
        on_value, off_value  scalars of one datatype
        result               `depth` as size of the new axis, in the datatype of the values
    Errors:
        StructInfoError: the indices are known not to be integers, the datatypes of the values
            differ, `depth` is not positive, or the axis is out of the range of the result.
    """
    rules.require_integer(indices.dtype, "indices", indices)
    if on_value.dtype != off_value.dtype:
        raise rules.refuse_type(
            f"on_value and off_value have one datatype, found {on_value.dtype} and "
            f"{off_value.dtype}",
            off_value,
        )
    if depth <= 0:
        raise rules.refuse(f"depth is positive, found {depth}", depth)
    if indices.ndim < 0:
        return rules.tensor(None, on_value.dtype, indices.vdevice)
    position = rules.normal_axis(axis, indices.ndim + 1)
    shape = literal_shape(indices)
    if shape is None:
        return rules.tensor(None, on_value.dtype, indices.vdevice, indices.ndim + 1)
    sizes = (*shape[:position], ops.const(depth, "int64"), *shape[position:])
    return rules.tensor(sizes, on_value.dtype, indices.vdevice)


def _infer_triangle(
    x: rx.TensorStructInfo,
    k: rx.PrimStructInfo = 0,  # type: ignore[assignment]
) -> rx.TensorStructInfo:
    if 0 <= x.ndim < 2:
        raise rules.refuse(f"x has rank at least 2, found {x}", x)
    if not k.dtype.is_int or k.dtype.is_bool:
        raise rules.refuse_type(f"k is an integer, found {k}", k)
    return x


def _gradient_triangle(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    return R.tril(g, call.args[1]) if call.op.name == "relax.tril" else R.triu(g, call.args[1])  # type: ignore[union-attr]


_TRIANGLE = """The elements of matrices {} diagonal k, with it; elsewhere 0.

Shapes:
    x       (..., n, m)
    k       the number of the diagonal: 0 the main one, above it positive
    result  as x
Errors:
    StructInfoError: x has rank 0 or 1, or k is not an integer.
"""


def _legalize_triangle(name: str) -> Any:
    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        return rules.te_kernel(builder, topi.trilu, name, *call.args, name == "triu")

    return legalize


_triangle = rows(
    _infer_triangle, _TRIANGLE, _legalize_triangle, gradient=of_operand(_gradient_triangle)
)
TRIANGLES = family(_triangle("tril", "below"), _triangle("triu", "above"))


@register(
    "relax.reverse_sequence",
    pure=True,
    legalize=rules.by_te("reverse_sequence", "reverse_sequence"),
    gradient=by_transpose("reverse_sequence", 1),
)
def reverse_sequence(
    data: rx.TensorStructInfo,
    seq_lengths: rx.TensorStructInfo,
    seq_axis: int = 1,
    batch_axis: int = 0,
) -> rx.TensorStructInfo:
    """The data with the first elements of each sequence reversed; its length says how many.

    A length that exceeds the size counts as the size; one below 1 reverses nothing.

    Shapes:
        data         any with two axes: `seq_axis` of the sequences, `batch_axis` of the lengths
        seq_lengths  (size of the batch axis,), int32 or int64
        result       as data
    Errors:
        StructInfoError: an axis is out of range, both are one, the lengths are not a vector, or
            there is another number of them, or they are not int32 or int64.
    """
    if not seq_lengths.dtype.is_void and seq_lengths.dtype not in (INT32, INT64):
        raise rules.refuse_type(
            f"seq_lengths holds int32 or int64, found {seq_lengths}", seq_lengths
        )
    if seq_lengths.ndim not in (-1, 1):
        raise rules.refuse(f"seq_lengths is a vector, found {seq_lengths}", seq_lengths)
    if data.ndim < 0:
        return data
    along, batch = (
        rules.normal_axis(axis, data.ndim, name)
        for axis, name in ((seq_axis, "seq_axis"), (batch_axis, "batch_axis"))
    )
    if along == batch:
        raise rules.refuse(
            f"seq_axis and batch_axis are two axes, found {seq_axis} and {batch_axis}"
        )
    shape, counts = literal_shape(data), literal_shape(seq_lengths)
    if shape is not None and counts is not None and rules.differ(shape[batch], counts[0]):
        raise rules.refuse(
            f"seq_lengths has a length for each of {rules.shown(shape[batch])} along axis "
            f"{batch_axis} "
            f"of data {shape_text(shape)}, found {rules.shown(counts[0])}",
            seq_lengths,
        )
    return data
