"""Saved notebooks as JupyterLab shows them: fonts and colours are measured, screens compared.

`--update-golden` writes the screens, which have few pixels; `--whole-table` opens all notebooks.
"""

import asyncio
import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.browser.test_screens import BROWSER, GOLDEN, MOST, difference

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
pytest.importorskip("jupyterlab")
Image = pytest.importorskip("PIL.Image")

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
MOST_WANTED = "04_passes_and_pictures"
"""It has programs, pictures, tables and errors."""
PIXELS = (50, 38)
MEASURE = """(() => {
  const box = e => e.getBoundingClientRect();
  const grey = text => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(n => n / 255).map(
      n => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [grey(a), grey(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = e => {
    let seen = [0, 0, 0], rest = 1;
    for (; e && rest > 0.01; e = e.parentElement) {
      const [r, g, b, a = 1] = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
      seen = [r, g, b].map((part, n) => seen[n] + rest * a * part);
      rest *= 1 - a;
    }
    return seen.join(" ");
  };
  const outputs = [...document.querySelectorAll(".jp-OutputArea-output")];
  const inside = query => outputs.flatMap(o => [...o.querySelectorAll(query)]);
  const width = (pre, text) => {
    const span = document.createElement("span");
    span.textContent = text;
    pre.append(span);
    const found = box(span).width;
    span.remove();
    return found;
  };
  const pale = inside("pre, pre span, td, th, summary").filter(e => e.checkVisibility()).map(
    e => [e.textContent.slice(0, 40), contrast(getComputedStyle(e).color, paper(e))]
  ).filter(([, found]) => found < 3);
  const proportional = inside("pre").filter(
    pre => width(pre, "iiii") !== width(pre, "MMMM")).map(pre => pre.textContent.slice(0, 40));
  return {
    theme: document.body.dataset.jpThemeName, pale, proportional,
    programs: inside("pre").length, pictures: inside("svg.relaxpy-picture, img").length,
    colours: new Set(inside("pre span").map(e => getComputedStyle(e).color)).size,
    errors: [...document.querySelectorAll("[data-mime-type='application/vnd.jupyter.stderr']")]
      .filter(e => e.querySelector("[class*=ansi]")).length,
  };
})()"""
BOX = """(query => {
  const found = document.querySelector(query);
  found.scrollIntoView({block: "start"});
  const {x, y, width, height} = found.getBoundingClientRect();
  return {x, y, width, height: Math.min(height, innerHeight - y), scale: 1};
})"""
PARTS = {
    "program": ".jp-OutputArea-output pre:has(span)",
    "picture": ".jp-OutputArea-output svg.relaxpy-picture",
    "table": ".jp-OutputArea-output table",
}


class Page:
    """A page of a browser, which takes commands of its protocol for developers."""

    def __init__(self, folder: Path) -> None:
        assert BROWSER is not None
        command = [
            BROWSER,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
            *("--remote-debugging-port=0", "--remote-allow-origins=*"),
            f"--user-data-dir={folder / 'profile'}",
        ]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self._loop = asyncio.new_event_loop()
        self._commands = 0
        port = folder / "profile" / "DevToolsActivePort"
        wait(lambda: port.exists() and port.read_text().count("\n") >= 1)
        address = f"http://127.0.0.1:{port.read_text().splitlines()[0]}/json"
        with urllib.request.urlopen(address) as answer:
            [page] = [each for each in json.load(answer) if each["type"] == "page"]
        self._socket: WebSocketClientConnection = self._loop.run_until_complete(
            self._connect(page["webSocketDebuggerUrl"])
        )
        self("Emulation.setDeviceMetricsOverride", width=1000, height=900,
             deviceScaleFactor=1, mobile=False)  # fmt: skip

    async def _connect(self, url: str) -> WebSocketClientConnection:
        return await websocket_connect(url, max_message_size=2**28)

    async def _disconnect(self) -> None:
        self._socket.close()  # outside of a loop, tornado would make another, which nobody closes

    def __call__(self, method: str, **params: Any) -> Any:
        return self._loop.run_until_complete(self._call(method, params))

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        self._commands += 1
        message = {"id": self._commands, "method": method, "params": params}
        await self._socket.write_message(json.dumps(message))
        while True:
            answer = json.loads(await asyncio.wait_for(self._socket.read_message(), 60) or "{}")
            if answer.get("id") == self._commands:
                return answer["result"]

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript; None if there is none."""
        answer = self("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def screen(self, query: str) -> Any:
        """The grey pixels of an element, (rows, columns)."""
        self.value("document.activeElement.blur()")
        clip = self.value(f"{BOX}({json.dumps(query)})")
        assert clip is not None, f"the notebook shows no {query}"
        data = self("Page.captureScreenshot", format="png", clip=clip)["data"]
        with Image.open(BytesIO(base64.b64decode(data))) as image:
            return np.asarray(image.convert("L").resize(PIXELS, Image.Resampling.BOX))

    def close(self) -> None:
        """End the browser."""
        self._loop.run_until_complete(self._disconnect())
        self._process.terminate()
        self._process.wait(20)
        self._loop.close()


def wait(is_done: Any, seconds: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.1)


class Lab:
    """A server of JupyterLab with copies of the notebooks, in one theme."""

    def __init__(self, folder: Path, theme: str) -> None:
        self.theme, self.token, self.shown = theme, secrets.token_hex(), ""
        work, settings = folder / "work", folder / "settings" / "@jupyterlab"
        work.mkdir(parents=True)
        for path in NOTEBOOKS.glob("*.ipynb"):
            shutil.copy(path, work)
        for file, values in {
            "apputils-extension/themes": {"theme": THEMES[theme]},
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
            "notebook-extension/tracker": {"windowingMode": "none"},
        }.items():
            path = settings / f"{file}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        names = {"CONFIG_DIR": "config", "RUNTIME_DIR": "runtime", "DATA_DIR": "data"}
        environment = {
            **os.environ,
            **{f"JUPYTER_{name}": str(folder / path) for name, path in names.items()},
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        trust = [sys.executable, "-m", "jupyter", "trust", *map(str, work.glob("*.ipynb"))]
        subprocess.run(trust, env=environment, check=True, capture_output=True, timeout=60)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *(f"--port={self.port}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"),
            *(f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={work}"),
        ]
        with open(folder / "log", "wb") as log:
            self._process = subprocess.Popen(command, env=environment, cwd=work, stderr=log)
        try:
            wait(self._answers)
            self.page = Page(folder)
        except BaseException:
            self._process.kill()
            raise

    def _answers(self) -> bool:
        assert self._process.poll() is None, "JupyterLab ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5):
                return True
        except OSError:
            return False

    def open(self, notebook: str) -> Page:
        """The page of a notebook, when it is shown."""
        page = self.page
        if self.shown == notebook:
            return page
        self.shown = notebook
        address = f"http://127.0.0.1:{self.port}/doc/tree/{notebook}.ipynb?reset&token={self.token}"
        page("Page.navigate", url=address)
        saved = nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4)
        outputs = sum(len(cell.get("outputs", ())) for cell in saved.cells)
        count = "document.querySelectorAll('.jp-OutputArea-output').length"
        wait(lambda: (page.value(count) or 0) >= outputs)
        wait(lambda: page.value("document.body.dataset.jpThemeName"))
        time.sleep(1.0)  # the last styles and pictures
        return page

    def close(self) -> None:
        """End the browser and the server."""
        self.page.close()
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture(scope="module", params=THEMES)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("lab"), request.param)
    yield server
    server.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "notebook" in metafunc.fixturenames:
        every = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
        whole = metafunc.config.getoption("--whole-table")
        metafunc.parametrize("notebook", every if whole else [MOST_WANTED])


def test_outputs_can_be_read(lab: Lab, notebook: str) -> None:
    measured = lab.open(notebook).value(MEASURE)
    assert measured["theme"] == THEMES[lab.theme]
    assert measured["programs"] > 0
    assert measured["proportional"] == []
    assert measured["pale"] == []
    saved = nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4)
    outputs = [output for cell in saved.cells for output in cell.get("outputs", ())]
    assert measured["errors"] == sum(output.output_type == "error" for output in outputs)
    drawn = sum("image/png" in str(o) or "relaxpy-picture" in str(o) for o in outputs)
    assert measured["pictures"] >= drawn
    if notebook == MOST_WANTED:
        assert measured["colours"] > 4
        assert min(measured["pictures"], measured["errors"]) > 0


@pytest.mark.parametrize("part", PARTS)
def test_screens_are_as_before(lab: Lab, part: str, request: pytest.FixtureRequest) -> None:
    screen = lab.open(MOST_WANTED).screen(PARTS[part])
    golden = GOLDEN / f"lab_{part}_{lab.theme}.png"
    if request.config.getoption("--update-golden"):
        Image.fromarray(screen).save(golden)
    with Image.open(golden) as wanted:
        assert difference(screen, np.asarray(wanted)) <= MOST


def test_faults_are_seen(lab: Lab) -> None:
    page = lab.open(MOST_WANTED)
    lab.shown = ""  # is to be opened anew after this
    query = PARTS["program"]
    page.value(f"document.querySelector({json.dumps(query)}).style.fontFamily = 'sans-serif'")
    faint = "for (const e of document.querySelectorAll('td')) e.style.color = '#808080'"
    paper = "for (const e of document.querySelectorAll('td')) e.style.background = '#777777'"
    page.value(f"{faint}; {paper}")
    measured = page.value(MEASURE)
    assert measured["proportional"]
    assert measured["pale"]
    table = page.screen(PARTS["table"])
    with Image.open(GOLDEN / f"lab_table_{lab.theme}.png") as wanted:
        assert difference(table, np.asarray(wanted)) > MOST
