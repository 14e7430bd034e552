"""Checkpoints: values between them are rematerialised in the backward pass instead of stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeVar

from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Binding, Call, DataflowVar, Expr, Var, VarBinding
from relaxpy.ir.relax.rewrite.replace import replace_variables

N = TypeVar("N", bound=Node)

_START = Op("relax.grad.start_checkpoint")
_END = Op("relax.grad.end_checkpoint")


class Checkpoints:
    """The bindings of a block without its checkpoints, and the rematerialised ones.

    The result of `start_checkpoint` is not stored for the backward pass, and neither is anything
    that depends on it, up to the results of `end_checkpoint`. Such a result is stored if another
    `start_checkpoint` takes it, so that consecutive sections are rematerialised separately.
    `result` is what the function returns, and the gradients are by `wanted`.

    Reference:
        Chen, Xu, Zhang & Guestrin, "Training deep nets with sublinear memory cost",
        arXiv:1604.06174, 2016.
    """

    def __init__(self, bindings: Sequence[Binding], result: Expr, wanted: Collection[Var]) -> None:
        self.bindings: list[Binding] = []
        #: The rematerialised bindings of the copies of variables, in the order of evaluation.
        self._again: dict[Var, Expr] = {}
        self._remap: dict[Var, Var] = {}
        self._copies: dict[Var, Var] = {}
        opened: set[Var] = set()
        closed: set[Var] = set()
        values = (*(binding.value for binding in bindings), result)
        uses = Counter(var for value in values for var in occurring_vars(value))
        shared = {var for var, count in uses.items() if count > 1}
        for old in bindings:
            depends = any(v in opened and v not in closed for v in occurring_vars(old.value))
            binding = self._with(self._remap, old)
            var, value = binding.var, binding.value
            if isinstance(value, Call) and value.op in (_START, _END):
                [source] = value.args
                assert isinstance(source, Var)
                assert old.var is not None
                (opened if value.op == _START else closed).add(old.var)
                if value.op == _START and closed.intersection(occurring_vars(old.value)):
                    self._again.pop(source, None)
                # Other uses of the source count for its gradient, but not for that of the result.
                is_other = any(v in shared for v in occurring_vars(old.value))
                if is_other:
                    shared.add(old.var)
                is_kept = is_other and old.var in wanted
                if not is_kept:
                    self._remap[old.var] = source
                if is_kept or not isinstance(old.var, DataflowVar):
                    self.bindings.append(VarBinding(old.var, source, span=binding.span))
                continue
            self.bindings.append(binding)
            if depends and var is not None and isinstance(binding, VarBinding):
                assert old.var is not None
                opened.add(old.var)
                self._again[var] = value

    def image(self, var: Var) -> Var:
        """The variable that replaces `var`: the source of a checkpoint, or itself."""
        return self._remap.get(var, var)

    def stored(self, value: N, builder: BlockBuilder) -> N:
        """`value` with variables that are stored; `builder` receives the rematerialised ones."""
        for var in occurring_vars(value):
            self._compute(var, builder)
        return self._with(self._copies, value)

    def _compute(self, var: Var, builder: BlockBuilder) -> None:
        waiting = [var]
        while waiting:
            last = waiting[-1]
            if last not in self._again or last in self._copies:
                waiting.pop()
                continue
            value = self._again[last]
            missing = [
                v for v in occurring_vars(value) if v in self._again and v not in self._copies
            ]
            if missing:
                waiting += reversed(missing)
            else:
                again = self._with(self._copies, value)
                self._copies[last] = builder.emit(again, f"{last.name_hint}_cp")

    @staticmethod
    def _with(table: dict[Var, Var], node: N) -> N:
        return replace_variables(node, table) if table else node
