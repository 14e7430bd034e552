"""Storage, the tensors in it, and other tensors over the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxpy.ir.arith.prove import always
from relaxpy.ir.core.dtype import INT64, VOID, DataType
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import Allocation, Memory
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.ops.definition.rules import tensor
from relaxpy.ir.ops.misc import UNIT
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.relax.relations.derivation import Context

IN_STORAGE = Allocation(shape=2, dtype=3, planned=True)


def datatype_by_name(arguments: dict[str, Any]) -> None:
    """Convert a string for `dtype` to a datatype literal."""
    dtype = arguments["dtype"]
    if isinstance(dtype, str):
        arguments["dtype"] = rx.DataTypeImm(DataType(dtype))


def datatype_of(expr: rx.Expr) -> DataType:
    """The datatype of a literal operand.

    Errors:
        StructInfoTypeError: it is not a literal, or Void.
    """
    if isinstance(expr, rx.DataTypeImm):
        if expr.value.is_void:
            raise rules.refuse_type("a tensor in memory has a datatype, found none", expr)
        return expr.value
    raise rules.refuse_type(
        f"the datatype is a literal such as R.dtype('float32'), found {expr}", expr
    )


def tensor_in(
    shape: rx.Expr, sinfo: rx.ShapeStructInfo, dtype: rx.Expr, vdevice: VDevice | None
) -> rx.TensorStructInfo:
    """The struct info of a new tensor with these operands."""
    return tensor(rules.shape_operand(shape, sinfo), datatype_of(dtype), vdevice, sinfo.ndim)


@register(
    "relax.memory.alloc_storage",
    pure=True,
    adapt=datatype_by_name,
    allocates=Allocation(
        shape=0, dtype=3, storage=True, in_bytes=True, killer="relax.memory.kill_storage"
    ),
)
def alloc_storage(
    size: rx.ShapeStructInfo,
    virtual_device_index: rx.PrimStructInfo,
    storage_scope: rx.ObjectStructInfo,
    dtype: rx.ObjectStructInfo,
) -> rx.ObjectStructInfo:
    """New memory for tensors to lie in.

    Shapes:
        size    one member, in bytes; of several, the product counts elements of `dtype`
    """
    return rx.ObjectStructInfo()


@register(
    "relax.memory.alloc_tensor",
    pure=True,
    adapt=datatype_by_name,
    allocates=IN_STORAGE,
    memory=Memory.VIEW,
)
def alloc_tensor(
    storage: rx.StructInfo,
    offset: rx.PrimStructInfo,
    shape: rx.ShapeStructInfo,
    dtype: rx.ObjectStructInfo,
    vdevice: VDevice | None = None,
    *,
    call: rx.Call,
) -> rx.TensorStructInfo:
    """A tensor that lies in storage, `offset` bytes after its beginning.

    Shapes:
        result  `shape`, in `dtype`, on `vdevice`
    Errors:
        StructInfoError: the datatype is not a literal.
    """
    return tensor_in(call.args[2], shape, call.args[3], vdevice)


@register("relax.memory.kill_storage", releases=True)
def kill_storage(storage: rx.ObjectStructInfo) -> rx.TupleStructInfo:
    """Unit: nothing uses the storage any more."""
    return UNIT


@register("relax.memory.kill_tensor", releases=True)
def kill_tensor(tensor: rx.TensorStructInfo) -> rx.TupleStructInfo:
    """Unit: nothing uses the tensor any more."""
    return UNIT


@register("relax.memory.ensure_zero_offset", pure=True, memory=Memory.SAME)
def ensure_zero_offset(data: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The tensor, at the beginning of its memory.

    Shapes:
        data    any
        result  as data
    """
    return data


def _fill_absent(arguments: dict[str, Any]) -> None:
    """Put unit in the position of every absent operand, at the end as well."""
    datatype_by_name(arguments)
    offset = arguments["relative_byte_offset"]
    if isinstance(offset, int):
        arguments["relative_byte_offset"] = rx.PrimValue(ops.const(offset, INT64))
    for name in ("shape", "dtype", "relative_byte_offset"):
        if arguments[name] is None:
            arguments[name] = rx.Tuple(())


def _with_literal_datatype(builder: BlockBuilder, call: rx.Call) -> rx.Call:
    """Replace a variable that is bound to a datatype by that datatype."""
    dtype = call.args[2]
    value = builder.lookup_binding(dtype) if isinstance(dtype, rx.Var) else None
    if not isinstance(value, rx.DataTypeImm):
        return call
    args = (*call.args[:2], value, *call.args[3:])
    return rx.Call(call.op, args, call.attrs, span=call.span)


@register(
    "relax.memory.view",
    pure=True,
    adapt=_fill_absent,
    normalize=_with_literal_datatype,
    memory=Memory.VIEW,
)
def view(
    data: rx.TensorStructInfo,
    shape: rx.ShapeStructInfo | None = None,
    dtype: rx.ObjectStructInfo | None = None,
    relative_byte_offset: rx.PrimStructInfo | None = None,
    *,
    call: rx.Call,
) -> rx.TensorStructInfo:
    """The memory of a tensor read as another one, from an offset in bytes on.

    Shapes:
        result  `shape`, in `dtype`, each as in data where it is absent
    Errors:
        StructInfoError: the offset is not an int64, or the result provably exceeds data.
    """
    kind = data.dtype
    if dtype is not None:
        kind = datatype_of(call.args[2]) if isinstance(call.args[2], rx.DataTypeImm) else VOID
    sizes: rx.Expr | tuple[tir.PrimExpr, ...] | None = data.shape
    ndim = data.ndim
    if shape is not None:
        sizes, ndim = rules.shape_operand(call.args[1], shape), shape.ndim
    offset: tir.PrimExpr | None = ops.const(0, INT64)
    if relative_byte_offset is not None:
        offset = relative_byte_offset.value
        if relative_byte_offset.dtype != INT64:
            raise rules.refuse_type(
                f"the offset is an int64, found {relative_byte_offset}", relative_byte_offset
            )
    result = tensor(sizes, kind, data.vdevice, ndim)
    _check_inside(data, result, offset, same_size=dtype is None)
    return result


def _derive_view(call: rx.Call, context: Context) -> rx.StructInfo:
    """The struct info of a view that the runtime creates from the same operands."""
    return view.infer(replace(call, op=Op("relax.memory.view")), context)


VIEW_DERIVE = rx.EnvFunc("tvm.relax.struct_info.infer_view_sinfo", _derive_view)
rx.DERIVATIONS[VIEW_DERIVE.name] = VIEW_DERIVE


def _bytes(sinfo: rx.TensorStructInfo) -> tir.PrimExpr | None:
    """The size of the elements in bytes, if it is known."""
    sizes = literal_shape(sinfo)
    if sizes is None or sinfo.dtype.is_void:
        return None
    return product(sizes) * ops.const(-(-sinfo.dtype.bits // 8), INT64)


def _check_inside(
    data: rx.TensorStructInfo,
    result: rx.TensorStructInfo,
    offset: tir.PrimExpr | None,
    *,
    same_size: bool,
) -> None:
    """Check that the result does not provably exceed the memory of `data`."""
    if offset is None:
        return
    zero = ops.const(0, INT64)
    if _is_below(offset, zero):
        raise rules.refuse(f"the view begins at byte {rules.shown(offset)}, before the tensor")
    have, want = _bytes(data), _bytes(result)
    if have is not None and want is not None and _is_below(have, want + offset):
        raise rules.refuse(
            f"a view of {rules.shown(want)} bytes from byte {rules.shown(offset)} on leaves the "
            f"tensor, "
            f"which has {rules.shown(have)} bytes"
        )
    old, new = literal_shape(data), literal_shape(result)
    if same_size and data.shape is result.shape and _is_below(zero, offset):
        raise rules.refuse(
            f"a view of the whole tensor from byte {rules.shown(offset)} on leaves it", about=data
        )
    if same_size and old is not None and new is not None and _is_below(product(old), product(new)):
        raise rules.refuse(
            f"a view of {rules.shown(product(new))} elements leaves the tensor, "
            f"which has {rules.shown(product(old))}",
            about=data,
        )


def _is_below(value: tir.PrimExpr, limit: tir.PrimExpr) -> bool:
    """True if `value` is less for all values of the variables."""
    return always(value < limit)
