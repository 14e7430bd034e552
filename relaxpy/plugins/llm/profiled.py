"""The time of a prompt and of a token, by operator and by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.exec.inspect.profile import Profile, ProfileRow
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.peak import peak_bytes
from relaxpy.plugins.llm.adapters import Adapter
from relaxpy.plugins.llm.compiled import CompiledDecoder
from relaxpy.plugins.llm.config import ModelError
from relaxpy.plugins.llm.hooks import STEP
from relaxpy.support.dataclass import dataclass

_ATTENTION: Final = "attention"
_NAMES: Final = {"vm.builtin.attention_kv_cache_attention_with_fused_qkv": _ATTENTION}
_REST: Final = "between operators"
EMBEDDING, HEAD = "embedding", "head"


@dataclass(frozen=True)
class StepProfile:
    """The time of one call of a model, after `context` tokens that the cache has.

    Fields:
        layers: the operators of the embedding, of each layer, and of the norm and the scores after
            them ("head"), by these names.
    """

    tokens: int
    context: int
    whole: Profile
    layers: dict[str, Profile]

    @property
    def by_operator(self) -> Profile:
        """A row for each operator, the one that takes longest first."""
        return self.whole.by_operator()

    @property
    def by_layer(self) -> Profile:
        """A row for each layer, in their order; steps between operators are in the last row."""
        rows = [
            replace(_sum(name, profile.rows), duration=profile.duration)
            for name, profile in self.layers.items()
        ]
        rest = self.whole.duration - sum(row.duration for row in rows)
        return Profile((*rows, ProfileRow(_REST, "", 0, rest)), self.whole.duration)

    @override
    def __str__(self) -> str:
        what = "token" if self.tokens == 1 else "tokens"
        rate = self.tokens / self.whole.duration
        title = f"{self.tokens} {what} after {self.context}: {rate:.1f} tokens/s"
        return "\n\n".join((title, str(self.by_operator), str(self.by_layer)))


@dataclass(frozen=True)
class ModelProfile:
    """The time of a prompt, and of the token after it.

    Fields:
        bandwidth: the bytes per second that this machine reads and writes when it copies as much as
            a token reads; None where there is no native code, which measures it.
    """

    prompt: StepProfile
    token: StepProfile
    bandwidth: float | None

    def record(self) -> dict[str, Any]:
        """The rows of operators by layers, as JSON has them."""
        return {
            name: {
                "tokens": step.tokens,
                "context": step.context,
                "duration": step.whole.duration,
                "layers": {
                    layer: [asdict(row) for row in profile]
                    for layer, profile in step.layers.items()
                },
            }
            for name, step in (("prompt", self.prompt), ("token", self.token))
        } | {"bandwidth": self.bandwidth}

    @override
    def __str__(self) -> str:
        parts = [f"prompt: {self.prompt}", f"next token: {self.token}"]
        if self.bandwidth is not None:
            read = _read(self.token)
            rate = read / self.token.whole.duration
            parts.append(
                f"a token reads {read / 1e6:.1f} MB, {rate / 1e9:.1f} GB/s of "
                f"{self.bandwidth / 1e9:.1f} GB/s that this machine copies"
            )
        return "\n\n\n".join(parts)


def _read(step: StepProfile) -> int:
    """The bytes of a step."""
    return sum(row.bytes for row in step.by_layer)


def profile_of(
    decoder: CompiledDecoder, tokens: Sequence[int], repeat: int, adapter: Adapter | None = None
) -> ModelProfile:
    """The profile of a prompt, whose last chunk counts, and of a token after it.

    Errors:
        ModelError: the prompt leaves no room for a token.
    """
    if len(tokens) >= decoder.context:
        raise ModelError(
            f"a prompt of {len(tokens)} tokens leaves no room for another: a sequence has at most "
            f"{decoder.context}"
        )
    cache = decoder.single_cache
    start = (len(tokens) - 1) // decoder.chunk * decoder.chunk
    decoder.state("add_sequence", cache, 0)
    try:
        for first in range(0, start, decoder.chunk):
            part = tokens[first : first + decoder.chunk]
            decoder.run(cache, [0], [part], [len(part) - 1], [adapter])
        last = tokens[start:]
        prompt = _step(decoder, cache, last, start, repeat, adapter)
        scores = decoder.run(cache, [0], [last], [len(last) - 1], [adapter])
        token = _step(decoder, cache, [int(np.argmax(scores[0]))], len(tokens), repeat, adapter)
    finally:
        decoder.state("remove_sequence", cache, 0)
    peak = None
    if not obstacle():
        peak = peak_bytes(max(_read(token), 1))
    return ModelProfile(prompt, token, peak)


def _step(
    decoder: CompiledDecoder,
    cache: Any,
    ids: Sequence[int],
    context: int,
    repeat: int,
    adapter: Adapter | None,
) -> StepProfile:
    program, name, args = decoder.prepared([ids], [len(ids) - 1], [adapter], hooked=True)
    decoder.state("begin_forward", cache, (0,), (len(ids),))
    try:  # the calls change copies of the cache
        found = program.profile(*args(cache), function=name, repeat=repeat)
    finally:
        decoder.state("end_forward", cache)
        decoder.state("popn", cache, 0, len(ids))
    layers = [*_by_layer(found, name, decoder)]
    unread = _unread(layers[0][1], decoder, len(ids))
    rows = [
        _with_bytes(
            replace(row, name=_NAMES.get(row.name, row.name), source=""),
            decoder,
            context + len(ids),
            unread[row.name],
        )
        for row in found
        if row.name not in (STEP, name)
    ]
    rest = ProfileRow(_REST, "", 0, sum(r.duration for r in found if r.name in (STEP, name)))
    ordered = sorted((*rows, rest), key=lambda row: -row.duration)
    whole = Profile(tuple(ordered), found.duration)
    return StepProfile(
        len(ids), context, whole, {layer: _of_layer(rows, events) for layer, events in layers}
    )


def _by_layer(
    profile: Profile, name: str, decoder: CompiledDecoder
) -> Iterator[tuple[str, list[Any]]]:
    """The names of layers with their events: those between the steps for hooks."""
    layers = decoder.config.layers
    names = iter([EMBEDDING, *(f"layer {k}" for k in range(1, layers + 1)), HEAD])
    events: list[Any] = []
    for event in sorted(profile.events, key=lambda event: event.start):
        if event.name == STEP:
            yield next(names), events
            events = []
        elif event.name != name and event.worker is None:
            events.append(event)
    yield next(names), events


def _of_layer(rows: Sequence[ProfileRow], events: Sequence[Any]) -> Profile:
    """The rows of kernels, for those calls of them that are in a layer."""
    calls, times = Counter[str](), Counter[str]()
    for event in events:
        event_name = _NAMES.get(event.name, event.name)
        calls[event_name] += 1
        times[event_name] += event.duration
    found = []
    for row in rows:
        if own := calls[row.name]:
            part, seconds = own / row.calls, times[row.name]
            share = row.share
            if share is not None and seconds:
                share = min(1.0, share * row.duration * part / seconds)
            found.append(
                replace(
                    row,
                    calls=own,
                    duration=seconds,
                    bytes=round(row.bytes * part),
                    flops=None if row.flops is None else round(row.flops * part),
                    share=share,
                )
            )
    found.sort(key=lambda row: -row.duration)
    return Profile(tuple(found), sum(times.values()))


def _unread(events: Sequence[Any], decoder: CompiledDecoder, tokens: int) -> Counter[str]:
    """The bytes of tables that the kernels of the embedding do not read: it is a row a token."""
    tables = {
        f"{value.dtype}{[*value.shape]}": value.nbytes // len(value) * max(len(value) - tokens, 0)
        for value in decoder.values.values()
        if value.ndim > 1
    }
    found = Counter[str]()
    for event in events:
        found[event.name] += sum(tables.get(array, 0) for array in event.arrays)
    return found


def _with_bytes(row: ProfileRow, decoder: CompiledDecoder, length: int, unread: int) -> ProfileRow:
    """The row of attention with the keys and values of `length` tokens, or one without `unread`."""
    size = row.bytes - unread
    if row.name == _ATTENTION:
        config = decoder.config
        windows = [config.window if slides else None for slides in config.sliding]
        lengths = [min(length, window or length) for window in windows or [None] * config.layers]
        dtype = np.dtype(config.cache_dtype or decoder.dtype)
        size = 2 * sum(lengths) * config.kv_heads * config.head_dim * dtype.itemsize
    elif not unread:
        return row
    share = None
    if not obstacle() and row.duration:
        share = min(1.0, size / peak_bytes(size // row.calls) / row.duration)
    return replace(row, bytes=size, share=share)


def _sum(name: str, rows: Sequence[ProfileRow]) -> ProfileRow:
    """The sum of the operators of a layer."""
    duration = sum(row.duration for row in rows)
    shares = [row.share * row.duration for row in rows if row.share is not None]
    backends = {row.backend for row in rows if row.backend}
    return ProfileRow(
        name,
        backends.pop() if len(backends) == 1 else "",
        sum(row.calls for row in rows),
        duration,
        sum(row.bytes for row in rows),
        sum(row.flops or 0 for row in rows),
        sum(shares) / duration if shares and duration else None,
    )
