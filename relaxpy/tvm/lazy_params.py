"""LazyGetInput: parameters are fetched by a callback where they are first used.

LazySetOutput: results are passed to a callback as soon as they are known.

LazyTransformParams: weights are read and results are stored by packed functions, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias, cast

from typing_extensions import override

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.bind_params import ReadBeforeUse, input_count
from relaxpy.ir.passes.cleanup.dataflow_blocks import ToNonDataflow
from relaxpy.ir.passes.cleanup.private_functions import calls_of
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import defined_symbolic_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.shape_vars import erase_to_well_defined, shape_vars_of
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass, replace

Fetch: TypeAlias = Callable[[int, rx.Var], rx.Call]
"""Returns the call that fetches a parameter by its index."""


@dataclass(frozen=True)
class LazyGetInput(Pass):
    """Replaces the parameters after the first `num_input` ones by a function that fetches them.

    Public functions take the closure `fget_param` instead of these parameters, all if there is no
    attribute `num_input`. It is called with the index and the name of a parameter before the first
    use, and the result is checked as an argument would be. A parameter that defines shape variables
    is fetched outside of branches and dataflow blocks. Functions that the module calls stay.

    Errors:
        TransformError: `num_input` is not a number of parameters of its function.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_public(mod, _lazy)


def map_public(mod: IRModule, step: Callable[[rx.Function], rx.Function]) -> IRModule:
    """The module with another function for each public one that the module does not call."""
    mod = normalize_module(mod)
    called = calls_of(mod)

    def changed(func: rx.Function) -> rx.Function:
        name = func.attrs.get("global_symbol")
        return func if name is None or name in called else step(func)

    return normalize_module(map_functions(mod, rx.Function, changed))


def _lazy(func: rx.Function) -> rx.Function:
    count = input_count(func, "LazyGetInput") or 0
    if len(func.params) == count:
        return func
    sinfo = rx.FuncStructInfo(
        (rx.PrimStructInfo(INT64), rx.ObjectStructInfo()), rx.ObjectStructInfo()
    )
    fget = rx.Var("fget_param", sinfo, func.span)

    def fetch(index: int, var: rx.Var) -> rx.Call:
        return rx.Call(
            fget, (rx.PrimValue(const(index, INT64)), rx.StringImm(var.name_hint)), span=var.span
        )

    return rebuild(
        fetching(func, count, fetch, (fget,)), attrs=func.attrs.updated({"num_input": count + 1})
    )


def fetching(func: rx.Function, count: int, fetch: Fetch, more: Sequence[rx.Var]) -> rx.Function:
    """The function that fetches parameters after the first ones, and takes others instead."""
    inputs, weights = func.params[:count], func.params[count:]
    known = set(shape_vars_of((*inputs, *more)))
    sizes = [size for size in shape_vars_of(weights) if size not in known]
    body = _Fetching(weights, sizes, fetch).sequence(func.body)
    ret = func.ret_struct_info
    if ret is not None:
        ret = erase_to_well_defined(ret, inputs, known)
    return rebuild(func, params=(*inputs, *more), body=body, ret_struct_info=ret)


class _Fetching(ReadBeforeUse):
    def __init__(self, weights: Sequence[rx.Var], sizes: Iterable[tir.Var], fetch: Fetch) -> None:
        super().__init__(weights, sizes)
        self.weights, self.fetch = weights, fetch

    @override
    def read(self, index: int, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        untyped = kind(f"{var.name_hint}_untyped", None, var.span)
        sinfo = self.weights[index].struct_info or rx.ObjectStructInfo()
        return [
            rx.VarBinding(untyped, self.fetch(index, var), var.span),
            rx.MatchCast(var, untyped, sinfo, var.span),
        ]


@dataclass(frozen=True)
class LazySetOutput(Pass):
    """Passes the results of public functions to a function, instead of returning them.

    The functions take the closure `fset_output` after their inputs (the first `num_input`
    parameters, or else all). It is called with the index and the value of each field of the
    returned tuple, or with 0 and the result, if that is not a tuple, after the value is bound, but
    never in a dataflow block. Functions that the module calls stay.

    Errors:
        TransformError: `num_input` is not a number of parameters of its function.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_public(mod, _lazy_outputs)


UNIT = rx.TupleStructInfo(())


def _lazy_outputs(func: rx.Function) -> rx.Function:
    count = input_count(func, "LazySetOutput")
    result = func.body.body
    if isinstance(result, rx.Tuple) and not result.fields:
        return func
    sinfo = rx.FuncStructInfo((rx.PrimStructInfo(INT64), rx.ObjectStructInfo()), UNIT, purity=False)
    fset = rx.Var("fset_output", sinfo, func.span)

    def store(index: int, value: rx.Expr) -> rx.Binding:
        return rx.VarBinding(
            rx.Var("_", UNIT),
            rx.Call(fset, (rx.PrimValue(const(index, INT64)), value), span=func.span),
            func.span,
        )

    position = len(func.params) if count is None else count
    attrs = func.attrs.without("relax.force_pure")
    return rebuild(
        func,
        params=(*func.params[:position], fset, *func.params[position:]),
        body=storing(func, store),
        ret_struct_info=None,
        is_pure=False,
        attrs=attrs if count is None else attrs.updated({"num_input": count + 1}),
    )


Store: TypeAlias = Callable[[int, rx.Expr], rx.Binding]
"""Creates the call that stores a result under its index."""


def storing(func: rx.Function, store: Store) -> rx.SeqExpr:
    """The body of a function with calls that take its results, and no result itself."""
    result = func.body.body
    fields = result.fields if isinstance(result, rx.Tuple) else (result,)
    indices: dict[rx.Var, list[int]] = {}
    for index, value in enumerate(fields):
        if isinstance(value, rx.Var):
            indices.setdefault(value, []).append(index)

    def stores(var: rx.Var | None) -> list[rx.Binding]:
        return [store(index, var) for index in indices.get(var, ())] if var is not None else []

    first = tuple(b for param in func.params for b in stores(param))
    blocks = [rx.BindingBlock(first)]
    for block in func.body.blocks:
        if isinstance(block, rx.DataflowBlock):
            after = tuple(new for binding in block.bindings for new in stores(binding.var))
            blocks += [block, rx.BindingBlock(after)]
        else:
            blocks.append(rx.BindingBlock(tuple(_followed(block.bindings, stores)), block.span))
    others = [store(k, value) for k, value in enumerate(fields) if not isinstance(value, rx.Var)]
    blocks.append(rx.BindingBlock(tuple(others)))
    return rebuild(func.body, blocks=tuple(rewriting.joined(blocks)), body=rx.Tuple(()))


def _followed(
    bindings: Sequence[rx.Binding], stores: Callable[[rx.Var | None], list[rx.Binding]]
) -> list[rx.Binding]:
    return [new for binding in bindings for new in (binding, *stores(binding.var))]


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
            stores = self.fset_item is not None and func.body.struct_info != rx.TupleStructInfo(())
            if name not in called and (len(func.params) > count or stores):
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
    sinfo = weights[0].struct_info if len(weights) == 1 else None
    if not isinstance(sinfo, rx.TupleStructInfo):
        return func, set()
    pack = weights[0]
    fields = [rx.Var(f"{pack.name_hint}_{k}", s, pack.span) for k, s in enumerate(sinfo.fields)]
    items = _Items(pack, fields)
    body = rewriting.replace_variables(items.sequence(func.body), {pack: rx.Tuple(tuple(fields))})
    params = (*func.params[:count], *fields)
    return rebuild(func, params=params, body=body), items.variables


class _Items(rewriting.BindingRewriter):
    """Binds the fields of a tuple to the variables for them."""

    def __init__(self, pack: rx.Var, fields: Sequence[rx.Var]) -> None:
        super().__init__()
        self.pack, self.fields = pack, fields
        self.variables: set[rx.Var] = set()

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> rewriting.Rewritten:
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
    for field in list(indices):
        after += stores(field, func.params[-1] if func.params else field)
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
