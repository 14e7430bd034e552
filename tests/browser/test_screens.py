"""Pictures and programs as a browser shows them: boxes and colours are measured, screens compared.

Goldens are screens of so few pixels that fonts make little difference: `--update-golden` writes
them. The width of a program depends on the font, so only its measures are tested.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule
from relaxpy.script import from_source

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
Image = pytest.importorskip("PIL.Image")

GOLDEN = Path(__file__).parent / "golden"
SCREEN, PIXELS = (1200, 900), (60, 45)
SCHEMES = {"light": 1, "dark": 0}
"""The browser's numbers of the colours that a user prefers."""
MOST = 0.2
"""The greatest difference of screens, in what distinguishes the golden from empty paper."""
MEASURE = """
const box = e => e.getBoundingClientRect();
const seen = e => e.checkVisibility() && box(e).width > 0;
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
  for (; e; e = e.parentElement) {
    const style = getComputedStyle(e);
    const own = e.querySelector ? e.querySelector(":scope > rect") : null;
    if (own && getComputedStyle(own).fill !== "none") return getComputedStyle(own).fill;
    if (!/, 0\\)$|transparent/.test(style.backgroundColor)) return style.backgroundColor;
  }
  return dark ? "rgb(17, 17, 17)" : "rgb(255, 255, 255)";
};
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const boxes = [...document.querySelectorAll("svg g")].filter(g => {
  const rect = g.querySelector(":scope > rect");
  const isShown = r => r !== rect && seen(r);
  return rect && seen(rect) && ![...g.querySelectorAll("g > rect")].some(isShown);
}).map(g => g.querySelector(":scope > rect"));
const cut = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
  && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
const overlapping = [], outside = [], pale = [];
boxes.forEach((a, n) => boxes.slice(n + 1).forEach(b => {
  if (cut(box(a), box(b))) overlapping.push(a.parentElement.textContent.slice(0, 40));
}));
for (const rect of boxes) for (const text of rect.parentElement.querySelectorAll("text")) {
  const [inner, outer] = [box(text), box(rect)];
  if (seen(text) && (inner.left < outer.left - 1 || inner.right > outer.right + 1))
    outside.push(text.textContent);
}
const words = [...document.querySelectorAll("svg text, pre span, td, th")].filter(seen);
for (const word of words) {
  const style = getComputedStyle(word);
  const found = contrast(word instanceof SVGElement ? style.fill : style.color, paper(word));
  if (found < 3) pale.push([word.textContent.slice(0, 40), found]);
}
const widths = ["iiii", "MMMM"].map(text => {
  const span = document.createElement("span");
  span.textContent = text;
  (document.querySelector("pre") ?? document.body).append(span);
  const width = box(span).width;
  span.remove();
  return width;
});
const result = {boxes: boxes.length, words: words.length, overlapping, outside, pale, widths, dark};
document.body.insertAdjacentHTML("beforeend", "<script type=measured></scr" + "ipt>");
document.querySelector("script[type=measured]").textContent = JSON.stringify(result);
"""


def shown(html: str, scheme: str, folder: Path) -> tuple[dict[str, Any], Any]:
    """What is measured of a page in a notebook's colours, and the screen, (rows, columns)."""
    page, screen = folder / "page.html", folder / "screen.png"
    colours = (
        "background: #111; color: #ddd" if scheme == "dark" else "background: #fff; color: #000"
    )
    attribute = f'data-jp-theme-light="{str(scheme == "light").lower()}"'
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><body {attribute} style="{colours}">{html}'
        f"<script>{MEASURE}</script></body>",
        encoding="utf-8",
    )

    def run(*options: str) -> str:
        assert BROWSER is not None
        command = [
            BROWSER,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--window-size={SCREEN[0]},{SCREEN[1]}",
            *options,
            page.as_uri(),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout

    found = re.search(r'<script type="measured">(.*?)</script>', run("--dump-dom"), re.DOTALL)
    assert found is not None, "the page was not measured"
    run(f"--screenshot={screen}")
    with Image.open(screen) as image:
        small = image.convert("L").resize(PIXELS, Image.Resampling.BOX)
    return json.loads(unescape(found[1])), np.asarray(small)


def difference(found: Any, wanted: Any) -> float:
    """How much a screen differs from another one, as a part of all that this one shows."""
    paper = np.bincount(wanted.ravel()).argmax()
    ink = np.abs(wanted.astype(int) - paper).sum()
    return float(np.abs(found.astype(int) - wanted.astype(int)).sum() / ink)


def program(count: int) -> IRModule:
    """A function of `count` operators, each of which has the results of two."""
    operators = ("R.add", "R.multiply", "R.maximum", "R.nn.relu")
    lines = []
    for n in range(1, count + 1):
        operator = operators[n * n % 4]
        other = "" if operator == "R.nn.relu" else f", v{max(0, n - 1 - n * 7 % 5)}"
        lines.append(f"            v{n} = {operator}(v{n - 1}{other})")
    body = "\n".join(lines)
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(v0: R.Tensor((3, 4), "float32")):
        with R.dataflow():
{body}
            R.output(v{count})
        return v{count}
""")


def html_of(value: Any) -> str:
    text: str = value._repr_mimebundle_()["text/html"]
    return text


PAGES = {
    "picture of 5": lambda: html_of(program(5).graph()),
    "picture of 50": lambda: html_of(program(50).graph()),
    "picture of 500": lambda: html_of(program(500).graph()),
    "program": lambda: html_of(program(12)),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_what_a_browser_shows(name, scheme, tmp_path, request) -> None:
    measured, screen = shown(PAGES[name](), scheme, tmp_path)
    assert measured["dark"] == (scheme == "dark")
    assert measured["words"] > 5
    assert measured["overlapping"] == []
    assert measured["outside"] == []
    assert measured["pale"] == []
    assert measured["widths"][0] == measured["widths"][1] or "picture" in name
    if name == "program":
        return
    golden = GOLDEN / f"{name} {scheme}.png".replace(" ", "_")
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        Image.fromarray(screen).save(golden)
    with Image.open(golden) as wanted:
        assert difference(screen, np.asarray(wanted)) <= MOST


def test_faults_are_seen(tmp_path: Path) -> None:
    html = program(5).graph().to_svg()
    moved = re.sub(r'(class="operator.*?" transform="translate\()[\d. ]+', r"\g<1>20 60", html)
    assert moved != html
    measured, _ = shown(moved, "light", tmp_path)
    assert measured["overlapping"]
    measured, _ = shown(html.replace("font-size:12px", "font-size:40px"), "light", tmp_path)
    assert measured["outside"]
    measured, _ = shown(html.replace("--ink:#1d2330", "--ink:#eeeeee"), "light", tmp_path)
    assert measured["pale"]
    with Image.open(GOLDEN / "picture_of_5_light.png") as image:
        golden = np.asarray(image)
    _, screen = shown(html.replace("stroke:var(--line)", "stroke:none"), "light", tmp_path)
    assert difference(screen, golden) > MOST
    for name in ("picture_of_5_dark", "picture_of_50_light"):
        with Image.open(GOLDEN / f"{name}.png") as image:
            assert difference(np.asarray(image), golden) > MOST
