"""Files of GGUF as models: configuration, names of tensors, and weights that stay packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from relaxpy.plugins.llm.config import Config, ModelError, config_of, unknown_architecture
from relaxpy.plugins.llm.packed import Packed, PackedWeight
from relaxpy.plugins.llm.tokens import Metadata
from relaxpy.plugins.weights.files import Header
from relaxpy.support.dataclass import replace

ARCHITECTURES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "gpt2": "gpt2",
}
"""The architectures of files, and those of `config.FAMILIES`."""
_PLAIN = {"F32", "F16", "BF16"}
_WIDE_SCALE = {("gemma2", 46), ("gemma3", 62)}
"""Models of 27 billion weights: they scale scores by the width of a head's part of the model."""


def config_of_gguf(header: Header, source: str) -> Config:
    """The configuration that the metadata describe. Errors: ModelError."""
    meta = Metadata(header.metadata, source)
    kind = meta.get("general.architecture", str)
    if kind not in ARCHITECTURES:
        raise unknown_architecture(kind, ARCHITECTURES, source)
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{source} has no matrix token_embd.weight")

    def value(name: str) -> Any:
        return meta.scalar(f"{kind}.{name}")

    family = ARCHITECTURES[kind]
    if family == "llama" and value("expert_count"):
        family = "mixtral"
    common = {
        "model_type": family,
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "eos_token_id": _stop(meta),
    }
    if family == "gpt2":
        return config_of(common | {ours: value(name) for ours, name in _GPT2.items()}, source)
    raw: dict[str, Any] = common | {ours: value(name) for ours, name in _NAMES.items()}
    if family.startswith("gemma"):
        raw |= {"hidden_act": "gelu_new", "hidden_activation": "gelu_pytorch_tanh"}
        if kind == "gemma3":
            raw["rope_local_base_freq"] = value("rope.freq_base_swa")
        is_wide = (kind, raw["num_hidden_layers"]) in _WIDE_SCALE
        raw["query_pre_attn_scalar"] = _head_dim({**raw, "head_dim": None} if is_wide else raw)
    if family == "qwen3_moe":
        raw["norm_topk_prob"] = True
    rotated, head_dim = value("rope.dimension_count"), _head_dim(raw)
    if rotated is not None and rotated != head_dim:
        if family != "phi3" or type(rotated) is not int or type(head_dim) is not int:
            raise ModelError(f"{source} rotates {rotated} elements of heads of {head_dim}")
        raw["partial_rotary_factor"] = rotated / head_dim
    raw["rope_scaling"] = _scaling(value, header, raw)
    config = config_of(raw, source)
    if "rope_freqs.weight" in header.tensors:  # Llama 3 stores how it scales positions so
        factors = _numbers(header, "rope_freqs.weight")
        scaling = {
            "rope_type": "longrope",
            "original_max_position_embeddings": max(2, config.positions),
            "max_position_embeddings": max(2, config.positions),
        }
        config = replace(config, rope_scaling=scaling, rope_factors=factors)
    return replace(config, norm_offset=0.0)  # files have the sum


_NAMES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "num_local_experts": "expert_count",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
"""Entries of a `config.json`, and of metadata below the name of the architecture."""
_GPT2 = {
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_inner": "feed_forward_length",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}


def _head_dim(raw: Mapping[str, Any]) -> Any:
    if raw["head_dim"] is not None:
        return raw["head_dim"]
    width, heads = raw["hidden_size"], raw["num_attention_heads"]
    return width // heads if type(width) is type(heads) is int and heads > 0 else None


def _scaling(value: Callable[[str], Any], header: Header, raw: dict[str, Any]) -> dict[str, Any]:
    """How positions are scaled, as a `config.json` says it."""
    original = value("rope.scaling.original_context_length")
    if "rope_factors_long.weight" in header.tensors:
        raw["original_max_position_embeddings"] = original
        return {
            "rope_type": "longrope",
            "long_factor": list(_numbers(header, "rope_factors_long.weight")),
            "short_factor": list(_numbers(header, "rope_factors_short.weight")),
        }
    kind, factor = value("rope.scaling.type"), value("rope.scaling.factor")
    if kind in {None, "none"}:
        return {}
    return {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}


def _numbers(header: Header, name: str) -> tuple[float, ...]:
    """The elements of a small tensor. Errors: ModelError if there is none of this name."""
    tensor = header.tensors.get(name)
    if tensor is None or len(tensor.shape) != 1:
        raise ModelError(f"there is no vector {name}")
    return tuple(map(float, tensor.entry().read()))


def _stop(meta: Metadata) -> list[int]:
    roles = ("eos", "eot", "eom")
    found = [meta.values.get(f"tokenizer.ggml.{role}_token_id") for role in roles]
    return [token for token in found if type(token) is int]


# --- weights


class _Files:
    """For each parameter of a model where its weights are: the tensors, and how they are joined."""

    def __init__(self, config: Config, header: Header) -> None:
        self.config, self.header = config, header
        self.names: dict[str, Any] = {}
        self.rows: dict[str, Callable[..., Any]] = {}
        """For weights of products how the rows of the tensors become those of the parameter."""

    def product(self, ours: str, *theirs: str, rows: Callable[..., Any] | None = None) -> None:
        """A weight, whose rows are those of one or several tensors."""
        join = rows or _joined
        self.names[f"{ours}.weight"] = ([f"{name}.weight" for name in theirs], join)
        self.rows[ours] = join
        biases = [f"{name}.bias" for name in theirs]
        if biases[0] in self.header.tensors:
            self.names[f"{ours}.bias"] = (biases, join)

    def norm(self, ours: str, theirs: str) -> None:
        """The weight of a norm, and its bias where it has one."""
        for kind in ("weight", "bias"):
            if f"{theirs}.{kind}" in self.header.tensors or kind == "weight":
                self.names[f"{ours}.{kind}"] = f"{theirs}.{kind}"


def names_in_gguf(config: Config, header: Header) -> tuple[Mapping[str, Any], Packed]:
    """For each parameter its tensors, as `load_weights` takes them; and what stays packed."""
    files, tensors = _Files(config, header), header.tensors
    files.product("embedding", "token_embd")
    if not config.tied:
        files.product("head", "output")
    files.norm("norm", "output_norm")
    if config.family == "gpt2":
        files.names["places.weight"] = "position_embd.weight"
    for layer in range(config.layers):
        _layer(files, f"blocks.{layer}", f"blk.{layer}")
    packed = {}
    for ours, join in files.rows.items():
        parts = [tensors[name] for name in files.names[f"{ours}.weight"][0] if name in tensors]
        if (weight := PackedWeight.of(parts, join)) is not None:
            packed[ours] = weight
    return files.names, packed


def _layer(files: _Files, ours: str, theirs: str) -> None:
    config, tensors = files.config, files.header.tensors
    norms = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm"}
    if config.post_norms:
        norms |= {"attention_post_norm": "post_attention_norm", "mlp_post_norm": "post_ffw_norm"}
    if config.qk_norm:
        norms |= {"attention.q_norm": "attn_q_norm", "attention.k_norm": "attn_k_norm"}
    for own, name in norms.items():
        files.norm(f"{ours}.{own}", f"{theirs}.{name}")
    if f"{theirs}.attn_qkv.weight" in tensors:
        files.product(f"{ours}.attention.qkv", f"{theirs}.attn_qkv")
    else:
        parts = [f"{theirs}.attn_{part}" for part in "qkv"]
        rows = partial(_halves, config) if config.family in {"llama", "mixtral"} else None
        files.product(f"{ours}.attention.qkv", *parts, rows=rows)
    files.product(f"{ours}.attention.out", f"{theirs}.attn_output")
    if config.experts:
        files.product(f"{ours}.mlp.gate", f"{theirs}.ffn_gate_inp")
        pairs = [f"{theirs}.ffn_{part}_exps.weight" for part in ("gate", "up")]
        files.names[f"{ours}.mlp.gate_up"] = (pairs, lambda *w: np.concatenate(w, axis=1))
        files.names[f"{ours}.mlp.down"] = f"{theirs}.ffn_down_exps.weight"
    elif config.family == "gpt2":
        files.product(f"{ours}.up", f"{theirs}.ffn_up")
        files.product(f"{ours}.down", f"{theirs}.ffn_down")
    else:
        both = ["ffn_up"] if config.family == "phi3" else ["ffn_gate", "ffn_up"]
        files.product(f"{ours}.mlp.gate_up", *(f"{theirs}.{name}" for name in both))
        files.product(f"{ours}.mlp.down", f"{theirs}.ffn_down")


def _joined(*parts: Any) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _halves(config: Config, q: Any, k: Any, v: Any) -> Any:
    """Queries, keys and values: of Llama, files have neighbours of what rotates by halves here."""

    def exchanged(rows: Any) -> Any:
        pairs = rows.reshape(-1, config.head_dim // 2, 2, *rows.shape[1:])
        return pairs.swapaxes(1, 2).reshape(rows.shape)

    return np.concatenate([exchanged(q), exchanged(k), v])


def widened(header: Header, names: Mapping[str, Any], packed: Packed) -> str | None:
    """The warning about weights that are computed in float32; None if there are none."""
    kept = {name for layer in packed for name in names[f"{layer}.weight"][0]}
    others = [
        tensor
        for name, tensor in header.tensors.items()
        if name not in kept and tensor.kind.name not in _PLAIN
    ]
    if not others:
        return None
    counts = Counter(tensor.kind.name for tensor in others)
    size = sum(4 * np.prod(tensor.shape, dtype=np.float64) for tensor in others) / 1e9
    listed = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
    return (
        f"weights are widened to float32 ({size:.1f} GB): tensors {listed}; "
        "--quantize q4f32_1 rounds all to 4 bits again"
    )
