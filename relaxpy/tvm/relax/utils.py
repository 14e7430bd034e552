"""Tools for importers and passes: operands of `call_tir`, conversion of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir.prim_func import PrimFunc

P = ParamSpec("P")
R = TypeVar("R")


def gen_call_tir_inputs(
    func: Callable[..., Any], *args: object, **kwargs: object
) -> tuple[PrimFunc, list[rx.Expr], list[rx.StructInfo], rx.ShapeExpr | None]:
    """The operands of the `call_tir` that computes the tensor expressions `func(*args)`.

    These are the kernel, the tensors that it reads, the struct infos of those that it writes, and
    the shape variables that no buffer determines. `primfunc_attrs` are attributes of the kernel;
    all other arguments are passed to `func`.

    Errors:
        MisuseError (also TypeError): as for `BlockBuilder.call_te`.
    """
    builder = BlockBuilder()
    call = builder.call_te(func, *args, **kwargs)  # type: ignore[arg-type]
    gvar, operands, *shape = call.args
    (sinfo,) = call.sinfo_args
    assert isinstance(gvar, rx.GlobalVar)
    assert isinstance(operands, rx.Tuple)
    kernel = builder.get()[gvar]
    assert isinstance(kernel, PrimFunc)
    outputs = list(sinfo.fields) if isinstance(sinfo, rx.TupleStructInfo) else [sinfo]
    return kernel, list(operands.fields), outputs, cast("rx.ShapeExpr", shape[0]) if shape else None


def extern(name: str, struct_info: rx.FuncStructInfo | None = None) -> rx.ExternFunc:
    """The packed function that is registered under a name."""
    return rx.ExternFunc(name, struct_info)


class ArgsConverter:
    """Decorators of functions on expressions, which convert arguments that are Python values.

    The name of a starred parameter means all of its arguments. None stays None if the annotation
    of the parameter allows it.

    Errors:
        MisuseError (also TypeError): an argument cannot be converted; the message names it.
    """

    def to_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to expressions."""
        return _converting(names, rx.convert_to_expr)

    def to_optional_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to expressions, unless they are None."""
        return _converting(names, _or_none(rx.convert_to_expr))

    def to_list_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to lists of expressions."""
        return _converting(names, _as_list)

    def to_optional_list_expr(self, *names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Convert the named arguments to lists of expressions, unless they are None."""
        return _converting(names, _or_none(_as_list))

    def auto(self, function: Callable[P, R]) -> Callable[P, R]:
        """Convert the arguments annotated as `Expr` or `list[Expr]`, or as one of these or None."""
        kinds: dict[str, Callable[[object], object]] = {}
        for name, param in inspect.signature(function, eval_str=True).parameters.items():
            rest = _members(param.annotation) - {type(None)}
            if rest == {rx.Expr}:
                kinds[name] = rx.convert_to_expr
            elif len(rest) == 1 and _is_list_of_expr(*rest):
                kinds[name] = _as_list
        return _with_conversions(function, kinds)


args_converter = ArgsConverter()


def _or_none(convert: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else convert(value)


def _members(annotation: object) -> set[object]:
    """The types of a union, or the annotation itself."""
    if get_origin(annotation) in (Union, UnionType):
        return set(get_args(annotation))
    return {annotation}


def _is_list_of_expr(kind: object) -> bool:
    return get_origin(kind) is list and get_args(kind) == (rx.Expr,)


def _as_list(value: object) -> list[rx.Expr]:
    if not isinstance(value, (list, tuple)):
        raise MisuseError(
            f"expected a list of expressions, found {type(value).__name__}", about=value
        )
    return [rx.convert_to_expr(v) for v in value]


def _converting(
    names: tuple[str, ...], convert: Callable[[object], object]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = inspect.signature(function).parameters
        for name in names:
            if name not in known:
                raise MisuseError(f"{function.__name__} has no parameter {name}")
        return _with_conversions(function, dict.fromkeys(names, convert))

    return decorate


def _with_conversions(
    function: Callable[P, R], kinds: dict[str, Callable[[object], object]]
) -> Callable[P, R]:
    signature = inspect.signature(function, eval_str=True)
    for name in kinds:
        if type(None) in _members(signature.parameters[name].annotation):
            kinds = {**kinds, name: _or_none(kinds[name])}

    @wraps(function)
    def converted(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        for name, convert in kinds.items():
            if name not in bound.arguments:
                continue
            value: Any = bound.arguments[name]
            match signature.parameters[name].kind:
                case Parameter.VAR_POSITIONAL:
                    value = tuple(_converted(name, convert, v) for v in value)
                case Parameter.VAR_KEYWORD:
                    value = {key: _converted(key, convert, v) for key, v in value.items()}
                case _:
                    value = _converted(name, convert, value)
            bound.arguments[name] = value
        return function(*bound.args, **bound.kwargs)

    return converted


def _converted(name: str, convert: Callable[[object], object], value: object) -> object:
    try:
        return convert(value)
    except MisuseError as error:
        raise MisuseError(f"argument {name}: {error}", about=error.about) from None
