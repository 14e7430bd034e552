"""Weights of graphs that `torch.compile` captures, as constants while they do not change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet, ref

from torch._guards import TracingContext
from torch.optim.optimizer import register_optimizer_step_post_hook

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.relax.transform.bind_params import BindParams
from relaxpy.plugins.torch.arrays import constant, real_view

_Run = Callable[..., Any]


def static_inputs() -> frozenset[int]:
    """The positions of the inputs that are weights not mutated by the graph being compiled."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return frozenset()
    changed = {k for k, given in enumerate(known.input_info) if given.mutates_data}
    return frozenset(known.static_input_indices) - changed


class _Weights:
    """Weights of a call, and the graph compiled with them, if any.

    PyTorch counts the changes of a tensor, except those by optimisers that are fused.
    """

    __slots__ = ("__weakref__", "calls", "memory", "patience", "run", "stepped", "tensors")

    def __init__(
        self, tensors: Sequence[Any], patience: int, forget: Callable[[object], object]
    ) -> None:
        self.tensors: list[tuple[ref[Any], int, int]]
        self.tensors = [(ref(x, forget), x._version, x.data_ptr()) for x in tensors]
        #: Keeps the memory of the tensors alive, so that their addresses are not reused.
        self.memory = [x.detach() for x in tensors]
        #: How many calls there were, and after how many these weights are compiled.
        self.calls, self.patience = 0, patience
        self.stepped = False
        self.run: _Run | None = None

    def are(self, tensors: Sequence[Any]) -> bool:
        """True if these are the same tensors with the same elements as before."""
        if self.stepped:
            return False
        for (known, version, address), x in zip(self.tensors, tensors, strict=True):
            is_known = known() is x
            if not is_known or x._version != version or x.data_ptr() != address:
                return False
        return True


class Freezer:
    """Compiles a module with the weights that it is called with as constants.

    Modules with the same code share a graph; each has an executable of its own, which ends with
    its weights. When weights change, they are compiled again after some calls with them, twice as
    many each time.
    """

    def __init__(
        self, module: IRModule, positions: Sequence[int], compiled: Callable[[IRModule], _Run]
    ) -> None:
        func = module["main"]
        assert isinstance(func, Function)
        self._module, self._compiled = module, compiled
        self._params = [func.params[k] for k in positions]
        self._known: dict[int, _Weights] = {}
        _note_steps()

    def run(self, weights: Sequence[Any]) -> _Run | None:
        """The function of the other parameters that is compiled with these weights, if one is."""
        key = id(weights[0])
        known = self._known.get(key)
        if known is None or not known.are(weights):
            if any(weight.is_inference() for weight in weights):  # their changes are not counted
                return None
            patience = 0 if known is None else known.patience
            known = _Weights(weights, patience, lambda _: self._known.pop(key, None))
            self._known[key] = known
            _ALL.add(known)
        if known.run is None:
            if known.calls >= known.patience:
                known.patience = 2 * known.patience + 1
                values = map(constant, map(real_view, weights))
                bound = BindParams("main", dict(zip(self._params, values, strict=True)))
                known.run = self._compiled(bound(self._module))
            known.calls += 1
        return known.run


_ALL: WeakSet[_Weights] = WeakSet()


@functools.cache
def _note_steps() -> None:
    """From now on, steps of optimisers are noted."""
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    changed = {id(param) for group in optimizer.param_groups for param in group["params"]}
    for weights in [*_ALL]:
        if not changed.isdisjoint(id(known()) for known, _, _ in weights.tensors):
            weights.stepped = True
