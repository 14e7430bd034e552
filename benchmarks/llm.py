"""Measure a language model of random weights beside llama.cpp and transformers, where installed.

`--size 125m` has 12 layers of 768, hidden units 2048, 32,000 tokens; `--size 1.1b` has 22 layers of
2048, 5632 hidden units, 4 heads of keys for 32; `--size 3b` has 28 layers of 3072, 8192 hidden
units, 8 heads of keys for 24, and no float32. The weights of all layers are equal, not shared.

llama.cpp is its own tool `llama-batched-bench`, whose path `--llama-batched-bench` is. It reads a
GGUF file of the same weights, and has flash attention and keys and values in float16, as relaxpy
has. All read prompts of 512 and 3,584 tokens, 512 at a time, and append `--tokens` tokens to each,
one after the other; then sequences of 16 tokens get as many, 8 and 32 sequences at once. No token
is sampled. Contestants of the same width take turns, and the best of `--rounds` counts. GB/s are
those of the weights that a token reads after 512 others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from relaxpy.llm import CompiledDecoder, Config, config_of

SIZES: Mapping[str, Mapping[str, int]] = {
    "125m": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 12, "intermediate_size": 2048},
    "1.1b": {"hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
             "num_key_value_heads": 4, "intermediate_size": 5632},
    "3b": {"hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24,
           "num_key_value_heads": 8, "intermediate_size": 8192},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
             "num_key_value_heads": 2, "intermediate_size": 96},
}  # fmt: skip
VOCABULARY, CONTEXT = 32000, 4096
WIDTHS: Mapping[str, tuple[str | None, ...]] = {
    "float32": (None,),
    "float16": ("q0f16",),
    "8 bits": ("w8a8f32", "q8f32_1"),
    "4 bits": ("w4a8f32", "q4f32_1"),
}
"""The quantizations of relaxpy for each width of weights."""
GGUF_TYPES = {"float32": "F32", "float16": "F16", "8 bits": "Q8_0", "4 bits": "Q4_0"}
CHUNK, PROMPTS = 512, (512, 3584)
BATCHES, BEFORE = (8, 32), 16
"""The numbers of sequences of a batch, and the tokens that each has before."""
Rate: TypeAlias = tuple[str, float]
"""What was measured, and its tokens per second."""


def weights_of(config: Config) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Random weights by the names that Hugging Face has for Llama, shared by all layers."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return random.standard_normal((rows, columns), dtype=np.float32) * columns**-0.5

    width, d = config.width, config.head_dim
    own = {
        "self_attn.q_proj": matrix(config.heads * d, width),
        "self_attn.k_proj": matrix(config.kv_heads * d, width),
        "self_attn.v_proj": matrix(config.kv_heads * d, width),
        "self_attn.o_proj": matrix(width, config.heads * d),
        "mlp.gate_proj": matrix(config.hidden, width),
        "mlp.up_proj": matrix(config.hidden, width),
        "mlp.down_proj": matrix(width, config.hidden),
        "input_layernorm": np.ones(width, np.float32),
        "post_attention_layernorm": np.ones(width, np.float32),
    }
    found = {"model.embed_tokens.weight": matrix(VOCABULARY, width)}
    for layer in range(config.layers):
        found |= {f"model.layers.{layer}.{name}.weight": array for name, array in own.items()}
    found["model.norm.weight"] = np.ones(width, np.float32)
    found["lm_head.weight"] = matrix(VOCABULARY, width)
    return found


def ids_of(count: int) -> list[int]:
    """So many tokens."""
    return [(7 * n) % VOCABULARY for n in range(count)]


class Ours:
    """A decoder of `relaxpy.llm`, with keys and values in float16 as llama.cpp has them."""

    def __init__(self, config: Config, weights: Mapping[str, Any], form: str | None) -> None:
        if form is None:  # nothing is rounded, and layers must not share their arrays
            weights = {name: array.copy() for name, array in weights.items()}
        self.model = CompiledDecoder(
            config, weights, quantization=form, cache_dtype="float16", sequences=max(BATCHES),
            tokens=CONTEXT, chunk=CHUNK,
        )  # fmt: skip
        self.cache = self.model.new_cache()
        self.bytes = sum(np.asarray(p).nbytes for p in self.model.params)

    def measure(self, tokens: int) -> Iterator[Rate]:
        """Tokens per second of everything, once."""
        for prompt in PROMPTS:
            yield from self._measure(prompt, tokens, 1)
        for sequences in BATCHES:
            yield from list(self._measure(BEFORE, tokens, sequences))[1:]

    def _measure(self, prompt: int, tokens: int, sequences: int) -> Iterator[Rate]:
        """Tokens per second of prompts of several sequences, and of tokens after them."""
        model, ids = self.model, list(range(sequences))
        for number in ids:
            model.state("add_sequence", self.cache, number)
        start = time.perf_counter()
        for number in ids:
            for first in range(0, prompt, CHUNK):
                own = ids_of(prompt)[first : first + CHUNK]
                model.run(self.cache, [number], [own], [len(own) - 1])
        half = time.perf_counter()
        for token in ids_of(tokens):
            model.run(self.cache, ids, [[token]] * sequences, ids)
        end = time.perf_counter()
        for number in ids:
            model.state("remove_sequence", self.cache, number)
        yield f"prompt {prompt}", prompt * sequences / (half - start)
        yield after(prompt, sequences), tokens * sequences / (end - half)


def after(prompt: int, sequences: int) -> str:
    """The name of tokens that come after a prompt."""
    return f"{sequences} seqs" if sequences > 1 else f"at {prompt}"


class LlamaCpp:
    """llama.cpp's `llama-batched-bench`, on a GGUF file of the same weights."""

    def __init__(self, tool: Path, path: Path, threads: int) -> None:
        self.command = [
            *(str(tool), "-m", str(path), "--output-format", "jsonl", "-fa", "on"),
            *("-t", str(threads), "-tb", str(threads), "-ub", str(CHUNK), "-b", str(CHUNK)),
            *("-ctk", "f16", "-ctv", "f16", "--device", "none"),
        ]
        self.bytes = path.stat().st_size

    def measure(self, tokens: int) -> Iterator[Rate]:
        """Tokens per second of everything, once; each process loads the model."""
        # The last row may be lost, as the tool ends while another thread prints: it is a short one.
        for row in self._rows(CONTEXT, (*PROMPTS, 1), [1], tokens):
            yield f"prompt {row['pp']}", row["speed_pp"]
            yield after(row["pp"], 1), row["speed_tg"]
        context = max(BATCHES) * (BEFORE + tokens)
        for row in self._rows(context, [BEFORE], (*BATCHES, 1), tokens):
            yield after(row["pp"], row["pl"]), row["speed_tg"]

    def _rows(
        self, context: int, prompts: Iterable[int], sequences: Iterable[int], tokens: int
    ) -> list[dict[str, Any]]:
        """What it measures."""
        lists = ("-npp", prompts), ("-npl", sequences), ("-ntg", [tokens])
        command = [*self.command, "-c", str(context)]
        for flag, numbers in lists:
            command += [flag, ",".join(map(str, numbers))]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


class Transformers:
    """transformers' Llama with PyTorch, in float32."""

    def __init__(self, weights: Mapping[str, Any], raw: Mapping[str, Any], threads: int) -> None:
        sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(threads)
        self.torch = torch
        options = {k: v for k, v in raw.items() if k != "model_type"}
        self.model = LlamaForCausalLM(LlamaConfig(**options)).eval()
        self.model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        self.bytes = sum(p.nbytes for p in self.model.parameters())
        self.past: Any = None

    def measure(self, tokens: int) -> Iterator[Rate]:
        """Tokens per second of one sequence."""
        for prompt in PROMPTS:
            self.past, ids = None, ids_of(prompt)
            start = time.perf_counter()
            for first in range(0, prompt, CHUNK):
                self._take(ids[first : first + CHUNK])
            half = time.perf_counter()
            for token in ids_of(tokens):
                self._take([token])
            yield f"prompt {prompt}", prompt / (half - start)
            yield after(prompt, 1), tokens / (time.perf_counter() - half)

    def _take(self, ids: list[int]) -> None:
        """Take tokens at once."""
        given = self.torch.tensor([ids])
        with self.torch.no_grad():
            found = self.model(given, past_key_values=self.past, use_cache=True, logits_to_keep=1)
        self.past = found.past_key_values


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


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="125m")
    parser.add_argument("--widths", nargs="+", choices=WIDTHS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-batched-bench", type=Path)
    options = parser.parse_args()
    threads = options.threads
    os.environ["RELAXPY_NUM_THREADS"] = str(threads)
    raw = {"model_type": "llama", "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
           "rms_norm_eps": 1e-5, "hidden_act": "silu", **SIZES[options.size]}  # fmt: skip
    config = config_of(raw)
    weights = weights_of(config)
    widths = options.widths or [w for w in WIDTHS if (options.size, w) != ("3b", "float32")]
    columns = [f"{name} {p}" for p in PROMPTS for name in ("prompt", "at")]
    columns += [after(BEFORE, batch) for batch in BATCHES]
    print(f"{'tokens/s':23}", *(f"{name:>11}" for name in columns), "   GB/s")
    for width in widths:
        with tempfile.TemporaryDirectory() as folder:
            contestants: dict[str, Any] = {}
            if options.llama_batched_bench:
                path = Path(folder) / "model.gguf"
                write_gguf(path, config, weights, GGUF_TYPES[width])
                contestants["llama.cpp"] = LlamaCpp(options.llama_batched_bench, path, threads)
            for form in WIDTHS[width]:
                contestants[f"relaxpy {form or ''}"] = Ours(config, weights, form)
            if width == "float32" and find_spec("transformers"):
                contestants["transformers"] = Transformers(weights, raw, threads)
            best: dict[str, dict[str, float]] = {name: {} for name in contestants}
            for _ in range(options.rounds):
                for name, contestant in contestants.items():
                    for what, rate in contestant.measure(options.tokens):
                        best[name][what] = max(rate, best[name].get(what, 0.0))
            for name, contestant in contestants.items():
                row = [f"{best[name][w]:11.1f}" if w in best[name] else " " * 11 for w in columns]
                moved = contestant.bytes * best[name][after(PROMPTS[0], 1)] / 1e9
                print(f"{width:8} {name:15}", *row, f"{moved:7.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
