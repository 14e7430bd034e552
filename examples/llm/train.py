"""Train a small Llama on the documents of Python's own library, and measure it by width.

python examples/llm/train.py FOLDER [--minutes 10] [--layers 9] [--width 256] ...

The texts are the docstrings of the library, a module each, and the pages of `help()`; each tenth
one is kept to measure the model. FOLDER is one that `relaxpy.llm.load`, transformers and the
converter of llama.cpp read.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import pydoc_data.topics
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import relaxpy
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.relax.training import SetupTrainer, Trainer
from relaxpy.relax.training.loss import CrossEntropyLoss
from relaxpy.relax.training.optimizer import Adam
from relaxpy.script import relax as R

EPSILON: Final = 1e-5
BASE: Final = 10000.0
BEGIN, END = "<s>", "</s>"
WIDTHS: Final = (None, "q8f32_1", "w8a8f32", "q4f32_1", "w4a8f32")


# --- the texts


def documents(most: int | None = None) -> list[str]:
    """The docstrings of each module of Python's library, and the pages of its language."""
    library = Path(sysconfig.get_path("stdlib"))
    others = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3"}
    paths = sorted(p for p in library.rglob("*.py") if not others & {*p.parent.parts})
    texts = ["\n\n".join(_docstrings(path)) for path in paths[:most]]
    texts += [text for _, text in sorted(pydoc_data.topics.topics.items())[:most]]
    return [text for text in texts if len(text) > 200]


def _docstrings(path: Path) -> Iterator[str]:
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):  # files that only some versions of Python read
        return
    for node in nodes:
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text if isinstance(node, ast.Module) else f"{node.name}: {text}"


def tokenizer_of(texts: list[str], words: int) -> Tokenizer:
    """A tokenizer of byte pairs, which begins each text with a token of its own."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=words,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(texts, trainer)
    own.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, own.token_to_id(BEGIN))]
    )
    return own


# --- the model, whose parameters have the names that Hugging Face gives them


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.heads, self.size = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )

    def forward(self, x: nn.Tensor, turns: tuple[nn.Tensor, nn.Tensor], hidden: nn.Tensor) -> Any:
        rows, length, width = x.shape

        def by_head(part: nn.Tensor) -> Any:
            return op.permute_dims(
                op.reshape(part, (rows, length, self.heads, self.size)), [0, 2, 1, 3]
            )

        q, k = (_rotated(by_head(layer(x)), *turns) for layer in (self.q_proj, self.k_proj))
        scores = op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) * self.size**-0.5
        mixed = op.matmul(op.softmax(scores + hidden, -1), by_head(self.v_proj(x)))
        return self.o_proj(op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), (rows, length, width)))


def _rotated(x: nn.Tensor, cosines: nn.Tensor, sines: nn.Tensor) -> Any:
    """Heads whose two halves are the parts of numbers that are turned by their positions."""
    first, second = op.split(x, 2, axis=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return op.concat(turned, dim=-1)


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: nn.Tensor) -> Any:
        return self.down_proj(op.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        self.input_layernorm, self.post_attention_layernorm = (
            nn.RMSNorm(width, -1, EPSILON, bias=False) for _ in range(2)
        )
        self.self_attn, self.mlp = Attention(width, heads), Perceptron(width, inner)

    def forward(self, x: nn.Tensor, turns: tuple[nn.Tensor, nn.Tensor], hidden: nn.Tensor) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), turns, hidden)
        return x + self.mlp(self.post_attention_layernorm(x))


class Layers(nn.Module):
    def __init__(self, words: int, width: int, heads: int, inner: int, layers: int) -> None:
        self.embed_tokens = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width, heads, inner) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, -1, EPSILON, bias=False)


class Llama(nn.Module):
    """The scores of the token after each of `ids`, (rows * length, words)."""

    def __init__(self, words: int, width: int, heads: int, inner: int, layers: int) -> None:
        self.words = words
        self.model = Layers(words, width, heads, inner, layers)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(
        self, ids: nn.Tensor, cosines: nn.Tensor, sines: nn.Tensor, hidden: nn.Tensor
    ) -> Any:
        rows, length = ids.shape
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, (cosines, sines), hidden)
        return op.reshape(self.lm_head(self.model.norm(x)), (rows * length, self.words))


def _places(length: int, size: int) -> tuple[Any, Any, Any]:
    """How far each position turns, and -1e9 where a token would see a later one."""
    angles = np.arange(length)[:, None] * BASE ** (-np.arange(0, size, 2) / size)
    seen = np.tri(length, dtype=bool)
    found = np.cos(angles), np.sin(angles), np.where(seen, 0, -1e9)
    return tuple(x.astype("float32") for x in found)  # type: ignore[return-value]


# --- training


def train(tokens: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The weights after some minutes, by their names."""
    sizes = options.words, options.width, options.heads, options.inner, options.layers
    rows, length, size = options.batch, options.window, options.width // options.heads
    exported, parameters = Llama(*sizes).export_tvm(
        {
            "forward": {
                "ids": spec.Tensor([rows, length], "int32"),
                "cosines": spec.Tensor([length, size // 2], "float32"),
                "sines": spec.Tensor([length, size // 2], "float32"),
                "hidden": spec.Tensor([length, length], "float32"),
            }
        }
    )
    predictions = R.Tensor((rows * length, options.words), "float32")
    targets = R.Tensor((rows * length,), "int64")
    optimizer = Adam(options.rate)
    module = SetupTrainer(CrossEntropyLoss(), optimizer, [predictions, targets])(exported)
    trainer = Trainer(module, relaxpy.compile(module))
    rng = np.random.default_rng(0)
    trainer.load_params(
        {
            name: np.ones(p.shape, "float32")
            if len(p.shape) == 1
            else rng.normal(0, 0.02, p.shape).astype("float32")
            for name, p in parameters
        }
    )
    count = sum(math.prod(map(int, p.shape)) for _, p in parameters)
    print(f"{count / 1e6:.1f} M parameters, {len(tokens) / 1e6:.2f} M tokens", flush=True)
    places, begin, step = _places(length, size), time.monotonic(), 0
    mean, took, told = math.log(options.words), 0.0, 10.0
    while took < options.minutes * 60 and step < options.steps:
        starts = rng.integers(0, len(tokens) - length, rows)
        read = np.stack([tokens[start : start + length + 1] for start in starts])
        inputs = [np.ascontiguousarray(read[:, :-1]), *places]
        loss = trainer.update(inputs, read[:, 1:].reshape(-1).astype("int64"))
        mean += 0.05 * (float(loss) - mean)
        step += 1
        took = time.monotonic() - begin
        if took > min(told, options.minutes * 60) or step == options.steps:
            told += 10
            rate = step * rows * length / took
            print(f"{took:5.0f} s: step {step}, loss {mean:.3f}, {rate:.0f} tokens/s", flush=True)
    return dict(trainer.export_params())


def write(folder: Path, weights: dict[str, Any], own: Tokenizer, options: Any) -> None:
    """Write a folder as Hugging Face has it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: np.ascontiguousarray(value) for name, value in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": options.width,
        "intermediate_size": options.inner,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.heads,
        "head_dim": options.width // options.heads,
        "vocab_size": options.words,
        "max_position_embeddings": options.window,
        "rms_norm_eps": EPSILON,
        "rope_theta": BASE,
        "tie_word_embeddings": False,
        "bos_token_id": own.token_to_id(BEGIN),
        "eos_token_id": own.token_to_id(END),
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    own.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))


def measure(folder: Path, text: str, options: Any) -> None:
    """Print the perplexity of the model by the width of its weights."""
    first = relaxpy.llm.load(folder, sequences=1)
    print("weights    perplexity        same best token  mean KL divergence")
    for width in WIDTHS:
        lm = relaxpy.llm.load(folder, sequences=1, quantize=width) if width else first
        found = lm.perplexity(text, context=options.window, chunks=options.chunks, against=first)
        print(
            f"{width or 'float32':10} {found.value:8.3f} ± {found.error:6.3f} "
            f"{found.same_best:15.2%} {found.divergence:19.6f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the model is written")
    numbers = {
        "words": (4096, "the number of tokens that the model knows"),
        "width": (256, "the numbers of a token in each layer"),
        "heads": (8, "of attention"),
        "inner": (768, "the numbers inside of a perceptron"),
        "layers": (9, "of attention and a perceptron each"),
        "window": (256, "the tokens of a text that is learnt at a time"),
        "batch": (8, "the texts of a step"),
    }
    for name, (value, text) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=text)
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument("--minutes", type=float, default=10, help="of training")
    parser.add_argument("--steps", type=int, default=10**9, help="the most steps of training")
    parser.add_argument("--documents", type=int, help="read only so many modules and pages")
    parser.add_argument("--chunks", type=int, help="measure only so many windows")
    options = parser.parse_args()
    texts = documents(options.documents)
    kept = texts[9::10]
    known = [text for number, text in enumerate(texts) if number % 10 != 9]
    own = tokenizer_of(known, options.words)
    options.words = own.get_vocab_size()  # short texts have fewer
    end = own.token_to_id(END)
    tokens = np.array([t for text in known for t in [*own.encode(text).ids, end]], "int32")
    weights = train(tokens, options)
    write(options.folder, weights, own, options)
    text = "\n\n".join(kept)
    (options.folder / "kept.txt").write_text(text, encoding="utf-8")
    measure(options.folder, text, options)


if __name__ == "__main__":
    main()
