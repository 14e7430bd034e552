"""AppendLoss: a model and then a loss, as one function."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from relaxpy.errors import TransformError, counted
from relaxpy.ir.core.traverse import rebuild, rename
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.bind import in_place_of_parameters
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars, replace_variables
from relaxpy.ir.relax.transform.rewrite_pass import find_function, name_of_function
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class AppendLoss(Pass):
    """Adds the function that computes `func_name` and then the loss of its results.

    The first parameters of the loss are the first `num_backbone_outputs` results of the function;
    its other parameters follow those of the function. The new function, `new_func_name` or
    `<func_name>_loss`, returns the loss, and in a tuple with it the other results of the function.
    Both bodies are one DataflowBlock, and so is the new one.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        MisuseError (also TypeError): an option has another type.
        TransformError: the module has a function of the new name.
        TransformError: one of the functions has another form, or the loss takes fewer results, or
            is not a float of rank 0.
        StructInfoError: a result does not fit the parameter of the loss.
    """

    func_name: str | rx.GlobalVar
    loss_function: rx.Function
    num_backbone_outputs: int = 1
    new_func_name: str | rx.GlobalVar | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "func_name", name_of_function(self.func_name))
        if self.new_func_name is not None:
            name = name_of_function(self.new_func_name, "new_func_name")
            object.__setattr__(self, "new_func_name", name)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        old_name, model = find_function(mod, self.func_name, "AppendLoss")
        name = f"{old_name}_loss" if self.new_func_name is None else str(self.new_func_name)
        if name in mod.functions_by_name:
            raise TransformError(
                f"AppendLoss: the module has a function {name} already",
                hint="name the new function in new_func_name",
                about=mod[name],
            )
        loss = BlockBuilder().normalize_function(self.loss_function)
        combined = _combined(model, loss, self.num_backbone_outputs, old_name)
        if "global_symbol" in model.attrs:
            combined = combined.with_attr("global_symbol", name)
        result = mod.clone()
        result[name] = combined
        return normalize_module(result)


def _combined(model: rx.Function, loss: rx.Function, count: int, name: str) -> rx.Function:
    model, loss = copy_with_new_vars(model), copy_with_new_vars(loss)
    bindings = _dataflow(model, name)
    results = _results(model, name)
    if not 0 < count <= min(len(results), len(loss.params)):
        raise TransformError(
            f"AppendLoss: {name} returns {counted(len(results), 'result')} and the loss takes "
            f"{counted(len(loss.params), 'parameter')}, so there are no {count} to pass"
        )
    used, kept = results[:count], results[count:]
    _dataflow(loss, "the loss")
    pairs = list(zip(loss.params, used, strict=False))
    checked, images = in_place_of_parameters(pairs, loss.body)
    loss = replace_variables(rebuild(loss, params=loss.params[count:], body=checked), images)
    value = loss.body.body
    sinfo = value.struct_info
    scalar = isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim == 0 and sinfo.dtype.is_float
    if not isinstance(value, rx.Var) or not scalar:
        raise TransformError(
            f"AppendLoss: a loss is a float of rank 0, found {sinfo}",
            hint='use the reduction "mean" or "sum"',
            about=loss,
        )
    bindings += [binding for block in loss.body.blocks for binding in block.bindings]
    body = rx.SeqExpr(
        (rx.DataflowBlock(tuple(bindings)),), rx.Tuple((value, *kept)) if kept else value
    )
    returned = {value, *kept}
    hidden: dict[rx.Var, rx.Var] = {}
    for binding in bindings:
        var = binding.var
        if var is not None and not isinstance(var, rx.DataflowVar) and var not in returned:
            hidden[var] = rx.DataflowVar(var.name_hint, var.struct_info, var.span)
    return rebuild(
        model, params=(*model.params, *loss.params), body=rename(body, hidden), ret_struct_info=None
    )


def _dataflow(func: rx.Function, name: str) -> list[rx.Binding]:
    """The bindings of a body that is one dataflow block."""
    blocks = func.body.blocks
    if len(blocks) == 1 and isinstance(blocks[0], rx.DataflowBlock):
        return list(blocks[0].bindings)
    raise TransformError(
        f"AppendLoss: the body of {name} is not one DataflowBlock",
        hint="apply relax.transform.ConvertToDataflow(min_size=1) to pure code before",
        about=func,
    )


def _results(func: rx.Function, name: str) -> Sequence[rx.Expr]:
    """The variables that a function returns."""
    result = func.body.body
    fields = result.fields if isinstance(result, rx.Tuple) else (result,)
    if not all(isinstance(field, rx.Var) for field in fields):
        raise TransformError(
            f"AppendLoss: {name} returns a variable or a tuple of variables, found "
            f"{func.body.struct_info}",
            about=func,
        )
    return fields
