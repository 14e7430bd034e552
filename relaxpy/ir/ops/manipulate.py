"""Operators that rearrange the elements of tensors, join tensors, or divide them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op_record import Columns, Memory
from relaxpy.ir.ops.definition import axis_rules, gradients, rules
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.signature import integer_literal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import dims_of, literal_shape, shape_of, tensor_sinfo
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Tuple, TupleStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import (
    expanded_sizes,
    product,
    reduced_sizes,
    split_bounds,
    tidy,
    total,
)
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.te.tensor import Tensor


def _rearranged(x: rx.TensorStructInfo, shape: Sequence[PrimExpr]) -> rx.TensorStructInfo:
    return rules.tensor(shape, x.dtype, x.vdevice)


def _of_rank(x: rx.TensorStructInfo, ndim: int) -> rx.TensorStructInfo:
    return rules.tensor(None, x.dtype, x.vdevice, ndim)


def _broadcasts(old: rules.Sizes, new: rules.Sizes) -> bool:
    """True if the shape `old` provably broadcasts to `new`; else run time decides."""
    pairs = zip(old[::-1], new[::-1], strict=False)
    return all(rules.is_one(a) or rules.same(a, b) for a, b in pairs)


def _legalize_broadcast_to(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    old, new = rules.known_shape(builder, call.args[0]), rules.known_shape(builder, call)
    if not _broadcasts(old, new):
        return call
    return rules.te_kernel(builder, topi.broadcast_to, "broadcast_to", *call.args)


def _gradient_broadcast_to(g: Expr, x: Expr, shape: Expr) -> list[Expr]:
    return [gradients.unbroadcast(g, x), R.grad.no_grad(shape)]


@register(
    "relax.broadcast_to",
    precision_policy=1,
    pure=True,
    legalize=_legalize_broadcast_to,
    gradient=gradients.of_operands(_gradient_broadcast_to),
)
def broadcast_to(
    x: rx.TensorStructInfo, shape: rx.ShapeStructInfo, call: rx.Call
) -> rx.TensorStructInfo:
    """x repeated along its axes of size 1, and along new leading ones.

    Shapes:
        x       broadcasts to `shape`
        result  `shape`
    Errors:
        StructInfoError: x has more axes than the shape, or a size that is provably neither 1 nor
            that of the shape.
    """
    if 0 <= shape.ndim < x.ndim:
        raise rules.refuse(
            f"x of rank {x.ndim} does not broadcast to {shape}, of rank {shape.ndim}", x
        )
    sizes, target = x.get_shape(), shape.values
    if sizes is not None and target is not None:
        offset = len(target) - len(sizes)
        for axis, size in enumerate(sizes):
            if not rules.is_one(size) and rules.differ(size, target[axis + offset]):
                raise rules.refuse(
                    f"dimension {axis} of x {rules.shape_text(sizes)} is {rules.shown(size)}, "
                    f"which does not broadcast to dimension {axis + offset} of {shape}, "
                    f"{rules.shown(target[axis + offset])}",
                    x,
                )
    return rules.tensor(rules.shape_operand(call.args[1], shape), x.dtype, x.vdevice, shape.ndim)


def _check_collapse(data: rx.TensorStructInfo, target: rules.Sizes | None, rank: int) -> None:
    """Check that a tensor of shape `target` broadcasts to the shape of `data`."""
    sizes = data.get_shape()
    if 0 <= data.ndim < rank:
        raise rules.refuse(f"data of rank {data.ndim} does not collapse to rank {rank}", data)
    if sizes is None or target is None:
        return
    for k, (size, goal) in enumerate(zip(sizes[::-1], target[::-1], strict=False), start=1):
        if not rules.is_one(goal) and rules.differ(size, goal):
            raise rules.refuse(
                f"dimension {-k} of data {rules.shape_text(sizes)} and that of the target "
                f"{rules.shape_text(target)}, which is not 1, differ: {rules.shown(size)} and "
                f"{rules.shown(goal)}",
                data,
            )


def _legalize_collapse(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    data, target = rules.known_shape(builder, call.args[0]), rules.known_shape(builder, call)
    if not _broadcasts(target, data):
        return call
    return rules.te_kernel(
        builder, topi.collapse_sum, "collapse_sum", call.args[0], rx.ShapeExpr(target)
    )


def _gradient_collapse(g: Expr, data: Expr, shape: Expr) -> list[Expr]:
    return [R.broadcast_to(g, gradients.shape_like(data)), R.grad.no_grad(shape)]


_collapse = Columns(
    pure=True, legalize=_legalize_collapse, gradient=gradients.of_operands(_gradient_collapse)
)


@register("relax.collapse_sum_to", **_collapse)
def collapse_sum_to(
    data: rx.TensorStructInfo, shape: rx.ShapeStructInfo, call: rx.Call
) -> rx.TensorStructInfo:
    """The sum of `data` over the axes along which `shape` would be broadcast to its shape.

    Shapes:
        data    what `shape` broadcasts to
        result  `shape`, in the datatype of data
    Errors:
        StructInfoError: `shape` provably does not broadcast to the shape of data.
    """
    _check_collapse(data, shape.values, shape.ndim)
    return rules.tensor(
        rules.shape_operand(call.args[1], shape), data.dtype, data.vdevice, shape.ndim
    )


@register("relax.collapse_sum_like", **_collapse)
def collapse_sum_like(
    data: rx.TensorStructInfo, collapse_target: rx.TensorStructInfo
) -> rx.TensorStructInfo:
    """The sum of `data` over the axes along which the target would be broadcast to its shape.

    Shapes:
        data             what the target broadcasts to
        collapse_target  any
        result           the shape of the target, in the datatype of data
    Errors:
        StructInfoError: the target provably does not broadcast to the shape of data.
    """
    _check_collapse(data, collapse_target.get_shape(), collapse_target.ndim)
    shape, ndim = collapse_target.shape, collapse_target.ndim
    return rules.tensor(shape, data.dtype, collapse_target.vdevice, ndim)


def _resolve_shape(arguments: dict[str, Any]) -> None:
    """Resolve a shape from a list, where 0 is the size of x at that position, and -1 is inferred.

    If the shape of x is unknown, -1 remains for the rule to resolve at run time.
    """
    requested, x = arguments["shape"], arguments["x"]
    if isinstance(x, np.ndarray):
        x = arguments["x"] = rx.const(x)
    if isinstance(requested, rx.Expr) and not isinstance(requested, rx.ShapeExpr):
        return
    if not isinstance(requested, (rx.ShapeExpr, list, tuple)):
        raise unexpected(
            requested,
            "a shape is a list of sizes or a shape value",
            hint=f"one axis is written ({requested!r:.60},)",
        )
    shape = list(requested)
    literals = [integer_literal(size) for size in shape]
    if any(v is not None and v < -1 for v in literals) or literals.count(-1) > 1:
        raise MisuseError(
            f"sizes are positive, 0 (as in x) or once -1 (inferred), found {requested!r}",
            about=requested,
        )
    sinfo = x.struct_info if isinstance(x, rx.Expr) else None
    old = shape_of(sinfo)
    if 0 in literals and not isinstance(requested, rx.ShapeExpr):
        if old is None:
            raise MisuseError(
                f"0 in {requested!r} needs the shape of x, which is "
                f"{'unknown' if sinfo is None else sinfo}",
                hint="state the shape with R.match_cast first",
                about=requested,
            )
        for axis, value in enumerate(literals):
            if value == 0:
                if axis >= len(old):
                    raise MisuseError(
                        f"size {axis} is 0 (as in x), but x is {sinfo}", about=requested
                    )
                shape[axis] = old[axis]
    sizes = rx.as_shape(shape)
    arguments["shape"] = rx.ShapeExpr(
        sizes if old is None else _with_inferred_size(sizes, old, requested)
    )


def _with_inferred_size(sizes: rules.Sizes, old: rules.Sizes, about: object = None) -> rules.Sizes:
    """Replace -1 in `sizes` by the size that keeps the number of elements of the shape `old`."""
    inferred = [k for k, size in enumerate(sizes) if integer_literal(size) == -1]
    if not inferred:
        return sizes
    if len(inferred) > 1:
        raise MisuseError(f"only one size may be -1, found {rules.shape_text(sizes)}", about=about)
    [position] = inferred
    before, after = sizes[:position], sizes[position + 1 :]
    others = product((*before, *after))
    if integer_literal(others) == 0:
        raise MisuseError(
            f"-1 may be any size in {rules.shape_text(sizes)}: others are 0", about=about
        )
    return (*before, tidy(product(old) // others), *after)


def _legalize_reshape(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    shape = rules.known_shape(builder, call)
    if not rules.same(product(rules.known_shape(builder, call.args[0])), product(shape)):
        return call
    return rules.te_kernel(builder, topi.reshape, "reshape", call.args[0], rx.ShapeExpr(shape))


def _reshape_back(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    return reshape(g, gradients.shape_like(x))


@register(
    "relax.reshape",
    axes=axis_rules.reshaped_axes,
    precision_policy=1,
    pure=True,
    memory=Memory.COPY,
    legalize=_legalize_reshape,
    adapt=_resolve_shape,
    gradient=gradients.of_operand(_reshape_back),
)
def reshape(
    x: rx.TensorStructInfo, shape: rx.ShapeStructInfo, call: rx.Call
) -> rx.TensorStructInfo:
    """The elements of x in row-major order in another shape.

    In a list, 0 is the size of x in that position, and -1, once, what the others leave.

    Shapes:
        x       as many elements as `shape`
        result  `shape`
    Errors:
        MisuseError: a size of the list is negative, or -1 occurs twice.
        StructInfoError: the numbers of elements provably differ.
    """
    old, new = x.get_shape(), shape.values
    if new is not None and any(integer_literal(size) == -1 for size in new):
        if old is None:
            return rules.tensor(None, x.dtype, x.vdevice, shape.ndim)
        new = _with_inferred_size(new, old)
    if old is not None and new is not None:
        before, after = product(old), product(new)
        if rules.differ(before, after):
            raise rules.refuse(
                f"x has {rules.shown(before)} elements, {shape} has {rules.shown(after)}: x is {x}",
                x,
            )
    result_shape = new if new is not None else rules.shape_operand(call.args[1], shape)
    return rules.tensor(result_shape, x.dtype, x.vdevice, shape.ndim)


@register(
    "relax.flatten",
    axes=axis_rules.reshaped_axes,
    precision_policy=1,
    pure=True,
    memory=Memory.COPY,
    legalize=_legalize_reshape,
    gradient=gradients.of_operand(_reshape_back),
)
def flatten(x: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The elements of x in row-major order along one axis.

    Shapes:
        x       any
        result  (number of elements,)
    """
    if x.ndim == 1:
        return x
    if x.ndim == 0:
        return _rearranged(x, (rules.one(),))
    shape = literal_shape(x)
    return _of_rank(x, 1) if shape is None else _rearranged(x, (product(shape),))


@register(
    "relax.nn.batch_flatten",
    axes=axis_rules.reshaped_axes,
    precision_policy=1,
    pure=True,
    legalize=_legalize_reshape,
    gradient=gradients.of_operand(_reshape_back),
)
def batch_flatten(data: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The elements of data in row-major order along two axes, the first of which is unchanged.

    Shapes:
        data    (batch, *sizes), of rank 2 or more
        result  (batch, product of sizes)
    Errors:
        StructInfoError: data is known to have another rank.
    """
    if data.ndim in (0, 1):
        raise rules.refuse(f"data has rank 2 or more, found {data}", data)
    shape = literal_shape(data)
    if shape is None:
        return _of_rank(data, 2)
    return _rearranged(data, (shape[0], product(shape[1:])))


def _expanded(x: Tensor, axis: Sequence[int]) -> Tensor:
    # As in TVM, the block has another name than that of topi.
    result: Tensor = topi.expand_dims(x, axis, name="expand_dims")
    return result


def _gradient_expand_dims(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    return squeeze(g, call.attrs["axis"])


@register(
    "relax.expand_dims",
    layout=axis_rules.expanded_layout,
    precision_policy=1,
    pure=True,
    memory=Memory.COPY,
    legalize=rules.by_te(_expanded, "expand_dims"),
    gradient=gradients.of_operand(_gradient_expand_dims),
)
def expand_dims(x: rx.TensorStructInfo, axis: tuple[int, ...]) -> rx.TensorStructInfo:
    """x with new axes of size 1 at these positions of the result.

    Shapes:
        x       any
        result  of rank x.ndim + len(axis)
    Errors:
        StructInfoError: an axis is out of the range of the result, or occurs twice.
    """
    if not axis or x.ndim < 0:
        return x if not axis else rules.tensor(None, x.dtype, x.vdevice)
    ndim = x.ndim + len(axis)
    new = rules.normal_axes(axis, ndim)
    shape = literal_shape(x)
    if shape is None:
        return _of_rank(x, ndim)
    return _rearranged(x, expanded_sizes(shape, new))


def _legalize_squeeze(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    sizes = rules.known_shape(builder, call.args[0])
    axes = cast("tuple[int, ...] | None", call.attrs["axis"])
    if not all(rules.is_one(sizes[axis]) for axis in axes or ()):
        return call
    return rules.te_kernel(builder, topi.squeeze, "squeeze", call.args[0], axes)


@register(
    "relax.squeeze",
    layout=axis_rules.squeezed_layout,
    precision_policy=1,
    pure=True,
    memory=Memory.COPY,
    legalize=_legalize_squeeze,
    gradient=gradients.of_operand(_reshape_back),
)
def squeeze(x: rx.TensorStructInfo, axis: tuple[int, ...] | None = None) -> rx.TensorStructInfo:
    """x without these axes of size 1; without all axes of size 1 by default.

    Shapes:
        x       size 1 along each of the axes
        result  the other axes
    Errors:
        StructInfoError: an axis is out of range, occurs twice, or has another known size.
    """
    if x.ndim < 0:
        return x if axis == () else rules.tensor(None, x.dtype, x.vdevice)
    shape = x.get_shape()
    if axis is not None:
        removed = set(rules.normal_axes(axis, x.ndim))
        for a in removed if shape is not None else ():
            assert shape is not None
            if isinstance(shape[a], IntImm) and not rules.is_one(shape[a]):
                raise rules.refuse(
                    f"axis {a} of x has size {rules.shown(shape[a])}, not 1: x is {x}", x
                )
    elif shape is None or not all(isinstance(s, IntImm) for s in shape):
        return rules.tensor(None, x.dtype, x.vdevice)
    else:
        removed = {a for a, s in enumerate(shape) if rules.is_one(s)}
    if not removed:
        return x
    sizes = literal_shape(x)
    if sizes is None:
        return _of_rank(x, x.ndim - len(removed) if axis is not None else -1)
    return _rearranged(x, reduced_sizes(sizes, removed))


def _gradient_permute_dims(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    axes = cast("Sequence[int] | None", call.attrs["axes"])
    if axes is None:
        return permute_dims(g)
    order = rules.normal_axes(axes, len(axes))
    return permute_dims(g, [order.index(k) for k in range(len(order))])


@register(
    "relax.permute_dims",
    **axis_rules.PERMUTED,
    precision_policy=1,
    pure=True,
    memory=Memory.COPY,
    legalize=rules.by_te("transpose"),
    gradient=gradients.of_operand(_gradient_permute_dims),
)
def permute_dims(
    x: rx.TensorStructInfo, axes: tuple[int, ...] | None = None
) -> rx.TensorStructInfo:
    """x with its axis `axes[i]` as axis i; in reverse order by default.

    Shapes:
        x       any
        result  size i is that of axis `axes[i]` of x
    Errors:
        StructInfoError: the axes do not permute the rank of x.
    """
    if x.ndim < 0:
        return rules.tensor(None, x.dtype, x.vdevice, -1 if axes is None else len(axes))
    if axes is not None and len(axes) != x.ndim:
        raise rules.refuse(f"axes {list(axes)} do not permute rank {x.ndim}", axes)
    order = tuple(range(x.ndim))[::-1] if axes is None else rules.normal_axes(axes, x.ndim, "axes:")
    if order == tuple(range(x.ndim)):
        return x
    shape = literal_shape(x)
    return _of_rank(x, x.ndim) if shape is None else _rearranged(x, [shape[a] for a in order])


#: The maximum number of tensors that one call returns.
MAX_SECTIONS = 1024


def _tensors(tensors: TupleStructInfo) -> tuple[list[TensorStructInfo], DataType, object]:
    """The tensors of a tuple, and their datatype and device."""
    sinfos: list[TensorStructInfo] = []
    for k, sinfo in enumerate(tensors.fields):
        if not isinstance(sinfo, TensorStructInfo):
            raise rules.refuse_type(
                f"tensors holds tensors, found {sinfo} as number {k + 1}", sinfo
            )
        sinfos.append(sinfo)
    if not sinfos:
        raise rules.refuse("tensors holds at least one tensor, found none", tensors)
    return sinfos, rules.common_dtype(sinfos, "tensors"), rules.joint_vdevice(sinfos, strict=False)


def _alike(
    tensors: TupleStructInfo,
) -> tuple[list[TensorStructInfo], Callable[..., TensorStructInfo], int]:
    """The tensors of a tuple, a constructor with their datatype and device, and their rank."""
    sinfos, dtype, vdevice = _tensors(tensors)
    joined = partial(rules.tensor, dtype=dtype, vdevice=vdevice)
    return sinfos, joined, rules.common_rank(sinfos, "tensors")


def _concatenate(tensors: Sequence[Tensor], axis: int | None) -> Tensor:
    return topi.concatenate(tensors, axis or 0)


_MOST_SYMBOLS = 48
"""The number of different symbolic sizes above which tensors are concatenated in groups."""


def _legalize_concat(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel; with many different symbolic sizes, a concatenation of concatenations.

    A tensor begins at the sum of the preceding sizes, and a kernel compares every two of them.
    """
    sinfos = cast("TupleStructInfo", builder.struct_info_of(call.args[0])).fields
    axis = cast("int", call.attrs["axis"] or 0)
    sizes = {dims_of(sinfo)[axis] for sinfo in sinfos}
    if sum(not isinstance(size, IntImm) for size in sizes) <= _MOST_SYMBOLS:
        return rules.by_te(_concatenate, "concatenate")(builder, call)
    tensors = gradients.tuple_fields(call.args[0], len(sinfos))
    width = math.isqrt(len(tensors))
    groups = [tensors[k : k + width] for k in range(0, len(tensors), width)]
    return cast("Expr", R.concat([R.concat(group, axis) for group in groups], axis))


def _gradient_concat(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The slices of the gradient, one for each tensor."""
    sinfos = cast("TupleStructInfo", builder.struct_info_of(call.args[0])).fields
    tensors = cast("tuple[TensorStructInfo, ...]", sinfos)
    axis = rules.normal_axis(
        cast("int", call.attrs["axis"] or 0), gradients.require_rank(var, "concat")
    )
    ends: list[PrimExpr] = [ops.const(0, "int64")]
    for sinfo in tensors:
        shape = literal_shape(sinfo)
        if shape is None:
            raise rules.refuse(
                f"the gradient of concat needs the shapes of all tensors, found {sinfo}",
                call,
                hint="state it by R.match_cast",
            )
        ends.append(tidy(ends[-1] + shape[axis]))
    cuts = ends[1:-1]
    if not cuts:
        return [Tuple((gradient,))]
    if all(isinstance(cut, IntImm) for cut in cuts):
        return [split(gradient, [cut.value for cut in cuts], axis)]  # type: ignore[attr-defined]
    parts = [
        R.strided_slice(gradient, [axis], [a], [b], assume_inbound=True) for a, b in pairwise(ends)
    ]
    return [Tuple(tuple(parts))]


@register(
    "relax.concat",
    layout=axis_rules.concat_layout,
    precision_policy=1,
    pure=True,
    legalize=_legalize_concat,
    gradient=_gradient_concat,
)
def concat(tensors: TupleStructInfo, axis: int | None = 0) -> TensorStructInfo:
    """The tensors one after the other along an axis; with None, vectors along their only one.

    Shapes:
        tensors  of one datatype and rank, and of the same sizes but along the axis
        result   their sizes along the axis added
    Errors:
        StructInfoError: there is no tensor; datatypes, ranks or known sizes differ; the axis is out
            of range, or it is None and the rank is not 1.
    """
    sinfos, joined, ndim = _alike(tensors)
    if axis is None and ndim not in (-1, 1):
        raise rules.refuse(f"without an axis, the tensors have rank 1, found rank {ndim}", tensors)
    if ndim < 0:
        return sinfos[0] if len(sinfos) == 1 else joined(None)
    position = rules.normal_axis(axis or 0, ndim)
    if len(sinfos) == 1:
        return sinfos[0]
    shapes = rules.unified_shapes(sinfos, "tensors", position)
    if shapes is None:
        return joined(None, ndim=ndim)
    joined_sizes = list(shapes[0])
    joined_sizes[position] = total([shape[position] for shape in shapes])
    return joined(joined_sizes)


def _gradient_stack(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    count = len(cast("TupleStructInfo", builder.struct_info_of(call.args[0])).fields)
    axis = cast("int", call.attrs["axis"])
    slices = gradients.tuple_fields(split(gradient, count, axis), count)
    return [Tuple(tuple(R.squeeze(section, axis) for section in slices))]


@register(
    "relax.stack",
    layout=axis_rules.stack_layout,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("stack"),
    gradient=_gradient_stack,
)
def stack(tensors: TupleStructInfo, axis: int = 0) -> TensorStructInfo:
    """The tensors one after the other along a new axis.

    Shapes:
        tensors  of one datatype and shape
        result   their number as size of the new axis
    Errors:
        StructInfoError: there is no tensor; datatypes, ranks or known sizes differ; the axis is out
            of the range of the result.
    """
    sinfos, joined, ndim = _alike(tensors)
    if ndim < 0:
        return joined(None)
    position = rules.normal_axis(axis, ndim + 1)
    shapes = rules.unified_shapes(sinfos, "tensors")
    if shapes is None:
        return joined(None, ndim=ndim + 1)
    count = ops.const(len(sinfos), "int64")
    return joined((*shapes[0][:position], count, *shapes[0][position:]))


def _split_kernel(
    x: Tensor, indices_or_sections: int | tuple[int, ...], axis: int
) -> Tensor | list[Tensor]:
    sections = topi.split(x, indices_or_sections, axis)
    return sections if len(sections) > 1 else sections[0]


def _gradient_split(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The gradients of the sections one after the other; summed where sections overlap."""
    [x] = call.args
    cuts = cast("int | tuple[int, ...]", call.attrs["indices_or_sections"])
    axis = rules.normal_axis(cast("int", call.attrs["axis"]), gradients.require_rank(x, "split"))
    sections = gradients.tuple_fields(gradient, cuts if isinstance(cuts, int) else len(cuts) + 1)
    if isinstance(cuts, int) or all(a <= b for a, b in pairwise((0, *cuts))):
        return [concat(gradient, axis) if len(sections) > 1 else sections[0]]
    sinfo = tensor_sinfo(x)
    shape = literal_shape(sinfo)
    if sinfo is None or shape is None:
        raise rules.refuse(
            f"the gradient of split at {list(cuts)} needs the shape of x, found {sinfo}", x
        )
    total: Expr | None = None
    for section, (begin, size) in zip(sections, split_bounds(shape[axis], cuts), strict=True):
        remaining = tidy(shape[axis] - (begin + size))
        before, after = (
            R.zeros((*shape[:axis], gap, *shape[axis + 1 :]), sinfo.dtype)
            for gap in (begin, remaining)
        )
        padded = concat([before, section, after], axis)
        total = padded if total is None else cast("Expr", R.add(total, padded))
    assert total is not None
    return [total]


@register(
    "relax.split",
    layout=axis_rules.split_layout,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te(_split_kernel, "split"),
    gradient=_gradient_split,
)
def split(
    x: TensorStructInfo, indices_or_sections: int | tuple[int, ...], axis: int = 0
) -> TupleStructInfo | TensorStructInfo:
    """x cut along an axis before these indices, or into that many equal sections, but the last.

    Shapes:
        x       any
        result  a tuple of one section more than indices, or of that many; a lone one is a tensor
    Errors:
        StructInfoError: there are no sections, or the axis is out of range.
    """
    cuts = indices_or_sections
    if isinstance(cuts, int) and cuts <= 0:
        raise rules.refuse(
            f"indices_or_sections is a number of sections above 0, found {cuts}", cuts
        )
    count = cuts if isinstance(cuts, int) else len(cuts) + 1
    if count > MAX_SECTIONS:
        raise rules.refuse(
            f"indices_or_sections asks for {count} sections, at most {MAX_SECTIONS} are allowed"
        )
    position = rules.normal_axis(axis, x.ndim) if x.ndim >= 0 else axis
    if count == 1:
        return x
    shape = literal_shape(x)
    if shape is None:
        return TupleStructInfo((rules.tensor(None, x.dtype, x.vdevice, x.ndim),) * count)
    sections = split_bounds(shape[position], cuts)
    return TupleStructInfo(tuple(_section(x, shape, position, size) for _, size in sections))


def _section(
    x: TensorStructInfo, shape: rules.Sizes, axis: int, size: PrimExpr
) -> TensorStructInfo:
    return rules.tensor((*shape[:axis], size, *shape[axis + 1 :]), x.dtype, x.vdevice)
