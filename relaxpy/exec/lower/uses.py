"""Escape analysis of the variables of a Relax function, for copies and closures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from relaxpy.exec.lower.scope import GlobalCallee
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BlockRealize, BufferStore, For, SeqStmt

CalleeOf = Callable[[rx.GlobalVar], GlobalCallee | rx.ExternFunc]


def functions_used(nodes: Sequence[Node]) -> frozenset[rx.Var]:
    """The variables of local functions that `nodes` use other than as callees."""
    bindings = (node for node in nodes if isinstance(node, (rx.VarBinding, rx.MatchCast)))
    local = {binding.var for binding in bindings if isinstance(binding.value, rx.Function)}
    if not local:
        return frozenset()
    used = (child for node in nodes for child in _operands(node))
    return frozenset(child for child in used if isinstance(child, rx.Var) and child in local)


def _operands(node: Node) -> Iterator[Node]:
    """The children of `node` whose values escape from it."""
    match node:
        case rx.Call(args=args):
            yield from args
        case rx.VarBinding(value=value) | rx.MatchCast(value=value):
            yield value
        case _:
            yield from children(node)


def shared_constants(nodes: Sequence[Node], callee_of: CalleeOf) -> frozenset[rx.Expr]:
    """The constants among the nodes of a function that are only read by kernels.

    A literal is a new tensor at each evaluation (EV-2). If it is not written and does not escape,
    one tensor serves all evaluations.
    """
    if not any(isinstance(node, rx.Constant) for node in nodes):
        return frozenset()
    read: set[Node] = set()
    escaping: set[Node] = set()
    for node in nodes:
        match node:
            case rx.Call(op=op, args=(rx.GlobalVar() as name, rx.Tuple(fields=inputs), *rest)) if (
                isinstance(op, Op) and op.record.calls is CallKind.KERNEL
            ):
                callee = callee_of(name)
                written = frozenset(range(len(inputs)))
                if isinstance(callee, GlobalCallee) and callee.kernel is not None:
                    written = callee.written
                for i, arg in enumerate(inputs):
                    (escaping if i in written else read).add(arg)
                escaping.update(rest)
            case rx.Tuple():
                continue
            case _:
                for operand in _operands(node):
                    escaping.update(_spread(operand))
    return frozenset(n for n in read - escaping if isinstance(n, rx.Constant))


def _spread(operand: Node) -> Iterator[Node]:
    yield operand
    if isinstance(operand, rx.Tuple):
        for leaf in operand.fields:
            yield from _spread(leaf)


def filled_params(kernel: PrimFunc) -> frozenset[int]:
    """The positions of the parameters that `kernel` provably overwrites completely.

    A block in plain loops stores at the indices of the loops, which run over the dimensions.
    """
    filled = set(_filled_buffers(kernel.body, {}))
    buffers = enumerate(kernel.buffer_map_items)
    return frozenset(i for i, buffer in buffers if buffer in filled)


def _filled_buffers(node: Node, ranges: Mapping[tir.PrimExpr, tir.PrimExpr]) -> Iterator[Buffer]:
    """The buffers that a statement fills; `ranges` has the extents of variables from 0 on."""
    match node:
        case For(loop_var=var, min=tir.IntImm(value=0), extent=extent, body=body):
            yield from _filled_buffers(body, {**ranges, var: extent})
        case SeqStmt(seq=statements):
            for statement in statements:
                yield from _filled_buffers(statement, ranges)
        case BlockRealize(predicate=tir.IntImm(value=1), iter_values=values, block=block):
            axes: list[tir.PrimExpr] = [axis.var for axis in block.iter_vars]
            known = {a: ranges[v] for a, v in zip(axes, values, strict=True) if v in ranges}
            yield from _filled_buffers(block.body, known)
        case BufferStore(buffer=buffer, indices=indices):
            distinct = len(set(indices)) == len(indices)
            pairs = zip(indices, buffer.shape, strict=True)
            if distinct and all(
                i in ranges and prove_equal(ranges[i], n) is True for i, n in pairs
            ):
                yield buffer
        case _:
            return
