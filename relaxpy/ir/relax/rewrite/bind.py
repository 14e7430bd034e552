"""Binding of parameters and shape variables: a function specialised to their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.symbolic import defined_symbolic_vars, free_symbolic_vars
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, free_shape_vars
from relaxpy.ir.relax.rewrite.arguments import in_place_of_parameters
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.replace import replace_variables
from relaxpy.ir.tir import expr as tir, ops

V = TypeVar("V", tir.Var, rx.Var)


def bind_symbolic_vars(
    func: rx.Function, binding_map: Mapping[tir.Var | str, tir.PrimExpr | int]
) -> rx.Function:
    """`func` with the values in `binding_map` instead of its shape variables.

    The parameters stay. Shape variables that the values mention must still be defined.

    Errors:
        UnknownNameError: the function defines no such shape variable.
        MisuseError: a name means several variables, a variable is bound twice, a value is not an
            integer, or it mentions a variable that nothing defines (WF-6a).
    """
    defined = defined_symbolic_vars(func)
    values = _by_variable(binding_map, defined, "name", "shape variable", "defines")
    images = {var: ops.cast_to(_integer(var, value), var.dtype) for var, value in values.items()}
    if not images:
        return func
    after = replace_variables(func, images)
    _check_defined(after, func)
    return cast("rx.Function", PyExprMutator().visit_expr(after))


def _integer(var: tir.Var, value: Any) -> Any:
    """`value`, which is an integer or an integer expression."""
    if isinstance(value, tir.PrimExpr):
        is_integer = value.dtype.is_int
    else:
        is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer:
        raise unexpected(value, f"shape variable {var.name} is an integer")
    return value


def _by_variable(
    binding_map: Mapping[Any, Any], variables: Sequence[V], attribute: str, what: str, verb: str
) -> dict[V, Any]:
    """The values of the variables that the keys are, or that have the keys as names."""
    named: dict[str, list[V]] = {}
    for var in variables:
        named.setdefault(getattr(var, attribute), []).append(var)
    values: dict[V, Any] = {}
    for key, value in binding_map.items():
        name = str(getattr(key, attribute, key))
        matches = named.get(name, [])
        if not isinstance(key, str):
            matches = [var for var in matches if var is key]
        if len(matches) > 1:
            several = f"several {what}s of the function are called {name}"
            raise MisuseError(f"{several}; pass the variable")
        if not matches:
            raise UnknownNameError(
                f"the function {verb} no {what} {name}"
                + (f"; it {verb} {', '.join(named)}" if named else ""),
                hint=close_names(name, named),
            )
        if matches[0] in values:
            raise MisuseError(f"{what} {name} is bound twice", about=matches[0])
        values[matches[0]] = value
    return values


def _check_defined(after: rx.Function, before: rx.Function) -> None:
    """Check that all shape variables have definitions, in the signature by parameters.

    Errors:
        MisuseError: one has none, and had one `before` (WF-4, WF-5a, WF-6a).
    """
    free = set(free_symbolic_vars(before))
    sinfos = [sinfo for p in after.params if (sinfo := p.struct_info) is not None]
    signature = [*sinfos] if after.ret_struct_info is None else [*sinfos, after.ret_struct_info]
    scope = free.union(definable_shape_vars(*sinfos))
    used = [var for sinfo in signature for var in free_shape_vars(sinfo, scope) if var not in scope]
    for var in (*used, *free_symbolic_vars(after)):
        if var not in free:
            raise MisuseError(
                f"nothing defines shape variable {var.name} any more", rule="WF-6a", about=var
            )


def bind_params(func: rx.Function, binding_map: Mapping[rx.Var | str, object]) -> rx.Function:
    """`func` with the values in `binding_map` instead of those parameters.

    Values are expressions, arrays, numbers or tuples of these, and determine shape variables. A
    value that is not known to fit its parameter is checked by a match_cast.

    Errors:
        UnknownNameError: the function has no such parameter.
        MisuseError: a name means several parameters, a parameter is bound twice, or nothing defines
            a shape variable any more (WF-6a).
        StructInfoError: a value does not fit its parameter.
    """
    declared = _by_variable(binding_map, func.params, "name_hint", "parameter", "has")
    values = {param: _as_value(value, param.struct_info) for param, value in declared.items()}
    if not values:
        return func
    body, images = in_place_of_parameters(list(values.items()), func.body)
    sizes = {var: image for var, image in images.items() if isinstance(var, tir.Var)}
    sized = replace_variables(rebuild(func, body=body), sizes)
    new_params = dict(zip(func.params, sized.params, strict=True))
    rest = rebuild(
        sized,
        params=tuple(new for old, new in new_params.items() if old not in values),
        attrs=_with_fewer_inputs(func, values),
    )
    leaves = {new_params[param]: value for param, value in values.items() if param in images}
    after: rx.Function = _Bind(leaves).visit_expr(rest)
    _check_defined(after, func)
    return after


class _Bind(PyExprMutator):
    """Replaces variables by values, and derives the struct info that follows."""

    def __init__(self, values: Mapping[rx.Var, rx.Expr]) -> None:
        super().__init__()
        self.values = values

    @override
    def visit_var_(self, op: rx.Var) -> Any:
        return self.values[op] if op in self.values else super().visit_var_(op)


def _with_fewer_inputs(func: rx.Function, bound: Mapping[rx.Var, rx.Expr]) -> Attrs:
    """The attributes with a `num_input` that does not count bound parameters."""
    inputs = func.attrs.get("num_input")
    if not isinstance(inputs, int):
        return func.attrs
    left = sum(param not in bound for param in func.params[:inputs])
    return func.attrs.updated({"num_input": left})


def _as_value(value: object, sinfo: rx.StructInfo | None) -> rx.Expr:
    """The value of a parameter with this struct info, as an expression."""
    if isinstance(value, rx.Expr):
        return value
    match sinfo:
        case rx.PrimStructInfo(dtype=dtype) if isinstance(
            value, (int, float, np.bool_, np.integer, np.floating)
        ):
            number = value if isinstance(value, (int, float)) else value.item()
            _check_kind(number, dtype)
            return rx.PrimValue(ops.const(number, dtype))
        case rx.TensorStructInfo(dtype=dtype) if isinstance(value, (int, float)):
            _check_kind(value, dtype)
            return rx.const(value, None if dtype.is_void else dtype)
        case rx.TupleStructInfo(fields=fields) if isinstance(value, (tuple, list)):
            if len(value) == len(fields):
                return rx.Tuple(tuple(map(_as_value, value, fields)))
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return rx.Constant(value)  # type: ignore[arg-type]
    return rx.convert_to_expr(value)


def _check_kind(value: float, dtype: DataType) -> None:
    """Check that a number is a value of `dtype` (MC-3)."""
    if dtype.is_float or dtype.is_void:
        return
    low, high = (0, 1) if dtype.is_bool else ops.int_range(dtype)
    if not low <= value <= high or value != int(value):
        raise MisuseError(f"{value} is not a value of type {dtype}", rule="MC-3", about=value)
