"""DataParallel: several workers train one model, each on its part of the batch."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.errors import Span, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.plugins.training.setup_trainer import ADJOINT
from relaxpy.support.dataclass import dataclass, replace

OF_ONE = f"{ADJOINT}_of_one"
"""The function that computes loss and gradients of the part that one worker has."""


@dataclass(frozen=True)
class DataParallel(Pass):
    """Lets workers train together: loss, gradients and new states become the means over all.

    It changes a module that SetupTrainer has prepared. Each worker calls the trainer with its part
    of the batch, and all have the same parameters, at first those of the first worker. With a loss
    that is a mean, and equal parts, these are the parameters that one worker gets from the whole
    batch. States that are not floats stay those of each worker.

    Errors:
        TransformError: SetupTrainer has not prepared the module.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        of_one = mod.functions_by_name.get(ADJOINT)
        if not isinstance(of_one, rx.Function):
            raise TransformError(
                f"DataParallel: the module has no function {ADJOINT}",
                hint="apply relax.training.SetupTrainer first",
            )
        if OF_ONE in mod.functions_by_name:
            return mod
        params = copy_with_new_vars(of_one).params
        mod = mod.clone()
        del mod[ADJOINT]
        builder = BlockBuilder(mod)
        one = builder.add_func(of_one.without_attr("global_symbol"), OF_ONE)
        with builder.function(ADJOINT, params):
            with builder.dataflow():
                call = rx.Call(one, params, span=of_one.body.span)
                means = _means(builder.emit(call, span=call.span), builder, call.span)
                binding = rx.VarBinding(rx.Var("gv", None), means, call.span)
                result = builder.emit_normalized(binding)
            assert result is not None
            builder.emit_func_output(result)
        return normalize_module(builder.get())


def _means(value: rx.Expr, builder: BlockBuilder, span: Span | None) -> rx.Expr:
    """The means over all workers of a tensor of floats, or of those in a tuple."""
    match value.struct_info:
        case rx.TupleStructInfo(fields=fields):
            items = (rx.TupleGetItem(value, k, span=span) for k in range(len(fields)))
            means = [_means(builder.emit(item, span=span), builder, span) for item in items]
            return rx.Tuple(tuple(means), span=span)
        case rx.TensorStructInfo(dtype=dtype) if dtype.is_float:
            mean = replace(R.ccl.allreduce(value, "avg", in_group=False), span=span)
            return builder.emit(mean, span=span)
        case _:
            return value
