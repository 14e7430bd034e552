"""From what a rewriter gave to bindings: in normal form, derived, and checked to fit."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from relaxpy.errors import MisuseError, RelaxpyError, TransformError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.purity import calls_made
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl.effects import Effects
from relaxpy.ir.relax.dpl.expand import is_same_program
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    StructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.relations import is_base_of, provably_disjoint
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars, substitute_info
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars, replace_variables
from relaxpy.ir.tir import expr as tir

Kind: TypeAlias = type[BindingBlock]


@dataclass(frozen=True, slots=True)
class New:
    """What stands for a binding: those before it, and it with its new value."""

    before: tuple[Binding, ...]
    last: tuple[Binding, ...]


class Replacing:
    """Makes bindings of what rewriters give, in one function.

    `touched` are the variables with new values, `introduced` those of them that are new, `sharper`
    the infos of those of which more is known by now, `visible` what may be mentioned. Variables
    that are `matched` belong to what was replaced.
    """

    def __init__(self, mod: IRModule | None, extra: Mapping[str, BaseFunc], root: Expr) -> None:
        self.mod = mod
        self.builder = PyExprMutator(mod).builder_
        functions = {} if mod is None else {var.name_hint: func for var, func in mod.items()}
        self.effects = Effects(self.builder.context, ChainMap(functions, extra), root)  # type: ignore[arg-type]
        self.touched: set[Var] = set()
        self.introduced: set[Var] = set()
        self.matched: set[Var] = set()
        self.sharper: dict[Var, StructInfo] = {}
        self.visible: set[Any] = set()
        self.limit = self.most_rounds = self.rounds = 0
        self._depth: dict[Var, int] = {}

    def values(
        self,
        olds: Sequence[Binding],
        new: Expr,
        bound: Mapping[Expr, Var],
        kind: Kind,
        *,
        fields: bool = False,
    ) -> New | None:
        """The bindings that give the variables of `olds` new values; None if they have these.

        There is one variable for `new`, or one for each of its `fields`. Values in `bound` are not
        computed again, their variables are used. The new bindings stand in a block of the kind
        given.

        Errors:
            TransformError: a new value makes an impure call, branches in a dataflow block, mentions
                what is not in scope, does not fit the variable, or is rewritten again and again.
        """
        wanted = rename(new, cast("Mapping[Expr, Node]", bound))
        if not all(map(self.effects.is_pure, calls_made(wanted))):
            raise TransformError(
                f"the replacement of {_names(olds)} makes an impure call, but it stands for what "
                "has no effects",
                rule="OPT-1",
                span=olds[-1].span,
            )
        self._check_functions(wanted, olds)
        # One literal may come again, but every parameter is bound once.
        literals = {n: copy_with_new_vars(n) for n in walk(wanted) if isinstance(n, Function)}
        try:
            before, value = self._normal(rename(wanted, literals), kind)
        except RelaxpyError as error:
            error.located(olds[-1].span)
            raise
        values = [value]
        if fields:
            before, values = self._fields(before, value, olds)
        if not before and all(map(_is_same, values, olds)):
            return None
        branches = any(isinstance(v, If) for v in (*values, *(b.value for b in before)))
        if branches and issubclass(kind, DataflowBlock):
            raise TransformError(
                f"the replacement of {_names(olds)} branches, inside a dataflow block",
                rule="WF-7c",
                span=olds[-1].span,
            )
        self._check(before, values, olds)
        last = tuple(self._bind(old, value) for old, value in zip(olds, values, strict=True))
        self._count(olds, (*before, *last))
        self.introduced.update(b.var for b in before if b.var is not None)
        return New(before, last)

    def _fields(
        self, before: tuple[Binding, ...], value: Expr, olds: Sequence[Binding]
    ) -> tuple[tuple[Binding, ...], list[Expr]]:
        """The fields of a tuple, which is bound first if it is not written out."""
        info = self.builder.struct_info_of(value)
        if not isinstance(info, TupleStructInfo) or len(info.fields) != len(olds):
            raise TransformError(
                f"{_names(olds)} are replaced by a tuple of {counted(len(olds), 'field')}, "
                f"found {info}",
                rule="OPT-14",
                span=olds[-1].span,
            )
        if isinstance(value, Tuple):
            return before, list(value.fields)
        if not isinstance(value, Var):
            kind = DataflowVar if isinstance(olds[-1].var, DataflowVar) else Var
            var = kind(self.builder.get_unique_name("lv"), info)
            before, value = (*before, VarBinding(var, value)), var
        return before, [TupleGetItem(value, index) for index in range(len(olds))]

    def _normal(self, new: Expr, kind: Kind) -> tuple[tuple[Binding, ...], Expr]:
        """Bindings, and the value in normal form that rests on them."""
        if isinstance(new, SeqExpr):
            new = _in_one_block(new, kind)
        bindings = self._emitted(new, kind)
        while (split := _proved_cast(bindings, self.visible)) is not None:
            place, images, value = split
            table: dict[Node, Node] = dict(images.items())
            old = bindings[place].var
            if old is not None:
                table[old] = value
            *rest, last = bindings[place + 1 :]
            inner = SeqExpr((kind((*rest, last)),), Tuple(()))
            inner = replace_variables(inner, table)
            *rest, last = inner.blocks[0].bindings
            inner = SeqExpr((kind(tuple(rest)),), last.value)
            bindings = [*bindings[:place], *self._emitted(inner, kind)]
        *before, final = bindings
        return tuple(before), final.value

    def expect(self, count: int) -> None:
        """Allow for what the rewriting of so many bindings may take if it ends at all.

        A replacement may move through all of them, one step at a time in each sweep, and some rules
        take more than one replacement for a step.
        """
        self.limit = max(self.limit, 1000 + 4 * count)
        self.most_rounds = max(self.most_rounds, 100 + count)
        self.rounds = 0

    def see(self, binding: Binding) -> None:
        """Let what a binding defines be visible from now on."""
        if binding.var is not None:
            self.visible.add(binding.var)
        if isinstance(binding, MatchCast):
            self.visible.update(definable_shape_vars(binding.struct_info))

    def leave(self, bindings: Iterable[Binding]) -> None:
        """Let what a block binds for itself alone be visible no more."""
        self.visible.difference_update(b.var for b in bindings if isinstance(b.var, DataflowVar))

    def _emitted(self, expr: Expr, kind: Kind) -> list[Binding]:
        """The bindings that compute `expr`, the last one of which binds it."""
        if issubclass(kind, DataflowBlock):
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

    def _check_functions(self, new: Expr, olds: Sequence[Binding]) -> None:
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

    def _check(
        self, before: Sequence[Binding], values: Sequence[Expr], olds: Sequence[Binding]
    ) -> None:
        """Check that new bindings mention nothing that they do not see."""
        names = _names(olds)
        known: set[Node] = set()
        parts: list[tuple[Expr, Binding | None]] = [(b.value, b) for b in before]
        for value, binding in [*parts, *((value, None) for value in values)]:
            inner = isinstance(value, (Function, If))
            own: set[Node] = set(bound_vars(value)) if inner else set()
            for var in occurring_vars(value):
                if var not in self.visible and var not in known and var not in own:
                    raise _unknown(var.name_hint, names, olds)
            for node in () if inner else walk(value):
                if isinstance(node, tir.Var) and node not in self.visible and node not in known:
                    raise _unknown(node.name, names, olds)
            if binding is not None and binding.var is not None:
                known.add(binding.var)
            if isinstance(binding, MatchCast):
                known.update(definable_shape_vars(binding.struct_info))

    def _bind(self, old: Binding, value: Expr) -> Binding:
        """The variable of `old` bound to a new value, of which at least as much is known (OPT-14).

        Where that is not known to be so, a cast checks it.
        """
        found = self.builder.struct_info_of(value)
        known = self.builder.struct_info_of(old.value)
        if isinstance(old, VarBinding) and old.var.struct_info is not None:
            known = old.var.struct_info
        name = "a cast" if old.var is None else old.var.name_hint
        if provably_disjoint(found, known):
            raise TransformError(
                f"{name} is {known}, its replacement {found}",
                rule="OPT-14",
                span=old.span,
                hint="a rewriter gives back the expression as it is where it cannot replace it",
            )
        if not isinstance(old, VarBinding):
            return replace(old, value=value)
        if not is_base_of(known, found):
            return MatchCast(old.var, value, known, old.span)
        if found != known:
            self.sharper[old.var] = found
        return replace(old, value=value)

    def _count(self, olds: Sequence[Binding], news: Iterable[Binding]) -> None:
        """Note how often what is new was rewritten.

        Errors:
            TransformError: more often than any rewriting that ends.
        """
        depth = 1 + max((self._depth.get(b.var, 0) for b in olds if b.var is not None), default=0)
        if depth > self.limit or self.rounds > self.most_rounds:
            times = min(depth, self.limit)
            raise TransformError(
                f"the rewriting does not end: {_names(olds)} was rewritten {times} times",
                span=olds[-1].span,
                hint="the replacement matches the pattern again; let the rewriter give back the "
                "expression as it is where nothing is to be done",
            )
        for binding in news:
            if binding.var is not None:
                self._depth[binding.var] = depth
                self.touched.add(binding.var)


def _names(olds: Sequence[Binding]) -> str:
    return ", ".join(b.var.name_hint for b in olds if b.var is not None) or "a cast"


def _unknown(name: str, names: str, olds: Sequence[Binding]) -> TransformError:
    return TransformError(
        f"the replacement of {names} uses {name}, which is not in scope there",
        rule="SC-5",
        span=olds[-1].span,
    )


def _is_same(value: Expr, old: Binding) -> bool:
    return value is old.value or is_same_program(value, old.value)


def _in_one_block(seq: SeqExpr, kind: Kind) -> SeqExpr:
    """The sequence with all its bindings in one block, of variables that this kind of block has."""
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    local = DataflowVar if issubclass(kind, DataflowBlock) else Var
    table = {
        b.var: local(b.var.name_hint, b.var.struct_info, b.var.span)
        for b in bindings
        if b.var is not None and type(b.var) is not local
    }
    return rename(rebuild(seq, blocks=(kind(tuple(bindings)),)), table)


def _proved_cast(
    bindings: Sequence[Binding], visible: Container[tir.Var]
) -> tuple[int, dict[tir.Var, tir.PrimExpr], Expr] | None:
    """The first cast that provably succeeds, what it binds, and the value that is cast (OPT-9)."""
    for place, binding in enumerate(bindings[:-1]):
        found = binding.value.struct_info
        if not isinstance(binding, MatchCast) or found is None or not is_leaf(binding.value):
            continue
        images = map_params([binding.struct_info], [found], visible)
        own = (v for v in definable_shape_vars(binding.struct_info) if v not in visible)
        unknown = any(var not in images for var in own)
        if not unknown and is_base_of(substitute_info(binding.struct_info, images), found):
            return place, images, binding.value
    return None


Rewriter: TypeAlias = Callable[..., object]


def as_replacement(value: object, old: Expr) -> Expr | None:
    """What a rewriter gave for an expression, or None if it leaves that as it is.

    Errors:
        MisuseError (also TypeError): it is no expression.
    """
    if value is None or value is old:
        return None
    if not isinstance(value, Expr):
        raise MisuseError(
            f"a rewriter gives an expression or None, found {type(value).__name__} {value!r:.60}",
            about=value,
        )
    return value
