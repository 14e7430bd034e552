"""Adapters (LoRA): low-rank updates of linear layers, for the requests that name them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from os.path import exists
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.plugins.llm.config import Config, ModelError, is_number, read_table
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.llm.gguf import joined, names_in_gguf
from relaxpy.plugins.llm.weight_names import names_of, sources_of
from relaxpy.plugins.nn.modules import Linear
from relaxpy.plugins.nn.quantization import Mutator, QuantizedLinear
from relaxpy.plugins.weights.files import Header, Weights, open_weights, read_header
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache
from relaxpy.support.dataclass import dataclass

_NUMBERS: Final = itertools.count()
PLAIN: Final = "plain"
"""The name of a layer in the one that adapts it."""
_REFUSED: Final = (
    "use_dora",
    "lora_bias",
    "modules_to_save",
    "layer_replication",
    "megatron_config",
)
"""Entries of adapters that are more than low-rank updates of linear layers."""
_PLAIN_STARTS: Final = (True, False, None, "gaussian", "orthogonal", "eva")
"""The values of `init_lora_weights` that leave the weights of the model unchanged."""


Kinds: TypeAlias = frozenset[tuple[str, int]]
"""The adapted layers of each block, and the number of layers that are fused into each."""


@dataclass(frozen=True)
class Factors:
    """The two factors of what is added to the weight of a layer.

    Shapes:
        down  (parts, rank, columns)
        up    (parts, rank, rows)
    """

    down: Any
    up: Any


class Adapter:
    """The factors of an adapter by the layers of a model; no other adapter is equal to it."""

    def __init__(self, factors: Mapping[str, Factors], rank: int) -> None:
        self.factors, self.rank = factors, rank
        self.number = next(_NUMBERS)

    @property
    def nbytes(self) -> int:
        """The bytes of its factors."""
        return sum(f.down.nbytes + f.up.nbytes for f in self.factors.values())


def adapters_memory(adapters: Collection[Adapter]) -> int:
    """The bytes of the factors of a model's adapters; those that run together are copies."""
    return sum(adapter.nbytes for adapter in adapters) * min(2, len(adapters))


class AdapterSet:
    """Adapters that run together in one program: each has some of the ranks."""

    def __init__(self, adapters: Sequence[Adapter]) -> None:
        first, self._start = 0, {}
        for adapter in adapters:
            self._start[adapter.number] = first, first + adapter.rank
            first += adapter.rank
        self.rank = first
        self.kinds: Kinds = frozenset(
            (kind_of(layer), len(f.down)) for one in adapters for layer, f in one.factors.items()
        )
        self._factors = [adapter.factors for adapter in adapters]
        self._ranks = [adapter.rank for adapter in adapters]

    def has(self, adapters: Iterable[Adapter]) -> bool:
        """True if all of these are in it."""
        return all(adapter.number in self._start for adapter in adapters)

    def values(self, layers: Mapping[str, tuple[int, int, int]], dtype: str) -> dict[str, Any]:
        """The parameters of layers, whose parts, columns and rows are given."""
        found: dict[str, Any] = {}
        for layer, (parts, columns, rows) in layers.items():
            own = [
                factors[layer]
                if layer in factors
                else Factors(
                    np.zeros((parts, rank, columns), dtype), np.zeros((parts, rank, rows), dtype)
                )
                for factors, rank in zip(self._factors, self._ranks, strict=True)
            ]
            whole = own[0]
            if len(own) > 1:
                downs, ups = zip(*((f.down, f.up) for f in own), strict=True)
                whole = Factors(np.concatenate(downs, axis=1), np.concatenate(ups, axis=1))
            found[f"{layer}.lora_a"] = whole.down.reshape(-1, columns)
            found[f"{layer}.lora_b"] = whole.up.reshape(-1, rows)
        return found

    def mask(self, adapters: Sequence[Adapter | None], counts: Sequence[int], dtype: str) -> Any:
        """1 for the ranks of the adapter of each row, and 0 for others: (rows, rank)."""
        rows = np.zeros((len(adapters), self.rank), dtype)
        for row, adapter in zip(rows, adapters, strict=True):
            if adapter is not None:
                row[slice(*self._start[adapter.number])] = 1
        return np.repeat(rows, counts, axis=0)


def kind_of(layer: str) -> str:
    """The path of a layer in its block."""
    return re.sub(r"^blocks\.\d+\.", "", layer)


def linear_layers(decoder: Any) -> dict[str, Any]:
    """The linear layers of a decoder, by their paths."""
    found: dict[str, Any] = {}

    class Finder(Mutator):
        @override
        def visit_module(self, name: str, node: Any) -> Any:
            if isinstance(node, (Linear, QuantizedLinear)):
                found[name] = node
                return node
            return self.visit(name, node)

    Finder().visit("", decoder)
    return found


def parts_of(config: Config, layer: str, count: int, rows: int) -> list[int]:
    """The rows of each of the layers that are fused into one."""
    if count == 3 and layer.endswith("attention.qkv"):
        return [n * config.head_dim for n in (config.heads, config.kv_heads, config.kv_heads)]
    return [rows // count] * count


# --- files


@np.errstate(over="ignore", invalid="ignore")  # what does not fit the datatype is an error below
def read_adapter(path: Path, config: Config, dtype: str) -> Adapter:
    """An adapter of PEFT (a folder with adapter_config.json), or a GGUF file of one.

    Errors:
        FileNotFoundError: there is no such file or folder.
        ModelError: it is not an adapter, or not one of this model.
        FrontendError: its tensors cannot be read.
    """
    if not exists(path):
        raise FileNotFoundError(f"there is no adapter {str(path)!r:.300}")
    names, pairs, scale = (_of_folder if path.is_dir() else _of_gguf)(path, config)
    factors: dict[str, Factors] = {}
    used: set[str] = set()
    rank = max((len(a) for a, _ in pairs.values()), default=0)
    for layer, node in linear_layers(Decoder(config)).items():
        parts, join = names.get(f"{layer}.weight", ([], None))
        if not any(part in pairs for part in parts):
            continue
        used |= {*parts}
        rows, columns = int(node.out_features), int(node.in_features)
        sizes = parts_of(config, layer, len(parts), rows)
        down = np.zeros((len(parts), rank, columns), dtype)
        ups = []
        for k, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            up = np.zeros((size, len(parts), rank), np.float32)
            if part in pairs:
                a, b = pairs[part]
                if a.shape[1:] != (columns,) or b.shape != (size, len(a)):
                    raise ModelError(
                        f"{path} does not fit this model: {part} has the factors {a.shape} and "
                        f"{b.shape}, expected (rank, {columns}) and ({size}, rank)"
                    )
                down[k, : len(a)] = a
                up[:, k, : len(a)] = b * scale(part, len(a))
            ups.append(up)
        whole = np.moveaxis(join(*ups), 0, 2)
        factors[layer] = Factors(down, np.ascontiguousarray(whole, dtype))
        if not all(np.isfinite(array).all() for array in (down, factors[layer].up)):
            raise ModelError(f"{path} has infinities or NaN in the factors of {layer}")
    if unknown := sorted(pairs.keys() - used):
        listed = ", ".join(unknown[:5])
        raise ModelError(f"{path} adapts what is not a linear layer of this model: {listed}")
    if not factors:
        raise ModelError(f"{path} has no factors (lora_A and lora_B)")
    return Adapter(factors, rank)


def _of_folder(path: Path, config: Config) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """For each weight its tensors and how they are joined; their factors; and their scale."""
    file, weights = path / "adapter_config.json", path / "adapter_model.safetensors"
    raw = read_table(file, "configuration of an adapter")
    if raw.get("peft_type", "LORA") != "LORA":
        raise ModelError(f"{file} has the peft_type {raw['peft_type']!r:.40}, expected LORA")
    for name in _REFUSED:
        if raw.get(name):
            raise ModelError(f"{file} has {name}, which is not supported")
    if raw.get("bias", "none") != "none":
        raise ModelError(f"{file} has biases, which are not supported")
    if (start := raw.get("init_lora_weights")) not in _PLAIN_STARTS:
        raise ModelError(
            f"{file} has init_lora_weights {start!r:.40}, which changes the weights of the model",
            hint="PEFT converts it: save_pretrained(path_initial_model_for_weight_conversion=...)",
        )
    alpha, patterns = raw.get("lora_alpha", 8), raw.get("alpha_pattern") or {}
    if not isinstance(patterns, Mapping) or not all(map(is_number, [alpha, *patterns.values()])):
        raise ModelError(f"{file} has no numbers as lora_alpha and alpha_pattern")
    if unnamed := [key for key in patterns if not re.fullmatch(r"[\w.]+", key)]:
        raise ModelError(
            f"{file} has the alpha_pattern {unnamed[0]!r:.50}, expected a layer's name"
        )
    root = math.sqrt if raw.get("use_rslora") else float

    def scale(part: str, rank: int) -> float:
        stem = part.removesuffix(".weight")
        own = (a for key, a in patterns.items() if f".{stem}".endswith(f".{key}"))
        return float(next(own, alpha)) / root(rank)

    pairs: dict[str, list[Any]] = {}
    for name, array in open_weights(weights).items():
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])(\.default)?\.weight", name)
        if found is None:
            raise ModelError(f"{weights} has the tensor {name:.100}, expected factors of layers")
        stem = found[1]
        pairs.setdefault(f"{stem}.weight", [None, None])["AB".index(found[2])] = array
    listed = names_of(config, [*pairs, *_embedding_of(pairs)])
    names = {ours: (sources_of(theirs), joined) for ours, theirs in listed.items()}
    return names, _complete(pairs, weights), scale


def _embedding_of(names: Sequence[str] | Mapping[str, Any]) -> Iterator[str]:
    """The name that the embedding has beside these, which tells how all names begin."""
    for name in names:
        if found := re.match(r"(.*?)(layers|h)\.\d+\.", name):
            yield f"{found[1]}{'embed_tokens' if found[2] == 'layers' else 'wte'}.weight"
            return


def _of_gguf(path: Path, config: Config) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """The same of a file that llama.cpp's converter of adapters has written."""
    header = read_header(path)
    kinds = [header.metadata.get(name) for name in ("general.type", "adapter.type")]
    if kinds != ["adapter", "lora"]:
        raise ModelError(f"{path} has the types {kinds!r:.60}, not those of an adapter")
    alpha = header.metadata.get("adapter.lora.alpha", 0.0)
    if not is_number(alpha):
        raise ModelError(f"{path} has no number as adapter.lora.alpha")
    entries = {name: tensor.entry() for name, tensor in header.tensors.items()}
    pairs: dict[str, list[Any]] = {}
    stems: dict[str, Any] = {}
    for name, array in Weights(path, entries).items():
        stem, _, kind = name.rpartition(".")
        if kind not in ("lora_a", "lora_b"):
            raise ModelError(f"{path} has the tensor {name:.100}, expected factors of layers")
        pairs.setdefault(stem, [None, None])[kind == "lora_b"] = array
        stems[stem] = header.tensors[name]
    names, _ = names_in_gguf(config, Header(header.metadata, stems))
    listed = {ours: theirs for ours, theirs in names.items() if isinstance(theirs, tuple)}
    return listed, _complete(pairs, path), lambda _, rank: alpha / rank if alpha else 1.0


def _complete(pairs: Mapping[str, Sequence[Any]], path: Path) -> dict[str, Any]:
    """Pairs of matrices. Errors: ModelError if one lacks its other factor."""
    found = {}
    for name, pair in pairs.items():
        if any(factor is None or factor.ndim != 2 or not factor.size for factor in pair):
            raise ModelError(f"{path} has not two matrices as the factors of {name:.100}")
        found[name] = tuple(np.asarray(factor, np.float32) for factor in pair)
    return found


# --- programs


class _Adapted(nn.Module):
    """A linear layer, and its update for the rows whose adapters have one."""

    def __init__(self, layer: Any, parts: int, dtype: str, mask: dict[str, nn.Tensor]) -> None:
        self.plain, self.parts, self._mask = layer, parts, mask
        self.lora_a = nn.Parameter((f"rank{parts}", layer.in_features), dtype)
        self.lora_b = nn.Parameter((f"rank{parts}", layer.out_features), dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        mask = self._mask[_MASK]
        rows, rank = mask.shape
        low = op.matmul(x, op.permute_dims(self.lora_a))
        low = op.reshape(low, [rows, self.parts, rank]) * op.reshape(mask, [rows, 1, rank])
        # Sizes are variables of each parameter, which are equal.
        low = op.reshape(low, [rows, self.lora_b.shape[0]])
        plain: nn.Tensor = self.plain(x)
        return plain + op.matmul(low, self.lora_b)


_MASK: Final = "mask"


class _WithAdapters(Mutator):
    """Replaces the layers of some kinds."""

    def __init__(self, layers: Mapping[str, Any], dtype: str, mask: dict[str, nn.Tensor]) -> None:
        self.layers, self.dtype, self.mask = layers, dtype, mask

    @override
    def visit_module(self, name: str, node: Any) -> Any:
        if name not in self.layers:
            return self.visit(name, node)
        return _Adapted(node, self.layers[name][0], self.dtype, self.mask)


class AdaptedDecoder(nn.Module):
    """A decoder whose methods take the mask of rows and ranks as of `AdapterSet.mask`."""

    def __init__(self, decoder: Any, kinds: Kinds, dtype: str) -> None:
        self._mask: dict[str, nn.Tensor] = {}
        self.dtype, parts = dtype, dict(kinds)
        self.layers = {
            layer: (parts[kind_of(layer)], int(node.in_features), int(node.out_features))
            for layer, node in linear_layers(decoder).items()
            if kind_of(layer) in parts
        }
        """The adapted layers: their parts, columns and rows."""
        self.decoder = _WithAdapters(self.layers, dtype, self._mask).visit("", decoder)

    def decode(self, ids: nn.Tensor, mask: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """As of `Decoder`."""
        self._mask[_MASK] = mask
        found: nn.Tensor = self.decoder.decode(ids, cache)
        return found

    def forward(
        self, ids: nn.Tensor, rows: nn.Tensor, mask: nn.Tensor, cache: PagedKVCache
    ) -> nn.Tensor:
        """As of `Decoder`."""
        self._mask[_MASK] = mask
        x = self.decoder.hidden(ids, cache)
        self._mask[_MASK] = op.take(mask, rows, axis=0)
        found: nn.Tensor = self.decoder.scores(op.take(x, rows, axis=0))
        return found

    def states(self, ids: nn.Tensor, mask: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """As of `Decoder`."""
        self._mask[_MASK] = mask
        found: nn.Tensor = self.decoder.states(ids, cache)
        return found

    def names(self) -> list[str]:
        """The names that the values of the parameters have, in their order."""
        paths = [path for path, _ in self.named_parameters()]
        return [path.removeprefix("decoder.").replace(f".{PLAIN}.", ".") for path in paths]

    def specification(self, *methods: str) -> dict[str, Any]:
        """The specification for `export_tvm`."""
        found: dict[str, Any] = self.decoder.specification(*methods)
        for method in found.values():
            [rows] = method["ids"].shape
            cache, plain = method.pop("cache"), method.pop("$")
            mask: Any = spec.Tensor([rows, "rank"], self.dtype)
            method |= {"mask": mask, "cache": cache, "$": plain}
        return found
