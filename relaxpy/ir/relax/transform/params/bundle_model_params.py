"""BundleModelParams: the parameters after the inputs become one tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.transform.params.reading import ReadBeforeUse
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class BundleModelParams(RewritePass):
    """Puts the parameters after the first `num_input` ones into one tuple, the last parameter.

    Functions without the attribute `num_input` stay unchanged. A field is read before its first
    use. The tuple is named `param_tuple_name`, or else `model_params`.

    Errors:
        TransformError: `num_input` is not a number of parameters of its function.
        MisuseError (also TypeError): `param_tuple_name` is not a string.
    """

    param_tuple_name: str | None = None

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: bundled(func, self.param_tuple_name or "model_params")


def input_count(func: rx.Function, pass_name: str) -> int | None:
    """The attribute `num_input` of a function: how many parameters are inputs, not weights.

    Errors:
        TransformError: it is not a number of parameters of the function.
    """
    count = func.attrs.get("num_input")
    if count is None:
        return None
    if not isinstance(count, int) or not 0 <= count <= len(func.params):
        raise TransformError(
            f"{pass_name}: num_input counts some of the {len(func.params)} parameters, found "
            f"{count!r:.60}",
            span=func.span,
        )
    return count


def bundled(func: rx.Function, name: str) -> rx.Function:
    """The function with one tuple instead of the parameters after its inputs."""
    count = input_count(func, "BundleModelParams")
    if count is None:
        return func
    weights = func.params[count:]
    sinfos = tuple(param.struct_info or rx.ObjectStructInfo() for param in weights)
    pack = rx.Var(name, rx.TupleStructInfo(sinfos), func.span)
    body = _Fields(pack, weights).sequence(func.body)
    return rebuild(func, params=(*func.params[:count], pack), body=body)


class _Fields(ReadBeforeUse):
    def __init__(self, pack: rx.Var, weights: Sequence[rx.Var]) -> None:
        super().__init__(weights)
        self.pack = pack

    @override
    def read(self, index: int, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        return [rx.VarBinding(var, rx.TupleGetItem(self.pack, index, span=var.span), var.span)]
