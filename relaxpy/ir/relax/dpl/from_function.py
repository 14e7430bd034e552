"""Rules from modules: function `pattern` as a pattern, and `replacement` for its matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from relaxpy.errors import MisuseError, UnknownNameError, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.ir.link import rename_callees
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.infer import is_pure_call
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.replacing import Rewriter
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.arguments import shape_var_images
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables
from relaxpy.support.dataclass import dataclass


def rule_of_module(mod: object) -> tuple[dp.DFPattern, Rewriter, Mapping[str, rx.BaseFunc]]:
    """The pattern, the rewriter and its subroutines that a module describes.

    Errors:
        UnknownNameError (also KeyError): it lacks `pattern` or `replacement`.
        MisuseError (also TypeError, ValueError): see `PatternMatchingRewriter.from_module`.
    """
    if not isinstance(mod, IRModule):
        raise unexpected(mod, "a rewriter is made of an IRModule")
    pattern = _function(mod, "pattern", "what to look for")
    replacement = _function(mod, "replacement", "what to replace it by")
    subroutines: dict[str, rx.BaseFunc] = {}
    for var, func in mod.items():
        if func is pattern or func is replacement:
            continue
        if func.attrs.get("global_symbol") is not None:
            raise MisuseError(
                f"function {var.name_hint} of the rewriter is publicly exposed; only 'pattern' and "
                "'replacement' are",
                about=func,
                hint="decorate it with private=True",
            ).located(func.span)
        subroutines[var.name_hint] = func
    if pattern.struct_info != replacement.struct_info:
        raise MisuseError(
            "pattern and replacement must have the same signature, but the pattern is "
            f"{pattern.struct_info}, the replacement {replacement.struct_info}",
            about=replacement,
        ).located(replacement.span)
    params = [dp.WildcardPattern() for _ in pattern.params]
    top = _Reader(pattern, params).result()
    if isinstance(top, dp.StructInfoPattern) and top.pattern in params:
        raise _unfit("the pattern is one of its parameters, which anything matches", pattern)
    used = set(dp.all_subpatterns([top]))
    for param, parameter in zip(params, pattern.params, strict=True):
        if param not in used:
            raise _unfit(
                f"the pattern does not use parameter {parameter.name_hint}, so that its value is "
                "unknown in the replacement",
                parameter,
            )
    return top, Instantiate(replacement, tuple(params)), subroutines


def _function(mod: IRModule, name: str, what: str) -> rx.Function:
    if name not in mod:
        raise UnknownNameError(
            f"a rewriter has a function '{name}', {what}; this module has no such function",
            about=mod,
        )
    func = mod[name]
    if not isinstance(func, rx.Function):
        raise MisuseError(
            f"'{name}' of a rewriter is a Relax function, found {type(func).__name__}", about=func
        ).located(func.span)
    return func


def _unfit(message: str, about: rx.Expr) -> MisuseError:
    error = MisuseError(message, about=about)
    error.located(about.span)
    return error


@dataclass(frozen=True, slots=True, eq=False)
class Instantiate:
    """Returns the body of a function for the matches of its parameters."""

    func: rx.Function
    params: tuple[dp.DFPattern, ...]

    def __call__(self, expr: rx.Expr, matches: Mapping[dp.DFPattern, rx.Expr]) -> rx.Expr:
        """The body, with new variables, for these matches; `expr` itself is not used."""
        func = copy_with_new_vars(self.func)
        pairs = [(p, matches[key]) for p, key in zip(func.params, self.params, strict=True)]
        images: dict[Node, Node] = dict(pairs)
        images.update(shape_var_images(pairs).items())
        images.update((var, type(var)(var.name_hint)) for var in _derived_variables(func))
        return replace_variables(func.body, images)

    def with_names(self, names: Mapping[str, str]) -> Instantiate:
        """The same for a function that calls others by new names."""
        return Instantiate(cast("rx.Function", rename_callees(self.func, names)), self.params)


def _derived_variables(func: rx.Function) -> Iterator[rx.Var]:
    """The variables whose struct info follows from their values, so that it is derived again."""
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, rx.VarBinding):
                declared, derived = binding.var.struct_info, binding.value.struct_info
                if declared is not None and derived is not None and is_base_of(declared, derived):
                    yield binding.var


class _Reader:
    """Reads a function as a pattern, in which each variable is one pattern."""

    def __init__(self, func: rx.Function, params: list[dp.WildcardPattern]) -> None:
        self.func = func
        self.patterns: dict[rx.Var, dp.DFPattern] = {
            var: param if var.struct_info is None else dp.StructInfoPattern(param, var.struct_info)
            for var, param in zip(func.params, params, strict=True)
        }

    def result(self) -> dp.DFPattern:
        for block in self.func.body.blocks:
            for binding in block.bindings:
                pattern = self.value(binding.value)
                if isinstance(binding, rx.MatchCast):
                    pattern = dp.StructInfoPattern(pattern, binding.struct_info)
                if binding.var is not None:
                    self.patterns[binding.var] = pattern
        return self.value(self.func.body.body)

    def value(self, expr: rx.Expr) -> dp.DFPattern:
        match expr:
            case rx.Var():
                return self.patterns[expr]
            case rx.Call():
                return self.call(expr)
            case rx.Tuple(fields=fields):
                return dp.TuplePattern(tuple(map(self.value, fields)))
            case rx.TupleGetItem(tuple_value=whole, index=index):
                return dp.TupleGetItemPattern(self.value(whole), index)
            case rx.ExternFunc(global_symbol=name):
                return dp.ExternFuncPattern(name)
            case rx.Constant() | rx.StringImm() | rx.DataTypeImm():
                return dp.ExprPattern(expr)
            case rx.PrimValue() | rx.ShapeExpr():
                assert expr.struct_info is not None
                return dp.StructInfoPattern(dp.WildcardPattern(), expr.struct_info)
            case _:
                raise _unfit(
                    f"a pattern consists of calls of operators and packed functions, tuples and "
                    f"literals, found {type(expr).__name__}",
                    expr,
                )

    def call(self, call: rx.Call) -> dp.DFPattern:
        """The pattern of calls with these operands, attributes and struct info arguments."""
        if isinstance(call.op, Op):
            callee: dp.DFPattern = dp.ExprPattern(call.op)
        else:
            callee = self.value(call.op)
        if not is_pure_call(call, Context()):
            raise _unfit("a pattern has no impure calls, which are never rewritten", call)
        pattern: dp.DFPattern = dp.CallPattern(
            callee, tuple(map(self.value, call.args)), False, False
        )
        if call.attrs:
            pattern = dp.AttrPattern(pattern, call.attrs)
        if call.sinfo_args and call.struct_info is not None:
            pattern = dp.StructInfoPattern(pattern, call.struct_info)
        return pattern
