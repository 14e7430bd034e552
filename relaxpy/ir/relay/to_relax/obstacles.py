"""Expressions and types of Relay that Relax does not have."""

from __future__ import annotations

from typing import Final

from relaxpy.errors import Diagnostic, Span
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import Scopes, same_scope, scope_roots
from relaxpy.ir.relay.op.registry import Op
from relaxpy.ir.relay.transform.eta_expand import is_polymorphic
from relaxpy.ir.relay.ty import RefType, Type, TypeCall

MAX_DEPTH: Final = 60
"""The number of branches and local functions inside each other in a function of Relax."""
MAX_TYPE_DEPTH: Final = 100
"""The number of tuples, or functions, inside each other in a type of Relax."""
_EVALUATED: Final = 'relay.create_executor("vm") runs it as it is'
_INSTANCES: Final = f"call it where its type arguments are known; {_EVALUATED}"


def obstacles(function: rl.Function) -> list[Diagnostic]:
    """Return why a function of a typed module has no translation: one reason an expression."""
    found: list[Diagnostic] = []
    depths: dict[int, int] = {}
    scopes = Scopes(function)
    deepest = _deepest(scopes)
    if deepest is not None:
        what = f"more than {MAX_DEPTH} branches and functions are inside each other"
        return [Diagnostic(what, "RLY-50", deepest.span or function.span, _EVALUATED)]
    for node in scopes.nodes:
        if _depth(node.checked_type_, depths) > MAX_TYPE_DEPTH:
            what = f"a type contains more than {MAX_TYPE_DEPTH} types inside each other"
            return [Diagnostic(what, "RLY-66", node.span or function.span)]
        found += _of_node(node, is_local=node is not function)
    return found


def _depth(ty: Type | None, known: dict[int, int]) -> int:
    """Return how many types are inside each other in a type; `known` are depths by identity."""
    if ty is None:
        return 0
    if id(ty) not in known:
        for part in walk(ty):
            known[id(part)] = 1 + max((known[id(inner)] for inner in children(part)), default=0)
    return known[id(ty)]


def _deepest(scopes: Scopes) -> rl.RelayExpr | None:
    """Return an expression that is nested in too many branches and functions, if there is one."""
    depths = {id(scopes.outermost): 0}
    for node in reversed(scopes.nodes):
        depth = depths[id(scopes.of[id(node)])] + isinstance(node, (rl.If, rl.Function))
        if depth > MAX_DEPTH:
            return node
        depths.update((id(scope), depth) for scope in scopes.inner.get(id(node), ()))
    return None


def _of_node(node: rl.RelayExpr, *, is_local: bool) -> list[Diagnostic]:
    """Return why an expression, apart from its operands, has no translation."""
    operands = (*same_scope(node), *scope_roots(node))
    callee = node.op if isinstance(node, rl.Call) else None
    reasons: list[tuple[str, str, Span | None]] = []
    hint: str | None = None
    for operand in operands:
        if isinstance(operand, rl.Constructor):
            name = operand.name_hint
            reasons.append((f"{name} constructs an instance of a data type", "RLY-34", None))
        elif isinstance(operand, Op) and operand is not callee:
            reasons.append((f"the operator {operand.name} is used as a value", "RLY-96", None))
    match node:
        case rl.RefCreate() | rl.RefRead() | rl.RefWrite():
            reasons.append(("Relax has no reference cells", "RLY-107", None))
        case rl.Match(clauses=clauses):
            if any(isinstance(p, rl.PatternConstructor) for c in clauses for p in walk(c.lhs)):
                reasons.append(("a match takes instances of data types apart", "RLY-52", None))
        case rl.Function():
            if is_local and is_polymorphic(node):
                ty = node.checked_type
                reasons.append((f"a closure is polymorphic, of type {ty}", "RLY-97", None))
                hint = _INSTANCES
            for param in node.params:
                part = next(
                    (p for p in walk(param.checked_type) if isinstance(p, (TypeCall, RefType))),
                    None,
                )
                if part is not None:
                    what = f"%{param.name_hint} has the type {part}, which Relax does not have"
                    rule = "RLY-31" if isinstance(part, TypeCall) else "RLY-105"
                    reasons.append((what, rule, param.span))
        case _:
            pass
    return [Diagnostic(what, rule, span or node.span, hint) for what, rule, span in reasons]
