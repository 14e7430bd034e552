"""StaticPlanBlockMemory: tensors whose lifetimes do not overlap get the same storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.transform.lowering.lifetimes import Lifetimes
from relaxpy.ir.relax.transform.lowering.size_bounds import SizeBounds
from relaxpy.ir.relax.transform.lowering.storage import (
    ALLOC_TENSOR,
    byte_count,
    storage_call,
    tensor_call,
)
from relaxpy.ir.relax.transform.lowering.storage_pool import StoragePool
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import expr as tir


@dataclass(frozen=True)
class StaticPlanBlockMemory(RewritePass):
    """Puts tensors that are allocated explicitly into storage, which later tensors use again.

    A tensor is planned if only kernels, packed functions and reshapes of its binding block use it.
    Its storage is free after its last use, unless a packed function has had the tensor and could
    keep it. Sizes may be symbolic; the attribute `tir_var_upper_bound` of a function, a mapping
    from the names of shape variables to integers, makes them constants. Results of the function
    keep their own allocation; with the attribute `relax.memory_plan_dynamic_func_output`, which
    is removed, those whose size has a bound get storage, which is not used again.

    Errors:
        TransformError: an attribute with bounds is not a mapping from names to integers.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Planner(mod).expr(func)


_PLANS_OUTPUT = "relax.memory_plan_dynamic_func_output"


class _Planner(BindingRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self._mod = mod
        self._bounds = SizeBounds()
        self._body: rx.SeqExpr | None = None

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self._bounds, self._body
        plans_output = func.attrs.get(_PLANS_OUTPUT, False)
        self._bounds, self._body = SizeBounds.of(func), func.body if plans_output else None
        after = super().function(func)
        self._bounds, self._body = outer
        return after.without_attr(_PLANS_OUTPUT) if _PLANS_OUTPUT in after.attrs else after

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        is_body = seq is self._body
        seq = super().sequence(seq)
        lifetimes = Lifetimes(seq, self._mod, self._bounded(seq) if is_body else ())
        if not lifetimes.calls:
            return seq
        pool = StoragePool()
        for block in seq.blocks:
            for binding in block.bindings:
                call = lifetimes.calls.get(binding.var)  # type: ignore[arg-type]
                if call is not None and binding.var is not None:
                    pool.allocate(binding.var, call, self._size(call))
                for var in lifetimes.ending.get(binding, ()):
                    pool.release(var)
        blocks = tuple(_in_storage(block, pool) for block in seq.blocks)
        return rebuild(seq, blocks=blocks)

    def _size(self, call: rx.Call) -> tir.PrimExpr:
        """The size of an allocation in bytes."""
        shape, dtype = call.args[:2]
        assert isinstance(shape, rx.ShapeExpr)
        assert isinstance(dtype, rx.DataTypeImm)
        return self._bounds.largest(byte_count(shape, dtype.value))

    def _bounded(self, seq: rx.SeqExpr) -> Iterator[rx.Var]:
        """The tensors of symbolic shapes whose size has a constant bound."""
        for block in seq.blocks:
            for binding in block.bindings:
                call = binding.value
                if not rx.is_call_of(call, ALLOC_TENSOR):
                    continue
                shape = call.args[0]
                if not isinstance(shape, rx.ShapeExpr) or binding.var is None:
                    continue
                if all(isinstance(dim, tir.IntImm) for dim in shape.values):
                    continue
                if isinstance(self._size(call), tir.IntImm):
                    yield binding.var


def _in_storage(block: rx.BindingBlock, pool: StoragePool) -> rx.BindingBlock:
    """The block with its tensors in storage, which is allocated with its first tensor."""
    bindings: list[rx.Binding] = []
    for binding in block.bindings:
        var, call = binding.var, binding.value
        storage = None if var is None else pool.storage_of.get(var)
        if storage is None:
            bindings.append(binding)
            continue
        assert isinstance(call, rx.Call)
        if storage.first is var:
            value = storage_call(call, storage.size, storage.dtype)
            bindings.append(rx.VarBinding(storage.var, value, binding.span))
        bindings.append(replace(binding, value=tensor_call(call, storage.var)))
    return with_bindings(block, bindings)
