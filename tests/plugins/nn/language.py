"""A small language model with a cache of pages, and random calls of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import relaxpy
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode

HEADS, KV_HEADS, D, WIDTH, WORDS = 4, 2, 8, 16, 30


class Layer(nn.Module):
    def __init__(self, number: int, dtype: str, *, has_sinks: bool) -> None:
        self.number, self.dtype = number, dtype
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * D, bias=False)
        self.out = nn.Linear(HEADS * D, WIDTH, bias=False)
        self.sinks = nn.Parameter((HEADS,), dtype) if has_sinks else None

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        b, s, _ = x.shape
        qkv = self.qkv(x).reshape(b, s, HEADS + 2 * KV_HEADS, D).astype(self.dtype)
        found = cache.attention_with_fused_qkv(self.number, qkv, HEADS, D**-0.5, self.sinks)
        return x + self.out(found.reshape(b, s, HEADS * D).astype("float32"))


class Language(nn.Module):
    def __init__(self, kinds: list[str], dtype: str, *, has_sinks: bool = False) -> None:
        self.kinds, self.dtype = kinds, dtype
        self.words = nn.Embedding(WORDS, WIDTH)
        layers = (Layer(k, dtype, has_sinks=has_sinks) for k in range(len(kinds)))
        self.layers = nn.ModuleList([*layers])

    def forward(self, ids: nn.Tensor, cache: PagedKVCache) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return x

    def create(self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any) -> Any:
        return PagedKVCache.create_generic(
            self.kinds,
            *(sequences, tokens, chunk, page, sliding, len(self.kinds), HEADS, KV_HEADS, D, D),
            *(RopeMode.NORMAL, 1, 100, self.dtype),
            layer_sliding_window_size=7,
        )


def exported(kinds: list[str], dtype: str = "float32", *, has_sinks: bool = False) -> Any:
    """A module, and random weights."""
    plain = {"param_mode": "packed", "effect_mode": "none"}
    names = ("sequences", "tokens", "chunk", "page", "sliding")
    mod, params = Language(kinds, dtype, has_sinks=has_sinks).export_tvm(
        {
            "forward": {
                "ids": spec.Tensor([1, "n"], "int32"),
                "cache": spec.Object(object_type=PagedKVCache),
                "$": plain,
            },
            "create": {**dict.fromkeys(names, int), "$": plain | {"param_mode": "none"}},
        }
    )
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(tuple(p.shape)).astype(p.dtype) / 3 for _, p in params)
    return mod, tuple(values)


def state(name: str, *args: Any) -> Any:
    return relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")(*args)


def new_cache(
    program: Any, sequences: int = 6, tokens: int = 600, page: int = 4, sliding: int = 0
) -> Any:
    limits = (sequences, tokens, 64, page, sliding)
    return program["create"](*(relaxpy.runtime.ShapeTuple([n]) for n in limits))


class Decoding:
    """The same random calls of several programs of a model, each with a cache.

    The programs run so many `times` in a call.
    """

    times = 1

    def __init__(self, programs: list[Any], params: Any, rng: random.Random, sliding: int) -> None:
        self.rng, self.params, self.sliding = rng, params, sliding
        page = rng.choice([1, 4, 16])
        self.runs = [
            (program, new_cache(program, page=page, sliding=sliding)) for program in programs
        ]
        self.lengths: dict[int, int] = {}
        self.windows: set[int] = set()

    def pause(self) -> None:
        """What happens before and after the programs run."""

    def state(self, name: str, *args: Any) -> None:
        for _, cache in self.runs:
            state(name, cache, *args)

    def step(self) -> list[Any]:
        """The results of a random step, of each program."""
        rng, known = self.rng, list(self.lengths)
        free = [n for n in range(6) if n not in self.lengths]
        match rng.choice(["add", "fork", "remove", "pop", "window", *["call"] * 12]):
            case "add" if free:
                self.state("add_sequence", free[0])
                self.lengths[free[0]] = 0
            case "fork" if free and known:
                parent = rng.choice(known)
                is_whole = parent in self.windows
                count = self.lengths[parent] if is_whole else rng.randint(0, self.lengths[parent])
                self.state("fork_sequence", parent, free[0], -1 if is_whole else count)
                self.lengths[free[0]] = count
                self.windows |= {free[0]} & ({free[0]} if is_whole else set())
            case "remove" if len(known) > 2:
                gone = rng.choice(known)
                self.state("remove_sequence", gone)
                del self.lengths[gone]
                self.windows.discard(gone)
            case "pop" if known:
                own = rng.choice(known)
                if own not in self.windows:
                    count = rng.randint(0, min(3, self.lengths[own]))
                    self.state("popn", own, count)
                    self.lengths[own] -= count
            case "window" if known and self.sliding:
                own = rng.choice(known)
                name = "attention_kv_cache_enable_sliding_window_for_seq"
                for _, cache in self.runs:
                    relaxpy.get_global_func(f"vm.builtin.{name}")(cache, own, 9, 2)
                self.windows.add(own)
            case _ if known:
                return self.call(rng.sample(known, rng.randint(1, len(known))))
        return []

    def call(self, ids: list[int]) -> list[Any]:
        """Append tokens to sequences: mostly one to each."""
        counts = [self.rng.choice([1, 1, 1, 5]) for _ in ids]
        if sum(self.lengths.values()) + sum(counts) > 500:
            for own in list(self.lengths)[1:]:
                self.state("remove_sequence", own)
                del self.lengths[own]
                self.windows.discard(own)
            return []
        tokens = [self.rng.randrange(WORDS) for _ in range(sum(counts))]
        self.state("begin_forward", ids, counts)
        results = []
        for _ in range(self.times):
            self.pause()
            for program, cache in self.runs:
                flat = np.array([tokens], np.int32)
                results.append(program["forward"](flat, cache, self.params))
        self.pause()
        self.state("end_forward")
        for own, count in zip(ids, counts, strict=True):
            self.lengths[own] += count
        return results
