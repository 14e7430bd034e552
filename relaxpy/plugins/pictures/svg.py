"""The SVG text of a scene: a picture with every group arranged, its colours and its scripts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from relaxpy.errors import Span
from relaxpy.ir.core.traverse import preorder
from relaxpy.plugins.pictures import layout
from relaxpy.plugins.pictures.model import FOLDED, MODULE, SOURCES, Item, Kind, Picture

#: Groups are opened until this many items are seen.
MAX_SEEN: Final = 600
CHARACTER: Final = 7.3
SMALL_CHARACTER: Final = 6.1
SMALL_LINE: Final = 13.0
HEAD: Final = 26.0
MARGIN: Final = 14.0


class Scene:
    """The members of each group with their sizes, and where they are.

    A group has an input for each value outside that is used inside.
    """

    def __init__(self, picture: Picture, fold: bool | None) -> None:
        self.picture = picture
        self.inputs: dict[tuple[int, int], Item] = {}
        self.uses = self._uses()
        self.members = picture.members()
        self.open = self._opened(fold)
        self.arrangements: dict[int, layout.Arrangement] = {}
        self.boxes: dict[int, dict[int, layout.Box]] = {}
        self.open_sizes: dict[int, layout.Size] = {}
        for group in reversed([*picture.groups()]):
            self._arrange(group)

    def _uses(self) -> dict[int, dict[tuple[int, int], None]]:
        """The uses among the members of each group."""
        picture, found = self.picture, dict[int, dict[tuple[int, int], None]]()
        for value, user in list(picture.uses):
            containers = picture.enclosing(value)
            child = user
            group = picture.items[user].parent
            while group not in containers[1:]:
                port = self._input(value, group)
                found.setdefault(group, {})[port, child] = None
                child, group = group, picture.items[group].parent
            source = containers[containers.index(group) - 1]
            if source != child:
                found.setdefault(group, {})[source, child] = None
        return found

    def _input(self, value: int, group: int) -> int:
        """The input of a group for a value."""
        if (value, group) not in self.inputs:
            of = self.picture.items[value]
            item = self.picture.add("input", of.name or of.label, group)
            item.detail, item.about, item.span = "", of.about, of.span
            self.inputs[value, group] = item
        return self.inputs[value, group].number

    def is_group(self, number: int) -> bool:
        """True if an item can be opened."""
        return number in self.members or bool(self.picture.items[number].program)

    def _opened(self, fold: bool | None) -> set[int]:
        """The groups that are open at first: the outer ones, within a bound on what is seen."""
        opened, seen = {MODULE}, len(self.members.get(MODULE, ()))
        waiting = deque(self.members.get(MODULE, ()) if fold is not True else ())
        while waiting:
            number = waiting.popleft()
            members = self.members.get(number, ())
            if fold is None:
                if self.picture.items[number].kind in FOLDED or seen + len(members) > MAX_SEEN:
                    continue
                seen += len(members)
            if members:
                opened.add(number)
            waiting.extend(members)
        return opened

    def seen(self) -> Iterator[int]:
        """The items that are seen at first, each group before its members."""
        top = self.members.get(MODULE, ())
        return preorder(top, lambda number: self.members[number] if number in self.open else ())

    def closed_size(self, number: int) -> layout.Size:
        """The size of an item that is not open, or of a reference to `~number`."""
        if number < 0:
            return len(self.reference_text(~number)) * CHARACTER + 20, 22
        item = self.picture.items[number]
        label = len(item.label) + (2 if self.is_group(number) else 0)
        width = max(label * CHARACTER, len(item.detail) * SMALL_CHARACTER)
        width = max(width, len(item.fault[0]) * SMALL_CHARACTER if item.fault else 0)
        lines = (1 if item.detail else 0) + (1 if item.fault or item.omitted else 0)
        return width + 20, 22 + SMALL_LINE * lines

    def size(self, number: int) -> layout.Size:
        """The initial size of an item."""
        return self.open_sizes[number] if number in self.open else self.closed_size(number)

    def reference_text(self, value: int) -> str:
        """The label of a reference to a value."""
        item = self.picture.items[value]
        return item.name or item.label

    def program_size(self, number: int) -> layout.Size:
        """The size of an item whose program is seen."""
        lines = self.picture.items[number].program.split("\n")
        width, _ = self.closed_size(number)
        inside = max(map(len, lines)) * SMALL_CHARACTER + 2 * MARGIN
        return max(width, inside), HEAD + len(lines) * SMALL_LINE + MARGIN

    def _arrange(self, group: int) -> None:
        members = self.members[group]
        sources = {n for n in members if self.picture.items[n].kind in SOURCES}
        arrangement = layout.arrange(members, self.uses.get(group, {}), self.size, sources)
        boxes, (width, height) = layout.place(arrangement, self.size)
        self.arrangements[group], self.boxes[group] = arrangement, dict(boxes)
        least, _ = self.closed_size(group)
        self.open_sizes[group] = max(width + 2 * MARGIN, least), height + HEAD + MARGIN


#: Name, light, dark.
_COLOURS: Final = (
    ("paper", "#ffffff", "#16181d"),
    ("ink", "#1d2330", "#e6e8ee"),
    ("soft", "#5d6678", "#9aa3b5"),
    ("line", "#8b94a6", "#717a8c"),
    ("operator", "#f1f3f7", "#262a33"),
    ("kernel", "#e3edfb", "#1d2f4a"),
    ("source", "#e9f4ea", "#1e3325"),
    ("frame", "#f8f9fb", "#1b1e25"),
    ("branch", "#fdf6e3", "#2e2815"),
    ("loop", "#f3ecfb", "#2b2140"),
    ("repeat", "#e6f6f5", "#15312f"),
    ("red", "#c62828", "#ff6b60"),
    ("green", "#1b7f3b", "#4fc26f"),
)
#: The backgrounds of fused groups, light and dark, in turn.
FUSED: Final = (
    ("#fde8d7", "#43290f"),
    ("#fbe3ec", "#43192b"),
    ("#fdf3c4", "#3d3407"),
    ("#e4f3d3", "#26380f"),
    ("#dff1fb", "#0f3345"),
    ("#ece5fc", "#2c2050"),
)


def _variables(column: int) -> str:
    pairs = [(row[0], row[column]) for row in _COLOURS]
    pairs += [(f"fused{i}", row[column - 1]) for i, row in enumerate(FUSED)]
    return ";".join(f"--{name}:{colour}" for name, colour in pairs)


_RULES: Final = """
.relaxpy-picture{background:var(--paper);color:var(--ink);max-width:none;
font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:12px}
.relaxpy-picture text{fill:var(--ink);white-space:pre}
.relaxpy-picture .small{font-size:10px;fill:var(--soft)}
.relaxpy-picture g:not([data-closed])>.short{display:none}
.relaxpy-code{font-size:10px;white-space:pre;fill:var(--ink)}
.relaxpy-picture rect{fill:var(--operator);stroke:var(--line);stroke-width:1}
.relaxpy-picture .kernel>rect,.relaxpy-picture .packed>rect{fill:var(--kernel)}
.relaxpy-picture .source>rect{fill:var(--source);rx:11px}
.relaxpy-picture .input>rect,.relaxpy-picture .reference>rect{stroke-dasharray:3 2}
.relaxpy-picture .frame>rect{fill:var(--frame)}
.relaxpy-picture .block>rect{stroke-dasharray:5 3}
.relaxpy-picture .branch>rect{fill:var(--branch)}
.relaxpy-picture .loop>rect{fill:var(--loop)}
.relaxpy-picture .repeat>rect{fill:var(--repeat);stroke-width:2}
.relaxpy-picture .result>rect{fill:none;stroke-width:1.5}
.relaxpy-picture .uses path{fill:none;stroke:var(--line);stroke-width:1.2}
.relaxpy-picture .tip{fill:var(--line)}
.relaxpy-picture .grid{fill:none;stroke:var(--line);stroke-width:.5;stroke-dasharray:2 3}
.relaxpy-picture .bar rect{fill:var(--line);fill-opacity:.4;stroke:none;
shape-rendering:crispEdges}
.relaxpy-picture .bar .whole{fill-opacity:0}
.relaxpy-picture .bar:hover rect{fill:var(--green)}
.relaxpy-picture .uses .used{stroke:var(--red);stroke-width:1.5}
.relaxpy-picture .total{font-weight:bold}
.relaxpy-picture .point circle{fill:var(--green);fill-opacity:.6;stroke:var(--ink)}
.relaxpy-picture .head{cursor:pointer}
.relaxpy-picture .head:hover text,.relaxpy-picture a:hover text{text-decoration:underline}
.relaxpy-picture [data-closed]>.inside{display:none}
.relaxpy-picture .kept>rect,.relaxpy-picture .kept>text,.relaxpy-picture .kept>a,
.relaxpy-picture .kept>.head{opacity:.5}
.relaxpy-picture .added>rect{stroke:var(--green);stroke-width:2.5}
.relaxpy-picture .removed>rect{stroke:var(--red);stroke-width:2;stroke-dasharray:4 3}
.relaxpy-picture .removed>text,.relaxpy-picture .removed>a>text{text-decoration:line-through}
.relaxpy-picture .faulty>rect{stroke:var(--red);stroke-width:3}
.relaxpy-picture .rule{fill:var(--red);font-size:10px;font-weight:bold}
"""


def style() -> str:
    """The style sheet: dark if the reader prefers it, or the notebook says so."""
    light, dark = _variables(1), _variables(2)
    root = ".relaxpy-picture"
    fused = "".join(f"{root} .fused{i}>rect{{fill:var(--fused{i})}}" for i in range(len(FUSED)))
    return (
        f"{root}{{{light}}}"
        f"@media(prefers-color-scheme:dark){{{root}{{{dark}}}}}"
        f'[data-jp-theme-light="true"] {root},body.vscode-light {root}{{{light}}}'
        f'[data-jp-theme-light="false"] {root},body.vscode-dark {root}{{{dark}}}'
        f"{_RULES}{fused}"
    )


#: Positions are computed as by `place` of the layout.
SCRIPT: Final = """
for (const svg of document.querySelectorAll('svg.relaxpy-picture:not([data-live])')) {
  svg.dataset.live = '';
  const P = JSON.parse(svg.querySelector('metadata').textContent), at = {};
  for (const e of svg.querySelectorAll('[data-i]')) at[e.dataset.i] = e;
  const child = (e, name) => [...e.children].find(c => c.classList.contains(name));
  const isOpen = k => k >= 0 && !('closed' in at[k].dataset) && (P.rows[k] || P.text[k]);
  const size = (k, w, h) => isOpen(k) ? P.text[k] || place(k) : [w, h];
  function curve(path, boxes) {
    let a = boxes[path[0]], d = `M${a.c} ${a.y + a.h}`;
    path.slice(1).forEach((k, i) => {
      const b = boxes[k], m = (a.bottom + b.top) / 2, end = i < path.length - 2 ? b.bottom : b.y;
      d += `V${a.bottom}C${a.c} ${m} ${b.c} ${m} ${b.c} ${b.top}` + (end > b.top ? `V${end}` : '');
      a = b;
    });
    return d;
  }
  function place(g) {
    let y = 0, left = Infinity, right = -Infinity;
    const boxes = {};
    for (const row of P.rows[g]) {
      let bound = -Infinity, shift = 0, tall = 0;
      const found = row.map(([k, w0, h0, c]) => {
        const [w, h] = size(k, w0, h0), x = Math.max(c - w / 2, bound);
        bound = x + w + P.gap;
        shift += (x + w / 2 - c) / row.length;
        tall = Math.max(tall, h);
        return [k, x, w, h];
      });
      for (const [k, x, w, h] of found) {
        boxes[k] = {x: x - shift, y, w, h, top: y, bottom: y + tall};
        left = Math.min(left, x - shift);
        right = Math.max(right, x - shift + w);
      }
      y += tall + P.rowGap;
    }
    for (const [k, b] of Object.entries(boxes)) {
      b.x -= left;
      b.c = b.x + b.w / 2;
      const e = at[k] || at[g + '/' + k];
      if (!e) continue;
      e.setAttribute('transform', `translate(${b.x} ${b.y})`);
      child(e, 'box').setAttribute('width', b.w);
      child(e, 'box').setAttribute('height', b.h);
    }
    const lines = child(child(at[g], 'inside'), 'uses').children;
    (P.paths[g] || []).forEach((path, i) => lines[i].setAttribute('d', curve(path, boxes)));
    return [Math.max(right - left + 2 * P.margin, P.least[g]), y - P.rowGap + P.head + P.margin];
  }
  function toggle(head) {
    const group = head.closest('[data-i]'), open = !('closed' in group.dataset);
    if (open) group.dataset.closed = ''; else delete group.dataset.closed;
    child(head, 'sign').textContent = open ? '\\u25b8' : '\\u25be';
    head.setAttribute('aria-expanded', String(!open));
    const [w, h] = place(0);
    svg.setAttribute('viewBox', `0 0 ${w} ${h}`);
    svg.setAttribute('width', w);
    svg.setAttribute('height', h);
  }
  for (const head of svg.querySelectorAll('.head')) {
    head.addEventListener('click', () => toggle(head));
    head.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); toggle(head); }
    });
  }
}
"""

#: Puts the documents that images show into the page, which gives them its theme and their tips.
UNFOLD_IMAGES: Final = """
for (const image of document.querySelectorAll('img.relaxpy-image')) {
  const box = document.createElement('div');
  box.style = 'overflow:auto;max-height:90vh';
  const bytes = Uint8Array.from(atob(image.src.split(',')[1]), char => char.charCodeAt(0));
  box.innerHTML = new TextDecoder().decode(bytes);
  image.replaceWith(box);
}
"""


_CLASSES: Final[Mapping[Kind, str]] = {
    **dict.fromkeys(SOURCES, "source"),
    "function": "frame",
    "local": "frame",
    "block": "frame",
    "if": "branch",
    "instance": "repeat",
    "bundle": "source",
}


def escaped(text: str) -> str:
    """The text as XML has it, within quotes too."""
    for char, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot"), ("'", "#x27")):
        text = text.replace(char, f"&{name};")
    return text


def notebook_html(document: str, label: str, script: str = "") -> str:
    """The HTML of an SVG document for a notebook, which runs the script if it is trusted.

    Otherwise it shows the image: notebooks that are not trusted leave out scripts and SVG elements,
    and would show the texts of these.
    """
    source = b64encode(document.encode("utf-8", "replace")).decode()
    return (
        f'<img class="relaxpy-image" alt="{escaped(label)}" style="max-width:none" '
        f'src="data:image/svg+xml;base64,{source}"><script>{UNFOLD_IMAGES}{script}</script>'
    )


def link_of(span: Span | None) -> str | None:
    """The address of a line of a file; None for a program that is not in a file."""
    if span is None or span.file.startswith("<"):
        return None
    path = quote(span.file.replace("\\", "/"), safe="/")
    return f"{'file://' if path.startswith('/') else './'}{path}#L{span.line}"


def svg(scene: Scene, *, script: bool = True) -> str:
    """The picture as an SVG document, whose groups the script opens and closes."""
    return _Writer(scene).document(script)


class _Writer:
    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.out: list[str] = []
        self.fused: dict[str, int] = {}
        texts = dict.fromkeys(item.program for item in scene.picture.items if item.program)
        self.programs = {
            text: f"relaxpy-{sha256(text.encode()).hexdigest()[:16]}" for text in texts
        }

    def document(self, script: bool) -> str:
        width, height = self.scene.open_sizes.get(MODULE, (200.0, 60.0))
        title = escaped(self.scene.picture.items[MODULE].about or "dataflow")
        self.out += [
            '<svg xmlns="http://www.w3.org/2000/svg" class="relaxpy-picture" role="group" ',
            'style="max-width:none" ',
            f'aria-label="{title}" width="{width:.0f}" height="{height:.0f}" ',
            f'viewBox="0 0 {width:.0f} {height:.0f}">\n',
            f"<style>{style()}</style>\n",
            '<defs><marker id="relaxpy-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" ',
            'markerHeight="7" orient="auto"><path class="tip" d="M0 1L8 4L0 7z"/></marker>',
            *map(self.program, self.programs),
            "</defs>\n",
            f"<metadata>{self.data()}</metadata>\n",
            f'<g data-i="{MODULE}">',
        ]
        if MODULE in self.scene.members:
            self.inside(MODULE, seen=True)
        self.out.append("</g>\n")
        if script:
            self.out.append(f"<script><![CDATA[{SCRIPT}]]></script>\n")
        self.out.append("</svg>\n")
        return "".join(self.out)

    def data(self) -> str:
        """The data of the script: the rows, the sizes of closed items, and the paths."""
        scene = self.scene
        rows, paths, least, text = {}, {}, {}, {}
        for group, arrangement in scene.arrangements.items():
            rows[group] = [
                [self.entry(entry, arrangement.references, arrangement.centres) for entry in row]
                for row in arrangement.rows
            ]
            if arrangement.paths:
                paths[group] = arrangement.paths
            least[group] = round(scene.closed_size(group)[0])
        for item in scene.picture.items:
            if item.program:
                text[item.number] = [round(side) for side in scene.program_size(item.number)]
        data: dict[str, object] = {"rows": rows, "paths": paths, "least": least, "text": text}
        data |= {"gap": layout.GAP, "rowGap": layout.ROW_GAP, "head": HEAD, "margin": MARGIN}
        return json.dumps(data, separators=(",", ":"))

    def entry(self, entry: int, references: dict[int, int], centres: dict[int, float]) -> list[int]:
        shown = ~references[entry] if entry in references else entry
        is_bend = entry < 0 and entry not in references
        width, height = (0.0, 0.0) if is_bend else self.scene.closed_size(shown)
        return [entry, round(width), round(height), round(centres[entry])]

    def inside(self, group: int, *, seen: bool) -> None:
        """The members of a group, after the lines between them; hidden ones have no position."""
        scene = self.scene
        boxes, arrangement = scene.boxes[group], scene.arrangements[group]
        self.out.append(f'<g class="inside" transform="translate({MARGIN:.0f} {HEAD:.0f})">')
        self.out.append('<g class="uses">')
        for path in arrangement.paths:
            data = f' d="{layout.curve(path, boxes)}"' if seen else ""
            self.out.append(f'<path marker-end="url(#relaxpy-tip)"{data}/>')
        self.out.append("</g>\n")
        for number in scene.members[group]:
            self.item(number, boxes[number], seen=seen)
        for entry, value in arrangement.references.items():
            self.reference(group, entry, value, boxes[entry], seen=seen)
        self.out.append("</g>\n")

    def item(self, number: int, box: layout.Box, *, seen: bool) -> None:
        scene, item = self.scene, self.scene.picture.items[number]
        is_open, is_group = number in scene.open, scene.is_group(number)
        closed = ' data-closed=""' if is_group and not is_open else ""
        where = f' transform="translate({box.x:.0f} {box.y:.0f})"' if seen else ""
        self.out.append(f'<g data-i="{number}" class="{self.classes(item)}"{closed}{where}>')
        about = "\n".join(filter(None, [item.about, str(item.span or ""), *item.fault[1:]]))
        self.out.append(f"<title>{escaped(about)}</title>")
        size = f' width="{box.width:.0f}" height="{box.height:.0f}"'
        self.out.append(f'<rect class="box" rx="5"{size}/>')
        label = f'<text x="{22 if is_group else 10}" y="15">{escaped(item.label)}</text>'
        if is_group:
            sign = "\u25be" if is_open else "\u25b8"
            state = "true" if is_open else "false"
            self.out.append(
                f'<g class="head" tabindex="0" role="button" aria-expanded="{state}">'
                f'<text class="sign" x="8" y="15">{sign}</text>{label}</g>'
            )
        elif link := link_of(item.span):
            self.out.append(f'<a href="{escaped(link)}">{label}</a>')
        else:
            self.out.append(label)
        self.lines(item)
        if item.number in scene.members:
            self.inside(item.number, seen=seen and is_open)
        elif item.program:
            name = self.programs[item.program]
            self.out.append(f'<use class="inside" href="#{name}"/>')
        self.out.append("</g>\n")

    def program(self, text: str) -> str:
        """The lines of a program, which all kernels of it show."""
        lines = []
        for index, line in enumerate(text.split("\n"), 1):
            at = f'x="12" y="{HEAD + SMALL_LINE * index:.0f}"'
            lines.append(f'<text class="relaxpy-code" {at}>{escaped(line)}</text>')
        return f'<g id="{self.programs[text]}">{"".join(lines)}</g>\n'

    def lines(self, item: Item) -> None:
        """The lines below the label of an item that is closed."""
        y = 15 + SMALL_LINE
        more = f"{item.omitted} items, not drawn" if item.omitted else ""
        rule = item.fault[0] if item.fault else ""
        short = "small short" if self.scene.is_group(item.number) else "small"
        lines = [(short, item.detail), (short, more), ("rule", rule)]
        for name, text in lines:
            if text:
                self.out.append(f'<text class="{name}" x="10" y="{y:.0f}">{escaped(text)}</text>')
                y += SMALL_LINE

    def reference(self, group: int, entry: int, value: int, box: layout.Box, *, seen: bool) -> None:
        """Draw a reference to a value that is far above."""
        where = f' transform="translate({box.x:.0f} {box.y:.0f})"' if seen else ""
        label, about = self.scene.reference_text(value), self.scene.picture.items[value].about
        self.out.append(
            f'<g data-i="{group}/{entry}" class="source reference"{where}>'
            f"<title>{escaped(about)}</title>"
            f'<rect class="box" width="{box.width:.0f}" height="{box.height:.0f}"/>'
            f'<text x="10" y="15">{escaped(label)}</text></g>\n'
        )

    def classes(self, item: Item) -> str:
        found = [_CLASSES.get(item.kind, item.kind), item.kind, item.change]
        if item.kind == "fused":
            colour = self.fused.setdefault(item.name, len(self.fused)) % len(FUSED)
            found.append(f"fused{colour}")
        found.append("faulty" if item.fault else "")
        return " ".join(dict.fromkeys(filter(None, found)))
