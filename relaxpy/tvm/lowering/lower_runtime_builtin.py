"""LowerRuntimeBuiltin: operators on memory, shapes and closures become calls of the runtime."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.call import operand_tuple
from relaxpy.ir.relax.op.memory import VIEW_DERIVE
from relaxpy.ir.relax.rewrite.map_bindings import Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.lowering.static_plan_block_memory import ALLOC_TENSOR, LoweringRewriter


@dataclass(frozen=True)
class LowerRuntimeBuiltin(RewritePass):
    """Replaces operators by the operators `R.vm` and the packed functions `vm.builtin.…`.

    These are operators on storage, views, reshapes, shapes of tensors, and closures. The calls are
    impure, except for those that create views, so RemovePurityChecking and ToNonDataflow come
    before; a pure function that gets impure calls is declared pure by force.

    Errors:
        TransformError: a tensor is not in storage, or such an operator is in a dataflow block.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Builtins().expr(func)


class _Builtins(LoweringRewriter):
    adds_impurity = False

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            return None
        name = call.op.name
        if name == ALLOC_TENSOR:
            raise TransformError(
                f"LowerRuntimeBuiltin: the tensor of {binding} is not in storage",
                span=call.span,
                hint="apply LowerAllocTensor first",
            )
        if name == "relax.memory.view":
            return _view(call)
        lower = _LOWERINGS.get(name)
        if lower is None:
            return None
        if isinstance(block, rx.DataflowBlock):
            raise TransformError(
                f"LowerRuntimeBuiltin: {name} is in a dataflow block, where a call of the runtime "
                "is not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        self.adds_impurity = True
        return lower(call)


def _alloc_storage(call: rx.Call) -> rx.Call:
    size, device, scope, dtype = call.args
    if isinstance(size, rx.ShapeExpr) and len(size.values) == 1:
        dtype = rx.DataTypeImm(DataType("uint8"))  # the size counts bytes
    return rx.Call(Op.get("relax.vm.alloc_storage"), (size, device, dtype, scope), span=call.span)


def _view(call: rx.Call) -> rx.Call | None:
    """The pure call that creates a view, with all operands; None if one of them is not known."""
    data, shape, dtype, offset = call.args
    sinfo = data.struct_info
    if not isinstance(sinfo, rx.TensorStructInfo):
        return None
    if isinstance(shape, rx.Tuple):
        if sinfo.shape is None:
            return None
        shape = sinfo.shape
    if isinstance(dtype, rx.Tuple):
        if sinfo.dtype.is_void:
            return None
        dtype = rx.DataTypeImm(sinfo.dtype)
    if isinstance(offset, rx.Tuple):
        offset = rx.PrimValue(ops.const(0, INT64))
    signature = rx.FuncStructInfo.opaque_func(derive_func=VIEW_DERIVE, purity=True)
    create = rx.ExternFunc("runtime.TVMTensorCreateView", signature)
    return rx.Call(create, (data, shape, dtype, offset), span=call.span)


def _as(name: str) -> Callable[[rx.Call], rx.Call]:
    """The call of another operator with the same operands and attributes."""
    return lambda call: rx.Call(Op.get(name), call.args, call.attrs, span=call.span)


def _packed(name: str) -> Callable[[rx.Call], rx.Call]:
    """The call of a packed function with the same operands."""
    return lambda call: _call_packed(name, call.args, call)


def _call_packed(name: str, args: tuple[rx.Expr, ...], call: rx.Call) -> rx.Call:
    sinfo = call.struct_info
    sinfos = () if sinfo is None else (sinfo,)
    return rx.Call(rx.ExternFunc(name), args, EMPTY_ATTRS, sinfos, span=call.span)


def _make_closure(call: rx.Call) -> rx.Call:
    args = (call.args[0], *operand_tuple(call.args[1]).fields)
    return _call_packed("vm.builtin.make_closure", args, call)


def _invoke_closure(call: rx.Call) -> rx.Call:
    args = rx.Tuple((call.args[0], *operand_tuple(call.args[1]).fields))
    function = rx.ExternFunc("vm.builtin.invoke_closure")
    with_context = Op.get("relax.call_builtin_with_ctx")
    sinfos = call.sinfo_args or (() if call.struct_info is None else (call.struct_info,))
    return rx.Call(with_context, (function, args), EMPTY_ATTRS, sinfos, span=call.span)


_LOWERINGS: dict[str, Callable[[rx.Call], rx.Call]] = {
    "relax.memory.alloc_storage": _alloc_storage,
    "relax.memory.alloc_tensor": _as("relax.vm.alloc_tensor"),
    "relax.memory.kill_storage": _as("relax.vm.kill_object"),
    "relax.memory.kill_tensor": _as("relax.vm.kill_object"),
    "relax.memory.ensure_zero_offset": _packed("vm.builtin.ensure_zero_offset"),
    "relax.reshape": _packed("vm.builtin.reshape"),
    "relax.shape_of": _packed("vm.builtin.shape_of"),
    "relax.tensor_to_shape": _packed("vm.builtin.tensor_to_shape"),
    "relax.make_closure": _make_closure,
    "relax.invoke_closure": _invoke_closure,
}

VMBuiltinLower = LowerRuntimeBuiltin
