"""Keys and values of many sequences, in pages, and attention to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import setitem
from typing import Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.program.graph.sessions import Forms, Numbers, Plan, Step, run_steps
from relaxpy.exec.runtime.values import Array, Part, PrimFuncValue
from relaxpy.plugins.nn.caches.attention import Parts, attend, attend_by, grouped, with_sinks
from relaxpy.plugins.nn.caches.sequences import SequenceState, check_tensor
from relaxpy.plugins.nn.caches.slots import Pages, Places, Sequence, tokens_at

Prepared: TypeAlias = "tuple[slice, Array, slice, Array, Array]"
"""The rows of a sequence, their queries, the slots of its tokens, what they see, and sums."""


MHA, MLA, MHA_SLIDING = 0, 1, 3
"""The kinds of attention of a layer."""
_FLOAT32: np.dtype[Any] = np.dtype("float32")


class _Work:
    """The work of the running call on a sequence; `rows` are those of its tokens in the call.

    There are sequences of the visible tokens, those of the call last, for all layers, and for those
    with sliding attention. So there are masks of the last tokens that each row sees; None if
    it sees all.
    """

    def __init__(
        self,
        rows: slice,
        seen: Sequence,
        window: Sequence,
        masks: tuple[Array | None, Array | None],
    ) -> None:
        self.rows, self.masks = rows, masks
        self._sequences = {False: seen, True: window}
        self._places: dict[tuple[bool, bool], Places] = {}
        self._seen: dict[tuple[bool | None, int, int], Array] = {}
        self._queries: tuple[Array | None, Array] = None, np.empty(0)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy without what is derived, whose views would be copies."""
        seen, window = self._sequences[False], self._sequences[True]
        return _Work, (self.rows, seen, window, self.masks)

    def places(self, sliding: bool, with_own: bool = True) -> Places:
        """The locations of the tokens, with or without those of the call."""
        found = self._places.get((sliding, with_own))
        if found is None:
            sequence = self._sequences[sliding]
            if not with_own:
                count = self.rows.stop - self.rows.start
                sequence = Sequence(slots=sequence.slots[: len(sequence.slots) - count])
            found = self._places[sliding, with_own] = sequence.places()
        return found

    def queries(self, q: Array, keys: Array) -> Array:
        """The queries of the rows among those of the call, as `attend_by` takes them."""
        known, found = self._queries
        if known is not q or found.shape[1] != len(keys) or found.dtype != keys.dtype:
            found = grouped(q[self.rows], keys)
            if np.may_share_memory(found, q):  # it remains the same in later layers
                self._queries = q, found
        return found

    def all_seen(self, sliding: bool | None, size: int, group: int) -> Array:
        """The mask of `size` keys for each row, repeated for each of `group` query heads.

        The last keys are those of the rows; none is if `sliding` is None.
        """
        found = self._seen.get((sliding, size, group))
        if found is None:
            rows = self.rows.stop - self.rows.start
            mask = None if sliding is None else self.masks[sliding]
            if mask is None:
                count = rows * group
                found = np.ndarray((count, size), bool, b"\1" * (count * size))
            else:
                every = np.ones((rows, group, size), bool)
                count = min(size, mask.shape[1])
                every[..., size - count :] = mask[:, np.newaxis, mask.shape[1] - count :]
                found = every.reshape(rows * group, size)
            self._seen[sliding, size, group] = found
        return found

    def prepared(self, queries: Array, sliding: bool) -> Prepared | None:
        """The arguments of a kernel that are the same in all layers.

        They are None for a sequence that is not in one run of slots, which each layer copies.
        """
        places = self.places(sliding)
        if len(places) != 1 or not isinstance(places[0], slice):
            return None
        own, place = queries[self.rows], places[0]
        seen = self.all_seen(sliding, place.stop - place.start, own.shape[2])
        sums: Array = np.empty(own.shape[:3], np.float32)
        return self.rows, own, place, seen, sums


@dataclass(eq=False)
class _Call:
    """The call that has begun, and what its layers share.

    Fields:
        shapes: those of `qkv` and the result of layers with fused heads.
        q: the queries after rotation, (rows, heads, d); layers share them.
        valid: as a `Plan` has it; 0 after the call.
        appended: the layers that have appended the tokens.
        attended: those that have attended to the tokens of the call alone.
        prepared: the arguments of kernels, for layers whose attention slides and others.
    """

    work: list[_Work]
    positions: Array
    slots: Array | slice
    shapes: tuple[tuple[int, ...], ...]
    q: Array
    valid: Array
    appended: set[int] = field(default_factory=set)
    attended: set[int] = field(default_factory=set)
    prepared: dict[bool, list[Prepared | None]] = field(default_factory=dict, init=False)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy without what is derived, whose views would be copies."""
        return _Call, tuple(getattr(self, each.name) for each in fields(self) if each.init)


_NO_CALL: Final = _Call([], np.empty(0, np.int32), slice(0), (), np.empty(0), np.array([0]))


@dataclass(frozen=True)
class _Layers:
    """The layers of calls with fused heads, and what the calls have.

    Fields:
        layers: the layers, in the order of the calls.
        scale: the scale of all, or a list of those of each.
        numbers: the positions of the layers in a tensor of all.
        sliding: whether the attention of each slides; `kinds` has what occurs.
        offsets: the offset of each from the first one in tensors of all layers, by strides.
    """

    layers: list[int]
    scale: float | list[float]
    numbers: list[int]
    sliding: list[bool]
    kinds: frozenset[bool]
    offsets: dict[int, Array] = field(default_factory=dict, init=False)

    def of_each(self, x: Array, slots: slice, *, by_slot: bool = False) -> Any:
        """The slots of each layer in a tensor of all, for the calls: (heads, slots, d)."""
        numbers = self.numbers
        first: Array = x[numbers[0], :, slots]
        first = first.transpose(1, 0, 2) if by_slot else first
        if len(numbers) == 1:
            return first
        if len(self.kinds) > 1:
            parts = [x[number, :, slots] for number in numbers]
            return [part.transpose(1, 0, 2) for part in parts] if by_slot else parts
        stride = x.strides[0]
        offsets = self.offsets.get(stride)
        if offsets is None:
            offsets = self.offsets[stride] = (np.array(numbers) - numbers[0]) * stride
        return Part((first, first.view(), offsets))

    def by_kind(self, arguments: dict[bool, tuple[Any, ...]]) -> tuple[Any, ...]:
        """The arguments of steps by whether the attention of a layer slides, as those of all."""
        if len(arguments) == 1:
            return next(iter(arguments.values()))

        def of_call(number: int, slides: bool) -> list[Any]:
            return [x[number] if type(x) is list else x for x in arguments[slides]]

        rows = [of_call(number, slides) for number, slides in enumerate(self.sliding)]
        return tuple([*column] for column in zip(*rows, strict=True))


class PagedKVCache(SequenceState):
    """Keys and values of the tokens of many sequences, for each layer."""

    def __init__(
        self,
        limits: tuple[int, ...],
        kinds: list[int],
        heads: tuple[int, int],
        sizes: tuple[int, int],
        dtype: np.dtype[Any],
        rotary: tuple[Callable[..., object] | None, Any],
        attention: Callable[..., object] | None = None,
        latent_attention: Callable[..., object] | None = None,
        *,
        rotates_by_head: bool = False,
    ) -> None:
        """`attention` is the kernel for heads of keys, `latent_attention` that for latent rows.

        NumPy computes attention where there is none. A kernel that `rotates_by_head` writes keys
        and values where they are kept.
        """
        super().__init__()
        self.max_sequences, tokens, self.chunk, page_size, self.sliding, window = limits
        self._has_windows = MHA_SLIDING in kinds
        self._keeps_all = {MHA, MHA_SLIDING} <= {*kinds}
        self.window = window if self._has_windows else 0
        self.kinds, (self.heads, self.kv_heads), self.dtype = kinds, heads, dtype
        self._dtype_name = str(dtype)
        self.d_qk, self.d_v = sizes
        self._with_heads = {layer for layer, kind in enumerate(kinds) if kind != MLA}
        rotate, extra = rotary
        self.rotary = _direct(rotate), extra
        self._rotates_by_head = rotates_by_head
        self.attention, self.latent_attention = map(_direct, (attention, latent_attention))
        # Users' functions may have effects, so that their calls cannot be repeated.
        self._has_own_kernels = all(
            isinstance(kernel, PrimFuncValue) or kernel is None for kernel in (rotate, attention)
        )
        # The last page of each sequence, and that of its sinks, may be partly empty.
        count = -(-tokens // page_size) + self.max_sequences * (1 + bool(self.sliding))
        self.pages = Pages(count, page_size)
        count = len(self._with_heads)
        self.keys, self.values = (self._tensor(count, self.kv_heads, d) for d in sizes)
        self.latent = self._tensor(len(kinds) - count, 1, self.d_qk)
        self._numbers = [kinds[:n].count(MLA) for n in range(len(kinds))]
        self._numbers = [k if kinds[n] == MLA else n - k for n, k in enumerate(self._numbers)]
        """The number of each layer among those of the same tensor."""
        self._session: tuple[Forms, tuple[Numbers, ...], _Layers] | None = None
        """The layers of the calls that were planned last."""
        self.sequences: dict[int, Sequence] = {}
        self._call = _NO_CALL

    def _tensor(self, layers: int, heads: int, size: int) -> Array:
        """A tensor of all layers, whose views are made in less time than those of one for each."""
        tensor = np.zeros((layers, heads, self.pages.count * self.pages.size, size), self.dtype)
        if layers:
            self.pages.tensors.append(tensor)
        return tensor

    def memory(self, layer: int) -> tuple[Array, Array]:
        """The keys and the values of a layer, (heads, slots, d)."""
        number = self._numbers[layer]
        if self.kinds[layer] == MLA:
            latent = self.latent[number]
            return latent, latent[:, :, : self.d_v]
        return self.keys[number], self.values[number]

    @property
    def positions(self) -> Array:
        """The positions of the tokens of the call."""
        return self._call.positions

    def _change_call(self, call: _Call) -> None:
        """Set the call, so that plans of the one before are outdated."""
        self._call.valid[0] = 0
        self._call = call

    # --- sequences

    @override
    def sequence_ids(self) -> Set[int]:
        return self.sequences.keys()

    @override
    def clear(self) -> None:
        for seq_id in list(self.sequences):
            self.remove(seq_id)
        self._change_call(_NO_CALL)

    @override
    def add(self, seq_id: int) -> None:
        self._require_room()
        self.sequences[seq_id] = Sequence()

    def _require_room(self) -> None:
        if len(self.sequences) >= self.max_sequences:
            raise RuntimeCheckError(
                f"the cache has its {self.max_sequences} sequences already",
                hint="remove a sequence, or create a cache for more",
            )

    @override
    def remove(self, seq_id: int) -> None:
        self.pages.keep(self.sequences.pop(seq_id), [])

    @override
    def fork(self, parent: int, child: int, position: int) -> None:
        self._require_room()
        found = self._settled(parent)
        if position > found.position or position < -1:
            raise RuntimeCheckError(
                f"sequence {parent} has {found.position} tokens, it cannot be forked at {position}"
            )
        if position not in {-1, found.position} and found.position != len(found.slots):
            raise RuntimeCheckError(
                f"sequence {parent} has dropped tokens from its window: it is forked at its end"
            )
        count = len(found.slots) if position == -1 else position
        self.sequences[child] = self.pages.forked(found, count)
        self.sequences[child].position = found.position if position == -1 else position

    def _settled(self, seq_id: int) -> Sequence:
        """A sequence. Errors: RuntimeCheckError if it ends with a tree."""
        seq = self.sequences[seq_id]
        if seq.tree is not None:
            raise RuntimeCheckError(
                f"sequence {seq_id} ends with a tree of tokens of which none is accepted yet",
                hint="call vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes first",
            )
        return seq

    @override
    def pop(self, seq_id: int, count: int) -> None:
        seq = self._settled(seq_id)
        if count > len(seq.slots):
            raise RuntimeCheckError(
                f"sequence {seq_id} has {len(seq.slots)} tokens, {count} cannot be removed"
            )
        self.pages.drop(seq, count)
        seq.position -= count

    def set_window(self, seq_id: int, window: int, sinks: int) -> None:
        """Let a sequence keep only its first `sinks` tokens, and `window` tokens in all."""
        if not self.sliding:
            raise RuntimeCheckError("the cache was created without support of sliding windows")
        if not 0 <= sinks < window:
            raise RuntimeCheckError(f"a window of {window} tokens cannot have {sinks} sinks")
        seq = self._settled(seq_id)
        seq.window, seq.sinks = window, sinks
        self._slide(seq)

    def _slide(self, seq: Sequence) -> None:
        """Drop tokens that no layer sees any more."""
        if self._keeps_all:
            return
        kept = _in_window(seq, seq.slots)
        if len(kept) < len(seq.slots):
            self.pages.keep(seq, kept)

    # --- a call

    @override
    def begin(self, seq_ids: list[int], lengths: list[int], tree: list[int] | None) -> None:
        total = sum(lengths)
        if total > self.chunk:
            raise RuntimeCheckError(
                f"a call appends at most {self.chunk} tokens, found {total}",
                hint="append them in several calls, or create a cache with a larger chunk",
            )
        if tree is not None and len(tree) != total:
            raise RuntimeCheckError(f"{total} tokens have parents, found {len(tree)}")
        seqs = [self._settled(seq_id) for seq_id in seq_ids]
        rest = iter(tree or ())
        parents = [None if tree is None else [*islice(rest, length)] for length in lengths]
        depths = [*map(_depths, parents, lengths)]
        needed = sum(map(self.pages.needed, seqs, lengths))
        if needed > len(self.pages.free):
            raise RuntimeCheckError(
                f"the cache is full: {counted(total, 'token')} need "
                f"{counted(needed, 'page')}, "
                f"{len(self.pages.free)} of {self.pages.count} are free",
                hint="remove a sequence, or create a cache for more tokens",
            )
        start = 0
        slots: list[int] = []
        positions: list[int] = []
        works = []
        for seq, length, own, depth in zip(seqs, lengths, parents, depths, strict=True):
            slots += self.pages.append(seq, length)
            positions += [seq.position + d for d in depth]
            rows = slice(start, start + length)
            mask = window_mask = _mask(own, length)
            window = seq
            if self._has_windows:
                before, new = seq.slots[:-length], seq.slots[-length:]
                kept = _in_window(seq, before)
                if self.window and seq.window is None:
                    kept = before[max(0, len(before) - self.window + 1) :]
                    window_mask = _window_mask(mask, depth, len(kept), self.window)
                window = Sequence(slots=[*kept, *new])
            works.append(_Work(rows, seq, window, (mask, window_mask)))
            seq.tree = own
            seq.position += length
            start += length
        heads, d, first = self.heads, self.d_qk, slots[0] if slots else 0
        is_run = slots == [*range(first, first + start)]
        self._change_call(
            _Call(
                works,
                np.array(positions, np.int32),
                slice(first, first + start) if is_run else np.array(slots, np.int64),
                ((start, heads + 2 * self.kv_heads, d), (start, heads, self.d_v)),
                np.empty((start, heads, d), self.dtype),
                np.array([1]),
            )
        )

    @override
    def end(self) -> None:
        for seq_id in self.require_running():
            if self.sequences[seq_id].tree is None:
                self._slide(self.sequences[seq_id])
        self._change_call(_NO_CALL)

    def commit(self, seq_ids: list[int], leaves: list[int]) -> None:
        """Keep the path to a token of the tree at the end of a sequence; nothing for -1."""
        for seq_id, leaf in zip(seq_ids, leaves, strict=True):
            seq = self.sequences[seq_id]
            tree = seq.tree
            if tree is None or not -1 <= leaf < len(tree):
                count = 0 if tree is None else len(tree)
                raise RuntimeCheckError(
                    f"sequence {seq_id} ends with a tree of {count} tokens, none is token {leaf}"
                )
        for seq_id, leaf in zip(seq_ids, leaves, strict=True):
            seq = self.sequences[seq_id]
            assert seq.tree is not None
            count, path, at = len(seq.tree), [], leaf
            while at != -1:
                path.append(at)
                at = seq.tree[at]
            before, new = seq.slots[:-count], seq.slots[-count:]
            for place, token in enumerate(reversed(path)):
                for tensor in self.pages.tensors:
                    tensor[:, :, new[place]] = tensor[:, :, new[token]]
            self.pages.keep(seq, [*before, *new[: len(path)]])
            seq.position -= count - len(path)
            seq.tree = None
            self._slide(seq)

    # --- attention

    def _layer(self, layer: int, *kinds: int) -> tuple[Array, Array]:
        """The keys and values of a layer, whose attention is of one of these kinds."""
        self.require_running()
        if not 0 <= layer < len(self.kinds):
            raise RuntimeCheckError(
                f"the cache has the layers 0 to {len(self.kinds) - 1}, found {layer}"
            )
        if kinds and self.kinds[layer] not in kinds:
            kept = "latent rows" if self.kinds[layer] == MLA else "heads of keys and values"
            raise RuntimeCheckError(f"layer {layer} keeps {kept}")
        return self.memory(layer)

    def _seen(self, layer: int, work: _Work, with_own: bool = True) -> Parts:
        keys, values = self.memory(layer)
        places = work.places(self.kinds[layer] == MHA_SLIDING, with_own)
        if self.kinds[layer] == MLA:
            rows = [tokens_at(keys, place) for place in places]
            return [(part, part[:, :, : self.d_v]) for part in rows]
        return [(tokens_at(keys, place), tokens_at(values, place)) for place in places]

    def _check(self, name: str, x: Array, *sizes: int | None, dtype: np.dtype[Any] | None) -> None:
        """Check a tensor with a row for each token of the call."""
        check_tensor(name, x, (len(self.positions), *sizes), dtype)

    def fused(
        self, layer: int, scale: float, qkv: Array, out: Array, sinks: Array | None = None
    ) -> None:
        """Append keys and values, and attend to all tokens of a sequence.

        Each head may have a sink, a score without a value.
        """
        call = self._call
        is_as_planned = (
            type(qkv) is type(out) is np.ndarray
            and (qkv.shape, out.shape) == call.shapes
            and qkv.dtype == out.dtype == self.dtype
            and layer in self._with_heads
        )
        if not is_as_planned:
            self._layer(layer, MHA, MHA_SLIDING)
            self._check("qkv", qkv, self.heads + 2 * self.kv_heads, self.d_qk, dtype=self.dtype)
            self._check("the result", out, self.heads, self.d_v, dtype=None)
        if sinks is not None:
            check_tensor("the tensor of sinks", sinks, (self.heads,), None)
        run_steps(self._steps(call, self._layers([layer], [scale]), qkv, out, sinks), 0)

    def planned(self, forms: Forms, calls: tuple[Numbers, ...]) -> Plan | None:
        """The plan of calls of `fused` without sinks, if they fit the call that has begun."""
        known = self._session
        if known is None or known[0] is not forms or known[1] is not calls:
            layers = self._planned_layers(forms, calls)
            if layers is None:
                return None
            known = self._session = forms, calls, layers
        if self.running is None:
            return None
        call = self._call
        qkv, out = (np.empty(shape, self.dtype) for shape in call.shapes)
        steps = tuple(self._steps(call, known[2], qkv, out))
        return Plan(call.valid, len(call.positions), (qkv, out), steps)

    def _planned_layers(self, forms: Forms, calls: tuple[Numbers, ...]) -> _Layers | None:
        """The layers of calls of `fused` that can be planned."""
        shapes = (self.heads + 2 * self.kv_heads, self.d_qk), (self.heads, self.d_v)
        is_known = self._has_own_kernels and [(self._dtype_name, x) for x in shapes] == [*forms]
        if not is_known or {(len(each), type(each[0])) for each in calls} != {(2, int)}:
            return None
        layers, scales = [int(each[0]) for each in calls], [float(each[1]) for each in calls]
        return self._layers(layers, scales) if self._with_heads.issuperset(layers) else None

    def _layers(self, layers: list[int], scales: list[float]) -> _Layers:
        scale = scales if len({*scales}) > 1 else scales[0]
        sliding = [self.kinds[layer] == MHA_SLIDING for layer in layers]
        numbers = [self._numbers[layer] for layer in layers]
        return _Layers(layers, scale, numbers, sliding, frozenset(sliding))

    def _steps(
        self, call: _Call, calls: _Layers, qkv: Array, out: Array, sinks: Array | None = None
    ) -> Iterator[Step]:
        """The functions that each layer calls, with their arguments."""
        yield from self._appending(call, calls, qkv)
        yield call.appended.add, (calls.layers,)
        kernel = self.attention if sinks is None else None
        is_direct = kernel is None or (out.dtype == self.dtype and out.flags.c_contiguous)
        found: Array = out if is_direct else np.empty(out.shape, self.dtype)
        kinds = {slides: self._prepared(call, slides) for slides in calls.kinds}
        for number, work in enumerate(call.work):
            known = {slides: prepared[number] for slides, prepared in kinds.items()}
            if kernel is None or None in known.values():
                result = found[work.rows]
                yield self._attend, (calls.layers, work, calls.scale, call.q, result, sinks)
                continue
            arguments = {}
            for slides, (rows, queries, tokens, seen, sums) in known.items():  # type: ignore[misc]
                read = [calls.of_each(x, tokens) for x in (self.keys, self.values)]
                mixed = found[rows].reshape(*sums.shape, self.d_v)
                arguments[slides] = queries, *read, seen, calls.scale, mixed, sums
            yield kernel, calls.by_kind(arguments)
        if found is not out:
            yield setitem, (out, ..., found)

    def _prepared(self, call: _Call, sliding: bool) -> list[Prepared | None]:
        found = call.prepared.get(sliding)
        if found is None:
            queries = call.q.reshape(len(call.q), self.kv_heads, -1, self.d_qk)
            found = call.prepared[sliding] = [w.prepared(queries, sliding) for w in call.work]
        return found

    def _appending(self, call: _Call, calls: _Layers, qkv: Array) -> Iterator[Step]:
        """The functions that split heads, rotate them, and append keys and values."""
        (rotate, extra), slots, by_head = self.rotary, call.slots, self._rotates_by_head
        rows, heads, d = len(call.q), self.kv_heads, self.d_qk
        read = np.ascontiguousarray(qkv), call.positions, call.q
        if rotate is None:
            first, end = self.heads, self.heads + heads
            yield setitem, (call.q, ..., qkv[:, :first])
            new = [qkv[:, first:end], qkv[:, end:]]
        elif by_head and isinstance(slots, slice) and d == self.d_v:
            kept = [calls.of_each(x, slots, by_slot=True) for x in (self.keys, self.values)]
            yield rotate, (*read, *kept, extra)
            return
        else:
            shape = (heads, rows, d) if by_head else (rows, heads, d)
            new = [np.empty(shape, self.dtype) for _ in range(2)]
            new = [x.transpose(1, 0, 2) for x in new] if by_head else new
            yield rotate, (*read, *new, extra)
        for tensor, x in zip((self.keys, self.values), new, strict=True):
            parts = calls.of_each(tensor, slice(None))
            yield setitem, (parts, (slice(None), slots), x.transpose(1, 0, 2))

    def shared(self, layer: int, scale: float, q: Array, k: Array, v: Array, out: Array) -> None:
        """Attend to the cache of another layer, which appended the tokens of the call."""
        self._layer(layer, MHA, MHA_SLIDING)
        self._check("q", q, self.heads, self.d_qk, dtype=None)
        self._check("k", k, self.kv_heads, self.d_qk, dtype=None)
        self._check("v", v, self.kv_heads, self.d_v, dtype=None)
        self._check("the result", out, self.heads, self.d_v, dtype=None)
        call = self._call
        if layer not in call.appended:
            raise RuntimeCheckError(f"layer {layer} has not appended the tokens of the call")
        for work in call.work:
            self._attend(layer, work, scale, q, out[work.rows], None)

    def _attend(
        self, layer: int, work: _Work, scale: float, q: Array, out: Array, sinks: Array | None
    ) -> None:
        """Write the attention of the rows of a sequence, which may be in several runs of slots."""
        sliding = self.kinds[layer] == MHA_SLIDING
        seen = self._seen(layer, work)
        lse = _attend(self.attention, work, sliding, q, seen, scale, out)
        if sinks is not None:
            out[...] = with_sinks(out, lse, sinks)

    def own(
        self, layer: int, scale: float, q: Array, k: Array, v: Array, out: Array, lse: Array
    ) -> None:
        """Attend to the tokens of the call only, whose keys and values are given."""
        self._layer(layer)
        self._check("q", q, self.heads, None, dtype=None)
        self._check("k", k, None, q.shape[2], dtype=None)
        heads = k.shape[1]
        if heads < 1 or self.heads % heads:
            raise RuntimeCheckError(
                f"{self.heads} heads of queries cannot share {heads} heads of keys"
            )
        self._check("v", v, heads, None, dtype=None)
        self._check("the result", out, self.heads, v.shape[2], dtype=None)
        self._check("the sums", lse, self.heads, dtype=_FLOAT32)
        self._call.attended.add(layer)
        sliding = self.kinds[layer] == MHA_SLIDING
        for work in self._call.work:
            rows = work.rows
            keys, values = (x[rows].transpose(1, 0, 2) for x in (k, v))
            if self.attention is not None:
                # Their datatype is that of the tokens that are kept.
                keys, values = (np.ascontiguousarray(x, self.dtype) for x in (keys, values))
            parts = [(keys, values)]
            lse[rows] = _attend(self.attention, work, sliding, q, parts, scale, out[rows])

    def past(self, layer: int, scale: float, q: Array, out: Array, lse: Array) -> None:
        """Attend to the tokens before the call.

        Where each sequence has one new token, which was appended and is not attended to by `own`,
        it is one of them.
        """
        self._layer(layer)
        if self.kinds[layer] == MHA_SLIDING and self.window:
            raise RuntimeCheckError(
                f"layer {layer} sees a window of tokens, which it cannot divide"
            )
        self._check("q", q, self.heads, self.d_qk, dtype=None)
        self._check("the result", out, self.heads, self.d_v, dtype=None)
        self._check("the sums", lse, self.heads, dtype=_FLOAT32)
        decodes = all(work.rows.stop == work.rows.start + 1 for work in self._call.work)
        with_own = decodes and layer in self._call.appended - self._call.attended
        kernel = self.latent_attention if self.kinds[layer] == MLA else self.attention
        for work in self._call.work:
            rows = work.rows
            seen = self._seen(layer, work, with_own)
            if seen:
                lse[rows] = _attend(kernel, work, None, q, seen, scale, out[rows])
            else:
                out[rows], lse[rows] = 0, -np.inf

    def append_latent(self, layer: int, rows: Array) -> None:
        """Append the latent rows of multi-head latent attention."""
        keys, _ = self._layer(layer, MLA)
        self._check("the tensor of rows", rows, self.d_qk, dtype=self.dtype)
        keys[0, self._call.slots] = rows
        self._call.appended.add(layer)


def _attend(
    kernel: Callable[..., object] | None,
    work: _Work,
    sliding: bool | None,
    q: Array,
    parts: Parts,
    scale: float,
    out: Array,
) -> Array:
    """Write the attention of the rows of a sequence to `parts`.

    The last keys may be their own; none are if `sliding` is None; otherwise it says which masks
    hold. The result is log2 of the sums of the weights.
    """
    size = sum([keys.shape[1] for keys, _ in parts])
    if kernel is None:
        mask = None if sliding is None else work.masks[sliding]
        if mask is not None:
            mask = mask[:, max(0, mask.shape[1] - size) :]
        out[...], lse = attend(q[work.rows], parts, scale, mask)
        return lse
    queries = work.queries(q, parts[0][0])
    seen = work.all_seen(sliding, size, queries.shape[2])
    return attend_by(kernel, queries, parts, scale, seen, out)


def _direct(function: Callable[..., object] | None) -> Callable[..., object] | None:
    """The function that runs a PrimFunc of the module on values, without conversions."""
    return function.run if isinstance(function, PrimFuncValue) else function


def _in_window(seq: Sequence, slots: list[int]) -> list[int]:
    """The slots that are in the window of a sequence."""
    if seq.window is None or len(slots) <= seq.window:
        return slots
    return [*slots[: seq.sinks], *slots[len(slots) - (seq.window - seq.sinks) :]]


def _depths(parents: list[int] | None, length: int) -> list[int] | range:
    """The depths of tokens in the tree at the end. Errors: RuntimeCheckError for no tree."""
    if parents is None:
        return range(length)
    depths: list[int] = []
    for token, parent in enumerate(parents):
        if not -1 <= parent < token:
            raise RuntimeCheckError(
                f"token {token} of a tree has the parent {parent}, which is not before it"
            )
        depths.append(0 if parent == -1 else depths[parent] + 1)
    return depths


def _mask(parents: list[int] | None, length: int) -> Array | None:
    """The mask of the tokens of the call that a token sees: earlier ones, or its ancestors."""
    if length == 1:
        return None
    if parents is None:
        return np.tri(length, dtype=bool)
    mask: Array = np.eye(length, dtype=bool)
    for token, parent in enumerate(parents):
        if parent != -1:
            mask[token] |= mask[parent]
    return mask


def _window_mask(
    own: Array | None, depths: list[int] | range, past: int, window: int
) -> Array | None:
    """The mask of `past` and new tokens that a token sees: at most the last `window` ones."""
    if own is None:
        return None
    position = np.arange(-past, len(depths))
    position[past:] = depths
    seen = np.concatenate([np.ones((len(depths), past), bool), own], axis=1)
    near: Array = position > np.array(depths)[:, np.newaxis] - window
    return seen & near
