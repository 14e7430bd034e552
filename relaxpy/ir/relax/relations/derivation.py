"""The context of derivation: scopes, signatures, the prover, warnings."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping
from dataclasses import field
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
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import alpha_rename, over_sizes
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass
from relaxpy.support.missing import described


def written_at(expr: rx.Expr) -> Span | None:
    """The position of an operand; None for a variable or function, whose span is its definition.

    An error about an operand without a position is reported at the enclosing expression.
    """
    return None if isinstance(expr, (rx.Var, rx.BaseFunc)) else expr.span


def _nothing_known(name: str) -> None:
    return None


def _not_a_value(node: object) -> RelaxpyError:
    if isinstance(node, Op):
        return StructInfoError(
            f"operator {node.name} is not a value; it can only be called", rule="WF-9", about=node
        )
    return MisuseError(f"expected a Relax expression, found {described(node)}", about=node)


@dataclass(slots=True, eq=False)
class Context:
    """The context of a struct info rule, in addition to the call.

    `variables` and `shape_vars` are the variables in scope (Σ), and `sinfo_by_var` is Δ where it
    differs from the struct info of the variable itself (DER-51). The shape variables in `sizes` are
    at least 0, as dimensions of tensors are. In a `closed` context, which spans
    a whole program, a variable out of scope is an error; an open context is for expressions that
    are still being built. `signatures` are those of the module's functions, and `renamed` the same
    with new bound shape variables, which occur nowhere else (DER-51). Functions of an unknown
    module have the `assumed` signature, and those in `values`, where they are not called, the
    struct info there. `suppress_warnings` is set for programs that were derived
    before. A program that is read `as_written` may contradict its kernels and annotations, and its
    calls stay as they are; the well-formedness check finds that later. A front end that knows the
    positions of operands passes `span_of`.
    """

    variables: set[rx.Var] = field(default_factory=set)
    shape_vars: set[tir.Var] = field(default_factory=set)
    sizes: set[tir.Var] = field(default_factory=set)
    sinfo_by_var: dict[rx.Var, rx.StructInfo] = field(default_factory=dict)
    signatures: MutableMapping[str, rx.StructInfo] = field(default_factory=dict)
    renamed: dict[str, rx.StructInfo] = field(default_factory=dict)
    find_function: Callable[[str], rx.BaseFunc | None] = _nothing_known
    closed: bool = False
    suppress_warnings: bool = False
    as_written: bool = False
    assumed: rx.StructInfo | None = None
    values: Mapping[str, rx.StructInfo] = field(default_factory=dict)
    span_of: Callable[[rx.Expr], Span | None] = written_at

    def sinfo_of(self, expr: rx.Expr) -> rx.StructInfo:
        """The struct info of a leaf, or of an expression that was derived (DER-3).

        A function of a later module, which is passed on and not called, is an object.

        Errors:
            StructInfoError: a variable is not in scope, or the expression was not derived.
        """
        if isinstance(expr, rx.Var):
            return self._variable_sinfo(expr)
        if isinstance(expr, rx.GlobalVar):
            known = self._known_sinfo(expr)
            if known is self.assumed and expr.name_hint in self.values:
                return self.values[expr.name_hint]
            is_open = not self.closed and known is None
            return rx.ObjectStructInfo() if is_open else self.global_sinfo(expr)
        if not isinstance(expr, rx.Expr):
            raise _not_a_value(expr)
        sinfo = expr.struct_info
        if sinfo is not None:
            return sinfo
        if isinstance(expr, rx.Tuple):
            return rx.TupleStructInfo(tuple(self.sinfo_of(f) for f in expr.fields))
        raise StructInfoError(
            f"nothing is known yet about this {type(expr).__name__}",
            rule="SI-1",
            span=expr.span,
            hint="BlockBuilder.normalize derives it",
            about=expr,
        )

    def _variable_sinfo(self, var: rx.Var) -> rx.StructInfo:
        sinfo = self.sinfo_by_var.get(var) or var.struct_info
        if sinfo is None or (self.closed and var not in self.variables):
            raise StructInfoError(
                f"variable {var.name_hint} is not in scope"
                if self.closed
                else f"nothing is known about variable {var.name_hint}: it is bound nowhere",
                rule="DER-3",
                span=var.span,
                about=var,
            )
        return sinfo

    def callee_sinfo(self, callee: rx.Expr) -> rx.StructInfo:
        """The struct info of a callee; its bound shape variables occur nowhere else (MAP-9)."""
        if isinstance(callee, rx.GlobalVar):
            sinfo = self.global_sinfo(callee)
            if callee.name_hint in self.signatures:
                return sinfo
        else:
            sinfo = self.sinfo_of(callee)
        return alpha_rename(sinfo, self.shape_vars)

    def global_sinfo(self, var: rx.GlobalVar) -> rx.StructInfo:
        """The signature of a function of the module (AST-8).

        Errors:
            StructInfoError: there is no such function.
        """
        sinfo = self._known_sinfo(var)
        if sinfo is None:
            raise StructInfoError(
                f"the module has no function {var.name_hint}",
                rule="DER-3",
                span=var.span,
                hint=close_names(var.name_hint, self.signatures),
                about=var,
            )
        return sinfo

    def _known_sinfo(self, var: rx.GlobalVar) -> rx.StructInfo | None:
        return self._signature(var.name_hint) or var.struct_info or self.assumed

    def _signature(self, name: str) -> rx.StructInfo | None:
        renamed = self.renamed.get(name)
        declared = self.signatures.get(name) if renamed is None else None
        if declared is not None:
            renamed = self.renamed[name] = alpha_rename(declared)
        return renamed

    def function_of(self, var: rx.GlobalVar) -> rx.BaseFunc | None:
        """The function that `var` refers to, or None if it is not known yet."""
        return self.find_function(var.name_hint)

    def knows(self, var: rx.GlobalVar) -> bool:
        """True if the module has a signature for `var`."""
        return var.name_hint in self.signatures

    def prove_equal(self, a: tir.PrimExpr, b: tir.PrimExpr) -> bool | None:
        """True if `a` and `b` are equal for all values of their variables, False if for none."""
        result = prove_equal(a, b)
        if result is None and self.sizes:
            result = prove_equal(over_sizes(a, self.sizes), over_sizes(b, self.sizes))
        return result

    def warn(
        self, message: str, *, rule: str, about: tuple[rx.Expr, ...] = (), hint: str | None = None
    ) -> None:
        """Issue a RelaxpyWarning at the first expression in `about` that has a position."""
        if not self.suppress_warnings:
            spans = (self.span_of(expr) for expr in about)
            warn(Diagnostic(message, rule, next(filter(None, spans), None), hint))

    def is_pure_callee(self, callee: rx.Expr) -> bool:
        """PU-12: whether the struct info of a callee declares calls of it pure."""
        sinfo = self.sinfo_of(callee)
        return isinstance(sinfo, rx.FuncStructInfo) and sinfo.purity


class Except(Container[Any]):
    """Contains everything except some items: the scope that only these have left."""

    __slots__ = ("_excluded",)

    def __init__(self, excluded: Iterable[object]) -> None:
        self._excluded = excluded if isinstance(excluded, (set, frozenset)) else frozenset(excluded)

    @override
    def __contains__(self, item: object) -> bool:
        return item not in self._excluded
