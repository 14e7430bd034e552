"""Well-formedness: variables are bound once, and used in their scope (RLY-7, RLY-85)."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.errors import check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.plugins.relay.analysis.scopes import Scope, Scopes, same_scope
from relaxpy.plugins.relay.analysis.variables import bound_vars
from relaxpy.plugins.relay.expr import Function, Let, Match, PatternVar, RelayExpr, TempExpr, Var
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.support.entry import user_facing


@user_facing
def post_order_visit(expr: RelayExpr, fvisit: Callable[[Node], object]) -> None:
    """Call a function for each expression once, operands before the expressions that use them."""
    for node in walk(expr):
        if isinstance(node, RelayExpr):
            fvisit(node)


@user_facing
def well_formed(expr: RelayExpr | RelayModule) -> bool:
    """Return whether no variable is bound twice or used outside its scope, and no node temporary.

    Variables that nothing binds are free, which is allowed in an expression, but not in the
    functions of a module.

    Errors:
        MisuseError (also TypeError): it is neither an expression nor a module.
    """
    if isinstance(expr, RelayModule):
        return all(
            well_formed(function) and not _uses_outside(function, free=False)
            for function in expr.functions.values()
        )
    check_type(expr, RelayExpr, "expected a Relay expression or module")
    if any(isinstance(node, TempExpr) for node in walk(expr)):
        return False
    binders: list[Var] = []
    for node in walk(expr):
        match node:
            case Function(params=params):
                binders += params
            case Let(var=var) | PatternVar(var=var):
                binders.append(var)
            case _:
                pass
    return len(set(binders)) == len(binders) and not _uses_outside(expr, free=True)


def _uses_outside(root: RelayExpr, *, free: bool) -> bool:
    """Return whether a variable is used outside the scope that binds it.

    With `free`, variables that nothing binds may be used anywhere.
    """
    scopes = Scopes(root)
    visible = _binders(scopes)
    bound = set(bound_vars(root))
    intervals = _intervals(scopes)
    uses = [(scope, scope.root) for scope in intervals if isinstance(scope.root, Var)]
    for scope in intervals:
        uses += [
            (scope, operand)
            for node in scope.nodes
            for operand in same_scope(node)
            if isinstance(operand, Var)
        ]
    for scope, var in uses:
        first, _ = intervals[scope]
        around = (intervals[binder] for binder in visible.get(var, ()))
        if not any(begin <= first < end for begin, end in around) and (var in bound or not free):
            return True
    return False


def _binders(scopes: Scopes) -> dict[Var, list[Scope]]:
    """Return the scopes in which each bound variable is visible."""
    visible: dict[Var, list[Scope]] = {}
    for node in scopes.nodes:
        inner = scopes.inner.get(id(node), ())
        match node:
            case Function(params=params):
                for param in params:
                    visible[param] = [inner[0]]
            case Let(var=var, value=value):
                visible[var] = [inner[0]]
                if isinstance(value, Function):
                    visible[var] += scopes.inner[id(value)]
            case Match(clauses=clauses):
                for clause, scope in zip(clauses, inner, strict=True):
                    for var in bound_vars(clause.lhs):
                        visible[var] = [scope]
            case _:
                pass
    return visible


def _intervals(scopes: Scopes) -> dict[Scope, tuple[int, int]]:
    """Return the number of each scope, and the number after those of all scopes in it."""
    children: dict[Scope, list[Scope]] = {}
    for opened in scopes.inner.values():
        for scope in opened:
            assert scope.parent is not None
            children.setdefault(scope.parent, []).append(scope)
    begin: dict[Scope, int] = {}
    intervals: dict[Scope, tuple[int, int]] = {}
    stack = [(scopes.outermost, False)]
    while stack:
        scope, leaving = stack.pop()
        if leaving:
            intervals[scope] = begin[scope], len(begin)
        else:
            begin[scope] = len(begin)
            stack.append((scope, True))
            stack += [(inner, False) for inner in children.get(scope, ())]
    return intervals
