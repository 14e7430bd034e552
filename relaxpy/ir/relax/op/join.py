"""Operators that join tensors into one, or divide one into several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Tuple, TupleStructInfo, Var
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import require_rank, tuple_fields
from relaxpy.ir.relax.op.definition.layouts import concat_layout, split_layout, stack_layout
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import tidy, total
from relaxpy.ir.te.topi.transform import split_bounds
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

#: The maximum number of tensors that one call returns.
MAX_SECTIONS = 1024

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _tensors(tensors: TupleStructInfo) -> tuple[list[TensorStructInfo], DataType, object]:
    """The tensors of a tuple, and their datatype and device.

    Errors:
        StructInfoTypeError: there is no tensor, a field is not a tensor, or datatypes differ.
    """
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
    """The tensors of a tuple, a constructor with their datatype and device, and their rank.

    Errors:
        StructInfoTypeError: as for `_tensors`, or ranks differ.
    """
    sinfos, dtype, vdevice = _tensors(tensors)
    joined = partial(rules.tensor, dtype=dtype, vdevice=vdevice)
    return sinfos, joined, rules.common_rank(sinfos, "tensors")


def _concatenate(tensors: Sequence[Tensor], axis: int | None) -> Tensor:
    return topi.concatenate(tensors, axis or 0)


def _gradient_concat(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The slices of the gradient, one for each tensor."""
    sinfos = cast("TupleStructInfo", builder.struct_info_of(call.args[0])).fields
    tensors = cast("tuple[TensorStructInfo, ...]", sinfos)
    axis = rules.normal_axis(cast("int", call.attrs["axis"] or 0), require_rank(var, "concat"))
    ends: list[PrimExpr] = [ops.const(0, "int64")]
    for sinfo in tensors:
        shape = rules.literal_shape(sinfo)
        if shape is None:
            raise rules.refuse(
                f"the gradient of concat needs the shapes of all tensors, found {sinfo}",
                call,
                hint="state it by R.match_cast",
            )
        ends.append(tidy(ops.add(ends[-1], shape[axis])))
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
    layout=concat_layout,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te(_concatenate, "concatenate"),
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
    slices = tuple_fields(split(gradient, count, axis), count)
    return [Tuple(tuple(R.squeeze(section, axis) for section in slices))]


@register(
    "relax.stack",
    layout=stack_layout,
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
    axis = rules.normal_axis(cast("int", call.attrs["axis"]), require_rank(x, "split"))
    sections = tuple_fields(gradient, cuts if isinstance(cuts, int) else len(cuts) + 1)
    if isinstance(cuts, int) or all(a <= b for a, b in pairwise((0, *cuts))):
        return [concat(gradient, axis) if len(sections) > 1 else sections[0]]
    sinfo = rules.tensor_sinfo(x)
    shape = None if sinfo is None else rules.literal_shape(sinfo)
    if sinfo is None or shape is None:
        raise rules.refuse(
            f"the gradient of split at {list(cuts)} needs the shape of x, found {sinfo}", x
        )
    total: Expr | None = None
    for section, (begin, size) in zip(sections, split_bounds(shape[axis], cuts), strict=True):
        remaining = tidy(ops.sub(shape[axis], ops.add(begin, size)))
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
    layout=split_layout,
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
    shape = rules.literal_shape(x)
    if shape is None:
        return TupleStructInfo((rules.tensor(None, x.dtype, x.vdevice, x.ndim),) * count)
    sections = split_bounds(shape[position], cuts)
    return TupleStructInfo(tuple(_section(x, shape, position, size) for _, size in sections))


def _section(
    x: TensorStructInfo, shape: rules.Sizes, axis: int, size: PrimExpr
) -> TensorStructInfo:
    return rules.tensor((*shape[:axis], size, *shape[axis + 1 :]), x.dtype, x.vdevice)
