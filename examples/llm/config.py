"""Configurations of models, read from the `config.json` of a Hugging Face folder."""

from __future__ import annotations

import json
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
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    return config_of(raw, str(path))


def config_of(raw: Mapping[str, Any], source: str = "the configuration") -> Config:
    """The configuration that the entries of a `config.json` say. Errors: ModelError."""
    if not isinstance(raw, Mapping):
        raise ModelError(f"{source} is not a table of names and values")
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise ModelError(f"{source} is of {family!r}; this example has {', '.join(FAMILIES)}")
    try:
        return _gpt2(raw) if family == "gpt2" else _llama_like(raw)
    except KeyError as error:
        raise ModelError(f"{source} has no {error.args[0]!r}") from None


FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "gemma": {"is_gemma": True, "activation": "gelu_tanh"},
    "mixtral": {"theta": 1e6},
    "gpt2": {},
}
"""What a family does that Llama does not."""


def _llama_like(raw: Mapping[str, Any]) -> Config:
    family, width, heads = raw["model_type"], raw["hidden_size"], raw["num_attention_heads"]
    rope = dict(raw.get("rope_parameters") or raw.get("rope_scaling") or {})
    differences = dict(FAMILIES[family])
    standard = differences.pop("theta", 10000.0)
    theta = rope.pop("rope_theta", None) or raw.get("rope_theta") or standard
    kind = rope.setdefault("rope_type", rope.pop("type", "default"))
    if kind not in {"default", "llama3", "linear"}:
        raise ModelError(f"positions are scaled by {kind!r}; this example has llama3 and linear")
    if family == "llama" and raw.get("attention_bias"):
        raise ModelError("Llama with biases in its attention is not in this example")
    positions = raw["max_position_embeddings"]
    window = raw.get("sliding_window") if raw.get("use_sliding_window", True) else None
    return Config(
        family,
        width,
        raw["num_hidden_layers"],
        heads,
        raw.get("num_key_value_heads") or heads,
        raw.get("head_dim") or width // heads,
        raw["intermediate_size"],
        raw["vocab_size"],
        min(positions, window) if window else positions,  # within it a window changes nothing
        raw["rms_norm_eps"],
        float(theta),
        {} if kind == "default" else rope,
        bool(raw.get("tie_word_embeddings", family == "gemma")),
        experts=raw["num_local_experts"] if family == "mixtral" else 0,
        chosen_experts=raw["num_experts_per_tok"] if family == "mixtral" else 0,
        stop=_stop(raw),
        **differences,
    )


def _gpt2(raw: Mapping[str, Any]) -> Config:
    width, heads = raw["n_embd"], raw["n_head"]
    return Config(
        "gpt2",
        width,
        raw["n_layer"],
        heads,
        heads,
        width // heads,
        raw.get("n_inner") or 4 * width,
        raw["vocab_size"],
        raw["n_positions"],
        raw.get("layer_norm_epsilon", 1e-5),
        tied=True,
        qkv_bias=True,
        activation="gelu_tanh",
        stop=_stop(raw),
    )


def _stop(raw: Mapping[str, Any]) -> tuple[int, ...]:
    token = raw.get("eos_token_id")
    return () if token is None else tuple(token) if isinstance(token, list) else (token,)
