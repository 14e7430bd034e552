"""Simplify: expressions and branches of kernels are simplified by the facts at each of them.

RemoveNoOp: statements of kernels that have no effect are removed.

Other passes lower blocks and loops to simpler statements, and hoist conditions out of loops.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.arith.algebra.data import holds_data
from relaxpy.ir.arith.algebra.folding import is_safe
from relaxpy.ir.arith.tvm.analyzer import Analyzer, Extension
from relaxpy.ir.core.dtype import INT32
from relaxpy.ir.core.memo import MANY, unshared_size
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import (
    map_children,
    occurrences,
    rebuild,
    rename,
    rewrite,
    tree_size,
    walk,
)
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.tir import expr as tir, ops, stmt as st
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.ir.tir.prim_func import PrimFunc, defined_in, folded_literals, scalars_of
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass

_OPTION = "tir.Simplify"
#: The options of TVM that enable rules; those that follow the elements of buffers have no effect.
_EXTENSIONS = {
    "transitively_prove_inequalities": Extension.TransitivelyProveInequalities,
    "convert_boolean_to_and_of_ors": Extension.ConvertBooleanToAndOfOrs,
    "apply_constraints_to_boolean_branches": Extension.ApplyConstraintsToBooleanBranches,
    "propagate_knowns_to_prove_conditional": Extension.NoExtensions,
    "propagate_knowns_to_simplify_expressions": Extension.NoExtensions,
}
register_config(_OPTION, Mapping, fields=dict.fromkeys(_EXTENSIONS, False))
_INEQUALITIES = (tir.LT, tir.LE, tir.GT, tir.GE)
THREADS = ("thread_extent", "virtual_thread")


@dataclass(frozen=True)
class Simplify(Pass):
    """Simplifies expressions; removes branches with known conditions, and no-ops.

    Rule: The facts are the ranges of loops and of block variables, values that names are bound to,
    conditions of branches and assertions around a statement, assumptions before it, and that no
    dimension of a parameter is negative. A name bound to a literal or to another name
        is replaced by it. A store of an element to itself is removed. The option "tir.Simplify" of
        a PassContext enables more rules, by the names that TVM has; the contents of buffers are not
        tracked, whatever it says.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        extensions = _extensions((ctx.config or {}).get(_OPTION, {}))
        return map_functions(mod, PrimFunc, lambda func: simplified(func, extensions))


def _extensions(options: Mapping[str, object]) -> Extension:
    enabled = Extension.NoExtensions
    for name, value in options.items():
        enabled |= _EXTENSIONS[name] if value else Extension.NoExtensions
    return enabled


def simplified(func: PrimFunc, extensions: Extension = Extension.NoExtensions) -> PrimFunc:
    """`func` with a simplified body; itself if nothing is simpler."""
    return Simplifier(extensions).function(func)


class Simplifier:
    """Simplifies statements from the outside in, with an Analyzer of the enclosing scopes."""

    def __init__(self, extensions: Extension) -> None:
        self.analyzer = Analyzer()
        self.analyzer.enabled_extensions = extensions
        self.inlined: dict[Var, PrimExpr] = {}
        self.bound: dict[Var, PrimExpr] = {}

    def function(self, func: PrimFunc) -> PrimFunc:
        """`func` with its body changed; itself if that stays."""
        self.analyzer.declare_data(*scalars_of(func))
        shapes = [size for b in func.buffer_map.values() for size in b.shape if is_safe(size)]
        with self.assuming(*(size >= 0 for size in shapes)):
            body = self.statement(func.body)
        return func if body is func.body else func.with_body(body)

    @contextmanager
    def assuming(self, *conditions: PrimExpr) -> Iterator[None]:
        """Conditions that hold inside the `with` statement; bindings are dropped at its end."""
        known = (substitute(condition, self.inlined) for condition in conditions)
        with self.analyzer.constraint_scope(ops.all_of(ops.truth(True), *filter(is_safe, known))):
            yield

    @contextmanager
    def ranging(self, *domains: tuple[Var, Range | None]) -> Iterator[None]:
        """Variables run through ranges in the `with` statement."""
        with self.assuming():
            for var, domain in domains:
                if domain is not None and is_safe(domain.min) and is_safe(domain.extent):
                    self.analyzer.bind(var, self.operand(domain), allow_override=True)
            yield

    def expression(self, value: PrimExpr) -> PrimExpr:
        """The canonical form of `value` if that is smaller, a literal, or of its inequalities."""
        value = substitute(value, self.inlined)
        if isinstance(value, Var) and not value.dtype.is_bool:
            return value
        simple = self.analyzer.simplify(value)
        changes = (
            isinstance(simple, tir.ConstExpr)
            or tree_size(simple) < tree_size(value)
            or any(isinstance(node, _INEQUALITIES) for node in walk(value))
        )
        return simple if changes else value

    def operand(self, node: Any) -> Any:
        """A node in a statement: a statement, an expression, or what has some of these."""
        match node:
            case st.Stmt():
                return self.statement(node)
            case Buffer():
                return node
            case IterVar(var=var):
                return map_children(lambda n: n if n is var else self.operand(n), node)
            case PrimExpr():
                return self.expression(node)
            case _:
                return map_children(self.operand, node)

    def holds(self, condition: PrimExpr) -> bool | None:
        """True if `condition` is known to be true or false; names are replaced by their values."""
        for value in (condition, substitute(condition, self.bound)):
            simple = self.analyzer.simplify(substitute(value, self.inlined))
            if isinstance(simple, tir.IntImm):
                return bool(simple.value)
        return None

    def statement(self, stmt: st.Stmt) -> st.Stmt:
        """`stmt` in its simplest form; itself if nothing is simpler."""
        match stmt:
            case st.SeqStmt():
                return self.sequence(stmt)
            case st.For(loop_var=var, min=first, extent=extent, body=body):
                with self.ranging((var, Range.from_min_extent(first, extent))):
                    inside = self.statement(body)
                return self.with_body(stmt, inside)
            case st.Block(iter_vars=axes):
                with self.ranging(*((axis.var, axis.dom) for axis in axes)):
                    return map_children(self.operand, stmt)
            case st.AttrStmt(node=IterVar(var=var), attr_key=key, value=extent) if key in THREADS:
                with self.ranging((var, Range(extent))):
                    return map_children(self.operand, stmt)
            case st.LetStmt():
                return self.let(stmt)
            case st.IfThenElse():
                return self.branch(stmt)
            case st.AssertStmt(condition=condition, body=body):
                with self.assuming(condition):
                    inside = self.statement(body)
                return self.with_body(stmt, inside)
            case st.BufferStore():
                store = map_children(self.operand, stmt)
                return nothing() if self.stores_itself(store) else store
            case _:
                return map_children(self.operand, stmt)

    def stores_itself(self, store: st.BufferStore) -> bool:
        """True if a store writes the element that it loads."""
        value = store.value
        if not isinstance(value, BufferLoad) or value.buffer is not store.buffer:
            return False
        return value.predicate is store.predicate is None and all(
            a.same_as(b) or (is_safe(a) and is_safe(b) and self.are_equal(a, b))
            for a, b in zip(value.indices, store.indices, strict=True)
        )

    def are_equal(self, a: PrimExpr, b: PrimExpr) -> bool:
        """True if two values are known to be equal."""
        names = {**self.bound, **self.inlined}
        return a.dtype == b.dtype and self.analyzer.can_prove_equal(
            substitute(a, names), substitute(b, names)
        )

    def with_body(self, stmt: st.For | st.AssertStmt, body: st.Stmt) -> st.Stmt:
        """`stmt` with its operands other than the body simplified without the facts of the body."""
        return map_children(lambda node: body if node is stmt.body else self.operand(node), stmt)

    def sequence(self, stmt: st.SeqStmt) -> st.Stmt:
        """The statements that do something, each where the assumptions before it hold."""
        kept: list[st.Stmt] = []
        with ExitStack() as known:
            for child in stmt.seq:
                changed = self.statement(child)
                if not does_nothing(changed):
                    kept.append(changed)
                match child:
                    case st.Evaluate(value=tir.Call(op=Op(name="tir.assume"), args=(condition,))):
                        known.enter_context(self.assuming(condition))
                    case _:
                        pass
        if len(kept) == len(stmt.seq) and all(map(operator.is_, kept, stmt.seq)):
            return stmt
        return st.stmt_seq(*kept) if kept else nothing()

    def let(self, stmt: st.LetStmt) -> st.Stmt:
        """A let, or its body with the name replaced by a literal or another name."""
        var, value = stmt.var, self.expression(stmt.value)
        inlines = isinstance(value, (tir.ConstExpr, Var))
        table = self.inlined if inlines else self.bound
        if inlines or is_safe(value):
            table[var] = value
        if holds_data(value, self.analyzer.data):
            self.analyzer.declare_data(var)
        body = self.statement(stmt.body)
        table.pop(var, None)
        if inlines and not is_used(var, body):
            return body
        same = value is stmt.value and body is stmt.body
        return stmt if same else rebuild(stmt, value=value, body=body)

    def branch(self, stmt: st.IfThenElse) -> st.Stmt:
        """A branch, or the case that is taken."""
        taken = self.holds(stmt.condition)
        if taken is not None:
            case = stmt.then_case if taken else stmt.else_case
            return nothing() if case is None else self.statement(case)
        match condition := self.expression(stmt.condition):
            case tir.Call(op=Op(name="tir.likely"), args=(known,)):
                pass
            case known:
                pass
        with self.assuming(known):
            yes = self.statement(stmt.then_case)
        no = stmt.else_case
        if no is not None:
            with self.assuming(ops.logical_not(known)):
                no = self.statement(no)
        same = condition is stmt.condition and yes is stmt.then_case and no is stmt.else_case
        return stmt if same else rebuild(stmt, condition=condition, then_case=yes, else_case=no)


def nothing() -> st.Stmt:
    """A statement without effect."""
    return st.Evaluate(ops.const(0, INT32))


def does_nothing(stmt: st.Stmt) -> bool:
    """True if a statement is a literal."""
    return isinstance(stmt, st.Evaluate) and isinstance(stmt.value, tir.IntImm)


def is_used(var: Var, body: st.Stmt) -> bool:
    """True if `body` mentions `var`, declarations of buffers included."""
    for node in walk(body):
        if node is var:
            return True
        if isinstance(node, Buffer):
            fields = (node.data, *node.shape, *node.strides, node.elem_offset)
            if any(var is part for field in fields if field is not None for part in walk(field)):
                return True
    return False


register_config(
    "tir.RemoveNoOp",
    Mapping,
    fields={"use_dataflow_analysis": False, "max_simplification_steps": 0},
    no_effect="stores that later ones overwrite stay",
)


@dataclass(frozen=True)
class RemoveNoOp(Pass):
    """Removes statements without effect: those that compute values only or store what they load.

    Rule:
        A loop without iterations is removed, as are empty loops, branches and allocations, and
        unused names. Values that call functions are still computed. Stores that later ones
        overwrite are kept, whatever the option "tir.RemoveNoOp" of a PassContext is.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(
            mod, PrimFunc, lambda func: _Remover(Extension.NoExtensions).function(func)
        )


@dataclass(frozen=True)
class RemoveAssume(RemoveNoOp):
    """Removes `T.assume`, and statements that have no effect after that."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def assumption(node: Node) -> Node | None:
            match node:
                case st.Evaluate(value=tir.Call(op=Op(name="tir.assume"))):
                    return nothing()
                case _:
                    return None

        def without(func: PrimFunc) -> PrimFunc:
            body = cast("st.Stmt", rewrite(func.body, assumption))
            return func if body is func.body else func.with_body(body)

        return RemoveNoOp.transform(self, map_functions(mod, PrimFunc, without), ctx)


class _Remover(Simplifier):
    """Removes statements by the facts of the simplifier, and leaves expressions unchanged."""

    @override
    def expression(self, value: PrimExpr) -> PrimExpr:
        return value

    @override
    def statement(self, stmt: st.Stmt) -> st.Stmt:
        match changed := super().statement(stmt):
            case st.Evaluate(value=value) if not does_nothing(changed):
                return _computed(value)
            case st.For(extent=extent, body=body):
                is_empty = self.holds(extent <= 0) is True
                if is_empty or does_nothing(body):
                    return _computed(changed.min, extent)
            case st.IfThenElse(condition=condition, then_case=yes, else_case=no):
                if no is not None and does_nothing(no):
                    no = None
                if does_nothing(yes):
                    if no is None:
                        return _computed(condition)
                    return st.IfThenElse(ops.logical_not(condition), no)
                return changed if no is changed.else_case else rebuild(changed, else_case=no)
            case st.LetStmt(var=var, value=value, body=body) if not is_used(var, body):
                both = [s for s in (_computed(value), body) if not does_nothing(s)]
                return st.stmt_seq(*both) if both else nothing()
            case st.Allocate(body=body) | st.DeclBuffer(body=body) if does_nothing(body):
                return body
            case _:
                pass
        return changed


def _computed(*values: PrimExpr) -> st.Stmt:
    """The values that have effects, computed for these; nothing if there are none."""
    kept = [value for value in values if _has_effect(value)]
    return st.stmt_seq(*kept) if kept else nothing()


def _has_effect(value: PrimExpr) -> bool:
    return any(effect_of(call) > CallEffectKind.ReadState for call in occurrences(value, tir.Call))


_HOIST = "tir.HoistIfThenElse"
_OVER_THREADS = ("support_block_scope_hoisting", "support_block_scope_hosting")
register_config(_HOIST, Mapping, fields=dict.fromkeys(_OVER_THREADS, False))
register_config(
    "tir.UnrollLoop",
    Mapping,
    fields={
        "auto_max_step": 0,
        "auto_max_depth": 8,
        "auto_max_extent": 0,
        "explicit_unroll": True,
        "unroll_local_access": False,
    },
    no_effect="only loops of T.unroll are unrolled",
)


class _StatementPass(Pass):
    """A pass that replaces statements one by one, those inside of others first."""

    __slots__ = ()

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def changed(func: PrimFunc) -> PrimFunc:
            body = cast("st.Stmt", rewrite(func.body, self.rule))
            return func if body is func.body else func.with_body(body)

        return map_functions(mod, PrimFunc, changed)

    @abstractmethod
    def rule(self, node: Node) -> Node | None:
        """The replacement of a node; None if it stays."""


@dataclass(frozen=True, slots=True)
class LowerInitBlock(_StatementPass):
    """Puts the init of blocks into their bodies, under a condition: the first iteration."""

    @override
    def rule(self, node: Node) -> Node | None:
        if not isinstance(node, st.Block) or node.init is None:
            return None
        first = [
            ops.compare(tir.EQ, axis.var, axis.dom.min)
            for axis in node.iter_vars
            if axis.iter_type == IterVarKind.CommReduce and axis.dom is not None
        ]
        init = st.IfThenElse(ops.all_of(*first), node.init) if first else node.init
        return rebuild(node, init=None, body=st.stmt_seq(init, node.body))


@dataclass(frozen=True, slots=True)
class ConvertBlocksToOpaque(_StatementPass):
    """Replaces the variables of blocks by their values, after `LowerInitBlock`.

    Errors:
        TransformError: the predicate of a block mentions its variables, or the value of one depends
            on the contents of buffers.
    """

    @override
    def rule(self, node: Node) -> Node | None:
        if not isinstance(node, st.BlockRealize) or not node.iter_values:
            return None
        block = cast("st.Block", LowerInitBlock().rule(node.block) or node.block)
        variables = [axis.var for axis in block.iter_vars]
        if mentions(node.predicate, variables):
            raise TransformError(f"the predicate of block {block.name_hint} mentions its variables")
        values = {}
        for var, value in zip(variables, node.iter_values, strict=True):
            if not is_safe(value):
                raise TransformError(
                    f"variable {var.name} of block {block.name_hint} is `{value}`, which may change"
                )
            values[var] = ops.cast_to(value, var.dtype)
        opaque = substitute(rebuild(block, iter_vars=()), values)
        return st.BlockRealize((), node.predicate, opaque, node.span)


@dataclass(frozen=True, slots=True)
class UnrollLoop(_StatementPass):
    """Replaces loops that are to be unrolled (`T.unroll`) by their iterations, one after the other.

    Rule:
        The extent has to be a literal. The option "tir.UnrollLoop" of a PassContext, by which TVM
        chooses more loops, has no effect.

    Errors:
        TransformError: the copies of a body would have more than 2**18 nodes.
    """

    @override
    def rule(self, node: Node) -> Node | None:
        match node:
            case st.For(loop_var=var, min=first, extent=tir.IntImm(value=count), body=body) if (
                node.kind == st.ForKind.UNROLLED
            ):
                size, _ = unshared_size(body)
                if count * size > MANY:
                    raise TransformError(
                        f"unrolling the loop over {var.name} would make {count} copies of a body "
                        f"of {size} nodes, expected at most {MANY} nodes in all"
                    )
                defined = defined_in(body)
                copies = []
                for k in range(count):
                    copy = rename(body, {v: v.renamed(v.name) for v in defined}) if k else body
                    at = {var: first + ops.const(k, var.dtype)}
                    copies.append(substitute(copy, at, folded_literals))
                return st.stmt_seq(*copies) if copies else nothing()
            case _:
                return None


@dataclass(frozen=True, slots=True)
class HoistIfThenElse(Pass):
    """Hoists loop-invariant conditions out of loops whose whole body they are (loop unswitching).

    Rule:
        `for i: if c: a else: b` becomes `if c: (for i: a) else: (for i: b)`, also out of several
        loops, where c neither mentions i, nor reads a buffer, nor may fail. Conditions that mention
        threads stay unless the option "tir.HoistIfThenElse" of a PassContext, a dict, has a true
        "support_block_scope_hoisting"; then conditions also leave what binds threads.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        over_threads = any((ctx.config or {}).get(_HOIST, {}).values())

        def changed(func: PrimFunc) -> PrimFunc:
            threads = () if over_threads else tuple(_threads(func.body))

            def rule(node: Node) -> Node | None:
                match node:
                    case st.For(loop_var=var, body=st.IfThenElse() as branch):
                        pass
                    case st.AttrStmt(node=IterVar(var=var), body=st.IfThenElse() as branch) if (
                        over_threads and node.attr_key in THREADS
                    ):
                        pass
                    case _:
                        return None
                if not is_safe(branch.condition) or mentions(branch.condition, (var, *threads)):
                    return None
                other = branch.else_case
                if other is not None:
                    other = rename(rebuild(node, body=other), {var: var.renamed(var.name)})
                return rebuild(
                    branch, then_case=rebuild(node, body=branch.then_case), else_case=other
                )

            body = cast("st.Stmt", rewrite(func.body, rule))
            return func if body is func.body else func.with_body(body)

        return map_functions(mod, PrimFunc, changed)


def _threads(body: st.Stmt) -> Iterator[tir.Var]:
    """The variables that threads are bound to."""
    for node in walk(body):
        if isinstance(node, st.For) and node.kind == st.ForKind.THREAD_BINDING:
            yield node.loop_var
        elif isinstance(node, st.AttrStmt) and node.attr_key in THREADS:
            yield from [node.node.var] if isinstance(node.node, IterVar) else ()
