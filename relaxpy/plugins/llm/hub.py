"""Where a model is: a folder, a file, or a name of the hub of Hugging Face, in its cache."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relaxpy.plugins.llm.config import ModelError

_WORD: Final = r"(?![.-])(?!\S*(?:--|\.\.))[\w.-]{1,96}(?<![.-])"
"""A name of an owner or of a model, never a path."""
_NAME: Final = re.compile(rf"({_WORD})/({_WORD})(?::([\w.-]+))?", re.ASCII)
_READ: Final = ("*.json", "*.safetensors", "*.jinja")
"""The files of a model that are read, and no programs."""
_LATER: Final = re.compile(r"-(?!00001-)\d{5}-of-\d{5}$")


def located(model: str | Path, *, download: bool = False) -> tuple[Path, str | None]:
    """The folder or file of a model, and its name if that is one of the hub.

    A name is OWNER/NAME, or OWNER/NAME:PART for that of its GGUF files whose name has this part.
    It is looked up in the cache of huggingface_hub, and with `download` fetched.

    Errors:
        FileNotFoundError: there is no such file or folder, and no such name in the cache.
        ModelError: it has several files, or cannot be fetched.
    """
    path, given = Path(model), str(model)
    if os.path.exists(path):  # False also for what no file can be named
        return path, None
    named = _NAME.fullmatch(given) if isinstance(model, str) else None
    if named is None:
        raise FileNotFoundError(
            f"there is no folder or file {given!r:.300}; "
            "`hf download OWNER/MODEL --local-dir FOLDER` fetches a model"
        )
    owner, name, part = named.groups()
    folder = _fetched(f"{owner}/{name}", part) if download else _snapshot(owner, name)
    if folder is None:
        raise FileNotFoundError(
            f"there is no folder or file {given!r}, and no such model in {_cache()}; "
            f"--download (in Python download=True) or `hf download {owner}/{name}` fetches it"
        )
    return _chosen(folder, given, part), given


def _cache() -> Path:
    """The folder in which huggingface_hub keeps what it has fetched."""
    own = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if own:
        return Path(own).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    return Path(home).expanduser() / "hub"


def _snapshot(owner: str, name: str) -> Path | None:
    """The files of the main branch of a model that were fetched last."""
    folder = _cache() / f"models--{owner}--{name}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    found = folder / "snapshots" / commit
    return found if re.fullmatch(r"\w+", commit) and found.is_dir() else None


def _fetched(name: str, part: str | None) -> Path:
    """The files of a model of the hub, fetched with a line of their progress."""
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise ModelError(
            "the package huggingface_hub fetches models, which is not installed",
            hint="python -m pip install huggingface_hub",
        ) from None
    patterns: Sequence[str] = _READ if part is None else [f"*{part}*.gguf"]
    try:
        return Path(snapshot_download(name, allow_patterns=[*patterns]))
    except (OSError, ValueError) as error:  # of the network, or the hub
        raise ModelError(f"{name} cannot be fetched: {error}") from error


def _chosen(folder: Path, given: str, part: str | None) -> Path:
    """The folder of a model, or one of its GGUF files."""
    if part is None and (folder / "config.json").exists():
        return folder
    files = sorted(path for path in folder.glob("*.gguf") if not _LATER.search(path.stem))
    fitting = [path for path in files if part is None or part.lower() in path.stem.lower()]
    if len(fitting) == 1:
        return fitting[0]
    name, listed = given.partition(":")[0], ", ".join(path.name for path in files[:20])
    if not files:
        raise ModelError(
            f"{given} has no config.json, and no GGUF file, in {folder}",
            hint=f"{name}:PART is a GGUF file that has PART in its name, also for --download",
        )
    found = "no file" if not fitting else "several files"
    raise ModelError(f"{given} is {found} of {listed}", hint=f"write {name}:PART of a name")


def models_at(given: str, *, download: bool = False) -> list[tuple[str, Path]]:
    """The models of a folder of models with their names, or the one that is there.

    Errors:
        FileNotFoundError, ModelError: there is none.
    """
    path, name = located(given, download=download)
    if path.is_file() or (path / "config.json").exists():
        return [(name or _name_of(path), path)]
    found = [
        own
        for own in sorted(path.iterdir())
        if (own / "config.json").exists()
        or (own.suffix == ".gguf" and own.is_file() and not _LATER.search(own.stem))
    ]
    if not found:
        raise ModelError(
            f"{str(path)!r} has no config.json, and no folders and GGUF files of models"
        )
    return [(_name_of(own), own) for own in found]


def _name_of(path: Path) -> str:
    """The name of a model by its folder or file."""
    return re.sub(r"-00001-of-\d{5}$", "", path.stem) if path.is_file() else path.resolve().name
