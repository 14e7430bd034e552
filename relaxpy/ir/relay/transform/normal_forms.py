"""A-normal form, in which lets bind all intermediate values, and graph form (RLY-48)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.trampoline import Task, run
from relaxpy.ir.core.traverse import children, map_children
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.effects import Effects
from relaxpy.ir.relay.analysis.scopes import Scope, Scopes, is_atom
from relaxpy.ir.relay.analysis.variables import free_vars
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions
from relaxpy.ir.relay.ty import Type


@dataclass(frozen=True)
class ToANormalForm(RelayPass):
    """Bind every intermediate value by a let, in the order of evaluation.

    Arguments, conditions and matched values become names and constants; a shared expression is
    bound once in its scope (RLY-110).
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_functions(mod, a_normal_form)


def a_normal_form(expr: rl.RelayExpr) -> rl.RelayExpr:
    """Return an expression in A-normal form; the expression itself if it has that form."""
    scopes = Scopes(expr)
    if all(_is_normal(scope) for scope in _all_scopes(scopes)):
        return expr
    form = _ANormalForm(scopes)
    if isinstance(expr, rl.Function):
        function: rl.RelayExpr = run(form.rebuilt(expr))
        return function
    result: rl.RelayExpr = run(form.scope(scopes.outermost))
    return result


def _all_scopes(scopes: Scopes) -> list[Scope]:
    return [scopes.outermost, *(scope for opened in scopes.inner.values() for scope in opened)]


def _is_normal(scope: Scope) -> bool:
    """Return whether a scope binds nothing but its let, whose value it evaluates."""
    root = scope.root
    if isinstance(root, rl.Let):
        value = [] if is_atom(root.value) else [root.value]
        return scope.nodes == [*value, root]
    return is_atom(root) or scope.nodes == [root]


class _ANormalForm:
    """The lets of each scope; `names` are the variables that expressions are bound to."""

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.names: dict[int, rl.RelayExpr] = {}
        self.variables = {
            id(let.value): let.var for let in scopes.lets if scopes.uses.get(id(let.value)) == 1
        }
        self.count = 0

    def atom(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """Return an atom, or the variable that an expression is bound to."""
        return expr if is_atom(expr) else self.names[id(expr)]

    def scope(self, scope: Scope) -> Task[rl.RelayExpr]:
        """Return the lets of a scope, around its value."""
        bindings: list[tuple[rl.Var, rl.RelayExpr]] = []
        value = yield self.bind(scope, bindings)
        for variable, bound in reversed(bindings):
            value = rl.Let(variable, bound, value, span=bound.span)
        return value  # type: ignore[no-any-return]

    def bind(self, scope: Scope, bindings: list[tuple[rl.Var, rl.RelayExpr]]) -> Task[rl.RelayExpr]:
        """Add the bindings of a scope to a list, and return its value."""
        while True:
            root = scope.root
            mine = bool(scope.nodes) and scope.nodes[-1] is root
            for node in scope.nodes[: len(scope.nodes) - mine]:
                if isinstance(node, rl.Let):
                    self.bind_let(node, bindings)
                    inner = self.scopes.inner[id(node)][0]
                    new = yield self.bind(inner, bindings)
                else:
                    new = yield self.rebuilt(node)
                variable = self.variables.get(id(node))
                if variable is None:
                    variable = rl.Var(f"x{self.count}", span=node.span)
                    self.count += 1
                bindings.append((variable, new))
                self.names[id(node)] = variable
            if not (mine and isinstance(root, rl.Let)):
                break
            self.bind_let(root, bindings)
            scope = self.scopes.inner[id(root)][0]
        return (yield self.rebuilt(root)) if mine else self.atom(root)

    def bind_let(self, let: rl.Let, bindings: list[tuple[rl.Var, rl.RelayExpr]]) -> None:
        """Bind the variable of a let, unless its value was bound to it."""
        if self.names.get(id(let.value)) is not let.var:
            bindings.append((let.var, self.atom(let.value)))

    def rebuilt(self, node: rl.RelayExpr) -> Task[rl.RelayExpr]:
        """Return an expression over atoms, with its inner scopes in A-normal form."""
        new: list[rl.RelayExpr] = []
        for scope in self.scopes.inner.get(id(node), ()):
            body = yield self.scope(scope)
            new.append(body)
        match node:
            case rl.Function():
                return replace(node, body=new[0])
            case rl.If(cond=cond):
                return replace(node, cond=self.atom(cond), true_branch=new[0], false_branch=new[1])
            case rl.Match(data=data, clauses=clauses):
                changed = tuple(
                    replace(clause, rhs=rhs) for clause, rhs in zip(clauses, new, strict=True)
                )
                return replace(node, data=self.atom(data), clauses=changed)
            case _:
                return map_children(self._operand, node)

    def _operand(self, child: Node) -> Node:
        return self.atom(child) if isinstance(child, rl.RelayExpr) else child


@dataclass(frozen=True)
class ToGraphNormalForm(RelayPass):
    """Replace lets by sharing, except those of recursive functions and of effects (RLY-108)."""

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_functions(mod, lambda function: graph_normal_form(function, mod))


def graph_normal_form(expr: rl.RelayExpr, mod: RelayModule) -> rl.RelayExpr:
    """Return an expression in which variables of lets are replaced by their values."""
    effects = Effects(expr, mod)
    done: dict[int, Any] = {}
    values: dict[rl.Var, rl.RelayExpr] = {}
    stack: list[tuple[Node, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if isinstance(node, rl.Var):
            done[id(node)] = done[id(values[node])] if node in values else node
            continue
        if isinstance(node, (Type, rl.Constructor)):
            done[id(node)] = node
            continue
        if isinstance(node, rl.Let) and id(node.value) not in done and not ready:
            if not _stays(node, effects):
                values[node.var] = node.value
            stack += [(node, True), (node.value, False)]
            continue
        operands = list(children(node))
        if isinstance(node, rl.Let):
            operands = [node.body, *([] if node.var in values else [node.value])]
        if any(id(c) not in done for c in operands):
            stack.append((node, True))
            stack += [(c, False) for c in reversed(operands)]
            continue
        if isinstance(node, rl.Let) and node.var in values:
            done[id(node)] = done[id(node.body)]
        elif isinstance(node, rl.Let):
            value, body = done[id(node.value)], done[id(node.body)]
            same = value is node.value and body is node.body
            done[id(node)] = node if same else rl.Let(node.var, value, body, span=node.span)
        else:
            done[id(node)] = map_children(lambda child: done.get(id(child), child), node)
    result: rl.RelayExpr = done[id(expr)]
    return result


def _stays(let: rl.Let, effects: Effects) -> bool:
    """Return whether a let is kept: a function that calls itself, or a value with effects."""
    if isinstance(let.value, rl.Function):
        return let.var in free_vars(let.value)
    return effects.of(let.value)
