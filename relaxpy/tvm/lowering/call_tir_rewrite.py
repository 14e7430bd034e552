"""CallTIRRewrite: calls in destination-passing style allocate their outputs explicitly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.call import operand_tuple
from relaxpy.ir.relax.rewrite.map_bindings import Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.tvm.lowering.force_pure import LoweringRewriter

_KINDS = (CallKind.KERNEL, CallKind.INPLACE_KERNEL, CallKind.DPS_PACKED)


@dataclass(frozen=True)
class CallTIRRewrite(RewritePass):
    """Allocates the outputs of `call_tir` and its relatives, and calls the functions directly.

    Scalars of `tir_vars` are passed by `R.vm.call_tir_dyn`. Calls of functions that write into
    arguments return these arguments. A pure function that changes is declared pure by force.

    Errors:
        TransformError: a call is in a dataflow block, where impure calls are not allowed (PU-10).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Explicit().expr(func)


class _Explicit(LoweringRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            return None
        if call.op.record.calls not in _KINDS:
            return None
        if isinstance(block, rx.DataflowBlock):
            raise TransformError(
                f"CallTIRRewrite: {call.op.name} is in a dataflow block, where a direct call is "
                "not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        literals, inputs = _bound_literals(call)
        allocations, outputs = _outputs(call, inputs)
        new = [allocation.var for allocation in allocations]
        direct = rx.VarBinding(rx.Var("_"), _direct_call(call, (*inputs, *new)), binding.span)
        return [*literals, *allocations, direct, replace(binding, value=_result(call, outputs))]


def _bound_literals(call: rx.Call) -> tuple[list[rx.VarBinding], list[rx.Expr]]:
    """Bindings of literals that a call overwrites, which have one value each; and the operands."""
    inputs = list(operand_tuple(call.args[1]).fields)
    literals: list[rx.VarBinding] = []
    indices = call.attrs.get("inplace_indices", ())
    assert isinstance(indices, tuple)
    for index in indices:
        if index >= 0 and isinstance(literal := inputs[index], rx.Constant):
            literals.append(rx.VarBinding(rx.Var("literal"), literal, call.span))
            inputs[index] = literals[-1].var
    return literals, inputs


def _outputs(call: rx.Call, inputs: Sequence[rx.Expr]) -> tuple[list[rx.VarBinding], list[rx.Expr]]:
    """The allocations of the new outputs of a call, and all outputs."""
    indices = call.attrs.get("inplace_indices", ())
    assert isinstance(indices, tuple)
    allocations: list[rx.VarBinding] = []
    outputs: list[rx.Expr] = []
    for k, sinfo in enumerate(_output_sinfos(call)):
        if indices and indices[k] >= 0:
            outputs.append(inputs[indices[k]])
            continue
        allocations.append(rx.VarBinding(rx.Var("alloc"), _allocation(sinfo, call), call.span))
        outputs.append(allocations[-1].var)
    return allocations, outputs


def _output_sinfos(call: rx.Call) -> tuple[rx.StructInfo, ...]:
    [sinfo] = call.sinfo_args
    return sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)


def _allocation(sinfo: rx.StructInfo, call: rx.Call) -> rx.Call:
    assert isinstance(sinfo, rx.TensorStructInfo)
    assert sinfo.shape is not None
    device = rx.PrimValue(ops.const(0, INT64))
    args = (sinfo.shape, rx.DataTypeImm(sinfo.dtype), device, rx.StringImm("global"))
    attrs = EMPTY_ATTRS if sinfo.vdevice is None else Attrs({"vdevice": sinfo.vdevice})
    return rx.Call(Op.get("relax.builtin.alloc_tensor"), args, attrs, span=call.span)


def _direct_call(call: rx.Call, args: tuple[rx.Expr, ...]) -> rx.Call:
    """The call of the callee of `call` with its outputs among the arguments."""
    callee, _, *scalars = call.args
    if scalars:
        operands = rx.Tuple((*args, *scalars))
        return rx.Call(Op.get("relax.vm.call_tir_dyn"), (callee, operands), span=call.span)
    return rx.Call(callee, args, span=call.span)


def _result(call: rx.Call, outputs: Sequence[rx.Expr]) -> rx.Expr:
    """The value of a call with these outputs."""
    several = isinstance(call.sinfo_args[0], rx.TupleStructInfo)
    return rx.Tuple(tuple(outputs)) if several else outputs[0]
