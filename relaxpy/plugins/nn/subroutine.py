"""Layers that become functions of their own, which the exported methods call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import count
from typing import Any, ClassVar

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Call, Expr, Function, GlobalVar, Tuple, Var
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.plugins.nn.core import Parameter, Tensor, current_builder, wrap_nested
from relaxpy.plugins.nn.session import current_session
from relaxpy.support.entry import user_facing


class SubroutineMixin:
    """A class whose method `forward` becomes a function if `define_subroutine` is set.

    The function takes the tensors among the arguments, then the parameters of the module. Its name
    is that of the class in snake case. Calls with equal functions share one.
    """

    define_subroutine: ClassVar[bool] = False

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward = vars(cls).get("forward")
        if forward is not None:
            cls.forward = _dispatching(forward)  # type: ignore[attr-defined]

    def parameters(self) -> Iterable[Any]:
        """The parameters of the module."""
        return ()


def _dispatching(forward: Callable[..., Any]) -> Callable[..., Any]:
    @user_facing
    @wraps(forward)
    def dispatch(self: SubroutineMixin, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine:
            return forward(self, *args, **kwargs)
        try:
            bound = inspect.signature(forward).bind(self, *args, **kwargs)
        except TypeError as error:
            raise MisuseError(f"{type(self).__name__}.forward: {error}") from None
        _, *values = bound.args
        arguments = dict(zip(_names(bound.signature), values, strict=False)) | bound.kwargs

        def body(inner: Mapping[str, Any]) -> Any:
            positional = list(inner.values())[: len(values)]
            return forward(self, *positional, **{name: inner[name] for name in bound.kwargs})

        return _call_subroutine(current_builder(), body, self, arguments)

    return dispatch


def _names(signature: inspect.Signature) -> Iterator[str]:
    """The names of positional arguments after the first; those of `*args` have numbers."""
    for param in list(signature.parameters.values())[1:]:
        if param.kind is param.VAR_POSITIONAL:
            yield from (f"{param.name}_{i}" for i in count())
        yield param.name


def _call_subroutine(
    builder: BlockBuilder,
    body: Callable[[Mapping[str, Any]], Any],
    module: SubroutineMixin,
    arguments: Mapping[str, Any],
) -> Any:
    """Define the function, and call it with the tensors among the arguments and the parameters."""
    operands = {
        name: _operand(builder, value)
        for name, value in arguments.items()
        if _contains_tensors(value)
    }
    params = list(module.parameters())
    weights = [param._expr if isinstance(param, Tensor) else param for param in params]
    variables = {name: Var(name, expr.struct_info) for name, expr in operands.items()}
    inner = {
        name: _as_written(variables[name], value) if name in variables else value
        for name, value in arguments.items()
    }
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(module).__name__)
    with _fresh(params) as fresh:
        signature = [*variables.values(), *fresh]
        gvar, is_tensor = _define(builder, name.lower(), signature, lambda: body(inner))
    call = Call(gvar, (*operands.values(), *weights))
    if not is_tensor:
        return call
    return wrap_nested(call, f"{gvar.name_hint}_output")


def _define(
    builder: BlockBuilder, name: str, params: list[Var], body: Callable[[], Any]
) -> tuple[GlobalVar, bool]:
    """Add a function to the module; return it, and whether it returns tensors of nn."""
    session = current_session()
    pure = session is None or session.pure
    dataflow = builder.current_block_is_dataflow()
    with builder.function(name, params, pure=pure, private=True):
        with ExitStack() as stack:
            if dataflow:
                stack.enter_context(builder.dataflow())
            result = body()
            output = result_expr(result)
            output = builder.emit_output(output) if dataflow else output
        gvar = builder.emit_func_output(output)
    defined = builder.get()[gvar]
    assert isinstance(defined, Function)
    builder.update_func(gvar, copy_with_new_vars(defined))  # a weight may be that of the caller
    return gvar, not isinstance(result, Expr)


@contextmanager
def _fresh(params: Iterable[Any]) -> Iterator[list[Var]]:
    """Replace the expressions of parameters by new variables within the scope.

    Variables in `params` are yielded unchanged.
    """
    saved = [(param, param._expr) for param in params if isinstance(param, Parameter)]
    result: list[Var] = []
    try:
        for param in params:
            if isinstance(param, Parameter):
                assert isinstance(param._expr, Var)
                param._expr = Var(param._expr.name_hint, param._expr.struct_info)
                result.append(param._expr)
            else:
                result.append(param)
        yield result
    finally:
        for param, expr in saved:
            param._expr = expr


def _contains_tensors(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_contains_tensors, value))
    return isinstance(value, (Tensor, Expr))


def _operand(builder: BlockBuilder, value: Any) -> Expr:
    """The expression of an argument, with its struct info."""
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(_operand(builder, field) for field in value))
    expr = value._expr if isinstance(value, Tensor) else value
    if not isinstance(expr, Expr):
        raise unexpected(value, "a tuple with tensors that a subroutine takes has only tensors")
    return builder.emit(expr) if expr.struct_info is None else expr


def _as_written(var: Var, value: object) -> Any:
    """A variable in the form of the argument that it stands for."""
    if isinstance(value, (tuple, list)):
        return type(value)(wrap_nested(var, var.name_hint))
    return Tensor(_expr=var) if isinstance(value, Tensor) else var


def result_expr(value: Any) -> Expr:
    """The expression of the result of a method.

    Errors:
        MisuseError (also TypeError): that is neither a tensor nor a tuple of tensors.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(map(result_expr, value)))
    if isinstance(expr := getattr(value, "_expr", None), Expr):
        return expr
    raise unexpected(value, "a method returns tensors, or tuples and lists of them")
