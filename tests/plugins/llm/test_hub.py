"""Models by their names in the cache of huggingface_hub."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from relaxpy.llm import ModelError, load
from relaxpy.plugins.cli.main import main
from relaxpy.plugins.llm.hub import located, models_at

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def put(cache: Path, repository: str, *files: str) -> Path:
    """The folder of a snapshot with files, which are links, as that package makes them."""
    own = cache / f"models--{repository.replace('/', '--')}"
    snapshot = own / "snapshots" / COMMIT
    for folder in (snapshot, own / "blobs", own / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    (own / "refs" / "main").write_text(COMMIT)
    for number, name in enumerate(files):
        blob = own / "blobs" / f"{number:040}"
        blob.write_bytes(b"{}")
        (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / blob.name)
    return snapshot


def test_a_name_is_what_the_package_has_in_its_cache(cache: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    put(cache, "owner/name-1.5_x", "config.json", "model.safetensors")
    found, name = located("owner/name-1.5_x")
    wanted = hub.snapshot_download("owner/name-1.5_x", cache_dir=cache, local_files_only=True)
    assert (str(found), name) == (wanted, "owner/name-1.5_x")


def test_where_the_cache_is(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache, "owner/name", "config.json")
    for variable, value, place in (
        ("HUGGINGFACE_HUB_CACHE", "own", "own"),
        ("HF_HOME", "home", "home/hub"),
        ("XDG_CACHE_HOME", "caches", "caches/huggingface/hub"),
        ("HOME", "user", "user/.cache/huggingface/hub"),
    ):
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        monkeypatch.setenv(variable, str(tmp_path / value))
        with pytest.raises(FileNotFoundError, match=place):
            located("owner/name")
        shutil.copytree(cache, tmp_path / place, symlinks=True)
        assert located("owner/name")[0].is_relative_to(tmp_path / place)
        if variable != "HOME":
            monkeypatch.delenv(variable)


def test_a_model_is_loaded_and_named_by_it(
    cache: Path, folder: Path, lm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = put(cache, "owner/name")
    shutil.copytree(folder, snapshot, dirs_exist_ok=True)
    found = load("owner/name", sequences=5)
    assert found.name == "owner/name"
    wanted = lm.generate("the cat", max_tokens=5)
    assert found.generate("the cat", max_tokens=5) == wanted
    assert main(["generate", "owner/name", "the cat", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out == f"{wanted}\n"
    assert models_at("owner/name") == [("owner/name", snapshot)]
    shutil.copytree(folder, Path("owner/name"))  # a folder of that name comes first
    assert located("owner/name") == (Path("owner/name"), None)


def test_files_of_gguf_are_chosen_by_a_part_of_their_names(cache: Path) -> None:
    files = ("m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf")
    snapshot = put(cache, "owner/many", *files, "README.md")
    assert located("owner/many:q4_k_m") == (snapshot / files[0], "owner/many:q4_k_m")
    assert located("owner/many:Q8_0")[0] == snapshot / files[1]
    for name, found in (("owner/many", "several files"), ("owner/many:Q5", "no file")):
        with pytest.raises(ModelError, match=f"{found} of m-Q4_K_M.gguf, m-Q8_0-00001") as caught:
            located(name)
        assert "write owner/many:PART" in str(caught.value)
    only = put(cache, "owner/one", "m.gguf")
    assert located("owner/one")[0] == only / "m.gguf"
    put(cache, "owner/none", "README.md")
    with pytest.raises(ModelError, match=r"owner/none has no config\.json, and no GGUF file"):
        located("owner/none")


@pytest.mark.parametrize(
    "name",
    [
        *("../name", "owner/..", "./name", "owner/.name", "owner/name/more", "/owner/name", ""),
        *("owner//x", "ow--ner/name", "owner/na..me", "owner", "owner/name:../x", "owner/name\n"),
        *("öwner/name", "owner/-name", "owner\\name", "owner/name.", "owner/name/../../etc"),
        *("a/b:", "\0/x", "~/x", "x" * 300),
    ],
)
def test_what_is_no_name_is_a_path_that_is_not_there(cache: Path, name: str) -> None:
    put(cache, "owner/name", "config.json")
    with pytest.raises(FileNotFoundError, match="there is no folder or file"):
        located(name or "none")


def test_a_damaged_cache_has_no_model(cache: Path) -> None:
    put(cache, "owner/name", "config.json")
    main = cache / "models--owner--name" / "refs" / "main"
    for text in ("", "..", "../../..", f"{COMMIT}/..", "missing", "\udcff"):
        main.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(FileNotFoundError, match=r"and no such model in .*--download"):
            located("owner/name")


def test_nothing_is_fetched_unless_asked(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    fetched: list[Any] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        fetched.append((name, allow_patterns))
        if name == "owner/away":
            raise OSError("no network")
        return str(
            put(cache, name, "m-Q4_0.gguf" if "*.json" not in allow_patterns else "config.json")
        )

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert main(["chat", "owner/name"]) == 2
    error = capsys.readouterr().err
    assert "no such model in" in error
    assert "--download (in Python download=True) or `hf download owner/name` fetches it" in error
    assert fetched == []
    assert located("owner/name", download=True)[0].name == COMMIT
    assert located("owner/gguf:Q4_0", download=True)[0].name == "m-Q4_0.gguf"
    with pytest.raises(ModelError, match="owner/away cannot be fetched: no network"):
        located("owner/away", download=True)
    own = ["*.json", "*.safetensors", "*.jinja"]  # no programs, and no pickles
    assert fetched == [("owner/name", own), ("owner/gguf", ["*Q4_0*.gguf"]), ("owner/away", own)]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="python -m pip install huggingface_hub"):
        located("owner/other", download=True)
