"""The known shape, rank and datatype of a value, and the check that arguments are of a kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeGuard, TypeVar

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import BindingBlock, Call, Expr, Function, Var
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc

Sizes: TypeAlias = tuple[PrimExpr, ...]
Value: TypeAlias = "rx.Expr | rx.StructInfo | None"
Info = TypeVar("Info", bound="rx.StructInfo | None")


def tensor_sinfo(value: Value) -> rx.TensorStructInfo | None:
    """The struct info of a tensor; None for other values, and where it is not derived."""
    sinfo = value.struct_info if isinstance(value, rx.Expr) else value
    return sinfo if isinstance(sinfo, rx.TensorStructInfo) else None


def tensor_of(value: Value) -> rx.TensorStructInfo:
    """The struct info of a value that is certainly a tensor."""
    sinfo = tensor_sinfo(value)
    assert sinfo is not None
    return sinfo


def literal_shape(value: Value) -> Sizes | None:
    """The dimensions of a tensor; None if its shape is unknown or a variable."""
    sinfo = tensor_sinfo(value)
    shape = None if sinfo is None else sinfo.shape
    return shape.values if isinstance(shape, rx.ShapeExpr) else None


def shape_of(value: Value) -> Sizes | None:
    """The dimensions of a tensor, which may be those of a variable; None if they are unknown."""
    sinfo = tensor_sinfo(value)
    return None if sinfo is None else sinfo.get_shape()


def dims_of(value: Value) -> Sizes:
    """The dimensions of a tensor of certainly known shape."""
    shape = shape_of(value)
    assert shape is not None
    return shape


def rank_of(value: Value) -> int:
    """The rank of a tensor; -1 if it is not known, or for other values."""
    sinfo = tensor_sinfo(value)
    return -1 if sinfo is None else sinfo.ndim


def without_tuples(args: Iterable[rx.Expr]) -> Iterator[rx.Expr]:
    """The operands of a call, and instead of tuples their fields."""
    for arg in args:
        if isinstance(arg, rx.Tuple):
            yield from without_tuples(arg.fields)
        else:
            yield arg


def fields_of(sinfo: Info) -> tuple[rx.StructInfo | Info, ...]:
    """The struct info of the fields of a tuple, or that of any other value alone."""
    return sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)


def is_kernel_call(expr: object) -> TypeGuard[Call]:
    """True if this is a `call_tir` or `call_tir_inplace`."""
    calls = expr.op.record.calls if isinstance(expr, Call) and isinstance(expr.op, Op) else None
    return calls is not None and calls.is_kernel


def called_kernel(
    value: object, *, of_any_kind: bool = False
) -> tuple[str, Sequence[rx.Expr]] | None:
    """The name and the operands of the kernel that a `call_tir` calls, or any `is_kernel_call`.

    None for other values, and if the kernel or the operands are not written out.
    """
    if not (is_kernel_call(value) if of_any_kind else rx.is_call_of(value, "relax.call_tir")):
        return None
    assert isinstance(value, Call)
    kernel, operands = value.args[:2]
    if not isinstance(kernel, rx.GlobalVar) or not isinstance(operands, rx.Tuple):
        return None
    return kernel.name_hint, operands.fields


def equal_shapes(a: Sequence[PrimExpr] | None, b: Sequence[PrimExpr] | None) -> bool:
    """True if two shapes are known and provably equal."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x is y or prove_equal(x, y) is True for x, y in zip(a, b, strict=True))


def have_same_shape(x: Value, y: Value) -> bool:
    """True if two tensors certainly have one shape."""
    return equal_shapes(shape_of(x), shape_of(y))


_NAMES: dict[type, str] = {
    BindingBlock: "a dataflow block",
    Call: "a call",
    Expr: "a Relax expression",
    Function: "a Relax function",
    IRModule: "a module",
    Node: "a node",
    PrimFunc: "a PrimFunc",
    Var: "a variable",
}


def expect(value: object, *kinds: type) -> None:
    """Raise MisuseError (also TypeError) if a value is not of one of these kinds."""
    if not isinstance(value, kinds):
        expected = " or ".join(_NAMES[kind] for kind in kinds)
        raise MisuseError(f"expected {expected}, found {type(value).__name__}", about=value)
