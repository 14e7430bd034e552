"""Operators without mathematics: shapes, the null object, devices, printing and assertions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.errors import StructInfoTypeError
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op_record import CallArguments, Memory
from relaxpy.ir.ops.definition.gradients import identity_gradient, no_gradient, of_operand
from relaxpy.ir.ops.definition.registry import Operand, R, register
from relaxpy.ir.ops.definition.rules import by_te, tensor
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.te import topi
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.rewrite.map_bindings import PrecedingBindings
    from relaxpy.ir.te.tensor import Tensor

UNIT = rx.TupleStructInfo(())


@register("relax.shape_of", pure=True)
def shape_of(expr: rx.TensorStructInfo) -> rx.ShapeStructInfo:
    """The shape of a tensor as a new shape value.

    Shapes:
        expr    any rank, known or not
        result  a shape of that rank, its members where they are known
    Rule:
        OP-12, OP-13.
    """
    values = expr.get_shape()
    return rx.ShapeStructInfo(ndim=expr.ndim) if values is None else rx.ShapeStructInfo(values)


def _size(expr: Tensor) -> Tensor:
    return topi.tensor_size(expr, "int64")


@register("relax.size", pure=True, legalize=by_te(_size, "size"), gradient=no_gradient)
def size(expr: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The number of elements of a tensor.

    Shapes:
        expr    any
        result  rank 0, int64
    """
    return tensor((), INT64, expr.vdevice)


def _decompose_tensor_to_shape(
    new: PrecedingBindings, call: rx.Call, training: bool
) -> rx.Expr | None:
    """A shape of variables that the elements of a tensor define."""
    sinfo = call.struct_info
    if not isinstance(sinfo, rx.ShapeStructInfo) or sinfo.ndim < 0:
        return None
    callee = rx.ExternFunc("vm.builtin.tensor_to_shape")
    any_shape = rx.ShapeStructInfo(ndim=sinfo.ndim)
    value = R.call_pure_packed(callee, call.args[0], sinfo_args=any_shape)
    sizes = tuple(tir.Var("x", INT64) for _ in range(sinfo.ndim))
    new.cast("y", new.bound(value), rx.ShapeStructInfo(sizes))
    return rx.ShapeExpr(sizes)


@register("relax.tensor_to_shape", pure=True, decompose=_decompose_tensor_to_shape)
def tensor_to_shape(expr: rx.TensorStructInfo) -> rx.ShapeStructInfo:
    """The shape whose members are the elements of a tensor.

    Shapes:
        expr    rank 1, of integers
        result  a shape with as many members, where their number is known
    Errors:
        StructInfoError: the tensor has another rank, or other elements.
    """
    if expr.ndim not in (1, -1) or not (expr.dtype.is_void or expr.dtype.is_int):
        raise StructInfoTypeError(f"takes integers of rank 1, found {expr}", about=expr)
    sizes = expr.get_shape()
    count = sizes[0] if sizes else None
    return rx.ShapeStructInfo(ndim=count.value if isinstance(count, tir.IntImm) else -1)


@register("relax.shape_to_tensor", pure=True)
def shape_to_tensor(expr: rx.ShapeStructInfo) -> rx.TensorStructInfo:
    """The members of a shape as a new tensor.

    Shapes:
        expr    any number of members, known or not
        result  rank 1, int64
    """
    count = None if expr.ndim < 0 else (ops.const(expr.ndim, INT64),)
    return tensor(count, INT64, ndim=1)


@register("relax.null_value", pure=True)
def null_value() -> rx.ObjectStructInfo:
    """The null object.

    Rule:
        OP-14.
    """
    return rx.ObjectStructInfo()


@register("relax.print", calls_out=True)
def print(*values: rx.StructInfo, format: str = "") -> rx.TupleStructInfo:
    """Unit, after the values were written to the console, laid out as `str.format` does.

    Rule:
        OP-15.
    """
    return UNIT


def _infer_assert(call: rx.Call, ctx: Context) -> rx.StructInfo:
    if not call.args:
        raise StructInfoTypeError("takes a condition")
    condition = call.args[0]
    sinfo = ctx.sinfo_of(condition)
    if not isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo)):
        raise StructInfoTypeError(f"the condition is a Boolean, found {sinfo}", about=condition)
    unknown = isinstance(sinfo, rx.TensorStructInfo) and sinfo.dtype.is_void
    if not (sinfo.dtype.is_bool or unknown):
        raise StructInfoTypeError(f"the condition is a Boolean, found {sinfo}", about=condition)
    if isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim > 0:
        raise StructInfoTypeError(f"the condition has rank 0, found {sinfo}", about=condition)
    for arg in call.args[1:]:
        ctx.sinfo_of(arg)
    return UNIT


def _written_assert(call: rx.Call) -> CallArguments:
    named: dict[str, object] = {}
    if len(call.args) > 1:
        named["format_args"] = list(call.args[1:])
    if call.attrs.get("format"):
        named["format"] = call.attrs["format"]
    return [call.args[0]], named


@register("relax.assert_op", infer=_infer_assert, unmake=_written_assert, calls_out=True)
def assert_op(
    condition: Operand, format_args: Operand | Sequence[Operand] | None = None, format: str = ""
) -> rx.Call:
    """Unit; where the condition is false, the program stops with the formatted message.

    Shapes:
        condition  a Boolean of rank 0, or a tensor that may be one
    Errors:
        StructInfoError: the condition is known to have another datatype or rank.
    """
    shown: list[object] = [] if format_args is None else [format_args]
    if isinstance(format_args, (list, tuple)):
        shown = list(format_args)
    args = tuple(rx.convert_to_expr(a) for a in (condition, *shown))
    return rx.Call(assert_op.op, args, Attrs({"format": format}))


def _gradient_to_vdevice(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    """The gradient on the device of the operand, if that is known."""
    source = x.struct_info.vdevice
    return g if source is None else R.to_vdevice(g, source)


@register(
    "relax.to_vdevice", pure=True, memory=Memory.SAME, gradient=of_operand(_gradient_to_vdevice)
)
def to_vdevice(data: rx.TensorStructInfo, dst_vdevice: VDevice) -> rx.TensorStructInfo:
    """The tensor on another device; a string names it, as in "cuda:0".

    Shapes:
        data    any
        result  as data, on that device
    """
    return replace(data, vdevice=dst_vdevice)


@register("relax.hint_on_device", pure=True, memory=Memory.SAME, gradient=identity_gradient)
def hint_on_device(
    data: rx.TensorStructInfo, dst_vdevice: Device | VDevice, memory_scope: str = "global"
) -> rx.TensorStructInfo:
    """The tensor itself, which passes put on a device, as in `R.cuda(0)`.

    A virtual device, as in `I.vdevice("cuda")`, has a memory scope of its own.

    Shapes:
        data    any
        result  as data
    """
    return data
