"""A run of bindings that may be rewritten together, and what comes out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.variables import binding_parts, occurring_vars
from relaxpy.ir.relax.dpl.effects import may_fail
from relaxpy.ir.relax.nodes import (
    Binding,
    Expr,
    Function,
    MatchCast,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.tir import expr as tir


class Segment:
    """Bindings that come one by one; those that are kept are visible to the ones after them.

    Nothing in it has effects, so that values may be computed elsewhere in it. Only where it is not
    in a dataflow block (`ordered`) what may fail stays in order (OPT-3).
    """

    def __init__(self, bindings: Iterable[Binding], *, ordered: bool) -> None:
        self.ordered = ordered
        self.waiting = deque(bindings)
        self.kept: list[Binding | None] = []
        self.values: dict[Var, Expr] = {}
        self.place: dict[Var, int] = {}
        self._bound_to: dict[Expr, Var] = {}
        self._failing: list[int] = [0]

    def keep(self, binding: Binding) -> None:
        """Let a binding stand as it is."""
        var = binding.var
        if var is not None:
            self.place[var] = len(self.kept)
            if isinstance(binding, VarBinding):
                self.values[var] = binding.value
                if not isinstance(binding.value, Var):
                    self._bound_to.setdefault(binding.value, var)
        self.kept.append(binding)
        self._failing.append(self._failing[-1] + (self.ordered and may_fail(binding)))

    def take_back(self, var: Var) -> None:
        """Forget a binding that was kept: its variable will be bound later."""
        place = self.place.pop(var)
        binding = self.kept[place]
        assert binding is not None
        self.kept[place] = None
        self.values.pop(var, None)
        if self._bound_to.get(binding.value) is var:
            del self._bound_to[binding.value]

    def variable_of(self, value: object) -> Var | None:
        """The variable that a value is bound to."""
        return self._bound_to.get(value) if isinstance(value, Expr) else None

    def in_order(self, moved: Collection[Var]) -> bool:
        """Whether these may be computed at the end of what was kept: nothing that may fail swaps.

        Other bindings that may fail stand then neither between them nor behind them.
        """
        if not self.ordered:
            return True
        places = sorted(place for var in moved if (place := self.place.get(var)) is not None)
        failing = [p for p in places if self._failing[p + 1] > self._failing[p]]
        return not failing or self._failing[-1] - self._failing[failing[0]] == len(failing)

    def bindings(self) -> list[Binding]:
        """What was kept, in order."""
        return [binding for binding in self.kept if binding is not None]


def projected(binding: Binding, value_of: Callable[[Expr], object]) -> Binding:
    """The binding, of a field of a tuple that is written out to that very field."""
    value = binding.value
    if isinstance(value, TupleGetItem):
        whole = value_of(value.tuple_value)
        if isinstance(whole, Tuple) and value.index < len(whole.fields):
            return replace(binding, value=whole.fields[value.index])
    return binding


def sorted_by_use(bindings: Sequence[Binding]) -> list[Binding] | None:
    """The bindings with those that use later ones moved behind these; None if there is a cycle.

    All others keep their order, and what is moved stands as early as it can. A shape variable that
    a cast defines is used where it is mentioned.
    """
    defined: dict[Node, int] = {}
    for index, binding in enumerate(bindings):
        if binding.var is not None:
            defined[binding.var] = index
        if isinstance(binding, MatchCast):
            for size in definable_shape_vars(binding.struct_info):
                defined.setdefault(size, index)
    casts = any(isinstance(binding, MatchCast) for binding in bindings)
    missing: list[int] = []
    users: dict[int, list[int]] = {}
    for index, binding in enumerate(bindings):
        needs = {defined[v] for v in _mentioned(binding, sizes=casts) if v in defined}
        if isinstance(binding, MatchCast) or isinstance(binding.value, Function):
            needs.discard(index)  # a cast checks its own sizes, a function may call itself
        missing.append(len(needs))
        for need in needs:
            users.setdefault(need, []).append(index)
    done: list[Binding] = []
    for index in range(len(bindings)):
        ready = [index] if missing[index] == 0 else []
        while ready:
            place = heappop(ready)
            done.append(bindings[place])
            for user in users.get(place, ()):
                missing[user] -= 1
                if missing[user] == 0 and user < index:
                    heappush(ready, user)
    return done if len(done) == len(bindings) else None


def _mentioned(binding: Binding, *, sizes: bool) -> Iterator[Node]:
    """The variables that a binding needs, those in infos included; shape variables on request."""
    for part in binding_parts(binding):
        yield from occurring_vars(part)
        if sizes:
            yield from (node for node in walk(part) if isinstance(node, tir.Var))
