"""LazyTransformParams: weights are read and results are stored by packed functions, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from typing_extensions import override

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import defined_symbolic_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, replace_variables
from relaxpy.ir.relax.transform.cleanup.dataflow_blocks import ToNonDataflow
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of
from relaxpy.ir.relax.transform.params.bind_params import input_count
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.tvm.params.lazy_get_input import fetching


@dataclass(frozen=True)
class LazyTransformParams(Pass):
    """Lets functions named `...transform_params` read their weights and store results one by one.

    The parameters after the first `num_input` ones, or the fields of the only such parameter, are
    read by the packed function `fget_item`, with the index after `extra_get_item_params`. If
    `fset_item` is not None, it takes the results, with index and value after
    `extra_set_item_params`, when nothing in the function uses them later. The extra parameters
    become parameters of the function. Shapes and numbers among the weights stay parameters, if the
    function uses shape variables. Functions that the module calls stay unchanged.

    Errors:
        MisuseError (also TypeError): an option has the wrong type.
        TransformError: `num_input` is not a number of parameters of its function.
    """

    fget_item: str = "get_item"
    fset_item: str | None = "set_item"
    extra_get_item_params: Sequence[rx.Var] | None = None
    extra_set_item_params: Sequence[rx.Var] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        called = calls_of(mod)
        result = mod
        for name, func in mod.functions_by_name.items():
            if not isinstance(func, rx.Function) or not name.endswith("transform_params"):
                continue
            count = input_count(func, "LazyTransformParams") or 0
            if name not in called and len(func.params) > count:
                result = result.clone() if result is mod else result
                result[name] = func
                ordinary = ToNonDataflow()(result).functions_by_name[name]
                assert isinstance(ordinary, rx.Function)
                result[name] = self._lazy(ordinary, count)
        return normalize_module(result)

    def _lazy(self, func: rx.Function, count: int) -> rx.Function:
        copies = {
            var: rx.Var(var.name_hint, var.struct_info, var.span)
            for var in (*(self.extra_get_item_params or ()), *(self.extra_set_item_params or ()))
        }
        getting, setting = (
            [copies[var] for var in extra or ()]
            for extra in (self.extra_get_item_params, self.extra_set_item_params)
        )
        holders = [
            rx.Var("symbolic_var_holder", sinfo, param.span)
            for param in (func.params[count:] if defined_symbolic_vars(func) else ())
            for sinfo in _unpacked(param.struct_info)
            if isinstance(sinfo, (rx.PrimStructInfo, rx.ShapeStructInfo))
        ]
        func, items = _with_items(func, count)
        if self.fset_item is not None:
            func = _storing(func, items, partial(_call, self.fset_item, setting))

        def fetch(index: int, var: rx.Var) -> rx.Call:
            return _call(self.fget_item, getting, rx.PrimValue(const(index, INT64)), source=var)

        return rebuild(
            fetching(func, count, fetch, (*copies.values(), *holders)),
            is_pure=False,
            ret_struct_info=None,
            attrs=func.attrs.without("relax.force_pure"),
        )


def _unpacked(sinfo: rx.StructInfo | None) -> list[rx.StructInfo]:
    if isinstance(sinfo, rx.TupleStructInfo):
        return [leaf for field in sinfo.fields for leaf in _unpacked(field)]
    return [] if sinfo is None else [sinfo]


def _call(name: str, extra: Sequence[rx.Var], *args: rx.Expr, source: rx.Expr) -> rx.Call:
    """A call of a packed function, at the position of an expression."""
    callee = rx.ExternFunc(name)
    return rx.Call(callee, (*extra, *args), sinfo_args=(rx.ObjectStructInfo(),), span=source.span)


def _with_items(func: rx.Function, count: int) -> tuple[rx.Function, set[rx.Var]]:
    """The function with fields of a tuple as its parameters, and the variables bound to these."""
    weights = func.params[count:]
    pack, sinfo = weights[0], weights[0].struct_info
    if len(weights) > 1 or not isinstance(sinfo, rx.TupleStructInfo):
        return func, set()
    fields = [rx.Var(f"{pack.name_hint}_{k}", s, pack.span) for k, s in enumerate(sinfo.fields)]
    items = _Items(pack, fields)
    body = replace_variables(items.sequence(func.body), {pack: rx.Tuple(tuple(fields))})
    params = (*func.params[:count], *fields)
    return rebuild(func, params=params, body=body), items.variables


class _Items(BindingRewriter):
    """Binds the fields of a tuple to the variables for them."""

    def __init__(self, pack: rx.Var, fields: Sequence[rx.Var]) -> None:
        super().__init__()
        self.pack, self.fields = pack, fields
        self.variables: set[rx.Var] = set()

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        match binding:
            case rx.VarBinding(var=var, value=rx.TupleGetItem(tuple_value=self.pack, index=index)):
                self.variables.add(var)
                return rx.VarBinding(var, self.fields[index], binding.span)
            case _:
                return None


def _storing(func: rx.Function, items: set[rx.Var], call: Callable[..., rx.Call]) -> rx.Function:
    """The function with its results stored, and items released, after their last uses."""
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    result = func.body.body
    packed = next((k for k, b in enumerate(bindings) if b.var is result and _packs(b)), None)
    value = result if packed is None else bindings[packed].value
    indices: dict[rx.Expr, list[int]] = {}
    for index, field in enumerate(value.fields if isinstance(value, rx.Tuple) else (value,)):
        indices.setdefault(field, []).append(index)

    def stores(field: rx.Expr, source: rx.Expr) -> list[rx.Binding]:
        calls = [
            call(rx.PrimValue(const(k, INT64)), field, source=source)
            for k in indices.pop(field, ())
        ]
        return [rx.VarBinding(rx.Var("_"), value, value.span) for value in calls]

    ended = _ended(bindings, packed)
    if packed is not None and any(result in occurring_vars(b.value) for b in bindings):
        packed = None  # the tuple has other uses
    after: list[rx.Binding] = []
    for k, binding in enumerate(bindings):
        if k == packed:
            result = rx.Var(binding.var.name_hint, None, binding.span) if binding.var else result
            after.append(rx.VarBinding(cast("rx.Var", result), rx.Tuple(()), binding.span))
            continue
        after.append(binding)
        for var in ended[k]:
            after += stores(var, var)
            if var in items:
                released = replace(R.vm.kill_object(var), span=var.span)
                after.append(rx.VarBinding(rx.Var("_"), released, var.span))
    after += [new for field in list(indices) for new in stores(field, func.params[-1])]
    body = result if packed is not None else rx.Tuple(())
    return rebuild(
        func, body=rebuild(func.body, blocks=(rx.BindingBlock(tuple(after)),), body=body)
    )


def _packs(binding: rx.Binding) -> bool:
    return isinstance(binding, rx.VarBinding) and isinstance(binding.value, rx.Tuple)


def _ended(bindings: Sequence[rx.Binding], packed: int | None) -> list[list[rx.Var]]:
    """For each binding but that of the result, the variables that none after it uses."""
    bound = {binding.var for binding in bindings if binding.var is not None}
    seen: set[rx.Var] = set()
    ended: list[list[rx.Var]] = []
    for k in reversed(range(len(bindings))):
        used = [*occurring_vars(bindings[k].value), bindings[k].var]
        last = [] if k == packed else [v for v in used if v in bound and v not in seen]
        last = list(dict.fromkeys(last))
        seen.update(last)
        ended.append(last)
    return ended[::-1]
