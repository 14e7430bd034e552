"""Sequence states for `vm.builtin.kv_state_*`: caches, and states of recurrences."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.runtime.registry import provided


class SequenceState(ABC):
    """A state for each of several sequences, which have numbers."""

    def __init__(self) -> None:
        self.running: list[int] | None = None
        """The sequences of the current call."""

    @abstractmethod
    def sequence_ids(self) -> set[int]:
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
    if not isinstance(value, SequenceState):
        raise RuntimeCheckError(f"expected a cache or a state of sequences, found {value!r:.60}")
    return value


def whole_number(value: object) -> int:
    """An integer that a packed function takes. Errors: RuntimeCheckError if it is not one."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise RuntimeCheckError(f"expected an integer, found {value!r:.60}") from None


def whole_numbers(values: object) -> list[int]:
    """Integers that a packed function takes. Errors: RuntimeCheckError if they are none."""
    if not isinstance(values, Iterable):
        raise RuntimeCheckError(f"expected integers, found {values!r:.60}")
    return [whole_number(value) for value in values]


def check_tensor(
    name: str, x: object, shape: tuple[int | None, ...], dtype: np.dtype[Any] | None
) -> None:
    """Check a tensor that a packed function takes; sizes and datatype are unchecked if None.

    Errors:
        RuntimeCheckError: it has another shape or datatype, or is no tensor.
    """
    if not isinstance(x, np.ndarray):
        raise RuntimeCheckError(f"{name} is no tensor, found {x!r:.60}")
    if x.shape != shape and (
        x.ndim != len(shape) or any(n not in {None, m} for m, n in zip(x.shape, shape, strict=True))
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise RuntimeCheckError(f"{name} has the shape {x.shape}, expected ({wanted})")
    if x.dtype != dtype and (dtype is not None or x.dtype.kind not in "fV"):
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
    if len(sizes) != len(ids) or min(sizes, default=1) < 1:
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
