"""The fusion rule of the default pipeline: which pairs of kernels may be fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, occurrences
from relaxpy.ir.pass_infra.passes import register_config
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import AssertStmt, BufferStore, Evaluate, IfThenElse, LetStmt, Stmt, While
from relaxpy.support.entry import user_facing

FusionRule: TypeAlias = Callable[[PrimFunc, PrimFunc], bool]
"""Decides whether a kernel is fused with one that uses its result."""
RULE_OPTION: Final = "relax.FuseOps.rule"
register_config(RULE_OPTION, object)
_DIVISIONS: Final = (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)


@user_facing
def fusion_pays(producer: PrimFunc, consumer: PrimFunc) -> bool:
    """True if a kernel may be fused with one that uses its result, in the default pipeline.

    A fused kernel runs in blocks of rows, so that the result of one step is in cache for the next
    one, and needs no memory of the size of an intermediate result. Results are never computed
    twice. Hence there is no cost model: all kernels that FuseOps can group are fused, except for
    those that may fail at run time, whose errors then name their line and buffers.
    """
    return not (may_fail(producer) or may_fail(consumer))


@memoised
def may_fail(kernel: PrimFunc) -> bool:
    """True if a kernel can raise an error that depends on the elements of its operands.

    These are indices that are elements of a tensor, divisions by integers that may be zero,
    assertions, and calls of other functions.
    """
    return any(_fails(node) for node in _computing(kernel.body))


def _fails(node: Node) -> bool:
    match node:
        case AssertStmt() | Evaluate():
            return True
        case BufferLoad(indices=indices) | BufferStore(indices=indices):
            return any(True for i in indices for _ in occurrences(i, BufferLoad))
        case tir.PrimExpr() if isinstance(node, _DIVISIONS) and node.dtype.is_int:
            return not isinstance(node.b, tir.IntImm) or node.b.value == 0
        case _:
            return False


def _computing(root: Node) -> Iterator[Node]:
    """The nodes that compute elements: all but those in indices, bounds and regions."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case BufferLoad():
                pass
            case BufferStore(value=value):
                waiting.append(value)
            case tir.PrimExpr() | LetStmt() | IfThenElse() | While():
                waiting += children(node)
            case _:
                waiting += (c for c in children(node) if isinstance(c, Stmt))
