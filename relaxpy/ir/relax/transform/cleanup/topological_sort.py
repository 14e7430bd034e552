"""TopologicalSort: an order of the bindings of dataflow blocks by their dependencies."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.analysis.symbolic import used_shape_vars
from relaxpy.ir.relax.analysis.variables import binding_operands, occurring_vars
from relaxpy.ir.relax.nodes import Binding, DataflowBlock, Function, MatchCast, SeqExpr, Var
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import expr as tir

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
            with_bindings(b, sorted(b.bindings, key=lambda b: sign * position[_node(b)]))
            if isinstance(b, DataflowBlock)
            else b
            for b in seq.blocks
        ]
        return seq if blocks == [*seq.blocks] else rebuild(seq, blocks=tuple(blocks))

    def _visited(self, seq: SeqExpr) -> Iterable[object]:
        """The bindings of a sequence in the order in which the search visits them."""
        dependencies = _Dependencies(self.params, seq)
        onward, required = dependencies.users, dependencies.operands
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


def _node(binding: Binding) -> object:
    """What stands for a binding: its variable, if it has one."""
    return binding if binding.var is None else binding.var


class _Dependencies:
    """The operands and the users of the variables of a sequence, each in order."""

    def __init__(self, params: tuple[Var, ...], seq: SeqExpr) -> None:
        self.users: Graph = {}
        self.operands: Graph = {}
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        casts: dict[tir.Var, object] = {}
        known: dict[object, None] = dict.fromkeys(params)
        for param in params:
            self._depends(param, _INPUT)
        last_mutation: object = None
        since: list[object] = []
        for binding in bindings:
            node = _node(binding)
            known[node] = None
            if last_mutation is not None:
                self._depends(node, last_mutation)
            if mutates(binding):
                for earlier in since:
                    self._depends(node, earlier)
                last_mutation, since = node, []
            since.append(node)
            for operand in binding_operands(binding):
                self._use(operand, node, known, casts)
            if isinstance(binding, MatchCast):
                for size in definable_shape_vars(binding.struct_info):
                    casts.setdefault(size, node)
        self._use(seq.body, _OUTPUT, known, casts)
        for node in known:
            if node not in self.operands:
                self._depends(node, _INPUT)
        unused = [node for node in known if node not in self.users]
        for node in unused:
            self.users[node] = {_OUTPUT: None}
        after = self.operands.get(_OUTPUT, {})
        self.operands[_OUTPUT] = dict.fromkeys((*unused, *after))

    def _use(
        self, operand: Node, user: object, known: Iterable[object], casts: dict[tir.Var, object]
    ) -> None:
        for var in occurring_vars(operand):
            if var in known and var is not user:
                self._depends(user, var)
        for size in used_shape_vars(operand, of_variables=False) if casts else ():
            if casts.get(size, user) is not user:
                self._depends(user, casts[size])

    def _depends(self, user: object, on: object) -> None:
        self.operands.setdefault(user, {})[on] = None
        self.users.setdefault(on, {})[user] = None
