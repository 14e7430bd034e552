"""Bindings from the result of a rewriter: in normal form, derived, and checked to fit."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from relaxpy.errors import MisuseError, RelaxpyError, Span, TransformError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, calls_made
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl.matcher import is_same_program
from relaxpy.ir.relax.relations import is_base_of, provably_disjoint
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, map_params, substitute_info
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars, replace_variables
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.missing import described

Kind: TypeAlias = type[rx.BindingBlock]


@dataclass(frozen=True, slots=True)
class NewBindings:
    """The bindings of variables to new values, after those of the operands of these values."""

    operands: tuple[rx.Binding, ...]
    results: tuple[rx.Binding, ...]


class Replacer:
    """Binds the results of rewriters, in one function.

    `touched` are the variables with new values, `introduced` those of them that are new, and
    `refined` has the struct info of those of which more is known than before. `visible` are the
    variables in scope. The variables in `matched` belong to expressions that were replaced.
    """

    def __init__(
        self, mod: IRModule | None, extra: Mapping[str, rx.BaseFunc], root: rx.Expr
    ) -> None:
        self.mod = mod
        self.builder = PyExprMutator(mod).builder_
        functions = {} if mod is None else {var.name_hint: func for var, func in mod.items()}
        self.effects = Effects(self.builder.context, ChainMap(functions, extra), root)  # type: ignore[arg-type]
        self.touched: set[rx.Var] = set()
        self.introduced: set[rx.Var] = set()
        self.matched: set[rx.Var] = set()
        self.refined: dict[rx.Var, rx.StructInfo] = {}
        self.visible: set[Any] = set()
        self.limit = self.max_iterations = self.iterations = 0
        self._depth: dict[rx.Var, int] = {}

    def rebind(
        self,
        olds: Sequence[rx.Binding],
        new: rx.Expr,
        bound: Mapping[rx.Expr, rx.Var],
        kind: Kind,
        *,
        fields: bool = False,
    ) -> NewBindings | None:
        """New bindings for the variables of `olds`, in a block of this kind; None if none changes.

        `new` is the value of one variable, or a tuple of values if `fields`. Values in `bound` are
        not computed again; their variables are used.

        Errors:
            TransformError: a new value makes an impure call, branches in a dataflow block, mentions
                a variable out of scope, does not fit its variable, or was rewritten too often.
        """
        new = rename(new, cast("Mapping[rx.Expr, Node]", bound))
        if not all(map(self.effects.is_pure, calls_made(new))):
            raise TransformError(
                f"the replacement of {_names(olds)} makes an impure call, but the original has no "
                "effects",
                rule="OPT-1",
                span=olds[-1].span,
            )
        self._check_functions(new, olds)
        # A function may be inserted several times, but every parameter is bound once.
        literals = {n: copy_with_new_vars(n) for n in walk(new) if isinstance(n, rx.Function)}
        try:
            operands, value = self._normal(rename(new, literals), kind)
        except RelaxpyError as error:
            error.located(olds[-1].span)
            raise
        values = [value]
        if fields:
            operands, values = self._fields(operands, value, olds)
        if not operands and all(map(_is_unchanged, values, olds)):
            return None
        branches = any(isinstance(v, rx.If) for v in (*values, *(b.value for b in operands)))
        if branches and issubclass(kind, rx.DataflowBlock):
            raise TransformError(
                f"the replacement of {_names(olds)} branches, inside a dataflow block",
                rule="WF-7c",
                span=olds[-1].span,
            )
        self._check_scope(operands, values, olds)
        results = tuple(self._bind(old, value) for old, value in zip(olds, values, strict=True))
        self._count(olds, (*operands, *results))
        self.introduced.update(b.var for b in operands if b.var is not None)
        span = olds[-1].span
        return NewBindings(
            tuple(_located(binding, span) for binding in operands),
            tuple(_located(binding, span) for binding in results),
        )

    def _fields(
        self, before: tuple[rx.Binding, ...], value: rx.Expr, olds: Sequence[rx.Binding]
    ) -> tuple[tuple[rx.Binding, ...], list[rx.Expr]]:
        """The fields of a tuple, which is bound first unless it is a Tuple."""
        sinfo = self.builder.struct_info_of(value)
        if not isinstance(sinfo, rx.TupleStructInfo) or len(sinfo.fields) != len(olds):
            raise TransformError(
                f"{_names(olds)} are replaced by a tuple of {counted(len(olds), 'field')}, "
                f"found {sinfo}",
                rule="OPT-14",
                span=olds[-1].span,
            )
        if isinstance(value, rx.Tuple):
            return before, list(value.fields)
        if not isinstance(value, rx.Var):
            kind = rx.DataflowVar if isinstance(olds[-1].var, rx.DataflowVar) else rx.Var
            var = kind(self.builder.get_unique_name("lv"), sinfo)
            before, value = (*before, rx.VarBinding(var, value)), var
        return before, [rx.TupleGetItem(value, index) for index in range(len(olds))]

    def _normal(self, new: rx.Expr, kind: Kind) -> tuple[tuple[rx.Binding, ...], rx.Expr]:
        """The value in normal form, and the bindings of its operands; proved casts are removed."""
        if isinstance(new, rx.SeqExpr):
            new = _in_one_block(new, kind)
        bindings = self._emitted(new, kind)
        while (proved := _proved_cast(bindings, self.visible)) is not None:
            index, images, value = proved
            table: dict[Node, Node] = dict(images.items())
            var = bindings[index].var
            if var is not None:
                table[var] = value
            following = rx.SeqExpr((kind(tuple(bindings[index + 1 :])),), rx.Tuple(()))
            *rest, last = replace_variables(following, table).blocks[0].bindings
            following = rx.SeqExpr((kind(tuple(rest)),), last.value)
            bindings = [*bindings[:index], *self._emitted(following, kind)]
        *before, final = bindings
        return tuple(before), final.value

    def set_limits(self, count: int) -> None:
        """Set limits that no terminating rewriting of this many bindings exceeds.

        A replacement may move through all bindings, by one in each sweep, and some rules replace
        more than once for a move.
        """
        self.limit = max(self.limit, 1000 + 4 * count)
        self.max_iterations = max(self.max_iterations, 100 + count)
        self.iterations = 0

    def enter(self, binding: rx.Binding) -> None:
        """Make the variables that a binding defines visible."""
        if binding.var is not None:
            self.visible.add(binding.var)
        if isinstance(binding, rx.MatchCast):
            self.visible.update(definable_shape_vars(binding.struct_info))

    def leave(self, bindings: Iterable[rx.Binding]) -> None:
        """End the scope of the DataflowVars that a block binds."""
        self.visible.difference_update(b.var for b in bindings if isinstance(b.var, rx.DataflowVar))

    def _emitted(self, expr: rx.Expr, kind: Kind) -> list[rx.Binding]:
        """The bindings that compute `expr`, the last one of which binds it."""
        if issubclass(kind, rx.DataflowBlock):
            self.builder._begin_dataflow_block()
        else:
            self.builder._begin_binding_block()
        try:
            self.builder.emit(expr)
        except RelaxpyError:
            self.builder._end_block()
            self.builder.take_preceding_blocks()
            raise
        block = self.builder._end_block()
        return [b for part in (*self.builder.take_preceding_blocks(), block) for b in part.bindings]

    def _check_functions(self, new: rx.Expr, olds: Sequence[rx.Binding]) -> None:
        """Check that the module has the functions that a new value mentions."""
        for name in () if self.mod is None else mentioned_globals(new):
            if name not in self.effects.functions:
                raise TransformError(
                    f"the replacement of {_names(olds)} calls {name}, but the module has no "
                    "function of that name",
                    rule="WF-24",
                    span=olds[-1].span,
                    hint="add it to the module first",
                )

    def _check_scope(
        self, before: Sequence[rx.Binding], values: Sequence[rx.Expr], olds: Sequence[rx.Binding]
    ) -> None:
        """Check that new bindings mention only variables in scope."""
        defined: set[Node] = set()
        new: list[tuple[rx.Expr, rx.Binding | None]] = [(b.value, b) for b in before]
        for value, binding in [*new, *((value, None) for value in values)]:
            is_nested = isinstance(value, (rx.Function, rx.If))
            local: set[Node] = set(bound_vars(value)) if is_nested else set()
            used: list[rx.Var | tir.Var] = [v for v in occurring_vars(value) if v not in local]
            if not is_nested:
                used += [node for node in walk(value) if isinstance(node, tir.Var)]
            for var in used:
                if var not in self.visible and var not in defined:
                    name = var.name if isinstance(var, tir.Var) else var.name_hint
                    raise TransformError(
                        f"the replacement of {_names(olds)} uses {name}, which is not in scope "
                        "there",
                        rule="SC-5",
                        span=olds[-1].span,
                    )
            if binding is not None and binding.var is not None:
                defined.add(binding.var)
            if isinstance(binding, rx.MatchCast):
                defined.update(definable_shape_vars(binding.struct_info))

    def _bind(self, old: rx.Binding, value: rx.Expr) -> rx.Binding:
        """The variable of `old` bound to a new value with at least as precise struct info (OPT-14).

        A cast checks unproved properties.
        """
        actual = self.builder.struct_info_of(value)
        known = self.builder.struct_info_of(old.value)
        if isinstance(old, rx.VarBinding) and old.var.struct_info is not None:
            known = old.var.struct_info
        name = "a cast" if old.var is None else old.var.name_hint
        if provably_disjoint(actual, known):
            raise TransformError(
                f"{name} is {known}, its replacement {actual}",
                rule="OPT-14",
                span=old.span,
                hint="a rewriter returns the expression itself if it cannot replace it",
            )
        if not isinstance(old, rx.VarBinding):
            return replace(old, value=value)
        if not is_base_of(known, actual):
            return rx.MatchCast(old.var, value, known, old.span)
        if actual != known:
            self.refined[old.var] = actual
        return replace(old, value=value)

    def _count(self, olds: Sequence[rx.Binding], news: Iterable[rx.Binding]) -> None:
        """Store how many rewritings led to the new bindings."""
        depth = 1 + max((self._depth.get(b.var, 0) for b in olds if b.var is not None), default=0)
        if depth > self.limit or self.iterations > self.max_iterations:
            times = min(depth, self.limit)
            raise TransformError(
                f"the rewriting does not end: {_names(olds)} was rewritten {times} times",
                span=olds[-1].span,
                hint="the replacement matches the pattern again; where there is nothing to do, let "
                "the rewriter return the expression: a function that rewrite_call takes can, "
                "a class of a pattern and a replacement cannot",
            )
        for binding in news:
            if binding.var is not None:
                self._depth[binding.var] = depth
                self.touched.add(binding.var)


def _names(olds: Sequence[rx.Binding]) -> str:
    return ", ".join(b.var.name_hint for b in olds if b.var is not None) or "a cast"


def _is_unchanged(value: rx.Expr, old: rx.Binding) -> bool:
    return value is old.value or is_same_program(value, old.value)


def _in_one_block(seq: rx.SeqExpr, kind: Kind) -> rx.SeqExpr:
    """The sequence with all bindings in one block of this kind, and the right kind of variables."""
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    local = rx.DataflowVar if issubclass(kind, rx.DataflowBlock) else rx.Var
    table = {
        b.var: local(b.var.name_hint, b.var.struct_info, b.var.span)
        for b in bindings
        if b.var is not None and type(b.var) is not local
    }
    return rename(rebuild(seq, blocks=(kind(tuple(bindings)),)), table)


def _proved_cast(
    bindings: Sequence[rx.Binding], visible: Container[tir.Var]
) -> tuple[int, dict[tir.Var, tir.PrimExpr], rx.Expr] | None:
    """The index of the first cast that is proved, the variables it defines, its value (OPT-9)."""
    for index, binding in enumerate(bindings[:-1]):
        actual = binding.value.struct_info
        if not isinstance(binding, rx.MatchCast) or actual is None or not is_leaf(binding.value):
            continue
        images = map_params([binding.struct_info], [actual], visible)
        defined = (v for v in definable_shape_vars(binding.struct_info) if v not in visible)
        unknown = any(var not in images for var in defined)
        if not unknown and is_base_of(substitute_info(binding.struct_info, images), actual):
            return index, images, binding.value
    return None


def _located(binding: rx.Binding, span: Span | None) -> rx.Binding:
    """The binding with a position for itself and its value, if they have none."""
    value = binding.value
    if value.span is None and isinstance(value, (rx.Call, rx.TupleGetItem)):
        binding = replace(binding, value=replace(value, span=span))
    return binding if binding.span is not None else replace(binding, span=span)


Rewriter: TypeAlias = Callable[..., object]


def as_replacement(value: object, old: rx.Expr) -> rx.Expr | None:
    """The replacement that a rewriter returned for an expression, or None if it keeps it.

    Errors:
        MisuseError (also TypeError): it is not an expression.
    """
    if value is None or value is old:
        return None
    if not isinstance(value, rx.Expr):
        raise MisuseError(
            f"a rewriter returns an expression or None, found {described(value)}", about=value
        )
    return value
