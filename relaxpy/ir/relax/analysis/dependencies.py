"""The dependencies of bindings: values, shape variables, and mutations, which keep their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from relaxpy.ir.core.node import Node
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.analysis.symbolic import used_shape_vars
from relaxpy.ir.relax.analysis.variables import binding_operands, occurring_vars
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars

Definition: TypeAlias = rx.Binding | rx.Var


class Dependencies:
    """The definitions that each binding needs: other bindings, and variables of `inputs`.

    A definition comes before its uses, unless the bindings are not sorted yet. A shape variable
    is defined by the first cast that binds it, which may mention variables of a later cast. A
    mutation comes after everything before it, and before everything after it (OPT-2). A binding
    does not need itself: a cast mentions what it defines, and a function may call itself.
    """

    def __init__(
        self,
        bindings: Sequence[rx.Binding],
        inputs: Iterable[rx.Var] = (),
        *,
        is_sorted: bool = True,
    ) -> None:
        self._home: dict[Node, Definition] = {var: var for var in inputs}
        self._casts = any(isinstance(binding, rx.MatchCast) for binding in bindings)
        for binding in () if is_sorted else bindings:
            self._define(binding)
        self.needs: dict[rx.Binding, dict[Definition, None]] = {}
        last_mutation: rx.Binding | None = None
        since: list[rx.Binding] = []
        for binding in bindings:
            required: dict[Definition, None] = {}
            if last_mutation is not None:
                required[last_mutation] = None
            if mutates(binding):
                required |= dict.fromkeys(since)
                last_mutation, since = binding, []
            since.append(binding)
            required |= self.of(*binding_operands(binding))
            required.pop(binding, None)
            self.needs[binding] = required
            if is_sorted:
                self._define(binding)

    def _define(self, binding: rx.Binding) -> None:
        if binding.var is not None:
            self._home[binding.var] = binding
        if isinstance(binding, rx.MatchCast):
            for size in definable_shape_vars(binding.struct_info):
                self._home.setdefault(size, binding)

    def of(self, *operands: Node) -> dict[Definition, None]:
        """The definitions of the variables, and of the shape variables, that operands mention."""
        used: list[Node] = []
        for operand in operands:
            used += occurring_vars(operand)
            if self._casts:
                used += used_shape_vars(operand, of_variables=False)
        return {self._home[node]: None for node in used if node in self._home}
