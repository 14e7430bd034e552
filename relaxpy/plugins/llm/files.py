"""The files of a model: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relaxpy.plugins.llm.config import Config, ModelError, config_of, read_table, read_text
from relaxpy.plugins.llm.gguf import config_of_gguf, names_in_gguf, read_parts, widened
from relaxpy.plugins.llm.hub import located
from relaxpy.plugins.llm.packed import Packed
from relaxpy.plugins.llm.tokens import Metadata, Tokenizer, tokenizer_of_file, tokenizer_of_metadata
from relaxpy.plugins.llm.weight_names import names_of
from relaxpy.plugins.weights.files import Weights, open_weights
from relaxpy.support.dataclass import dataclass, replace

_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
"""Tokens that end a turn wherever a model has them."""


@dataclass(frozen=True)
class ModelFiles:
    """The contents of the files of a model; its tensors are read when they are needed."""

    name: str
    config: Config
    weights: Mapping[str, Any]
    names: Mapping[str, Any]
    """For each parameter its tensors."""
    packed: Packed
    tokenizer: Callable[[], Tokenizer]
    """Reads the tokenizer. Errors: ModelError if there is none, or its package is missing."""
    template: str | None
    note: str | None = None
    """A warning for the user."""


def open_model(model: str | Path, *, download: bool = False) -> ModelFiles:
    """The files of a model: a Hugging Face folder, a GGUF file, or a name of the hub.

    Errors:
        FileNotFoundError: there is no such file or folder.
        ModelError: it is not a model, or of an unknown architecture.
        FrontendError (also ValueError): weights cannot be read.
    """
    path, name = located(model, download=download)
    if path.is_dir():
        found = _open_folder(path)
    elif path.suffix == ".gguf":
        found = _open_gguf(path)
    else:
        raise ModelError(f"{str(model)!r} is neither a folder of a model nor a GGUF file (.gguf)")
    return found if name is None else replace(found, name=name)


def ends_of_turns(config: Config, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The tokens that end a text: those of the files, and those that end turns."""
    known = (*_ENDS, tokenizer.special.get("eos_token", ""))
    return tuple({*config.stop, *tokenizer.ids_of(known)})


def _open_folder(folder: Path) -> ModelFiles:
    path = folder / "config.json"
    config = config_of(read_table(path), str(path))
    generation = folder / "generation_config.json"
    if generation.exists():
        stop = read_table(generation, "configuration of generation").get("eos_token_id")
        listed = stop if isinstance(stop, list) else [stop]
        ints = [token for token in listed if type(token) is int]
        config = replace(config, stop=tuple({*config.stop, *ints}))
    described = _tokenizer_config(folder)
    weights = open_weights(folder)
    note = None
    if config.unknown:
        names = ", ".join(f"{name:.60}" for name in config.unknown[:20])
        note = f"{path} has entries that are not known and ignored: {names}"
    return ModelFiles(
        folder.resolve().name,
        config,
        weights,
        names_of(config, weights),
        {},
        lambda: folder_tokenizer(folder),
        _template(folder, described),
        note,
    )


def folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder. Errors: ModelError if there is none, or its package is missing."""
    own = folder / "tokenizer.json"
    if not own.exists():
        raise ModelError(f"there is no {own}, which has the tokenizer of the model")
    return tokenizer_of_file(own, _special(_tokenizer_config(folder)))


def _tokenizer_config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_table(path, "configuration of a tokenizer") if path.exists() else {}


def _special(described: Mapping[str, Any]) -> dict[str, str]:
    """The texts of tokens by their roles."""
    found = {}
    for role, value in described.items():
        text = value.get("content") if isinstance(value, Mapping) else value
        if role.endswith("_token") and isinstance(text, str):
            found[role] = text
    return found


def _template(folder: Path, described: Mapping[str, Any]) -> str | None:
    """The chat template: that of a file of its own, or the default of the configuration."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_text(path, "template")
    found = described.get("chat_template")
    if isinstance(found, list):  # several by names
        named = [entry for entry in found if isinstance(entry, Mapping)]
        found = next((e.get("template") for e in named if e.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _open_gguf(path: Path) -> ModelFiles:
    header, name = read_parts(path)
    config = config_of_gguf(header, str(path))
    names, packed = names_in_gguf(config, header)
    weights = Weights(path, {name: tensor.entry() for name, tensor in header.tensors.items()})
    template = header.metadata.get("tokenizer.chat_template")
    return ModelFiles(
        name,
        config,
        weights,
        names,
        packed,
        lambda: tokenizer_of_metadata(Metadata(header.metadata, str(path))),
        template if isinstance(template, str) else None,
        widened(header, names, packed),
    )
