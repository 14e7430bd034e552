"""Attention of the layers of a call as programs, which machine code runs without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relaxpy.exec.graph.records import CONSTANT, Programs, copy_record, joined, kernel_record
from relaxpy.exec.graph.sessions import PackedCall
from relaxpy.exec.native.calls.direct import DirectKernel, direct_kernel, number_word
from relaxpy.exec.native.calls.interpreter import address_of
from relaxpy.exec.runtime.values import Array

if TYPE_CHECKING:
    from relaxpy.plugins.nn.caches.pages import PagedKVCache

_QKV, _OUT = 0, 1
"""The tensors of a call."""
_KEYS, _VALUES, _SCALE = range(CONSTANT + 1, CONSTANT + 4)
"""The constants of a call, after the number of its program."""


class Layers:
    """The layers of calls of attention with fused heads."""

    def __init__(
        self,
        cache: PagedKVCache,
        calls: Sequence[PackedCall],
        attention: DirectKernel,
        rotate: DirectKernel,
    ) -> None:
        """All calls fit the cache, whose kernels these are."""
        self._attention, self._rotate = attention, rotate
        self.numbers = [int(call.numbers[0]) for call in calls]
        self._taken: dict[DirectKernel, bool] = {}
        first: dict[bool, int] = {}
        """A layer of each kind."""
        rows = []
        for number, call in zip(self.numbers, calls, strict=True):
            kind = cache.is_sliding(number)
            first.setdefault(kind, number)
            own = map(address_of, cache.layers[number])
            rows.append(([*first].index(kind), *own, number_word(call.numbers[1])))
        self._constants: Array = np.array(rows, np.int64)
        self._firsts = [*first.values()]

    def programs(self, cache: PagedKVCache) -> Programs | None:
        """The programs of the call of a cache; None if Python has to compute them.

        That is so for a sequence whose tokens are not in one run of slots.
        """
        programs = [self._program(cache, layer) for layer in self._firsts]
        found = [program for program in programs if program is not None]
        if len(found) < len(programs):
            return None
        return joined(len(cache.positions), found, self._constants)

    def _program(self, cache: PagedKVCache, layer: int) -> list[int] | None:
        """That of the layers of the kind that this layer has."""
        keys, values = cache.layers[layer]
        q, k, v = cache.rotated
        qkv, out = (np.empty(shape, cache.dtype) for shape in cache.shapes)
        given: tuple[object, ...] = qkv, cache.positions, q, k, v, cache.rotary[1]
        if not self._takes(self._rotate, given):
            return None
        program = kernel_record(self._rotate, self._rotate.words(given), [(0, _QKV, 0)])
        for number, target, source in ((_KEYS, keys, k), (_VALUES, values, v)):
            program += _copies(number, target, source, cache.runs)
        mixed = out.reshape(len(q), cache.kv_heads, -1, cache.d_v)
        for prepared in cache.prepared(layer):
            if prepared is None:
                return None
            rows, queries, place, visible, sums = prepared
            given = queries, keys[place], values[place], visible, 0.0, mixed[rows], sums
            if not self._takes(self._attention, given):
                return None
            words = self._attention.words(given)
            start = place[1].start * keys.strides[1]
            offset = rows.start * mixed.strides[0]
            patches = (1, _KEYS, start), (2, _VALUES, start), (4, _SCALE, 0), (5, _OUT, offset)
            program += kernel_record(self._attention, words, patches)
        return program

    def _takes(self, kernel: DirectKernel, given: tuple[object, ...]) -> bool:
        """True if a kernel takes arguments; only their sizes differ between calls."""
        if kernel not in self._taken:
            self._taken[kernel] = kernel.takes(given)
        return self._taken[kernel]


def layers_of(cache: PagedKVCache, calls: Sequence[PackedCall]) -> Layers | None:
    """The layers of calls; None if a kernel is not machine code, or a tensor does not fit."""
    attention, rotate = direct_kernel(cache.attention), direct_kernel(cache.rotary[0])
    name = str(cache.dtype)
    expected = (
        (name, (cache.heads + 2 * cache.kv_heads, cache.d_qk)),
        (name, (cache.heads, cache.d_v)),
    )
    fits = cache.d_qk == cache.d_v and all(
        call.tensors == expected and len(call.numbers) == 2 and call.numbers[0] in cache.with_heads
        for call in calls
    )
    if attention is None or rotate is None or not fits:
        return None
    return Layers(cache, calls, attention, rotate)


def _copies(number: int, target: Array, source: Array, runs: Sequence[Sequence[int]]) -> list[int]:
    """The records that copy rows, (rows, heads, d), to runs of slots."""
    records: list[int] = []
    row_bytes, size = source.strides[:2]
    start = address_of(source)
    steps = (target.strides[0], size), (size, row_bytes)
    for first, stop in runs:
        counts = source.shape[1], stop - first
        records += copy_record((number, first * size), start, counts, steps, size)
        start += counts[1] * row_bytes
    return records
