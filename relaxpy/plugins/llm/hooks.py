"""Hooks: functions of the user that read or change the states after layers, for some requests.

A program with hooks calls a packed function after the embedding and after each layer. All else of
it is native, and a request without hooks runs in the program without that step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.exec.runtime.registry import provided
from relaxpy.ir.ops.call import call_dps_packed
from relaxpy.ir.relax import nodes as rx
from relaxpy.plugins.llm.config import ModelError, shown
from relaxpy.plugins.nn.core import current_builder
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache
from relaxpy.support.dataclass import dataclass

Hook: TypeAlias = Callable[[Any], Any]
Hooks: TypeAlias = tuple[tuple[int, Hook], ...]
"""Functions with the layers after which they are called: 0 is the embedding."""
STEP: Final = "relaxpy.llm.hook"
"""The packed function."""
_RUNNING: Final[dict[Any, HookCalls]] = {}
"""The calls of hooks by the program that runs over a cache."""


@dataclass(frozen=True)
class HookCalls:
    """The hooks of the sequences of one call of the model, with the counts of their rows.

    A sequence whose hook fails goes on without hooks; its error is in `errors`, by its place.
    """

    hooks: Sequence[Hooks]
    counts: Sequence[int]
    errors: dict[int, Exception]

    def change(self, layer: int, states: Any) -> None:
        """Let the hooks of a layer read or change the states."""
        stop = 0
        for place, (hooks, count) in enumerate(zip(self.hooks, self.counts, strict=True)):
            start, stop = stop, stop + count
            for at, hook in hooks:
                if at == layer and place not in self.errors:
                    try:
                        states[start:stop] = _changed(layer, hook, states[start:stop])
                    except Exception as error:  # that request ends with it, the others go on
                        self.errors[place] = error


def _changed(layer: int, hook: Hook, states: Any) -> Any:
    """The states that a hook leaves; one that returns nothing may have changed its array."""
    own = states.copy()
    found = hook(own)
    found = own if found is None else found
    what = f"the hook of layer {layer} returns"
    if not isinstance(found, np.ndarray):
        raise ModelError(f"{what} an array or None, found {shown(found)}")
    if found.shape != states.shape:
        raise ModelError(f"{what} states of the shape {states.shape}, found {found.shape}")
    if found.dtype != states.dtype:
        raise ModelError(
            f"{what} states of {states.dtype}, found {found.dtype}",
            hint=f"states.astype({str(states.dtype)!r})",
        )
    return found


def with_hooks(
    cache: Any, hooks: Sequence[Hooks], counts: Sequence[int], call: Callable[[], Any]
) -> tuple[Any, dict[int, Exception]]:
    """The result of a call of a program over a cache, and the errors of hooks by their places."""
    if not any(hooks):
        return call(), {}
    calls = _RUNNING[cache] = HookCalls(hooks, counts, {})
    try:
        return call(), calls.errors
    finally:
        del _RUNNING[cache]


@provided(STEP, pure=True)
def _step(cache: Any, layer: int, states: Any, out: Any) -> None:
    np.copyto(out, states)
    calls = _RUNNING.get(cache)
    if calls is not None:  # the copies that a profile uses have none
        calls.change(int(layer), out)


def step(cache: PagedKVCache, layer: int, states: nn.Tensor) -> nn.Tensor:
    """The states that the hooks of a layer leave, as a step of the program."""
    out = rx.TensorStructInfo(states.shape, states.dtype)
    args = (cache._expr, rx.PrimValue(layer), states._expr)
    return nn.Tensor(_expr=current_builder().emit(call_dps_packed(STEP, args, out)))
