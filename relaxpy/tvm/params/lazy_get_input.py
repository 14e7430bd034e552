"""LazyGetInput: parameters are fetched by a callback where they are first used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, erase_to_well_defined
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of
from relaxpy.ir.relax.transform.params.bind_params import ReadBeforeUse, input_count
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass

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
    known = set(
        definable_shape_vars(*(p.struct_info or rx.ObjectStructInfo() for p in (*inputs, *more)))
    )
    sinfos = [p.struct_info or rx.ObjectStructInfo() for p in weights]
    sizes = [size for size in definable_shape_vars(*sinfos) if size not in known]
    body = _Fetching(weights, sizes, fetch).sequence(func.body)
    ret = func.ret_struct_info
    if ret is not None:
        ret = erase_to_well_defined(ret, inputs, known)
    return rebuild(func, params=(*inputs, *more), body=body, ret_struct_info=ret)


def _sizes(params: Sequence[rx.Var]) -> Sequence[tir.Var]:
    """The shape variables that parameters define."""
    return definable_shape_vars(*(p.struct_info or rx.ObjectStructInfo() for p in params))


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
