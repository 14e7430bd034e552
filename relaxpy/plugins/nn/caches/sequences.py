"""Sequence states for `vm.builtin.kv_state_*`: caches, recurrent states, and sampled tokens."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array, ShapeTuple


class SequenceState(ABC):
    """A state for each of several sequences, which have numbers."""

    def __init__(self) -> None:
        self.running: list[int] | None = None
        """The sequences of the current call."""

    @abstractmethod
    def sequence_ids(self) -> Set[int]:
        """The numbers of all sequences."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all sequences."""

    @abstractmethod
    def add(self, seq_id: int) -> None:
        """Add an empty sequence."""

    @abstractmethod
    def remove(self, seq_id: int) -> None:
        """Remove a sequence."""

    @abstractmethod
    def fork(self, parent: int, child: int, position: int) -> None:
        """Add a sequence that begins as another one does, up to a position; -1 is all of it."""

    @abstractmethod
    def pop(self, seq_id: int, count: int) -> None:
        """Remove the last tokens of a sequence."""

    @abstractmethod
    def begin(self, seq_ids: list[int], lengths: list[int], tree: list[int] | None) -> None:
        """Begin a call that appends tokens to sequences."""

    @abstractmethod
    def end(self) -> None:
        """End it."""

    def require(self, seq_id: int) -> None:
        """Errors: RuntimeCheckError if there is no sequence of this number."""
        known = self.sequence_ids()
        if seq_id not in known:
            shown = ", ".join(map(str, sorted(known)[:10])) or "none"
            raise RuntimeCheckError(f"there is no sequence {seq_id}; there are {shown}")

    def require_new(self, seq_id: int) -> None:
        """Errors: RuntimeCheckError if there is a sequence of this number."""
        if seq_id in self.sequence_ids():
            raise RuntimeCheckError(f"sequence {seq_id} has been added already")

    def require_running(self) -> list[int]:
        """The sequences of the call that has begun. Errors: RuntimeCheckError if none has."""
        if self.running is None:
            raise RuntimeCheckError(
                "no call has begun", hint="call vm.builtin.kv_state_begin_forward first"
            )
        return self.running

    def require_idle(self) -> None:
        """Errors: RuntimeCheckError if a call has begun and not ended."""
        if self.running is not None:
            raise RuntimeCheckError(
                "a call has begun and not ended", hint="call vm.builtin.kv_state_end_forward first"
            )


def _state(value: object) -> SequenceState:
    if SequenceState not in type(value).__mro__:
        raise RuntimeCheckError(f"expected a cache or a state of sequences, found {value!r:.60}")
    return value  # type: ignore[return-value]


def whole_number(value: object) -> int:
    """An integer that a packed function takes. Errors: RuntimeCheckError if it is not one."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise RuntimeCheckError(f"expected an integer, found {value!r:.60}") from None


def whole_numbers(values: object) -> list[int]:
    """Integers that a packed function takes. Errors: RuntimeCheckError if they are none."""
    if type(values) in (tuple, list, ShapeTuple) and {*map(type, values)} == {int}:  # type: ignore[call-overload]
        return [*values]  # type: ignore[misc]
    if not isinstance(values, Iterable):
        raise RuntimeCheckError(f"expected integers, found {values!r:.60}")
    return [whole_number(value) for value in values]


def check_tensor(
    name: str, x: object, shape: tuple[int | None, ...], dtype: np.dtype[Any] | None
) -> None:
    """Check a tensor that a packed function takes; sizes and datatype are unchecked if None.

    Errors:
        RuntimeCheckError: it has another shape or datatype, or is not a tensor.
    """
    if not isinstance(x, np.ndarray):
        raise RuntimeCheckError(f"{name} is not a tensor, found {x!r:.60}")
    if x.shape != shape and (
        x.ndim != len(shape) or any(n not in {None, m} for m, n in zip(x.shape, shape, strict=True))
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise RuntimeCheckError(f"{name} has the shape {x.shape}, expected ({wanted})")
    if x.dtype.kind not in "fV" if dtype is None else x.dtype != dtype:
        raise RuntimeCheckError(f"{name} has the datatype {x.dtype}, expected {dtype or 'a float'}")


@provided("vm.builtin.kv_state_clear")
def clear(state: SequenceState) -> None:
    """Remove all sequences, also in the middle of a call."""
    _state(state).running = None
    state.clear()


@provided("vm.builtin.kv_state_add_sequence")
def add_sequence(state: SequenceState, seq_id: int) -> None:
    """Add an empty sequence. Errors: RuntimeCheckError if there is one of this number."""
    _state(state).require_idle()
    state.require_new(whole_number(seq_id))
    state.add(whole_number(seq_id))


@provided("vm.builtin.kv_state_remove_sequence")
def remove_sequence(state: SequenceState, seq_id: int) -> None:
    """Remove a sequence. Errors: RuntimeCheckError if there is none of this number."""
    _state(state).require_idle()
    state.require(whole_number(seq_id))
    state.remove(whole_number(seq_id))


@provided("vm.builtin.kv_state_fork_sequence")
def fork_sequence(state: SequenceState, parent: int, child: int, position: int = -1) -> None:
    """Add a sequence that begins as another one does, up to a position; -1 is all of it.

    Errors:
        RuntimeCheckError: there is no such parent, or such a child already, or fewer tokens.
    """
    _state(state).require_idle()
    state.require(whole_number(parent))
    state.require_new(whole_number(child))
    state.fork(whole_number(parent), whole_number(child), whole_number(position))


@provided("vm.builtin.kv_state_popn")
def popn(state: SequenceState, seq_id: int, count: int) -> None:
    """Remove the last tokens of a sequence. Errors: RuntimeCheckError if it has fewer."""
    _state(state).require_idle()
    state.require(whole_number(seq_id))
    number = whole_number(count)
    if number < 0:
        raise RuntimeCheckError(f"{number} tokens cannot be removed")
    state.pop(whole_number(seq_id), number)


@provided("vm.builtin.kv_state_begin_forward")
def begin_forward(
    state: SequenceState,
    seq_ids: Sequence[int],
    lengths: Sequence[int],
    token_tree_parents: Sequence[int] | None = None,
) -> None:
    """Begin a call that appends `lengths` tokens to sequences.

    With `token_tree_parents` the tokens of a sequence are a tree: it has the position of the parent
    of each token of all sequences, -1 for a root.

    Errors:
        RuntimeCheckError: a sequence is unknown or occurs twice, or there is no memory for the
            tokens; the state is as before.
    """
    _state(state).require_idle()
    ids, sizes = whole_numbers(seq_ids), whole_numbers(lengths)
    for seq_id in ids:
        state.require(seq_id)
    if len(set(ids)) != len(ids):
        raise RuntimeCheckError(f"a sequence occurs twice in {ids}")
    if len(sizes) != len(ids) or (sizes and min(sizes) < 1):
        raise RuntimeCheckError(
            f"{counted(len(ids), 'sequence')} append at least one token each, found {sizes}"
        )
    tree = None if token_tree_parents is None else whole_numbers(token_tree_parents)
    state.begin(ids, sizes, tree)
    state.running = ids


@provided("vm.builtin.kv_state_end_forward")
def end_forward(state: SequenceState) -> None:
    """End the call. Errors: RuntimeCheckError if none has begun."""
    _state(state).require_running()
    state.end()
    state.running = None


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
    def sequence_ids(self) -> Set[int]:
        return self.slots.keys()

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


def _row(name: str, x: Array) -> Array:
    """The logits of one text, over the same memory."""
    leading = max(np.ndim(x) - 1, 0)
    check_tensor(name, x, (*[1] * leading, None), np.dtype("float32"))
    return x[(0,) * leading]  # type: ignore[no-any-return]


def _tokens(ids: Array, row: Array) -> list[int]:
    check_tensor("token_ids", ids, ids.shape, np.dtype("int32"))
    outside = ids[(ids < 0) | (ids >= len(row))]
    if outside.size:
        raise RuntimeCheckError(f"tokens are from 0 to {len(row) - 1}, found {outside[0]}")
    return list(map(int, ids.flat))


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise RuntimeCheckError(f"the {name} is positive, found {value}")


def _softmax(row: Array, temperature: float) -> Array:
    weights = np.exp((row.astype("float64") - row.max()) / temperature)
    return weights / weights.sum()  # type: ignore[no-any-return]


@provided("vm.builtin.sample_top_p_from_prob", pure=True)
def sample_top_p_from_prob(prob: Array, top_p: float, uniform_sample: float) -> int:
    """Nucleus sampling: one of the most probable tokens with total probability `top_p` or more.

    It is the first of them, in descending order, whose cumulative probability, normalised over all
    of them, exceeds the sample.

    Errors:
        RuntimeCheckError: `prob` is not one row of float32, or has no number.
    """
    return _chosen(_row("prob", prob), top_p, uniform_sample)


def _chosen(row: Array, top_p: float, uniform_sample: float) -> int:
    kept = np.flatnonzero(row >= 0)
    if not kept.size:
        raise RuntimeCheckError("no probability is a number, so there is no token to choose")
    kept = kept[np.argsort(-row[kept], kind="stable")]
    sums = np.cumsum(row[kept], dtype="float64")
    sums = sums[: np.searchsorted(sums, top_p) + 1]
    place = np.searchsorted(sums, uniform_sample * sums[-1], side="right")
    return int(kept[min(place, len(sums) - 1)])


@provided("vm.builtin.sample_top_p_from_logits", pure=True)
def sample_top_p_from_logits(
    logits: Array, temperature: float, top_p: float, uniform_sample: float
) -> int:
    """As `sample_top_p_from_prob` of their softmax; a temperature below 1e-6 takes the largest."""
    row = _row("logits", logits)
    if temperature < 1e-6:
        return int(row.argmax())
    return _chosen(_softmax(row, temperature), top_p, uniform_sample)


@provided("vm.builtin.apply_repetition_penalty")
def apply_repetition_penalty(logits: Array, token_ids: Array, penalty: float) -> None:
    """Divide positive logits of tokens by the penalty, and multiply others by it."""
    row = _row("logits", logits)
    _require_positive("penalty", penalty)
    for token in _tokens(token_ids, row):
        row[token] *= penalty if row[token] <= 0 else 1 / penalty


@provided("vm.builtin.apply_presence_and_frequency_penalty")
def apply_presence_and_frequency_penalty(
    logits: Array,
    token_ids: Array,
    token_freqs: Array,
    presence_penalty: float,
    frequency_penalty: float,
) -> None:
    """Lower the logits of tokens by a penalty, and by another one for each occurrence."""
    row = _row("logits", logits)
    tokens = _tokens(token_ids, row)
    check_tensor("token_freqs", token_freqs, token_ids.shape, np.dtype("int32"))
    penalties = token_freqs.ravel() * frequency_penalty + presence_penalty
    np.subtract.at(row, tokens, penalties.astype("float32"))


@provided("vm.builtin.apply_softmax_with_temperature")
def apply_softmax_with_temperature(logits: Array, temperature: float) -> None:
    """Replace logits by their softmax."""
    row = _row("logits", logits)
    _require_positive("temperature", temperature)
    row[...] = _softmax(row, temperature)
