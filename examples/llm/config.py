"""Configurations of models, read from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ModelError(ValueError):
    """A model, its weights or a request that the example cannot take."""


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder, and what its family does differently from Llama."""

    family: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    positions: int
    eps: float
    theta: float = 10000.0
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = False
    """Whether the embedding is the last layer, too."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """Whether the heads of queries and keys are normalised (Qwen 3)."""
    activation: str = "silu"
    is_gemma: bool = False
    """Whether norms multiply by 1 + weight, and embeddings by the root of the width."""
    experts: int = 0
    chosen_experts: int = 0
    stop: tuple[int, ...] = ()
    """The tokens that end a text."""
    cache_dtype: str | None = None
    """The datatype of keys and values in caches; None for that of the model."""


def read_config(folder: str | Path) -> Config:
    """The configuration of the model in a folder.

    Errors:
        ModelError: there is none, it is incomplete, or the family is not one of this example.
    """
    path = Path(folder) / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"there is no configuration: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    return config_of(raw, str(path))


def config_of(raw: Mapping[str, Any], source: str = "the configuration") -> Config:
    """The configuration that the entries of a `config.json` say. Errors: ModelError."""
    if not isinstance(raw, Mapping):
        raise ModelError(f"{source} is not a table of names and values")
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ModelError(f"{source} is of {family!r:.60}; this example has {known}")
    entries = _Entries(raw, source)
    config = _gpt2(entries) if family == "gpt2" else _llama_like(entries)
    if config.heads % config.kv_heads:
        raise ModelError(
            f"{source} has {config.kv_heads} heads of keys, which do not divide {config.heads}"
        )
    if config.chosen_experts > config.experts:
        raise ModelError(f"{source} chooses {config.chosen_experts} of {config.experts} experts")
    return config


class _Entries:
    """The entries of a `config.json`, each of which is checked when it is read."""

    def __init__(self, raw: Mapping[str, Any], source: str) -> None:
        self.raw, self.source = raw, source

    def wrong(self, name: str, expected: str) -> ModelError:
        found = self.raw.get(name)
        return ModelError(f"{self.source} has {name!r}: {found!r:.60}, expected {expected}")

    def present(self, name: str, default: Any) -> Any:
        """An entry; null is as good as none. Errors: ModelError if there is no default, too."""
        value = self.raw.get(name)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self.source} has no {name!r}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer. Errors: ModelError."""
        value = self.present(name, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.wrong(name, "a positive integer of 31 bits")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number. Errors: ModelError."""
        value = self.present(name, default)
        if type(value) not in {int, float} or not 0 < value < math.inf:
            raise self.wrong(name, "a positive number")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth. Errors: ModelError."""
        value = self.present(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def table(self, *names: str) -> dict[str, Any]:
        """The first entry of several that is not empty. Errors: ModelError if it is no table."""
        for name in names:
            if value := self.raw.get(name):
                if not isinstance(value, dict):
                    raise self.wrong(name, "a table of names and values")
                return dict(value)
        return {}

    def expect(self, name: str, *values: object) -> None:
        """Refuse any other value of an entry that may be absent. Errors: ModelError."""
        if self.present(name, values[0]) not in values:
            raise self.wrong(name, " or ".join(map(repr, values)))

    def stop(self) -> tuple[int, ...]:
        """The tokens that end a text. Errors: ModelError."""
        value = self.raw.get("eos_token_id")
        tokens = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in tokens):
            raise self.wrong("eos_token_id", "a token or a list of them")
        return tuple(tokens)


FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "head_dim": 128},
    "gemma": {"is_gemma": True, "activation": "gelu_tanh", "head_dim": 256},
    "mixtral": {"theta": 1e6},
    "gpt2": {},
}
"""What a family does that Llama does not, and what other entries are if they are absent."""


def _llama_like(raw: _Entries) -> Config:
    family, width = raw.present("model_type", None), raw.count("hidden_size")
    heads = raw.count("num_attention_heads")
    scaling = raw.table("rope_parameters", "rope_scaling")
    rope = _Entries(scaling, f"the scaling of positions of {raw.source}")
    differences = dict(FAMILIES[family])
    standard = raw.number("rope_theta", differences.pop("theta", 10000.0))
    theta = rope.number("rope_theta", standard)
    kind = rope.present("rope_type", scaling.get("type", "default"))
    if kind not in _SCALINGS:
        raise ModelError(
            f"positions are scaled by {kind!r:.60}; this example has {', '.join(_SCALINGS)}"
        )
    numbers = {name: rope.number(name) for name in _SCALINGS[kind]}
    if kind == "yarn":
        numbers |= {name: rope.number(name) for name in _YARN if scaling.get(name) is not None}
        numbers["truncate"] = rope.flag("truncate", default=True)
    raw.expect("attention_bias", False)
    raw.expect("mlp_bias", False)
    raw.expect("hidden_act", *(("gelu", *_GELU) if family == "gemma" else ("silu", "swish")))
    positions = raw.count("max_position_embeddings")
    equal_parts = width // heads if width % heads == 0 else None
    # Within its window a model that slides is one that does not. Qwen says whether it slides.
    if raw.flag("use_sliding_window", default=not family.startswith("qwen")):
        positions = min(positions, raw.count("sliding_window", positions))
    return Config(
        family,
        width,
        raw.count("num_hidden_layers"),
        heads,
        raw.count("num_key_value_heads", heads),
        raw.count("head_dim", differences.pop("head_dim", equal_parts)),
        raw.count("intermediate_size"),
        raw.count("vocab_size"),
        positions,
        raw.number("rms_norm_eps"),
        theta,
        {"rope_type": kind, **numbers} if numbers else {},
        raw.flag("tie_word_embeddings", default=family == "gemma"),
        experts=raw.count("num_local_experts") if family == "mixtral" else 0,
        chosen_experts=raw.count("num_experts_per_tok") if family == "mixtral" else 0,
        stop=raw.stop(),
        **differences,
    )


_GELU = ("gelu_pytorch_tanh", "gelu_new")
_ORIGINAL = "original_max_position_embeddings"
_SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    "yarn": ("factor", _ORIGINAL),
}
"""The numbers that each scaling of positions needs."""
_YARN = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
"""Those that YaRN may have besides."""


def _gpt2(raw: _Entries) -> Config:
    width, heads = raw.count("n_embd"), raw.count("n_head")
    if width % heads:
        raise raw.wrong("n_head", f"a divisor of {width}")
    raw.expect("activation_function", *_GELU)
    raw.expect("scale_attn_weights", True)
    raw.expect("scale_attn_by_inverse_layer_idx", False)
    return Config(
        "gpt2",
        width,
        raw.count("n_layer"),
        heads,
        heads,
        width // heads,
        raw.count("n_inner", 4 * width),
        raw.count("vocab_size"),
        raw.count("n_positions"),
        raw.number("layer_norm_epsilon", 1e-5),
        tied=raw.flag("tie_word_embeddings", default=True),
        qkv_bias=True,
        activation="gelu_tanh",
        stop=raw.stop(),
    )
