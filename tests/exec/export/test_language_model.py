"""Language models without Python choose the tokens that they choose in Python."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.llm import CompiledDecoder, LanguageModel, config_of, load
from relaxpy.plugins.cli.main import main
from tests.exec.export.in_node import has_relaxed, needs_linker, needs_node, node
from tests.exec.export.library import Library, StatusError
from tests.exec.export.test_c import ROOT, SANITIZERS, WARNINGS, run
from tests.exec.export.test_export import assert_same, pytestmark as pytestmark
from tests.plugins.llm import test_models as models
from tests.plugins.llm.tiny import config, weights, write_folder, write_gguf

DOCUMENT = ROOT / "docs" / "how-to" / "export-a-language-model.md"
Array = np.ndarray[Any, Any]
LENGTHS = (1, 15, 16, 17, 33)
STEPS = 64
CONTEXT = 104
#: Entries of a config.json, and options of the model.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": ({}, {}),
    "a head of keys for each query": ({"num_key_value_heads": 4}, {}),
    "windows": ({"model_type": "mistral", "sliding_window": 24}, {}),
    "weights in 4 bits": ({"tie_word_embeddings": True}, {"quantize": "q4f32_1"}),
    "a cache in float16": ({}, {"cache_dtype": "float16"}),
}


def drawn(folder: Path, entries: dict[str, Any], **options: Any) -> LanguageModel:
    path = write_folder(folder / "drawn", config(**entries))
    return load(path, target="native", context=CONTEXT, **options)


def prompt(length: int) -> Array:
    return np.random.default_rng(length).integers(4, 280, length).astype("int32")


def in_python(lm: LanguageModel, length: int, **options: Any) -> list[int]:
    """The tokens that `generate` takes after a prompt."""
    started = lm.start(
        prompt(length).tolist(), max_tokens=STEPS, temperature=0, ignore_eos=True, **options
    )
    while not started.request.done:
        lm.step()
        started.take()
    return list(started.request.tokens[-STEPS:])


class Decoder:
    """The exported functions of a model, with a cache that is not what calls may read."""

    def __init__(self, decoder: CompiledDecoder, folder: Path) -> None:
        self.executable = decoder.exportable()
        self.library = Library(self.executable, folder, weights_inside=False)
        shape = [int(n) for n in self.library["decode"].function.inputs[1].shape]
        dtype = self.library["decode"].function.inputs[1].dtype
        self.keys, self.values = (np.full(shape, np.nan, dtype) for _ in range(2))

    def logits(self, tokens: Any, position: int) -> Array:
        """The scores after tokens, as the executable computes them in Python, too."""
        name = "decode" if len(tokens) == 1 and position else "prefill"
        ids = np.array(tokens, "int32")
        copies = self.keys.copy(), self.values.copy()
        found = self.library[name](ids, self.keys, self.values, position=position, guards=False)
        assert found[1] is self.keys
        assert_same(found, self.executable[name](ids, *copies, ShapeTuple([position])))
        return found[0]

    def greedy(self, length: int) -> list[int]:
        """The most probable tokens after a prompt."""
        logits, tokens = self.logits(prompt(length), 0), []
        for position in range(length, length + STEPS):
            tokens.append(int(logits[0].argmax()))
            if len(tokens) < STEPS:
                logits = self.logits(tokens[-1:], position)
        return tokens


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_python(kind: str, tmp_path: Path) -> None:
    entries, options = KINDS[kind]
    lm = drawn(tmp_path, entries, **options)
    decoder = Decoder(lm.decoder, tmp_path)
    for length in LENGTHS:
        assert decoder.greedy(length) == in_python(lm, length), length


def test_weights_are_stored_once(tmp_path: Path) -> None:
    lm = drawn(tmp_path, {"hidden_size": 128, "intermediate_size": 384})
    program = Decoder(lm.decoder, tmp_path).library.program
    own = sum(value.nbytes for value in lm.decoder.values.values())
    assert own <= program.weights_bytes <= own + 4096


def test_a_cache_that_is_full_is_an_error(tmp_path: Path) -> None:
    decoder = Decoder(drawn(tmp_path, {}).decoder, tmp_path)
    before = decoder.logits(prompt(CONTEXT), 0)
    decode = decoder.library["decode"]
    for position in (CONTEXT, -1):
        with pytest.raises(StatusError, match="outside dimension 2"):
            decode(prompt(1), decoder.keys, decoder.values, position=position, guards=False)
    assert_same(decoder.logits(prompt(CONTEXT), 0), before)
    with pytest.raises(StatusError, match=r"take.*outside dimension 0"):
        decode(prompt(1) + 300, decoder.keys, decoder.values, position=3, guards=False)


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q8_0"])
def test_files_of_gguf(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    raw, file = config(), tmp_path / "drawn.gguf"
    write_gguf(file, raw, weights(raw), kind)
    lm = load(file, target="native", context=CONTEXT)
    assert Decoder(lm.decoder, tmp_path).greedy(9) == in_python(lm, 9)


@pytest.mark.parametrize("name", models.CONFIGS)
def test_each_architecture_has_the_scores_of_python(name: str, tmp_path: Path) -> None:
    raw = models.CONFIGS[name]
    own = CompiledDecoder(config_of(raw), models.weights_of(raw, 3), context=48, target="native")
    exported = Decoder(own, tmp_path)
    tokens = np.random.default_rng(5).integers(0, models.VOCABULARY, 40).tolist()
    cache, position = own.single_cache, 0
    own.state("add_sequence", cache, 0)
    for count in (17, 1, 1, 9, 1, 11):
        part = tokens[position : position + count]
        expected = own.run(cache, [0], [part], [count - 1])
        np.testing.assert_allclose(exported.logits(part, position), expected, 2e-5, 2e-5)
        position += count


def test_the_program_of_the_documents_continues_a_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = drawn(tmp_path, {})
    [source] = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    command = f"export drawn -o chat.a --weights chat.weights --context {CONTEXT}"
    assert main(command.split()) == 0
    Path("main.c").write_text(source.replace("CONTEXT = 1024", f"CONTEXT = {CONTEXT}"))
    run("cc", "-std=c11", "-D_GNU_SOURCE", *WARNINGS, *SANITIZERS, "main.c", "chat.a", "-o", "main")
    for length in (1, 33):
        found = run("./main", *map(str, prompt(length))).split()
        assert [*map(int, found)] == in_python(lm, length)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export drawn -o chat.a --dim n=3", "--dim is for programs, which drawn is not"),
        ("export drawn -o chat.a --target native", "--target is for programs"),
        ("export drawn -o chat.a --context 9999", "the model reads 256 tokens"),
        ("export x.py -o chat.a --context 3", "--context is for language models, which x.py is"),
    ],
)
def test_options_that_do_not_fit(
    command: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_folder(tmp_path / "drawn", config())
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) != 0
    assert message in capsys.readouterr().err


@needs_node
@needs_linker
def test_greedy_tokens_in_an_engine_of_webassembly(tmp_path: Path) -> None:
    lm = drawn(tmp_path, {})
    lm.export(tmp_path / "chat.wasm", weights=tmp_path / "chat.weights")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    prompts = [prompt(length).tolist() for length in LENGTHS]
    expected = [in_python(lm, length) for length in LENGTHS]
    for cpu in ("relaxed-simd", "simd128") if has_relaxed() else ("simd128",):
        done = subprocess.run(
            [node() or "", str(Path(__file__).with_name("greedy.mjs")), str(tmp_path), cpu],
            input=json.dumps({"steps": STEPS, "prompts": prompts}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["cpu"] == cpu
        assert found["tokens"] == expected
        assert found["shares"]
        assert "outside dimension 2" in found["error"]
