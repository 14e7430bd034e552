"""Pages that talk to a language model: its tokens and its conversations are those of Python."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from relaxpy.llm import ModelError, load
from relaxpy.plugins.cli.main import main
from relaxpy.plugins.llm import tokens as tokenizers
from relaxpy.plugins.llm.exported_page import page_of
from relaxpy.plugins.llm.template import ChatTemplate
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.exec.export.in_node import needs_linker, needs_node, node
from tests.exec.export.test_wasm import BROWSER
from tests.plugins.llm import parts, tiny
from tests.plugins.llm.templates import TEMPLATES
from tests.plugins.llm.test_tokens import metadata, written

TALK = Path(__file__).with_name("talk.mjs")
#: Words in cases and scripts, numbers, punctuation, white space of all kinds, and contractions.
PARTS = [
    *("Hello", "hELLO", "don't", "WE'LL", "'Re", "it\u017f", "'\u017f", "straße", "Ǆungla", "ʰa"),
    *("中文", "日本語", "हिन्दी", "e\u0301", "é", "ﬁ", "🎉", "👩‍💻", "١٢٣", "Ⅻ", "1234567", "3.14"),
    *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u0085", "\ufeff", "\u200b", "\x00"),
    *("...", "$+<=>^~|", "//", "_", "-", "—", "<s>", "<|im_end|>", "s>", "user", "\U0010ffff"),
]


def talk(
    folder: Path, texts: Sequence[str] = (), questions: Sequence[str] = (), most: int = 12
) -> Any:
    (folder / "package.json").write_text('{"type": "module"}')
    asked = {"texts": texts, "questions": questions, "maxTokens": most}
    done = subprocess.run(
        [node() or "", str(TALK), str(folder)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def model_of(tokenizer: Tokenizer, template: str | None = None) -> Any:
    """What a page reads of a model."""
    made = template and ChatTemplate(template, {"bos_token": "<s>"})
    return SimpleNamespace(
        tokenizer=tokenizer, template_text=template, template=made, ends=(1,), name="drawn"
    )


def byte_pairs(name: str) -> Tokenizer:
    """A tokenizer of GGUF that splits texts by `name`, and has merged many pairs."""
    rng = random.Random(name)
    words = [written(bytes([byte])) for byte in range(256)]
    merges = []
    for _ in range(600):
        text = written(rng.choice(PARTS).encode() + rng.choice(PARTS).encode())
        cut = rng.randrange(1, len(text))
        left = max((w for w in words if text[:cut].endswith(w)), key=len)
        right = max((w for w in words if text[cut:].startswith(w)), key=len)
        if left + right not in words:
            words.append(left + right)
            merges.append(f"{left} {right}")
    words += ["<s>", "</s>", "<|im_end|>"]
    kinds = [1] * (len(words) - 3) + [3] * 3
    return tokenizers.tokenizer_of_metadata(
        metadata("gpt2", words, merges=merges, pre=name, token_type=np.array(kinds, "i4"))
    )


def drawn_texts(seed: str) -> list[str]:
    rng = random.Random(seed)
    texts = ["", " ", *PARTS]
    texts += ["".join(rng.choices(PARTS, k=rng.randrange(1, 12))) for _ in range(300)]
    return texts


def check_tokens(tokenizer: Tokenizer, folder: Path) -> None:
    """Check that the page has the tokens of texts, and their text."""
    script = page_of(model_of(tokenizer), "chat")[".chat.js"]
    (folder / "chat.chat.js").write_text(script, "utf-8")
    (folder / "chat.js").write_text("export const load = null;\n")
    texts = drawn_texts("texts")
    found = talk(folder, texts)
    for text, tokens, back in zip(texts, found["tokens"], found["written"], strict=True):
        expected = tokenizer.encode(text, is_rendered=True)
        assert tokens == expected, text
        assert back == tokenizer.decode(expected), text


@needs_node
@pytest.mark.parametrize("name", tokenizers._SPLITS)
def test_tokens_of_byte_pairs(name: str, tmp_path: Path) -> None:
    check_tokens(byte_pairs(name), tmp_path)


@needs_node
def test_tokens_of_a_file(tmp_path: Path) -> None:
    from tokenizers import normalizers

    own = tiny.tokenizer()
    check_tokens(Tokenizer(own), tmp_path)
    own.normalizer = normalizers.NFC()
    check_tokens(Tokenizer(own), tmp_path)


@needs_node
@needs_linker
def test_a_page_answers_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write_folder(tmp_path / "drawn", tiny.config())
    monkeypatch.chdir(tmp_path)
    command = "export drawn -o chat.wasm --weights chat.weights --context 200 --page"
    assert main(command.split()) == 0
    assert "chat.chat.js" in Path("chat.html").read_text()
    lm = load("drawn", target="native", context=200)
    questions = ["hello cat", " the dog  sat\n on\n", "🎉"]
    messages: list[dict[str, str]] = []
    expected = []
    text = ""
    for question in questions:
        messages = [{"role": "user", "content": question}]
        start = lm.template.render(messages)
        text = start if not text else f"{text}<|im_end|>\n{start.removeprefix('<s>')}"
        own = lm.tokenizer.encode(text, is_rendered=True)
        answer = lm.generate(own, max_tokens=12)
        expected.append(answer)
        text += answer
    assert talk(tmp_path, [], questions)["answers"] == [*expected, expected[0]]


#: A model that answers as it is told, and writes the tokens that it gets before each answer.
TOLD = """\
import { writeFileSync } from "node:fs";
const answers = ANSWERS, prompts = [];
let tokens = [], left = [], from = 0;
const logits = new Float32Array(WORDS);
const step = {
  inputs: {
    keys: { shape: [1, 1, 9999, 1] },
    ids: { set: (ids) => { tokens = [...tokens.slice(0, from), ...ids]; } },
  },
  outputs: { logits },
  resize: ({ position }) => { from = position; },
  runInPlace: () => {
    if (left.length === 0) {
      prompts.push(tokens);
      writeFileSync(FILE, JSON.stringify(prompts));
      left = [...answers[prompts.length - 1]];
    }
    logits.fill(0)[left.shift()] = 1;
  },
};
export const load = async () => ({ functions: { prefill: step, decode: step } });
"""


@needs_node
@pytest.mark.parametrize("name", ["llama 3", "qwen 2", "qwen 3"])
def test_later_questions_come_after_what_the_template_shows(name: str, tmp_path: Path) -> None:
    """Spaces around messages stay if the template leaves them, and thoughts go if it drops them."""
    model = model_of(byte_pairs("gpt-2"), TEMPLATES[name])
    questions = [" What?\n", "and  then ", "So"]
    answers = [" a \nb ", "<think>\nHm\n</think>\n\nIt is ", "c", "d"]
    (tmp_path / "chat.chat.js").write_text(page_of(model, "chat")[".chat.js"], "utf-8")
    told = [[*model.tokenizer.encode(a, is_rendered=True), *model.ends] for a in answers]
    values = {"ANSWERS": told, "WORDS": 2000, "FILE": str(tmp_path / "prompts.json")}
    text = TOLD
    for key, value in values.items():
        text = text.replace(key, json.dumps(value))
    (tmp_path / "chat.js").write_text(text)
    assert talk(tmp_path, [], questions, most=100)["answers"] == answers
    prompts = json.loads((tmp_path / "prompts.json").read_text())
    messages: list[dict[str, str]] = []
    for question, answer, prompt in zip(questions, answers, prompts[:-1], strict=False):
        messages.append({"role": "user", "content": question})
        rendered = model.template.render(messages)
        assert prompt == model.tokenizer.encode(rendered, is_rendered=True)
        messages.append({"role": "assistant", "content": answer})


ASKING = """
<script type="module">
const $ = (id) => document.getElementById(id);
const ready = async () => {
  while ($("send").disabled) await new Promise((done) => setTimeout(done, 5));
};
await ready();
$("text").value = "hello cat";
$("form").requestSubmit();
await ready();
document.body.dataset.answer = encodeURIComponent($("log").lastChild.textContent);
</script>
"""


@needs_linker
@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_page_answers_in_a_browser(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "drawn", tiny.config())
    lm = load(folder, target="native", context=60)
    pages = tmp_path / "pages"
    pages.mkdir()
    lm.export(pages / "chat.wasm", weights=pages / "chat.weights", page=True)
    page = pages / "chat.html"
    page.write_text(page.read_text().replace("</body>", ASKING + "</body>"))
    handler = partial(SimpleHTTPRequestHandler, directory=str(pages))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/user",
        ]
        address = f"http://127.0.0.1:{server.server_port}/chat.html"
        command = [BROWSER or "", *options, "--virtual-time-budget=20000", "--dump-dom", address]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        server.shutdown()
    found = re.search(r'data-answer="([^"]*)"', done.stdout)
    assert found, done.stdout[-2000:]
    messages = [{"role": "user", "content": "hello cat"}]
    room = 60 - len(lm.tokens(messages))
    assert unquote(found[1]) == lm.generate(messages, max_tokens=room)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "WordLevel"}, "of the kind WordLevel, expected BPE"),
        ({"normalizer": "Lowercase"}, "the normalizer Lowercase"),
        ({"decoder": "WordPiece"}, "the decoder WordPiece"),
        ({"pre": "Punctuation"}, "splits texts by .*Punctuation"),
        ({"regex": r"\w+"}, r"splits texts by \\w"),
        ({"regex": r"[a-z&&[^b]]+"}, "splits texts by && in"),
        ({"regex": r"\p{Han}+"}, r"splits texts by \\p\{Han\}"),
        ({"regex": r"a++"}, r"splits texts by \+\+"),
        ({"regex": r"^a"}, r"splits texts by \^"),
        ({"regex": r"(?<=a)b"}, r"splits texts by \(\? in"),
        ({"regex": r"a{1,3}+"}, r"splits texts by \{1,3\}\+"),
        ({"regex": r"(?i:[ab])"}, "splits texts by a in"),
        ({"template": "{% for m in messages %}{{ m.content | upper }}{% endfor %}"}, "template"),
        ({"template": parts.TEMPLATES["json"] + "{{ messages | length }}"}, "template"),
        (
            {"template": TEMPLATES["qwen 2"].replace("content", "content | replace('\n', '')")},
            "its",
        ),
    ],
)
def test_other_tokenizers_and_templates_are_refused(change: dict[str, str], message: str) -> None:
    from tokenizers import Regex, Tokenizer as Own, decoders, models, normalizers, pre_tokenizers

    own = tiny.tokenizer()
    [(what, how)] = change.items()
    if what == "model":
        own = Own(models.WordLevel({"a": 0}, unk_token="a"))
    elif what == "normalizer":
        own.normalizer = getattr(normalizers, how)()
    elif what == "decoder":
        own.decoder = getattr(decoders, how)()
    elif what == "pre":
        own.pre_tokenizer = getattr(pre_tokenizers, how)()
    elif what == "regex":
        own.pre_tokenizer = pre_tokenizers.Split(Regex(how), "isolated")
    template = how if what == "template" else None
    with pytest.raises(ModelError, match=f"the page cannot talk to the model: .*{message}"):
        page_of(model_of(Tokenizer(own), template), "chat")
