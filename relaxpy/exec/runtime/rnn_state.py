"""The packed functions of recurrent states: for each sequence, the last states of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.sequences import SequenceState, check_tensor, whole_number, whole_numbers

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass
class _Slot:
    """The location of the states of a sequence: `place` in the ring buffer of the last ones."""

    number: int
    place: int = 0
    length: int = 0
    older: int = 0
    """The number of earlier states that can be restored."""


class RNNState(SequenceState):
    """States of recurrences, with a history that `kv_state_popn` restores."""

    def __init__(self, layers: int, count: int, history: int, initial: Sequence[Array]) -> None:
        super().__init__()
        self.count, self.history, self.initial = count, history, initial
        self.states = [
            [np.empty((count, history, *x.shape), x.dtype) for x in initial] for _ in range(layers)
        ]
        self.slots: dict[int, _Slot] = {}
        self.lengths: list[int] = []

    @override
    def sequence_ids(self) -> set[int]:
        return set(self.slots)

    @override
    def clear(self) -> None:
        self.slots = {}

    @override
    def add(self, seq_id: int) -> None:
        slot = self._free_slot(seq_id)
        for layer in self.states:
            for tensor, initial in zip(layer, self.initial, strict=True):
                tensor[slot.number, 0] = initial

    def _free_slot(self, seq_id: int) -> _Slot:
        used = {slot.number for slot in self.slots.values()}
        number = next((k for k in range(self.count) if k not in used), None)
        if number is None:
            raise RuntimeCheckError(
                f"the state has its {self.count} sequences already",
                hint="remove a sequence, or create a state for more",
            )
        self.slots[seq_id] = _Slot(number)
        return self.slots[seq_id]

    @override
    def remove(self, seq_id: int) -> None:
        del self.slots[seq_id]

    @override
    def fork(self, parent: int, child: int, position: int) -> None:
        found = self.slots[parent]
        back = 0 if position == -1 else found.length - position
        self._require_older(parent, back)
        new = self._free_slot(child)
        for layer in self.states:
            for tensor in layer:
                tensor[new.number] = tensor[found.number]
        new.place, new.length, new.older = found.place, found.length, found.older
        self._go_back(new, back)

    def _require_older(self, seq_id: int, count: int) -> None:
        slot = self.slots[seq_id]
        if not 0 <= count <= slot.older:
            raise RuntimeCheckError(
                f"sequence {seq_id} can go back by {slot.older} tokens, found {count}",
                hint="create a state with a longer history",
            )

    def _go_back(self, slot: _Slot, count: int) -> None:
        slot.place = (slot.place - count) % self.history
        slot.older -= count
        slot.length -= count

    @override
    def pop(self, seq_id: int, count: int) -> None:
        self._require_older(seq_id, count)
        self._go_back(self.slots[seq_id], count)

    @override
    def begin(self, seq_ids: list[int], lengths: list[int], tree: list[int] | None) -> None:
        if tree is not None:
            raise RuntimeCheckError("recurrent states have no trees of tokens")
        self.lengths = lengths

    @override
    def end(self) -> None:
        for seq_id, length in zip(self.require_running(), self.lengths, strict=True):
            slot = self.slots[seq_id]
            slot.place = (slot.place + 1) % self.history
            # One-token calls can be undone, one step each.
            slot.older = min(slot.older + 1, self.history - 1) if length == 1 else 0
            slot.length += length

    def places(self, step: int) -> tuple[list[int], list[int]]:
        """The slots of the running sequences, and the places of their states `step` later."""
        slots = [self.slots[seq_id] for seq_id in self.require_running()]
        return [s.number for s in slots], [(s.place + step) % self.history for s in slots]

    def checked(self, layer: int, index: int, x: Array) -> Array:
        """The states of a kind of a layer; `x` has one for each running sequence."""
        tensor, count = self.tensor(layer, index), len(self.require_running())
        check_tensor("the tensor of states", x, (count, *tensor.shape[2:]), tensor.dtype)
        return tensor

    def tensor(self, layer: int, index: int) -> Array:
        """The states of a kind of a layer."""
        layer, index = whole_number(layer), whole_number(index)
        if not (0 <= layer < len(self.states) and 0 <= index < len(self.initial)):
            raise RuntimeCheckError(
                f"there are {len(self.states)} layers of {len(self.initial)} states, found state "
                f"{index} of layer {layer}"
            )
        return self.states[layer][index]


def _rnn(value: object) -> RNNState:
    if not isinstance(value, RNNState):
        raise RuntimeCheckError(f"expected a recurrent state, found {value!r:.60}")
    return value


@provided("vm.builtin.rnn_state_create", pure=True)
def create(
    layers: int, max_sequences: int, history: int, f_gets: Any, f_sets: Any, initial: Any
) -> RNNState:
    """A state of `layers` with tensors like `initial`; of the last `history` calls each.

    The kernels that read and write states have no effect: these are copies.

    Errors:
        RuntimeCheckError: a number is not positive.
    """
    numbers = layers, count, steps = whole_numbers((layers, max_sequences, history))
    if min(numbers) < 1:
        raise RuntimeCheckError(f"layers, sequences and history are positive, found {numbers}")
    if not isinstance(initial, (list, tuple)) or not all(
        isinstance(x, np.ndarray) for x in initial
    ):
        raise RuntimeCheckError(f"states begin as tensors, found {initial!r:.60}")
    return RNNState(layers, count, steps, initial)


@provided("vm.builtin.rnn_state_get", pure=True)
def get(state: RNNState, layer: int, index: int, out: Array) -> None:
    """Write the states of the running sequences to `out`, (sequences, ...)."""
    out[...] = _rnn(state).checked(layer, index, out)[state.places(0)]


@provided("vm.builtin.rnn_state_set", pure=True)
def set_state(state: RNNState, layer: int, index: int, value: Array) -> RNNState:
    """Set the states of the running sequences after the call; return the state."""
    _rnn(state).checked(layer, index, value)[state.places(1)] = value
    return state


@provided("vm.builtin.rnn_state_debug_get")
def debug_get(state: RNNState, layer: int, index: int, seq_id: int) -> Array:
    """A copy of the state of a sequence."""
    _rnn(state).require(whole_number(seq_id))
    slot = state.slots[seq_id]
    found: Array = state.tensor(layer, index)[slot.number, slot.place].copy()
    return found
