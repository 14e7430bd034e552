"""CanonicalizeBindings: aliases, tuple round trips and superfluous casts are removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import cast_may_fail, computes
from relaxpy.ir.relax.analysis.variables import binding_operands, free_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Binding, BindingBlock, Function, MatchCast, SeqExpr
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.relax.relations.compatibility import provably_disjoint
from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter,
    Refined,
    Rewritten,
    is_sharper,
    replace_variables,
)
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class CanonicalizeBindings(Pass):
    """Removes bindings of values that another variable has, and uses that variable instead.

    These are aliases, casts that cannot fail, fields of a known tuple, and tuples of all fields of
    another tuple. Shape variables that a cast binds to known dimensions are replaced by them. Uses
    of a constant become the constant, if no mutation can show the difference (OPT-11, EV-2). In a
    dataflow block only the variables that are used after it outlive it.

    Errors:
        TransformError (also ValueError): the known dimensions contradict each other.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return canonical_module(mod, refuse_contradictions=True)


def canonical_module(mod: IRModule, *, refuse_contradictions: bool) -> IRModule:
    """The module as CanonicalizeBindings returns it; contradicting casts may be left to fail.

    Errors:
        TransformError: contradictions are refused, and there is one.
    """
    known = partial(with_known_shape_vars, refuse_contradictions=refuse_contradictions)
    before = normalize_module(mod)
    mod = normalize_module(map_functions(before, rx.Function, known))
    changed: set[rx.Var] = set()
    if mod is not before:
        written = {binding.value for binding in _bindings(before)}
        changed.update(binding.var for binding in _bindings(mod) if binding.value not in written)

    def canonical(func: rx.Function) -> rx.Function:
        values = _Values(func)
        rewriter = _Canonicalizer(values, _Uses(func, values), changed)
        return rewriter.expr(func)

    mod = normalize_module(map_functions(mod, rx.Function, canonical))
    return _sharper(mod, changed) if changed else mod


def _sharper(mod: IRModule, changed: set[rx.Var]) -> IRModule:
    """The module with the struct info of values that `changed`, where it is more precise."""
    sinfos = {
        binding.var: actual
        for binding in _bindings(mod)
        if binding.var in changed
        and (actual := binding.value.struct_info)
        and (declared := binding.var.struct_info)
        and is_sharper(actual, declared)
    }
    return map_functions(mod, rx.Function, Refined(mod, sinfos).visit_expr) if sinfos else mod


def _bindings(mod: IRModule) -> Iterator[rx.VarBinding]:
    for func in mod.functions.values():
        if isinstance(func, rx.Function):
            yield from (node for node in walk(func) if isinstance(node, rx.VarBinding))


class _Values:
    """The values of variables.

    `originals` has the variable with the same value for each alias, `constants` the constants, and
    `homes` the blocks that bind the other variables. `bound` are the original values.
    """

    def __init__(self, func: rx.Function) -> None:
        self.originals: dict[rx.Var, rx.Var] = {}
        self.constants: dict[rx.Var, rx.Constant] = {}
        self.homes: dict[rx.Var, rx.BindingBlock] = {}
        self.bound: dict[rx.Var, rx.Expr] = {}
        self._known: dict[rx.Var, rx.Expr] = {}
        self._enter(func.body)

    def root(self, var: rx.Var) -> rx.Var:
        """The variable that `var` is an alias of, or else itself."""
        return self.originals.get(var, var)

    def original(self, expr: rx.Expr) -> rx.Expr:
        """The original of an alias; another expression itself."""
        return self.root(expr) if isinstance(expr, rx.Var) else expr

    def _enter(self, seq: rx.SeqExpr) -> None:
        for block in seq.blocks:
            for binding in block.bindings:
                match binding.value:
                    case rx.If(true_branch=yes, false_branch=no):
                        self._enter(yes)
                        self._enter(no)
                    case rx.Function(body=body):
                        self._enter(body)
                    case _:
                        pass
                if binding.var is not None:
                    self._bind(binding.var, binding, block)

    def _bind(self, var: rx.Var, binding: rx.Binding, block: rx.BindingBlock) -> None:
        value = self._simplified(binding.value)
        if isinstance(value, rx.Var) and not (
            isinstance(binding, rx.MatchCast) and cast_may_fail(binding)
        ):
            self.originals[var] = value
            return
        self.homes[var] = block
        if isinstance(binding, rx.VarBinding):
            self.bound[var] = binding.value
            self._known[var] = value
            if isinstance(value, rx.Constant):
                self.constants[var] = value

    def _simplified(self, value: rx.Expr) -> rx.Expr:
        """The simplest known form of a value: a variable or a constant if possible."""
        match value:
            case rx.Var():
                return self.original(value)
            case rx.TupleGetItem(tuple_value=source, index=index):
                fields = self._known.get(self.original(source), source)  # type: ignore[call-overload]
                return (
                    self.original(fields.fields[index]) if isinstance(fields, rx.Tuple) else value
                )
            case rx.Tuple(fields=fields):
                return self._whole(fields) or value
            case _:
                return value

    def _whole(self, fields: tuple[rx.Expr, ...]) -> rx.Expr | None:
        """The tuple that has exactly these fields, if they were taken from it in order."""
        source = None
        for index, field in enumerate(fields):
            taken = self._known.get(self.original(field))  # type: ignore[call-overload]
            if not isinstance(taken, rx.TupleGetItem) or taken.index != index:
                return None
            if index and self.original(taken.tuple_value) is not source:
                return None
            source = self.original(taken.tuple_value)
        if source is None or not isinstance(source.struct_info, rx.TupleStructInfo):
            return None
        return source if len(source.struct_info.fields) == len(fields) else None


class _Uses:
    """The uses of variables after removal of their aliases.

    `outliving` are those that are used outside the dataflow block that binds them, and `escapes`
    counts the uses other than as operands that are only read. `exposed` are the tuples that escape,
    or of which a field does.
    """

    def __init__(self, func: rx.Function, values: _Values) -> None:
        self.values = values
        self.outliving: set[rx.Var] = set()
        self.escapes: Counter[rx.Var] = Counter()
        self.reads: Counter[rx.Var] = Counter()
        self._enter(func.body)
        if func.ret_struct_info is not None:
            self._use(func.ret_struct_info, None)
        taken = Counter(map(self._source, values.bound))
        self.exposed = {self.whole(var) for var, n in self.escapes.items() if n != taken[var]}

    def _source(self, var: rx.Var) -> rx.Var | None:
        """The tuple that a variable is a field of, if it is bound as one."""
        value = self.values.bound.get(var)
        source = value.tuple_value if isinstance(value, rx.TupleGetItem) else None
        return self.values.root(source) if isinstance(source, rx.Var) else None

    def whole(self, var: rx.Var) -> rx.Var:
        """The tuple that a variable is a field of, or a field of a field; else itself."""
        while (source := self._source(var)) is not None:
            var = source
        return var

    def _enter(self, seq: rx.SeqExpr) -> None:
        for block in seq.blocks:
            for binding in block.bindings:
                if binding.var not in self.values.originals:
                    self._enter_binding(binding, block)
        self._use(seq.body, None)
        self.escapes.update(self._members(seq.body))

    def _enter_binding(self, binding: rx.Binding, block: rx.BindingBlock) -> None:
        value, (_, *sinfos) = binding.value, binding_operands(binding)
        for sinfo in sinfos:
            self._use(sinfo, block)
        match value:
            case rx.If(cond=cond, true_branch=yes, false_branch=no):
                self._use(cond, block)
                self._enter(yes)
                self._enter(no)
            case rx.Function(body=body):
                for var in free_vars(value):
                    self._use(var, None)
                    self.escapes[self.values.root(var)] += 2  # as often as it is called
                self._enter(body)
            case _:
                self._use(value, block)
                kind = self.reads if computes(value) else self.escapes
                kind.update(self._members(value))

    def _use(self, node: Node, block: rx.BindingBlock | None) -> None:
        for var in occurring_vars(node):
            original = self.values.root(var)
            if block is None or self.values.homes.get(original) is not block:
                self._outlives(original)

    def _outlives(self, var: rx.Var) -> None:
        """Enter a variable, and those that its struct info mentions: uses of it mention them."""
        if var not in self.outliving:
            self.outliving.add(var)
            for used in () if var.struct_info is None else occurring_vars(var.struct_info):
                self._outlives(self.values.root(used))

    def _members(self, value: Node) -> Iterator[rx.Var]:
        """The variables that an expression in normal form mentions, as often as it does."""
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if isinstance(node, rx.Var):
                yield self.values.root(node)
            elif isinstance(node, (rx.Tuple, rx.TupleGetItem, rx.Call)):
                waiting += children(node)


class _Canonicalizer(BindingRewriter):
    """`changed` are the variables whose values changed, to which others are added."""

    def __init__(self, values: _Values, uses: _Uses, changed: set[rx.Var]) -> None:
        super().__init__()
        self.values, self.uses, self.changed = values, uses, changed
        self.old_vars: dict[rx.Var, rx.Var] = {}
        names = {old: alias for alias, old in reversed(values.originals.items())}
        for var, block in values.homes.items():
            if isinstance(block, rx.DataflowBlock):
                outlives = var in uses.outliving
                if outlives is isinstance(var, rx.DataflowVar):
                    source = names.get(var, var) if outlives else var
                    kind = rx.Var if outlives else rx.DataflowVar
                    new = kind(source.name_hint, self._sinfo(var), source.span)
                    self._remap[var] = new
                    self.old_vars[new] = var

    def _sinfo(self, var: rx.Var) -> rx.StructInfo | None:
        """The struct info of a variable, over the variables that replace those in it."""
        sinfo = var.struct_info
        if sinfo is None:
            return None
        roots = {v: self.values.root(v) for v in occurring_vars(sinfo)}
        return replace_variables(sinfo, {v: self._remap.get(r, r) for v, r in roots.items()})

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        var = binding.var
        if var is None:
            return None if isinstance(binding, rx.MatchCast) and cast_may_fail(binding) else ()
        if var in self.values.originals:
            self._remap[var] = self._remapped(self.values.originals[var])
            return ()
        old = self.old_vars.get(var, var)
        if binding.value is not self.values.bound.get(old) or old in self.changed:
            self.changed.add(var)
        if old in self.values.constants and self._can_inline(old, var, binding.value):
            self._remap[old] = self.values.constants[old]
        return None

    def _can_inline(self, old: rx.Var, new: rx.Var, value: rx.Expr) -> bool:
        """True if uses of a constant may be the constant, a new tensor each time (EV-2)."""
        if isinstance(old, rx.DataflowVar) and not isinstance(new, rx.DataflowVar):
            return False
        if isinstance(value, rx.TupleGetItem) and self.uses.whole(old) in self.uses.exposed:
            return False
        escapes = self.uses.escapes[old]
        once = escapes == 1 and not self.uses.reads[old] and isinstance(value, rx.Constant)
        return once or not escapes


def with_known_shape_vars(func: Function, *, refuse_contradictions: bool) -> Function:
    """`func` with dimensions of the operand of a match_cast instead of the variables it binds.

    Casts stay, and check these dimensions; those of variables that are bound before are not used.
    A variable stays the name of a large dimension.

    Errors:
        TransformError: contradictions are refused, and the dimensions contradict each other in a
            cast that is always evaluated.
    """
    return _Substitution(refuse_contradictions).expr(func)


class _Substitution(BindingRewriter):
    """Keeps track of the shape variables in scope, and of how deep sequences are nested."""

    _remaps_shape_vars = True

    def __init__(self, refuse_contradictions: bool) -> None:
        super().__init__()
        self.refuse_contradictions = refuse_contradictions
        self.scope: set[tir.Var] = set()
        self.depth = 0

    @override
    def function(self, func: Function) -> Function:
        outer = set(self.scope)
        self.scope.update(shape_vars.shape_vars_of(func.params))
        after = super().function(func)
        self.scope = outer
        return after

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        outer = set(self.scope)
        self.depth += 1
        after = super().sequence(seq)
        self.depth -= 1
        for var in self.scope - outer:
            self._remap.pop(var, None)
        self.scope = outer
        return after

    @override
    def binding(self, binding: Binding, block: BindingBlock) -> Iterable[Binding | BindingBlock]:
        if isinstance(binding, MatchCast):
            self._enter(binding)
        return super().binding(binding, block)

    def _enter(self, cast: MatchCast) -> None:
        """Find the values of the variables that a cast binds."""
        value = self._remapped(cast.value).struct_info
        if value is not None:
            known = shape_vars.shape_var_map(cast.struct_info, value, self.scope)
            self._remap |= {
                var: ops.cast_to(image, var.dtype)
                for var, image in known.items()
                if not shape_vars.is_large(image, shape_vars.MAX_REPEATED_NODES)
            }
        self.scope.update(shape_vars.definable_shape_vars(cast.struct_info))
        sinfo = self._remapped(cast.struct_info)
        if value is None or not self.refuse_contradictions or self.depth != 1:
            return
        if provably_disjoint(value, sinfo):
            raise TransformError(
                f"MatchCast statements must be consistent, but {value} is cast to {sinfo}",
                rule="MC-7",
                span=cast.span,
            )
