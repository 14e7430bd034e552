"""A-normal form, basic-block form and graph form: what lets bind, and what is shared (RLY-48)."""

from __future__ import annotations

from collections.abc import Container

from typing_extensions import override

from relaxpy.ir.core.budget import Task, run
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Effects, Scope, Scopes, is_atom, same_scope, scope_roots
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.transform import passes
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class ToANormalForm(passes.RelayPass):
    """Binds every intermediate value by a let, in the order of evaluation.

    Arguments, conditions and matched values become names and constants; a shared expression is
    bound once in its scope (RLY-110).
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return passes.map_functions(mod, a_normal_form)


def a_normal_form(expr: rl.RelayExpr) -> rl.RelayExpr:
    """An expression in A-normal form; the expression itself if it has that form."""
    scopes = Scopes(expr)
    if all(_is_normal(scope) for scope in _all_scopes(scopes)):
        return expr
    return _with_lets(scopes, {id(node) for node in scopes.nodes})


def _with_lets(scopes: Scopes, bound: Container[int]) -> rl.RelayExpr:
    """The expression of scopes, in which lets bind the expressions of these identities."""
    form = _Lets(scopes, bound)
    root = scopes.outermost.root
    if isinstance(root, rl.Function):
        function: rl.RelayExpr = run(form.rebuilt(root))
        return function
    result: rl.RelayExpr = run(form.scope(scopes.outermost))
    return result


@dataclass(frozen=True)
class ToBasicBlockNormalForm(passes.RelayPass):
    """Binds by a let what is used in branches, clauses, lets or functions inside its scope.

    The other expressions stay where they are, except those that touch cells before one that is
    bound, which are bound too, since their order stays (RLY-108).
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        effects = Effects(mod)
        return passes.map_functions(
            mod, lambda function: basic_block_normal_form(function, effects)
        )


def basic_block_normal_form(expr: rl.RelayExpr, effects: Effects) -> rl.RelayExpr:
    """An expression whose scopes share values by lets; itself if it has that form."""
    scopes = Scopes(expr)
    bound: set[int] = set()
    for node in scopes.nodes:
        inner = scopes.inner.get(id(node), ())
        places = [(operand, scopes.of[id(node)]) for operand in same_scope(node)]
        for operand, place in (*places, *zip(scope_roots(node), inner, strict=True)):
            if not is_atom(operand) and scopes.of[id(operand)] is not place:
                bound.add(id(operand))
    if not bound:
        return expr
    effects.entered(expr)
    for scope in _all_scopes(scopes):
        chosen = [number for number, node in enumerate(scope.nodes) if id(node) in bound]
        for node in scope.nodes[: max(chosen, default=0)]:
            if effects.of(node):
                bound.add(id(node))
    return _with_lets(scopes, bound)


def _all_scopes(scopes: Scopes) -> list[Scope]:
    return [scopes.outermost, *(scope for opened in scopes.inner.values() for scope in opened)]


def _is_normal(scope: Scope) -> bool:
    """True if a scope binds nothing but its let, whose value it evaluates."""
    root = scope.root
    if isinstance(root, rl.Let):
        value = [] if is_atom(root.value) else [root.value]
        return scope.nodes == [*value, root]
    return is_atom(root) or scope.nodes == [root]


class _Lets:
    """The lets of each scope, which bind the expressions whose identities are `bound`.

    `names` are the variables that they are bound to, and the other expressions as rebuilt.
    """

    def __init__(self, scopes: Scopes, bound: Container[int]) -> None:
        self.scopes = scopes
        self.bound = bound
        self.names: dict[int, rl.RelayExpr] = {}
        self.variables = {
            id(let.value): let.var for let in scopes.lets if scopes.uses.get(id(let.value)) == 1
        }
        self.count = 0

    def atom(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """An atom: the variable that an expression is bound to, or its replacement."""
        return expr if is_atom(expr) else self.names[id(expr)]

    def scope(self, scope: Scope) -> Task[rl.RelayExpr]:
        """The lets of a scope, around its value."""
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
                if id(node) not in self.bound:
                    self.names[id(node)] = yield self.rebuilt(node)
                    continue
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
        """An expression whose operands and inner scopes are rebuilt."""
        new: list[rl.RelayExpr] = []
        for scope in self.scopes.inner.get(id(node), ()):
            body = yield self.scope(scope)
            new.append(body)
        match node:
            case rl.Function():
                return replace(node, body=new[0])
            case rl.Let(value=value):
                return replace(node, value=self.atom(value), body=new[0])
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
class ToGraphNormalForm(passes.RelayPass):
    """Replaces lets by sharing, except those of recursive functions and of effects (RLY-108).

    Lets stay, too, whose annotation has a size where the value has `?`, or the opposite (RLY-88).
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        effects = Effects(mod)
        return passes.map_functions(mod, lambda f: graph_normal_form(f, effects.entered(f)))


def graph_normal_form(expr: rl.RelayExpr, effects: Effects) -> rl.RelayExpr:
    """An expression in which variables of lets are replaced by their values."""
    calls_itself = passes.recursive_functions(expr)

    def stays(let: rl.Let, _value: rl.RelayExpr) -> bool:
        if passes.is_cast(let.var.type_annotation, let.value.checked_type_):
            return True
        return calls_itself(let) if isinstance(let.value, rl.Function) else effects.of(let.value)

    return passes.replace_lets(expr, stays)
