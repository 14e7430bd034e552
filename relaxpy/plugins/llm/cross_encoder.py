"""Cross-encoders: encoders that read a query and a document together, and give them a score."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.errors import unexpected
from relaxpy.exec.api.compile import compile_made
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.group_quantization import as_quantization
from relaxpy.plugins.llm.config import (
    ENCODERS,
    ContextError,
    EncoderConfig,
    ModelError,
    ParameterError,
    encoder_config_of,
    read_table,
)
from relaxpy.plugins.llm.decoders import activate
from relaxpy.plugins.llm.files import folder_tokenizer
from relaxpy.plugins.llm.hub import located
from relaxpy.plugins.llm.tokens import Tokenizer
from relaxpy.plugins.nn.core import get_default_dtype
from relaxpy.plugins.nn.quantization import quantize_model, rounded
from relaxpy.plugins.weights.files import open_weights
from relaxpy.plugins.weights.load import Values
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused


class Layer(nn.Module):
    """Attention and two products, each added to what comes in and normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        self.config, width = config, config.width
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, config.eps)
        self.up, self.down = nn.Linear(width, config.hidden), nn.Linear(config.hidden, width)
        self.norm = nn.LayerNorm(width, config.eps)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """The states after the layer: x and result (n, width)."""
        rows, heads = x.shape[0], self.config.heads
        parts = op.split(self.qkv(x), 3, axis=-1)
        q, k, v = (op.reshape(part, (1, rows, heads, self.config.width // heads)) for part in parts)
        mixed = op.scaled_dot_product_attention(q, k, v)
        x = self.attention_norm(x + self.out(op.reshape(mixed, (rows, self.config.width))))
        hidden = activate(self.up(x), self.config.activation)
        found: nn.Tensor = self.norm(x + self.down(hidden))
        return found


class Encoder(nn.Module):
    """The score of a text: layers that see all of it, and two products of its first token."""

    def __init__(self, config: EncoderConfig) -> None:
        self.config, width = config, config.width
        self.words = nn.Embedding(config.vocabulary, width)
        self.places = nn.Embedding(config.first + config.positions, width)
        self.kinds = nn.Embedding(config.kinds, width)
        self.norm = nn.LayerNorm(width, config.eps)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.pooled, self.head = nn.Linear(width, width), nn.Linear(width, 1)

    def score(
        self, ids: nn.Tensor, kinds: nn.Tensor, places: nn.Tensor, first: nn.Tensor
    ) -> nn.Tensor:
        """The score: ids, kinds and places (n,), first (1,), result (1, 1)."""
        x = self.norm(self.words(ids) + self.places(places) + self.kinds(kinds))
        for layer in self.layers:
            x = layer(x)
        row = op.take(x, first, axis=0)
        return op.astype(self.head(op.tanh(self.pooled(row))), "float32")

    def specification(self) -> dict[str, Any]:
        """The specification for `export_tvm`."""
        rows = spec.Tensor(["n"], "int32")
        inputs = {"ids": rows, "kinds": rows, "places": rows, "first": spec.Tensor([1], "int32")}
        return {"score": {**inputs, "$": {"param_mode": "packed", "effect_mode": "none"}}}


def _names_of(config: EncoderConfig) -> dict[str, Any]:
    """For each parameter its tensors, as Hugging Face names them."""
    prefix = "bert" if config.family == "bert" else "roberta"
    stems: dict[str, Any] = {
        "words": f"{prefix}.embeddings.word_embeddings",
        "places": f"{prefix}.embeddings.position_embeddings",
        "kinds": f"{prefix}.embeddings.token_type_embeddings",
        "norm": f"{prefix}.embeddings.LayerNorm",
        "pooled": "bert.pooler.dense" if prefix == "bert" else "classifier.dense",
        "head": "classifier" if prefix == "bert" else "classifier.out_proj",
    }
    for layer in range(config.layers):
        ours, theirs = f"layers.{layer}", f"{prefix}.encoder.layer.{layer}"
        attention = f"{theirs}.attention"
        stems |= {
            f"{ours}.qkv": [f"{attention}.self.{part}" for part in ("query", "key", "value")],
            f"{ours}.out": f"{attention}.output.dense",
            f"{ours}.attention_norm": f"{attention}.output.LayerNorm",
            f"{ours}.up": f"{theirs}.intermediate.dense",
            f"{ours}.down": f"{theirs}.output.dense",
            f"{ours}.norm": f"{theirs}.output.LayerNorm",
        }
    return {
        f"{own}.{kind}": [f"{stem}.{kind}" for stem in stems_of]
        for own, given in stems.items()
        for stems_of in [[given] if isinstance(given, str) else given]
        for kind in ("weight", "bias")
    }


_UNUSED: Final = ["*.position_ids", "roberta.pooler.*", "cls.*", "lm_head.*"]
"""Other tensors of files."""


def is_cross_encoder(path: Path) -> bool:
    """True for the folder of an encoder."""
    with suppress(ModelError):
        return read_table(path / "config.json").get("model_type") in ENCODERS
    return False


class CrossEncoder:
    """A model that scores documents for a query: BERT, RoBERTa or XLM-RoBERTa with one label.

    `model` is its folder, as Hugging Face has it, or OWNER/NAME in the cache of huggingface_hub;
    with `download` it is fetched. `quantize` and `target` are those of `relaxpy.llm.load`. Several
    threads may use it.

    Errors:
        FileNotFoundError: there is no such folder.
        ModelError (also ValueError): it is not such a model.
        FrontendError (also ValueError): weights cannot be read, or do not fit.
    """

    adapters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @user_facing
    @gc_paused
    def __init__(
        self,
        model: str | Path,
        *,
        quantize: str | None = None,
        target: str | None = None,
        download: bool = False,
        name: str | None = None,
    ) -> None:
        if not isinstance(model, (str, Path)):
            raise unexpected(model, "expected the path of a model")
        path, given = located(model, download=download)
        self.name = name or given or path.resolve().name
        self.config, encoder = _encoder_of(path, quantize)
        self._folder, self.quantization = path, quantize
        self.turn = RLock()
        values: Any = Values(
            open_weights(path), Encoder(self.config).state_dict(), _names_of(self.config), _UNUSED
        )
        found = values.read(None) if quantize is None else rounded(encoder, values, None)
        self._params = tuple(found[name] for name, _ in encoder.named_parameters())
        form = quantize and as_quantization(quantize)
        self._program = compile_made(
            lambda: encoder.export_tvm(encoder.specification())[0],
            repr((self.config, get_default_dtype(), form)),
            target=target,
        )

    @property
    def memory(self) -> int:
        """The bytes of weights."""
        return sum(value.nbytes for value in self._params)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Errors: ModelError if the model has none, or its package is missing."""
        return folder_tokenizer(self._folder)

    @user_facing
    def scores(self, query: str, documents: Sequence[str]) -> Any:
        """How well each document fits a query, as the model scores it: a larger number is better.

        A server answers with the logistic function of them, which is between 0 and 1.

        Shapes:
            result  (documents,), float32

        Errors:
            ModelError: the query or a document is not a text, or they are too long together
                (ContextError).
        """
        pairs = self.pairs(query, documents)
        return np.array([self.score(pair) for pair in pairs], np.float32)

    def pairs(self, query: str, documents: Sequence[str]) -> list[Any]:
        """The inputs of `score` for the query with each document. Errors: as of `scores`."""
        if not isinstance(query, str):
            raise ParameterError.of("query", query, "a text")
        is_listed = isinstance(documents, Sequence) and not isinstance(documents, (str, bytes))
        if not is_listed or not all(isinstance(text, str) for text in documents):
            raise ParameterError.of("documents", documents, "texts")
        most, longest = self.config.positions, max(map(len, documents), default=0)
        if self.tokenizer.is_too_long(len(query) + longest, most):
            raise self._too_long(f"{len(query) + longest} characters")
        found = self.tokenizer.pairs([(query, document) for document in documents])
        if (longest := max(map(len, found), default=0)) > most:
            raise self._too_long(f"{longest} tokens")
        return found

    def score(self, pair: Any) -> float:
        """The score of a pair of `pairs`."""
        ids, kinds = np.ascontiguousarray(pair.T)
        if ids.min() < 0 or ids.max() >= self.config.vocabulary:
            raise ModelError(f"{self.name} has a tokenizer with tokens that the model lacks")
        if self.config.family != "bert":  # which alone tells texts apart
            kinds = np.zeros_like(kinds)
        places = np.arange(len(ids), dtype=np.int32) + self.config.first
        inputs = (ids, kinds, places, np.zeros(1, np.int32), self._params)
        return float(self._program["score"](*inputs)[0, 0])

    def _too_long(self, found: str) -> ContextError:
        return ContextError(
            f"a query and a document have {found} together: {self.name} reads at most "
            f"{self.config.positions} tokens"
        )

    @override
    def __repr__(self) -> str:
        config = self.config
        return (
            f"<cross-encoder {self.name}: {config.family}, {config.layers} layers of "
            f"{config.width}, {self._program.target}>"
        )


def memory_of_cross_encoder(path: Path, quantize: str | None = None) -> int:
    """The bytes of the weights of the model in a folder. Errors: as of `CrossEncoder`."""
    _, encoder = _encoder_of(path, quantize)
    own = [p for _, p in encoder.named_parameters()]
    return sum(int(np.prod([*map(int, p.shape)])) * DataType(p.dtype).numpy().itemsize for p in own)


def _encoder_of(path: Path, quantize: str | None) -> tuple[EncoderConfig, Any]:
    """The configuration of a folder, and the encoder with the layers that its weights need."""
    if not path.is_dir():
        raise ModelError(f"{str(path)!r} is no folder, which the model of a cross-encoder is")
    config = encoder_config_of(read_table(path / "config.json"), str(path / "config.json"))
    found: Any = Encoder(config)
    return config, found if quantize is None else quantize_model(found, quantize)
