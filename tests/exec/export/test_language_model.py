"""Language models without Python choose the tokens that they choose in Python."""

from __future__ import annotations

import re
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
from tests.exec.export.in_node import has_relaxed, in_node, needs_linker, needs_node
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
SEQUENCES = 3
#: A prompt of a length that comes to a slot, or steps of the first slots together. A slot may have
#: no text yet, and gets another one once its own has ended.
SCHEDULE = [(0, 16), (2, 33), (3, 5), (1, 1), (3, 7), (0, 17), (1, 2), (3, 20)]
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


class Batch:
    """The exported functions for several sequences, whose tokens come and go."""

    def __init__(self, decoder: CompiledDecoder, folder: Path) -> None:
        self.executable = decoder.exportable(SEQUENCES)
        self.library = Library(self.executable, folder, "batch", weights_inside=False)
        buffer = self.library["decode"].function.inputs[1]
        shape = [int(n) for n in buffer.shape]
        self.keys, self.values = (np.full(shape, np.nan, buffer.dtype) for _ in range(2))

    def call(self, name: str, *tensors: Any, **sizes: int) -> Array:
        """The scores, as the executable computes them in Python, too."""
        copies = self.keys.copy(), self.values.copy()
        arrays = [np.array(tensor, "int32") for tensor in tensors]
        found = self.library[name](*arrays, self.keys, self.values, guards=False, **sizes)
        shape = [
            ShapeTuple([sizes[name]]) for name in ("position", "slot", "length") if name in sizes
        ]
        assert_same(found, self.executable[name](*arrays, *copies, *shape))
        return found[0]


@pytest.mark.parametrize("kind", ["windows", "a cache in float16"])
def test_batches_have_the_tokens_of_python(kind: str, tmp_path: Path) -> None:
    entries, options = KINDS[kind]
    lm = drawn(tmp_path, entries, **options)
    batch = Batch(lm.decoder, tmp_path)
    texts: dict[int, list[int]] = {}
    lengths: dict[int, int] = {}
    for slot, what in SCHEDULE:
        if what in LENGTHS:
            lengths[slot] = what
            own = prompt(what).tolist()
            scores = batch.call("prefill", own, position=0, slot=slot)
            texts[slot] = [*own, int(scores[0].argmax())]
            continue
        for _ in range(what):
            rows = [texts.get(n, [0]) for n in range(slot)]
            ids, positions = [row[-1] for row in rows], [len(row) - 1 for row in rows]
            length = max(positions) + 1
            scores = batch.call("decode_batch", ids, positions, length=length)
            for n, row in enumerate(rows):
                row.append(int(scores[n].argmax()))
        for n in [*texts]:
            count = len(texts[n]) - lengths[n]
            assert texts[n][lengths[n] :] == in_python(lm, lengths[n])[:count], (n, lengths[n])
    [last] = batch.call("decode", texts[2][-1:], position=len(texts[2]) - 1, slot=2)
    assert last.argmax() == in_python(lm, lengths[2])[len(texts[2]) - lengths[2]]
    check_refused(batch)


def check_refused(batch: Batch) -> None:
    """Check that positions and slots that there are not are errors."""
    step = batch.library["decode_batch"]
    buffers = batch.keys, batch.values
    for positions, length, message in (
        ([0, 9], 9, "a position is not below the length"),
        ([0, -1], 9, "outside dimension 2"),
        ([0, CONTEXT], CONTEXT + 1, "outside dimension 2"),
        ([0] * (SEQUENCES + 1), 9, "outside dimension 0"),
    ):
        given = np.array(positions, "int32")
        with pytest.raises(StatusError, match=message):
            step(given * 0 + 5, given, *buffers, length=length, guards=False)
    for slot in (-1, SEQUENCES):
        with pytest.raises(StatusError, match="outside dimension 0"):
            batch.library["prefill"](prompt(9), *buffers, position=0, slot=slot, guards=False)


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


def test_the_programs_of_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = drawn(tmp_path, {})
    source, tokens, _ = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    command = f"export drawn -o chat.a --weights chat.weights --context {CONTEXT} --tokens"
    assert main(command.split()) == 0
    Path("main.c").write_text(source.replace("CONTEXT = 1024", f"CONTEXT = {CONTEXT}"))
    run("cc", "-std=c11", "-D_GNU_SOURCE", *WARNINGS, *SANITIZERS, "main.c", "chat.a", "-o", "main")
    for length in (1, 33):
        found = run("./main", *map(str, prompt(length))).split()
        assert [*map(int, found)] == in_python(lm, length)
    Path("tokens.c").write_text(tokens)
    run("cc", "-std=c11", *WARNINGS, *SANITIZERS, "tokens.c", "-o", "tokens")
    text = "the cat é<|im_end|>"
    found = run("./tokens", text).split(b"\n")[:-1]
    own = lm.tokenizer.encode(text, is_rendered=True)
    assert [int(line.split(b": ")[0]) for line in found] == own
    assert b"".join(line.split(b": ", 1)[1] for line in found).decode() == "the cat é"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export drawn -o chat.a --dim n=3", "--dim is for programs, which drawn is not"),
        ("export drawn -o chat.a --target native", "--target is for programs"),
        ("export drawn -o chat.a --context 9999", "--context cannot be 9999, expected at most"),
        ("export x.py -o chat.a --context 3", "--context is for language models, which x.py is"),
        ("export x.py -o chat.a --tokens", "--tokens is for language models, which x.py is"),
        ("export x.py -o chat.a --sequences 3", "--sequences is for language models, which x.py"),
        ("export drawn -o chat.wasm --tokens", "--tokens cannot be True, expected False, as"),
        ("export drawn -o chat.wasm --page --sequences 2", "as a page has one conversation"),
        ("export drawn -o chat.a --tokens --weights chat.tokens", "a file that is not written"),
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
    assert main(command.split()) == 2
    assert message in capsys.readouterr().err


@needs_node
@needs_linker
def test_greedy_tokens_in_an_engine_of_webassembly(tmp_path: Path) -> None:
    lm = drawn(tmp_path, {})
    lm.export(tmp_path / "chat.wasm", weights=tmp_path / "chat.weights")
    prompts = [prompt(length).tolist() for length in LENGTHS]
    expected = [in_python(lm, length) for length in LENGTHS]
    for cpu in ("relaxed-simd", "simd128") if has_relaxed() else ("simd128",):
        found = in_node("greedy.mjs", tmp_path, {"steps": STEPS, "prompts": prompts}, cpu)
        assert found["cpu"] == cpu
        assert found["tokens"] == expected
        assert found["shares"]
        assert "outside dimension 2" in found["error"]


@needs_node
@needs_linker
def test_batches_in_an_engine_of_webassembly(tmp_path: Path) -> None:
    lm = drawn(tmp_path, {})
    lm.export(tmp_path / "chat.wasm", weights=tmp_path / "chat.weights", sequences=SEQUENCES)
    calls = [[slot, prompt(n).tolist() if n in LENGTHS else n] for slot, n in SCHEDULE]
    ended, texts = in_node("batch.mjs", tmp_path, {"calls": calls})
    lengths = {slot: n for slot, n in SCHEDULE if n in LENGTHS}
    for length, text in [(16, ended[0]), *((lengths[n], text) for n, text in enumerate(texts))]:
        assert text == in_python(lm, length)[: len(text)]
    assert [*map(len, ended)] == [13]
    assert [*map(len, texts)] == [23, 28, 33]
