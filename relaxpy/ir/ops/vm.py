"""Operators of programs whose memory is planned, and of kernels called with sizes."""

from __future__ import annotations

from enum import IntEnum

from relaxpy.errors import StructInfoTypeError
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.op_record import Allocation, CallKind, Memory
from relaxpy.ir.ops.builtin import global_scope
from relaxpy.ir.ops.call import Operands, operand_tuple, packed_callee
from relaxpy.ir.ops.definition.registry import register
from relaxpy.ir.ops.memory import IN_STORAGE, datatype_by_name, tensor_in
from relaxpy.ir.ops.misc import UNIT
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.support.dataclass import replace


class MatchShapeCode(IntEnum):
    """The actions of `vm.builtin.match_shape` on a dimension; a number follows each code."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3


class MakeShapeCode(IntEnum):
    """The sources of a dimension for `vm.builtin.make_shape`; a number follows each code."""

    USE_IMM = 0
    LOAD_SHAPE = 1


@register(
    "relax.vm.alloc_storage",
    pure=True,
    adapt=global_scope,
    allocates=Allocation(shape=0, dtype=2, storage=True, killer="relax.vm.kill_object"),
)
def alloc_storage(
    shape: rx.ShapeStructInfo,
    runtime_device_index: rx.PrimStructInfo,
    dtype: rx.ObjectStructInfo,
    storage_scope: rx.ObjectStructInfo | None = None,
) -> rx.ObjectStructInfo:
    """New memory for tensors to lie in.

    Shapes:
        shape   its product counts elements of `dtype`
    """
    return rx.ObjectStructInfo()


@register(
    "relax.vm.alloc_tensor",
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
    sinfo = tensor_in(call.args[2], shape, call.args[3], vdevice)
    return sinfo if shape.values is not None else replace(sinfo, shape=None, ndim=shape.ndim)


@register("relax.vm.kill_object", releases=True)
def kill_object(obj: rx.StructInfo) -> rx.TupleStructInfo:
    """Unit: nothing uses the value any more."""
    return UNIT


def _infer_call_tir_dyn(call: rx.Call, ctx: Context) -> rx.StructInfo:
    if len(call.args) != 2 or not isinstance(call.args[0], (rx.GlobalVar, rx.ExternFunc)):
        raise StructInfoTypeError("takes a kernel and a tuple of arguments", about=call)
    packed = ctx.sinfo_of(call.args[1])
    if not isinstance(packed, rx.TupleStructInfo):
        raise StructInfoTypeError(f"the arguments are a tuple, found {packed}", about=call.args[1])
    if not packed.fields or not isinstance(packed.fields[-1], rx.ShapeStructInfo):
        raise StructInfoTypeError("the last argument is a shape, the scalars", about=call.args[1])
    return UNIT


@register("relax.vm.call_tir_dyn", infer=_infer_call_tir_dyn, calls=CallKind.DYNAMIC_KERNEL)
def call_tir_dyn(func: rx.Expr | str, args: Operands) -> rx.Call:
    """Unit, after a kernel ran on tensors and on the members of the shape after them.

    Shapes:
        func    a PrimFunc of the module, or a packed function
        args    the tensors, then a shape
    Errors:
        StructInfoError: `func` is neither, or the last argument is not a shape.
    """
    return rx.Call(call_tir_dyn.op, (packed_callee(func), operand_tuple(args)))
