"""Registration of operators that are translated to expressions of Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.dataclass import replace
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relay.op.registry import KnownDims, Op, OpRecord, Results, Translate
from relaxpy.ir.relay.op.relations import RELATIONS, RelationError, identity_of_tensors
from relaxpy.ir.relay.op.struct_info import struct_info_relation
from relaxpy.ir.relay.ty import Type
from relaxpy.ir.tir.expr import IntImm

Args: TypeAlias = tuple[rx.Expr, ...]
_OF_TENSORS: Final = {"Identity": identity_of_tensors}


def define(
    names: str,
    operands: str,
    translate: Translate,
    attributes: Mapping[str, object] | None = None,
    *,
    makers: Mapping[str, object] | None = None,
    relation: str = "",
    results: Results = 1,
    known_dims: KnownDims | None = None,
) -> None:
    """Register operators with these names, operands and attributes, separated by blanks.

    `makers` are the defaults of the Python functions where they differ from those of the text.
    """
    for name in names.split():
        Op.enter(
            OpRecord(
                name,
                tuple(operands.split()),
                attributes=attributes or {},
                maker_defaults=makers or {},
                relation=_OF_TENSORS.get(relation, RELATIONS.get(relation)),
                relation_name=relation,
                translate=translate,
                results=results,
                known_dims=known_dims,
            )
        )


def results_of_topk(call: object, attrs: Mapping[str, Any]) -> int:
    """Return the number of results of `topk`: both values and indices, or one of them."""
    return 2 if attrs["ret_type"] == "both" else 1


def define_te(
    name: str,
    operands: str,
    compute: Callable[..., Any],
    attributes: Mapping[str, object] | None = None,
    *,
    makers: Mapping[str, object] | None = None,
) -> None:
    """Register an operator that a function of attributes and `te` tensors computes.

    Its type is that of the tensor which the function returns, or of the tensors in its list.
    """

    def tensors(attrs: Attrs, inputs: Sequence[Any], ty: Type | None) -> Sequence[Any]:
        result = compute(attrs, *inputs)
        return result if isinstance(result, list) else [result]

    record = OpRecord(
        name,
        tuple(operands.split()),
        attributes=attributes or {},
        maker_defaults=makers or {},
        compute=tensors,
    )
    Op.enter(replace(record, relation=struct_info_relation(record)))


def dims(expr: rx.Expr) -> tuple[Any, ...]:
    """Return the dimensions of an operand.

    Errors:
        RelationError: its rank is not known.
    """
    sinfo = expr.struct_info
    shape = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
    if shape is None:
        raise RelationError("the rank of an operand is not known")
    return tuple(shape)


def resized_dims(args: Args, attrs: Mapping[str, Any]) -> list[list[object]]:
    """Return the dimensions of resized images: those of the batch and the channels are known."""
    sizes = zip(attrs["layout"], dims(args[0]), strict=True)
    return [[size if axis in "NC" else None for axis, size in sizes]]


def number(value: float, dtype: str) -> rx.Expr:
    """Return a scalar constant."""
    return rx.Constant(np.array(value, dtype))


def known_shape(expr: rx.Expr) -> list[int]:
    """Return the shape of an operand whose dimensions are numbers.

    Errors:
        RelationError: a dimension is not known.
    """
    shape = dims(expr)
    if not all(isinstance(dim, IntImm) for dim in shape):
        raise RelationError(f"the dimensions are known, found {expr.struct_info}")
    return [dim.value for dim in shape]


def dtype_of(expr: rx.Expr) -> str:
    """Return the datatype of an operand.

    Errors:
        RelationError: the operand is not a tensor.
    """
    sinfo = expr.struct_info
    if not isinstance(sinfo, rx.TensorStructInfo):
        raise RelationError(f"expected a tensor, found {sinfo}")
    return str(sinfo.dtype)


def axes_of(value: Any, rank: int, *, exclude: bool = False) -> list[int]:
    """Return axes as numbers from 0; None means all, and with `exclude` the others are returned.

    Errors:
        RelationError: an axis is out of range.
    """
    if value is None:
        chosen = list(range(rank))
        exclude = False
    else:
        chosen = [int(axis) for axis in (value if isinstance(value, tuple) else (value,))]
    for axis in chosen:
        if not -rank <= axis < rank:
            raise RelationError(f"axis {axis} is out of range for rank {rank}")
    chosen = [axis % rank for axis in chosen]
    return [axis for axis in range(rank) if axis not in chosen] if exclude else chosen


def listed(value: Any) -> list[Any]:
    """Return the value of an attribute that is a number or a list as a list."""
    return list(value) if isinstance(value, tuple) else [value]


def fields_of(expr: rx.Expr) -> list[rx.Expr]:
    """Return the fields of a tuple operand.

    Errors:
        RelationError: the operand is not a tuple.
    """
    sinfo = expr.struct_info
    if not isinstance(sinfo, rx.TupleStructInfo):
        raise RelationError(f"expected a tuple of tensors, found {sinfo}")
    return [rx.TupleGetItem(expr, index) for index in range(len(sinfo.fields))]


def options(attrs: Attrs, names: str) -> dict[str, Any]:
    """Return some of the attributes as keyword arguments."""
    return {name: attrs[name] for name in names.split()}
