"""The gradients of kernels, as tensor expressions that `call_tir_with_grad` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from relaxpy.errors import MisuseError, UnknownNameError, close_names, counted, unexpected
from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.relax.nodes import Call, Expr, Tuple, TupleGetItem, TupleStructInfo
from relaxpy.ir.relax.op.definition.gradients import is_differentiable
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.relations import explain_disjointness, provably_disjoint
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

F = TypeVar("F", bound=Callable[..., Any])

_table: dict[str, Callable[..., Any]] = {}


@overload
def register_te_gradient(te_grad_name: str, te_grad_func: F) -> F: ...
@overload
def register_te_gradient(te_grad_name: str, te_grad_func: None = None) -> Callable[[F], F]: ...
@user_facing
def register_te_gradient(te_grad_name: str, te_grad_func: Any = None) -> Any:
    """Register the gradient that `call_tir_with_grad` names; without a function, a decorator.

    It is called as `te_grad_func(output_grad, *args, **te_grad_kwargs)`, with the gradient of the
    result (a list of those of several results) and the inputs of the kernel, as tensors of tensor
    expressions. It returns the gradient of the input, or a list with that of each input. A later
    function replaces an earlier one.

    Errors:
        MisuseError (also TypeError): the name is not a string, or the gradient not a function.
    """
    if not isinstance(te_grad_name, str) or not te_grad_name:
        raise unexpected(te_grad_name, "te_grad_name is a string")

    @user_facing
    def register(function: F) -> F:
        if not callable(function):
            raise unexpected(function, "a gradient is a function")
        _table[te_grad_name] = function
        return function

    return register if te_grad_func is None else register(te_grad_func)


def te_gradient(name: str) -> Callable[..., Any]:
    """The gradient that is registered under `name`.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is none.
    """
    if name not in _table:
        raise UnknownNameError(
            f"no gradient of a kernel is registered as {name!r:.60}",
            hint=close_names(name, _table) or "relax.training.utils.register_te_gradient does that",
            about=name,
        )
    return _table[name]


def gradient_of_kernel(
    var: Expr, call: Call, gradient: Expr, builder: BlockBuilder
) -> Sequence[Expr]:
    """The gradient rule of `call_tir_with_grad`: a call of the kernel of the named gradient.

    Errors:
        UnknownNameError (also KeyError, ValueError): no gradient has the name.
        MisuseError (also TypeError): it does not return a tensor like each input.
    """
    name, named = str(call.attrs["te_grad_name"]), call.attrs.get("te_grad_kwargs", EMPTY_ATTRS)
    callee, inputs, *scalars = call.args
    assert isinstance(inputs, Tuple)
    assert isinstance(named, Mapping)
    function = te_gradient(name)

    def tensors(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        single = isinstance(result, (list, tuple)) and len(result) == 1
        return result[0] if single else result

    partials = builder.emit(
        builder.call_te(tensors, gradient, *inputs.fields, primfunc_name_hint=name, **named)
    )
    sinfo = partials.struct_info
    fields: list[Expr] = [partials]
    if isinstance(sinfo, TupleStructInfo):
        fields = [TupleGetItem(partials, k) for k in range(len(sinfo.fields))]
    if len(fields) != len(inputs.fields):
        raise MisuseError(
            f"the gradient {name!r} returns {counted(len(fields), 'tensor')} for "
            f"{counted(len(inputs.fields), 'input')}",
            about=call,
        )
    found = sinfo.fields if isinstance(sinfo, TupleStructInfo) else [sinfo]
    for k, (field, operand) in enumerate(zip(found, inputs.fields, strict=True)):
        if not is_differentiable(operand):
            fields[k] = cast("Expr", R.grad.no_grad(operand))
        elif field and operand.struct_info and provably_disjoint(field, operand.struct_info):
            raise MisuseError(
                f"the gradient {name!r} returns {field} for input {k}, which is "
                f"{operand.struct_info}",
                hint=explain_disjointness(field, operand.struct_info),
                about=call,
            )
    return [callee, Tuple(tuple(fields)), *scalars]
