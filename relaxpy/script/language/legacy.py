"""Spellings of older and newer versions of Relax, translated to the current ones (rules LEG)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import static_type as ty
from relaxpy.script.language import records
from relaxpy.script.language.annotations import (
    Callable_,
    Prim,
    Shape,
    Tensor,
    Tuple,
    TypeName,
    as_type,
    checked_ndim,
)
from relaxpy.script.language.records import directive

RuntimeDepShape = records.UnknownShape()

#: Names of older versions that are not supported, each with its replacement.
UNSUPPORTED: Mapping[str, tuple[str, str]] = {
    "check_annotation": (
        "LEG-9",
        "annotations are always checked; R.match_cast(x, R.Tensor(...)) checks a value",
    ),
    "dynamically_check_shapes": (
        "LEG-9",
        "bind the shape to a variable s and check with R.match_cast(x, R.Tensor(s))",
    ),
    "map_shape_vars": ("LEG-10", "calls of functions match shape variables by themselves"),
    "substitute_shape": ("LEG-10", "calls of functions replace shape variables by themselves"),
}


# --- datatypes


def Int(bitwidth: int) -> DataType:
    """The datatype of signed integers of `bitwidth` bits."""
    return DataType(f"int{_bits(bitwidth)}")


def Float(bitwidth: int) -> DataType:
    """The datatype of IEEE floats of `bitwidth` bits."""
    return DataType(f"float{_bits(bitwidth)}")


def Bool() -> DataType:
    """The datatype of booleans."""
    return DataType("bool")


def Void() -> DataType:
    """The unknown datatype."""
    return VOID


def _bits(width: object) -> int:
    if isinstance(width, bool) or not isinstance(width, int):
        raise unexpected(width, "a bit width is an integer", rule="DT-8")
    return width


# --- types


def _shape_type(values: Any = None, ndim: int = -1) -> ty.ShapeType | Shape:
    """A shape: `ShapeType(ndim)`, or newer `ShapeType([n, 4])`."""
    if isinstance(values, int) and not isinstance(values, bool):
        values, ndim = None, values
    return ty.ShapeType(checked_ndim(ndim)) if values is None else Shape(values, ndim)


def _tensor_type(
    shape: Any = None, dtype: Any = "float32", vdevice: object = None, ndim: int = -1
) -> ty.DynTensorType | Tensor:
    """A tensor: `TensorType(ndim, dtype)`, or newer `TensorType((n, 4), "float32")`."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        return ty.DynTensorType(checked_ndim(shape), _dtype(dtype))
    return Tensor(shape, dtype, vdevice, ndim)


def _dyn_tensor_type(ndim: int = -1, dtype: Any = "float32") -> ty.DynTensorType:
    """A tensor of this rank (-1: unknown) and datatype."""
    return ty.DynTensorType(checked_ndim(ndim), _dtype(dtype))


def _tuple_type(*fields: Any) -> ty.TupleType | Tuple:
    """A tuple of these types, or of the types in a list."""
    if len(fields) == 1 and isinstance(fields[0], (tuple, list)):
        fields = tuple(fields[0])
    types = tuple(map(as_type, fields))
    return Tuple(*fields) if None in types else ty.TupleType(types)  # type: ignore[arg-type]


def _func_type(
    arg_types: Sequence[Any], ret_type: Any, pure: bool = True
) -> ty.FuncType | Callable_:
    """A function from argument types to a result type, pure by default."""
    check_type(arg_types, (tuple, list), "the types of arguments are a list")
    args, ret = tuple(map(as_type, arg_types)), as_type(ret_type)
    if ret is None or None in args:
        return Callable_(arg_types, ret_type, pure)
    return ty.FuncType(args, ret, pure)  # type: ignore[arg-type]


DynTensorType = TypeName("DynTensorType", _dyn_tensor_type)
TensorType = TypeName("TensorType", _tensor_type)
ShapeType = TypeName("ShapeType", _shape_type)
TupleType = TypeName("TupleType", _tuple_type)
FuncType = TypeName("FuncType", _func_type)
ObjectType = TypeName("ObjectType", ty.ObjectType)
PackedFuncType = TypeName("PackedFuncType", ty.PackedFuncType)
PrimType = Prim


def _dtype(value: object) -> DataType:
    return VOID if value is None else records.as_dtype(value)


# --- expressions


@directive
def match_shape(value: object, pattern: Sequence[object]) -> records.MatchShapeForm:
    """Check `value`, a tensor or a shape, against a shape at run time (LEG-1, LEG-2)."""
    check_type(
        pattern, (tuple, list, rx.ShapeExpr), "a pattern is a list of dimensions", rule="LEG-1"
    )
    return records.MatchShapeForm(value, pattern)


def cast(v: object, *types: object, type_args: Sequence[object] = ()) -> records.MatchCastForm:
    """Check at run time that `v` has a type (LEG-11)."""
    targets = (*types, *type_args)
    if targets and isinstance(targets[0], (str, np.dtype)):
        raise unexpected(
            targets[0],
            "cast takes a type",
            rule="LEG-11",
            hint=f"for another datatype write R.astype(x, {str(targets[0])!r})",
        )
    if len(targets) != 1:
        raise MisuseError(
            f"cast takes one type, as in R.cast(v, R.ObjectType()), found {len(targets)}",
            rule="LEG-11",
        )
    return records.MatchCastForm(v, targets[0])


def matched_sinfo(form: records.MatchShapeForm, sinfo: rx.StructInfo) -> rx.StructInfo:
    """The struct info against which a `match_shape` checks a value of struct info `sinfo`.

    Rule:
        LEG-1, LEG-2, LEG-3.
    Errors:
        MisuseError: the value is not known to be a tensor or a shape.
    """
    pattern: Any = form.pattern
    dims: Any = pattern.values if isinstance(pattern, rx.ShapeExpr) else tuple(pattern)
    if isinstance(sinfo, rx.ShapeStructInfo):
        return rx.ShapeStructInfo(dims)
    if isinstance(sinfo, rx.TensorStructInfo):
        return rx.TensorStructInfo(dims, sinfo.dtype)
    shown = ", ".join(map(str, dims))
    hint = None
    if isinstance(sinfo, rx.ObjectStructInfo):
        hint = f"write R.match_cast(x, R.Tensor([{shown}])) or R.match_cast(x, R.Shape([{shown}]))"
    raise MisuseError(
        f"only a tensor or a shape is matched with a shape, found {sinfo}",
        rule="LEG-3",
        hint=hint,
        about=form.value,
    )
