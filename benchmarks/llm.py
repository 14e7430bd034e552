"""Measure a language model of random weights beside llama.cpp and transformers, where installed.

`--size 125m` has 12 layers of 768, hidden units 2048, 32,000 tokens; `--size 1.1b` has 22 layers of
2048, 5632 hidden units, 4 heads of keys for 32. All contestants have the same weights, two threads,
and take turns. Tokens per second: a prompt of 512 tokens at once, single tokens after 512 and after
3,584, and a batch of 8 sequences. The GB/s are those of the weights that a token reads.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

THREADS = os.environ.setdefault("RELAXPY_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", THREADS)

import numpy as np  # noqa: E402

from relaxpy.llm import CompiledDecoder, Config, config_of  # noqa: E402

SIZES: Mapping[str, Mapping[str, int]] = {
    "125m": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 12, "intermediate_size": 2048},
    "1.1b": {"hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
             "num_key_value_heads": 4, "intermediate_size": 5632},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
             "num_key_value_heads": 2, "intermediate_size": 96},
}  # fmt: skip
VOCABULARY, CONTEXT = 32000, 4096
WIDTHS = {
    "float32": None,
    "float16": "q0f16",
    "8 bits": "q8f32_1",
    "w8a8": "w8a8f32",
    "4 bits": "q4f32_1",
    "w4a8": "w4a8f32",
}
GGUF_TYPES = {"float32": "F32", "float16": "F16", "8 bits": "Q8_0", "4 bits": "Q4_0"}
PROMPT, LATE, BATCH = 512, 3584, 8


def weights_of(config: Config) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Random weights by the names that Hugging Face has for Llama."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return random.standard_normal((rows, columns), dtype=np.float32) * columns**-0.5

    width, d = config.width, config.head_dim
    found = {"model.embed_tokens.weight": matrix(VOCABULARY, width)}
    for layer in range(config.layers):
        name = f"model.layers.{layer}"
        found[f"{name}.self_attn.q_proj.weight"] = matrix(config.heads * d, width)
        found[f"{name}.self_attn.k_proj.weight"] = matrix(config.kv_heads * d, width)
        found[f"{name}.self_attn.v_proj.weight"] = matrix(config.kv_heads * d, width)
        found[f"{name}.self_attn.o_proj.weight"] = matrix(width, config.heads * d)
        found[f"{name}.mlp.gate_proj.weight"] = matrix(config.hidden, width)
        found[f"{name}.mlp.up_proj.weight"] = matrix(config.hidden, width)
        found[f"{name}.mlp.down_proj.weight"] = matrix(width, config.hidden)
        found[f"{name}.input_layernorm.weight"] = np.ones(width, np.float32)
        found[f"{name}.post_attention_layernorm.weight"] = np.ones(width, np.float32)
    found["model.norm.weight"] = np.ones(width, np.float32)
    found["lm_head.weight"] = matrix(VOCABULARY, width)
    return found


class Ours:
    """A decoder of `relaxpy.llm`, with keys and values in float16 as llama.cpp has them."""

    def __init__(self, config: Config, weights: Mapping[str, Any], width: str) -> None:
        self.model = CompiledDecoder(
            config, weights, quantization=WIDTHS[width], cache_dtype="float16",
            sequences=BATCH + 1, tokens=8192,
        )  # fmt: skip
        self.cache = self.model.new_cache()
        self.bytes = sum(np.asarray(p).nbytes for p in self.model.params)

    def start(self, position: int) -> None:
        """One sequence of so many tokens."""
        self.model.state("add_sequence", self.cache, 0)
        for first in range(0, position, PROMPT):
            self.take(min(PROMPT, position - first))

    def take(self, count: int) -> None:
        """Take so many tokens at once."""
        ids = [(7 * n) % VOCABULARY for n in range(count)]
        self.model.run(self.cache, [0], [ids], [count - 1])

    def end(self) -> None:
        """Forget the sequence."""
        self.model.state("remove_sequence", self.cache, 0)

    def batch(self) -> Callable[[], object]:
        """A step of several sequences, each of one token after 64 others."""
        model, ids = self.model, list(range(1, BATCH + 1))
        for number in ids:
            model.state("add_sequence", self.cache, number)
            model.run(self.cache, [number], [list(range(64))], [63])
        rows = list(range(BATCH))
        return partial(model.run, self.cache, ids, [[5]] * BATCH, rows)


class LlamaCpp:
    """llama.cpp, by the package llama-cpp-python, on a GGUF file of the same weights."""

    def __init__(self, config: Config, weights: Mapping[str, Any], width: str) -> None:
        import llama_cpp

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "model.gguf"
        write_gguf(path, config, weights, GGUF_TYPES[width])
        threads = int(THREADS)
        self.model = llama_cpp.Llama(
            str(path), n_ctx=CONTEXT, n_batch=PROMPT, n_ubatch=PROMPT, n_threads=threads,
            n_threads_batch=threads, verbose=False, flash_attn=True,
        )  # fmt: skip
        self.bytes = path.stat().st_size

    def start(self, position: int) -> None:
        """One sequence of so many tokens."""
        self.model.reset()
        for first in range(0, position, PROMPT):
            self.take(min(PROMPT, position - first))

    def take(self, count: int) -> None:
        """Take so many tokens at once."""
        self.model.eval([(7 * n) % VOCABULARY for n in range(count)])

    def end(self) -> None:
        """Forget the sequence."""
        self.model.reset()
        self.model._ctx.kv_cache_clear()


class Transformers:
    """transformers' Llama with PyTorch, in float32."""

    def __init__(self, config: Config, weights: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
        sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(int(THREADS))
        self.torch = torch
        options = {k: v for k, v in raw.items() if k != "model_type"}
        self.model = LlamaForCausalLM(LlamaConfig(**options)).eval()
        self.model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        self.bytes = sum(p.nbytes for p in self.model.parameters())
        self.past: Any = None

    def start(self, position: int) -> None:
        """One sequence of so many tokens."""
        self.past = None
        for first in range(0, position, PROMPT):
            self.take(min(PROMPT, position - first))

    def take(self, count: int) -> None:
        """Take so many tokens at once."""
        ids = self.torch.tensor([[(7 * n) % VOCABULARY for n in range(count)]])
        with self.torch.no_grad():
            found = self.model(ids, past_key_values=self.past, use_cache=True, logits_to_keep=1)
        self.past = found.past_key_values

    def end(self) -> None:
        """Forget the sequence."""
        self.past = None


def write_gguf(
    path: Path, config: Config, weights: Mapping[str, Any], kind: str, *, has_words: bool = False
) -> None:
    """Write weights as llama.cpp reads them: its pairs of rotated elements are neighbours.

    A tokenizer of a file that `has_words` takes each byte as a token.
    """
    import gguf

    wanted = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(VOCABULARY)
    if has_words:
        from tokenizers.pre_tokenizers import ByteLevel

        letters = sorted(ByteLevel.alphabet())
        words = [*letters, "!!", *(f"w{k}" for k in range(len(letters) + 1, VOCABULARY))]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(words)
        writer.add_token_types([1] * VOCABULARY)
        writer.add_token_merges(["! !"])
        writer.add_add_bos_token(False)
    else:
        writer.add_tokenizer_model("no_vocab")
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, values in weights.items():
        stem = name.removesuffix(".weight")
        if stem in outer:
            theirs = outer[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            theirs = f"blk.{layer}.{names[part]}"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                heads = values.shape[0] // config.head_dim
                parts = values.reshape(heads, 2, config.head_dim // 2, -1)
                values = np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(values.shape)
        if values.ndim == 1 or kind == "F32":
            writer.add_tensor(f"{theirs}.weight", values)
        else:
            packed = gguf.quants.quantize(values, wanted)
            writer.add_tensor(f"{theirs}.weight", packed, raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def least(run: Callable[[], object], repeat: int) -> float:
    """The least seconds of some runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(name: str, width: str, model: Any) -> None:
    """Print tokens per second."""
    prefill, single = [], []
    for _ in range(3):
        model.start(0)
        prefill.append(least(lambda: model.take(PROMPT), 1))
        model.end()
    for position in (PROMPT, LATE):
        model.start(position)
        single.append(least(lambda: model.take(1), 24))
        model.end()
    late = [f"{1 / t:8.1f}" for t in single]
    batch = f"{BATCH / least(model.batch(), 12):8.1f}" if isinstance(model, Ours) else " " * 8
    rate = model.bytes / single[0] / 1e9
    columns = (f"{PROMPT / min(prefill):8.1f}", *late, batch, f"{rate:6.1f}")
    print(f"{width:8} {name:14}", *columns, flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="125m")
    parser.add_argument("--widths", nargs="+", choices=WIDTHS, default=list(WIDTHS))
    options = parser.parse_args()
    raw = {"model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
           "rms_norm_eps": 1e-5, "hidden_act": "silu", **SIZES[options.size]}  # fmt: skip
    config = config_of(raw)
    weights = weights_of(config)
    print(
        f"{'tokens/s':23}",
        *map("{:>8}".format, ("prompt", "at 512", "at 3584", "8 seqs")),
        "  GB/s",
    )
    for width in options.widths:
        contestants: dict[str, Callable[[], Any]] = {
            "relaxpy": lambda width=width: Ours(config, weights, width)  # type: ignore[misc]
        }
        if width in GGUF_TYPES:
            contestants["llama.cpp"] = lambda width=width: LlamaCpp(config, weights, width)  # type: ignore[misc]
        if width == "float32":
            contestants["transformers"] = lambda: Transformers(config, weights, raw)
        for name, create in contestants.items():
            try:
                model = create()
            except ImportError as error:
                print(f"{width:8} {name:14} not installed: {error.name}")
                continue
            measure(name, width, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
