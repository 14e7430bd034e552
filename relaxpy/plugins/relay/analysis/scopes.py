"""The scope at which each expression is evaluated, which matters for shared ones (RLY-110)."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import postorder
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.op.registry import Op

_ATOMS = (rl.Var, rl.GlobalVar, rl.Constant, rl.Literal, rl.Constructor, Op)


def is_atom(expr: Node) -> bool:
    """Return whether an expression is a name or a constant, whose evaluation does nothing."""
    return isinstance(expr, _ATOMS)


class Scope:
    """A function body, let body, branch or clause: `root` is its expression.

    `nodes` are the expressions evaluated there, operands before the expressions that use them.
    """

    __slots__ = ("depth", "nodes", "parent", "root")

    depth: int

    def __init__(self, root: rl.RelayExpr, parent: Scope | None) -> None:
        self.root = root
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.nodes: list[rl.RelayExpr] = []

    def common(self, other: Scope) -> Scope:
        """Return the innermost scope that contains this one and another."""
        one: Scope = self
        while one is not other:
            if one.depth >= other.depth:
                assert one.parent is not None
                one = one.parent
            else:
                assert other.parent is not None
                other = other.parent
        return one


class Scopes:
    """The scopes of an expression, which is the root of the outermost one.

    `nodes` are all expressions but atoms, operands before the expressions that use them; `lets` are
    the lets among them. `uses` are the numbers of their uses, and `inner` the scopes that a
    Function, Let, If or Match opens, in their order.
    """

    def __init__(self, root: rl.RelayExpr) -> None:
        self.outermost = Scope(root, None)
        self.of: dict[int, Scope] = {id(root): self.outermost}
        self.uses: dict[int, int] = {id(root): 1}
        self.inner: dict[int, tuple[Scope, ...]] = {}
        order = [*postorder([root], _operands)]
        self.nodes = order
        self.lets = [node for node in order if isinstance(node, rl.Let)]
        for node in reversed(order):
            self._visit(node)
        for node in order:
            self.of[id(node)].nodes.append(node)

    def _visit(self, node: rl.RelayExpr) -> None:
        """Enter the uses of the operands of a node; those of its own are all known."""
        scope = self.of[id(node)]
        opened = tuple(Scope(root, scope) for root in scope_roots(node))
        if opened:
            self.inner[id(node)] = opened
        for operand in same_scope(node):
            self._use(operand, scope)
        for inner in opened:
            self._use(inner.root, inner)

    def _use(self, expr: rl.RelayExpr, scope: Scope) -> None:
        if is_atom(expr):
            return
        known = self.of.get(id(expr))
        self.of[id(expr)] = scope if known is None else known.common(scope)
        self.uses[id(expr)] = self.uses.get(id(expr), 0) + 1


def same_scope(node: rl.RelayExpr) -> tuple[rl.RelayExpr, ...]:
    """Return the operands of an expression that are evaluated in its own scope, in order."""
    match node:
        case rl.Tuple(fields=fields):
            return fields
        case rl.TupleGetItem(tuple_value=value) | rl.RefCreate(value=value) | rl.Let(value=value):
            return (value,)
        case rl.Call(op=op, args=args):
            return (op, *args)
        case rl.If(cond=cond):
            return (cond,)
        case rl.Match(data=data):
            return (data,)
        case rl.RefRead(ref=ref):
            return (ref,)
        case rl.RefWrite(ref=ref, value=value):
            return (ref, value)
        case _:
            return ()


def scope_roots(node: rl.RelayExpr) -> tuple[rl.RelayExpr, ...]:
    """Return the operands of an expression that open a scope of their own."""
    match node:
        case rl.Function(body=body) | rl.Let(body=body):
            return (body,)
        case rl.If(true_branch=true, false_branch=false):
            return (true, false)
        case rl.Match(clauses=clauses):
            return tuple(clause.rhs for clause in clauses)
        case _:
            return ()


def _operands(node: rl.RelayExpr) -> Iterator[rl.RelayExpr]:
    for operand in (*same_scope(node), *scope_roots(node)):
        if not is_atom(operand):
            yield operand
