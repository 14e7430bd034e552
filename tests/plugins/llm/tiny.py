"""Small models of random weights, in the forms that people have them in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = ["the cat sat on the mat", "the dog sat on the log", "hello world, hello cat"] * 4
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def tokenizer(kind: str = "gpt2") -> Any:
    """A small tokenizer of bytes and their pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator(TEXTS, trainer)
    own.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", own.token_to_id("<s>"))]
    )
    return own


def config(family: str = "llama", **entries: Any) -> dict[str, Any]:
    """The entries of a config.json whose products have rows that blocks of 32 fit in."""
    return {
        "model_type": family,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": tokenizer().get_vocab_size(),
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "eos_token_id": 1,
        **entries,
    }


def weights(raw: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Random weights by the names of Hugging Face."""
    rng = np.random.default_rng(seed)
    n, d, hidden = raw["hidden_size"], raw["head_dim"], raw["intermediate_size"]
    q, kv = raw["num_attention_heads"] * d, raw["num_key_value_heads"] * d
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (raw["vocab_size"], n),
        "model.norm.weight": (n,),
    }
    if not raw["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (raw["vocab_size"], n)
    for layer in range(raw["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {
            f"{at}input_layernorm.weight": (n,),
            f"{at}post_attention_layernorm.weight": (n,),
            f"{at}self_attn.q_proj.weight": (q, n),
            f"{at}self_attn.k_proj.weight": (kv, n),
            f"{at}self_attn.v_proj.weight": (kv, n),
            f"{at}self_attn.o_proj.weight": (n, q),
            f"{at}mlp.gate_proj.weight": (hidden, n),
            f"{at}mlp.up_proj.weight": (hidden, n),
            f"{at}mlp.down_proj.weight": (n, hidden),
        }
    return {
        name: (rng.standard_normal(shape) * 0.25 + ("norm" in name)).astype("float32")
        for name, shape in shapes.items()
    }


def write_folder(folder: Path, raw: dict[str, Any], values: dict[str, Any] | None = None) -> Path:
    """A folder as Hugging Face has it."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(weights(raw) if values is None else values, folder / "model.safetensors")
    tokenizer().save(str(folder / "tokenizer.json"))
    described = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path,
    raw: dict[str, Any],
    values: dict[str, Any],
    kind: str,
    others: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A file as llama.cpp has it; the weights that it has, by the names of Hugging Face.

    `others` are the formats of tensors in whose names these texts are.
    """
    import gguf

    arch, first = raw["model_type"], kind
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(raw["max_position_embeddings"])
    writer.add_embedding_length(raw["hidden_size"])
    writer.add_block_count(raw["num_hidden_layers"])
    writer.add_feed_forward_length(raw["intermediate_size"])
    writer.add_head_count(raw["num_attention_heads"])
    writer.add_head_count_kv(raw["num_key_value_heads"])
    writer.add_key_length(raw["head_dim"])
    writer.add_layer_norm_rms_eps(raw["rms_norm_eps"])
    writer.add_rope_dimension_count(raw["head_dim"])
    own = json.loads(tokenizer().to_str())
    words = sorted(own["model"]["vocab"], key=own["model"]["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([3 if word in SPECIAL else 1 for word in words])
    writer.add_token_merges([" ".join(merge) for merge in own["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)
    stored = {}
    for name, value in values.items():
        stem, own_value = name.removesuffix(".weight"), value
        kind = next((k for part, k in (others or {}).items() if part in name), first)
        wanted = gguf.GGMLQuantizationType[kind]
        packs = value.ndim == 2 and kind != "F32"
        if packs:
            packed = quantized(value, kind)
            own_value = gguf.quants.dequantize(packed, wanted).astype("float32")
        stored[name] = own_value.reshape(value.shape)
        data = packed if packs else value
        if stem in OUTER:
            theirs = OUTER[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            theirs = f"blk.{layer}.{NAMES[part]}"
            if arch == "llama" and part in {"self_attn.q_proj", "self_attn.k_proj"}:
                halves = data.reshape(-1, 2, raw["head_dim"] // 2, data.shape[1])
                data = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(data.shape)
        writer.add_tensor(f"{theirs}.weight", data, raw_dtype=wanted if packs else None)
    for step in ("header", "kv_data"):
        getattr(writer, f"write_{step}_to_file")()
    writer.write_tensors_to_file()
    writer.close()
    return stored


SCALES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
}
"""Where blocks have numbers of float16."""


def quantized(value: Any, kind: str) -> Any:
    """The bytes of rows in a format; those that the package cannot write are random blocks."""
    import gguf

    try:
        return gguf.quants.quantize(value, gguf.GGMLQuantizationType[kind])
    except NotImplementedError:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        rows, count = value.shape[0], value.shape[1] // block
        rng = np.random.default_rng(value.size)
        found = rng.integers(0, 256, (rows, count, size), dtype=np.uint8)
        for place in SCALES[kind]:
            found[..., place : place + 2] = np.array([1e-3], "<f2").view(np.uint8)
        return found.reshape(rows, -1)


def lora(raw: dict[str, Any], targets: tuple[str, ...], rank: int, seed: int) -> dict[str, Any]:
    """Random factors for the products of these names, as PEFT names them."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, value in weights(raw).items():
        if any(target in name for target in targets):
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            for kind, shape in (("A", (rank, value.shape[1])), ("B", (value.shape[0], rank))):
                factor = rng.standard_normal(shape).astype("float32") * 0.3
                found[f"{stem}.lora_{kind}.weight"] = factor
    return found


def write_lora(folder: Path, factors: dict[str, Any], alpha: float, **entries: Any) -> Path:
    """A folder as PEFT has it."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    described = {"peft_type": "LORA", "lora_alpha": alpha, "bias": "none", **entries}
    (folder / "adapter_config.json").write_text(json.dumps(described))
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


def merged(raw: dict[str, Any], factors: dict[str, Any], scale: float) -> dict[str, Any]:
    """The weights with the products of the factors added."""
    found = {}
    for name, value in weights(raw).items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.weight" in factors:
            a, b = (factors[f"{stem}.lora_{kind}.weight"] for kind in "AB")
            value = value + np.float32(scale) * (b @ a)
        found[name] = value
    return found


def write_gguf_lora(path: Path, raw: dict[str, Any], factors: dict[str, Any], alpha: float) -> Path:
    """A file as the converter of llama.cpp has it, which reorders rows of queries and keys."""
    import gguf

    writer = gguf.GGUFWriter(path, raw["model_type"])
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name, value in factors.items():
        stem, kind = name.removesuffix(".weight").removeprefix("base_model.model.").split(".lora_")
        if stem in OUTER:
            theirs = OUTER[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            theirs = f"blk.{layer}.{NAMES[part]}"
            if kind == "B" and part in {"self_attn.q_proj", "self_attn.k_proj"}:
                halves = value.reshape(-1, 2, raw["head_dim"] // 2, value.shape[1])
                value = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(value.shape)
        writer.add_tensor(f"{theirs}.weight.lora_{kind.lower()}", value)
    for step in ("header", "kv_data"):
        getattr(writer, f"write_{step}_to_file")()
    writer.write_tensors_to_file()
    writer.close()
    return path
