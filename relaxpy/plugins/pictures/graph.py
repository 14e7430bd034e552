"""`Graph`, the picture of one or two versions of a program, as users have it, and as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from typing_extensions import override

from relaxpy.errors import Diagnostic, RelaxpyError, counted, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.plugins.pictures.build import bundle_sources, fold_repeats, mark_faults, picture_of
from relaxpy.plugins.pictures.model import MODULE, SOURCES, Item, Picture, projected
from relaxpy.plugins.pictures.svg import SCRIPT, Scene, notebook_html, svg
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing


class Graph:
    """The dataflow of a program, which a notebook shows and `save` writes to a file.

    Functions, branches, local functions, dataflow blocks, fused functions and repeated layers are
    boxes, which a click opens and closes. A value shows its struct info on hover.
    """

    __slots__ = ("_scene",)

    def __init__(self, picture: Picture, fold: bool | None = None) -> None:
        fold_repeats(picture)
        bundle_sources(picture)
        self._scene = Scene(picture, fold)

    def to_svg(self) -> str:
        """The picture as an SVG document."""
        return svg(self._scene)

    def to_html(self) -> str:
        """The picture as a page of HTML."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="color-scheme" content="light dark"><title>relaxpy</title></head>\n'
            f"<body>{svg(self._scene)}</body></html>\n"
        )

    def to_mermaid(self) -> str:
        """The picture as a flowchart of Mermaid; groups that are closed are one node."""
        return mermaid(self._scene)

    def to_dot(self) -> str:
        """The picture as a graph of Graphviz; groups that are closed are one node."""
        return dot(self._scene)

    @user_facing
    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, as its suffix says: .svg, .html, .mmd, .dot or .gv.

        Errors:
            MisuseError (also TypeError, ValueError): it is not a path with one of these suffixes.
            OSError: the file cannot be written.
        """
        target = Path(fspath(path)) if isinstance(path, (str, PathLike)) else None
        if target is None or target.suffix not in _FORMATS:
            raise unexpected(path, f"expected the path of a file {', '.join(_FORMATS)}")
        target.write_text(_FORMATS[target.suffix](self), encoding="utf-8")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The representation in a notebook."""
        html = notebook_html(svg(self._scene, script=False), repr(self), SCRIPT)
        return {"text/plain": repr(self), "text/html": html}

    @override
    def __repr__(self) -> str:
        items = self._scene.picture.items
        faults = sum(bool(item.fault) for item in items)
        uses = counted(len(self._scene.picture.uses), "use")
        found = sum(item.kind != "input" for item in items[1:])
        marked = f", {counted(faults, 'fault')}" if faults else ""
        return f"<Graph of {counted(found, 'item')} and {uses}{marked}>"


_FORMATS: Final[Mapping[str, Callable[[Graph], str]]] = {
    ".svg": Graph.to_svg,
    ".html": Graph.to_html,
    ".mmd": Graph.to_mermaid,
    ".dot": Graph.to_dot,
    ".gv": Graph.to_dot,
}


def graph(
    program: IRModule | BaseFunc, fold: bool | None = None, faults: Sequence[Diagnostic] = ()
) -> Graph:
    """The graph of a module or a function.

    With `fold`, all boxes are closed at first; with False, all are open. The faults that are marked
    are those of the rules of well-formedness, unless others are passed.
    """
    return Graph(_picture(program, faults), fold)


def graph_of_change(
    before: IRModule | BaseFunc, after: IRModule | BaseFunc, fold: bool | None = None
) -> Graph:
    """The graph of the program `after`, with the items added to and removed from `before`."""
    return Graph(merged(_picture(before), _picture(after)), fold)


def _picture(program: IRModule | BaseFunc, faults: Sequence[Diagnostic] = ()) -> Picture:
    """The picture of a program, with `faults`, or the rules that it violates."""
    module = program if isinstance(program, IRModule) else IRModule.from_expr(program)
    picture = picture_of(module)
    try:
        faults = faults or check_well_formed(program)
    except RelaxpyError as error:  # it is too large to be checked
        faults = error.diagnostics
    mark_faults(picture, faults)
    return picture


def merged(old: Picture, new: Picture) -> Picture:
    """The new picture, with the items of the old one that it lacks, each with its change.

    An item is kept if a group that is kept has one of the same name, operation and struct info.
    """
    places = {key: number for number, key in enumerate(_keys(new))}
    moved = {MODULE: MODULE}
    for number, key in enumerate(_keys(old)):
        if key in places:
            moved[number] = places[key]
    kept = set(moved.values())
    result = Picture([replace(item) for item in new.items], dict(new.uses))
    for item in result.items[1:]:
        item.change = "kept" if item.number in kept else "added"
    previous: dict[int, float] = {}
    for item in old.items[1:]:
        if item.number not in moved:
            order = previous.get(item.parent, result.items[moved[item.parent]].order) + 1e-6
            copy = result.add(item.kind, item.label, moved[item.parent])
            number = copy.number
            result.items[number] = replace(
                item, number=number, parent=copy.parent, order=order, change="removed"
            )
            moved[item.number] = number
        previous[item.parent] = result.items[moved[item.number]].order
    for value, user in old.uses:
        if "removed" in (result.items[moved[value]].change, result.items[moved[user]].change):
            result.use(moved[value], moved[user])
    return result


def _keys(picture: Picture) -> list[object]:
    """For each item what identifies it in its group, and the group."""
    keys: list[object] = [()]
    numbers: dict[object, int] = {}
    counts: dict[object, int] = {}
    for item in picture.items[1:]:
        group = numbers.setdefault(keys[item.parent], len(numbers))
        key = (group, item.kind, item.name, item.label, item.detail, item.program)
        counts[key] = counts.get(key, 0) + 1
        keys.append((key, counts[key]))
    return keys


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
