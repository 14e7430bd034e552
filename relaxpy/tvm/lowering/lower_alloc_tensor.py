"""LowerAllocTensor: each new tensor gets storage of its size."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.tvm.lowering.storage import ALLOC_TENSOR, byte_count, storage_call, tensor_call


@dataclass(frozen=True)
class LowerAllocTensor(RewritePass):
    """Allocates storage for each tensor that memory planning has not put into a storage."""

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Storages().expr(func)


class _Storages(BindingRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, ALLOC_TENSOR):
            return None
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        storage = kind("storage", span=binding.span)
        value = rx.VarBinding(storage, _storage(call), binding.span)
        return [value, replace(binding, value=tensor_call(call, storage))]


def _storage(call: rx.Call) -> rx.Call:
    """The allocation of storage for the tensor of `call`."""
    shape, dtype, device, scope = call.args
    assert isinstance(dtype, rx.DataTypeImm)
    if isinstance(shape, rx.ShapeExpr):
        return storage_call(call, byte_count(shape, dtype.value), DataType("uint8"))
    # The dimensions that a variable has count elements, in a shape of any rank.
    args = (shape, device, dtype, scope)
    return rx.Call(Op.get("relax.vm.alloc_storage"), args, span=call.span)
