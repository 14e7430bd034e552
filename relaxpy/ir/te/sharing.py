"""Common subexpressions of a large value, bound to variables so that its source stays small.

A loop in Python makes such values: each iteration of `v = v * v + c` doubles the source of v.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from relaxpy.ir.arith.algebra.folding import is_safe
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.orders import reached
from relaxpy.ir.core.traverse import children, map_children, tree_size, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import And, Call, Or, PrimExpr, Var
from relaxpy.ir.tir.stmt import LetStmt, Stmt

_LARGEST = 2000
_SHARED = 8


def is_large(value: PrimExpr) -> bool:
    """Return whether a value is large as a tree, and much larger than as a DAG."""
    size = tree_size(value)
    return size > _LARGEST and size > _SHARED * sum(1 for _ in walk(value))


def bound(values: Sequence[PrimExpr]) -> tuple[list[PrimExpr], list[tuple[Var, PrimExpr]]]:
    """The values in terms of variables, and the definitions of these, in order.

    An operation that may fail is bound only if it is evaluated unconditionally.
    """
    large = [value for value in values if is_large(value)]
    always = {*reached(list[Node](large), _computed_in_any_case)}
    uses = Counter(child for node in _nodes(large) for child in children(node))
    replaced: dict[Node, Node] = {}
    lets: list[tuple[Var, PrimExpr]] = []
    for node in _nodes(large):
        new = map_children(lambda child: replaced.get(child, child), node)
        if (
            isinstance(new, PrimExpr)
            and uses[node] > 1
            and not isinstance(new, BufferLoad)
            and any(True for _ in children(new))
            and (node in always or is_safe(new))
        ):
            variable = Var("v", new.dtype)
            lets.append((variable, new))
            new = variable
        replaced[node] = new
    found = [replaced.get(value, value) for value in values]
    return [value for value in found if isinstance(value, PrimExpr)], lets


def with_lets(body: Stmt, lets: Sequence[tuple[Var, PrimExpr]]) -> Stmt:
    """The body after the definitions of variables."""
    for variable, value in reversed(lets):
        body = LetStmt(variable, value, body)
    return body


def _nodes(values: Sequence[PrimExpr]) -> list[Node]:
    """The nodes under all values once, children before parents."""
    return list(dict.fromkeys(node for value in values for node in walk(value)))


def _computed_in_any_case(node: Node) -> Iterable[Node]:
    """The operands of an expression that are evaluated unconditionally."""
    match node:
        case Call(op=Op(name="tir.if_then_else"), args=(condition, *_)):
            return (condition,)
        case And(a=a) | Or(a=a):
            return (a,)
        case _:
            return children(node)
