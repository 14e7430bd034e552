"""The operands of a statement or an expression that are evaluated unconditionally."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, reached, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import And, Call, IntImm, Or, PrimExpr, Select, Var
from relaxpy.ir.tir.stmt import BlockRealize, BufferStore, For, IfThenElse, SeqStmt, Stmt, While

_JUMPS = frozenset(Op(f"tir.{name}") for name in ("ret", "break_loop", "continue_loop"))


def is_always_evaluated(var: Var, node: Node) -> bool:
    """True if `node` provably evaluates `var` whenever it runs."""
    return any(child is var for child in reached([node], _always_evaluated))


def _always_evaluated(node: Node) -> Iterable[Node]:
    """The children of `node` that are evaluated whenever `node` is."""
    match node:
        case SeqStmt(seq=seq):
            return _before_jumps(seq)
        case IfThenElse(condition=test) | Select(condition=test) | While(condition=test):
            return (test,)
        case Call(op=Op(name="tir.if_then_else"), args=(test, *_)):
            return (test,)
        case Or(a=a) | And(a=a):
            return (a,)
        case For(min=first, extent=extent, body=body):
            runs = isinstance(extent, IntImm) and extent.value > 0
            return (first, extent, body) if runs else (first, extent)
        case BlockRealize(iter_values=values, predicate=test, block=block):
            runs = isinstance(test, IntImm) and test.value != 0
            return (*values, test, block.body) if runs else (*values, test)
        case BufferStore(predicate=test) | BufferLoad(predicate=test) if test is not None:
            return (test,)
        case _:
            return [child for child in children(node) if isinstance(child, (Stmt, PrimExpr))]


def _before_jumps(seq: Iterable[Stmt]) -> Iterator[Stmt]:
    """The statements up to and including the first that may jump."""
    for stmt in seq:
        yield stmt
        if any(isinstance(node, Call) and node.op in _JUMPS for node in walk(stmt)):
            return
