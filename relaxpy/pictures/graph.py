"""`Graph`, the picture of a program as users have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import Diagnostic, RelaxpyError, counted, unexpected
from relaxpy.ir.function import BaseFunc
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.pictures.build import mark_faults, picture_of
from relaxpy.pictures.compare import merged
from relaxpy.pictures.model import Picture
from relaxpy.pictures.repeats import bundle_sources, fold_repeats
from relaxpy.pictures.scene import Scene
from relaxpy.pictures.style import SCRIPT
from relaxpy.pictures.svg import notebook_html, svg
from relaxpy.pictures.text import dot, mermaid


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
            raise unexpected(
                path,
                f"expected the path of a file {', '.join(_FORMATS)}",
            )
        target.write_text(_FORMATS[target.suffix](self), encoding="utf-8")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """What a notebook shows."""
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
    """The graph of the program `after`, with what was added to and removed from `before`."""
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
