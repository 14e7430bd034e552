"""Expressions of graph functions: Python's operators on Relax values, calls, positions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, Span
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.context import written_at
from relaxpy.ir.relax.op import operators
from relaxpy.ir.relax.op.registry import OpDef
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.parser import forms
from relaxpy.script.parser.evaluator import Evaluator
from relaxpy.script.parser.scope import MISSING, Poisoned
from relaxpy.script.parser.wording import as_parse_error, describe

#: The operators of Python that have a meaning between Relax values.
_SIGNS = frozenset(["+", "-", "*", "/", "//", "%", "**", "@", "<", "<=", ">", ">=", "==", "!="])


class ModuleRef:
    """The module that is being read, as its functions see it: `cls.f`, `Module.f`."""

    def __init__(self, functions: Mapping[str, rx.GlobalVar]) -> None:
        self.__functions__ = functions
        self.__lost__: set[str] = set()

    def __getattr__(self, name: str) -> rx.GlobalVar:
        if name in self.__lost__:
            raise Poisoned
        found = self.__functions__.get(name)
        if found is None:
            raise AttributeError(name)
        return found

    @override
    def __dir__(self) -> list[str]:
        return list(self.__functions__)

    @override
    def __str__(self) -> str:
        return "the module"


class GraphEvaluator(Evaluator):
    """Expressions of a graph function; `places` says where each Relax value was last written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Evaluator.__init__(self, *args, **kwargs)
        self.places: dict[int, Span] = {}
        self.gone: dict[str, str] = {}
        self._kept: list[object] = []

    def forget(self) -> None:
        """Forget where values were written: a new statement begins."""
        self.places.clear()
        self._kept.clear()

    def place_of(self, expr: rx.Expr) -> Span | None:
        """Where `expr` was written in this statement."""
        found = self.places.get(id(expr))
        return written_at(expr) if found is None else found

    def located(self, error: RelaxpyError, otherwise: Span) -> RelaxpyError:
        """`error` at the operand it is about, where that was written in this statement."""
        about = error.about
        place = None if about is None else self.places.get(id(about))
        # What was bound on the way to normal form says where the operand stood.
        if place is None and isinstance(about, rx.Var) and about.span in self.places.values():
            place = about.span
        return as_parse_error(error, place or otherwise)

    @override
    def unknown(self, node: ast.Name) -> RelaxpyError:
        error = Evaluator.unknown(self, node)
        why = self.gone.get(node.id)
        if why is None:
            return error
        return self.error(
            node,
            f"{node.id!r} is not visible here: {why}",
            rule="SC-7",
            hint=f"list it in R.output({node.id}) at the end of the block",
        )

    @override
    def value(self, node: ast.expr) -> Any:
        found = Evaluator.value(self, node)
        if isinstance(found, rx.Expr):
            self.places[id(found)] = self.span(node)
            self._kept.append(found)
            if isinstance(found, rx.Call) and isinstance(node, ast.Call):
                self._place_tuples(found, node)
        return found

    def _place_tuples(self, call: rx.Call, node: ast.Call) -> None:
        """Note where the operands stand that are tuples of Python in the text."""
        written = [*node.args, *(keyword.value for keyword in node.keywords)]
        displays = [d for d in written if isinstance(d, (ast.Tuple, ast.List)) and d.elts]
        for operand in call.args:
            if isinstance(operand, rx.Tuple) and operand.fields and displays:
                last = self.places.get(id(operand.fields[-1]))
                here = (d for d in displays if self.span(d.elts[-1]) == last)
                found = next(here, None)
                if found is not None:
                    self.places[id(operand)] = self.span(found)

    @override
    def on_binary(self, sign: str, left: object, right: object) -> object:
        if not isinstance(left, rx.Expr) and not isinstance(right, rx.Expr):
            return MISSING
        return operators.apply(sign, left, right) if sign in _SIGNS else MISSING

    @override
    def on_unary(self, sign: str, operand: object) -> object:
        if not isinstance(operand, rx.Expr) or sign != "-":
            return MISSING
        return operators.negative(operand)

    @override
    def binary(self, kind: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        found = Evaluator.binary(self, kind, left, right, node)
        return self._at(found, node) if isinstance(found, rx.Call) else found

    @override
    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        if isinstance(function, OpDef):
            if "out_ty" in kwargs and "out_sinfo" not in kwargs:
                kwargs = {"out_sinfo" if k == "out_ty" else k: v for k, v in kwargs.items()}
            return function.make(*args, span=self.span(node), **kwargs)
        if isinstance(function, rx.Expr):
            if kwargs:
                raise self.error(node.keywords[0], "a call of a function takes no keywords")
            return rx.Call(
                function, tuple(rx.convert_to_expr(a) for a in args), span=self.span(node)
            )
        found = function(*args, **kwargs)
        return self._at(found, node) if isinstance(found, rx.Expr) else found

    @override
    def signature_of(self, function: Any) -> inspect.Signature:
        found = Evaluator.signature_of(self, function)
        if not isinstance(function, OpDef):
            return found
        # A rule may also take the call and its surroundings, which nobody writes.
        written = {parameter.name for parameter in function.parameters}
        return found.replace(parameters=[p for n, p in found.parameters.items() if n in written])

    def _at(self, found: rx.Expr, node: ast.expr) -> rx.Expr:
        """`found` with its position, if it is a new expression without one."""
        if found.span is not None or isinstance(found, (rx.Var, rx.GlobalVar)):
            return found
        return replace(found, span=self.span(node))  # type: ignore[type-var]

    @override
    def on_subscript(self, owner: Any, index: Any, node: ast.Subscript) -> object:
        if not isinstance(owner, rx.Expr):
            return Evaluator.on_subscript(self, owner, index, node)
        try:
            found = owner[index]
        except IndexError as error:
            raise self.error(node, str(error), rule="DER-33") from None
        return self._at(found, node) if isinstance(found, rx.Expr) else found

    def expression(self, value: object, node: ast.expr) -> rx.Expr:
        """`value` as a Relax expression.

        Errors: ParseError at `node` for what is none.
        """
        if isinstance(value, forms.EmitForm):
            value = value.value
        if isinstance(value, (forms.Form, ModuleRef, IRModule)):
            raise self.error(node, f"{describe(value)} is no value")
        try:
            return self._at(rx.convert_to_expr(value), node)
        except MisuseError as error:
            raise self.located(error, self.span(node)) from None


def is_plain(value: object) -> bool:
    """Whether a Python value stays one when it is named: only Relax values are bound."""
    if isinstance(value, (tuple, list)):
        return bool(value) and not any(_of_the_program(member) for member in value)
    return not isinstance(value, (bool, int, float)) and not _of_the_program(value)


def _of_the_program(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_of_the_program(member) for member in value)
    return isinstance(value, (rx.Expr, PrimExpr, forms.Form))
