"""A run of bindings that may be rewritten together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.dependencies import Dependencies
from relaxpy.ir.relax.analysis.effects import may_fail
from relaxpy.support.dataclass import replace


class Segment:
    """Bindings that are taken from `waiting` one by one, and are kept or replaced.

    They have no effects, so that values may be computed in another order. But outside dataflow
    blocks (`ordered`), bindings that may fail stay in order (OPT-3).
    """

    def __init__(self, bindings: Iterable[rx.Binding], *, ordered: bool) -> None:
        self.ordered = ordered
        self.waiting = deque(bindings)
        self.kept: list[rx.Binding | None] = []
        self.values: dict[rx.Var, rx.Expr] = {}
        self.position: dict[rx.Var, int] = {}
        self._bound_to: dict[rx.Expr, rx.Var] = {}
        self._failing: list[int] = [0]

    def keep(self, binding: rx.Binding) -> None:
        """Append a binding to the result."""
        var = binding.var
        if var is not None:
            self.position[var] = len(self.kept)
            if isinstance(binding, rx.VarBinding):
                self.values[var] = binding.value
                if not isinstance(binding.value, rx.Var):
                    self._bound_to.setdefault(binding.value, var)
        self.kept.append(binding)
        self._failing.append(self._failing[-1] + (self.ordered and may_fail(binding)))

    def remove(self, var: rx.Var) -> None:
        """Remove a binding that was kept: its variable will be bound later."""
        position = self.position.pop(var)
        binding = self.kept[position]
        assert binding is not None
        self.kept[position] = None
        self.values.pop(var, None)
        if self._bound_to.get(binding.value) is var:
            del self._bound_to[binding.value]

    def variable_of(self, value: object) -> rx.Var | None:
        """The variable that a value is bound to."""
        return self._bound_to.get(value) if isinstance(value, rx.Expr) else None

    def in_order(self, moved: Collection[rx.Var]) -> bool:
        """True if these variables may be computed at the end without reordering possible failures.

        That is the case if no other binding that may fail is between them or after them.
        """
        if not self.ordered:
            return True
        positions = sorted(self.position[var] for var in moved if var in self.position)
        failing = [p for p in positions if self._failing[p + 1] > self._failing[p]]
        return not failing or self._failing[-1] - self._failing[failing[0]] == len(failing)

    def bindings(self) -> list[rx.Binding]:
        """The bindings that were kept, in order."""
        return [binding for binding in self.kept if binding is not None]


def projected(binding: rx.Binding, value_of: Callable[[rx.Expr], object]) -> rx.Binding:
    """The binding; if it projects a Tuple, a binding of the field itself."""
    value = binding.value
    if isinstance(value, rx.TupleGetItem):
        whole = value_of(value.tuple_value)
        if isinstance(whole, rx.Tuple) and value.index < len(whole.fields):
            return replace(binding, value=whole.fields[value.index])
    return binding


def sorted_by_use(bindings: Sequence[rx.Binding]) -> list[rx.Binding] | None:
    """The bindings, with those that use later ones moved after these; None if there is a cycle.

    All others keep their order, and bindings that are moved are as early as possible.
    """
    number = {binding: index for index, binding in enumerate(bindings)}
    missing: list[int] = []
    users: dict[int, list[int]] = {}
    for index, needs in enumerate(Dependencies(bindings, is_sorted=False).needs.values()):
        missing.append(len(needs))
        for need in needs:
            users.setdefault(number[need], []).append(index)  # type: ignore[index]
    done: list[rx.Binding] = []
    for index in range(len(bindings)):
        ready = [index] if missing[index] == 0 else []
        while ready:
            position = heappop(ready)
            done.append(bindings[position])
            for user in users.get(position, ()):
                missing[user] -= 1
                if missing[user] == 0 and user < index:
                    heappush(ready, user)
    return done if len(done) == len(bindings) else None
