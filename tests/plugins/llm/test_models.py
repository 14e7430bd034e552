"""Decoders beside plain NumPy, and requests together beside one by one."""

import copy
import json
import math
import random
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.llm.compiled import CompiledDecoder
from relaxpy.plugins.llm.config import ModelError, config_of
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.llm.engine import Engine
from relaxpy.plugins.llm.files import open_model
from relaxpy.plugins.llm.sampling import Sampling
from relaxpy.plugins.llm.weight_names import UNUSED, names_of
from relaxpy.plugins.nn import core
from relaxpy.relax.frontend.nn.quantization import QUANTIZATIONS
from relaxpy.relax.frontend.weights import load_weights
from tests.fuzz.seed import COUNT, SEED

VOCABULARY = 41
SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 96,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 4.0}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, "rope_theta": 500.0, "rope_scaling": LLAMA3},
    "mistral": {"model_type": "mistral", **SIZES, "head_dim": 8, "sliding_window": None},
    "qwen2": {
        "model_type": "qwen2",
        **SIZES,
        "tie_word_embeddings": True,
        "rope_scaling": YARN,
        "sliding_window": 8,  # of which Qwen makes no use unless it says so
    },
    "qwen3": {
        "model_type": "qwen3",
        **SIZES,
        "head_dim": 6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    },
    "gemma": {"model_type": "gemma", **SIZES, "head_dim": 6, "tie_word_embeddings": True},
    "mixtral": {"model_type": "mixtral", **SIZES, "num_local_experts": 5, "num_experts_per_tok": 2},
    "mistral, sliding": {"model_type": "mistral", **SIZES, "head_dim": 8, "sliding_window": 7},
    "gemma2": {
        "model_type": "gemma2",
        **SIZES,
        "head_dim": 8,
        "query_pre_attn_scalar": 5,
        "sliding_window": 9,
        "tie_word_embeddings": True,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        "model_type": "gemma3_text",
        **SIZES,
        "num_hidden_layers": 3,
        "head_dim": 8,
        "query_pre_attn_scalar": 7,
        "sliding_window": 6,
        "tie_word_embeddings": True,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
        },
    },
    "phi3": {
        "model_type": "phi3",
        **SIZES,
        "hidden_size": 32,
        "partial_rotary_factor": 0.5,
        "pad_token_id": 0,
        "original_max_position_embeddings": 20,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.5],
            "long_factor": [2.0, 7.5],
            "rope_theta": 300.0,
            "partial_rotary_factor": 0.5,
        },
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **SIZES,
        "head_dim": 6,
        "moe_intermediate_size": 12,
        "num_experts": 6,
        "num_experts_per_tok": 3,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 20,  # heads of an odd size
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": VOCABULARY,
        "n_positions": 96,
    },
}
CONFIGS["gpt2, untied"] = {**CONFIGS["gpt2"], "tie_word_embeddings": False}


# --- the same models in NumPy, by the names of the files


def rope_of(raw: dict[str, Any], sliding: bool) -> dict[str, Any]:
    """How positions are scaled in a layer."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return rope.get("sliding_attention" if sliding else "full_attention", rope)


def rotated(x: Any, raw: dict[str, Any], sliding: bool = False) -> Any:
    """Queries or keys (n, heads, d), rotated by their positions."""
    rest = x[..., int(x.shape[-1] * raw.get("partial_rotary_factor", 1)) :]
    x = x[..., : x.shape[-1] - rest.shape[-1]]
    half = x.shape[-1] // 2
    rope = rope_of(raw, sliding)
    standard = 1e6 if raw["model_type"] == "mixtral" else 10000.0
    theta = rope.get("rope_theta") or raw.get("rope_theta", standard)
    frequencies = theta ** (-np.arange(half) / half)
    magnitude, kind = 1.0, rope.get("rope_type") or rope.get("type")
    factor, old = rope.get("factor"), rope.get("original_max_position_embeddings")
    if kind == "linear":
        frequencies /= factor
    if kind == "longrope":
        old = raw["original_max_position_embeddings"]
        frequencies /= rope["long_factor" if len(x) > old else "short_factor"]
        scale = raw["max_position_embeddings"] / old
        magnitude = math.sqrt(1 + math.log(scale) / math.log(old))
    if kind == "yarn":
        ends = [
            half * math.log(old / (turns * 2 * math.pi)) / math.log(theta)
            for turns in (rope["beta_fast"], 1)
        ]
        low, high = max(0, math.floor(ends[0])), min(2 * half - 1, math.ceil(ends[1]))
        slow = np.clip((np.arange(half) - low) / max(high - low, 1e-3), 0, 1)
        frequencies *= slow / factor + (1 - slow)
        magnitude = 0.1 * math.log(factor) + 1
    elif kind == "llama3":
        for k, frequency in enumerate(frequencies):
            length = 2 * math.pi / frequency
            if length > old / rope["low_freq_factor"]:
                frequencies[k] = frequency / factor
            elif length >= old / rope["high_freq_factor"]:
                smooth = (old / length - rope["low_freq_factor"]) / (
                    rope["high_freq_factor"] - rope["low_freq_factor"]
                )
                frequencies[k] = (1 - smooth) * frequency / factor + smooth * frequency
    angles = np.outer(np.arange(len(x)), frequencies)[:, np.newaxis]
    first, second = x[..., :half], x[..., half:]
    cos, sin = magnitude * np.cos(angles), magnitude * np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)


def attention(
    q: Any, k: Any, v: Any, scale: Any = None, window: Any = None, cap: Any = None
) -> Any:
    """Causal attention; groups of query heads share keys. All are (n, heads, d)."""
    n, heads, d = q.shape
    k, v = (np.repeat(x, heads // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * (scale or d**-0.5)
    scores = cap * np.tanh(scores / cap) if cap else scores
    seen = np.tri(n, dtype=bool) & ~np.tri(n, k=-(window or n), dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", shares, v).reshape(n, heads * d)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def llama_scores(raw: dict[str, Any], w: dict[str, Any], ids: list[int]) -> Any:
    family, width, heads = raw["model_type"], raw["hidden_size"], raw["num_attention_heads"]
    d, kv = raw.get("head_dim") or width // heads, raw["num_key_value_heads"]
    is_gemma, layers = family.startswith("gemma"), raw["num_hidden_layers"]
    scale = raw["query_pre_attn_scalar"] ** -0.5 if "query_pre_attn_scalar" in raw else None
    slides = [family in {"mistral", "gemma2"} and bool(raw.get("sliding_window"))] * layers
    if family == "gemma2":
        slides = [layer % 2 == 0 for layer in range(layers)]
    slides = [kind[0] == "s" for kind in raw.get("layer_types", [])] or slides

    def norm(x: Any, name: str) -> Any:
        weight = w[f"{name}.weight"] + is_gemma
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + raw["rms_norm_eps"]) * weight

    def mlp(x: Any, gate: Any, up: Any, down: Any) -> Any:
        activate = gelu if is_gemma else silu
        return (activate(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(y: Any, at: str) -> Any:
        moe, names, count = f"{at}mlp.", ("gate_proj", "up_proj", "down_proj"), "num_experts"
        if family == "mixtral":
            moe, names = f"{at}block_sparse_moe.", ("w1", "w3", "w2")
        rows = []
        for row, gate in zip(y, y @ w[f"{moe}gate.weight"].T, strict=True):
            best = np.argsort(-gate)[: raw["num_experts_per_tok"]]
            shares = np.exp(gate - gate.max())
            shares /= shares[best].sum() if family == "mixtral" else shares.sum()
            weights = {e: [w[f"{moe}experts.{e}.{m}.weight"] for m in names] for e in best}
            rows.append(sum(shares[e] * mlp(row, *weights[e]) for e in best))
        return np.array(rows)

    x = w["model.embed_tokens.weight"][ids] * (math.sqrt(width) if is_gemma else 1)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        own = f"{at}self_attn."
        y = norm(x, f"{at}input_layernorm")
        if family == "phi3":
            cuts = [heads * d, (heads + kv) * d]
            q, k, v = np.split(y @ w[f"{own}qkv_proj.weight"].T, cuts, axis=1)
        else:
            q, k, v = (
                y @ w[f"{own}{p}_proj.weight"].T + w.get(f"{own}{p}_proj.bias", 0) for p in "qkv"
            )
        q, k, v = (part.reshape(len(ids), -1, d) for part in (q, k, v))
        if f"{own}q_norm.weight" in w:
            q, k = norm(q, f"{own}q_norm"), norm(k, f"{own}k_norm")
        q, k = rotated(q, raw, slides[layer]), rotated(k, raw, slides[layer])
        window = raw["sliding_window"] if slides[layer] else None
        mixed = attention(q, k, v, scale, window, raw.get("attn_logit_softcapping"))
        added = mixed @ w[f"{own}o_proj.weight"].T
        if f"{at}pre_feedforward_layernorm.weight" in w:
            x = x + norm(added, f"{at}post_attention_layernorm")
            y = norm(x, f"{at}pre_feedforward_layernorm")
        else:
            x = x + added
            y = norm(x, f"{at}post_attention_layernorm")
        if "moe" in family or family == "mixtral":
            added = experts(y, at)
        elif family == "phi3":
            gate, up = np.split(w[f"{at}mlp.gate_up_proj.weight"], 2)
            added = mlp(y, gate, up, w[f"{at}mlp.down_proj.weight"])
        else:
            added = mlp(y, *(w[f"{at}mlp.{m}_proj.weight"] for m in ("gate", "up", "down")))
        last = f"{at}post_feedforward_layernorm"
        x = x + (norm(added, last) if f"{last}.weight" in w else added)
    head = "model.embed_tokens" if raw["tie_word_embeddings"] else "lm_head"
    scores = norm(x, "model.norm") @ w[f"{head}.weight"].T
    cap = raw.get("final_logit_softcapping")
    return cap * np.tanh(scores / cap) if cap else scores


def gpt2_scores(raw: dict[str, Any], w: dict[str, Any], ids: list[int]) -> Any:
    def norm(x: Any, name: str) -> Any:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def product(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for layer in range(raw["n_layer"]):
        at = f"h.{layer}."
        parts = np.split(product(norm(x, f"{at}ln_1"), f"{at}attn.c_attn"), 3, axis=1)
        q, k, v = (p.reshape(len(ids), raw["n_head"], -1) for p in parts)
        x = x + product(attention(q, k, v), f"{at}attn.c_proj")
        hidden = gelu(product(norm(x, f"{at}ln_2"), f"{at}mlp.c_fc"))
        x = x + product(hidden, f"{at}mlp.c_proj")
    return norm(x, "ln_f") @ w.get("lm_head.weight", w["wte.weight"]).T


def weights_of(raw: dict[str, Any], seed: int) -> dict[str, Any]:
    """Random weights as the files of the family have them."""
    shapes: dict[str, tuple[int, ...]] = {}
    if raw["model_type"] == "gpt2":
        n = raw["n_embd"]
        shapes = {"wte.weight": (VOCABULARY, n), "wpe.weight": (raw["n_positions"], n)}
        if not raw.get("tie_word_embeddings", True):
            shapes["lm_head.weight"] = (VOCABULARY, n)
        norms = ["ln_f", *(f"h.{k}.{ln}" for k in range(raw["n_layer"]) for ln in ("ln_1", "ln_2"))]
        shapes |= {f"{name}.{kind}": (n,) for name in norms for kind in ("weight", "bias")}
        sizes = {"attn.c_attn": (n, 3 * n), "attn.c_proj": (n, n)}
        sizes |= {"mlp.c_fc": (n, 4 * n), "mlp.c_proj": (4 * n, n)}
        for layer in range(raw["n_layer"]):
            for name, shape in sizes.items():
                shapes[f"h.{layer}.{name}.weight"] = shape
                shapes[f"h.{layer}.{name}.bias"] = shape[1:]
    else:
        n, hidden = raw["hidden_size"], raw["intermediate_size"]
        d = raw.get("head_dim") or n // raw["num_attention_heads"]
        heads, kv = raw["num_attention_heads"] * d, raw["num_key_value_heads"] * d
        shapes = {"model.embed_tokens.weight": (VOCABULARY, n), "model.norm.weight": (n,)}
        if not raw["tie_word_embeddings"]:
            shapes["lm_head.weight"] = (VOCABULARY, n)
        family = raw["model_type"]
        norms = ["input", "post_attention"]
        if family in {"gemma2", "gemma3_text"}:
            norms += ["pre_feedforward", "post_feedforward"]
        for layer in range(raw["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            shapes |= {f"{at}{ln}_layernorm.weight": (n,) for ln in norms}
            for part, size in (("q", heads), ("k", kv), ("v", kv)):
                if family != "phi3":
                    shapes[f"{at}self_attn.{part}_proj.weight"] = (size, n)
                if family == "qwen2":
                    shapes[f"{at}self_attn.{part}_proj.bias"] = (size,)
                if family in {"qwen3", "qwen3_moe", "gemma3_text"} and part != "v":
                    shapes[f"{at}self_attn.{part}_norm.weight"] = (d,)
            shapes[f"{at}self_attn.o_proj.weight"] = (n, heads)
            if family in {"mixtral", "qwen3_moe"}:
                moe, up, down = f"{at}mlp.", ("gate_proj", "up_proj"), "down_proj"
                count = raw.get("num_experts") or raw["num_local_experts"]
                if family == "mixtral":
                    moe, up, down = f"{at}block_sparse_moe.", ("w1", "w3"), "w2"
                hidden = raw.get("moe_intermediate_size", hidden)
                shapes[f"{moe}gate.weight"] = (count, n)
                for e in range(count):
                    shapes |= {f"{moe}experts.{e}.{m}.weight": (hidden, n) for m in up}
                    shapes[f"{moe}experts.{e}.{down}.weight"] = (n, hidden)
            elif family == "phi3":
                shapes[f"{at}self_attn.qkv_proj.weight"] = (heads + 2 * kv, n)
                shapes[f"{at}mlp.gate_up_proj.weight"] = (2 * hidden, n)
                shapes[f"{at}mlp.down_proj.weight"] = (n, hidden)
            else:
                shapes |= {f"{at}mlp.{m}_proj.weight": (hidden, n) for m in ("gate", "up")}
                shapes[f"{at}mlp.down_proj.weight"] = (n, hidden)
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.4 + ("norm" in name or "ln_" in name)).astype(
            "float32"
        )
        for name, shape in shapes.items()
    }


def saved(folder: Path, family: str, seed: int = 0) -> dict[str, Any]:
    """Write a model as Hugging Face does; its weights."""
    from safetensors.numpy import save_file

    raw = CONFIGS[family]
    weights = weights_of(raw, seed)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(raw))
    return weights


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("safetensors")
    folder = tmp_path_factory.mktemp("llama")
    saved(folder, "llama")
    return CompiledDecoder.from_folder(folder, chunk=8, page=4, sequences=3)


@pytest.mark.each_choice
def generate(model: CompiledDecoder, prompts: Any, **options: Any) -> list[list[int]]:
    """The continuations of several prompts; options are those of `Engine.add`."""
    engine = Engine(model)
    requests = [engine.add(prompt, **options) for prompt in prompts]
    engine.run()
    return [request.tokens for request in requests]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("target", ["native", "numpy"])
def test_scores_of_prompts_and_tokens_equal_numpy(family: str, target: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    weights = {name: w.astype("float64") for name, w in saved(tmp_path, family).items()}
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 30).tolist()
    evaluate = gpt2_scores if family.startswith("gpt2") else llama_scores
    wanted = evaluate(CONFIGS[family], weights, ids)
    model = CompiledDecoder.from_folder(tmp_path, target=target, chunk=32, page=4)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = []
    for start, end in [(0, 11), (11, 25), (25, 26), (26, 27), (27, 30)]:
        found.append(model.run(cache, [0], [ids[start:end]], range(end - start)))
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=2e-4, atol=2e-4)


def test_short_texts_have_rotations_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    weights = {name: w.astype("float64") for name, w in saved(tmp_path, "phi3").items()}
    ids = np.random.default_rng(1).integers(0, VOCABULARY, 20).tolist()
    model = CompiledDecoder.from_folder(tmp_path, context=20)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = model.run(cache, [0], [ids], range(20))
    wanted = llama_scores(CONFIGS["phi3"], weights, ids)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


COMMON = {
    "architectures": ["X"],
    "attention_dropout": 0.1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "pad_token_id": 0,
    "torch_dtype": "bfloat16",
    "dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "_name_or_path": "x",
    "unsloth_version": "2025.1",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "use_flash_attention_2": True,
    "aux_loss_coefficient_of_router": 0.1,
    "max_sequence_length": 2048,
    "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
}
GEMMAS = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
FOUND: dict[str, dict[str, Any]] = {
    "llama": {
        "pretraining_tp": 4,
        "mlp_bias": False,
        "attention_bias": False,
        "rope_scaling": None,
    },
    "mistral": {"attn_implementation": "eager", "sliding_window": None, "max_length": 20},
    "qwen2": {
        "use_mrope": False,
        "max_window_layers": 28,
        "use_sliding_window": False,
        "dual_chunk_attention_config": {"chunk_size": 262144, "local_size": 8192},
    },
    "qwen3": {"max_window_layers": 28, "use_sliding_window": False, "attention_bias": False},
    "gemma": {**GEMMAS, "hidden_activation": None, "hidden_act": "gelu"},
    "mixtral": {
        "router_aux_loss_coef": 0.02,
        "router_jitter_noise": 0.1,
        "output_router_logits": 1,
    },
    "gemma2": {
        **GEMMAS,
        "cache_implementation": "hybrid",
        "layer_types": None,
        "sliding_window_size": 4096,
    },
    "gemma3_text": {**GEMMAS, "cache_implementation": "hybrid", "_sliding_window_pattern": 6},
    "phi3": {"embd_pdrop": 0.1, "resid_pdrop": 0.1, "interpolate_factor": 1, "full_attn_mod": 1},
    "qwen3_moe": {"decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.1},
    "gpt2": {"n_ctx": 30, "summary_activation": None, "summary_type": "cls_index", "n_inner": None},
}
"""What files have besides, in the families that have it."""


@pytest.mark.parametrize("family", [name for name in CONFIGS if name in FOUND])
def test_entries_of_files_are_known(family: str) -> None:
    raw = CONFIGS[family]
    assert config_of({**COMMON, **FOUND[family], **raw}) == config_of({**raw, "eos_token_id": 2})
    assert config_of({**COMMON, **FOUND[family], **raw}).unknown == ()
    assert config_of({**raw, "my_note": "hello", "nothing": None}).unknown == ("my_note",)


def test_older_files_of_phi3_call_the_scaling_of_positions_su() -> None:
    raw = CONFIGS["phi3"]
    scaling = raw["rope_scaling"] | {"type": "su"}
    scaling.pop("rope_type", None)
    assert config_of({**raw, "rope_scaling": scaling}) == config_of(raw)
    with pytest.raises(ModelError, match="scaled by 'su'"):
        config_of({**CONFIGS["llama"], "rope_scaling": {"type": "su", "factor": 2.0}})


OTHERS: dict[str, Any] = {
    "attention_multiplier": 0.5,
    "attn_layer_offset": 2,
    "altup_num_inputs": 4,
    "attention_chunk_size": 8192,
    "clip_qkv": 8.0,
    "conv_bias": True,
    "embedding_multiplier": 12.0,
    "emb_scale": 2,
    "expert_layer_period": 2,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "layer_norm_eps": 1e-5,
    "lm_head_bias": True,
    "lm_head_multiplier": 0.5,
    "logit_scale": 0.06,
    "logits_scaling": 8.0,
    "mamba_d_state": 16,
    "moe_layer_freq": 2,
    "mrope_section": [1, 2],
    "n_shared_experts": 1,
    "no_rope_layers": [1, 0],
    "num_kv_shared_layers": 2,
    "num_shared_experts": 2,
    "parallel_attn": True,
    "qk_layernorm": True,
    "residual_multiplier": 0.22,
    "rope_interleave": True,
    "rotary_pct": 0.25,
    "partial_rotary_factor": 0.25,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "scoring_func_of_router": "sigmoid",
    "swiglu_limit_activation": 7.0,
    "use_bidirectional_attention": True,
    "use_qk_norm": True,
    "use_parallel_residual": True,
    "add_cross_attention": True,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "bits": 8},
    "quantization": {"group_size": 64, "bits": 4},
    "compression_config": {"quant_method": "compressed-tensors"},
}
"""Entries of other architectures, and of weights in few bits."""


@pytest.mark.parametrize("family", CONFIGS)
def test_entries_that_change_a_model_are_read_or_refused(family: str) -> None:
    raw = CONFIGS[family]
    plain = config_of(raw)
    for name, value in OTHERS.items():
        if name in raw:
            continue
        try:
            found = config_of({**raw, name: value}, "config.json")
        except ModelError as error:
            message = str(error)
            assert "config.json has" in message
            assert name in message
            continue
        assert found != plain, name


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"mrope_section": [1, 1]}, "have 'mrope_section'|has 'mrope_section'"),
        ({"attention_factor": 2.0, "rope_type": "linear", "factor": 2.0}, "attention_factor"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor': 0.5, expected 1"),
        (
            {
                "rope_type": "yarn",
                "factor": 2.0,
                "original_max_position_embeddings": 8,
                "alpha_of_it": 3,
            },
            "'alpha_of_it'",
        ),
    ],
)
def test_scalings_with_other_entries_are_refused(scaling: Any, message: str) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        raw = {key: v for key, v in CONFIGS["llama"].items() if not key.startswith("rope_")}
        with pytest.raises(ModelError, match=message):
            config_of({**raw, name: scaling})


def test_windows_of_gemma_3_have_no_scaling_of_their_own() -> None:
    raw = copy.deepcopy(CONFIGS["gemma3_text"])
    raw["rope_parameters"]["sliding_attention"] |= {"rope_type": "linear", "factor": 2.0}
    with pytest.raises(ModelError, match="'rope_type': 'linear', expected 'default'"):
        config_of(raw)


def test_factors_of_positions_are_as_many_as_pairs() -> None:
    raw = copy.deepcopy(CONFIGS["phi3"])
    raw["rope_scaling"]["long_factor"] = raw["rope_scaling"]["long_factor"][1:]
    with pytest.raises(ModelError, match=r"config.json has \d+ factors of positions, expected \d+"):
        config_of(raw, "config.json")
    raw["rope_scaling"]["long_factor"] = [0.0]
    with pytest.raises(ModelError, match="expected a list of positive numbers"):
        config_of(raw)


def test_experts_and_rotations_under_the_names_of_later_versions() -> None:
    raw = dict(CONFIGS["qwen3_moe"])
    count = raw.pop("num_experts")
    assert config_of({**raw, "num_local_experts": count}) == config_of(CONFIGS["qwen3_moe"])
    phi = copy.deepcopy(CONFIGS["phi3"])
    share = phi.pop("partial_rotary_factor")
    phi["rope_parameters"] = {**phi.pop("rope_scaling"), "partial_rotary_factor": share}
    assert config_of(phi) == config_of(CONFIGS["phi3"])


@pytest.mark.parametrize("family", FOUND)
def test_configurations_of_transformers_are_known(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    own = transformers.AutoConfig.for_model(family)
    found = config_of(json.loads(json.dumps(own.to_dict(), default=str)))
    assert found.unknown == ()


@pytest.mark.parametrize("family", CONFIGS)
def test_scores_and_greedy_tokens_equal_transformers(family: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("safetensors")
    saved(tmp_path, family)
    try:
        peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"transformers cannot load its own model here: {error}")
    prompt = np.random.default_rng(2).integers(0, VOCABULARY, 24).tolist()
    with torch.no_grad():
        scores = peer(torch.tensor([prompt])).logits[0].numpy()
        wanted = list(prompt)
        for _ in range(20):
            wanted.append(int(peer(torch.tensor([wanted])).logits[0, -1].argmax()))
    model = CompiledDecoder.from_folder(tmp_path, chunk=24)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = model.run(cache, [0], [prompt], range(24))
    np.testing.assert_allclose(found, scores, rtol=2e-4, atol=2e-4)
    assert generate(model, [prompt], max_tokens=20) == [wanted[24:]]


@pytest.mark.parametrize(
    ("options", "digits"),
    [
        ({"quantization": "q0f16"}, 11),
        ({"cache_dtype": "float16"}, 11),
        ({"cache_dtype": "bfloat16"}, 8),
    ],
)
def test_scores_in_float16(options: dict[str, str], digits: int, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    weights = {name: w.astype("float64") for name, w in saved(tmp_path, "qwen3").items()}
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    wanted = llama_scores(CONFIGS["qwen3"], weights, ids)
    model = CompiledDecoder.from_folder(tmp_path, **options)
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = [model.run(cache, [0], [ids[:5]], range(5))]
    found += [model.run(cache, [0], [[token]], [0]) for token in ids[5:]]
    assert found[0].dtype == "float32"
    error = np.abs(np.concatenate(found) - wanted).max()
    assert error < 20 * 2**-digits * np.abs(wanted).max()


# --- the engine


class Failing(Sampling):
    """Raises `raised` in place of the choice of a token, the first after those in `left`."""

    def choose(self, scores: Any, before: Any, random: Any, chosen: Any = ()) -> int:
        self.left[0] -= 1
        if self.left[0] == 0:
            raise self.raised
        return super().choose(scores, before, random, chosen)


def failing(rng: random.Random, sampling: Any) -> Any:
    result = Failing(sampling.temperature, top_p=sampling.top_p, seed=sampling.seed)
    kind = rng.choice([ValueError, ZeroDivisionError, KeyboardInterrupt])
    result.__dict__.update(left=[rng.randint(1, 6)], raised=kind("no token"))
    return result


@pytest.mark.parametrize("number", range(max(3, COUNT // 10)))
def test_requests_together_get_the_tokens_that_they_get_alone(llama: Any, number: int) -> None:
    rng = random.Random(f"{SEED} {number}")
    start = [rng.randrange(VOCABULARY) for _ in range(12)]
    engine, requests, cancelled = Engine(llama), [], set()
    for _ in range(60):
        if rng.random() < 0.25 and len(requests) < 10:
            own = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 25))]
            prompt = start[: rng.randint(0, 12)] + own
            options = {
                "sampling": Sampling(rng.choice([0, 0, 0.8]), top_p=0.9, seed=rng.randrange(99)),
                "max_tokens": rng.randint(1, 20),
                "stop": {rng.randrange(VOCABULARY)},
            }
            sampling = options["sampling"]
            asked = failing(rng, sampling) if rng.random() < 0.3 else sampling
            request = engine.add(prompt, **{**options, "sampling": asked})
            requests.append((request, prompt, options))
        if requests and rng.random() < 0.05:
            chosen = rng.choice(requests)[0]
            if not chosen.done:
                cancelled.add(chosen)
            chosen.cancel()
        with suppress(KeyboardInterrupt):
            engine.step()
    while engine.waiting or engine.running:
        with suppress(KeyboardInterrupt):
            engine.run()
    for request, prompt, options in requests:
        (alone,) = generate(llama, [prompt], **options)
        tokens = request.tokens
        if request.error is not None:
            assert request.error is request.sampling.raised
            with pytest.raises(type(request.error), match="no token"):
                list(request)
        is_part = request in cancelled or request.error is not None
        assert tokens == (alone[: len(tokens)] if is_part else alone)


def test_a_prompt_of_several_requests_is_read_once(llama, monkeypatch) -> None:
    """Also if reading takes several calls, and one of them ends in between."""
    rng, read, run = random.Random(5), [], llama.run

    def watched(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        read.append([len(own) for own in ids])
        return run(cache, sequences, ids, rows)

    prompt = [rng.randrange(VOCABULARY) for _ in range(3 * llama.chunk + 1)]
    other = [rng.randrange(VOCABULARY) for _ in range(4)]
    samplings = [Sampling(0.9, seed=seed) for seed in range(4)]
    alone = [generate(llama, [prompt], sampling=s, max_tokens=5)[0] for s in samplings]
    monkeypatch.setattr(llama, "run", watched)
    engine = Engine(llama)
    requests = [engine.add(prompt, sampling, 5) for sampling in samplings]
    last = engine.add(other, max_tokens=1)
    engine.step()
    requests[0].cancel()  # what it has read serves the next one
    engine.run()
    assert [request.tokens for request in requests[1:]] == alone[1:]
    assert len(last.tokens) == 1
    chosen = 3 * 4  # tokens that are read after they were chosen
    assert sum(map(sum, read)) == len(prompt) + len(other) + 2 + chosen
    assert llama.chunk in map(sum, read[:1])


def test_a_long_prompt_is_read_beside_short_ones_that_keep_coming(llama: Any) -> None:
    rng = random.Random(6)
    engine, short = Engine(llama), []
    long = engine.add([rng.randrange(VOCABULARY) for _ in range(5 * llama.chunk)], max_tokens=1)
    for _ in range(10):  # half of each chunk is for the long one
        while len(engine.running) + len(engine.waiting) < 3:
            prompt = [rng.randrange(VOCABULARY) for _ in range(llama.chunk - 1)]
            short.append(engine.add(prompt, max_tokens=1))
        engine.step()
    assert long.done
    assert sum(request.done for request in short) >= 4
    engine.run()
    for request in (long, *short):
        assert generate(llama, [request.prompt], max_tokens=1) == [request.tokens]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("odd", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_request_without_a_token_to_choose_ends_alone(llama, temperature, odd, monkeypatch):
    engine, run = Engine(llama), llama.run
    options = {"max_tokens": 4, "sampling": Sampling(temperature, seed=1)}
    bad, good = (engine.add(prompt, **options) for prompt in ([1, 2], [3, 4]))

    def odd_scores(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        scores = np.array(run(cache, sequences, ids, rows))
        if bad.sequence in sequences and len(bad.tokens) == 2:
            row = list(sequences).index(bad.sequence)
            scores[row] = np.resize(odd, VOCABULARY)
        return scores

    with monkeypatch.context() as patched:
        patched.setattr(llama, "run", odd_scores)
        engine.run()
        with pytest.raises(ModelError, match="no token can be chosen: the best score is"):
            list(bad)
    assert [bad.tokens, good.tokens] == [
        tokens[:length]
        for tokens, length in zip(generate(llama, [[1, 2], [3, 4]], **options), (2, 4), strict=True)
    ]


@pytest.mark.parametrize("option", ["sequences", "tokens", "chunk", "page"])
def test_limits_are_positive(option: str) -> None:
    config = config_of(CONFIGS["gpt2"])
    with pytest.raises(ModelError, match=f"{option} is a positive integer, found 0"):
        CompiledDecoder(config, {}, **{option: 0})


def python_calls(function: Any) -> int:
    """How many functions of Python a call enters."""
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return events.count("call")


@pytest.mark.parametrize("family", ["llama", "mistral, sliding"])
def test_a_layer_does_not_enter_python_for_many_sequences(family: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    pytest.importorskip("llvmlite")
    found = {}
    for layers in (2, 3):
        raw = {**CONFIGS[family], "num_hidden_layers": layers}
        config = config_of(raw)
        shapes = Decoder(config).state_dict()
        weights = {name: np.full(p.shape, 0.01, p.dtype) for name, p in shapes.items()}
        model = CompiledDecoder(config, weights, names={}, page=4, sequences=6, tokens=400)
        cache = model.new_cache()
        for number in range(6):
            model.state("add_sequence", cache, number)
            model.run(cache, [number], [[1, 2, 3]], [2])
        for count in (1, 2, 6):
            numbers = list(range(count))
            step = partial(model.run, cache, numbers, [[5]] * count, numbers)
            for _ in range(9):  # then constructors of plans are compiled
                step()
            found[layers, count] = python_calls(step)
    of_a_layer = {count: found[3, count] - found[2, count] for count in (1, 2, 6)}
    assert set(of_a_layer.values()) == {0}


def test_a_call_that_fails_leaves_sequences_as_they_were(llama: Any) -> None:
    cache, found = llama.new_cache(), []
    for seq_id in range(2):
        llama.state("add_sequence", cache, seq_id)
        llama.run(cache, [seq_id], [[1, 2, 3]], [2])
        if seq_id:
            for ids, rows in (([[4, VOCABULARY]], [1]), ([[4, 5]], [7])):
                with pytest.raises(RuntimeCheckError, match="is outside dimension"):
                    llama.run(cache, [seq_id], ids, rows)
        found.append(llama.run(cache, [seq_id], [[6]], [0]))
    np.testing.assert_array_equal(*found)


def test_a_common_prefix_is_read_once(llama: Any) -> None:
    engine = Engine(llama)
    prompt = list(range(20))
    first = engine.add([*prompt, 30], max_tokens=2)
    engine.run()
    second = engine.add([*prompt, 31], max_tokens=2)
    engine.step()  # a chunk has 8 tokens: all of the prompt would take three steps
    assert len(second.tokens) == 1
    assert generate(llama, [first.prompt], max_tokens=2) == [first.tokens]


def test_tokens_come_one_by_one(llama: Any) -> None:
    engine = Engine(llama)
    request, other = engine.add([1, 2, 3], max_tokens=6), engine.add([4, 5], max_tokens=3)
    stream = iter(request)
    first = next(stream)
    assert request.tokens == [first]
    assert [first, *stream] == request.tokens
    assert len(request.tokens) == 6
    assert other.done


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("activation_function", "relu"),
        ("scale_attn_weights", False),
        ("scale_attn_by_inverse_layer_idx", True),
    ],
)
def test_variants_of_gpt2_that_the_example_does_not_compute(entry: str, value: object) -> None:
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 9, "n_positions": 16}
    raw = {"model_type": "gpt2", "activation_function": "gelu_new", **sizes}
    assert config_of(raw).activation == "gelu_tanh"
    with pytest.raises(ModelError, match=f"'{entry}': {value!r}, expected"):
        config_of({**raw, entry: value})


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "a prompt has at least one token"),
        ([3, VOCABULARY], {}, "the model has the tokens 0 to 40, found 41"),
        ([3], {"max_tokens": 0}, "chooses at least one token"),
        ([3], {"max_tokens": 2.5}, "tokens and their number are integers: 'float'"),
        ([3], {"stop": ["."]}, "tokens and their number are integers: 'str'"),
        ([3.0], {}, "tokens and their number are integers: 'float'"),
        ([3] * 90, {"max_tokens": 7}, "90 tokens and 7 more are too many: .* at most 96"),
    ],
)
def test_requests_that_cannot_be_run(llama, prompt, options, message) -> None:
    engine = Engine(llama)
    with pytest.raises(ModelError, match=message):
        engine.add(prompt, **options)
    assert len(generate(llama, [[1]], max_tokens=2)[0]) == 2


# --- the choice of tokens


def test_sampling() -> None:
    scores = np.log([0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(Sampling(1.0).probabilities(scores), [0.5, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(Sampling(1.0, top_k=2).probabilities(scores), [0.625, 0.375, 0, 0])
    np.testing.assert_allclose(Sampling(1.0, top_p=0.7).probabilities(scores), [0.625, 0.375, 0, 0])
    np.testing.assert_allclose(Sampling(1.0, top_p=0.1).probabilities(scores), [1, 0, 0, 0])
    np.testing.assert_allclose(Sampling(1.0, top_p=0).probabilities(scores), [1, 0, 0, 0])
    whole = Sampling(1.0).probabilities(scores)
    for options in ({"top_k": 0}, {"top_k": -1}, {"min_p": 0}):
        np.testing.assert_array_equal(Sampling(1.0, **options).probabilities(scores), whole)
    for share in (0.05, 0.3, 0.7, 1.0):
        wanted = np.where(whole >= share * whole.max(), whole, 0)
        found = Sampling(1.0, min_p=share).probabilities(scores)
        np.testing.assert_allclose(found, wanted / wanted.sum(), rtol=1e-12)
    np.testing.assert_allclose(Sampling(1e-320).probabilities(scores), [1, 0, 0, 0])
    hot = Sampling(2.0).probabilities(scores)
    np.testing.assert_allclose(hot, np.sqrt([0.5, 0.3, 0.15, 0.05]) / hot_sum())
    penalised = Sampling(repetition_penalty=4.0).probabilities([2.0, 1.0, -1.0], [0, 0])
    assert penalised.argmax() == 1
    negative = Sampling(1.0, repetition_penalty=2.0).probabilities([-1.0, -1.5], [0])
    np.testing.assert_allclose(negative, np.exp([-2, -1.5]) / np.exp([-2, -1.5]).sum())
    for penalty, wanted in ((1e-308, [1, 0, 0]), (1e308, [0, 1, 0])):
        extreme = Sampling(1.0, repetition_penalty=penalty)
        found = extreme.probabilities([20.0, 19.0, -19.0], [0, 2])
        np.testing.assert_allclose(found, wanted, atol=1e-8)


@pytest.mark.parametrize("seed", range(40))
def test_the_best_score_is_chosen_as_it_is_after_conversion(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, 50).astype(["float32", "float64"][seed % 2])
    special = rng.choice([-np.inf, np.inf, np.nan, 2.0], 50)
    scores = np.where(rng.random(50) < [0, 0.02, 0.1][seed % 3], special, scores)
    wanted: Any = None
    with suppress(ModelError):
        wanted = int(Sampling().adjusted(scores, (), ()).argmax())
    if wanted is None:
        with pytest.raises(ModelError, match=r"the best score is (nan|inf)"):
            Sampling().choose(scores, (), rng)
    else:
        assert Sampling().choose(scores, (), rng) == wanted


@pytest.mark.parametrize("size", [3, 5000])  # few of many are sorted apart
def test_the_fewest_tokens_whose_probabilities_sum_to_p(size: int) -> None:
    rng = np.random.default_rng(size)
    for spread, p in ((0.01, 0.1), (0.01, 0.9), (3.0, 0.5), (3.0, 0.999)):
        scores = np.round(rng.standard_normal(size) * spread, 1 if spread > 1 else 4)  # with ties
        shares = Sampling(1.0).probabilities(scores)
        order = sorted(range(size), key=lambda token: (-shares[token], token))
        kept, total = set(), 0.0
        for token in order:
            if total >= p:
                break
            kept.add(token)
            total += shares[token]
        found = Sampling(1.0, top_p=p).probabilities(scores)
        assert set(np.flatnonzero(found)) == kept
        np.testing.assert_allclose(found[[*kept]], shares[[*kept]] / total)


def hot_sum() -> float:
    return float(np.sqrt([0.5, 0.3, 0.15, 0.05]).sum())


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"temperature": -1},
            {"temperature": "hot"},
            {"top_k": -2},
            {"top_k": 2.5},
            {"top_p": -1},
        ),
        *({"min_p": 1.5}, {"min_p": "x"}),
        *({"top_p": 1.5}, {"repetition_penalty": 0}, {"seed": -1}, {"seed": "a"}),
    ],
)
def test_options_of_sampling_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)


# --- folders that are not models


def test_the_part_for_texts_of_a_gemma_for_images(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    text = {k: v for k, v in CONFIGS["gemma3_text"].items() if k != "max_position_embeddings"}
    raw = {"model_type": "gemma3", "text_config": text, "eos_token_id": [1, 7]}
    config = config_of(raw)
    assert (config.family, config.positions, config.stop) == ("gemma3_text", 131072, (1, 7))
    short = {"model_type": "gemma3", "text_config": {"hidden_size": 2560, **dict.fromkeys(
        ("num_hidden_layers", "intermediate_size"), 34)}}  # fmt: skip
    known = config_of(short)
    assert (known.heads, known.kv_heads, known.head_dim, known.tied) == (8, 4, 256, True)
    weights = weights_of(CONFIGS["gemma3_text"], 0)
    outer = {f"language_model.{name}": value for name, value in weights.items()}
    save_file(outer | {"vision_tower.x": np.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(raw))
    files = open_model(tmp_path)
    values = load_weights(files.weights, Decoder(files.config), files.names, ignore=UNUSED)
    np.testing.assert_array_equal(values["norm.weight"], weights["model.norm.weight"] + 1)


JUNK = [
    None,
    0,
    -1,
    2**63,
    10**400,
    3.5,
    math.nan,
    math.inf,
    "x",
    True,
    [],
    ["a"],
    [1, [2]],
    {},
    {"a": 1},
]


@pytest.mark.parametrize("family", CONFIGS)
def test_entries_of_any_kind_are_values_or_errors(family: str) -> None:
    rng = random.Random(family)
    names = ["layer_types", "max_window_layers", "use_sliding_window", "rope_scaling", "mlp_bias"]
    names += ["rope_parameters", "partial_rotary_factor", "eos_token_id", "norm_topk_prob"]
    for _ in range(200):
        raw = dict(CONFIGS[family])
        for _ in range(rng.randint(1, 3)):
            raw[rng.choice([*raw, *names])] = rng.choice(JUNK)
        with suppress(ModelError):
            assert config_of(raw).layers > 0


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(ModelError, match="which has the configuration of the model"):
        CompiledDecoder.from_folder(tmp_path)
    config = tmp_path / "config.json"
    for text, message in [
        ("{", "is not JSON"),
        ("[]", "is not a table"),
        ('{"model_type": "t5"}', "of the architecture 't5', expected one of llama, mistral"),
        ('{"model_type": "llama"}', "has no 'hidden_size'"),
        ("[" * 100000, "is not JSON"),
        ('{"model_type": ["llama"]}', r"of the architecture \['llama'\]"),
        *(
            (json.dumps(CONFIGS["llama"] | entries), message)
            for entries, message in [
                (
                    {"rope_scaling": {"type": "dynamic"}},
                    "scaled by 'dynamic', .* llama3, longrope, yarn",
                ),
                ({"rope_scaling": {"type": "yarn"}}, "of positions of .* has no 'factor'"),
                ({"rope_scaling": {**YARN, "truncate": 1}}, "'truncate': 1, expected true or"),
                ({"attention_bias": True}, "'attention_bias': True, expected False"),
                ({"mlp_bias": True}, "'mlp_bias': True, expected False"),
                ({"rope_scaling": {"type": "linear", "factor": "8"}}, "'8', expected a positive"),
                ({"rope_scaling": [8]}, "expected a table of names and values"),
                ({"vocab_size": 2**70}, "expected a positive integer of 31 bits"),
                ({"num_hidden_layers": True}, "'num_hidden_layers': True, expected a positive"),
                ({"rms_norm_eps": float("nan")}, "'rms_norm_eps': nan, expected a positive number"),
                ({"num_key_value_heads": 3}, "3 heads of keys, which do not divide"),
                ({"eos_token_id": ["a"]}, "expected a token or a list of them"),
                ({"tie_word_embeddings": "no"}, "'no', expected true or false"),
                ({"hidden_act": "relu"}, "'relu', expected 'silu' or 'swish'"),
            ]
        ),
    ]:
        config.write_text(text)
        with pytest.raises(ModelError, match=message):
            CompiledDecoder.from_folder(tmp_path)
    weights = saved(tmp_path, "llama")
    from safetensors.numpy import save_file

    del weights["model.norm.weight"]
    weights["extra"] = weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FrontendError, match=r"(?s)model.norm.weight.*extra"):
        CompiledDecoder.from_folder(tmp_path)


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])  # one has its embedding as last layer
def test_scores_with_weights_in_few_bits(family: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    raw, weights = CONFIGS[family], saved(tmp_path, family)
    own = QUANTIZATIONS["q4f32_1"]
    rounded = {}
    for name, weight in weights.items():
        exchanged = family == "gpt2" and not name.startswith(("wte", "wpe"))
        rows = weight.T if exchanged else weight
        if weight.ndim == 2:
            packed, scale = own.quantize(np.ascontiguousarray(rows))
            integers = packed[..., np.newaxis] >> np.arange(0, 32, 4, dtype="uint32") & 15
            groups = integers.reshape(*scale.shape, 32).astype("float64") - 7
            decoded = (groups * scale[..., np.newaxis]).reshape(len(rows), -1)
            rows = decoded[:, : rows.shape[1]]
        rounded[name] = (rows.T if exchanged else rows).astype("float64")
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    wanted = (gpt2_scores if family == "gpt2" else llama_scores)(raw, rounded, ids)
    model = CompiledDecoder.from_folder(tmp_path, quantization="q4f32_1")
    cache = model.new_cache()
    model.state("add_sequence", cache, 0)
    found = [model.run(cache, [0], [ids[:5]], range(5))]
    found += [model.run(cache, [0], [[token]], [0]) for token in ids[5:]]
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=2e-4, atol=2e-4)


def test_a_model_from_the_disk_has_the_default_datatype(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RELAXPY_CACHE", "1")
    monkeypatch.setenv("RELAXPY_CACHE_DIR", str(tmp_path))
    raw = CONFIGS["mistral"]
    values = weights_of(raw, 0)
    found = []
    for dtype in ("float32", "float16", "float32"):
        token = core._default_dtype.set(dtype)
        try:
            found.append(str(CompiledDecoder(config_of(raw), values).program["decode"].signature))
        finally:
            core._default_dtype.reset(token)
    assert "float16" in found[1]
    assert "float16" not in found[0]
    assert found[2] == found[0]


def test_one_weight_at_a_time_is_read_and_rounded() -> None:
    config, weights = config_of(CONFIGS["mistral"]), weights_of(CONFIGS["mistral"], 0)
    known = names_of(config, weights)
    read: list[ref[Any]] = []
    counts = []

    def joined(*parts: Any) -> Any:
        value = np.concatenate(parts)
        counts.append(sum(one() is not None for one in read))
        if value.ndim == 2:  # all others are not rounded
            read.append(ref(value))
        return value

    def origin(name: str) -> tuple[list[str], Any]:
        found = known.get(name, name)
        return [found] if isinstance(found, str) else found, joined

    names = {name: origin(name) for name in Decoder(config).state_dict()}
    CompiledDecoder(config, weights, names=names, quantization="q4f32_1")
    assert len(read) == 10
    assert max(counts) == 1


@pytest.mark.parametrize("quantization", [None, "q4f32_1"])
def test_all_layers_have_the_same_products(quantization: str | None) -> None:
    """The inputs of the first, and the results of the last, are as those of the others."""
    raw = CONFIGS["mistral"]
    model = CompiledDecoder(config_of(raw), weights_of(raw, 0), quantization=quantization)
    products = {row.kernel for row in model.program.report() if "matmul" in row.kernel}
    fused_with_the_norm = 1  # of one token, which no kernel selects
    assert len(products) == 2 * 5 + fused_with_the_norm
