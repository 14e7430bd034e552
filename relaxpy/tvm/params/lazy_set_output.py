"""LazySetOutput: results are passed to a callback as soon as they are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.map_bindings import joined
from relaxpy.ir.relax.transform.params.bind_params import input_count
from relaxpy.ir.tir.ops import const
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.params.lazy_get_input import map_public


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
        return map_public(mod, _lazy)


UNIT = rx.TupleStructInfo(())


def _lazy(func: rx.Function) -> rx.Function:
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
    return rebuild(func.body, blocks=tuple(joined(blocks)), body=rx.Tuple(()))


def _followed(
    bindings: Sequence[rx.Binding], stores: Callable[[rx.Var | None], list[rx.Binding]]
) -> list[rx.Binding]:
    return [new for binding in bindings for new in (binding, *stores(binding.var))]
