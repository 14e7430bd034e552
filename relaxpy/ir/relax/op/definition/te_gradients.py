"""The gradients of kernels, as tensor expressions that `call_tir_with_grad` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, UnknownNameError, close_names

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
        raise MisuseError(
            f"te_grad_name is a string, found {te_grad_name!r:.60}", about=te_grad_name
        )

    @user_facing
    def register(function: F) -> F:
        if not callable(function):
            raise MisuseError(f"a gradient is a function, found {function!r:.60}", about=function)
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
