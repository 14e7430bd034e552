"""Pages that talk to a language model: its tokens and its conversations are those of Python."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("llvmlite")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from relaxpy.llm import load
from relaxpy.plugins.cli.main import main
from tests.exec.export.in_node import needs_linker, needs_node, talk
from tests.exec.export.test_wasm import BROWSER
from tests.plugins.llm import tiny

#: Messages and options that are none, and texts beyond the context.
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "a message is a text, found object"),
    (5, {}, "a message is a text, found number"),
    ("\ud800", {}, "the text has half of a character"),
    ("a", {"temperature": -1}, "the temperature is a number from 0 on, found -1"),
    ("a", {"temperature": "hot"}, "the temperature is a number from 0 on, found hot"),
    ("a", {"maxTokens": 0}, "maxTokens is a number from 1 on, found 0"),
    ("🎉" * 50, {}, "tokens, which leave no room for an answer: it has at most 200 tokens"),
    ("a" * 10**6, {}, "characters, which leave no room for an answer: it has at most 200 tokens"),
]


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
    found = talk(tmp_path, [], questions, [(message, options) for message, options, _ in REFUSED])
    assert found["answers"] == [*expected, expected[0], expected[0]]
    errors = [*(error for _, _, error in REFUSED), *["an answer is being written"] * 2]
    errors += ["this is no module of the model", "is not there: 404", "bytes, found 15 bytes"]
    for wanted, error in zip(errors, found["errors"], strict=True):
        assert wanted in error


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
