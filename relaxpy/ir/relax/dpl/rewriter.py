"""Rewriters: patterns, with functions that compute replacements, applied to programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, check_type, counted, unexpected
from relaxpy.ir.link import link_functions
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.apply_rules import rewritten
from relaxpy.ir.relax.dpl.context import PatternContext
from relaxpy.ir.relax.dpl.context_rule import ContextRule, MatchRewriter
from relaxpy.ir.relax.dpl.from_function import Instantiate, rule_of_module
from relaxpy.ir.relax.dpl.replacing import Rewriter
from relaxpy.ir.relax.dpl.rules import ExprRule, Rule
from relaxpy.ir.relax.dpl.tuple_rule import TupleRule
from relaxpy.ir.relax.nodes import BaseFunc, Expr, Function, If, SeqExpr
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing


@dataclass(frozen=True, eq=False, repr=False)
class PatternMatchingRewriter(Pass):
    """Rewrites functions by rules, and is a pass over modules.

    Replacements are visited again, and rules are applied until none applies. Of `a | b` the rules
    of `a` are applied as often as possible before those of `b`. Only calls without effects are
    rewritten, and nothing is moved past a call with effects (OPT-3, OPT-4).
    """

    rules: tuple[Rule, ...] = ()

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {counted(len(self.rules), 'rule')}>"

    @property
    @override
    def info(self) -> PassInfo:
        return PassInfo("PatternMatchingRewriter")

    @staticmethod
    @user_facing
    def from_pattern(pattern: dp.DFPattern, func: Rewriter) -> PatternMatchingRewriter:
        """The rewriter that replaces matches of `pattern` by `func(expr, matches)`.

        If that is None or `expr` itself, nothing is replaced, and of `a | b` the other is tried. A
        tuple pattern also matches values that are not in a tuple.

        Errors:
            MisuseError (also TypeError): `pattern` is not a pattern, or `func` is not callable.
        """
        return ExprPatternRewriter(pattern, func)

    @staticmethod
    @user_facing
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """The rewriter that replaces the body of function `pattern` by that of `replacement`.

        The two have the same signature. Other functions are private; those that replacements call
        are added to the module that is rewritten.

        Errors:
            UnknownNameError (also KeyError): there is no such function.
            MisuseError (also TypeError, ValueError): one is not a Relax function, their signatures
                differ, another one is public, or `pattern` cannot be read as a pattern.
        """
        return rewriter_of_module(mod)

    @override
    @user_facing
    def __call__(self, obj: Any) -> Any:
        """The function, expression or module after rewriting; itself if no rule applies.

        Errors:
            TransformError: a replacement does not fit or has effects, or the rewriting does not
                end.
        """
        if isinstance(obj, IRModule):
            return super().__call__(obj)
        if not isinstance(obj, Expr):
            raise MisuseError(
                f"a rewriter takes an IRModule or an expression, found {type(obj).__name__}",
                about=obj,
            )
        return self._expr(obj)

    def _expr(self, expr: Expr) -> Expr:
        before = expr
        if isinstance(expr, Function):
            before = PyExprMutator().builder_.normalize_function(expr)
        elif not isinstance(expr, (SeqExpr, If)):
            before = PyExprMutator().visit_expr(SeqExpr((), expr))
        after = rewritten(before, self.rules, None, {})
        if after is before:
            return expr
        names = called_subroutines(after, self.rules)
        if names:
            raise TransformError(
                f"the replacement calls {', '.join(names)}, which only a module can contain",
                hint="apply the rewriter to the module that the function belongs to",
            )
        return after

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        extra = Subroutines(self.rules, mod)

        def step(func: Function) -> Function:
            before = normalize_function(func, mod)
            after = rewritten(before, extra.rules, mod, extra.functions)
            return func if after is before else after

        result = map_functions(mod, Function, step)
        for name, func in extra.called_in(result).items():
            result[name] = func
        return result

    @user_facing
    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        """The rewriter with the rules of both, those of this one first."""
        return OrRewriter(self, other)


def rewriter_of_module(mod: IRModule) -> PatternMatchingRewriter:
    """The rewriter that a module describes; see `PatternMatchingRewriter.from_module`."""
    pattern, func, subroutines = rule_of_module(mod)
    return PatternMatchingRewriter(_rules(pattern, func, (), subroutines))


def _rules(
    pattern: dp.DFPattern,
    func: Rewriter,
    outer: tuple[dp.DFPattern, ...],
    subroutines: Mapping[str, BaseFunc],
) -> tuple[Rule, ...]:
    """The rules for a pattern: one for each alternative of `a | b`, and one for tuples."""
    match pattern:
        case dp.OrPattern(left=left, right=right):
            outer = (*outer, pattern)
            return (
                *_rules(left, func, outer, subroutines),
                *_rules(right, func, outer, subroutines),
            )
        case dp.TuplePattern(fields=fields) if fields and not any(
            isinstance(f, dp.WildcardPattern) for f in fields
        ):
            return (
                ExprRule(pattern, func, outer, subroutines=subroutines),
                TupleRule(fields, func, (*outer, pattern), subroutines=subroutines),
            )
        case _:
            return (ExprRule(pattern, func, outer, subroutines=subroutines),)


def _check_callable(func: object) -> None:
    if not callable(func):
        raise unexpected(func, "a rewriter is a function")


class ExprPatternRewriter(PatternMatchingRewriter):
    """The rewriter of a pattern and a function; see `PatternMatchingRewriter.from_pattern`."""

    @user_facing
    def __init__(self, pattern: dp.DFPattern, func: Rewriter) -> None:
        dp.check_pattern(pattern)
        _check_callable(func)
        super().__init__(_rules(pattern, func, (), {}))


class TupleRewriter(PatternMatchingRewriter):
    """The rewriter of values that `patterns` match one by one, as if they were in a tuple."""

    @user_facing
    def __init__(self, patterns: list[dp.DFPattern], func: Rewriter) -> None:
        _check_callable(func)
        whole = dp.TuplePattern(patterns)  # type: ignore[arg-type]
        super().__init__((TupleRule(whole.fields, func, (whole,)),))


class OrRewriter(PatternMatchingRewriter):
    """The rewriter with the rules of two, those of `lhs` first."""

    @user_facing
    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        for side in (lhs, rhs):
            check_type(side, PatternMatchingRewriter, "rewriters are combined")
        super().__init__((*lhs.rules, *rhs.rules))


@user_facing
def rewrite_call(pattern: dp.DFPattern, rewriter: Rewriter, func: Function) -> Function:
    """The function with `rewriter(expr, matches)` instead of each expression that matches.

    See `PatternMatchingRewriter.from_pattern`; `matches` has the match of each subpattern.

    Errors:
        MisuseError (also TypeError): an argument is of the wrong kind.
        TransformError: a replacement does not fit or has effects, or the rewriting does not end.
    """
    _check_function(func)
    result: Function = ExprPatternRewriter(pattern, rewriter)(func)
    return result


@user_facing
def rewrite_bindings(ctx: PatternContext, rewriter: MatchRewriter, func: Function) -> Function:
    """The function with the new values of variables that `rewriter(matches, bindings)` returns.

    `matches` has a variable for each pattern of the context, and `bindings` the values of the
    variables in their block. The result is a dict of new values. This is repeated until nothing
    matches.

    Errors:
        MisuseError (also TypeError, ValueError): an argument is of the wrong kind, or the rewriter
            returns something else, or a value for a variable that is not bound there.
        TransformError: a replacement does not fit, has effects or depends on itself, or the
            rewriting does not end.
    """
    _check_function(func)
    if not isinstance(ctx, PatternContext):
        raise MisuseError(f"expected a PatternContext, found {type(ctx).__name__}", about=ctx)
    _check_callable(rewriter)
    result: Function = PatternMatchingRewriter((ContextRule(ctx, rewriter),))(func)
    return result


def _check_function(func: object) -> None:
    if not isinstance(func, Function):
        raise MisuseError(
            f"a function is rewritten, found {type(func).__name__}",
            about=func,
            hint="PatternMatchingRewriter takes modules, too",
        )


class Subroutines:
    """The subroutines of rules by the names that they get in a module, and the renamed rules."""

    def __init__(self, rules: Sequence[Rule], mod: IRModule) -> None:
        self.mod = mod
        self.functions: dict[str, BaseFunc] = {}
        self.rules = [self._renamed(rule) for rule in rules]

    def _renamed(self, rule: Rule) -> Rule:
        """The rule, whose replacements call subroutines by their names in the module."""
        if not isinstance(rule, (ExprRule, TupleRule)) or not isinstance(rule.func, Instantiate):
            return rule
        present = {**self.mod.functions_by_name, **self.functions}
        entries = link_functions(rule.subroutines, present, present, separator="_")
        self.functions.update(func for func in entries.values() if func[0] not in self.mod)
        names = {name: new_name for name, (new_name, _) in entries.items()}
        return replace(rule, func=rule.func.with_names(names))

    def called_in(self, mod: IRModule) -> dict[str, BaseFunc]:
        """The subroutines that the rewritten functions of the module call, directly or not."""
        called: dict[str, BaseFunc] = {}
        before = self.mod.functions_by_name
        waiting = [f for name, f in mod.functions_by_name.items() if f is not before[name]]
        while waiting:
            for name in mentioned_globals(waiting.pop()):
                if name in self.functions and name not in called:
                    called[name] = self.functions[name]
                    waiting.append(called[name])
        return called


def called_subroutines(expr: Expr, rules: Sequence[Rule]) -> list[str]:
    """The names of the subroutines of rules that an expression calls."""
    names = mentioned_globals(expr)
    return [name for name in names if any(name in rule.subroutines for rule in rules)]
