"""TopologicalSort: an order of the bindings of dataflow blocks by their dependencies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.dependencies import Dependencies
from relaxpy.ir.relax.nodes import DataflowBlock, Function, SeqExpr, Var
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass

Graph: TypeAlias = dict[object, dict[object, None]]
_INPUT: Final = "input"
_OUTPUT: Final = "output"


@dataclass(frozen=True)
class TopologicalSort(RewritePass):
    """Sorts the bindings of dataflow blocks as a search of their dependencies visits them.

    The search starts from the parameters and follows the uses of values, or starts from the results
    and follows operands. Where it has a choice, the present order decides.

    Errors:
        MisuseError (also ValueError): there is no such order or direction.
    """

    order: Literal["depth-first", "breadth-first"] = "depth-first"
    direction: Literal["from-inputs", "from-outputs"] = "from-inputs"

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        depth_first, forward = self.order == "depth-first", self.direction == "from-inputs"

        def ordered(func: Function) -> Function:
            return _Sorter(depth_first=depth_first, forward=forward).expr(func)

        return ordered


class _Sorter(BindingRewriter):
    def __init__(self, *, depth_first: bool, forward: bool) -> None:
        super().__init__()
        self.depth_first, self.forward = depth_first, forward
        self.params: tuple[Var, ...] = ()

    @override
    def function(self, func: Function) -> Function:
        outer, self.params = self.params, func.params
        after = super().function(func)
        self.params = outer
        return after

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        seq = super().sequence(seq)
        if not any(isinstance(block, DataflowBlock) for block in seq.blocks):
            return seq
        position = {node: k for k, node in enumerate(self._visited(seq))}
        sign = 1 if self.forward else -1
        blocks = [
            with_bindings(b, sorted(b.bindings, key=lambda b: sign * position[b]))
            if isinstance(b, DataflowBlock)
            else b
            for b in seq.blocks
        ]
        return seq if blocks == [*seq.blocks] else rebuild(seq, blocks=tuple(blocks))

    def _visited(self, seq: SeqExpr) -> Iterable[object]:
        """The bindings of a sequence in the order in which the search visits them."""
        required, onward = _dependencies(self.params, seq)
        start: object = _INPUT
        if not self.forward:
            onward, required, start = required, onward, _OUTPUT
        missing = {node: len(nodes) for node, nodes in required.items()}
        waiting = deque([start])
        while waiting:
            node = waiting.pop() if self.depth_first else waiting.popleft()
            yield node
            ready = []
            for following in onward.get(node, ()):
                missing[following] -= 1
                if not missing[following]:
                    ready.append(following)
            # The search from the inputs visits the first user first, and that from the outputs the
            # last operand, which the reversal of the whole order then puts last.
            waiting += reversed(ready) if self.depth_first and self.forward else ready


def _dependencies(params: tuple[Var, ...], seq: SeqExpr) -> tuple[Graph, Graph]:
    """The operands and the users of the parameters and bindings of a sequence, each in order."""
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    dependencies = Dependencies(bindings, params)
    nodes = (*params, *bindings)
    operands: Graph = {param: {_INPUT: None} for param in params}
    operands |= {b: dict.fromkeys(needs) for b, needs in dependencies.needs.items() if needs}
    result = dependencies.of(seq.body)
    operands[_OUTPUT] = dict.fromkeys(result)
    operands |= {node: {_INPUT: None} for node in nodes if node not in operands}
    users: Graph = {}
    for user, used in operands.items():
        for node in used:
            users.setdefault(node, {})[user] = None
    unused = [node for node in nodes if node not in users]
    users |= {node: {_OUTPUT: None} for node in unused}
    operands[_OUTPUT] = dict.fromkeys((*unused, *result))
    return operands, users
