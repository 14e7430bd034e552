"""Files of GGUF as models: configuration, names of tensors, and weights that stay packed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from relaxpy.plugins.llm.config import (
    Config,
    ModelError,
    check_factors,
    config_of,
    is_number,
    unknown_architecture,
)
from relaxpy.plugins.llm.packed import Packed, PackedWeight
from relaxpy.plugins.llm.tokens import Metadata
from relaxpy.plugins.weights.files import Header, StoredTensor, read_header
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


def read_parts(path: Path) -> tuple[Header, str]:
    """The header of a model, whose tensors may be in several files, and its name.

    Errors:
        ModelError: a part is missing, or they do not belong together.
        FrontendError: as of `read_header`.
    """
    header = read_header(path)
    count = header.metadata.get("split.count", 0)
    if count in {0, 1}:
        return header, path.stem
    merge = "llama-gguf-split --merge FIRST_PART WHOLE.gguf writes one file of them"
    number = header.metadata.get("split.no")
    named = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})", path.stem)
    if named is None or int(named[3]) != count or type(number) is not int:
        raise ModelError(
            f"{path} is one of {count!r:.20} parts of a model, which are found by names such as "
            "NAME-00001-of-00002.gguf",
            hint=merge,
        )
    tensors: dict[str, StoredTensor] = {}
    metadata: Mapping[str, Any] = header.metadata
    for part in range(count):
        other = path.with_name(f"{named[1]}-{part + 1:05}-of-{count:05}.gguf")
        if not other.exists():
            raise ModelError(f"{path} is part {number + 1} of {count}: there is no {other}")
        found = read_header(other)
        places = (found.metadata.get("split.no"), found.metadata.get("split.count"))
        if places != (part, count) or tensors.keys() & found.tensors.keys():
            raise ModelError(f"{other} is not part {part + 1} of {count} of one model", hint=merge)
        tensors |= found.tensors
        metadata = found.metadata if part == 0 else metadata
    total = metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ModelError(f"the parts of {path} have {len(tensors)} tensors, expected {total!r:.20}")
    return Header(metadata, tensors), named[1]


class _Described:
    """The metadata below the name of an architecture, each of which is read or refused."""

    def __init__(self, meta: Metadata, kind: str) -> None:
        self.meta, self.kind = meta, kind
        self.read: set[str] = set()

    def value(self, name: str) -> Any:
        """A number, string or truth, or None. Errors: as of `Metadata.scalar`."""
        self.read.add(name)
        return self.meta.scalar(f"{self.kind}.{name}")

    def number(self, name: str) -> float | None:
        """A positive number, or None. Errors: ModelError."""
        found = self.value(name)
        if found is not None and not (is_number(found) and found > 0):
            raise self.wrong(name, found)
        return None if found is None else float(found)

    def expect(self, name: str, *values: object) -> None:
        """Refuse any other value of an entry that may be absent. Errors: ModelError."""
        if (found := self.value(name)) is not None and found not in values:
            raise self.wrong(name, found)

    def wrong(self, name: str, found: object) -> ModelError:
        """The error of metadata that change a model."""
        return ModelError(
            f"{self.meta.source} has {self.kind}.{name}: {found!r:.60}, which is not supported "
            "for this architecture",
            hint="it would be computed as if the file did not say this",
        )

    def refuse_others(self) -> None:
        """Raise a ModelError for metadata that have not been read, and may change the model."""
        start = f"{self.kind}."
        for key, found in self.meta.values.items():
            name = key.removeprefix(start)
            if not key.startswith(start) or name in self.read | _HARMLESS:
                continue
            if name.startswith(_OF_IMAGES):
                continue
            listed = found.tolist() if isinstance(found, np.ndarray) else found
            is_one = name.endswith("scale") and listed == 1
            if not is_one and set(listed if isinstance(listed, list) else [listed]) - {0, ""}:
                raise self.wrong(name, found)


_HARMLESS = {
    *("vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "decoder_start_token_id"),
    *("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "rope.freq_base"),
    *("feed_forward_length", "expert_feed_forward_length", "attention.sliding_window"),
    *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
    *("attention.sliding_window_pattern", "rope.dimension_count"),
}
"""Metadata that change nothing where they are not read."""
_OF_IMAGES = ("vision.", "mm.")
"""The starts of metadata of a part for images, which texts do not pass."""


def config_of_gguf(header: Header, source: str) -> Config:
    """The configuration that the metadata describe.

    Errors:
        ModelError: they are missing or wrong, or describe what is not supported.
    """
    meta = Metadata(header.metadata, source)
    if (found := header.metadata.get("general.type", "model")) != "model":
        raise ModelError(f"{source} is a file of the type {found!r:.60}, expected a model")
    kind = meta.get("general.architecture", str)
    if kind not in ARCHITECTURES:
        raise unknown_architecture(kind, ARCHITECTURES, source)
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{source} has no matrix token_embd.weight")
    described = _Described(meta, kind)
    value = described.value
    family = ARCHITECTURES[kind]
    if family == "llama" and value("expert_count"):
        family = "mixtral"
    common = {
        "model_type": family,
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "eos_token_id": _stop(meta),
    }
    described.expect("attention.causal", True)
    if family == "gpt2":
        config = config_of(common | {ours: value(name) for ours, name in _GPT2.items()}, source)
        for name in ("attention.key_length", "attention.value_length"):
            described.expect(name, config.head_dim)
        described.expect("attention.head_count_kv", config.heads)
        described.refuse_others()
        return config
    raw: dict[str, Any] = common | {
        ours: value(name) for name, names in _NAMES.items() for ours in names
    }
    if family.startswith("gemma"):
        raw |= {"hidden_act": "gelu_new", "hidden_activation": "gelu_pytorch_tanh"}
        if kind == "gemma3":
            # Some files have names of their own.
            bases = value("rope.global.freq_base"), value("rope.local.freq_base")
            raw["rope_theta"] = bases[0] if raw["rope_theta"] is None else raw["rope_theta"]
            raw["rope_local_base_freq"] = value("rope.freq_base_swa") or bases[1]
        raw |= _windows_of(described)
        is_wide = (kind, raw["num_hidden_layers"]) in _WIDE_SCALE
        raw["query_pre_attn_scalar"] = _head_dim({**raw, "head_dim": None} if is_wide else raw)
    if family == "qwen3_moe":
        raw["norm_topk_prob"] = True
        described.expect("expert_weights_norm", True)
    described.expect("expert_gating_func", 0, 1)  # softmax
    rotated, head_dim = value("rope.dimension_count"), _head_dim(raw)
    for name in (
        "attention.value_length",
        "attention.key_length_swa",
        "attention.value_length_swa",
    ):
        described.expect(name, head_dim)
    described.expect("rope.dimension_count_swa", rotated)
    if rotated is not None and rotated != head_dim:
        if family != "phi3" or type(rotated) is not int or type(head_dim) is not int:
            raise ModelError(f"{source} rotates {rotated} elements of heads of {head_dim}")
        raw["partial_rotary_factor"] = rotated / head_dim
    raw["rope_scaling"] = _scaling(described, header, raw)
    scale = described.number("attention.scale")
    pooling = value("pooling_type")
    described.refuse_others()
    config = config_of(raw, source)
    if pooling not in _POOLINGS:
        raise described.wrong("pooling_type", pooling)
    if "rope_freqs.weight" in header.tensors:  # Llama 3 stores how it scales positions so
        if config.rope_scaling:
            raise ModelError(f"{source} scales positions by metadata and by rope_freqs.weight")
        scaling = {
            "rope_type": "longrope",
            "original_max_position_embeddings": max(2, config.positions),
            "max_position_embeddings": max(2, config.positions),
        }
        factors = _numbers(header, "rope_freqs.weight", source)
        config = replace(config, rope_scaling=scaling, rope_factors=factors)
        check_factors(config, source)
    if scale:
        config = replace(config, score_scale=scale)
    return replace(config, norm_offset=0.0, pooling=_POOLINGS[pooling])  # files have the sum


_POOLINGS = {None: "mean", -1: "mean", 0: "mean", 1: "mean", 2: "first", 3: "last"}
"""The pooling of embeddings by its number in files; most name none."""
_NAMES = {
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "feed_forward_length": ("intermediate_size",),
    "context_length": ("max_position_embeddings",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "rope.freq_base": ("rope_theta",),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
}
"""Metadata below the name of the architecture, and the entries of a `config.json` that they are."""
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


def _windows_of(described: _Described) -> dict[str, Any]:
    """The layers that see a window, as a `config.json` says it. Errors: ModelError."""
    name = "attention.sliding_window_pattern"
    described.read.add(name)
    found = described.meta.values.get(f"{described.kind}.{name}")
    if isinstance(found, (list, np.ndarray)):
        kinds = ("full_attention", "sliding_attention")
        return {"layer_types": [kinds[bool(slides)] for slides in found]}
    if described.kind == "gemma2" and found not in {None, 2}:
        raise described.wrong(name, found)
    return {"sliding_window_pattern": found}


def _scaling(described: _Described, header: Header, raw: dict[str, Any]) -> dict[str, Any]:
    """How positions are scaled, as a `config.json` says it. Errors: ModelError."""
    value = described.value
    original = value("rope.scaling.original_context_length")
    number = described.number
    magnitude = number("rope.scaling.attn_factor") or 1.0
    # Without a type it is linear; the second name is that of old files.
    old = number("rope.scale_linear")
    factor = number("rope.scaling.factor") or old
    kind = value("rope.scaling.type") or ("linear" if factor else "none")
    if "rope_factors_long.weight" in header.tensors:
        raw["original_max_position_embeddings"] = original
        _check_magnitude(described, magnitude, raw["max_position_embeddings"], original)
        source = described.meta.source
        return {
            "rope_type": "longrope",
            "long_factor": list(_numbers(header, "rope_factors_long.weight", source)),
            "short_factor": list(_numbers(header, "rope_factors_short.weight", source)),
        }
    if kind == "yarn":
        described.expect("rope.scaling.yarn_ext_factor", 1, -1)
        magnitude *= number("rope.scaling.yarn_attn_factor") or 1.0
        if factor is None:
            raise described.wrong("rope.scaling.factor", factor)
        return {
            "rope_type": kind,
            "factor": factor,
            "original_max_position_embeddings": original or raw["max_position_embeddings"],
            "attention_factor": magnitude * (1 + 0.1 * math.log(factor)),
            "beta_fast": number("rope.scaling.yarn_beta_fast"),
            "beta_slow": number("rope.scaling.yarn_beta_slow"),
        }
    described.expect("rope.scaling.attn_factor", 1)
    if kind == "none" or factor is None:
        return {}
    return {"rope_type": kind, "factor": factor}


def _check_magnitude(described: _Described, found: Any, positions: Any, original: Any) -> None:
    """Compare the factor of rotations in a file with that which the numbers of positions give."""
    if found == 1 or not all(type(n) is int and n > 1 for n in (positions, original)):
        return  # older files have none; and positions are checked elsewhere
    wanted = math.sqrt(1 + math.log(max(1, positions / original)) / math.log(original))
    if not math.isclose(found, wanted, rel_tol=1e-4):
        raise described.wrong("rope.scaling.attn_factor", found)


def _numbers(header: Header, name: str, source: str) -> tuple[float, ...]:
    """The elements of a small tensor. Errors: ModelError if they are not positive numbers."""
    tensor = header.tensors.get(name)
    if tensor is None or len(tensor.shape) != 1:
        raise ModelError(f"{source} has no vector {name}")
    values = tensor.entry().read()
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ModelError(f"{source} has other values than positive numbers in {name}")
    return tuple(map(float, values))


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
        join = rows or joined
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


def joined(*parts: Any) -> Any:
    """The rows of tensors, one after another."""
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
        f"weights are dequantised to float32 ({size:.1f} GB): tensors {listed}; "
        "--quantize q4f32_1 rounds all to 4 bits again"
    )
