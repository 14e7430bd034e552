"""The names that weights have in Hugging Face folders, for each parameter of the models."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from relaxpy.plugins.llm.config import Config


def names_of(config: Config, weights: Collection[str]) -> Mapping[str, Any]:
    """For each parameter its name in `weights`, several to be joined, or names and a function."""
    head = {} if config.tied else {"head.weight": "lm_head.weight"}
    if config.family == "gpt2":
        return head | _gpt2(config, "" if "wte.weight" in weights else "transformer.")
    # Models of images and texts have the names of those of texts below another one.
    last = "embed_tokens.weight"
    prefix = next((name[: -len(last)] for name in weights if name.endswith(last)), "model.")
    return head | _llama_like(config, prefix)


def sources_of(origin: Any) -> list[str]:
    """The tensors that an entry of such a table consists of."""
    names = origin[0] if isinstance(origin, tuple) else origin
    return [names] if isinstance(names, str) else list(names)


def _llama_like(config: Config, prefix: str) -> dict[str, Any]:
    names: dict[str, Any] = {"embedding.weight": f"{prefix}embed_tokens.weight"}
    norm = {"norm.weight": f"{prefix}norm.weight"}
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"{prefix}layers.{layer}"
        for own, name in (_FOUR_NORMS if config.post_norms else _TWO_NORMS).items():
            norm[f"{ours}.{own}.weight"] = f"{theirs}.{name}_layernorm.weight"
        for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
            names[f"{ours}.attention.qkv.{kind}"] = (
                f"{theirs}.self_attn.qkv_proj.{kind}"
                if config.family == "phi3"
                else [f"{theirs}.self_attn.{part}_proj.{kind}" for part in "qkv"]
            )
        names[f"{ours}.attention.out.weight"] = f"{theirs}.self_attn.o_proj.weight"
        if config.qk_norm:
            for part in "qk":
                name = f"{part}_norm.weight"
                norm[f"{ours}.attention.{name}"] = f"{theirs}.self_attn.{name}"
        names |= _experts(config, ours, theirs) if config.experts else _mlp(config, ours, theirs)
    offset = config.norm_offset
    if offset:
        return names | {
            ours: ([theirs], lambda w: w.astype("float32") + offset)
            for ours, theirs in norm.items()
        }
    return names | norm


_TWO_NORMS = {"attention_norm": "input", "mlp_norm": "post_attention"}
_FOUR_NORMS = {
    "attention_norm": "input",
    "attention_post_norm": "post_attention",
    "mlp_norm": "pre_feedforward",
    "mlp_post_norm": "post_feedforward",
}


def _mlp(config: Config, ours: str, theirs: str) -> dict[str, Any]:
    parts = [f"{theirs}.mlp.{part}_proj.weight" for part in ("gate", "up")]
    return {
        f"{ours}.mlp.gate_up.weight": f"{theirs}.mlp.gate_up_proj.weight"
        if config.family == "phi3"
        else parts,
        f"{ours}.mlp.down.weight": f"{theirs}.mlp.down_proj.weight",
    }


def _experts(config: Config, ours: str, theirs: str) -> dict[str, Any]:
    moe, (gate, down, up) = f"{theirs}.block_sparse_moe", ("w1", "w2", "w3")
    if config.family != "mixtral":
        moe, (gate, down, up) = f"{theirs}.mlp", ("gate_proj", "down_proj", "up_proj")
    each = [f"{moe}.experts.{k}" for k in range(config.experts)]

    def stacked(*parts: Any) -> Any:
        return np.stack(parts)

    def pairs(*parts: Any) -> Any:
        return np.stack(
            [np.concatenate(pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        )

    return {
        f"{ours}.mlp.gate.weight": f"{moe}.gate.weight",
        f"{ours}.mlp.gate_up": ([f"{e}.{w}.weight" for e in each for w in (gate, up)], pairs),
        f"{ours}.mlp.down": ([f"{e}.{down}.weight" for e in each], stacked),
    }


def _gpt2(config: Config, prefix: str) -> dict[str, Any]:
    """GPT-2 keeps the weights of its products with the axes exchanged."""

    def exchanged(w: Any) -> Any:
        return w.T

    def norm(ours: str, theirs: str) -> dict[str, Any]:
        return {f"{ours}.{kind}": f"{theirs}.{kind}" for kind in ("weight", "bias")}

    def product(ours: str, theirs: str) -> dict[str, Any]:
        return {
            f"{ours}.weight": ([f"{theirs}.weight"], exchanged),
            f"{ours}.bias": f"{theirs}.bias",
        }

    names: dict[str, Any] = {
        "embedding.weight": f"{prefix}wte.weight",
        "places.weight": f"{prefix}wpe.weight",
        **norm("norm", f"{prefix}ln_f"),
    }
    for layer in range(config.layers):
        ours, theirs = f"blocks.{layer}", f"{prefix}h.{layer}"
        names |= norm(f"{ours}.attention_norm", f"{theirs}.ln_1")
        names |= norm(f"{ours}.mlp_norm", f"{theirs}.ln_2")
        names |= product(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn")
        names |= product(f"{ours}.attention.out", f"{theirs}.attn.c_proj")
        names |= product(f"{ours}.up", f"{theirs}.mlp.c_fc")
        names |= product(f"{ours}.down", f"{theirs}.mlp.c_proj")
    return names


UNUSED = [
    *("*.rotary_emb.inv_freq", "*.attn.bias", "*.attn.masked_bias", "lm_head.weight"),
    *("vision_tower.*", "multi_modal_projector.*", "model.vision_tower.*"),
    *("model.multi_modal_projector.*", "rope_factors_*.weight", "rope_freqs.weight"),
]
"""Other tensors of files; the last layer only where it is the embedding."""
