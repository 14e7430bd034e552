"""Escape analysis: uses of values, and whether mutation may reveal shared memory (OPT-11)."""

from __future__ import annotations

from relaxpy.ir.relax.analysis.effects import Effects, computes, is_of_operands
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import Binding, SeqExpr, Var


class Escapes:
    """The runs of bindings without effects, and the users of each variable with their runs."""

    def __init__(self, seq: SeqExpr, effects: Effects) -> None:
        self.runs: list[list[Binding]] = []
        self._users: dict[Var, list[tuple[int, Binding | None]]] = {}
        self._run_of: dict[Var, int] = {}
        for block in seq.blocks:
            self.runs.append([])
            for binding in block.bindings:
                if effects.is_barrier(binding):
                    self._enter(binding, -1)
                    self.runs.append([])
                else:
                    self.runs[-1].append(binding)
                    self._enter(binding, len(self.runs) - 1)
        for var in occurring_vars(seq.body):
            self._users.setdefault(var, []).append((-1, None))

    def _enter(self, binding: Binding, run: int) -> None:
        if binding.var is not None:
            self._run_of[binding.var] = run
        for var in occurring_vars(binding.value):
            self._users.setdefault(var, []).append((run, binding))

    def escapes(self, var: Var) -> bool:
        """Return whether a value escapes: whether code may mutate it, or observe a mutation.

        That is any code except for operators that compute new values from it in the same run.
        Values that the sequence does not bind itself escape.
        """
        run = self._run_of.get(var)
        if run is None:
            return True
        waiting, seen = [var], {var}
        while waiting:
            for user_run, binding in self._users.get(waiting.pop(), ()):
                if binding is None or user_run != run:
                    return True
                if is_of_operands(binding.value):
                    if binding.var is not None and binding.var not in seen:
                        seen.add(binding.var)
                        waiting.append(binding.var)
                elif not computes(binding.value):
                    return True
        return False
