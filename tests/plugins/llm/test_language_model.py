"""Texts and messages in, texts out: the Python interface, templates and tokens."""

import gc
import json
import re
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.llm import ModelError, ParameterError
from relaxpy.plugins.llm.continuation import Continuation
from relaxpy.plugins.llm.engine import Request
from relaxpy.plugins.llm.files import open_model
from relaxpy.plugins.llm.sampling import Sampling
from relaxpy.plugins.llm.template import ChatTemplate
from relaxpy.plugins.llm.tokens import TextStream, Tokenizer, tokenizer_of_file
from relaxpy.support.dataclass import replace
from tests.plugins.llm import tiny
from tests.plugins.llm.templates import LLAMA2, TEMPLATES

MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": " Hello!\n"},
    {"role": "assistant", "content": "Hi, ünïcode 'quoted' <b>"},
    {"role": "user", "content": "Bye?"},
]


def test_pieces_of_a_stream_are_the_text_of_generate(lm: Any) -> None:
    for options in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.9, "seed": 4}):
        text = lm.generate("the cat", max_tokens=30, **options)
        assert "".join(lm.stream("the cat", max_tokens=30, **options)) == text
    request = lm.start(lm.tokens("the cat"), max_tokens=30).request
    assert request.prompt == tuple(lm.tokenizer.own.encode("the cat").ids)
    lm.cancel(request)
    lm.stream("the cat")  # which nobody reads, so that it ends at once
    assert not lm.engine.waiting


def test_no_collection_visits_what_is_loaded(folder: Path, monkeypatch) -> None:
    states = []

    def opened(path: Path, **options: Any) -> Any:
        states.append(gc.isenabled())
        return open_model(path, **options)

    monkeypatch.setattr("relaxpy.plugins.llm.language_model.open_model", opened)
    relaxpy.llm.load(folder, sequences=5)
    assert (states, gc.isenabled()) == ([False], True)


def test_greedy_requests_draw_nothing(lm: Any) -> None:
    begun = [lm.start(lm.tokens("a"), temperature=t, max_tokens=2) for t in (0, 1)]
    while not all(continuation.request.done for continuation in begun):
        lm.step()
    assert ["random" in vars(continuation.request) for continuation in begun] == [False, True]


def test_several_prompts_at_once_get_the_texts_of_one_by_one(lm: Any) -> None:
    prompts = ["the cat", "hello", MESSAGES, [0, 5, 9], "the dog sat on the log"]
    options = {"max_tokens": 12, "temperature": 0.8, "seed": 7}
    assert lm.generate(prompts, **options) == [lm.generate(p, **options) for p in prompts]


def test_threads_share_the_engine(lm: Any) -> None:
    prompts = [f"{word} cat" for word in ("the", "a", "hello", "my")]
    wanted, found = [lm.generate(p, max_tokens=15) for p in prompts], {}

    def run(prompt: str) -> None:
        found[prompt] = lm.generate(prompt, max_tokens=15)

    threads = [Thread(target=run, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[prompt] for prompt in prompts] == wanted


def test_a_conversation_reads_only_what_is_new(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read, run = [], lm.decoder.run

    def watched(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        read.append(sum(map(len, ids)))
        return run(cache, sequences, ids, rows)

    first = [{"role": "user", "content": "the cat sat on the mat, and so on and on"}]
    lm.generate(first, max_tokens=1)
    monkeypatch.setattr(lm.decoder, "run", watched)
    next_turn = [*first, {"role": "assistant", "content": "no"}, {"role": "user", "content": "so"}]
    lm.generate(next_turn, max_tokens=1)
    # What asks for an answer in the first turn begins the answer in the next one.
    prompt = tuple(lm.tokens(first))
    assert read == [len(lm.tokens(next_turn)) - len(prompt)]
    kept = [p.tokens for p in lm.engine.kept if p.tokens[: len(prompt)] == prompt]
    assert len(kept) == 1  # the sequence of the next turn has that of the first one


def test_a_stop_text_ends_an_answer_before_it(lm: Any) -> None:
    whole = lm.generate("the cat", max_tokens=30, temperature=1.0, seed=3)
    for start, length in ((4, 2), (9, 3), (15, 1)):
        stop = whole[start : start + length]
        found = lm.generate("the cat", max_tokens=30, temperature=1.0, seed=3, stop=[stop, "~~"])
        assert found == whole[: whole.index(stop)]
        pieces = lm.stream("the cat", max_tokens=30, temperature=1.0, seed=3, stop=stop)
        assert "".join(pieces) == found


def test_a_text_is_held_back_as_long_as_it_may_become_a_stop_text() -> None:
    pytest.importorskip("tokenizers")
    own = tiny.tokenizer()
    request = Request(None, (0,), Sampling(), 9, frozenset())  # type: ignore[arg-type]
    continuation, found = Continuation(request, Tokenizer(own), ["catx"]), []
    for token in own.encode("the cat sat", add_special_tokens=False).ids:
        request.tokens.append(token)
        found.append(continuation.take())
    assert found == ["the", " ", "cat sat"]


@pytest.mark.parametrize("text", ["the cat", "ünïcödé 東京 🎉🎉", "a\n\n b", "�x"])
def test_characters_of_several_tokens_come_whole(text: str) -> None:
    pytest.importorskip("tokenizers")
    own = tiny.tokenizer()
    stream = TextStream(Tokenizer(own))
    tokens = own.encode(text, add_special_tokens=False).ids
    pieces = [stream.add(token) for token in tokens]
    assert "".join(pieces) + stream.end() == text
    assert not any("�" in piece for piece in pieces if "�" not in text)
    cut = TextStream(Tokenizer(own))
    assert [cut.add(token) for token in own.encode("é", add_special_tokens=False).ids[:-1]] == [""]
    assert cut.end() == "�"


def test_scores_and_embeddings_use_one_cache(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is as large as one sequence needs, and empty again after an error."""
    prompts = ["the cat sat", "the dog", "hello world"]
    wanted, cache = [lm.embed(prompt) for prompt in prompts], lm.decoder.single_cache
    scores = lm.logits(prompts[0])
    monkeypatch.setattr(lm.decoder, "new_cache", lambda: pytest.fail("another cache"))
    run = lm.decoder.run

    def fails(*args: Any) -> Any:
        run(*args)
        raise MemoryError("no memory for states")

    for prompt, vector in zip(prompts * 2, wanted * 2, strict=True):
        np.testing.assert_array_equal(lm.embed(prompt), vector)
        np.testing.assert_array_equal(lm.logits(prompts[0]), scores)
        with monkeypatch.context() as patched:
            patched.setattr(lm.decoder, "run", fails)
            with pytest.raises(MemoryError, match="no memory for states"):
                lm.embed(prompt)
    assert lm.decoder.single_cache is cache


def test_embeddings_may_be_the_first_or_the_last_state(lm: Any, monkeypatch: Any) -> None:
    tokens, config = lm.tokens("the cat sat"), lm.decoder.config
    cache = lm.decoder.new_cache()
    lm.decoder.state("add_sequence", cache, 0)
    states = lm.decoder.run(cache, [0], [tokens], None)
    for pooling, wanted in (("first", states[0]), ("last", states[-1]), ("mean", states.mean(0))):
        monkeypatch.setattr(lm.decoder, "config", replace(config, pooling=pooling))
        np.testing.assert_allclose(lm.embed(tokens), wanted, rtol=1e-5, atol=1e-6)


def test_entries_that_nobody_knows_are_in_a_note(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    raw = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "my_name": "x"}))
    assert open_model(folder).note is None
    note = str(open_model(tmp_path).note)
    assert note.endswith("config.json has entries that are not known and ignored: my_name")


def test_a_token_that_the_model_lacks_has_no_bias(lm: Any) -> None:
    with pytest.raises(ParameterError, match="logit_bias cannot be 286, expected tokens from 0 to"):
        lm.start([1], logit_bias={286: 1.0})


def test_logits_and_embeddings(lm: Any) -> None:
    prompt = lm.tokens("the cat sat on the mat")
    scores = lm.logits(prompt)
    assert scores.shape == (len(prompt), 286)
    assert lm.generate(prompt, max_tokens=1) == lm.tokenizer.decode([int(scores[-1].argmax())])
    vectors = lm.embed(["the cat", "the dog"])
    np.testing.assert_allclose(vectors[1], lm.embed("the dog"), rtol=1e-5, atol=1e-6)
    head = tiny.weights(tiny.config())["lm_head.weight"]
    last = lm.embed("the cat") * 3 - lm.embed(lm.tokens("the cat")[:2]) * 2
    np.testing.assert_allclose(head @ last, lm.logits("the cat")[-1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature cannot be -1, expected a number that is not negative"),
        ({"temprature": 1}, "no option 'temprature'(?s:.*)did you mean temperature?"),
        ({"n": 2}, "no option 'n'(?s:.*)options are max_tokens, stop"),
        ({"stop": [""]}, r"stop cannot be \[''\], expected a text of 1 to 1000 characters"),
        ({"stop": "x" * 1001}, "stop cannot be 'x*, expected a text of 1 to 1000 characters"),
        ({"stop": ["x"] * 17}, "expected .* at most 16 of them"),
        ({"stop": 3}, "stop cannot be 3"),
        *(
            ({"max_tokens": n}, f"max_tokens cannot be {n!r}, expected a positive integer")
            for n in (0, -1, True, 1.5, "5")
        ),
        ({"max_tokens": 400}, "4 tokens, and 400 more are too many: a sequence has at most 256"),
        ({"logprobs": -1}, "logprobs cannot be -1, expected an integer from 0 to 286"),
        ({"logit_bias": {"a": 1}}, "logit_bias cannot be .*, expected a table of tokens"),
        ({"frequency_penalty": 3}, "frequency_penalty cannot be 3, expected a number from -2 to 2"),
    ],
)
def test_options_that_make_no_sense(lm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lm.generate("the cat sat", **options)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (7, "a prompt is a text, messages or tokens, found 7"),
        (b"hello", "a prompt is a text, messages or tokens, found b'hello'"),
        ([], "a prompt is a text, messages or tokens, found an empty list"),
        ((), "found an empty list"),
        (np.array([], int), "found an empty list"),
        (None, "found None"),
        ({"role": "user", "content": "x"}, "found {'role'(?s:.*)messages are a list, also one"),
        ([1.5], "a prompt of tokens has integers alone, found 1.5"),
        ([3, "x"], "found 'x'(?s:.*)lists of prompts are for generate and embed"),
        (["x", None], "found (None|'x')"),
        (np.array([[5, 6]]), "integers alone"),
        ([{"role": "user", "content": [{"type": "image"}]}], "the parts of a content are texts"),
        ([{"role": "user"}], "the content of a message is a text, found None"),
        ([{"role": "boss", "content": "x"}], "a message has a role .*assistant"),
        ([999999], "the model has the tokens 0 to 285, found 999999"),
        ("a" * 900, "leaves no room for an answer|a prompt has 1 to 256 tokens, found 901"),
        ("\ud800", "half of a character"),
    ],
)
def test_prompts_that_are_none(lm: Any, prompt: Any, message: str) -> None:
    for call in (lm.generate, lm.stream, lm.embed, lm.logits):
        with pytest.raises(ModelError, match=message):
            call(prompt)
    assert not lm.engine.waiting
    assert not lm.engine.running


def test_options_that_are_none_are_not_given(lm: Any) -> None:
    options = dict.fromkeys(("temperature", "top_p", "top_k", "seed", "stop", "logit_bias"))
    options |= dict.fromkeys(("stop_token_ids", "ignore_eos", "lookup", "draft"))
    assert lm.generate("the cat", max_tokens=4, **options) == lm.generate("the cat", max_tokens=4)


@pytest.mark.parametrize(
    ("name", "value"), [("stop_token_ids", 5), ("stop_token_ids", [True]), ("ignore_eos", "no")]
)
def test_options_of_ends_are_tokens_and_truths(lm: Any, name: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{name} cannot be .*, expected (a list of tokens|True)"):
        lm.generate("the cat", max_tokens=4, **{name: value})
    end = lm.decoder.config.vocabulary - 1
    assert lm.generate("a", logit_bias={end: 100.0}, stop_token_ids=np.array([end])) == ""


def test_a_content_may_come_in_parts(lm: Any) -> None:
    parts = [{"type": "text", "text": text} for text in ("hello ", "cat")]
    assert lm.tokens([{"role": "user", "content": parts}]) == lm.tokens(
        [{"role": "user", "content": "hello cat"}]
    )


def test_a_text_without_tokens_cannot_be_continued(lm, monkeypatch) -> None:
    assert lm.tokens("") == [0]  # the token that begins texts
    monkeypatch.setattr(lm.tokenizer, "encode", lambda text: [], raising=False)
    with pytest.raises(ModelError, match="the text '' has no tokens"):
        lm.generate("")


def test_penalties_and_biases_of_tokens(lm: Any) -> None:
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25, logit_bias={3: 1.0, 99: 5.0})
    found = sampling.adjusted([0.0, 1.0, 2.0, 3.0], [0, 1, 2], [2, 2, 1])
    assert found.tolist() == [0.0, 0.25, 1.0, 4.0]
    assert set(lm.generate("x", max_tokens=5, logit_bias={10: 100.0})) == {lm.tokenizer.piece(10)}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": "{"}, "is not JSON"),
        ({"config.json": '{"model_type": "t5"}'}, "architecture 't5', expected one of llama"),
        ({"tokenizer.json": "{"}, "tokenizer.json is not a tokenizer: "),
        ({"tokenizer.json": None}, "which has the tokenizer of the model"),
        ({"tokenizer_config.json": "[]"}, "is not a table of names"),
        ({"tokenizer_config.json": "{}"}, "tiny has no chat template"),
        ({"generation_config.json": "["}, "is not JSON"),
        ({"tokenizer_config.json": '{"chat_template": "{% if"}'}, "template cannot be read"),
    ],
)
def test_folders_whose_files_are_damaged(lm, folder, files, message, tmp_path) -> None:
    own = tmp_path / "tiny"
    own.mkdir()
    for path in folder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    for name, text in files.items():
        (own / name).unlink(missing_ok=True) if text is None else (own / name).write_text(text)
    with pytest.raises(ModelError, match=message):  # noqa: PT012
        found = open_model(own)
        tokenizer = found.tokenizer()
        if found.template is None:
            relaxpy.llm.LanguageModel(found, lm.decoder).template  # noqa: B018
        else:
            ChatTemplate(found.template, tokenizer.special)


def test_a_tokenizer_neither_truncates_nor_pads_as_in_training(folder, lm, tmp_path) -> None:
    copy = json.loads((folder / "tokenizer.json").read_text())
    copy["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst"}
    copy["truncation"]["stride"] = 0
    copy["padding"] = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None}
    copy["padding"] |= {"pad_id": 1, "pad_type_id": 0, "pad_token": "</s>"}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(copy))
    for text in ("the cat sat on the mat", ""):
        assert tokenizer_of_file(path, {}).encode(text) == lm.tokenizer.encode(text)


REGEX = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
NO_TOKEN = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}]}


@pytest.mark.parametrize(
    "entry",
    [
        {"pre_tokenizer": REGEX},
        {"post_processor": {**NO_TOKEN, "pair": [], "special_tokens": {}}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAA="}},
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [["z", 0.0]]}},
    ],
)
def test_a_tokenizer_that_panics_is_an_error_of_the_model(folder, tmp_path, entry) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads((folder / "tokenizer.json").read_text()), **entry}))
    own = tokenizer_of_file(path, {})
    with pytest.raises(ModelError, match="the tokenizer cannot read a text: "):
        own.encode("a" * 40 + "b")


def test_a_template_that_is_no_file(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chat_template.jinja").mkdir()
    with pytest.raises(ModelError, match=r"chat_template\.jinja is not a text: "):
        open_model(tmp_path)


def test_models_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="`hf download OWNER/MODEL --local-dir FOLDER`"):
        relaxpy.llm.load(tmp_path / "none")
    (tmp_path / "x.bin").touch()
    with pytest.raises(ModelError, match=r"neither a folder of a model nor a GGUF file"):
        relaxpy.llm.load(tmp_path / "x.bin")
    with pytest.raises(TypeError, match="expected the path of a model"):
        relaxpy.llm.load(3)  # type: ignore[arg-type]


def test_a_model_that_runs_on_numpy_says_how_slow_it_is(lm: Any, folder: Path) -> None:
    assert lm.notes == []
    slow = relaxpy.llm.load(folder, target="numpy", quantize="q4f32_1")
    assert re.search("runs on NumPy, .* 50 times as long as native code", *slow.notes)
    [note] = relaxpy.llm.load(folder, target="numpy").notes
    assert note.endswith("in float32, some 5 times as slow as native code for few bits")


def test_a_request_whose_call_fails_ends_alone(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, prompts = lm.decoder.run, ["the cat", "hello", "the dog sat"]
    wanted = lm.generate(prompts, max_tokens=6)
    bad = lm.start(lm.tokens("world"), max_tokens=20)

    def fails(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        if bad.request.sequence in sequences and len(bad.request.tokens) >= 2:
            raise MemoryError("no memory for a call")
        return run(cache, sequences, ids, rows)

    monkeypatch.setattr(lm.decoder, "run", fails)
    assert lm.generate(prompts, max_tokens=6) == wanted
    assert (repr(bad.request.error), bad.request.done) == (
        "MemoryError('no memory for a call')",
        True,
    )
    assert len(bad.request.tokens) == 2


def test_a_request_that_cannot_begin_ends_alone(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lm.start(lm.tokens("the cat"), max_tokens=6)
    lm.step()
    state = lm.decoder.state

    def fails(name: str, *args: Any) -> None:
        if name in {"add_sequence", "fork_sequence"}:
            raise MemoryError("no memory for a sequence")
        state(name, *args)

    with monkeypatch.context() as patched:
        patched.setattr(lm.decoder, "state", fails)
        with pytest.raises(MemoryError, match="no memory for a sequence"):
            lm.generate("hello", max_tokens=3)
    while not first.request.done:
        lm.step()
    assert first.take() == lm.generate("the cat", max_tokens=6)
    assert not lm.engine.waiting


# --- chat templates


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_those_of_transformers(name: str) -> None:
    jinja2 = pytest.importorskip("jinja2")
    transformers = pytest.importorskip("transformers")
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    peer = transformers.PreTrainedTokenizerFast(tokenizer_object=tiny.tokenizer(), **special)
    peer.chat_template = TEMPLATES[name]
    odd = [{"role": "user", "content": " \n\t'\"<b>&amp; 🎉\\n{{ x }} "}, *MESSAGES[2:3]]
    thought = [*MESSAGES[1:2], {"role": "assistant", "content": "<think>\nso\n</think>\n\nYes"}]
    named = [{"role": "user", "content": "a", "name": None, "x": 1.5, "parts": [MESSAGES[0]]}]
    template = ChatTemplate(TEMPLATES[name], special)
    for messages in (MESSAGES, MESSAGES[1:2], MESSAGES[:2], MESSAGES[2:], odd, thought, named):
        for continues in (True, False):
            try:
                wanted = peer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=continues
                )
            except jinja2.TemplateError as error:
                with pytest.raises(ModelError, match=re.escape(str(error))):
                    template.render(messages, continues=continues)
                continue
            assert template.render(messages, continues=continues) == wanted


def test_a_template_renders_messages() -> None:
    pytest.importorskip("jinja2")
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    found = ChatTemplate(LLAMA2, special).render(MESSAGES)
    assert found == (
        "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n Hello! [/INST] "
        "Hi, ünïcode 'quoted' <b> </s><s>[INST] Bye? [/INST]"
    )
    with pytest.raises(ModelError, match="Conversation roles must alternate"):
        ChatTemplate(LLAMA2, special).render(MESSAGES[2:])


def test_a_parameter_error_names_its_option(lm: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        lm.generate("x", top_p=2)
    assert caught.value.param == "top_p"


def test_templates_in_files_of_their_own(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    described = json.loads((folder / "tokenizer_config.json").read_text())
    listed = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    described["chat_template"] = listed
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described))
    assert open_model(tmp_path).template == "d"
    (tmp_path / "chat_template.jinja").write_text("own")
    assert open_model(tmp_path).template == "own"
