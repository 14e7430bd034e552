"""The struct info of outputs that `call_tir` and similar operators allocate, in every form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from relaxpy.errors import (
    MissingArgumentError,
    MisuseError,
    StructInfoError,
    StructInfoTypeError,
    counted,
    unexpected,
)
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import explain_incompatibility
from relaxpy.ir.tir.expr import PrimExpr

StructInfos: TypeAlias = rx.StructInfo | Sequence[rx.StructInfo]
OutputShape: TypeAlias = rx.Expr | Sequence[PrimExpr | int]


def output_sinfo(out_sinfo: StructInfos) -> rx.StructInfo:
    """Convert declared struct info; a list is that of a tuple, unless it has one member."""
    if isinstance(out_sinfo, (list, tuple)):
        members = tuple(rx.as_struct_info(s) for s in out_sinfo)
        return members[0] if len(members) == 1 else rx.TupleStructInfo(members)
    return rx.as_struct_info(out_sinfo)


def sinfo_list(sinfo_args: StructInfos) -> tuple[rx.StructInfo, ...]:
    """Convert one struct info or a list of them to a tuple."""
    if isinstance(sinfo_args, (list, tuple)):
        return tuple(rx.as_struct_info(s) for s in sinfo_args)
    return (rx.as_struct_info(sinfo_args),)


def flat_operands(
    arguments: Sequence[object], shape: object, sinfo_args: StructInfos | None
) -> tuple[Any, Any] | None:
    """The operands and the shape of `f, args..., shape, sinfo_args=[A]` (OP-1, OP-9).

    `arguments` are the arguments after `f`. None if the call has another form: with the operands in
    a tuple, and with `out_sinfo` or `shape` by name.
    """
    values = [value for value in arguments if value is not None]
    if sinfo_args is None or shape is not None or not values:
        return None
    *operands, last = values
    is_value = isinstance(last, rx.Expr) or (
        isinstance(last, (list, tuple))
        and all(isinstance(m, (rx.Expr, PrimExpr, int, list, tuple)) for m in last)
    )
    if not is_value or (not operands and not _is_shape(last)):
        return None
    return (operands[0] if len(operands) == 1 else operands), last


def _is_shape(value: object) -> bool:
    """Return whether a value is certainly a shape, or a tuple of shapes."""
    if isinstance(value, (list, tuple, rx.Tuple)):
        members = value.fields if isinstance(value, rx.Tuple) else value
        return bool(members) and all(map(_is_shape, members))
    return isinstance(value, rx.Expr) and isinstance(value.struct_info, rx.ShapeStructInfo)


def declared_outputs(
    out_sinfo: StructInfos | None,
    shape: OutputShape | Sequence[OutputShape] | None,
    sinfo_args: StructInfos | None,
    rule: str,
) -> rx.StructInfo:
    """The struct info of the outputs: `out_sinfo` or A of `sinfo_args=[A]`, with `shape` in it.

    Errors:
        MisuseError: neither or both are passed (OP-3, OP-11), or `shape` is not a shape (OP-2).
        StructInfoError: A is not of outputs with such shapes (OP-2, OP-3, RES-50).
    """
    if (out_sinfo is None) is (sinfo_args is None):
        hint = 'declare the outputs once: out_sinfo=R.Tensor((4, 4), "float32")'
        if out_sinfo is None:
            raise MissingArgumentError("argument 'out_sinfo' is missing", rule=rule, hint=hint)
        raise MisuseError(
            "pass either out_sinfo or sinfo_args, found both",
            rule=rule,
            hint=hint,
            about=sinfo_args,
        )
    if out_sinfo is not None:
        sinfo = output_sinfo(out_sinfo)
    else:
        declared = sinfo_list(sinfo_args or ())
        if len(declared) != 1:
            raise StructInfoError(
                f"takes the struct info of one output, found {len(declared)}",
                rule=rule,
                hint="several outputs are one R.Tuple",
                about=sinfo_args,
            )
        [sinfo] = declared
    return sinfo if shape is None else _sized(sinfo, shape)


def _sized(sinfo: rx.StructInfo, shape: object) -> rx.StructInfo:
    """OP-4, RES-50: `sinfo` with the sizes of `shape`."""
    if isinstance(sinfo, rx.TupleStructInfo):
        shapes = shape.fields if isinstance(shape, rx.Tuple) else shape
        if not isinstance(shapes, (list, tuple)) or len(shapes) != len(sinfo.fields):
            actual = counted(len(shapes), "shape") if isinstance(shapes, (list, tuple)) else shape
            raise StructInfoTypeError(
                f"shape holds one for each of {len(sinfo.fields)} outputs, found {actual}",
                rule="OP-3",
                about=shape,
            )
        fields = zip(sinfo.fields, shapes, strict=True)
        return rx.TupleStructInfo(
            tuple(_sized(field, field_shape) for field, field_shape in fields)
        )
    if not isinstance(sinfo, rx.TensorStructInfo):
        raise StructInfoTypeError(f"outputs are tensors, found {sinfo}", rule="OP-3", about=sinfo)
    sizes = _read_shape(shape)
    sized = rx.TensorStructInfo(sizes, sinfo.dtype, sinfo.vdevice)
    reason = explain_incompatibility(sized, sinfo)
    if reason is not None:
        raise StructInfoError(
            f"shape {sizes} does not fit the output {sinfo}: {reason}",
            rule="OP-8",
            hint="declare the sizes once",
            about=shape,
        )
    return sized


def _read_shape(shape: object) -> rx.Expr:
    """OP-2: sizes, or a variable that holds a shape."""
    match shape:
        case list() | tuple():
            return rx.ShapeExpr(tuple(shape))
        case rx.ShapeExpr() | rx.Var(struct_info=rx.ShapeStructInfo()):
            return shape
        case rx.Expr():
            sinfo = shape.struct_info
            raise StructInfoTypeError(
                f"shape is a shape, found {shape if sinfo is None else sinfo}",
                rule="OP-2",
                hint="bind the shape to a variable first and write that"
                if isinstance(sinfo, rx.ShapeStructInfo)
                else None,
                about=shape,
            )
        case _:
            raise unexpected(shape, "a shape is a list of sizes or a shape value", rule="OP-2")
