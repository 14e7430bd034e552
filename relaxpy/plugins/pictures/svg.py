"""The SVG text of a scene."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from relaxpy.errors import Span
from relaxpy.plugins.pictures.layout import GAP, ROW_GAP, Box, curve
from relaxpy.plugins.pictures.model import MODULE, SOURCES, Item, Kind
from relaxpy.plugins.pictures.scene import HEAD, MARGIN, SMALL_LINE, Scene
from relaxpy.plugins.pictures.style import FUSED, SCRIPT, UNFOLD_IMAGES, style

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
        data |= {"gap": GAP, "rowGap": ROW_GAP, "head": HEAD, "margin": MARGIN}
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
            data = f' d="{curve(path, boxes)}"' if seen else ""
            self.out.append(f'<path marker-end="url(#relaxpy-tip)"{data}/>')
        self.out.append("</g>\n")
        for number in scene.members[group]:
            self.item(number, boxes[number], seen=seen)
        for entry, value in arrangement.references.items():
            self.reference(group, entry, value, boxes[entry], seen=seen)
        self.out.append("</g>\n")

    def item(self, number: int, box: Box, *, seen: bool) -> None:
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

    def reference(self, group: int, entry: int, value: int, box: Box, *, seen: bool) -> None:
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
