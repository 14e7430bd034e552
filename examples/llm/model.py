"""A compiled decoder with its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from config import Config, ModelError, read_config
from models import Decoder
from weights import UNUSED, names_of

import relaxpy
from relaxpy.relax.frontend.nn.quantization import quantize_model, quantize_state_dict
from relaxpy.relax.frontend.weights import load_weights, open_weights


class LanguageModel:
    """A decoder, compiled, that runs sequences of tokens over caches of pages.

    `sequences` are how many a cache has at a time, `tokens` how many all of them have together,
    `chunk` how many a call takes, `context` how many one sequence has. `quantization` is the name
    of one, such as "q4f32_1"; of those of float16 all else is float16, too. Keys and values of
    `cache_dtype` "float16" need half the memory, and attention half the time. Without a `target`,
    it is that of `relaxpy.compile`: "native" where its packages are installed, or RELAXPY_TARGET.
    """

    def __init__(
        self,
        config: Config,
        source: str | Path | Mapping[str, Any],
        *,
        names: Mapping[str, Any] | None = None,
        quantization: str | None = None,
        cache_dtype: str | None = None,
        target: str | None = None,
        sequences: int = 8,
        tokens: int | None = None,
        chunk: int = 512,
        page: int = 16,
    ) -> None:
        config = replace(config, cache_dtype=cache_dtype)
        self.config, self.sequences, self.chunk, self.page = config, sequences, chunk, page
        tokens = config.positions if tokens is None else tokens
        limits = {"sequences": sequences, "tokens": tokens, "chunk": chunk, "page": page}
        for name, limit in limits.items():
            if type(limit) is not int or limit < 1:
                raise ModelError(f"{name} is a positive integer, found {limit!r:.60}")
        self.context = min(config.positions, tokens)
        self.pages = -(-tokens // page) + sequences
        decoder: Any = Decoder(config)
        weights = source if isinstance(source, Mapping) else open_weights(source)
        values = load_weights(
            weights, decoder, names_of(config, weights) if names is None else names, ignore=UNUSED
        )
        if quantization is not None:
            decoder = quantize_model(decoder, quantization)
            values = quantize_state_dict(decoder, values)
        mod, params = decoder.export_tvm(decoder.specification())
        self.params = [values[name] for name, _ in params]
        self.program = relaxpy.compile(mod, target=target)
        self.limits = [relaxpy.runtime.ShapeTuple([n]) for n in (sequences, tokens, chunk, page, 0)]

    @classmethod
    def from_folder(cls, folder: str | Path, **options: Any) -> LanguageModel:
        """The model of a Hugging Face folder. Errors: ModelError, or those of `load_weights`."""
        return cls(read_config(folder), folder, **options)

    def new_cache(self) -> Any:
        return self.program["create_cache"](*self.limits)

    def pages_for(self, tokens: int) -> int:
        """The most pages that a sequence of so many tokens needs; the first may be a copy."""
        return -(-tokens // self.page) + 1

    def state(self, name: str, cache: Any, *args: Any) -> None:
        """Change the sequences of a cache: add_sequence, fork_sequence, popn, and so on."""
        relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")(cache, *args)

    def run(
        self,
        cache: Any,
        sequences: Sequence[int],
        ids: Sequence[Sequence[int]],
        rows: Sequence[int],
    ) -> Any:
        """Append tokens to sequences; the scores, (len(rows), vocabulary), after some of them.

        `rows` count through the tokens of all sequences. After an error these are as before.
        """
        flat = np.array([token for own in ids for token in own], np.int32)[np.newaxis]
        lengths = tuple(map(len, ids))
        self.state("begin_forward", cache, tuple(sequences), lengths)
        try:
            if flat.shape[1] == 1 and len(rows) == 1:
                found = self.program["decode"](flat, cache, self.params)
            else:
                found = self.program["forward"](flat, np.array(rows, np.int32), cache, self.params)
        except BaseException:  # some layers may have no keys of these tokens
            self.state("end_forward", cache)
            for sequence, count in zip(sequences, lengths, strict=True):
                self.state("popn", cache, sequence, count)
            raise
        self.state("end_forward", cache)
        return found
