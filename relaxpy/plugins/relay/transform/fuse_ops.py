"""FuseOps groups calls that are computed together as functions; DefuseOps inlines them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import map_children, rename
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.passes.fusion.fuse_ops import MAX_DEPTH
from relaxpy.ir.passes.fusion.partition import GraphNode, Group, partition
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind, op_pattern_kind
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir.expr import IntImm
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Scope, Scopes, is_atom, same_scope, scope_roots
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.op.relations import RelationError
from relaxpy.plugins.relay.op.struct_info import Names, translated
from relaxpy.plugins.relay.transform.inline import fresh
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions, map_typed
from relaxpy.plugins.relay.ty import TensorType, Type
from relaxpy.support.dataclass import dataclass, replace

PRIMITIVE: Final = "Primitive"


@dataclass(frozen=True)
class FuseOps(RelayPass):
    """Makes functions with the attribute `Primitive=1` of calls of operators computed together.

    A group is computed in the same scope; ToGraphNormalForm makes scopes larger. Which calls are
    fused follows, as in Relax, from the kernels that operators are translated to. With
    `fuse_opt_level` 0 each call is a function of its own; -1 is the level of the PassContext.
    """

    fuse_opt_level: int = -1

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        level = PassContext.current().opt_level if self.fuse_opt_level < 0 else self.fuse_opt_level
        limit = MAX_DEPTH if level else 1

        def fused(function: rl.Function) -> rl.RelayExpr:
            return function if PRIMITIVE in function.attrs else _Fusion(function, limit).result()

        return map_typed(mod, fused)


@dataclass(frozen=True)
class DefuseOps(RelayPass):
    """Replaces the calls of functions with the attribute `Primitive` by the bodies of these."""

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_functions(mod, defused)


def defused(function: rl.Function) -> rl.RelayExpr:
    """A function without calls of primitive functions."""

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.Function(attrs=attrs) as callee, args=args) if PRIMITIVE in attrs:
                copy = fresh(callee)
                return rename(copy.body, dict(zip(copy.params, args, strict=True)))
            case _:
                return None

    return rl.rewrite(function, rule)


class _Fusion:
    """The groups of a typed function, and the function with calls of groups."""

    def __init__(self, function: rl.Function, limit: int) -> None:
        self.function = function
        self.scopes = Scopes(function)
        self.groups: dict[int, list[rl.RelayExpr]] = {}
        self.done: dict[int, Any] = {}
        skipped = self._inside_primitives()
        users = self._users()
        for scope in {id(s): s for s in self.scopes.of.values()}.values():
            if scope not in skipped:
                self._group(scope, users, limit)

    def _inside_primitives(self) -> set[Scope]:
        """The scopes of functions that are groups already."""
        found: set[Scope] = set()
        for node in reversed(self.scopes.nodes):  # those outside come first
            opened = self.scopes.inner.get(id(node), ())
            primitive = isinstance(node, rl.Function) and PRIMITIVE in node.attrs
            if primitive or self.scopes.of[id(node)] in found:
                found.update(opened)
        return found

    def _users(self) -> dict[int, list[rl.RelayExpr | None]]:
        """The expressions that use each one; None is one of another scope."""
        users: dict[int, list[rl.RelayExpr | None]] = {}
        for node in self.scopes.nodes:
            scope = self.scopes.of[id(node)]
            for operand in same_scope(node):
                same = self.scopes.of.get(id(operand)) is scope
                users.setdefault(id(operand), []).append(node if same else None)
            for root in scope_roots(node):
                users.setdefault(id(root), []).append(None)
        return users

    def _group(self, scope: Scope, users: dict[int, list[rl.RelayExpr | None]], limit: int) -> None:
        index = {id(node): number for number, node in enumerate(scope.nodes)}
        graph = []
        for node in scope.nodes:
            used = users.get(id(node), [])
            leaves = node is scope.root or None in used or not used
            numbers = [index[id(user)] for user in used if user is not None]
            graph.append(GraphNode(_kind(node), numbers, leaves=leaves))
        members: dict[Group, list[rl.RelayExpr]] = {}
        for node, group in zip(scope.nodes, partition(graph, limit, _always), strict=True):
            members.setdefault(group, []).append(node)
        for nodes in members.values():
            if any(_is_operator(node) for node in nodes):
                self.groups |= dict.fromkeys(map(id, nodes), nodes)

    def result(self) -> rl.RelayExpr:
        """The function with a call of a function for each group."""
        for node in self.scopes.nodes:
            group = self.groups.get(id(node))
            if group is None:
                self.done[id(node)] = map_children(self._operand, node)
            elif node is group[-1]:
                self.done[id(node)] = self._call(group)
        new: rl.RelayExpr = self.done[id(self.function)]
        return new

    def _operand(self, child: Node) -> Node:
        if isinstance(child, rl.Clause):
            rhs = self.done.get(id(child.rhs), child.rhs)
            return child if rhs is child.rhs else replace(child, rhs=rhs)
        new: Node = self.done.get(id(child), child)
        return new

    def _call(self, group: Sequence[rl.RelayExpr]) -> rl.Call:
        """The call of the function of a group; scalar constants stay inside."""
        own = set(map(id, group))
        table: dict[Node, Node] = {}
        args: list[rl.RelayExpr] = []
        for node in group:
            for operand in same_scope(node):
                known = id(operand) in own or operand in table
                constant = isinstance(operand, rl.Constant) and operand.is_scalar
                if not known and not constant and not isinstance(operand, Op):
                    table[operand] = rl.Var(f"p{len(args)}", operand.checked_type)
                    args.append(operand)
        body = rename(group[-1], table)
        params = tuple(var for var in table.values() if isinstance(var, rl.Var))
        ty, span = group[-1].checked_type, group[-1].span
        function = rl.Function(params, body, ty, attrs=Attrs({PRIMITIVE: 1}), span=span)
        operands = [arg if is_atom(arg) else self.done[id(arg)] for arg in args]
        return rl.Call(function, operands, span=span)  # type: ignore[arg-type]


def _always(node: int, user: int) -> bool:
    return True


def _is_operator(node: rl.RelayExpr) -> bool:
    return isinstance(node, rl.Call) and isinstance(node.op, Op)


def _kind(node: rl.RelayExpr) -> OpPatternKind:
    match node:
        case rl.Call(op=Op() as op, args=args) if _is_operator(node):
            operands = tuple(arg.checked_type for arg in args)
            return _pattern(op, operands, node.attrs, node.checked_type)
        case rl.Tuple():
            return OpPatternKind.TUPLE
        case rl.TupleGetItem(tuple_value=value) if not is_atom(value):
            return OpPatternKind.INJECTIVE
        case _:
            return OpPatternKind.OPAQUE


@lru_cache(maxsize=1024)
def _pattern(op: Op, operands: tuple[Type, ...], attrs: Attrs, ty: Type) -> OpPatternKind:
    """The kind of the kernels that an operator is translated to.

    It is that of the only kernel that is harder to fuse than an injective one. If there is none, it
    is the hardest of those whose result has the shape of the operator's: the others transform
    smaller operands. Several hard ones are opaque.
    """
    try:
        kernels = _kernels(op, operands, attrs, ty)
    except (RelaxpyError, RelationError):
        return OpPatternKind.OPAQUE
    kinds = [op_pattern_kind(kernel) for kernel in kernels]
    hard = [kind for kind in kinds if kind > OpPatternKind.INJECTIVE]
    if hard:
        return hard[0] if len(hard) == 1 else OpPatternKind.OPAQUE
    shape = ty.shape if isinstance(ty, TensorType) else None
    same = [kind for kind, k in zip(kinds, kernels, strict=True) if _result_shape(k) == shape]
    return max(same or kinds, default=OpPatternKind.OPAQUE)


def _kernels(op: Op, operands: tuple[Type, ...], attrs: Attrs, ty: Type) -> list[PrimFunc]:
    names = Names()
    variables = [rx.Var(f"a{i}", names.struct_info(part)) for i, part in enumerate(operands)]
    builder = BlockBuilder(suppress_warnings=True)
    completed = Attrs(op.record.text_attrs(attrs))
    with builder.function("main", variables):
        result = builder.emit(translated(builder, op.record, tuple(variables), completed, ty))
        builder.emit_func_output(result)
    functions = LegalizeOps()(builder.get()).functions.values()
    return [function for function in functions if isinstance(function, PrimFunc)]


def _result_shape(kernel: PrimFunc) -> tuple[object, ...] | None:
    """The shape of the last buffer, if all dimensions are known."""
    dims = kernel.buffer_map[kernel.params[-1]].shape
    if all(isinstance(dim, IntImm) for dim in dims):
        return tuple(dim.value for dim in dims)  # type: ignore[attr-defined]
    return None
