"""Rewriters: patterns, with functions or modules that give replacements, applied to programs.

Rules are applied to a function sequence by sequence, until none applies; then aliases, equal calls
and unused bindings are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import is_
from typing import Any, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    TransformError,
    UnknownNameError,
    check_type,
    counted,
    unexpected,
)
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.link import link_functions, rename_callees
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Escapes, may_fail, mutates
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.block_builder.infer import is_pure_call
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.matcher import is_same_program
from relaxpy.ir.relax.dpl.replacing import Replacer, Rewriter
from relaxpy.ir.relax.dpl.rules import ContextRule, ExprRule, MatchRewriter, Rule, TupleRule
from relaxpy.ir.relax.nodes import BaseFunc, Expr, Function, If, SeqExpr
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.relations.shape_vars import shape_vars_of
from relaxpy.ir.relax.rewrite import map_bindings as rewriting
from relaxpy.ir.relax.rewrite.bind import shape_var_images
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing


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
        func = rewriting.copy_with_new_vars(self.func)
        pairs = [(p, matches[key]) for p, key in zip(func.params, self.params, strict=True)]
        images: dict[Node, Node] = dict(pairs)
        images.update(shape_var_images(pairs).items())
        images.update((var, type(var)(var.name_hint)) for var in _derived_variables(func))
        return rewriting.replace_variables(func.body, images)

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


def cleaned(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence without the bindings that rewriting left redundant.

    A variable that a rewriter bound to another one is replaced by it (within SC-7). Equal calls are
    merged if a rewriter created one of them and no mutation can show the difference (OPT-11).
    Unused bindings are removed, outside dataflow blocks only if they cannot fail or belonged to a
    match (OPT-3). Nested sequences have been cleaned before.
    """
    seq = _merged(_without_aliases(seq, replacer), replacer)
    superfluous = set()
    for block in seq.blocks:
        for b in block.bindings:
            in_order = not isinstance(block, rx.DataflowBlock) and may_fail(b)
            if not isinstance(b, rx.MatchCast) and (b.var in replacer.matched or not in_order):
                superfluous.add(b)
    return rewriting.without_unused(seq, lambda binding: binding not in superfluous)


def _renamed(
    seq: rx.SeqExpr, table: Mapping[rx.Var, rx.Var], dropped: Collection[rx.Binding]
) -> rx.SeqExpr:
    """The sequence with variables renamed, and without the dropped bindings."""
    blocks = [
        replace(block, bindings=tuple(b for b in block.bindings if b not in dropped))
        for block in seq.blocks
    ]
    return rename(rebuild(seq, blocks=tuple(rewriting.joined(blocks))), table)


class _Renaming:
    """The variables that replace others, and the bindings that are superfluous then.

    `introduced` are variables that rewriters introduced.
    """

    def __init__(self, introduced: Collection[rx.Var]) -> None:
        self.introduced = introduced
        self.table: dict[rx.Var, rx.Var] = {}
        self._replaced_by: dict[rx.Var, list[rx.Var]] = {}
        self.dropped: set[rx.Binding] = set()

    def unite(self, first: rx.Var, later: rx.Var, binding: rx.Binding, *, together: bool) -> None:
        """Make `first` and `later`, to which `binding` binds the same value, one variable.

        If they are bound `together`, in one block, a Var replaces a DataflowVar, since it outlives
        the block, and a variable of the program replaces one that a rewriter introduced.
        """
        outlives = not isinstance(later, rx.DataflowVar) and isinstance(first, rx.DataflowVar)
        if together and (outlives or (type(first) is type(later) and first in self.introduced)):
            old, new = first, later
        elif not outlives:
            old, new = later, first
        else:
            return
        moved = [old, *self._replaced_by.pop(old, ())]
        self.table.update(dict.fromkeys(moved, new))
        self._replaced_by.setdefault(new, []).extend(moved)
        self.dropped.add(binding)

    def applied(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after the renaming."""
        return _renamed(seq, self.table, self.dropped) if self.table else seq


def _without_aliases(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence without variables that a rewriter bound to other variables."""
    renaming = _Renaming(replacer.introduced)
    for block in seq.blocks:
        here = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            var, value = binding.var, binding.value
            if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.Var):
                continue
            if var in replacer.touched:
                first = renaming.table.get(value, value)
                renaming.unite(first, binding.var, binding, together=value in here)
    return renaming.applied(seq)


def _merged(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence with equal calls merged if a rewriter created one of them."""
    renaming = _Renaming(replacer.introduced)
    uses = Escapes(seq, replacer.effects)
    for run in uses.runs:
        known: dict[object, list[rx.VarBinding]] = {}
        here = {binding.var for binding in run}
        for binding in run:
            if not isinstance(binding, rx.VarBinding) or not _computes(binding.value):
                continue
            table = {v: renaming.table[v] for v in _operands(binding.value) if v in renaming.table}
            value = rename(binding.value, table) if table else binding.value
            candidates = known.setdefault(_key(value), [])
            for first in candidates:
                if (
                    (first.var in replacer.touched or binding.var in replacer.touched)
                    and is_same_program(first.value, value)
                    and not (uses.escapes(first.var) and uses.escapes(binding.var))
                ):
                    renaming.unite(
                        renaming.table.get(first.var, first.var),
                        binding.var,
                        binding,
                        together=first.var in here,
                    )
                    break
            else:
                candidates.append(replace(binding, value=value))
    return renaming.applied(seq)


def _computes(value: rx.Expr) -> bool:
    """True if a value is a projection, or newly computed by a pure operator with a legalisation."""
    if isinstance(value, rx.Call) and isinstance(value.op, Op):
        return value.op.record.legalize is not None and value.op.record.pure is True
    return isinstance(value, rx.TupleGetItem)


def _operands(value: rx.Expr) -> Iterator[rx.Var]:
    """The variables in a value, except for those in struct info."""
    return (node for node in walk(value) if isinstance(node, rx.Var))


def _key(value: rx.Expr) -> object:
    """A key that is the same for equal values."""
    head = value.op if isinstance(value, rx.Call) else value.index  # type: ignore[attr-defined]
    return head, *_operands(value)


E = TypeVar("E", bound=rx.Expr)


def rewritten(
    expr: E, rules: Sequence[Rule], mod: IRModule | None, extra: Mapping[str, rx.BaseFunc]
) -> E:
    """`expr`, which is in normal form and derived, after rewriting; itself if no rule applies.

    Replacements may call the functions of `mod`, and those that are in `extra` when they do.
    """
    run = _Rewriting(rules, Replacer(mod, extra, expr))
    if not isinstance(expr, rx.Function):
        run.replacer.visible.update(n for n in walk(expr) if isinstance(n, tir.Var))
        run.replacer.visible.update(free_vars(expr))
    after = run.expr(expr)
    if after is expr:
        return expr
    return rewriting.Refined(mod, run.replacer.refined).visit_expr(after)  # type: ignore[no-any-return]


class _Rewriting(rewriting.BindingRewriter):
    def __init__(self, rules: Sequence[Rule], replacer: Replacer) -> None:
        super().__init__()
        self.rules = rules
        self.replacer = replacer

    @override
    def function(self, func: rx.Function) -> rx.Function:
        visible = self.replacer.visible
        self.replacer.visible = visible | {*func.params, *shape_vars_of(func.params)}
        with self.replacer.effects.inside(func):
            after = super().function(func)
        self.replacer.visible = visible
        return after

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        blocks = super().block(block)
        self.replacer.leave(block.bindings)
        return blocks

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if isinstance(binding.value, rx.Function):
            self.replacer.enter(binding)  # it may call itself
        new = super().binding(binding, block)
        self.replacer.enter(binding)
        return new

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after sweeps of all rules, repeated until no rule applies."""
        outer = self.replacer.visible
        self.replacer.visible = set(outer)
        seq = super().sequence(seq)
        self.replacer.set_limits(sum(len(block.bindings) for block in seq.blocks))
        before = None
        while before is not seq:
            before = seq
            self.replacer.iterations += 1
            for rule in self.rules:
                self.replacer.visible = set(outer)
                after = self._swept(seq, rule)
                if after is not seq:
                    seq = cleaned(after, self.replacer)
        self.replacer.visible = outer
        return seq

    def _swept(self, seq: rx.SeqExpr, rule: Rule) -> rx.SeqExpr:
        """The sequence after one sweep of a rule, in which the result counts as a last binding."""
        blocks = list(seq.blocks)
        result: rx.Var | None = None
        if not isinstance(seq.body, rx.Var) and seq.body.struct_info is not None:
            result = rx.Var("result", seq.body.struct_info)
            last = blocks.pop() if blocks else rx.BindingBlock(())
            blocks.append(
                rewriting.with_bindings(last, [*last.bindings, rx.VarBinding(result, seq.body)])
            )
        new = [rewriting.with_bindings(block, self._block(block, rule)) for block in blocks]
        if all(map(is_, new, blocks)):
            return seq
        body = seq.body if result is None else result
        if result is not None:
            *before, final = new[-1].bindings
            assert final.var is result
            if isinstance(final, rx.VarBinding) and is_leaf(final.value):
                new[-1] = rewriting.with_bindings(new[-1], before)
                body = final.value
        return rebuild(seq, blocks=tuple(rewriting.joined(new)), body=body)

    def _block(self, block: rx.BindingBlock, rule: Rule) -> Sequence[rx.Binding]:
        in_dataflow = isinstance(block, rx.DataflowBlock)
        kind = rx.DataflowBlock if in_dataflow else rx.BindingBlock
        is_barrier = mutates if in_dataflow else self.replacer.effects.is_barrier
        result: list[rx.Binding] = []
        for separates, group in groupby(block.bindings, is_barrier):
            run: Sequence[rx.Binding] = list(group)
            if not separates:
                run = rule.sweep(run, self.replacer, kind, ordered=not in_dataflow)
            self._enter_all(run)
            result += run
        if in_dataflow:
            self.replacer.leave(result)
        return result

    def _enter_all(self, bindings: Iterable[rx.Binding]) -> None:
        for binding in bindings:
            self.replacer.enter(binding)


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
        return PassInfo(0, "PatternMatchingRewriter")

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
def rewrite_bindings(ctx: dp.PatternContext, rewriter: MatchRewriter, func: Function) -> Function:
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
    if not isinstance(ctx, dp.PatternContext):
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
