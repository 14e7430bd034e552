"""What derivation knows around an expression: scopes, signatures, the prover, warnings."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    RelaxpyError,
    Span,
    StructInfoError,
    close_names,
    warn,
)
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Expr,
    FuncStructInfo,
    GlobalVar,
    StructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from relaxpy.ir.relax.relations.shape_vars import alpha_rename
from relaxpy.ir.tir import expr as tir


def written_at(expr: Expr) -> Span | None:
    """Where an operand stands, if it says so itself: a variable only knows where it is bound.

    Who reports an error about an operand without a position knows it, or takes that of the whole.
    """
    return None if isinstance(expr, Var) else expr.span


def _nothing_known(name: str) -> None:
    return None


def _no_value(found: object) -> RelaxpyError:
    if isinstance(found, Op):
        return StructInfoError(
            f"operator {found.name} is no value; it can only be called", rule="WF-9", about=found
        )
    return MisuseError(
        f"expected a Relax expression, found {type(found).__name__} {found!r:.60}", about=found
    )


@dataclass(slots=True, eq=False)
class Context:
    """The surroundings that a derivation rule sees.

    The `signatures` of the module's functions own variables that stand nowhere else (DER-51), for
    which `apart` renames them when they are first asked for.
    `infos` is Δ where it differs from what a variable itself carries (DER-51), `variables` and
    `sizes` are the variables and shape variables in scope (Σ). In a `closed` context, which spans a
    whole program, a variable that is not among them is an error; an open one belongs to expressions
    that are still being put together. With `suppress_warnings` there are no warnings,
    as its program was derived before. A front end that knows the positions of operands passes
    `place`. Functions of a module that is not at hand are what is `assumed` of them.
    """

    variables: set[Var] = field(default_factory=set)
    sizes: set[tir.Var] = field(default_factory=set)
    infos: dict[Var, StructInfo] = field(default_factory=dict)
    signatures: MutableMapping[str, StructInfo] = field(default_factory=dict)
    apart: dict[str, StructInfo] = field(default_factory=dict)
    find_function: Callable[[str], BaseFunc | None] = _nothing_known
    closed: bool = False
    suppress_warnings: bool = False
    assumed: StructInfo | None = None
    place: Callable[[Expr], Span | None] = written_at

    def info_of(self, expr: Expr) -> StructInfo:
        """The info of a leaf, or of an expression that has been derived (DER-3).

        Errors:
            StructInfoError: a variable is not in scope, or nothing was derived yet.
        """
        if isinstance(expr, Var):
            return self._variable_info(expr)
        if isinstance(expr, GlobalVar):
            return self.global_info(expr)
        if not isinstance(expr, Expr):
            raise _no_value(expr)
        info = expr.struct_info
        if info is not None:
            return info
        if isinstance(expr, Tuple):
            return TupleStructInfo(tuple(self.info_of(f) for f in expr.fields))
        raise StructInfoError(
            f"nothing is known yet about this {type(expr).__name__}",
            rule="SI-1",
            span=expr.span,
            hint="BlockBuilder.normalize derives it",
            about=expr,
        )

    def _variable_info(self, var: Var) -> StructInfo:
        info = self.infos.get(var) or var.struct_info
        if info is None or (self.closed and var not in self.variables):
            raise StructInfoError(
                f"variable {var.name_hint} is not in scope"
                if self.closed
                else f"nothing is known about variable {var.name_hint}: it is bound nowhere",
                rule="DER-3",
                span=var.span,
                about=var,
            )
        return info

    def callee_info(self, callee: Expr) -> StructInfo:
        """The info of what is called; the shape variables it owns stand nowhere else (MAP-9)."""
        info = self.info_of(callee)
        if isinstance(callee, GlobalVar) and callee.name_hint in self.signatures:
            return info
        return alpha_rename(info, self.sizes)

    def global_info(self, var: GlobalVar) -> StructInfo:
        """The signature of a function of the module (AST-8).

        Errors:
            StructInfoError: there is no such function.
        """
        info = self._signature(var.name_hint) or var.struct_info or self.assumed
        if info is None:
            raise StructInfoError(
                f"the module has no function {var.name_hint}",
                rule="DER-3",
                span=var.span,
                hint=close_names(var.name_hint, self.signatures),
                about=var,
            )
        return info

    def _signature(self, name: str) -> StructInfo | None:
        found = self.apart.get(name)
        said = self.signatures.get(name) if found is None else None
        if said is not None:
            found = self.apart[name] = alpha_rename(said)
        return found

    def function_of(self, var: GlobalVar) -> BaseFunc | None:
        """The function that `var` stands for, or None where it is not known yet."""
        return self.find_function(var.name_hint)

    def knows(self, var: GlobalVar) -> bool:
        """Whether the module has a signature for `var`."""
        return var.name_hint in self.signatures

    def prove_equal(self, a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
        """True if the two are equal for all values of their variables, False if for none."""
        return prove_equal(a, b)

    def warn(
        self, message: str, *, rule: str, about: tuple[Expr, ...] = (), hint: str | None = None
    ) -> None:
        """Issue a RelaxpyWarning, at the first position of what it is about, innermost first."""
        if not self.suppress_warnings:
            spans = (self.place(expr) for expr in about)
            warn(Diagnostic(message, rule, next(filter(None, spans), None), hint))

    def is_pure_callee(self, callee: Expr) -> bool:
        """PU-12: whether the info of a called value says that calling it is pure."""
        info = self.info_of(callee)
        return isinstance(info, FuncStructInfo) and info.purity


class Except(Container[Any]):
    """Everything but a few: what is in scope when just these have left it."""

    __slots__ = ("gone",)

    def __init__(self, gone: Iterable[object]) -> None:
        self.gone = gone if isinstance(gone, (set, frozenset)) else frozenset(gone)

    @override
    def __contains__(self, item: object) -> bool:
        return item not in self.gone
