"""A scene as text for Mermaid and Graphviz: what is seen at first, without positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from relaxpy.pictures.model import MODULE, SOURCES, Item, projected
from relaxpy.pictures.scene import Scene

_MERMAID_SIGNS: Final = re.compile(r'["<>&#`\\|;]')


def mermaid(scene: Scene) -> str:
    """The picture as a flowchart of Mermaid, with subgraphs for the groups that are open."""
    lines = ["flowchart TD"]
    for depth, item in _nested(scene):
        indent = "  " * (depth + 1)
        if item is None:
            lines.append(f"{indent}end")
            continue
        label = _mermaid_label(item)
        left, right = ("([", "])") if item.kind in SOURCES else ("[", "]")
        if item.number in scene.open:
            lines.append(f'{indent}subgraph n{item.number}["{label}"]')
        else:
            lines.append(f'{indent}n{item.number}{left}"{label}"{right}')
    lines += [f"  n{value} --> n{user}" for value, user in projected(scene.picture, shown(scene))]
    faulty = [f"n{item.number}" for _, item in _nested(scene) if item and item.fault]
    if faulty:
        lines.append("  classDef faulty stroke:#c62828,stroke-width:3px")
        lines.append(f"  class {','.join(faulty)} faulty")
    return "\n".join(lines) + "\n"


def dot(scene: Scene) -> str:
    """The picture as a graph of Graphviz, with clusters for the groups that are open."""
    lines = ["digraph program {", "  compound=true; node [shape=box, fontname=monospace];"]
    for depth, item in _nested(scene):
        indent = "  " * (depth + 1)
        if item is None:
            lines.append(f"{indent}}}")
            continue
        label = _dot_text("\n".join(_texts(item)))
        style = ", style=rounded" if item.kind in SOURCES else ""
        style += ", color=red" if item.fault else ""
        if item.number in scene.open:
            lines.append(f'{indent}subgraph cluster_{item.number} {{ label="{label}";')
        else:
            about = _dot_text(item.about)
            lines.append(f'{indent}n{item.number} [label="{label}", tooltip="{about}"{style}];')
    for value, user in projected(scene.picture, shown(scene)):
        ends = [f"ltail=cluster_{value}"] if value in scene.open else []
        ends += [f"lhead=cluster_{user}"] if user in scene.open else []
        tail, head = _leaf(scene, value, -1), _leaf(scene, user, 0)
        attributes = f" [{', '.join(ends)}]" if ends else ""
        lines.append(f"  n{tail} -> n{head}{attributes};")
    return "\n".join([*lines, "}"]) + "\n"


def shown(scene: Scene) -> list[int]:
    """For each item the one that stands for it: the outermost group around it that is closed."""
    result = []
    for item in scene.picture.items:
        path = scene.picture.enclosing(item.number)
        closed = [number for number in path if number not in scene.open]
        result.append(closed[-1] if closed else item.number)
    return result


def _nested(scene: Scene) -> Iterator[tuple[int, Item | None]]:
    """The items that are seen, with their depth; None after the members of a group."""
    waiting: list[tuple[int, int | None]] = [
        (0, n) for n in reversed(scene.members.get(MODULE, ()))
    ]
    while waiting:
        depth, number = waiting.pop()
        item = None if number is None else scene.picture.items[number]
        if item is not None and item.kind == "input":
            continue
        yield depth, item
        if item is not None and item.number in scene.open:
            waiting.append((depth, None))
            waiting += ((depth + 1, n) for n in reversed(scene.members[item.number]))


def _leaf(scene: Scene, number: int, position: int) -> int:
    """The first or the last item in a group that is not itself open."""
    while number in scene.open:
        inside = [n for n in scene.members[number] if scene.picture.items[n].kind != "input"]
        number = inside[position]
    return number


def _texts(item: Item) -> list[str]:
    more = f"{item.omitted} items, not drawn" if item.omitted else ""
    return [text for text in (item.label, item.detail, more, *item.fault[:1]) if text]


def _mermaid_label(item: Item) -> str:
    return "<br>".join(_MERMAID_SIGNS.sub(lambda c: f"#{ord(c[0])};", t) for t in _texts(item))


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
