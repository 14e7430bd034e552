"""Passes that lower blocks and loops to simpler statements, and hoist conditions out of loops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import cast

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.arith.algebra.folding import is_safe
from relaxpy.ir.core.memo import MANY, unshared_size
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rename, rewrite, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import IterVarKind
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.prim_func import PrimFunc, defined_in, folded_literals
from relaxpy.ir.tir.stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    For,
    ForKind,
    IfThenElse,
    Stmt,
    stmt_seq,
)
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.tir.simplify import THREADS, nothing

_HOIST = "tir.HoistIfThenElse"
register_config(_HOIST, Mapping)
register_config("tir.UnrollLoop", Mapping)


class _StatementPass(Pass):
    """A pass that replaces statements one by one, those inside of others first."""

    __slots__ = ()

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def changed(func: PrimFunc) -> PrimFunc:
            body = cast("Stmt", rewrite(func.body, self.rule))
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
        if not isinstance(node, Block) or node.init is None:
            return None
        first = [
            ops.compare(tir.EQ, axis.var, axis.dom.min)
            for axis in node.iter_vars
            if axis.iter_type == IterVarKind.CommReduce and axis.dom is not None
        ]
        init = IfThenElse(ops.all_of(*first), node.init) if first else node.init
        return rebuild(node, init=None, body=stmt_seq(init, node.body))


@dataclass(frozen=True, slots=True)
class ConvertBlocksToOpaque(_StatementPass):
    """Replaces the variables of blocks by their values, after `LowerInitBlock`.

    Errors:
        TransformError: the predicate of a block mentions its variables, or the value of one depends
            on the contents of buffers.
    """

    @override
    def rule(self, node: Node) -> Node | None:
        if not isinstance(node, BlockRealize) or not node.iter_values:
            return None
        block = cast("Block", LowerInitBlock().rule(node.block) or node.block)
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
        return BlockRealize((), node.predicate, opaque, node.span)


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
            case For(loop_var=var, min=first, extent=tir.IntImm(value=count), body=body) if (
                node.kind == ForKind.UNROLLED
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
                    at = {var: ops.add(first, ops.const(k, var.dtype))}
                    copies.append(substitute(copy, at, folded_literals))
                return stmt_seq(*copies) if copies else nothing()
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
        options = (ctx.config or {}).get(_HOIST, {})
        unknown = options.keys() - {"support_block_scope_hoisting"}
        if unknown:
            raise MisuseError(f"{_HOIST} has no option {min(unknown)!r}", about=options)
        over_threads = any(options.values())

        def changed(func: PrimFunc) -> PrimFunc:
            threads = () if over_threads else tuple(_threads(func.body))

            def rule(node: Node) -> Node | None:
                match node:
                    case For(loop_var=var, body=IfThenElse() as branch):
                        pass
                    case AttrStmt(node=IterVar(var=var), body=IfThenElse() as branch) if (
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

            body = cast("Stmt", rewrite(func.body, rule))
            return func if body is func.body else func.with_body(body)

        return map_functions(mod, PrimFunc, changed)


def _threads(body: Stmt) -> Iterator[tir.Var]:
    """The variables that threads are bound to."""
    for node in walk(body):
        if isinstance(node, For) and node.kind == ForKind.THREAD_BINDING:
            yield node.loop_var
        elif isinstance(node, AttrStmt) and node.attr_key in THREADS:
            yield from [node.node.var] if isinstance(node.node, IterVar) else ()
